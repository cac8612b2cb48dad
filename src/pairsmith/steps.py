"""The steps there are: what can be set, what runs, and what to call it.

Recipes and the command line are both made from ``STEPS``. The functions are imported when they are
called, so that ``pairsmith --help`` does not wait for torch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pairsmith.audit.settings import AuditSettings
from pairsmith.evaluate.lead import check_summarizer_name
from pairsmith.evaluate.settings import (
    EvaluateLabelsSettings,
    EvaluateMtebSettings,
    EvaluateNerSettings,
    EvaluateParaphraseSettings,
    EvaluateQaSettings,
    EvaluateSentimentSettings,
    EvaluateStsSettings,
    EvaluateSummariesSettings,
)
from pairsmith.export.settings import ExportSettings
from pairsmith.generate.settings import GenerateSettings, PostprocessSettings
from pairsmith.infuse.settings import AskSettings, RelabelSettings
from pairsmith.mine.settings import FilterSettings, MineSettings, RewriteSettings
from pairsmith.mix.settings import MixSettings
from pairsmith.modelnames import check_name
from pairsmith.push.settings import PushSettings
from pairsmith.report.settings import ReportSettings
from pairsmith.settings import Settings
from pairsmith.tasks import load_task
from pairsmith.training.question_settings import (
    InfuseSettings,
    TrainAskerSettings,
    TrainTeacherSettings,
)
from pairsmith.training.settings import (
    TrainBiencoderSettings,
    TrainCrossencoderSettings,
    TrainEncoderSettings,
    TrainReaderSettings,
    TrainSummarizerSettings,
)

if TYPE_CHECKING:
    from pairsmith.runs import Run

S = TypeVar("S", bound=Settings)


@dataclass(frozen=True, slots=True)
class Step(Generic[S]):
    """One step.

    Attributes:
        settings: what can be set.
        run: does it; its results lie in the run's folder.
        help: one line for people.
        command: what the command line calls it, where that is not its name: ``evaluate sts``.
        dry: the setting, if there is one, with which the step writes nothing and needs no folder.
        wet: the setting, if there is one, without which it needs none.
        checks: by setting, what raises a UserError if the value cannot do, before anything runs.
    """

    settings: type[S]
    run: "Callable[[S, Run], object]"
    help: str
    command: str = ""
    dry: str = ""
    wet: str = ""
    checks: Mapping[str, Callable[[str], object]] = field(default_factory=dict)

    def needs_folder(self, settings: S) -> bool:
        """Whether there has to be a folder to write to."""
        if self.dry and getattr(settings, self.dry):
            return False
        return not self.wet or bool(getattr(settings, self.wet))


Steps = Mapping[str, Step[Any]]


def _generate(settings: GenerateSettings, run: "Run") -> object:
    from pairsmith.generate.route import generate

    return generate(settings, run)


def _postprocess(settings: PostprocessSettings, run: "Run") -> object:
    from pairsmith.generate.postprocess import postprocess

    return postprocess(settings, run)


def _train_encoder(settings: TrainEncoderSettings, run: "Run") -> object:
    from pairsmith.training.encoder import train_encoder

    return train_encoder(settings, run)


def _train_biencoder(settings: TrainBiencoderSettings, run: "Run") -> object:
    from pairsmith.training.biencoder import train_biencoder

    return train_biencoder(settings, run)


def _mine(settings: MineSettings, run: "Run") -> object:
    from pairsmith.mine.route import mine

    return mine(settings, run)


def _train_crossencoder(settings: TrainCrossencoderSettings, run: "Run") -> object:
    from pairsmith.training.crossencoder import train_crossencoder

    return train_crossencoder(settings, run)


def _filter(settings: FilterSettings, run: "Run") -> object:
    from pairsmith.mine.filter import filter_pairs

    return filter_pairs(settings, run)


def _rewrite(settings: RewriteSettings, run: "Run") -> object:
    from pairsmith.mine.rewrite import rewrite

    return rewrite(settings, run)


def _train_reader(settings: TrainReaderSettings, run: "Run") -> object:
    from pairsmith.training.reader import train_reader

    return train_reader(settings, run)


def _train_summarizer(settings: TrainSummarizerSettings, run: "Run") -> object:
    from pairsmith.training.summarizer import train_summarizer

    return train_summarizer(settings, run)


def _train_asker(settings: TrainAskerSettings, run: "Run") -> object:
    from pairsmith.training.asker import train_asker

    return train_asker(settings, run)


def _ask(settings: AskSettings, run: "Run") -> object:
    from pairsmith.infuse.ask import ask

    return ask(settings, run)


def _train_teacher(settings: TrainTeacherSettings, run: "Run") -> object:
    from pairsmith.training.teacher import train_teacher

    return train_teacher(settings, run)


def _relabel(settings: RelabelSettings, run: "Run") -> object:
    from pairsmith.infuse.relabel import relabel

    return relabel(settings, run)


def _infuse(settings: InfuseSettings, run: "Run") -> object:
    from pairsmith.training.student import infuse

    return infuse(settings, run)


def _evaluate_sts(settings: EvaluateStsSettings, run: "Run") -> object:
    from pairsmith.evaluate.sts import evaluate_sts

    return evaluate_sts(settings, run)


def _evaluate_labels(settings: EvaluateLabelsSettings, run: "Run") -> object:
    from pairsmith.evaluate.labels import evaluate_labels

    return evaluate_labels(settings, run)


def _evaluate_mteb(settings: EvaluateMtebSettings, run: "Run") -> object:
    from pairsmith.evaluate.mteb import evaluate_mteb

    return evaluate_mteb(settings, run)


def _evaluate_qa(settings: EvaluateQaSettings, run: "Run") -> object:
    from pairsmith.evaluate.qa import evaluate_qa

    return evaluate_qa(settings, run)


def _evaluate_summaries(settings: EvaluateSummariesSettings, run: "Run") -> object:
    from pairsmith.evaluate.summaries import evaluate_summaries

    return evaluate_summaries(settings, run)


def _evaluate_paraphrase(settings: EvaluateParaphraseSettings, run: "Run") -> object:
    from pairsmith.evaluate.paraphrase import evaluate_paraphrase

    return evaluate_paraphrase(settings, run)


def _evaluate_ner(settings: EvaluateNerSettings, run: "Run") -> object:
    from pairsmith.evaluate.ner import evaluate_ner

    return evaluate_ner(settings, run)


def _evaluate_sentiment(settings: EvaluateSentimentSettings, run: "Run") -> object:
    from pairsmith.evaluate.sentiment import evaluate_sentiment

    return evaluate_sentiment(settings, run)


def _report(settings: ReportSettings, run: "Run") -> object:
    from pairsmith.report.route import report

    return report(settings, run)


def _audit(settings: AuditSettings, run: "Run") -> object:
    from pairsmith.audit.route import audit

    return audit(settings, run)


def _mix(settings: MixSettings, run: "Run") -> object:
    from pairsmith.mix.route import mix

    return mix(settings, run)


def _export(settings: ExportSettings, run: "Run") -> object:
    from pairsmith.export.route import export

    return export(settings, run)


def _push(settings: PushSettings, run: "Run") -> object:
    from pairsmith.push.route import push

    return push(settings, run)


STEPS: Steps = {
    "generate": Step(
        GenerateSettings,
        _generate,
        "Write labelled texts or pairs as a task says.",
        dry="preview",
        checks={"task": load_task, "model": check_name},
    ),
    "postprocess": Step(
        PostprocessSettings,
        _postprocess,
        "Clean, smooth and split generated rows; add negatives.",
    ),
    "train-encoder": Step(
        TrainEncoderSettings,
        _train_encoder,
        "Train a sentence encoder on scored pairs.",
        checks={"base": check_name},
    ),
    "train-biencoder": Step(
        TrainBiencoderSettings,
        _train_biencoder,
        "Train an encoder on seed pairs, to mine more of them.",
        checks={"base": check_name},
    ),
    "mine": Step(
        MineSettings,
        _mine,
        "Find pairs of texts in two corpora.",
        checks={"encoder": check_name},
    ),
    "train-crossencoder": Step(
        TrainCrossencoderSettings,
        _train_crossencoder,
        "Train a model that tells pairs from near misses.",
        checks={"base": check_name},
    ),
    "filter": Step(
        FilterSettings,
        _filter,
        "Keep the pairs that a cross-encoder likes best.",
        checks={"model": check_name},
    ),
    "rewrite": Step(
        RewriteSettings,
        _rewrite,
        "Have a model write questions or summaries anew.",
        checks={"model": check_name},
    ),
    "train-reader": Step(
        TrainReaderSettings,
        _train_reader,
        "Train a reader on seeds and mined questions.",
        checks={"base": check_name},
    ),
    "train-summarizer": Step(
        TrainSummarizerSettings,
        _train_summarizer,
        "Train a summariser on seeds and mined pairs.",
        checks={"base": check_name},
    ),
    "train-asker": Step(
        TrainAskerSettings,
        _train_asker,
        "Train a model that asks questions of passages.",
        checks={"base": check_name},
    ),
    "ask": Step(
        AskSettings,
        _ask,
        "Have a model ask questions of passages.",
        checks={"model": check_name},
    ),
    "train-teacher": Step(
        TrainTeacherSettings,
        _train_teacher,
        "Train a reader that others learn from.",
        checks={"base": check_name},
    ),
    "relabel": Step(
        RelabelSettings,
        _relabel,
        "Have a teacher answer questions on passages.",
        checks={"model": check_name},
    ),
    "infuse": Step(
        InfuseSettings,
        _infuse,
        "Train an encoder whose token vectors answer questions.",
        checks={"base": check_name},
    ),
    "evaluate-sts": Step(
        EvaluateStsSettings,
        _evaluate_sts,
        "Measure a sentence encoder on semantic textual similarity.",
        command="evaluate sts",
        checks={"model": check_name},
    ),
    "evaluate-labels": Step(
        EvaluateLabelsSettings,
        _evaluate_labels,
        "Measure how far apart the labels of written pairs are.",
        command="evaluate labels",
        checks={"model": check_name},
    ),
    "evaluate-mteb": Step(
        EvaluateMtebSettings,
        _evaluate_mteb,
        "Measure a sentence encoder on tasks of the package mteb.",
        command="evaluate mteb",
        checks={"model": check_name},
    ),
    "evaluate-qa": Step(
        EvaluateQaSettings,
        _evaluate_qa,
        "Measure a reader on questions with answers.",
        command="evaluate qa",
        checks={"model": check_name},
    ),
    "evaluate-summaries": Step(
        EvaluateSummariesSettings,
        _evaluate_summaries,
        "Measure the summaries that a model writes.",
        command="evaluate summaries",
        checks={"model": check_summarizer_name},
    ),
    "evaluate-paraphrase": Step(
        EvaluateParaphraseSettings,
        _evaluate_paraphrase,
        "Measure how token vectors put paraphrases above other pairs.",
        command="evaluate paraphrase",
        checks={"model": check_name},
    ),
    "evaluate-ner": Step(
        EvaluateNerSettings,
        _evaluate_ner,
        "Measure how a few tagged sentences teach to find names.",
        command="evaluate ner",
        checks={"model": check_name},
    ),
    "evaluate-sentiment": Step(
        EvaluateSentimentSettings,
        _evaluate_sentiment,
        "Measure how questions tell positive texts from negative ones.",
        command="evaluate sentiment",
        checks={"model": check_name},
    ),
    "mix": Step(
        MixSettings,
        _mix,
        "Make one data set of the rows of several.",
    ),
    "export": Step(
        ExportSettings,
        _export,
        "Write rows in the form of another tool.",
    ),
    "push": Step(
        PushSettings,
        _push,
        "Send a data set or a model to the Hugging Face Hub.",
        wet="dry_run",
    ),
    "report": Step(
        ReportSettings,
        _report,
        "Show what lies in a folder on one page.",
        checks={"encoder": check_name, "model": check_name},
    ),
    "audit": Step(
        AuditSettings,
        _audit,
        "Have people label rows blind, in a browser.",
    ),
}
