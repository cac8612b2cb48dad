"""Wrong outputs that a bi-encoder finds near to an input, which a cross-encoder is to see through (M6)."""

from collections.abc import Callable, Sequence
from heapq import nlargest
from typing import TYPE_CHECKING

import numpy as np
import torch

from pairsmith.encoders.encode import encode_texts
from pairsmith.records import Example
from pairsmith.runs import DatasetFolder

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_SPARE = 10
"""Outputs looked at beside those wanted, as some may be right."""


def retrieved(
    examples: Sequence[Example],
    outputs: DatasetFolder,
    encoder: "SentenceTransformer",
    count: int,
    advance: Callable[[int], None] = lambda _: None,
) -> list[list[str]]:
    """The outputs of the corpus nearest to each example's input, without those that are right.

    Args:
        examples: n of them.
        outputs: encoded outputs, as ``mine`` leaves them in its folder.
        encoder: what they were encoded with.
        count: how many for each.
        advance: hears of how many inputs are encoded.

    Returns:
        n lists of texts, nearest first; right is what equals the example's output or has its answer.
    """
    inputs = [example.input for example in examples]
    queries = encode_texts(encoder, inputs, side="query", advance=advance)
    x = torch.nn.functional.normalize(torch.from_numpy(queries), dim=1)
    near: list[list[tuple[float, str]]] = [[] for _ in examples]
    for table in outputs.shards("train", ["text", "answer", "vector"]):
        if not table.num_rows:
            continue
        flat = table["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        vectors = torch.tensor(flat).view(table.num_rows, -1)
        values, places = (x @ vectors.T).topk(min(count + _SPARE, table.num_rows), dim=1)
        wanted = np.unique(places.numpy())
        known = dict(zip(wanted.tolist(), table.drop("vector").take(wanted).to_pylist(), strict=True))
        for number, example in enumerate(examples):
            found = zip(values[number].tolist(), (known[i] for i in places[number].tolist()), strict=True)
            wrong = [(value, row["text"]) for value, row in found if not _right(row, example)]
            near[number] = nlargest(count, {*near[number], *wrong})
    return [[text for _, text in each] for each in near]


def _right(row: dict[str, str | None], example: Example) -> bool:
    if row["text"] == example.output:
        return True
    answer = row["answer"]
    return (
        answer is not None and example.answer is not None and answer.casefold() == example.answer.casefold()
    )
