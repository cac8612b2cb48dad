"""Checks of the settings of ``generate`` against each other and against the task."""

import re
from collections.abc import Iterator

from pairsmith.core.errors import SettingsError
from pairsmith.data.tasks import TaskSpec, label_text
from pairsmith.methods.dino.method import rows_needed
from pairsmith.models.language.remote import RemoteDecoding, is_remote
from pairsmith.steps.generate.settings import GenerateSettings

_NUMBER = re.compile(r"[+-]?\d+([.,]\d+)?")
"""A label that is a number in quotation marks, such as ``"0.5"``."""


def check_settings(task: TaskSpec, settings: GenerateSettings) -> None:
    """Refuse settings that do not fit the task; called before any text is generated."""
    if settings.rows is not None and settings.rows < rows_needed(task):
        raise SettingsError(
            f"--rows {settings.rows} is too few for the task {task.name}; give --rows {rows_needed(task)} or "
            "more"
        )
    if is_remote(settings.model):
        _check_remote(task, settings)
    decoding = task.decoding
    if task.kind == "pair" and decoding.tries < decoding.per_input:
        raise SettingsError(
            f"{decoding.tries} tries cannot give {decoding.per_input} texts per input; "
            f"give --tries {decoding.per_input + 3} or more"
        )
    if task.kind == "pair" and not settings.inputs:
        raise SettingsError(
            f"the task {task.name} writes second texts for given first texts; give --inputs FILE"
        )
    if task.kind == "text":
        for name in ("inputs", "column", "limit"):
            if getattr(settings, name):
                raise SettingsError(
                    f"the task {task.name} writes single texts and takes no --{name}; "
                    "--per-input says how many texts each label gets"
                )


def remarks(task: TaskSpec) -> Iterator[str]:
    """Warnings about the labels of a pair task that would make its rows unusable as training data."""
    written = set(task.written_names)
    names = [label.name for label in task.labels if task.kind == "pair" and label_text(label.name) in written]
    numbers = [name for name in names if isinstance(name, float)]
    if numbers and not -1 <= min(numbers) <= max(numbers) <= 1:
        yield (
            f"the labels of {task.name} range from {min(numbers):g} to {max(numbers):g}; train-encoder fits "
            "cosines to the labels, and no step rescales them: use labels from 0 to 1 in the task file"
        )
    if names and all(isinstance(name, str) and _NUMBER.fullmatch(name) for name in names):
        yield (
            f"the labels of {task.name} are numbers in quotation marks, so rows get a column label instead "
            "of the column score, which train-encoder needs; remove the quotation marks in the task file"
        )


def _check_remote(task: TaskSpec, settings: GenerateSettings) -> None:
    """Refuse settings that a model behind a server does not support."""
    if settings.preview:
        raise SettingsError(
            "--preview needs the probabilities of all tokens, which a server does not provide; to see some "
            "rows first, give --limit 3 for pairs, or --per-input 3 for single texts"
        )
    decoding = task.decoding
    if decoding.rule != "self-debiasing":
        raise SettingsError(
            f"--rule {decoding.rule} is not supported with a server; leave it out for self-debiasing"
        )
    if task.format == "chat" and steering_of(task, settings) != "certified":
        raise SettingsError(
            f"the task {task.name} has format chat, which a server supports only with --steering certified"
        )
    if steering_of(task, settings) == "certified" and not 0 < decoding.top_k <= settings.top_logprobs:
        raise SettingsError(
            f"--steering certified needs --top-k between 1 and --top-logprobs {settings.top_logprobs}, "
            f"not {decoding.top_k}"
        )


def steering_of(task: TaskSpec, settings: GenerateSettings) -> RemoteDecoding:
    """How a server's model is steered; plain sampling if no label has counter-labels, or with ``decay`` 0."""
    has_counters = any(map(task.counters, task.label_names))
    return settings.steering if task.decoding.decay and has_counters else "plain"
