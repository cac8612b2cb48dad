"""Which of the texts that a model wrote are accepted, and the rows made of them (D1, D6)."""

from pairsmith.data.schemas import LabelledPair, LabelledText, Reject, ScoredPair, as_columns
from pairsmith.data.tasks import TaskSpec
from pairsmith.methods.dino.requests import TextRequest, quotable
from pairsmith.models.language.decoder import Continuation

Row = ScoredPair | LabelledPair | LabelledText
"""What the method makes: a row of the kind that the task's labels ask for."""

# By how a text ended, the filter that rejects it and the reason.
_ENDINGS = {
    "length": ("no end", "no quotation mark within the token limit"),
    "end": ("no end", "the model ended the text without a quotation mark"),
    "uncertified": ("not certified", "the server's lists of likeliest tokens do not prove the next token"),
    "outranked": ("outranked", "a counter-label's prompt makes the text at least as likely"),
}
# Control characters, and the mark that stands for bytes that are no text.
_UNREADABLE = frozenset([*map(chr, range(32)), *map(chr, range(127, 160)), "\ufffd"])


def accepted_text(task: TaskSpec, request: TextRequest, number: int, written: Continuation) -> str | Reject:
    """The text of try ``number``, or why it is rejected: a text that cleaning would remove takes no place."""
    text = written.text.strip()
    fault = _fault(request, written.ending, text)
    return rejected(task, request, number, *fault, text) if fault else text


def _fault(request: TextRequest, ending: str, text: str) -> tuple[str, str] | None:
    """The filter that rejects a text, and the reason; None if it is accepted."""
    if ending in _ENDINGS:
        return _ENDINGS[ending]
    if not text:
        return "empty", "nothing before the quotation mark"
    if text.splitlines() != [text]:
        return "line break", "the text holds a line break"
    if unreadable := next((c for c in text if c in _UNREADABLE), None):
        return "bad character", f"the text holds the character U+{ord(unreadable):04X}"
    if request.input is not None and text in (request.input.strip(), quotable(request.input)):
        return "copy", "the text repeats the first text"
    return None


def make_row(task: TaskSpec, request: TextRequest, number: int, text: str) -> Row:
    """The row of the ``number``-th accepted text, of the kind that the task makes."""
    name = request.row_id(number)
    if request.input is None:
        return LabelledText(name, text, request.label)
    if task.numeric:
        return ScoredPair(name, request.input, text, float(request.label))
    return LabelledPair(name, request.input, text, request.label)


def rejected(
    task: TaskSpec, request: TextRequest, number: int, filter_: str, reason: str, text: str
) -> Reject:
    """The reject of try ``number``, with the row that it would have been."""
    row = make_row(task, request, 0, text)
    return Reject.of(f"{request.id}-try-{number}", filter_, reason, as_columns(row))
