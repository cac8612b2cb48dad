"""A step's settings in words: those that were in force, without those that changed nothing."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from pairsmith.core.settings import Settings
from pairsmith.steps.classify.settings import ClassifySettings
from pairsmith.steps.evaluate.classification_settings import EvaluateClassificationSettings
from pairsmith.steps.evaluate.retrieval_settings import EvaluateRetrievalSettings
from pairsmith.steps.evaluate.settings import (
    EvaluateLabelsSettings,
    EvaluateMtebSettings,
    EvaluateQaSettings,
    EvaluateStsSettings,
    EvaluateSummariesSettings,
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
from pairsmith.steps.questions.settings import AskSettings, RelabelSettings
from pairsmith.steps.retrieval.settings import ChunkSettings, FilterQueriesSettings, QueriesSettings
from pairsmith.steps.training.classifier_settings import TrainClassifierSettings
from pairsmith.steps.training.encoder_settings import TrainEncoderSettings
from pairsmith.steps.training.question_settings import (
    InfuseSettings,
    TrainQuestionGeneratorSettings,
    TrainTeacherSettings,
)
from pairsmith.steps.training.retriever_settings import TrainRetrieverSettings
from pairsmith.steps.training.settings import (
    TrainBiencoderSettings,
    TrainCrossencoderSettings,
    TrainReaderSettings,
    TrainSummarizerSettings,
)
from pairsmith.tools.report.parts import shown_text

Recorded = Mapping[str, Any]
"""The settings in a record, by name."""

_STEPS: dict[str, tuple[type[Settings], str]] = {
    "ask": (AskSettings, "questions on passages are written"),
    "chunk": (ChunkSettings, "documents are cut into passages"),
    "classify": (ClassifySettings, "texts get labels from a classifier"),
    "evaluate classification": (EvaluateClassificationSettings, "a classifier is measured on labelled texts"),
    "evaluate labels": (EvaluateLabelsSettings, "whether the labels' texts differ is measured"),
    "evaluate mteb": (EvaluateMtebSettings, "an encoder is measured on tasks of mteb"),
    "evaluate ner": (EvaluateNerSettings, "an encoder is measured on named entities"),
    "evaluate paraphrase": (EvaluateParaphraseSettings, "token vectors are measured on paraphrases"),
    "evaluate qa": (EvaluateQaSettings, "a reader is measured on questions"),
    "evaluate retrieval": (EvaluateRetrievalSettings, "a model is measured on finding documents"),
    "evaluate sentiment": (EvaluateSentimentSettings, "a model is measured on sentiment"),
    "evaluate sts": (EvaluateStsSettings, "an encoder is measured on pairs scored by people"),
    "evaluate summaries": (EvaluateSummariesSettings, "summaries are measured"),
    "filter": (FilterSettings, "the pairs that a model ranks highest are kept"),
    "filter-queries": (FilterQueriesSettings, "queries that do not fit their passages are dropped"),
    "generate": (GenerateSettings, "a language model writes texts for each label"),
    "infuse": (InfuseSettings, "an encoder learns from questions"),
    "mine": (MineSettings, "pairs are found in two corpora"),
    "mix": (MixSettings, "several data sets become one"),
    "negatives": (NegativesSettings, "texts that do not answer are added to each pair"),
    "postprocess": (PostprocessSettings, "rows are cleaned, and some held back for validation"),
    "queries": (QueriesSettings, "a language model writes queries for passages"),
    "relabel": (RelabelSettings, "a teacher answers the questions"),
    "rewrite": (RewriteSettings, "a model rewrites questions or summaries"),
    "train-asker": (TrainQuestionGeneratorSettings, "a model that writes questions is trained"),
    "train-biencoder": (TrainBiencoderSettings, "an encoder for mining is trained"),
    "train-classifier": (TrainClassifierSettings, "a classifier of texts is trained"),
    "train-crossencoder": (TrainCrossencoderSettings, "a judge of pairs is trained"),
    "train-encoder": (TrainEncoderSettings, "a sentence encoder is trained"),
    "train-reader": (TrainReaderSettings, "a reader is trained"),
    "train-retriever": (TrainRetrieverSettings, "a retriever is trained"),
    "train-summarizer": (TrainSummarizerSettings, "a summariser is trained"),
    "train-teacher": (TrainTeacherSettings, "a teacher is trained"),
}
"""The settings of each step, and what it does, in a few words."""

STEP_WORDS = {step: words for step, (_, words) in _STEPS.items()}

_HIDDEN = {"task", "shard_size", "search_rows"}
"""Settings that are shown elsewhere, or say only how the work was divided."""


def _rule(name: str) -> Callable[[Recorded], bool]:
    return lambda settings: settings.get("rule", "self-debiasing") == name


def _debiased(settings: Recorded) -> bool:
    return _rule("self-debiasing")(settings) and settings.get("decay", 0) > 0


def _of_pairs(settings: Recorded) -> bool:
    task = settings.get("task")
    return not (isinstance(task, dict) and task.get("kind") == "text")


_IF: dict[str, Callable[[Recorded], bool]] = {
    "generate.decay": _rule("self-debiasing"),
    "generate.floor": _debiased,
    "generate.scale": _rule("guidance"),
    "generate.strength": _rule("contrast"),
    "generate.plausible": _rule("contrast"),
    "generate.top_k": lambda settings: bool(settings.get("top_k")),
    "generate.top_p": lambda settings: settings.get("top_p") != 1,
    "postprocess.smoothing": _of_pairs,
    "postprocess.augment": _of_pairs,
    "postprocess.per_input": _of_pairs,
    "postprocess.near_copies": _of_pairs,
    "train-encoder.scale": lambda settings: settings.get("objective") != "cosine",
    "train-encoder.hard_negatives": lambda settings: settings.get("objective") == "contrastive",
    "train-encoder.attention": lambda settings: settings.get("attention") != "base",
    "train-encoder.epochs": lambda settings: not settings.get("max_steps"),
    "mine.answers": lambda settings: settings.get("kind") == "reading",
    "mine.window": lambda settings: settings.get("kind") == "reading",
    "mine.min_sentences": lambda settings: settings.get("kind") == "summaries",
    "mine.style": lambda settings: settings.get("kind") != "pairs",
    "mine.index_rows": lambda settings: bool(settings.get("index")),
    "mine.recall": lambda settings: bool(settings.get("index")),
    "negatives.index_rows": lambda settings: bool(settings.get("index")),
    "negatives.recall": lambda settings: bool(settings.get("index")),
}
"""By step and setting, whether the setting had an effect with the others."""


def settings_in_words(step: str, settings: Recorded) -> list[tuple[str, str]]:
    """Name and value of each setting of a step that was in force, as they are shown.

    Left out are unset settings, those that were switched off, and those without effect beside the others.
    """
    fields = _STEPS[step][0].model_fields if step in _STEPS else {}
    rows = []
    for name, value in settings.items():
        if name in _HIDDEN or value in (None, "", [], {}) or value is False:
            continue
        in_force = _IF.get(f"{step}.{name}")
        if in_force is None or in_force(settings):
            description = fields[name].description if name in fields else None
            rows.append((_name(name, description), shown_text(_value(step, name, value), 200)))
    return rows


def _name(name: str, description: str | None) -> str:
    """What a setting is, by the beginning of its description, and its option where that does not name it."""
    own = shown_text(name.replace("_", " "), 100)
    words = re.split(r"(?<!e\.g)[.;]\s|\.$| \[", description or "")[0]
    beginning = words.partition(": ")[0]
    # A colon stands before the possible values; but also after what a setting is only for, and within texts.
    if not re.search(r'^(With|For) |[("]', beginning):
        words = beginning
    if " " not in words:  # a value
        return own
    words = words[0].lower() + words[1:]
    return words if own in words else f"{words} ({name.replace('_', '-')})"


def _value(step: str, name: str, value: Any) -> str:
    if value is True:
        return "yes"
    if (name, value) == ("decay", 0):
        return "0: each label's text was written without regard to the others"
    if (name, value) == ("pooling", "default"):
        return "as the model has it"
    if (step, name, value) == ("postprocess", "near_copies", "task"):
        return "as the task says for each label"
    if isinstance(value, list):
        return ", ".join(_number(part) for part in value)
    return _number(value)


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) and abs(value) < 1e6 else str(value)
