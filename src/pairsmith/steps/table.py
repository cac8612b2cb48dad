"""The table of all steps: their settings, functions and help.

The command line, recipes and reports are made from ``STEPS``.
"""

from pairsmith.core.model_names import check_name
from pairsmith.core.paths import is_folder, place
from pairsmith.data.tasks import load_task
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
from pairsmith.steps.mine.settings import FilterSettings, MineSettings, RewriteSettings
from pairsmith.steps.mix.settings import MixSettings
from pairsmith.steps.negatives.settings import NegativesSettings
from pairsmith.steps.questions.settings import AnswerSettings, AskSettings, RelabelSettings
from pairsmith.steps.retrieval.settings import ChunkSettings, FilterQueriesSettings, QueriesSettings
from pairsmith.steps.step import Step, StepTable
from pairsmith.steps.texts.settings import ClassifySettings, SummarizeSettings, TagSettings
from pairsmith.steps.training.settings import (
    InfuseSettings,
    TrainBiencoderSettings,
    TrainClassifierSettings,
    TrainCrossencoderSettings,
    TrainEncoderSettings,
    TrainQuestionGeneratorSettings,
    TrainReaderSettings,
    TrainRetrieverSettings,
    TrainSummarizerSettings,
    TrainTaggerSettings,
    TrainTeacherSettings,
)


def _check_folder(source: str) -> None:
    """Raise an error if a folder does not exist."""
    from pairsmith.data.sources import check_exists  # imported here, as it takes a second

    check_exists(source)


def _after_mining(settings: MineSettings) -> tuple[str, ...]:
    """The report, and a filter with the judge that was the best for this kind of pairs (docs/mining.md)."""
    judge = {
        "pairs": "--judge margin",
        "reading": "--judge likelihood --model embedded:smollm2-135m-instruct",
        "summaries": "--judge likeness --model embedded:all-minilm-l6-v2 --seeds SEEDS --beside margin",
    }[settings.kind]
    return (
        "pairsmith report --data {out} --out {out}-page",
        f"pairsmith filter --pairs {{out}} {judge} --one-per both --best 500 --out {{out}}-kept",
    )


def _after_retrieval(settings: EvaluateRetrievalSettings) -> tuple[str, ...]:
    """A search of the same documents; those of a folder in BEIR's layout are found by the folder's name."""
    corpus = "{corpus}" if settings.corpus or not is_folder(place(settings.data)) else "{data}"
    options = (
        "[--corpus-column {corpus_column}] [--query-prompt {query_prompt}] "
        "[--document-prompt {document_prompt}] [--dimensions {dimensions}] [--language {language}] "
        "[--pooling {pooling}] [--max-length {max_length}] [--vectors {vectors}]"
    )
    return (f"pairsmith search --model {{model}} --corpus {corpus} {options}",)


def _after_classification(settings: EvaluateClassificationSettings) -> tuple[str, ...]:
    """A comparison with another classifier: by descriptions of the labels, or a trained one after these."""
    if settings.against:
        return ()
    other, folder = "CLASSIFIER", "trained"
    if not settings.name:
        other = "embedded:all-minilm-l6-v2 --name LABEL=DESCRIPTION --name OTHER=DESCRIPTION"
        folder = "by-names"
    return (
        f"pairsmith evaluate classification --model {other} --data {{data}} [--text-column {{text_column}}] "
        f"[--label-column {{label_column}}] [--map {{map}}] --against {{out}} --out {{out}}-{folder}",
    )


STEPS: StepTable = {
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
        next_commands=("pairsmith report --data {out} --out {out}-page",),
    ),
    "train-encoder": Step(
        TrainEncoderSettings,
        "pairsmith.steps.training.encoder:train_encoder",
        "Train a sentence encoder on scored pairs.",
        next_commands=("pairsmith evaluate sts --model {out} --data GRADED_PAIRS.tsv --out {out}-sts",),
    ),
    "train-classifier": Step(
        TrainClassifierSettings,
        "pairsmith.steps.training.classifier:train_classifier",
        "Train a classifier on labelled texts.",
        next_commands=(
            "pairsmith evaluate classification --model {out} --data LABELLED.tsv --out {out}-measured",
            "pairsmith classify --model {out} --data TEXTS.txt --out {out}-labels",
        ),
    ),
    "classify": Step(
        ClassifySettings,
        "pairsmith.steps.texts.classify:classify",
        "Label texts with a text classifier.",
        next_commands=("pairsmith export --data {out} --form csv --out {out}-table",),
    ),
    "train-biencoder": Step(
        TrainBiencoderSettings,
        "pairsmith.steps.training.biencoder:train_biencoder",
        "Train an encoder on seed pairs, for mining more.",
        next_commands=(
            "pairsmith mine --kind {kind} --inputs {inputs} --outputs {outputs} --encoder {out} "
            "[--input-column {input_column}] [--output-column {output_column}] --out {out}-mined",
        ),
    ),
    "mine": Step(
        MineSettings,
        "pairsmith.steps.mine.route:mine",
        "Find pairs of texts in two corpora.",
        plan="pairsmith.steps.mine.plan:plan_mine",
        checks={"encoder": check_name},
        next_commands=_after_mining,
    ),
    "train-crossencoder": Step(
        TrainCrossencoderSettings,
        "pairsmith.steps.training.crossencoder:train_crossencoder",
        "Train a model that tells pairs from hard negatives.",
        checks={"encoder": check_name},
        next_commands=("pairsmith filter --pairs {mined} --model {out} --best 500 --out {out}-kept",),
    ),
    "filter": Step(
        FilterSettings,
        "pairsmith.steps.mine.filter:filter_pairs",
        "Keep the pairs that a model ranks highest.",
    ),
    "rewrite": Step(
        RewriteSettings,
        "pairsmith.steps.mine.rewrite:rewrite",
        "Have a model rewrite questions or summaries.",
    ),
    "train-reader": Step(
        TrainReaderSettings,
        "pairsmith.steps.training.reader:train_reader",
        "Train a reader on seeds and mined questions.",
        next_commands=(
            "pairsmith evaluate qa --model {out} --data QUESTIONS --out {out}-measured",
            "pairsmith answer --model {out} --data QUESTIONS --out {out}-answers",
        ),
    ),
    "train-summarizer": Step(
        TrainSummarizerSettings,
        "pairsmith.steps.training.summarizer:train_summarizer",
        "Train a summariser on seeds and mined pairs.",
        next_commands=(
            "pairsmith evaluate summaries --model {out} --data DOCUMENTS --out {out}-measured",
            "pairsmith summarize --model {out} --data TEXTS --out {out}-summaries",
        ),
    ),
    "summarize": Step(
        SummarizeSettings,
        "pairsmith.steps.texts.summarize:summarize",
        "Summarise texts or documents.",
    ),
    "train-asker": Step(
        TrainQuestionGeneratorSettings,
        "pairsmith.steps.training.question_generator:train_question_generator",
        "Train a model that generates questions on passages.",
        next_commands=("pairsmith ask --inputs TEXTS --model {out} --out {out}-questions",),
    ),
    "ask": Step(
        AskSettings,
        "pairsmith.steps.questions.ask:ask",
        "Generate questions on passages.",
        plan="pairsmith.steps.questions.plan:plan_ask",
        next_commands=(
            "pairsmith relabel --data {out} --model TEACHER --out {out}-answered",
            "pairsmith infuse --data {out} --base ENCODER --labels answers --out {out}-student",
        ),
    ),
    "train-teacher": Step(
        TrainTeacherSettings,
        "pairsmith.steps.training.teacher:train_teacher",
        "Train a reader that serves as a teacher.",
        next_commands=("pairsmith relabel --data QUESTIONS --model {out} --out {out}-answers",),
    ),
    "relabel": Step(
        RelabelSettings,
        "pairsmith.steps.questions.relabel:relabel",
        "Have a teacher predict the answers to questions.",
        next_commands=("pairsmith infuse --data {out} --base ENCODER --out {out}-student",),
    ),
    "infuse": Step(
        InfuseSettings,
        "pairsmith.steps.training.student:infuse",
        "Train an encoder whose token vectors answer questions.",
        next_commands=(
            "pairsmith evaluate qa --model {out} --data QUESTIONS --out {out}-measured",
            "pairsmith train-tagger --base {out} --data TAGGED.conll --out {out}-tagger",
        ),
    ),
    "answer": Step(
        AnswerSettings,
        "pairsmith.steps.questions.answer:answer",
        "Answer questions on passages.",
        next_commands=("pairsmith export --data {out} --form csv --out {out}-table",),
    ),
    "train-tagger": Step(
        TrainTaggerSettings,
        "pairsmith.steps.training.tagger:train_tagger",
        "Train a tagger of named entities on a few sentences.",
        next_commands=("pairsmith tag --model {out} --data TEXTS.txt --out {out}-entities",),
    ),
    "tag": Step(
        TagSettings,
        "pairsmith.steps.texts.tag:tag",
        "Find the named entities in texts.",
        next_commands=("pairsmith export --data {out} --form conll --out {out}-words",),
    ),
    "chunk": Step(
        ChunkSettings,
        "pairsmith.steps.retrieval.chunk:chunk",
        "Cut documents into chunks for retrieval.",
        next_commands=(
            "pairsmith queries --chunks {out} --out {out}-queries",
            "pairsmith ask --inputs {out} --model GENERATOR --out {out}-asked",
            "pairsmith search --model bm25 --corpus {out} QUERY",
        ),
    ),
    "queries": Step(
        QueriesSettings,
        "pairsmith.steps.retrieval.queries:write_queries",
        "Write search queries for chunks of documents.",
        next_commands=(
            "pairsmith filter-queries --queries {out} --corpus {chunks} [--corpus-column {column}] "
            "--encoder ENCODER --out {out}-kept",
        ),
    ),
    "filter-queries": Step(
        FilterQueriesSettings,
        "pairsmith.steps.retrieval.filter_queries:filter_queries",
        "Keep queries that lead back to their chunk.",
        checks={"encoder": check_name, "judge": check_name},
        next_commands=(
            "pairsmith negatives --pairs {out} --corpus {corpus} [--corpus-column {corpus_column}] "
            "--encoder {encoder} [--max-length {max_length}] [--vectors {vectors}] --out {out}-negatives",
        ),
    ),
    "negatives": Step(
        NegativesSettings,
        "pairsmith.steps.negatives.route:negatives",
        "Find hard negatives for pairs of a query and a positive.",
        checks={"encoder": check_name, "judge": check_name},
        next_commands=("pairsmith train-retriever --base {encoder} --data {out} --out {out}-retriever",),
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
        data_check="pairsmith.steps.evaluate.sts:check_evaluate_sts",
        checks={"against": _check_folder},
        figures=("SUITE.all", "SUITE.mean", "SUITE.pairs", "SUITE.trained_on", "SUITE.subsets.SUBSET"),
    ),
    "evaluate-labels": Step(
        EvaluateLabelsSettings,
        "pairsmith.steps.evaluate.labels:evaluate_labels",
        "Measure how much the similarity of pairs differs by label.",
        data_check="pairsmith.steps.evaluate.labels:check_evaluate_labels",
        planned_rows_setting="data",
        figures=("gap", "labels.LABEL.mean", "labels.LABEL.count"),
    ),
    "evaluate-retrieval": Step(
        EvaluateRetrievalSettings,
        "pairsmith.steps.evaluate.retrieval:evaluate_retrieval",
        "Evaluate how well a model ranks documents for queries: nDCG@10 and more, ×100.",
        data_check="pairsmith.steps.evaluate.retrieval:check_evaluate_retrieval",
        checks={"model": check_retriever_name, "against": _check_folder},
        next_commands=_after_retrieval,
        figures=(
            *("ndcg@10", "recall@100", "recall@10", "precision@10", "mrr@10", "map"),
            *("queries", "documents", "faults.REASON"),
        ),
    ),
    "evaluate-mteb": Step(
        EvaluateMtebSettings,
        "pairsmith.steps.evaluate.mteb:evaluate_mteb",
        "Evaluate a sentence encoder on tasks of the package mteb.",
        data_check="pairsmith.steps.evaluate.mteb:check_evaluate_mteb",
        figures=("mean", "tasks.TASK.main", "tasks.TASK.splits.SPLIT.SUBSET"),
    ),
    "evaluate-qa": Step(
        EvaluateQaSettings,
        "pairsmith.steps.evaluate.qa:evaluate_qa",
        "Evaluate a reader on questions with answers.",
        checks={"against": _check_folder},
        next_commands=(
            "pairsmith answer --model {model} --data QUESTIONS [--max-answer-tokens {max_answer_tokens}] "
            "[--max-length {max_length}] --out {out}-answers",
        ),
        figures=("exact", "f1", "count"),
    ),
    "evaluate-summaries": Step(
        EvaluateSummariesSettings,
        "pairsmith.steps.evaluate.summaries:evaluate_summaries",
        "Evaluate the summaries that a model writes.",
        checks={"model": check_summarizer_name, "against": _check_folder},
        figures=(
            *("rouge1", "rouge2", "rougeL", "rougeLsum", "count"),
            *("abstractiveness.written.MEASURE", "abstractiveness.gold.MEASURE"),
        ),
    ),
    "evaluate-paraphrase": Step(
        EvaluateParaphraseSettings,
        "pairsmith.steps.evaluate.paraphrase:evaluate_paraphrase",
        "Evaluate token vectors on paraphrase detection.",
        checks={"against": _check_folder},
        figures=(
            *("auroc", "count", "positives", "layer", "correlation", "layers.LAYER", "trained_on"),
            *(
                f"few_shot.{way}.{name}"
                for way in ("frozen", "tuned")
                for name in ("f1", "error", "splits.N", "shots")
            ),
        ),
    ),
    "evaluate-ner": Step(
        EvaluateNerSettings,
        "pairsmith.steps.evaluate.ner:evaluate_ner",
        "Evaluate an encoder on few-shot named entity recognition.",
        checks={"against": _check_folder},
        figures=(
            *("random.f1", "random.error", "random.splits.N"),
            *("questions.f1", "questions.error", "questions.splits.N", "count", "trained_on"),
        ),
    ),
    "evaluate-sentiment": Step(
        EvaluateSentimentSettings,
        "pairsmith.steps.evaluate.sentiment:evaluate_sentiment",
        "Evaluate a model on zero-shot sentiment classification.",
        checks={"against": _check_folder},
        figures=(
            *("calibrated.accuracy", "calibrated.error", "calibrated.fifth_prompt"),
            *("centred.accuracy", "centred.error", "centred.fifth_prompt"),
            *("plain.accuracy", "plain.error", "plain.fifth_prompt"),
            *("ranking.auroc", "ranking.error", "count"),
        ),
    ),
    "evaluate-classification": Step(
        EvaluateClassificationSettings,
        "pairsmith.steps.evaluate.classification:evaluate_classification",
        "Evaluate a text classifier: accuracy and macro F1, ×100.",
        checks={"against": _check_folder},
        next_commands=_after_classification,
        figures=(
            *("accuracy", "macro_f1", "largest", "count", "blank", "trained_on"),
            *("labels.LABEL.precision", "labels.LABEL.recall", "labels.LABEL.f1"),
            *("labels.LABEL.count", "labels.LABEL.predicted", "confusion.LABEL.LABEL"),
        ),
    ),
    "mix": Step(
        MixSettings,
        "pairsmith.steps.mix.route:mix",
        "Combine the rows of several data sets into one.",
    ),
}
