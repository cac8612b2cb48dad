"""Hard negatives for a cross-encoder: wrong outputs that a bi-encoder finds near an input (M6)."""

from collections.abc import Callable, Sequence
from heapq import nlargest
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from pairsmith.data.examples import Example
from pairsmith.methods.mining.sampled_negatives import overlaps, positive_answers, positive_outputs
from pairsmith.models.encode import encode_texts
from pairsmith.runs import DatasetFolder

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_SPARE = 10
"""Additional outputs to retrieve from each shard, as some may be positives."""


def retrieved(
    examples: Sequence[Example],
    outputs: DatasetFolder,
    encoder: "SentenceTransformer",
    count: int,
    advance: Callable[[int], None] = lambda _: None,
) -> list[list[str]]:
    """The ``count`` distinct outputs nearest to each example's input, nearest first, without positives.

    Positives are the outputs of all examples with the same input, their answers in any passage, and what
    overlaps these answers in the example's own passage. ``outputs`` are encoded by ``encoder``, as ``mine``
    leaves them in its folder; ``advance`` is called with the number of inputs that were encoded.
    """
    inputs = [example.input for example in examples]
    queries = encode_texts(encoder, inputs, side="query", advance=advance)
    x = torch.nn.functional.normalize(torch.from_numpy(queries), dim=1)
    near: list[dict[str, float]] = [{} for _ in examples]
    right = list(zip(positive_outputs(examples), positive_answers(examples), strict=True))
    for table in outputs.shards("train", ["text", "answer", "context", "vector"]):
        if not table.num_rows:
            continue
        table = table.take(_first_of_each(table["text"]))  # duplicates would displace other texts
        vectors = torch.tensor(table["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False))
        vectors = vectors.view(table.num_rows, -1)
        values, places = (x @ vectors.T).topk(min(count + _SPARE, table.num_rows), dim=1)
        wanted = np.unique(places.numpy())
        known = dict(zip(wanted.tolist(), table.drop("vector").take(wanted).to_pylist(), strict=True))
        for number, example in enumerate(examples):
            found = zip(values[number].tolist(), (known[i] for i in places[number].tolist()), strict=True)
            best = near[number]
            for value, row in found:
                if not _right(row, example, *right[number]):
                    best[row["text"]] = max(value, best.get(row["text"], value))
            kept = nlargest(count, ((value, text) for text, value in best.items()))
            near[number] = {text: value for value, text in kept}
    return [list(each) for each in near]


def _first_of_each(texts: pa.ChunkedArray) -> NDArray[np.int64]:
    """The row of each text's first occurrence."""
    codes = texts.combine_chunks().dictionary_encode().indices.to_numpy()
    return np.sort(np.unique(codes, return_index=True)[1])


def _right(row: dict[str, Any], example: Example, outputs: frozenset[str], answers: frozenset[str]) -> bool:
    if row["text"] in outputs:
        return True
    if row["answer"] is None or example.context is None:
        return False
    own = row["context"] in example.context or example.context in row["context"]
    return row["answer"].casefold() in answers or (own and overlaps(row["answer"], answers))
