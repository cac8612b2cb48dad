"""Helpers of several steps: hashes and checks of sources, error messages, options for loading models."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypedDict, TypeVar

import pyarrow as pa

from pairsmith.core.errors import FolderError, InputError, ModelError, SettingsError, UserError
from pairsmith.core.model_names import DtypeName
from pairsmith.core.paths import is_folder, is_inside, place
from pairsmith.core.settings import Settings, option_name
from pairsmith.data.readers import NAME_TEXTS
from pairsmith.data.schemas import ANSWERS
from pairsmith.runs import FolderWriter, Run, hash_source, refuse_source

S = TypeVar("S", bound=Settings)


_ALTERNATIVE_TYPES = {
    pa.string(): pa.large_string(),
    pa.float64(): pa.float32(),
    ANSWERS: pa.struct([ANSWERS.field("text"), ("answer_start", pa.list_(pa.int64()))]),
}
"""For some types of columns, the type that other programs write instead; steps read it, too."""

SourceNames = str | Sequence[str] | None
"""The value of a setting that names one source, several, or perhaps none."""


def hashes(name: str, sources: SourceNames) -> dict[str, str]:
    """The hash of each source, under the keys ``name 1``, ``name 2``, …"""
    return {
        f"{name} {number}": hash_source(source) for number, source in enumerate(_as_list(sources), start=1)
    }


def refuse_sources(run: Run, **sources: SourceNames) -> None:
    """Refuse to overwrite a source that the step reads; ``sources`` are given by the names of the options."""
    for option, value in sources.items():
        for source in _as_list(value):
            refuse_source(run, **{option: source})


def refuse_inside(run: Run, **sources: SourceNames) -> None:
    """Refuse an ``--out`` inside a folder of documents, as the next run would read its files as documents.

    ``sources`` are given by the names of the options.
    """
    for option, value in sources.items():
        for source in _as_list(value):
            if is_inside(run.out, place(source)) and is_folder(place(source)):
                raise FolderError(
                    f"--out {run.out} is inside {option_name(option)} {source}; give a folder outside of it"
                )


def _as_list(sources: SourceNames) -> Sequence[str]:
    return [sources] if isinstance(sources, str) else sources or ()


def with_sources(settings: S, names: Iterable[str], change: Callable[[str, str], str | None]) -> S:
    """The settings with each source in one of the settings ``names`` replaced by ``change(name, source)``.

    Settings without a source, or with an empty one, are not changed. From a list, sources that become None
    are removed.
    """
    changes: dict[str, object] = {}
    for name in names:
        value = getattr(settings, name, None)
        if isinstance(value, str) and value:
            changes[name] = change(name, value)
        elif value:
            changes[name] = [
                replacement for source in value if (replacement := change(name, source)) is not None
            ]
    return settings.model_copy(update=changes)


def check_types(schema: pa.Schema, needed: pa.Schema, source: str) -> None:
    """Raise an ``InputError`` unless ``schema`` has the columns of ``needed``, with their types.

    Steps always write these columns, but a folder's files may be edited, or written by another program.
    ``source`` is the name of the rows' source, for the error.
    """
    for column in needed:
        if column.name not in schema.names:
            raise InputError(
                f"{source} has no column {column.name!r}, which is needed; it has: {', '.join(schema.names)}"
            )
        own = schema.field(column.name).type
        if own not in (column.type, _ALTERNATIVE_TYPES.get(column.type)):
            raise InputError(
                f"{source}: the column {column.name} has the type {own}, expected {column.type}; convert it, "
                "or run the command that wrote the folder again"
            )


def check_rows(table: pa.Table, needed: pa.Schema, source: str) -> None:
    """Call ``check_types``, and raise an ``InputError`` if a row has no value in one of the columns."""
    check_types(table.schema, needed, source)
    for column in needed:
        missing = table[column.name].null_count
        if column.type == ANSWERS:
            missing += sum(map(_lacks_text, table[column.name].drop_null().to_pylist()))
        if missing:
            raise InputError(
                f"{source}: {missing:,} of {table.num_rows:,} rows have no value in the column "
                f"{column.name}; drop them first"
            )


def _lacks_text(answers: Mapping[str, Any]) -> bool:
    return not answers["text"] or answers["text"][0] is None


def naming_texts(setting: str) -> str:
    """The remedy for sources without a usual column of texts, which ``setting`` can name."""
    return f"{NAME_TEXTS} with {option_name(setting)}"


@contextmanager
def errors_about(what: str, *kinds: type[UserError]) -> Iterator[None]:
    """Put ``what`` before error messages of these kinds.

    A method does not know the names of the files that its arguments were read from; the step does.
    """
    try:
        yield
    except kinds as error:
        raise type(error)(f"{what}: {error}") from error


@contextmanager
def named(model: str) -> Iterator[None]:
    """Put the model's name before error messages of a method, which does not know it."""
    with errors_about(f"model {model}", ModelError, SettingsError):
        yield


def unfinished_shards(writer: FolderWriter, rows: int, size: int) -> Iterator[tuple[int, slice]]:
    """The unfinished shards of a folder with ``size`` rows in each: their numbers and ranges of rows.

    Without any rows, the folder has one empty shard.
    """
    for number in range(max(1, -(-rows // size))):
        if not writer.is_done(number):
            yield number, slice(number * size, min((number + 1) * size, rows))


class LoadOptions(TypedDict):
    """Keyword arguments of the functions that load models."""

    device: str
    dtype: DtypeName
    max_length: int | None


class _ReadsModel(Protocol):
    """Settings that say how a model is loaded."""

    @property
    def device(self) -> str: ...
    @property
    def dtype(self) -> DtypeName: ...
    @property
    def max_length(self) -> int | None: ...


def load_options(settings: _ReadsModel) -> LoadOptions:
    """The keyword arguments for loading the model of ``settings``."""
    return {"device": settings.device, "dtype": settings.dtype, "max_length": settings.max_length}
