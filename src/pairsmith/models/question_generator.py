"""Question generators read a passage and write answer, separator and question in one sequence (Q2)."""

from collections.abc import Sequence
from dataclasses import dataclass

from pairsmith.core.errors import ModelError
from pairsmith.data.filters import EMPTY, NO_END, TOO_LONG
from pairsmith.models.language.faults import TextFault
from pairsmith.models.text_generator import TextGenerator

SEPARATOR = "<sep>"
"""Token between an answer and its question."""

GENERATED_QUESTION_TOKENS = 50
"""Longest question in tokens (Q1)."""

GENERATED_ANSWER_TOKENS = 30
"""Longest answer in tokens."""

LONG_QUESTION = (TOO_LONG, f"a question of more than {GENERATED_QUESTION_TOKENS} tokens")


@dataclass(frozen=True, slots=True)
class WrittenQuestion:
    """An answer and a question that a question generator wrote about a passage."""

    answer: str
    question: str
    fault: TextFault | None  # why they are rejected
    start: int | None = None  # where the answer starts in the passage; None if that has still to be found


def separator_of(generator: TextGenerator, separator: str = SEPARATOR) -> int:
    """The id of the separator token."""
    number = generator.tokenizer.convert_tokens_to_ids(separator)
    if number is None or number == generator.tokenizer.unk_token_id:
        raise ModelError(
            f"the model knows no token {separator!r} to put between an answer and a question; train one with "
            "train-asker, or give its --separator"
        )
    return int(number)


def parse(
    generator: TextGenerator, tokens: Sequence[int], separator: int, end: int | Sequence[int]
) -> WrittenQuestion:
    """Split a generated sequence, which ends with an ``end`` token if complete, into answer and question.

    A second separator is a fault, and what follows it is ignored.
    """

    def text(part: Sequence[int]) -> str:
        decoded: str = generator.tokenizer.decode(list(part), skip_special_tokens=True)
        return decoded.strip()

    parts: list[list[int]] = [[]]
    for token in tokens:
        if token == separator:
            parts.append([])
        else:
            parts[-1].append(token)
    ends = {end} if isinstance(end, int) else set(end)
    complete = bool(tokens) and tokens[-1] in ends
    answer, question = text(parts[0]), text(parts[1]) if len(parts) > 1 else ""
    return WrittenQuestion(answer, question, _fault(answer, question, parts, complete=complete))


def _fault(answer: str, question: str, parts: Sequence[Sequence[int]], *, complete: bool) -> TextFault | None:
    if len(parts) != 2:
        return "no separator", "not an answer, one separator and a question"
    if not complete:
        return NO_END, "the question has no end within the token limit"
    if not answer:
        return EMPTY, "nothing before the separator"
    if not question:
        return EMPTY, "nothing behind the separator"
    return LONG_QUESTION if len(parts[1]) - 1 > GENERATED_QUESTION_TOKENS else None
