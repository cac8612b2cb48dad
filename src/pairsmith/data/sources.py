"""Sources of rows: files of several formats, dataset folders and Hub data sets, all read as a stream.

``open_source`` returns a ``Source``: a name for messages, and a function that yields the rows as mappings
from column to value. The readers turn these mappings into typed records.

Decisions about the formats:

- For the ends of lines, see ``lines``.
- The header of MRQA's files, ``{"header": {...}}``, is not a row. It is in the first line, or in several
  lines of a file into which several of them were joined.
- For the quoting and the separators of ``.csv`` and ``.tsv``, see ``tables``.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, cast

from pairsmith.core.bundled import is_bundled
from pairsmith.core.errors import InputError, first_line, missing_file_hint, redacted
from pairsmith.core.hub import hub_or_cache, unreachable_hint
from pairsmith.core.model_names import EMBEDDED, is_hub_id
from pairsmith.core.paths import (
    Place,
    data_suffix,
    display_name,
    expanded_path,
    is_folder,
    is_url,
    place,
    reaching,
    size_of,
)
from pairsmith.data.lines import NotTextError, read_lines, shell_command
from pairsmith.data.signatures import OTHER_SUFFIXES, SAVE_AS, refuse_other_format
from pairsmith.data.splits import advice_to_chunk, folder_files, split_files, split_of
from pairsmith.data.tables import refuse_repeated_names, table_rows

Columns = Mapping[str, Any]
_CONFIG = re.compile(r"/[\w.-]+")
_LOOKED_AT = 100
"""Number of lines of a file of an unknown kind that are read before its first row is returned."""


@dataclass(frozen=True, slots=True)
class Source:
    """A named stream of rows; ``rows()`` yields (where, row), where ``where`` reads ``file:line``."""

    name: str
    rows: Callable[[], Iterator[tuple[str, Columns]]]


def open_source(source: str | Place | Source) -> Source:
    """Open what ``source`` names: a file, a dataset folder or its split ``FOLDER:SPLIT``, or a Hub data set.

    A Hub data set is ``org/name``, ``org/name:split`` or, with a configuration, ``org/name/config:split``. A
    ``Source`` is returned unchanged.
    """
    if isinstance(source, Source):
        return source
    if isinstance(source, str) and split_of(source)[1]:
        folder, split = split_of(source)
        files = split_files(source)
        return Source(f"{redacted(folder)}, {split}", lambda: _parquet_rows(files))
    path = place(source)
    name = redacted(str(path))
    with reaching(path, InputError):
        if source == "-" or _is_pipe(path):
            raise missing_source(path)
        if is_folder(path):
            files = folder_files(path)
            return Source(name, lambda: _parquet_rows(files))
        if (isinstance(path, Path) and path.exists()) or size_of(path) is not None:
            read = _text_rows if data_suffix(path) == ".txt" else TABLES.get(data_suffix(path), _rows_as_text)
            return Source(name, lambda: read(path))
    if isinstance(source, str) and is_hub_data(source):
        return Source(source, lambda: _hub_rows(source))
    raise missing_source(path)


def open_table(path: Place) -> Source:
    """Open the file at ``path``, whatever its suffix, as a table with a header and tabs between fields."""
    with reaching(path, InputError):
        if size_of(path) is None:
            raise missing_source(path)
    return Source(redacted(str(path)), lambda: table_rows(path, tabs=True))


def is_hub_data(source: str) -> bool:
    """Whether ``source`` has the form of a Hub data set's name: ``org/name`` or ``org/name:split``.

    If a configuration is given, a split has to be given, too: ``org/name/config:split``. Without one,
    ``a/b/c`` is a path.
    """
    name_and_config, _, split = source.partition(":")
    name = hub_name(source)
    if is_url(source) or "/" not in name or not is_hub_id(name):
        return False
    named = name_and_config == name or bool(split and _CONFIG.fullmatch(name_and_config.removeprefix(name)))
    return named and data_suffix(Path(name_and_config)) not in (".txt", *TABLES)


def hub_name(source: str) -> str:
    """The name of a Hub data set, without its configuration and split."""
    return "/".join(source.partition(":")[0].split("/")[:2])


def missing_source(path: Place) -> InputError:
    """The error for a pipe, and for a path that does not exist, with the most similar name in its folder."""
    if str(path) == "-" or _is_pipe(path):
        return InputError(
            f"{path}: pipes cannot be read, as an input is read more than once; write the data to a file "
            "such as data.jsonl"
        )
    if not isinstance(path, Path):
        if str(path).startswith(("http://", "https://")):
            return InputError(
                f"{path} could not be fetched; check the address and the connection, or download the file "
                "(e.g. with curl -LO) and give its path"
            )
        return InputError(f"{path} does not exist; check the name")
    if is_bundled(path.name) or path.name.startswith(EMBEDDED):
        return InputError(f"{path} is the name of a model; give data, a file or a dataset folder, here")
    instead = advice_to_chunk(path.parent, "a dataset folder") if "*" in path.name else ""
    return InputError(f"{path} does not exist{missing_file_hint(path) or '; check the path'}{instead}")


def check_exists(source: str) -> None:
    """Raise an ``InputError`` if ``source`` names a local file or folder that does not exist.

    Sources are opened later. This earlier check reports a wrong name before the step has spent seconds on
    loading its libraries.
    """
    local = not is_url(source) and ":" not in source and not is_hub_data(source)
    try:
        exists = not local or (expanded_path(source).exists() and not _is_pipe(expanded_path(source)))
    except OSError:  # the name is too long for a path; the error is reported when it is opened
        return
    if not exists:
        raise missing_source(place(source))


def _is_pipe(path: Place) -> bool:
    """Whether there is a pipe, a socket or a terminal at ``path``; /dev/null counts as an empty file."""
    pipe = isinstance(path, Path) and (path.is_fifo() or path.is_socket() or path.is_char_device())
    return pipe and str(path) != os.devnull


def plain_or_gzip(folder: Place, name: str) -> Place | None:
    """The file ``name`` in ``folder``, or else ``name.gz``; None if neither exists."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if size_of(path) is not None), None)


def open_parquet(path: Place) -> Any:
    """Open ``path`` as a ``ParquetFile``. Exceptions of pyarrow and of the store are not converted."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not isinstance(path, Path):
        return pq.ParquetFile(path.open("rb"))
    try:
        return pq.ParquetFile(path)
    except UnicodeEncodeError:  # a path that is not UTF-8 has to be given as bytes
        return pq.ParquetFile(pa.OSFile(os.fsencode(str(path))))


def _text_rows(path: Place) -> Iterator[tuple[str, Columns]]:
    name = display_name(path)
    for number, line in read_lines(path):
        yield f"{name}:{number}", {"text": line}


def _rows_as_text(path: Place) -> Iterator[tuple[str, Columns]]:
    """The lines of a file of an unknown kind: corpora are often called corpus.en, not corpus.txt.

    The first lines are read before a row is made of them, so that no file of another format becomes rows.

    Raises:
        InputError: the file's suffix or its first bytes are those of another format, its first line is a JSON
            object, or it is no text.
    """
    suffix, rows = data_suffix(path), _text_rows(path)
    if suffix in OTHER_SUFFIXES:
        with reaching(path, InputError):
            refuse_other_format(path)
        raise InputError(
            f"{path}: files with the suffix {suffix} are not read; {SAVE_AS}\n"
            "if it is text, rename it to a .txt file"
        )
    try:
        first = list(islice(rows, _LOOKED_AT))
        where, line = next(((where, row["text"]) for where, row in first if row["text"].strip()), ("", ""))
        if _is_json_object(line):
            ending = ".jsonl.gz" if display_name(path).lower().endswith(".gz") else ".jsonl"
            raise InputError(
                f"{where}: a JSON object, as in JSON Lines; give the file a name that ends in {ending}, or "
                "in .txt if each line is a text"
            )
        yield from chain(first, rows)
    except NotTextError as error:
        kind = f"files with the suffix {suffix}" if suffix else "files without a suffix"
        raise InputError(f"{error}\n{kind} are read as plain text; {SAVE_AS}") from None


def _is_json_object(line: str) -> bool:
    """Whether a line is a JSON object with at least one column."""
    with suppress(ValueError, RecursionError):
        value = json.loads(line) if line.lstrip().startswith("{") else None
        return isinstance(value, dict) and bool(value)
    return False


def _json_rows(path: Place) -> Iterator[tuple[str, Columns]]:
    name = display_name(path)
    for number, line in read_lines(path):
        if not (beginning := line.lstrip()):
            continue
        where = f"{name}:{number}"
        if beginning[0] == "[":
            command = shell_command("jq -c '.[]'", path)
            raise InputError(f"{where}: a JSON array; one object per line is expected (e.g. {command})")
        try:
            value = _JSON.decode(line)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
        except (ValueError, RecursionError) as error:
            raise InputError(f"{where}: not JSON ({error}); each line has to be one JSON object") from None
        if isinstance(value, str):
            value = {"text": value}
        if not isinstance(value, dict):
            excerpt = json.dumps(value)[:20]
            raise InputError(f"{where}: {excerpt} is not a JSON object with columns such as text")
        if value.keys() == {"header"} and isinstance(value["header"], dict):
            continue
        yield where, value


def _json_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object from its names and values; an ``InputError`` if a name occurs twice."""
    value = dict(pairs)
    if len(value) < len(pairs):
        refuse_repeated_names([name for name, _ in pairs], "a JSON object")
    return value


_JSON = json.JSONDecoder(object_pairs_hook=_json_object)


def _parquet_rows(paths: list[Place]) -> Iterator[tuple[str, Columns]]:
    import pyarrow as pa

    for path in paths:
        name, number = display_name(path), 0
        with reaching(path, InputError):
            try:
                with open_parquet(path) as file:
                    refuse_repeated_names(file.schema_arrow.names, f"{path}: its schema")
                    for batch in file.iter_batches(batch_size=1024):
                        for row in _python_rows(batch, path, number):
                            number += 1
                            yield f"{name}:{number}", row
            except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
                raise InputError(
                    f"{path} cannot be read as Parquet after row {number}: {first_line(error)}; download or "
                    "write the file again, or rename it if it is no Parquet file"
                ) from error


def _python_rows(batch: Any, path: Place, number: int) -> list[Columns]:
    """The rows of an Arrow batch that follows row ``number`` of the Parquet file."""
    try:
        return cast(list[Columns], batch.to_pylist())
    except (ValueError, OverflowError) as error:  # text that is not UTF-8, or a date after the year 9999
        raise InputError(
            f"{path}: a value in rows {number + 1} to {number + batch.num_rows} cannot be read as text, "
            f"number or date ({first_line(error)}); write the file again without it"
        ) from error


def _hub_rows(source: str) -> Iterator[tuple[str, Columns]]:
    number = 0
    try:
        for number, row in enumerate(_hub_data(source), start=1):
            yield f"{source}:{number}", row
    except Exception as error:  # the Hub client raises many kinds, all of which mean "not available"
        raise InputError(
            f"{source}: no such file, and no such Hub data set could be loaded ({first_line(error)})"
            f"{unreachable_hint()}; check the name, the split after ':', and the connection"
            if not number
            else f"{source}: the Hub sent no more rows after row {number} ({first_line(error)}); check the "
            "connection, and run the same command again"
        ) from error


def _hub_data(source: str) -> Iterator[Columns]:
    """The rows of a Hub data set, streamed if possible; otherwise the data set is downloaded and cached."""
    if (source.partition(":")[2] or "train").isidentifier():  # not ``train[:1000]`` or ``train+test``
        # Streaming fails without a connection or for archives; the data set may still be in the cache.
        with suppress(Exception):
            rows = iter(load_hub_data(source, streaming=True))
            first = next(rows, None)
            return chain([] if first is None else [first], rows)
    return iter(load_hub_data(source, streaming=False))


def load_hub_data(source: str, *, streaming: bool) -> Any:
    """Load a Hub data set with ``datasets``, whose exceptions are not converted; default split: ``train``."""
    import datasets

    name_and_config, _, split = source.partition(":")
    config = name_and_config.removeprefix(hub_name(source)).removeprefix("/")
    path_and_name = (hub_name(source), config) if config else (name_and_config,)
    with hub_or_cache():
        return datasets.load_dataset(*path_and_name, split=split or "train", streaming=streaming)


TABLES: Mapping[str, Callable[[Place], Iterator[tuple[str, Columns]]]] = {
    ".tsv": partial(table_rows, tabs=True),
    ".csv": partial(table_rows, tabs=False),
    ".jsonl": _json_rows,
    ".json": _json_rows,
    ".parquet": lambda path: _parquet_rows([path]),
}
"""The reader of each format of rows with columns, by the suffix of the file's name."""
