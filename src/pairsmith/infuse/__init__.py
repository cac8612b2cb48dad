"""The QUIP route: questions generated on passages, answered by a teacher, used to train a bi-encoder."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pairsmith.encoders.span_encoder import load_span_encoder as load
    from pairsmith.encoders.span_reader import answer_by_vectors as answer

__all__ = ["answer", "load"]


def __getattr__(name: str) -> Any:
    """Import lazily, so that the settings, which import this package, need not wait for torch."""
    if name == "load":
        from pairsmith.encoders.span_encoder import load_span_encoder

        return load_span_encoder
    if name == "answer":
        from pairsmith.encoders.span_reader import answer_by_vectors

        return answer_by_vectors
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
