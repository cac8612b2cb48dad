"""The files of a folder that are uploaded: an allowlist, so that no other file in it can be published."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from upath import UPath

from pairsmith.core.errors import FolderError
from pairsmith.core.model_files import weight_files
from pairsmith.core.paths import MANIFEST, files_below, is_folder, local_copy, place, reaching, size_of
from pairsmith.data.splits import split_of
from pairsmith.runs import DatasetFolder, Manifest
from pairsmith.runs.croissant import CROISSANT, as_json, describe
from pairsmith.runs.folder import check_files
from pairsmith.runs.manifest import read_manifest
from pairsmith.tools.push.names import PathReplacer
from pairsmith.training.folder import TRAINING_RECORD, TrainingRecord

CARD = "README.md"

FileContent = Path | bytes
"""A file that is sent unchanged, or the bytes that replace it."""

_MODEL = re.compile(
    r"""(?x)
    [\w.-]+\.safetensors | [\w.-]+\.safetensors\.index\.json | pytorch_model[\w.-]*\.bin(\.index\.json)?
    | (config|generation_config|modules|adapter_config|quantize_config|preprocessor_config|processor_config
       |config_sentence_transformers|sentence_\w+_config|router_config|special_tokens_map|added_tokens)\.json
    | tokenizer[\w.-]* | vocab\.(json|txt) | merges\.txt | [\w.-]+\.model | chat_template\.jinja
    | README\.md | LICENSE[\w.-]* | NOTICE[\w.-]*
    """
)
_MODULE = re.compile(r"\d+_\w+|query_\d+_\w+|document_\d+_\w+")
"""Folders of the modules of a sentence encoder."""

_TOKENS = ("tokenizer.json", "vocab.json")
"""Files whose strings are tokens, which must not be changed."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The files to upload, by their paths in the repository, and whether they are a data set or a model."""

    kind: Literal["dataset", "model"]
    files: Mapping[str, FileContent]


def parts_of(data: str, repo: str, endpoint: str) -> Parts:
    """The files to upload from the folder ``data``, a path or URL, with the paths in them replaced by names.

    The Croissant description of a data set says where it will be: in the repository ``repo`` (OWNER/NAME) of
    the Hub at the URL ``endpoint``.
    """
    location = place(data)
    with reaching(location, FolderError):
        if not is_folder(location):
            whole, split = split_of(data)
            what = "is a file" if size_of(location) is not None else "there is no such folder"
            remedy = f"give {whole}, as whole folders are uploaded"
            raise FolderError(
                f"--data {data}: {what}; {remedy if split else 'give a dataset folder or a model folder'}"
            )
        folder = (local_copy(location) if isinstance(location, UPath) else location).resolve()
        if (folder / MANIFEST).is_file():
            return Parts("dataset", _dataset(folder, data, repo, endpoint))
        if any((folder / name).is_file() for name in (TRAINING_RECORD, "config.json", "modules.json")):
            return Parts("model", _model(folder, data))
        if (folder / "run.json").is_file():
            steps = [step.name for step in sorted(folder.iterdir()) if (step / MANIFEST).is_file()]
            raise FolderError(
                f"--data {data} is a recipe's run; give the folder of a step in it: {', '.join(steps)}"
            )
    raise FolderError(
        f"--data {data}: the folder has neither the {MANIFEST} of a data set nor the config.json of a model; "
        "give a dataset folder or a model folder"
    )


def _dataset(folder: Path, name: str, repo: str, endpoint: str) -> dict[str, FileContent]:
    opened = DatasetFolder.open(folder)
    hashes = {file.path: file.sha256 for file in opened.manifest.shard_files}
    check_files(folder, name, hashes, opened.manifest.step)
    if size_of(folder / CARD) is None:
        raise FolderError(
            f"{name} has no {CARD}; run the command that writes it ({opened.manifest.step}) again"
        )
    record = json.loads((folder / MANIFEST).read_bytes())
    names = PathReplacer(folder, record)
    manifest = names.values(record)
    described = describe(Manifest.model_validate(manifest), opened.schema(), repo=repo, endpoint=endpoint)
    return {
        CARD: names.text(_card(folder / CARD)).encode(),
        MANIFEST: as_json(manifest),
        CROISSANT: as_json(described),
        **{path: folder / path for path in sorted(hashes)},
    }


def _model(folder: Path, name: str) -> dict[str, FileContent]:
    record: dict[str, Any] = {}
    if (folder / TRAINING_RECORD).is_file():
        training = read_manifest(folder, TRAINING_RECORD, TrainingRecord)
        if not training.complete:
            raise FolderError(
                f"{name} is unfinished; run the command that trains it ({training.step}) again to finish it"
            )
        # The card may be edited by hand; the other files are the model.
        hashes = {path: digest for path, digest in training.files.items() if path != CARD}
        check_files(folder, name, hashes, training.step)
        chosen: Iterable[str] = training.files
        record = json.loads((folder / TRAINING_RECORD).read_bytes())
    else:
        chosen = [path for path in files_below(folder) if _is_model_file(path)]
        if any(path.endswith(".safetensors") for path in chosen):
            chosen = [path for path in chosen if not path.rpartition("/")[2].startswith("pytorch_model")]
    if not weight_files(folder):
        raise FolderError(
            f"{name} holds no weights (model.safetensors); give the folder that a training wrote"
        )
    names = PathReplacer(folder, record)
    return {path: _cleaned(folder / path, names) for path in sorted(chosen) if (folder / path).is_file()}


def _is_model_file(path: str) -> bool:
    *above, last = path.split("/")
    return len(above) < 2 and all(map(_MODULE.fullmatch, above)) and _MODEL.fullmatch(last) is not None


def _cleaned(file: Path, names: PathReplacer) -> FileContent:
    """A card or JSON file with paths replaced by names; any other file, and JSON without paths, unchanged."""
    if file.name == CARD:
        return names.text(_card(file)).encode()
    if file.suffix == ".json" and file.name not in _TOKENS:
        try:
            values = json.loads(file.read_bytes())
        except ValueError:
            return file
        named = PathReplacer(file.parent, values).values(names.values(values))
        return as_json(named) if named != values else file
    return file


def _card(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise FolderError(f"{file} is not UTF-8 text; save it as UTF-8") from None
