"""Dataset folders: shards, fingerprints, atomic commits and data set cards.

A step that makes rows calls ``FolderWriter.start``, ``commit`` for each shard, and ``finish``. The modules:

    writer.py     the order of all writes: shards, journal, manifest, card
    claim.py      ``Run``, which says where a step writes; refuses a folder that holds other work
    identity.py   what decides a run's rows, the run's fingerprint, and how two runs differ
    lock.py       locks, so that one process at a time writes to a folder; lease.py has locks for stores
    journal.py    which shards are finished while a run is unfinished
    existing.py   checks and repairs what an earlier run left, and copies what ranks of an array job made
    storage.py    atomic writes, scratch files and hashes
    manifest.py   the manifest with the list of shards, and the names of files
    folder.py     reading of finished folders
    mapped.py     makes and commits a shard for each part of a step's input, with the workers of executors.py
"""

from pairsmith.core.model_files import hash_file
from pairsmith.runs.attribution import (
    Sources,
    model_display_name,
    sources_of,
    synthetic_tag,
    written_by_model,
)
from pairsmith.runs.begun import resolve_dtype
from pairsmith.runs.card import Card
from pairsmith.runs.claim import Run, refuse_source
from pairsmith.runs.folder import DatasetFolder, summary
from pairsmith.runs.identity import Identity
from pairsmith.runs.manifest import Manifest, ShardEntry
from pairsmith.runs.source_hashes import hash_source
from pairsmith.runs.storage import write_json
from pairsmith.runs.writer import FolderWriter, Growth, ShardSpec

__all__ = [
    "Card",
    "DatasetFolder",
    "FolderWriter",
    "Growth",
    "Identity",
    "Manifest",
    "Run",
    "ShardEntry",
    "ShardSpec",
    "Sources",
    "hash_file",
    "hash_source",
    "model_display_name",
    "refuse_source",
    "resolve_dtype",
    "sources_of",
    "summary",
    "synthetic_tag",
    "write_json",
    "written_by_model",
]
