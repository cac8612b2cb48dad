"""What steps of several routes share: hashes of their sources, and how their models are loaded."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from pairsmith.core.model_names import DtypeName
from pairsmith.runs import hash_source


def hashes(name: str, sources: Sequence[str]) -> dict[str, str]:
    """The hash of each source, by ``name`` and a number from 1."""
    return {f"{name} {number}": hash_source(source) for number, source in enumerate(sources, start=1)}


class LoadOptions(TypedDict):
    """Arguments of the functions that load models."""

    device: str
    dtype: DtypeName
    max_length: int | None


class _ReadsModel(Protocol):
    @property
    def device(self) -> str: ...
    @property
    def dtype(self) -> DtypeName: ...
    @property
    def max_length(self) -> int | None: ...


def load_options(settings: _ReadsModel) -> LoadOptions:
    """Where, in which number format and up to which length of texts the settings want their model."""
    return {"device": settings.device, "dtype": settings.dtype, "max_length": settings.max_length}
