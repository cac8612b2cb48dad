"""The steps of pairsmith: their settings, functions and command names.

Recipes and the command line are both made from ``STEPS``. The functions are imported when they are
called, so that ``pairsmith --help`` does not wait for torch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from pairsmith.core.model_names import check_name
from pairsmith.core.settings import Settings
from pairsmith.data.tasks import load_task
from pairsmith.steps.classify.settings import ClassifySettings
from pairsmith.steps.evaluate.classification_settings import EvaluateClassificationSettings
from pairsmith.steps.evaluate.retrieval_settings import EvaluateRetrievalSettings, check_retriever_name
from pairsmith.steps.evaluate.settings import (
    EvaluateLabelsSettings,
    EvaluateMtebSettings,
    EvaluateQaSettings,
    EvaluateStsSettings,
    EvaluateSummariesSettings,
    check_summarizer_name,
)
from pairsmith.steps.evaluate.transfer_settings import (
    EvaluateNerSettings,
    EvaluateParaphraseSettings,
    EvaluateSentimentSettings,
)
from pairsmith.steps.generate.settings import GenerateSettings, PostprocessSettings
from pairsmith.steps.infuse.settings import AskSettings, RelabelSettings
from pairsmith.steps.mine.settings import FilterSettings, MineSettings, RewriteSettings
from pairsmith.steps.mix.settings import MixSettings
from pairsmith.steps.negatives.settings import NegativesSettings
from pairsmith.steps.retrieval.settings import ChunkSettings, FilterQueriesSettings, QueriesSettings
from pairsmith.tools.settings import AuditSettings, ExportSettings, PushSettings, ReportSettings
from pairsmith.training.classifier_settings import TrainClassifierSettings
from pairsmith.training.encoder_settings import TrainEncoderSettings
from pairsmith.training.question_settings import (
    InfuseSettings,
    TrainQuestionGeneratorSettings,
    TrainTeacherSettings,
)
from pairsmith.training.retriever_settings import TrainRetrieverSettings
from pairsmith.training.settings import (
    TrainBiencoderSettings,
    TrainCrossencoderSettings,
    TrainReaderSettings,
    TrainSummarizerSettings,
)


def _check_folder(source: str) -> None:
    """Refuse a folder that does not exist."""
    from pairsmith.data.sources import check_there  # imported here, as it takes a second

    check_there(source)


SOURCES = frozenset({
    "inputs", "outputs", "data", "pairs", "seeds", "added", "validation", "train", "documents", "queries",
    "corpus", "evaluation", "chunks", "judgements", "labelled",
})  # fmt: skip
"""Settings that name what a step reads; a text under one of these names is a source in every step."""

if TYPE_CHECKING:
    from pairsmith.runs import Run
    from pairsmith.runs.estimate import Estimate


@dataclass(frozen=True, slots=True)
class Step:
    """A step: its settings, the function that does the work, and the function that says what it will cost.

    Functions are named as ``package.module:function``, and imported when they are needed.
    """

    settings: type[Settings]
    work: "str | Callable[[Any, Run], object]"  # takes settings and a ``Run``; writes into the run's folder
    help: str  # one line for people
    preview_setting: str = ""  # the setting with which the step writes nothing and needs no folder
    folder_setting: str = ""  # the setting without which the step needs no folder
    # By setting, a function that raises a ``UserError`` for values that cannot be used. Without one,
    # ``base``, ``model`` and the setting that ``model_setting`` names are checked as names of models.
    checks: Mapping[str, Callable[[str], object]] = field(default_factory=dict)
    # Takes settings and the estimates of earlier steps; gives an ``Estimate``. Empty for a training, which
    # plans itself, and where ``planned_rows_setting`` is given.
    plan: str = ""
    # The setting that names the rows; a plan runs the step on some of them and extrapolates.
    planned_rows_setting: str = ""
    model_setting: str = ""  # the setting that names a model which an earlier step may train
    # Commands that may follow, for people; {out} and {model} stand for the step's.
    next_commands: tuple[str, ...] = ()
    of_runs: bool = False  # whether the step can read the folder of a recipe's run

    def run(self, settings: Settings, run: "Run") -> object:
        """Do the work; for a rank of an array job, its share."""
        work = imported(self.work) if isinstance(self.work, str) else self.work
        if run.kept and "executor" in self.settings.model_fields:
            from pairsmith.runs.array_job import rank_of, run_rank

            shared = cast(Any, settings)
            if rank := rank_of(shared):
                run_rank(work, shared, rank, run)
                return None
        return work(settings, run)

    def planner(self) -> "Callable[..., Estimate]":
        """The function that says what the step will cost."""
        planner: Callable[..., Estimate]
        if self.planned_rows_setting:
            planner = partial(imported("pairsmith.cli.slice_plan:plan_by_slice"), self)
        else:
            planner = imported(self.plan) if self.plan else imported(str(self.work)).plan
        return planner

    def all_checks(self) -> Mapping[str, Callable[[str], object]]:
        """``checks``, and those of the settings that name models."""
        fields = self.settings.model_fields.keys()
        names = ({"base", "model", self.model_setting} & fields) - self.checks.keys()
        return {**self.checks, **dict.fromkeys(sorted(names), check_name)}

    def needs_folder(self, settings: Settings) -> bool:
        """Whether the step needs a folder to write to."""
        if self.preview_setting and getattr(settings, self.preview_setting):
            return False
        return not self.folder_setting or bool(getattr(settings, self.folder_setting))


def imported(name: str) -> Any:
    """The function that is named as ``package.module:function``."""
    module, _, function = name.partition(":")
    return getattr(import_module(module), function)


def command_of(name: str) -> str:
    """A step's name on the command line: that of ``evaluate-sts`` is ``evaluate sts``."""
    return name.replace("evaluate-", "evaluate ")


Steps = Mapping[str, Step]

STEPS: Steps = {
    "generate": Step(
        GenerateSettings,
        "pairsmith.steps.generate.route:generate",
        "Generate labelled texts or pairs from a task.",
        plan="pairsmith.steps.generate.plan:plan_generate",
        preview_setting="preview",
        checks={"task": load_task},
        next_commands=(
            "pairsmith report --data {out} --out {out}-page",
            "pairsmith postprocess --data {out} --out {out}-clean",
        ),
    ),
    "postprocess": Step(
        PostprocessSettings,
        "pairsmith.steps.generate.postprocess:postprocess",
        "Clean, smooth and split generated rows; add negatives.",
        plan="pairsmith.steps.generate.plan:plan_postprocess",
        next_commands=("pairsmith report --data {out} --out {out}-page",),
    ),
    "train-encoder": Step(
        TrainEncoderSettings,
        "pairsmith.steps.training.encoder:train_encoder",
        "Train a sentence encoder on scored pairs.",
        plan="pairsmith.steps.training.plan_encoder:plan_train_encoder",
        next_commands=("pairsmith evaluate sts --model {out} --data GRADED_PAIRS.tsv --out {out}-sts",),
    ),
    "train-classifier": Step(
        TrainClassifierSettings,
        "pairsmith.steps.training.classifier:train_classifier",
        "Train a classifier on labelled texts.",
        plan="pairsmith.steps.training.classifier:plan_train_classifier",
        next_commands=(
            "pairsmith evaluate classification --model {out} --data LABELLED.tsv --out {out}-measured",
            "pairsmith classify --model {out} --data TEXTS.txt --out {out}-labels",
        ),
    ),
    "classify": Step(
        ClassifySettings,
        "pairsmith.steps.classify.route:classify",
        "Label texts with a text classifier.",
        plan="pairsmith.steps.classify.plan:plan_classify",
        model_setting="model",
        next_commands=("pairsmith export --data {out} --form csv --out {out}-table",),
    ),
    "train-biencoder": Step(
        TrainBiencoderSettings,
        "pairsmith.steps.training.biencoder:train_biencoder",
        "Train an encoder on seed pairs, for mining more.",
    ),
    "mine": Step(
        MineSettings,
        "pairsmith.steps.mine.route:mine",
        "Find pairs of texts in two corpora.",
        plan="pairsmith.steps.mine.plan:plan_mine",
        model_setting="encoder",
        next_commands=("pairsmith report --data {out} --out {out}-page",),
    ),
    "train-crossencoder": Step(
        TrainCrossencoderSettings,
        "pairsmith.steps.training.crossencoder:train_crossencoder",
        "Train a model that tells pairs from hard negatives.",
        checks={"encoder": check_name},
    ),
    "filter": Step(
        FilterSettings,
        "pairsmith.steps.mine.filter:filter_pairs",
        "Keep the pairs that a model ranks highest.",
        plan="pairsmith.steps.mine.plan:plan_filter",
        model_setting="model",
    ),
    "rewrite": Step(
        RewriteSettings,
        "pairsmith.steps.mine.rewrite:rewrite",
        "Have a model rewrite questions or summaries.",
        plan="pairsmith.steps.mine.plan:plan_rewrite",
        model_setting="model",
    ),
    "train-reader": Step(
        TrainReaderSettings,
        "pairsmith.steps.training.reader:train_reader",
        "Train a reader on seeds and mined questions.",
    ),
    "train-summarizer": Step(
        TrainSummarizerSettings,
        "pairsmith.steps.training.summarizer:train_summarizer",
        "Train a summariser on seeds and mined pairs.",
    ),
    "train-asker": Step(
        TrainQuestionGeneratorSettings,
        "pairsmith.steps.training.question_generator:train_question_generator",
        "Train a model that generates questions on passages.",
    ),
    "ask": Step(
        AskSettings,
        "pairsmith.steps.infuse.ask:ask",
        "Generate questions on passages.",
        plan="pairsmith.steps.infuse.plan:plan_ask",
        model_setting="model",
    ),
    "train-teacher": Step(
        TrainTeacherSettings,
        "pairsmith.steps.training.teacher:train_teacher",
        "Train a reader that serves as a teacher.",
    ),
    "relabel": Step(
        RelabelSettings,
        "pairsmith.steps.infuse.relabel:relabel",
        "Have a teacher predict the answers to questions.",
        plan="pairsmith.steps.infuse.plan:plan_relabel",
        model_setting="model",
    ),
    "infuse": Step(
        InfuseSettings,
        "pairsmith.steps.training.student:infuse",
        "Train an encoder whose token vectors answer questions.",
    ),
    "chunk": Step(
        ChunkSettings,
        "pairsmith.steps.retrieval.chunk:chunk",
        "Cut documents into chunks for retrieval.",
        plan="pairsmith.steps.retrieval.plan:plan_chunk",
        next_commands=("pairsmith queries --chunks {out} --out {out}-queries",),
    ),
    "queries": Step(
        QueriesSettings,
        "pairsmith.steps.retrieval.queries:write_queries",
        "Write search queries for chunks of documents.",
        planned_rows_setting="chunks",
        model_setting="model",
        next_commands=("pairsmith filter-queries --queries {out} --corpus CHUNKS --out {out}-kept",),
    ),
    "filter-queries": Step(
        FilterQueriesSettings,
        "pairsmith.steps.retrieval.filter_queries:filter_queries",
        "Keep queries that lead back to their chunk.",
        plan="pairsmith.steps.retrieval.plan:plan_filter_queries",
        model_setting="encoder",
        checks={"judge": check_name},
    ),
    "negatives": Step(
        NegativesSettings,
        "pairsmith.steps.negatives.route:negatives",
        "Find hard negatives for pairs of a query and a positive.",
        plan="pairsmith.steps.negatives.plan:plan_negatives",
        model_setting="encoder",
        checks={"judge": check_name},
    ),
    "train-retriever": Step(
        TrainRetrieverSettings,
        "pairsmith.steps.training.retriever:train_retriever",
        "Train an encoder that finds documents for queries.",
        next_commands=(
            "pairsmith evaluate retrieval --model {out} --data QUERIES --corpus CHUNKS --out {out}-measured",
            "pairsmith search --model {out} --corpus CHUNKS",
        ),
    ),
    "evaluate-sts": Step(
        EvaluateStsSettings,
        "pairsmith.steps.evaluate.sts:evaluate_sts",
        "Evaluate a sentence encoder on semantic textual similarity.",
        plan="pairsmith.steps.evaluate.plan:plan_evaluate_sts",
        model_setting="model",
        checks={"against": _check_folder},
    ),
    "evaluate-labels": Step(
        EvaluateLabelsSettings,
        "pairsmith.steps.evaluate.labels:evaluate_labels",
        "Measure how much the similarity of pairs differs by label.",
        planned_rows_setting="data",
        model_setting="model",
    ),
    "evaluate-retrieval": Step(
        EvaluateRetrievalSettings,
        "pairsmith.steps.evaluate.retrieval:evaluate_retrieval",
        "Evaluate how well a model ranks documents for queries: nDCG@10 and more, ×100.",
        plan="pairsmith.steps.evaluate.plan:plan_evaluate_retrieval",
        model_setting="model",
        checks={"model": check_retriever_name, "against": _check_folder},
        next_commands=("pairsmith search --model {model} --corpus CHUNKS",),
    ),
    "evaluate-mteb": Step(
        EvaluateMtebSettings,
        "pairsmith.steps.evaluate.mteb:evaluate_mteb",
        "Evaluate a sentence encoder on tasks of the package mteb.",
        plan="pairsmith.steps.evaluate.plan:plan_evaluate_mteb",
        model_setting="model",
    ),
    "evaluate-qa": Step(
        EvaluateQaSettings,
        "pairsmith.steps.evaluate.qa:evaluate_qa",
        "Evaluate a reader on questions with answers.",
        plan="pairsmith.steps.evaluate.plan:plan_evaluate_qa",
        model_setting="model",
    ),
    "evaluate-summaries": Step(
        EvaluateSummariesSettings,
        "pairsmith.steps.evaluate.summaries:evaluate_summaries",
        "Evaluate the summaries that a model writes.",
        plan="pairsmith.steps.evaluate.plan:plan_evaluate_summaries",
        model_setting="model",
        checks={"model": check_summarizer_name},
    ),
    "evaluate-paraphrase": Step(
        EvaluateParaphraseSettings,
        "pairsmith.steps.evaluate.paraphrase:evaluate_paraphrase",
        "Evaluate token vectors on paraphrase detection.",
        plan="pairsmith.steps.evaluate.plan:plan_evaluate_paraphrase",
        model_setting="model",
    ),
    "evaluate-ner": Step(
        EvaluateNerSettings,
        "pairsmith.steps.evaluate.ner:evaluate_ner",
        "Evaluate an encoder on few-shot named entity recognition.",
        plan="pairsmith.steps.evaluate.plan:plan_evaluate_ner",
        model_setting="model",
    ),
    "evaluate-sentiment": Step(
        EvaluateSentimentSettings,
        "pairsmith.steps.evaluate.sentiment:evaluate_sentiment",
        "Evaluate a model on zero-shot sentiment classification.",
        plan="pairsmith.steps.evaluate.plan:plan_evaluate_sentiment",
        model_setting="model",
    ),
    "evaluate-classification": Step(
        EvaluateClassificationSettings,
        "pairsmith.steps.evaluate.classification:evaluate_classification",
        "Evaluate a text classifier: accuracy and macro F1, ×100.",
        plan="pairsmith.steps.evaluate.plan:plan_evaluate_classification",
        model_setting="model",
    ),
    "mix": Step(
        MixSettings,
        "pairsmith.steps.mix.route:mix",
        "Combine the rows of several data sets into one.",
        plan="pairsmith.steps.mix.plan:plan_mix",
    ),
    "export": Step(
        ExportSettings,
        "pairsmith.tools.export.route:export",
        "Export rows in the format of another tool.",
        plan="pairsmith.tools.plans:plan_export",
    ),
    "push": Step(
        PushSettings,
        "pairsmith.tools.push.route:push",
        "Upload a data set or a model to the Hugging Face Hub.",
        plan="pairsmith.tools.plans:plan_push",
        folder_setting="dry_run",
    ),
    "report": Step(
        ReportSettings,
        "pairsmith.tools.report.route:report",
        "Write a one-page report about a folder.",
        plan="pairsmith.tools.plans:plan_report",
        checks={"encoder": check_name},
        of_runs=True,
    ),
    "audit": Step(
        AuditSettings,
        "pairsmith.tools.audit.route:audit",
        "Have people label rows blind, in a browser.",
        plan="pairsmith.tools.plans:plan_audit",
    ),
}
