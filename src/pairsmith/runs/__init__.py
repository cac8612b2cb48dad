"""Dataset folders: shards, fingerprints, atomic commits and data set cards."""

from pairsmith.core.model_files import hash_file
from pairsmith.runs.attribution import Sources, model_display_name, sources_of
from pairsmith.runs.begun import resolve_dtype
from pairsmith.runs.card import Card
from pairsmith.runs.claim import Run, refuse_source
from pairsmith.runs.folder import DatasetFolder, Manifest, ShardEntry, summary
from pairsmith.runs.identity import Identity
from pairsmith.runs.storage import hash_source, write_json
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
    "write_json",
]
