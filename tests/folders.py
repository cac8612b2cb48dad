"""Dataset folders for tests."""

from pairsmith.core.progress import Silent
from pairsmith.data.schemas import REJECT
from pairsmith.runs import Card, FolderWriter, Identity, Run


def write_folder(path, *shards, step="generate", settings=None, models=None, rejects=None, columns=None):
    """Write a dataset folder, and return it.

    Each of ``shards`` maps the names of splits to tables. ``rejects`` are the rejected rows of the first
    shard, and ``columns`` the meanings of columns. With ``models``, the card says that they wrote the texts.
    """
    schema = next(iter(shards[0].values())).schema
    identity = Identity.of(step, settings or {}, {}, models or {})
    writer = FolderWriter.start(Run(path, Silent()), identity, schema)
    for number, tables in enumerate(shards):
        writer.commit(number, tables, REJECT.empty_table() if rejects is None or number else rejects)
    tags = ("synthetic",) if models else ()
    return writer.finish(Card("Rows", "Rows for a test.", columns=columns or {}, tags=tags))
