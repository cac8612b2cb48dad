"""A step's settings in words: those that were in force, without those that changed nothing."""

from collections.abc import Callable, Mapping
from typing import Any

from pairsmith.tools.report.parts import shown_text

Recorded = Mapping[str, Any]
"""The settings in a record, by name."""

_WORDS = {
    "attention": "attention",
    "attention_dropout": "dropout of attention weights",
    "augment": "sampled negatives for each first text",
    "base": "model that training started from",
    "batch_size": "rows in a training step",
    "best": "most pairs that were kept",
    "bootstrap": "resamples behind each interval",
    "centre": "mean vector is subtracted",
    "column": "column with the inputs",
    "decay": "strength of self-debiasing (decay)",
    "depth": "documents that were ranked for each query",
    "dtype": "number format",
    "duplicates": "duplicates",
    "epochs": "passes over the rows",
    "eval_steps": "steps between two looks at the validation rows",
    "floor": "least factor of self-debiasing (floor)",
    "generate.labels": "only for the labels",
    "generate.scale": "strength of guidance (scale)",
    "hard_negatives": "highest score of a hard negative",
    "item": "what the texts are about",
    "k": "neighbours that were compared, each way",
    "kind": "kind of pairs",
    "layers": "layers kept of the model",
    "learning_rate": "learning rate",
    "limit": "first inputs that were used",
    "margin": "score of a pair (margin)",
    "max_length": "longest text, in tokens",
    "max_steps": "most training steps",
    "max_tokens": "longest text, in tokens",
    "min_sentences": "fewest sentences in a document",
    "min_words": "fewest words in a text",
    "near_copies": "near-copies",
    "objective": "what was learned (objective)",
    "per_input": "texts for each input and label",
    "per_label": "rows kept of each label",
    "plausible": "least share of the likeliest token's probability",
    "pooling": "how tokens become one vector (pooling)",
    "postprocess.per_input": "most texts kept for each input and label",
    "recall": "share of neighbours that the index is to find",
    "retrieval": "which pairs were chosen",
    "rule": "how labels were kept apart",
    "scale": "factor of the cosines (scale)",
    "seed": "seed of all random draws",
    "smoothing": "scores moved towards their mean by",
    "steering": "how the server's model was steered",
    "strength": "strength of the contrast",
    "style": "least probability of the seeds' style",
    "threshold": "least margin",
    "top_k": "drawn from this many likeliest tokens (top-k)",
    "top_logprobs": "likeliest tokens asked of the server",
    "top_p": "drawn from the tokens with this probability (top-p)",
    "tries": "most tries for each input and label",
    "validation": "share of rows for validation",
    "verbatim": "pairs of which one text holds the other",
    "warmup": "share of steps with a rising learning rate",
    "weight_decay": "weight decay",
    "window": "longest passage, in words",
}
"""By a setting's name, or its step and name, what it is in words; others are shown by their names."""

STEP_WORDS = {
    "ask": "questions on passages are written",
    "chunk": "documents are cut into passages",
    "classify": "texts get labels from a classifier",
    "evaluate classification": "a classifier is measured on labelled texts",
    "evaluate labels": "whether the labels' texts differ is measured",
    "evaluate mteb": "an encoder is measured on tasks of mteb",
    "evaluate ner": "an encoder is measured on named entities",
    "evaluate paraphrase": "token vectors are measured on paraphrases",
    "evaluate qa": "a reader is measured on questions",
    "evaluate retrieval": "a model is measured on finding documents",
    "evaluate sentiment": "a model is measured on sentiment",
    "evaluate sts": "an encoder is measured on pairs scored by people",
    "evaluate summaries": "summaries are measured",
    "filter": "the pairs that a model ranks highest are kept",
    "filter-queries": "queries that do not fit their passages are dropped",
    "generate": "a language model writes texts for each label",
    "infuse": "an encoder learns from questions",
    "mine": "pairs are found in two corpora",
    "mix": "several data sets become one",
    "negatives": "texts that do not answer are added to each pair",
    "postprocess": "rows are cleaned, and some held back for validation",
    "queries": "a language model writes queries for passages",
    "relabel": "a teacher answers the questions",
    "rewrite": "a model rewrites questions or summaries",
    "train-asker": "a model that writes questions is trained",
    "train-biencoder": "an encoder for mining is trained",
    "train-classifier": "a classifier of texts is trained",
    "train-crossencoder": "a judge of pairs is trained",
    "train-encoder": "a sentence encoder is trained",
    "train-reader": "a reader is trained",
    "train-retriever": "a retriever is trained",
    "train-summarizer": "a summariser is trained",
    "train-teacher": "a teacher is trained",
}
"""What each step does, in a few words."""

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
    step = step.replace(" ", "-")
    rows = []
    for name, value in settings.items():
        if name in _HIDDEN or value in (None, "", [], {}) or value is False:
            continue
        in_force = _IF.get(f"{step}.{name}")
        if in_force is None or in_force(settings):
            words = _WORDS.get(f"{step}.{name}") or _WORDS.get(name) or name.replace("_", " ")
            rows.append((shown_text(words, 100), shown_text(_value(step, name, value), 200)))
    return rows


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
