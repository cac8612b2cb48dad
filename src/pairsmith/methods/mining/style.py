"""The style classifier (M4), and which texts are left out before the search.

The classifier judges from the vector of a text whether the text looks like the seed texts.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from pairsmith.core.arrays import Float32s
from pairsmith.core.errors import ModelError, first_line
from pairsmith.core.model_names import file_of, resolve_model

STYLE_FILE = "style.safetensors"
"""Name of the classifier's file in the encoder's folder."""


@dataclass(frozen=True, slots=True)
class StyleClassifier:
    """A logistic regression on an encoder's vectors, scaled to length 1; ``weight`` is ``(d,)`` float32."""

    weight: Float32s
    bias: float

    def probability(self, vectors: Float32s) -> Float32s:
        """The probability that each text is in the style of the seeds, ``(n,)`` float32.

        ``vectors``, ``(n, d)`` float32, need not have length 1; the probability of a zero vector comes
        from the bias alone.
        """
        lengths = np.linalg.norm(vectors, axis=1)
        logits = vectors @ self.weight / np.where(lengths > 0, lengths, 1) + self.bias
        probabilities: Float32s = torch.sigmoid(torch.from_numpy(logits)).numpy()
        return probabilities

    def save(self, folder: Path) -> None:
        """Save the classifier in an encoder's folder."""
        save_file(
            {"weight": torch.from_numpy(self.weight), "bias": torch.tensor(self.bias)}, folder / STYLE_FILE
        )


def load_style_classifier(model: str) -> StyleClassifier | None:
    """The style classifier in the folder of an encoder; None if the encoder has none."""
    file = file_of(resolve_model(model), STYLE_FILE)
    if file is None:
        return None
    try:
        tensors = load_file(file)
        return StyleClassifier(tensors["weight"].float().numpy(), float(tensors["bias"]))
    except (SafetensorError, KeyError, OSError) as error:
        raise ModelError(f"{file} cannot be read ({first_line(error)}); train the encoder again") from error


@dataclass(frozen=True, slots=True)
class UnitVectors:
    """The vectors of the texts, among n texts, that are paired, and why the other texts are not paired.

    Attributes:
        vectors: ``(kept, d)`` float32, of length 1: the vectors of the texts that are paired, in their order.
        zero: ``(n,)`` bool, whether a text has a zero vector, which has no direction.
        other_style: ``(n,)`` bool, whether a text with another vector is not in the style of the seeds (M4).
    """

    vectors: Float32s
    zero: NDArray[np.bool_]
    other_style: NDArray[np.bool_]

    @property
    def kept(self) -> NDArray[np.bool_]:
        """The texts that are paired, ``(n,)`` bool."""
        return ~(self.zero | self.other_style)


def select_unit_vectors(
    vectors: Float32s, style_probability: Float32s | None = None, least_probability: float = 0.0
) -> UnitVectors:
    """Leave out zero vectors and texts that are not in the style of the seeds (M4); scale the others.

    Args:
        vectors: ``(n, d)`` float32, finite.
        style_probability: ``(n,)`` float32, in [0, 1], the probability that each text is in the style of the
            seeds (``StyleClassifier.probability``); None keeps texts of every style.
        least_probability: the lowest probability of a text that is kept.
    """
    lengths = np.linalg.norm(vectors, axis=1)
    zero = lengths == 0
    other_style = np.zeros(len(vectors), bool)
    if style_probability is not None:
        other_style = ~zero & (style_probability < least_probability)
    kept = ~(zero | other_style)
    return UnitVectors(vectors[kept] / lengths[kept, None], zero, other_style)
