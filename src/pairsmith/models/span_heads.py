"""Heads that turn an encoder into a cross-encoder (Q3) or bi-encoder (Q4) for question answering.

They are saved in a file of their own beside the model, so that ``AutoModel`` still opens the folder.
"""

from pathlib import Path
from typing import Literal

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from pairsmith.core.errors import ModelError, first_line
from pairsmith.core.model_names import file_of
from pairsmith.models.loading import seeded

HEADS_FILE = "heads.safetensors"

HeadKind = Literal["tokens", "questions"]
"""What the heads read: each token of a question and its text, or only the first token of a question."""

HEAD_KINDS: tuple[HeadKind, ...] = ("tokens", "questions")


class SpanHeads(nn.Module):
    """Two perceptrons, for starts and for ends, each of two layers with tanh between them (Q3, Q4)."""

    def __init__(self, width: int, kind: HeadKind, seed: int = 0) -> None:
        """Heads with random weights, for vectors of this width, which is also the hidden layer's.

        Heads of kind ``tokens`` map each token's vector to a number, those of kind ``questions`` map a
        question's vector to one of the same width.
        """
        super().__init__()
        self.kind = kind
        with seeded(seed):
            self.start = _perceptron(width, 1 if kind == "tokens" else width)
            self.end = _perceptron(width, 1 if kind == "tokens" else width)

    def forward(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Map vectors ``(…, d)``, of the heads' dtype, to two tensors of it, for starts and for ends.

        Heads of kind ``tokens`` give scores, ``(…)``, unbounded (Q3); those of kind ``questions`` give
        f_start and f_end, ``(…, d)`` (Q4).
        """
        start, end = self.start(vectors), self.end(vectors)
        return (start.squeeze(-1), end.squeeze(-1)) if self.kind == "tokens" else (start, end)


def _perceptron(width: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, out))


def save_heads(heads: SpanHeads, folder: Path) -> None:
    """Save heads beside the model in ``folder``."""
    weights = {name: value.contiguous() for name, value in heads.state_dict().items()}
    # Only one entry: the order of several in the file would differ from process to process.
    save_file(weights, folder / HEADS_FILE, metadata={"kind": heads.kind})


def heads_kind(where: str) -> HeadKind | None:
    """The kind of the heads saved beside the model at ``where``; None where there are none."""
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
    raise ModelError(f"{path} does not say whether its heads read tokens or questions")


def load_heads(where: str, width: int, kind: HeadKind) -> SpanHeads:
    """Load the heads saved beside a model whose vectors have this width, and check their kind."""
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
