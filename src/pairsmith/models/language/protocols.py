"""The interface of the language models that the routes use.

To combine the next-token distributions of several prompts, a decoder needs a model that gives these
distributions: a ``SteerableModel``.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from torch import Tensor

Prompt = tuple[int, ...]
"""The tokens of a prompt."""


class DecodingSession(Protocol):
    """The rows of text that are being continued, and the computed prompts from which they start.

    Rows are numbered from 0. A row holds the state of one prompt and of the tokens that were fed to the row
    since. Logits have the model's own number format.
    """

    call_tokens: int
    """How many tokens of prompts the model can compute in the shortest time that a call takes."""

    def prefill(self, prompts: Sequence[Prompt]) -> None:
        """Compute prompts, so that rows can start from them. A prompt is identified by its tokens."""

    def forget(self, prompt: Prompt) -> None:
        """Free the memory of a prompt, once no row that started from it is left."""

    def add_rows(self, prompts: Sequence[Prompt]) -> Tensor:
        """Append a row for each computed prompt; returns next-token logits, ``(prompts, vocab)``."""

    def step(self, tokens: Tensor) -> Tensor:
        """Feed every row its next token, ``(rows,)`` int64; returns next-token logits, ``(rows, vocab)``."""

    def keep_rows(self, rows: Sequence[int]) -> None:
        """Make row ``rows[i]`` row i, and drop the others."""


class SteerableModel(Protocol):
    """A causal language model whose next-token distributions are available."""

    name: str
    """The name that the user gave."""

    revision: str
    """Identifies the weights; the manifest of a data set records it."""

    vocab_size: int
    """Width of the logits."""

    context: int
    """The largest number of tokens in a row, prompt and continuation together."""

    end_tokens: frozenset[int]
    """Tokens that end a text."""

    def encode(self, text: str) -> list[int]:
        """The tokens of a prompt, after the special tokens that the model expects before it.

        The names of special tokens in a text are ordinary text, in a chat, too.
        """

    def encode_chat(self, message: str, answer: str) -> list[int]:
        """The tokens of a chat: a user's message and the beginning of the model's answer.

        A model without a chat format raises a ``ModelError``.
        """

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, special tokens left out."""

    def tokens_with(self, piece: str) -> frozenset[int]:
        """The tokens whose own text contains ``piece``."""

    def rows_that_fit(self, tokens: int) -> int:
        """How many rows of ``tokens`` tokens each should be computed at once."""

    def session(self, rows: int, prompts: Iterable[Prompt], tail: int) -> DecodingSession:
        """A session of up to ``rows`` rows from these prompts, with up to ``tail`` tokens fed to each."""
