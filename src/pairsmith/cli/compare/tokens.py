"""Counts the tokens that models generated in a step."""

import json
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

from pairsmith.core.errors import UserError
from pairsmith.data.filters import DUPLICATE
from pairsmith.models.heads import load_tokenizer
from pairsmith.runs import DatasetFolder

_WRITTEN = {
    "generate": ("sentence2", "text"),
    "ask": ("written", "question"),
    "queries": ("query",),
    "rewrite": ("input",),
    "rewrite summaries": ("output",),
}
"""By step, or by step and kind of rows, the columns with generated text; a row need not have all of them."""
_TOGETHER = 1_000
"""Number of texts that are tokenized at once."""


def written_tokens(folder: Path, step: str, model: str | None) -> int:
    """Number of tokens that a step's ``model`` generated, including rejected texts.

    Tokens are counted with the model's tokenizer. The result is 0 for steps that generate nothing, and for
    models whose tokenizer is not available, such as a server's.
    """
    if step not in _WRITTEN or model is None:
        return 0
    try:
        tokenizer = load_tokenizer(model)
    except UserError:
        return 0
    dataset = DatasetFolder.open(folder)
    of_kind = f"{step} {dataset.manifest.settings.get('kind')}"
    texts = _texts(dataset, _WRITTEN.get(of_kind, _WRITTEN[step]), DUPLICATE if step == "rewrite" else None)
    count = 0
    while batch := list(islice(texts, _TOGETHER)):
        count += sum(map(len, tokenizer(batch, add_special_tokens=False, verbose=False)["input_ids"]))
    return count


def _texts(dataset: DatasetFolder, columns: tuple[str, ...], not_written: str | None) -> Iterator[str]:
    """The texts in these columns of all rows, and of all rejects except by the filter ``not_written``."""
    rows = (row for split in dataset.splits for shard in dataset.shards(split) for row in shard.to_pylist())
    rejects = (reject for reject in dataset.rejects().to_pylist() if reject["filter"] != not_written)
    for row in chain(rows, (json.loads(reject["row"]) for reject in rejects)):
        yield from (str(row[name]) for name in columns if row.get(name))
