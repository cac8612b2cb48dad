"""Question generators, which read a passage and write an answer, a separator and a question (Q2)."""

from collections.abc import Sequence
from dataclasses import dataclass

from pairsmith.core.errors import ModelError
from pairsmith.data.filters import EMPTY, NO_END, TOO_LONG
from pairsmith.models.language.faults import TextFault
from pairsmith.models.text_generator import TextGenerator

SEPARATOR = "<sep>"
"""The token between an answer and its question."""

GENERATED_QUESTION_TOKENS = 50
"""Largest number of tokens of a question (Q1)."""

GENERATED_ANSWER_TOKENS = 30
"""Largest number of tokens of an answer."""

LONG_QUESTION = (TOO_LONG, f"a question of more than {GENERATED_QUESTION_TOKENS} tokens")


@dataclass(frozen=True, slots=True)
class WrittenQuestion:
    """An answer and a question that a question generator wrote on a passage."""

    answer: str
    question: str
    fault: TextFault | None  # why they are rejected; None if they are kept
    start: int | None = None  # the answer's offset in the passage, in characters; None if not yet searched


def separator_of(generator: TextGenerator, separator: str = SEPARATOR) -> int:
    """The id of the token ``separator``; a ``ModelError`` if the tokenizer has no such token."""
    token = generator.tokenizer.convert_tokens_to_ids(separator)
    if token is None or token == generator.tokenizer.unk_token_id:
        raise ModelError(
            f"the model knows no token {separator!r} to put between an answer and a question; train one with "
            "train-asker, or name its separator"
        )
    return int(token)


def parse(
    generator: TextGenerator, tokens: Sequence[int], separator: int, end: int | Sequence[int]
) -> WrittenQuestion:
    """Split a generated sequence into answer and question.

    Args:
        generator: the question generator, whose tokenizer decodes the tokens.
        tokens: the generated tokens. A complete sequence ends with an end token. A second separator is a
            fault; the tokens after it are ignored.
        separator: the id of the separator token.
        end: the ids of the end tokens.
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
    end_tokens = {end} if isinstance(end, int) else set(end)
    complete = bool(tokens) and tokens[-1] in end_tokens
    answer, question = text(parts[0]), text(parts[1]) if len(parts) > 1 else ""
    return WrittenQuestion(answer, question, _fault(answer, question, parts, complete=complete))


def _fault(answer: str, question: str, parts: Sequence[Sequence[int]], *, complete: bool) -> TextFault | None:
    """Why an answer and a question are rejected, or None; ``parts`` are the tokens between separators."""
    if len(parts) != 2:
        return "no separator", "not an answer, one separator and a question"
    if not complete:
        return NO_END, "the question has no end within the token limit"
    if not answer:
        return EMPTY, "nothing before the separator"
    if not question:
        return EMPTY, "nothing behind the separator"
    return LONG_QUESTION if len(parts[1]) - 1 > GENERATED_QUESTION_TOKENS else None
