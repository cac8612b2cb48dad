"""The texts that are encoded for a record: itself, candidate answers in it, or its sentences."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pairsmith.data.documents import Document
from pairsmith.data.examples import answer_in_passage
from pairsmith.data.readers import text_id
from pairsmith.data.schemas import Reject
from pairsmith.data.text.entities import entity_finder
from pairsmith.data.text.windows import count_words, split_sentences, windows
from pairsmith.steps.mine.settings import MineSettings


@dataclass(frozen=True, slots=True)
class Unit:
    """A text that is encoded.

    Attributes:
        text: the encoder's input.
        where: location of the record in its source.
        group: group within which the text is paired.
        context: passage of a candidate answer, else None; likewise ``answer`` and ``answer_start``.
    """

    text: str
    where: str
    group: str = ""
    context: str | None = None
    answer: str | None = None
    answer_start: int | None = None


Cut = Callable[[Document], tuple[Sequence[Unit], Sequence[Reject]]]


def cutter(side: str, settings: MineSettings) -> Cut:
    """The function that cuts a record of one side, ``inputs`` or ``outputs``, into units."""
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
    """Cut a passage into its candidate answers, each with the window that contains it (M7)."""
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
    """Keep whole documents of at least ``least`` sentences (M8)."""

    def cut(record: Document) -> tuple[list[Unit], list[Reject]]:
        count = len(split_sentences(record.document))
        if count >= least:
            return [Unit(record.document, record.where, record.group)], []
        return [], [_reject(record, "too short", f"{count} sentences, fewer than {least}")]

    return cut


def _sentences(record: Document) -> tuple[list[Unit], list[Reject]]:
    """Cut a document into its sentences."""
    return [Unit(s.text, record.where, record.group) for s in split_sentences(record.document)], []


def _reject(record: Document, filter_: str, reason: str) -> Reject:
    row = {"text": record.document, "where": record.where}
    return Reject.of(text_id(record.document), filter_, reason, row)
