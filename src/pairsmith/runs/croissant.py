"""A description of a dataset folder in Croissant 1.1 (docs.mlcommons.org/croissant), a form of JSON-LD.

The description is one dictionary, so no library is used to make it; the tests read it with the
specification's own library.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from pairsmith.data.schemas import REJECT
from pairsmith.runs.card import MEANING
from pairsmith.runs.manifest import REJECTS, FileEntry, Manifest
from pairsmith.runs.provenance import joint_languages, joint_licences
from pairsmith.runs.storage import hash_bytes

CROISSANT = "croissant.json"

JSONLD = dict[str, Any]

_SPDX = "https://spdx.org/licenses/"
_SPDX_NAMES = {
    "apache-2.0": "Apache-2.0", "mit": "MIT", "bsd-3-clause": "BSD-3-Clause", "cc0-1.0": "CC0-1.0",
    "cc-by-3.0": "CC-BY-3.0", "cc-by-4.0": "CC-BY-4.0", "cc-by-sa-3.0": "CC-BY-SA-3.0",
    "cc-by-sa-4.0": "CC-BY-SA-4.0", "cc-by-nc-4.0": "CC-BY-NC-4.0", "cc-by-nc-sa-4.0": "CC-BY-NC-SA-4.0",
    "odc-by": "ODC-By-1.0", "odbl": "ODbL-1.0", "gpl-3.0": "GPL-3.0-only", "unlicense": "Unlicense",
}  # fmt: skip
_UNKNOWN = "unknown: see the section Licence of README.md"

_OWN_WORDS = (
    "arrayShape", "citeAs", "column", "containedIn", "equivalentProperty", "extract", "field", "fileObject",
    "fileProperty", "fileSet", "format", "includes", "isArray", "isLiveDataset", "jsonPath", "key", "md5",
    "parentField", "path", "recordSet", "references", "regex", "repeated", "replace", "samplingRate",
    "separator", "source", "subField", "transform",
)  # fmt: skip
_OTHER_WORDS: JSONLD = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "description": {"@container": "@language"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "name": {"@container": "@language"},
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
}
_CONTEXT = dict(sorted((_OTHER_WORDS | {word: f"cr:{word}" for word in _OWN_WORDS}).items()))
"""The full context of the specification: readers take any other context for another dialect."""

_TYPES = {
    pa.string(): "sc:Text", pa.large_string(): "sc:Text", pa.bool_(): "sc:Boolean",
    pa.int8(): "cr:Int8", pa.int16(): "cr:Int16", pa.int32(): "cr:Int32", pa.int64(): "cr:Int64",
    pa.uint8(): "cr:UInt8", pa.uint16(): "cr:UInt16", pa.uint32(): "cr:UInt32", pa.uint64(): "cr:UInt64",
    pa.float16(): "cr:Float16", pa.float32(): "cr:Float32", pa.float64(): "cr:Float64",
}  # fmt: skip


def describe(manifest: Manifest, schema: pa.Schema, *, repo: str = "", endpoint: str = "") -> JSONLD:
    """The Croissant description of a finished dataset folder, as a JSON-LD object.

    The same folder always gives the same description.

    Args:
        manifest: the folder's manifest.
        schema: the schema of the rows.
        repo: the folder's repository on the Hub, OWNER/NAME; the owner is then named as the creator.
        endpoint: the Hub's URL.
    """
    about = manifest.about
    files = manifest.shard_files
    kept = [file for file in files if file.split != REJECTS]
    sets, schemas = {"data": kept}, {"data": schema, "rejects": REJECT}
    if manifest.counts.rejects:
        sets["rejects"] = [file for file in files if file.split == REJECTS]
    content = hash_bytes("".join(f"{file.path}\t{file.sha256}\n" for file in files).encode())
    described: JSONLD = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "name": about.title or f"Rows by {manifest.step}",
        "description": about.description or f"Rows that the step {manifest.step} of pairsmith wrote.",
        "license": _licences(manifest),
        "version": f"1.0.0+{content[:12]}",  # changes when the files change
        "keywords": ["pairsmith", manifest.step],
        "distribution": [
            *(_file(file) for members in sets.values() for file in members),
            *(_file_set(name, members[0].path.partition("/")[0]) for name, members in sets.items()),
        ],
        "recordSet": [
            _splits([file.split for file in kept]),
            *(_records(name, schemas[name], about.columns) for name in sets),
        ],
    }
    if about.citations:
        described["citeAs"] = "\n".join(about.citations)
    if languages := joint_languages(about.credits):
        described["inLanguage"] = list(languages)
    if manifest.created:  # when the folder was begun; no later date is recorded
        described["dateCreated"] = described["datePublished"] = manifest.created[:10]
    if repo:
        owner = repo.partition("/")[0]
        described["url"] = f"{endpoint}/datasets/{repo}"
        described["creator"] = {"@type": "sc:Organization", "name": owner, "url": f"{endpoint}/{owner}"}
    return described


def as_json(described: JSONLD) -> bytes:
    """A description, or another JSON object, as the bytes of a JSON file."""
    return (json.dumps(described, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")


def _licences(manifest: Manifest) -> str | list[str]:
    licences = [
        f"{_SPDX}{_SPDX_NAMES[licence]}" if licence in _SPDX_NAMES else licence
        for licence in joint_licences(manifest.about.credits)
    ]
    return licences or _UNKNOWN


def _node(kind: str, identifier: str, name: str, **properties: Any) -> JSONLD:
    return {"@type": f"cr:{kind}", "@id": identifier, "name": name, **properties}


def _file(file: FileEntry) -> JSONLD:
    return _node(
        "FileObject",
        file.path,
        file.path,
        contentUrl=file.path,
        contentSize=f"{file.bytes} B",
        encodingFormat="application/x-parquet",
        sha256=file.sha256,
    )


def _file_set(name: str, folder: str) -> JSONLD:
    return _node(
        "FileSet",
        f"{name}-files",
        f"{name}-files",
        description=f"All Parquet files in {folder}/.",
        encodingFormat="application/x-parquet",
        includes=f"{folder}/*.parquet",
    )


def _splits(names: Sequence[str]) -> JSONLD:
    kinds = {"train": "cr:TrainingSplit", "validation": "cr:ValidationSplit", "test": "cr:TestSplit"}
    ordered = sorted(dict.fromkeys(names), key=lambda name: name != "train")
    urls = any(name in kinds for name in ordered)
    fields = [_node("Field", "splits/name", "name", dataType="sc:Text")]
    if urls:
        fields.append(_node("Field", "splits/url", "url", dataType="sc:URL"))
    rows = [
        {"splits/name": name, **({"splits/url": kinds.get(name, "cr:Split")} if urls else {})}
        for name in ordered
    ]
    return _node(
        "RecordSet",
        "splits",
        "splits",
        description="The names of the splits.",
        dataType="cr:Split",
        key={"@id": "splits/name"},
        field=fields,
        data=rows,
    )


def _records(name: str, schema: pa.Schema, meaning: Mapping[str, str]) -> JSONLD:
    fields = [_field(name, column, {**MEANING, **meaning}) for column in schema]
    if name == "data":
        fields.insert(0, _split_field(name))
    what = "The rows." if name == "data" else "Rows that were made and not kept, and why."
    key = {"key": {"@id": f"{name}/id"}} if name == "data" and "id" in schema.names else {}
    return _node("RecordSet", name, name, description=what, **key, field=fields)


def _split_field(records: str) -> JSONLD:
    """The split of a row, from its file name; readers apply the regex to its own result once more."""
    source = {
        "fileSet": {"@id": f"{records}-files"},
        "extract": {"fileProperty": "filename"},
        "transform": {"regex": r"^(\w+?)(?:-\d+\.parquet)?$"},
    }
    return _node(
        "Field",
        f"{records}/split",
        "split",
        description="The split that the row belongs to.",
        dataType="sc:Text",
        source=source,
        references={"field": {"@id": "splits/name"}},
    )


def _field(records: str, column: pa.Field, meaning: Mapping[str, str]) -> JSONLD:
    node = _plain(f"{records}/{column.name}", column.name, column.type)
    if column.name in meaning:
        node["description"] = meaning[column.name]
    source = {"fileSet": {"@id": f"{records}-files"}, "extract": {"column": column.name}}
    if "subField" not in node:
        return node | {"source": source}
    for leaf, path in _leaves(node, ()):
        leaf["source"] = {**source, "transform": {"jsonPath": ".".join(path)}}
    return node


def _plain(identifier: str, name: str, kind: pa.DataType) -> JSONLD:
    """A field without its source: a value, a list of values, or a struct of fields."""
    node = _node("Field", identifier, name)
    if pa.types.is_struct(kind):
        inner = [kind.field(place) for place in range(kind.num_fields)]
        return node | {"subField": [_plain(f"{identifier}/{x.name}", x.name, x.type) for x in inner]}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return node | {"dataType": _type(kind.value_type), "isArray": True, "arrayShape": "-1"}
    return node | {"dataType": _type(kind)}


def _type(kind: pa.DataType) -> str:
    """Croissant's name of a column's type; a type without a name in Croissant is described as text."""
    if pa.types.is_timestamp(kind):
        return "sc:DateTime"
    if pa.types.is_date(kind):
        return "sc:Date"
    return "sc:Time" if pa.types.is_time(kind) else _TYPES.get(kind, "sc:Text")


def _leaves(field: JSONLD, path: tuple[str, ...]) -> Iterator[tuple[JSONLD, tuple[str, ...]]]:
    for inner in field["subField"]:
        inner_path = (*path, str(inner["name"]))
        if "subField" in inner:
            yield from _leaves(inner, inner_path)
        else:
            yield inner, inner_path
