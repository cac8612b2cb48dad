"""What askers read and write: a passage; an answer, a separator and a question, in one sequence (Q2)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pairsmith.encoders.summarizer import Summarizer
from pairsmith.errors import ModelError

SEPARATOR = "<sep>"
"""Stands between an answer and its question."""

QUESTION_TOKENS = 50
"""Longest question in tokens (Q1)."""

ANSWER_TOKENS = 30
"""Longest answer in tokens."""

Fault = Literal[
    "unfinished", "no separator", "no answer", "no question", "long answer", "long question",
    "several lines", "unreadable", "not chosen",
]  # fmt: skip
"""``not chosen``: an answer of a search of which others differ more."""


@dataclass(frozen=True, slots=True)
class Written:
    """What an asker wrote of a passage.

    Attributes:
        fault: what is wrong with it; None if nothing is.
        start: of the answer in the passage, where that is known; else it is looked for.
    """

    answer: str
    question: str
    fault: Fault | None
    start: int | None = None


def separator_of(asker: Summarizer, separator: str = SEPARATOR) -> int:
    """The number of the separating token.

    Raises:
        ModelError: the model knows no such token, and so is no asker.
    """
    number = asker.tokenizer.convert_tokens_to_ids(separator)
    if number is None or number == asker.tokenizer.unk_token_id:
        raise ModelError(
            f"the model knows no token {separator!r} to put between an answer and a question; train one with "
            "train-asker, or give its --separator"
        )
    return int(number)


def parse(asker: Summarizer, tokens: Sequence[int], separator: int, end: int | Sequence[int]) -> Written:
    """The answer and the question in a sequence that was written.

    Args:
        asker: whose tokens these are.
        tokens: of the sequence.
        separator: the number of the separating token; what comes behind a second one counts for nothing.
        end: the number of the token with which a whole sequence ends, or those of several.
    """

    def text(some: Sequence[int]) -> str:
        found: str = asker.tokenizer.decode(list(some), skip_special_tokens=True)
        return found.strip()

    parts: list[list[int]] = [[]]
    for token in tokens:
        if token == separator:
            parts.append([])
        else:
            parts[-1].append(token)
    ends = {end} if isinstance(end, int) else set(end)
    whole = bool(tokens) and tokens[-1] in ends
    answer, question = text(parts[0]), text(parts[1]) if len(parts) > 1 else ""
    return Written(answer, question, _fault(answer, question, parts, whole=whole))


def _fault(answer: str, question: str, parts: Sequence[Sequence[int]], *, whole: bool) -> Fault | None:
    if len(parts) != 2:
        return "no separator"
    if not whole:
        return "unfinished"
    if not answer:
        return "no answer"
    if not question:
        return "no question"
    return "long question" if len(parts[1]) - 1 > QUESTION_TOKENS else None
