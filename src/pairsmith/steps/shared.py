"""Helpers of several steps: hashing and refusing sources, and the options with which a model is loaded."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypedDict, TypeVar

from pairsmith.core.errors import ModelError, SettingsError, UserError
from pairsmith.core.model_names import DtypeName
from pairsmith.core.settings import Settings, option_name
from pairsmith.data.readers import NAME_TEXTS
from pairsmith.runs import Run, hash_source, refuse_source

S = TypeVar("S", bound=Settings)


def hashes(name: str, sources: Sequence[str]) -> dict[str, str]:
    """The hash of each source, by ``name`` and a number from 1."""
    return {f"{name} {number}": hash_source(source) for number, source in enumerate(sources, start=1)}


def refuse_sources(run: Run, **sources: str | Sequence[str]) -> None:
    """Refuse to overwrite what a step reads; ``sources`` maps an option's name to its value or values."""
    for option, given in sources.items():
        for source in [given] if isinstance(given, str) else given:
            refuse_source(run, **{option: source})


def with_sources(settings: S, names: Iterable[str], change: Callable[[str, str], str | None]) -> S:
    """The settings with every source under one of ``names`` replaced by ``change(name, source)``.

    Names without a source, or with an empty one, are left alone; sources of a list that become None are
    dropped.
    """
    changes: dict[str, object] = {}
    for name in names:
        given = getattr(settings, name, None)
        if isinstance(given, str) and given:
            changes[name] = change(name, given)
        elif given:
            changes[name] = [
                replacement for source in given if (replacement := change(name, source)) is not None
            ]
    return settings.model_copy(update=changes)


def naming_texts(setting: str) -> str:
    """What to do about texts without a column of a usual name, where a setting names their column."""
    return f"{NAME_TEXTS} with {option_name(setting)}"


@contextmanager
def errors_about(what: str, *kinds: type[UserError]) -> Iterator[None]:
    """Put ``what`` before the messages of a method, which does not know what its arguments were read from."""
    try:
        yield
    except kinds as error:
        raise type(error)(f"{what}: {error}") from error


@contextmanager
def named(model: str) -> Iterator[None]:
    """Put the model's name before what a method, which does not know it, says is wrong with it."""
    with errors_about(f"model {model}", ModelError, SettingsError):
        yield


class LoadOptions(TypedDict):
    """Arguments of the functions that load models."""

    device: str
    dtype: DtypeName
    max_length: int | None


class ReadsModel(Protocol):
    """Settings that say how a model is loaded."""

    @property
    def device(self) -> str:
        """The device, such as ``auto`` or ``cuda:1``."""

    @property
    def dtype(self) -> DtypeName:
        """The number format of the weights."""

    @property
    def max_length(self) -> int | None:
        """The longest text in tokens; None: the model's own limit."""


def load_options(settings: ReadsModel) -> LoadOptions:
    """Where, in which number format and up to which length of texts the settings want their model."""
    return {"device": settings.device, "dtype": settings.dtype, "max_length": settings.max_length}
