"""A step's settings in words, without the settings that had no effect."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from pairsmith.steps.step import Step
from pairsmith.steps.table import STEPS
from pairsmith.tools.report.parts import shown_text

Recorded = Mapping[str, Any]
"""The settings in a record, by name."""

_HIDDEN = {"task", "shard_size", "search_rows"}
"""Settings that the page shows elsewhere, or that only say how the work was divided."""


def _rule(name: str) -> Callable[[Recorded], bool]:
    return lambda settings: settings.get("rule", "self-debiasing") == name


def _of_pairs(settings: Recorded) -> bool:
    task = settings.get("task")
    return not (isinstance(task, dict) and task.get("kind") == "text")


_IF: dict[str, Callable[[Recorded], bool]] = {
    "generate.decay": _rule("self-debiasing"),
    "generate.floor": lambda settings: _rule("self-debiasing")(settings) and settings.get("decay", 0) > 0,
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
"""By step and setting, a function of all settings: whether this setting had an effect."""


def _step_of(record: str) -> Step | None:
    """The step that a record names; ``evaluate sts`` is ``evaluate-sts``. None for another package's step."""
    return STEPS.get(record.replace(" ", "-"))


def step_in_words(step: str) -> str:
    """A step's name and what it does; only the name for a step of another package."""
    if entry := _step_of(step):
        return f"{step}: {entry.help[0].lower()}{entry.help[1:].rstrip('.')}"
    return shown_text(step, 60)


def settings_in_words(step: str, settings: Recorded) -> list[tuple[str, str]]:
    """Name and value of each setting of a step that had an effect, as the page shows them.

    Settings that were unset, switched off, or without effect because of other settings are left out.
    """
    entry = _step_of(step)
    fields = entry.settings.model_fields if entry else {}
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
    """The beginning of a setting's description, and its name in brackets if the beginning lacks it."""
    own = shown_text(name.replace("_", " "), 100)
    words = re.split(r"(?<!e\.g)[.;]\s|\.$| \[", description or "")[0]
    beginning = words.partition(": ")[0]
    # A colon often stands before the possible values, which are left out; not so after "With …" or "For …",
    # or within brackets or quotation marks.
    if not re.search(r'^(With|For) |[("]', beginning):
        words = beginning
    if " " not in words:  # one word, such as a value, describes no setting
        return own
    words = words[0].lower() + words[1:]
    return words if own in words else f"{words} ({name.replace('_', '-')})"


def _value(step: str, name: str, value: Any) -> str:
    if value is True:
        return "yes"
    if (name, value) == ("decay", 0):
        return "0: each label's text was written without regard to the other labels"
    if (name, value) == ("pooling", "default"):
        return "the model's own"
    if (step, name, value) == ("postprocess", "near_copies", "task"):
        return "as the task says for each label"
    if isinstance(value, list):
        return ", ".join(_number(part) for part in value)
    return _number(value)


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) and abs(value) < 1e6 else str(value)
