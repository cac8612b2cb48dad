"""A language model with scripted distributions: for tests, and for trying a task without weights."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor

from pairsmith.models.language.protocols import Prompt

Next = Callable[[str, str], Mapping[str, float]]
"""Maps (prompt, continuation so far) to the probability of each next token; tokens are single characters."""

END_CHARACTER = "\x00"


class ScriptedModel:
    """A ``SteerableModel`` with one token per character of ``alphabet``, distributed by ``following``."""

    def __init__(self, following: Next, alphabet: str, *, context: int = 4096) -> None:
        self._following = following
        self._alphabet = END_CHARACTER + alphabet
        self._number = {character: i for i, character in enumerate(self._alphabet)}
        self.name = self.revision = "scripted"
        self.vocab_size = len(self._alphabet)
        self.context = context
        self.end_tokens = frozenset({0})

    def encode(self, text: str) -> list[int]:
        """One token per character; characters outside the alphabet get ids above the vocabulary."""
        return [self._number.get(character, self.vocab_size + ord(character)) for character in text]

    def encode_chat(self, message: str, answer: str) -> list[int]:
        """The tokens of the message and the answer, one line each."""
        return self.encode(f"{message}\n{answer}")

    def decode(self, tokens: Sequence[int]) -> str:
        """The characters of the tokens, without end tokens."""
        size = self.vocab_size
        return "".join(self._alphabet[t] if t < size else chr(t - size) for t in tokens if t != 0)

    def tokens_with(self, piece: str) -> frozenset[int]:
        """The token of ``piece``, if it is one character of the alphabet."""
        return frozenset({self._number[piece]}) if piece in self._number else frozenset()

    def rows_that_fit(self, tokens: int) -> int:
        """A constant: memory does not matter here."""
        del tokens
        return 256

    def session(self, rows: int, prompts: Iterable[Prompt], tail: int) -> "ScriptedSession":
        """A session; the limits are ignored."""
        del rows, prompts, tail
        return ScriptedSession(self)

    def logits(self, prompt: str, continuation: str) -> Tensor:
        """Log-probabilities of the next token, ``(vocab,)`` float32."""
        row = torch.zeros(self.vocab_size)
        for character, probability in self._following(prompt, continuation).items():
            row[self._number[character]] = probability
        return row.log()


class ScriptedSession:
    """A session that keeps the texts of its rows."""

    def __init__(self, model: ScriptedModel) -> None:
        self._model = model
        self.call_tokens = 0
        self._rows: list[tuple[str, str]] = []
        self.prefilled: list[str] = []
        self.held: set[str] = set()

    def prefill(self, prompts: Sequence[Prompt]) -> None:
        """Note which prompts were computed."""
        texts = [self._model.decode(prompt) for prompt in prompts]
        self.prefilled += texts
        self.held.update(texts)

    def forget(self, prompt: Prompt) -> None:
        """Note that a prompt was freed."""
        self.held.remove(self._model.decode(prompt))

    def add_rows(self, prompts: Sequence[Prompt]) -> Tensor:
        """Start rows from prompts; returns log-probabilities, ``(prompts, vocab)`` float32."""
        texts = [self._model.decode(prompt) for prompt in prompts]
        self._rows += [(text, "") for text in texts]
        return torch.stack([self._model.logits(text, "") for text in texts])

    def step(self, tokens: Tensor) -> Tensor:
        """Append a character to every row; returns log-probabilities, ``(rows, vocab)`` float32."""
        added = [self._model.decode([int(token)]) for token in tokens]
        self._rows = [(prompt, text + new) for (prompt, text), new in zip(self._rows, added, strict=True)]
        return torch.stack([self._model.logits(*row) for row in self._rows])

    def keep_rows(self, rows: Sequence[int]) -> None:
        """Keep some rows."""
        self._rows = [self._rows[row] for row in rows]
