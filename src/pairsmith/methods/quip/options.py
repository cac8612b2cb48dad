"""Options of question generation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from pairsmith.core.arguments import check_flag
from pairsmith.core.errors import SettingsError
from pairsmith.core.settings import MOST_BEAMS
from pairsmith.data.text.instructed import INSTRUCTION, QuestionExample

QuestionDecoding = Literal["nucleus", "beams"]
BATCH_SIZES: Mapping[str, int] = {"encoder-decoder": 16, "causal": 64, "cloze": 16}
"""How many passages each kind of generator processes at once.

A causal language model gets more, as rows that become free are filled from the same batch only.
"""

QUESTION_BEAMS = 5
"""Beams in the search for the question of an answer; the paper does not give their number."""


@dataclass(frozen=True, slots=True)
class GenerationOptions:
    """How questions are generated; each kind of generator uses some of these.

    Attributes:
        questions: largest number of distinct questions of a passage.
        tries: largest number of rounds; each round draws the questions that a passage still lacks (Q2).
        max_length: longest passage in tokens, without special ones; without a model, in words and punctuation
            marks. None means as many as the model can read.
        batch_size: number of passages that are processed at once; None means the number in ``BATCH_SIZES``.
        seed: seed of the sampling.
        top_p: draw from the likeliest tokens that together hold this share of the probability (Q2: 0.6).
        decoding: ``nucleus`` samples answers and questions, ``beams`` searches for the likeliest answers and
            then for the likeliest question of each (Q2).
        beams: number of beams, and of answers, for each passage.
        separator: for encoder-decoder models, the token between answer and question.
        instruction: for causal language models, the instruction; ``{passage}`` stands for the passage.
        chat: for causal language models, whether the instruction is a user's message in the chat format.
        examples: for causal language models, passages with questions that stand before the instruction.
        answers: without a model, how answers are found: ``rule`` or ``spacy:MODEL``.
    """

    questions: int = 10
    tries: int = 3
    max_length: int | None = 456
    batch_size: int | None = None
    seed: int = 1
    top_p: float = 0.6
    decoding: QuestionDecoding = "nucleus"
    beams: int = 20
    separator: str = "<sep>"
    instruction: str = INSTRUCTION
    chat: bool = False
    examples: tuple[QuestionExample, ...] = ()
    answers: str = "rule"

    def __post_init__(self) -> None:
        """Check the values."""
        for name in ("questions", "tries", "batch_size", "beams"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise SettingsError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.beams > MOST_BEAMS:
            raise SettingsError(f"beams must be at most {MOST_BEAMS}, not {self.beams}")
        if self.max_length is not None and self.max_length < 1:
            raise SettingsError(f"max_length must be at least 1, or None, not {self.max_length}")
        if not 0 < self.top_p <= 1:
            raise SettingsError(f"top_p must be above 0 and at most 1, not {self.top_p}")
        if self.decoding not in (names := get_args(QuestionDecoding)):
            raise SettingsError(f"decoding must be {' or '.join(names)}, not {self.decoding!r}")
        check_flag(self.chat, "chat")
        if "{passage}" not in self.instruction:
            raise SettingsError("the instruction has no {passage}, which stands for the passage")
