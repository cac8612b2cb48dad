"""Options for making a training set of generated rows; imports none of the libraries that make it."""

from dataclasses import dataclass
from typing import Literal

NearCopies = Literal["task", "drop", "keep"]


@dataclass(frozen=True, slots=True)
class TrainingSetOptions:
    """How generated rows become a training set (D6-D9).

    Attributes:
        per_input: largest number of second texts of a first text and label, at least 1 (D6: 2).
        per_label: largest number of rows of a label, at least 1; None for no limit.
        min_words: smallest number of words of a generated text, at least 1.
        near_copies: ``drop`` or ``keep`` pairs whose texts differ only in case, spaces and punctuation, or do
            what the task says for each label. With ``keep``, sampled negatives may be near-copies, too.
        smoothing: epsilon of D7, from 0 to 1 (D7: 0.2).
        augment: number of sampled negatives of a first text, at least 0 (D8: 2).
        validation: share of each label's rows in the validation split, at least 0 and below 1 (D9: 0.1).
        seed: seed of the sampled negatives and of the split, from 0 to 2**63 - 1.
    """

    per_input: int
    per_label: int | None
    min_words: int
    near_copies: NearCopies
    smoothing: float
    augment: int
    validation: float
    seed: int
