"""Dataset folders: shards, fingerprints, atomic commits and data set cards."""

from pairsmith.runs.card import Card
from pairsmith.runs.folder import Counts, DatasetFolder, Manifest
from pairsmith.runs.storage import hash_file, hash_source, write_atomic, write_json
from pairsmith.runs.writer import FolderWriter, Run

__all__ = [
    "Card",
    "Counts",
    "DatasetFolder",
    "FolderWriter",
    "Manifest",
    "Run",
    "hash_file",
    "hash_source",
    "write_atomic",
    "write_json",
]
