"""Texts cut into passages: runs of whole sentences within a number of tokens (Q1)."""

from typing import Any

from pairsmith.texts.windows import Window, windows

PASSAGE_TOKENS = 456
"""Longest passage in tokens, special ones not counted."""


def passage_limit(tokenizer: Any, max_length: int | None, context: int | None = None) -> int:
    """Tokens of a passage at most, special ones not counted: as many as are wanted, if a model reads them.

    Args:
        tokenizer: the model's.
        max_length: what is wanted; ``PASSAGE_TOKENS`` if not given.
        context: tokens that the model reads, special ones included; what its tokenizer says if not given.
    """
    room = (context or int(tokenizer.model_max_length)) - int(tokenizer.num_special_tokens_to_add())
    return max(1, min(max_length or PASSAGE_TOKENS, room))


def passages(text: str, limit: int, tokenizer: Any) -> list[Window]:
    """Cut a text into the longest runs of whole sentences that have at most ``limit`` tokens (Q1).

    Args:
        text: any text.
        limit: of tokens, special ones not counted; 1 or more.
        tokenizer: one of transformers.

    Returns:
        passages in order; see ``windows``. A sentence above the limit is cut at spaces; only a passage of a
        single word can be above the limit.
    """
    return windows(text, limit, lambda part: token_count(part, tokenizer))


def token_count(text: str, tokenizer: Any) -> int:
    """Tokens of a text, special ones not counted."""
    return len(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
