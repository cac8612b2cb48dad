"""How questions are generated."""

from dataclasses import dataclass
from typing import Literal

from pairsmith.core.errors import SettingsError
from pairsmith.data.text.instructed import INSTRUCTION, QuestionExample

CLOZE = "cloze"
"""The name of the generator without a model."""


@dataclass(frozen=True, slots=True)
class GenerationOptions:
    """How questions are generated; each kind of generator uses some of these.

    Each passage gets up to ``questions`` distinct questions, in at most ``tries`` rounds, each of which draws
    the questions that are still missing. ``max_length`` is the longest passage in tokens, without special
    tokens (without a model, in words and punctuation marks); None means as many as the model can read.
    ``batch_size`` passages are processed at once. Tokens are drawn from those that hold the share ``top_p``
    of the probability. For models with an encoder and a decoder, ``decoding`` by ``nucleus`` draws and by
    ``beams`` searches for as many answers as there are ``beams`` (Q2); ``separator`` is the token between
    answer and question. Causal language models are told ``instruction``, in which ``{passage}`` stands for
    the passage; with ``chat`` as a user's message. ``examples`` stand before it.
    Without a model, answers are found in passages by ``answers``: ``rule`` or ``spacy:MODEL``.
    """

    questions: int = 10
    tries: int = 3
    max_length: int | None = 456
    batch_size: int = 16
    seed: int = 1
    top_p: float = 0.6
    decoding: Literal["nucleus", "beams"] = "nucleus"
    beams: int = 20
    separator: str = "<sep>"
    instruction: str = INSTRUCTION
    chat: bool = False
    examples: tuple[QuestionExample, ...] = ()
    answers: str = "rule"

    def __post_init__(self) -> None:
        """Check the values."""
        for name in ("questions", "tries", "batch_size", "beams"):
            if getattr(self, name) < 1:
                raise SettingsError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.max_length is not None and self.max_length < 1:
            raise SettingsError(f"max_length must be at least 1, or None, not {self.max_length}")
        if not 0 < self.top_p <= 1:
            raise SettingsError(f"top_p must be above 0 and at most 1, not {self.top_p}")
        if self.decoding not in ("nucleus", "beams"):
            raise SettingsError(f"decoding must be nucleus or beams, not {self.decoding!r}")
        if "{passage}" not in self.instruction:
            raise SettingsError("the instruction has no {passage}, which stands for the passage")
