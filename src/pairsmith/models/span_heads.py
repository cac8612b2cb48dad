"""Heads with which an encoder is a cross-encoder (Q3) or a bi-encoder (Q4) for question answering.

They are saved in a separate file in the model's folder, so that ``AutoModel`` can open the folder.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from pairsmith.core.errors import ModelError, first_line
from pairsmith.core.model_names import file_of
from pairsmith.models.loading import seeded

HEADS_FILE = "heads.safetensors"

HeadKind = Literal["tokens", "questions"]
"""What the heads read: the vector of each token of a question and its text, or of a question alone."""

HEAD_KINDS: tuple[HeadKind, ...] = ("tokens", "questions")


class SpanHeads(nn.Module):
    """Two perceptrons, for starts and for ends, each with two layers and tanh between them (Q3, Q4)."""

    def __init__(self, width: int, kind: HeadKind, seed: int = 0) -> None:
        """Make heads with random weights, which depend on ``seed`` alone.

        Vectors and the hidden layer have ``width`` numbers. Heads of kind ``tokens`` map the vector of each
        token to a score; heads of kind ``questions`` map the vector of a question to a vector of the same
        width.
        """
        super().__init__()
        self.kind = kind
        with seeded(seed):
            self.start = _perceptron(width, 1 if kind == "tokens" else width)
            self.end = _perceptron(width, 1 if kind == "tokens" else width)

    def forward(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Map vectors, ``(…, d)`` in the heads' dtype, to two tensors of this dtype, for starts and for ends.

        Heads of kind ``tokens`` return scores, ``(…)``, unbounded (Q3). Heads of kind ``questions`` return
        f_start and f_end, ``(…, d)`` (Q4).
        """
        start, end = self.start(vectors), self.end(vectors)
        return (start.squeeze(-1), end.squeeze(-1)) if self.kind == "tokens" else (start, end)


def _perceptron(width: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, out))


@dataclass(frozen=True, slots=True, eq=False)
class SpanScores:
    """The output of a reader's model for a batch: two tensors of unnormalised scores, ``(n, tokens)``."""

    start_logits: Tensor
    end_logits: Tensor


class PerceptronReader(nn.Module):
    """An encoder with two perceptrons, which score each token as an answer's start and as its end (Q3)."""

    def __init__(self, encoder: Any, heads: SpanHeads) -> None:
        super().__init__()
        self.encoder = encoder
        self.heads = heads.to(encoder.device, encoder.dtype)
        if encoder.dtype != torch.float32:
            score_in_float32(self.heads, 1)
        self.config = encoder.config
        self.eval()

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return torch.device(self.encoder.device)

    def forward(self, **inputs: Tensor) -> SpanScores:
        """Start and end scores, with the names of a transformers model's question-answering output."""
        return SpanScores(*self.heads(self.encoder(**inputs).last_hidden_state))


def score_in_float32(network: nn.Module, labels: int) -> None:
    """Convert the last layer of a head with ``labels`` outputs to float32, in place.

    bfloat16 has eight bits of precision. With it, many of thousands of pairs would have equal scores, and
    several tokens of a text would have the same, best score as a start.
    """
    for module in network.modules():
        if isinstance(module, nn.Linear) and module.out_features == labels:
            module.float()
            module.register_forward_pre_hook(lambda _, inputs: (inputs[0].float(),))


def save_heads(heads: SpanHeads, folder: Path) -> None:
    """Save heads in the folder of their model."""
    weights = {name: value.contiguous() for name, value in heads.state_dict().items()}
    # The metadata have only one entry, as the order of several would differ from process to process.
    save_file(weights, folder / HEADS_FILE, metadata={"kind": heads.kind})


def heads_kind(where: str) -> HeadKind | None:
    """The kind of the heads saved with the model ``where``, a folder or Hub id; None if it has no heads."""
    path = file_of(where, HEADS_FILE)
    if path is None:
        return None
    try:
        with safe_open(path, "pt") as file:
            kind = (file.metadata() or {}).get("kind")
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{path} cannot be read ({first_line(error)}); copy the model again") from error
    for name in HEAD_KINDS:
        if kind == name:
            return name
    raise ModelError(
        f"{path} does not say whether its heads read tokens or questions; give a model that train-teacher or "
        "infuse wrote"
    )


def load_heads(where: str, width: int, kind: HeadKind) -> SpanHeads:
    """Load the heads saved with a model whose vectors have ``width`` numbers.

    Raises:
        ModelError: the model has no heads, or heads of another kind or width.
    """
    saved_kind = heads_kind(where)
    if saved_kind != kind:
        present = "there are none" if saved_kind is None else f"the heads there read {saved_kind}"
        raise ModelError(f"model {where}: expected heads that read {kind} in {HEADS_FILE}, but {present}")
    heads = SpanHeads(width, kind)
    try:
        heads.load_state_dict(load_file(str(file_of(where, HEADS_FILE))))
    except RuntimeError as error:
        raise ModelError(
            f"model {where}: the heads in {HEADS_FILE} do not fit the model, whose vectors have {width} "
            "numbers"
        ) from error
    return heads
