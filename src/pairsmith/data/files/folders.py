"""Distinguishes folders of rows from folders of documents."""

from collections.abc import Collection, Mapping
from pathlib import PurePosixPath

from pairsmith.core.errors import InputError
from pairsmith.core.folder_kinds import A_MODEL, folder_kind, json_object
from pairsmith.core.paths import (
    MANIFEST,
    Place,
    display_name,
    is_folder,
    place,
    printable_name,
    reaching,
    source_files,
)
from pairsmith.data.splits import ABOUT_DATA, parquet_files, split_of


def written_by_pairsmith(folder: Place) -> bool:
    """Whether a folder has a manifest of pairsmith, and not a web app's file of the same name."""
    # The manifests of all steps and versions have this key, which decides whether a folder's rows are read.
    return isinstance(json_object(folder / MANIFEST).get("complete"), bool)


def own_folder(source: str) -> Place | None:
    """The folder, written by pairsmith, that a source names, with or without a split; else None."""
    folder = place(split_of(source)[0])
    with reaching(folder, InputError):
        return folder if is_folder(folder) and written_by_pairsmith(folder) else None


def documents_below(folder: Place, kinds: Collection[str]) -> Mapping[str, Place]:
    """The files in a folder of documents, by their relative paths (see ``source_files``).

    The result is empty if the folder is a dataset folder: if it has a manifest of pairsmith, or Parquet files
    in ``data``.

    Args:
        folder: an existing folder.
        kinds: the suffixes of document files, such as ``.txt``.

    Raises:
        InputError: the folder is empty; or it has both rows and documents, of which only one can be read.
    """
    if written_by_pairsmith(folder):
        return {}
    files = source_files(folder)
    rows = [display_name(file) for file in parquet_files(folder / "data")]
    if not rows:
        if (kind := folder_kind(folder)) and (kind != A_MODEL or _has_weights(files)):
            raise InputError(f"{folder} is {kind}; give a folder of documents, or files")
        if not files:
            raise InputError(f"{folder} holds no files; give a folder of documents, or files")
        return files
    if documents := [name for name in files if _is_document(name, kinds)]:
        named = ", ".join(map(printable_name, documents[:3])) + (", …" if len(documents) > 3 else "")
        raise InputError(
            f"{folder} holds rows (data/{rows[0]}) and documents ({named}), and only one can be read\n"
            "give the documents, or the Parquet files, by their own folders or files"
        )
    if MANIFEST in files:
        raise InputError(
            f"{folder} holds rows (data/{rows[0]}) and a {MANIFEST} that pairsmith cannot read\n"
            "give the Parquet files themselves, or run the command again that wrote the folder"
        )
    return {}


def _has_weights(files: Collection[str]) -> bool:
    return any(
        name.endswith((".safetensors", "/pytorch_model.bin")) or name == "pytorch_model.bin" for name in files
    )


def _is_document(name: str, kinds: Collection[str]) -> bool:
    path = PurePosixPath(name)
    about_data = len(path.parts) == 1 and path.stem.lower() in ABOUT_DATA
    return path.suffix.lower() in kinds and not about_data
