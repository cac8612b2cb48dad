"""What is encoded of a record: itself, the candidate answers of a passage, or a document's sentences."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pairsmith.mine.settings import MineSettings
from pairsmith.records import Document, Reject, answer_in_passage, text_id
from pairsmith.texts.entities import entity_finder
from pairsmith.texts.sentences import split_sentences
from pairsmith.texts.windows import count_words, windows


@dataclass(frozen=True, slots=True)
class Unit:
    """A text that is encoded.

    Attributes:
        text: what the encoder gets.
        where: where its record stood.
        group: within which it is paired.
        context: the passage, where it is an answer in one; ``answer`` and ``answer_start`` likewise.
    """

    text: str
    where: str
    group: str = ""
    context: str | None = None
    answer: str | None = None
    answer_start: int | None = None


Cut = Callable[[Document], tuple[Sequence[Unit], Sequence[Reject]]]


def cutter(side: str, settings: MineSettings) -> Cut:
    """What makes units of a record of the ``inputs`` or ``outputs``.

    Raises:
        SettingsError: there is no such finder of answers.
        MissingExtra, ModelError: what it needs is not installed.
    """
    cut = _cutter(side, settings)

    def in_group(record: Document) -> tuple[Sequence[Unit], Sequence[Reject]]:
        if record.group or not settings.group_column:
            return cut(record)
        return [], [_reject(record, "no group", f"nothing in column {settings.group_column}")]

    return in_group


def _cutter(side: str, settings: MineSettings) -> Cut:
    if settings.kind == "reading" and side == "outputs":
        return _answers(settings)
    if settings.kind == "summaries":
        return _long_enough(settings.min_sentences) if side == "inputs" else _sentences
    return lambda record: ([Unit(record.document, record.where, record.group)], [])


def _answers(settings: MineSettings) -> Cut:
    """Each candidate answer with the window of the passage that it stands in (M7)."""
    find = entity_finder(settings.answers)

    def cut(record: Document) -> tuple[list[Unit], list[Reject]]:
        found = [
            Unit(
                answer_in_passage(entity.text, window.text),
                record.where,
                record.group,
                window.text,
                entity.text,
                entity.start,
            )
            for window in windows(record.document, settings.window, count_words)
            for entity in find(window.text)
        ]
        if found:
            return found, []
        return [], [_reject(record, "no answer", "the passage holds no name, number or date")]

    return cut


def _long_enough(least: int) -> Cut:
    """Documents of at least so many sentences (M8)."""

    def cut(record: Document) -> tuple[list[Unit], list[Reject]]:
        count = len(split_sentences(record.document))
        if count >= least:
            return [Unit(record.document, record.where, record.group)], []
        return [], [_reject(record, "too short", f"{count} sentences, fewer than {least}")]

    return cut


def _sentences(record: Document) -> tuple[list[Unit], list[Reject]]:
    """Each sentence by itself."""
    return [Unit(s.text, record.where, record.group) for s in split_sentences(record.document)], []


def _reject(record: Document, filter_: str, reason: str) -> Reject:
    row = {"text": record.document, "where": record.where}
    return Reject.of(text_id(record.document), filter_, reason, row)
