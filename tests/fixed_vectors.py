"""An encoder that has a vector for each text, for tests of what is computed from vectors."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from pairsmith.models import unit_vectors


@dataclass(frozen=True)
class FixedVectors:
    """Stands in for an encoder: a vector for each text."""

    vectors: Mapping[str, Sequence[float]]
    preprocess: None = None  # by which the methods on objects know an encoder


def encode_fixed_vectors(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FixedVectors]:
    """Have the methods on objects look vectors up; returns what makes the encoder for them."""

    def encode(encoder: FixedVectors, texts: Sequence[str], *, side: Any = None, advance: Any = None) -> Any:
        advance(len(texts))
        return np.array([encoder.vectors[text] for text in texts], np.float32)

    monkeypatch.setattr(unit_vectors, "encode_texts", encode)
    return FixedVectors
