"""Splitting texts into passages: runs of whole sentences within a number of tokens (Q1)."""

from typing import Any

from pairsmith.data.text.windows import Window, windows

PASSAGE_TOKENS = 456
"""Longest passage in tokens, without special tokens."""


def passage_limit(tokenizer: Any, max_length: int | None, context: int | None = None) -> int:
    """The longest passage in tokens, without special tokens: the length wanted, within a model's context.

    Args:
        tokenizer: the model's tokenizer.
        max_length: the length wanted; ``PASSAGE_TOKENS`` if not given.
        context: the model's context in tokens, special tokens included; by default that of its tokenizer.
    """
    room = (context or int(tokenizer.model_max_length)) - int(tokenizer.num_special_tokens_to_add())
    return max(1, min(max_length or PASSAGE_TOKENS, room))


def passages(text: str, limit: int, tokenizer: Any) -> list[Window]:
    """Cut a text into the longest runs of whole sentences that have at most ``limit`` tokens (Q1).

    Args:
        text: any text.
        limit: largest number of tokens, without special tokens; 1 or more.
        tokenizer: a tokenizer of transformers.

    Returns:
        passages in order; see ``windows``. A sentence above the limit is cut at spaces; only a passage of a
        single word can be above the limit.
    """
    return windows(text, limit, lambda part: token_count(part, tokenizer))


def token_count(text: str, tokenizer: Any) -> int:
    """The number of tokens of a text, without special tokens."""
    return len(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
