"""Two tagged sentences, and a student of questions, for tests of taggers of names."""

import shutil
from pathlib import Path

from pairsmith.data.tagged import TaggedSentence
from pairsmith.models.span_heads import SpanHeads, save_heads

SENTENCES = [
    TaggedSentence(("A", "man", "is", "playing", "."), ("B-PER", "I-PER", "O", "O", "O")),
    TaggedSentence(
        ("Two", "dogs", "run", "on", "the", "beach", "."), ("O", "O", "O", "O", "B-LOC", "I-LOC", "O")
    ),
]


def make_student(bert: Path, folder: Path) -> str:
    """A copy of the tiny BERT in ``folder``, with heads for questions."""
    student = shutil.copytree(bert, folder / "student")
    save_heads(SpanHeads(16, "questions", seed=4), student)
    return str(student)
