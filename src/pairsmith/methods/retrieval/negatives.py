"""Hard negatives: texts that are near a query and yet no answer to it.

1. The nearest texts of each query are found. Its positives, copies of these and the query itself are left
   out before ranks are counted.
2. Texts that are nearly as near as a known positive are often positives that nobody labelled, so they are
   left out, too: a negative's cosine is at most a share of the positive's (Moreira et al. 2024, NV-Retriever,
   where this is called TopK-PercPos).
3. The nearest of the remaining texts are the negatives.

The step ``negatives`` calls the same functions with parts of a large search.
"""

from collections.abc import Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import compress
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pairsmith.core.arguments import (
    check_loaded,
    check_not_blank,
    check_progress,
    checked_number,
    checked_pairs,
    checked_texts,
    checked_whole_number,
)
from pairsmith.core.arrays import Float32s
from pairsmith.core.errors import InputError, SettingsError
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.text_keys import TextKeys, copy_keys
from pairsmith.models.unit_vectors import distinct_unit_vectors
from pairsmith.search.exact import Neighbours, nearest, one_way_search, products_with
from pairsmith.search.hard_negatives import NegativesRule, chosen_places
from pairsmith.search.permitted import SPARE, permitted

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_TEXTS = 2**20
"""Texts of a corpus whose keys are compared at once."""


@dataclass(frozen=True, slots=True)
class HardNegatives:
    """A pair with its hard negatives, the nearest first, and the cosine of each with the query.

    There are fewer than requested if no other texts qualify. If the corpus has a copy of the positive,
    ``positive`` is that copy.
    """

    query: str
    positive: str
    negatives: tuple[str, ...]
    similarities: tuple[float, ...]


def find_hard_negatives(
    pairs: Iterable[tuple[str, str]],
    corpus: Iterable[str],
    encoder: "SentenceTransformer",
    *,
    count: int = 5,
    ranks: tuple[int, int] = (1, 50),
    share: float = 0.95,
    progress: Progress | None = None,
) -> list[HardNegatives]:
    """Find hard negatives: texts of a corpus that are near a pair's query, but less near than its positive.

    Args:
        pairs: queries with their positives; a query may have several positives, each in a pair of its own.
        corpus: texts to choose from. Positives may be among them. A positive that the corpus has a copy of is
            replaced by the copy, as a model could otherwise tell positives from negatives by their spelling.
        encoder: encodes queries and texts; it may have a prompt for queries and one for documents.
        count: largest number of negatives of each pair.
        ranks: the first and the last rank, counted from 1, in the list of the query's nearest texts, from
            which negatives are taken. The query itself, its positives, and copies of any of these have no
            rank; of several copies of another text only the nearest has one.
        share: the largest cosine of a negative, as a share of the positive's cosine c, that is
            c - (1 - share) |c|. If a query has several positives, the smallest of their cosines counts.
        progress: shows how many texts are encoded and searched; by default nothing is shown.

    Returns:
        a ``HardNegatives`` for each pair, in the order of the pairs.

    Raises:
        InputError: ``pairs`` or ``corpus`` is empty, or contains anything but pairs of texts, or texts.
        SettingsError: ``ranks`` is no range, a number is out of bounds, or the encoder is not loaded.
        ModelError: a vector is not finite.

    A pair gets no negatives if the vector of one of its texts is zero.
    """
    check_progress(progress)
    shown = progress or Silent()
    first, last = _checked_ranks(ranks)
    count, share = checked_whole_number(count, "count", 1), checked_number(share, "share")
    if not 0 < share <= 1:
        raise SettingsError(f"share must be above 0 and at most 1, not {share:g}")
    check_loaded(encoder, "encoder", "preprocess", "load_encoder")
    all_pairs, corpus = checked_pairs(pairs, "pairs"), checked_texts(corpus, "corpus")
    check_not_blank(corpus, "corpus")
    check_not_blank((query for query, _ in all_pairs), "the query of pairs")
    check_not_blank((positive for _, positive in all_pairs), "the positive of pairs")
    queries, x = distinct_unit_vectors(
        encoder, (query for query, _ in all_pairs), "query", "pairs", unit="queries", progress=shown
    )
    texts, y = distinct_unit_vectors(encoder, corpus, "document", "corpus", progress=shown)
    text_keys = np.stack(copy_keys(texts), axis=1)
    keys, _ = copy_keys([positive for _, positive in all_pairs])
    places = places_of_copies(text_keys, ((keys, 0), (keys, 1)))
    positives = [
        positive if place < 0 else texts[place]
        for (_, positive), place in zip(all_pairs, places.tolist(), strict=True)
    ]
    pair_positive, z = _vectors_of_positives(encoder, positives, places, y, shown)
    query_numbers = {query: number for number, query in enumerate(queries)}

    # 1. The texts nearest to each query, without its positives, the query itself and copies.
    own = _own_keys(all_pairs, query_numbers)
    with shown.task("search", len(x), "queries") as bar:
        nearest_texts = one_way_search(x, y, last + SPARE, advance=bar.advance)
    neighbours, _ = without_own_texts(nearest_texts, last, x, y, own, text_keys)

    # 2. The lowest cosine of a query with its positives. Texts with zero vectors have no number.
    pair_query = np.array([query_numbers.get(query, -1) for query, _ in all_pairs])
    rows = np.flatnonzero((pair_query >= 0) & (pair_positive >= 0))
    of_query, of_positive = torch.from_numpy(pair_query[rows]), torch.from_numpy(pair_positive[rows])
    cosines = products_with(x[of_query], z, of_positive[:, None])[:, 0]
    lowest = lowest_of_queries(cosines.numpy(), pair_query[rows], len(queries))

    # 3. The nearest texts whose cosines are at most a share of this lowest cosine.
    ids = neighbours.ids[of_query, first - 1 :].numpy()
    similarities = neighbours.similarities[of_query, first - 1 :].numpy()
    chosen = chosen_places(similarities, lowest[pair_query[rows]], NegativesRule(count, share))
    results = [
        HardNegatives(query, positive, (), ())
        for (query, _), positive in zip(all_pairs, positives, strict=True)
    ]
    for at, row in enumerate(rows.tolist()):
        places = chosen[at][chosen[at] >= 0]
        results[row] = replace(
            results[row],
            negatives=tuple(texts[number] for number in ids[at, places]),
            similarities=tuple(similarities[at, places].tolist()),
        )
    return results


def _checked_ranks(ranks: Sequence[int]) -> tuple[int, int]:
    """The first and the last rank, counted from 1."""
    if not isinstance(ranks, tuple | list) or len(ranks) != 2:
        raise SettingsError(f"ranks must be a first and a last place, counted from 1, not {ranks!r:.60}")
    first, last = (checked_whole_number(rank, "each of ranks") for rank in ranks)
    if not 1 <= first <= last:
        raise SettingsError(f"ranks must be a first and a last place, counted from 1, not {ranks}")
    return first, last


def _vectors_of_positives(
    encoder: "SentenceTransformer",
    positives: Sequence[str],
    places: NDArray[np.int64],
    y: Tensor,
    progress: Progress,
) -> tuple[NDArray[np.int64], Tensor]:
    """The index of each positive's vector, and the unit vectors of the distinct positives, ``(m, d)``.

    The vectors of positives in the corpus are taken from ``y``, at ``places``; the other positives, whose
    place is -1, are encoded. A positive with a zero vector has the index -1.
    """
    of_corpus = np.unique(places[places >= 0])
    indices = np.where(places < 0, -1, np.searchsorted(of_corpus, places))
    z = y[torch.from_numpy(of_corpus)]
    if others := list(compress(positives, places < 0)):
        # If all these have zero vectors, that is an error only if no positive is in the corpus.
        with suppress(InputError) if len(of_corpus) else nullcontext():
            distinct, vectors = distinct_unit_vectors(
                encoder, others, "document", "pairs", unit="positives", progress=progress
            )
            numbers = {positive: number for number, positive in enumerate(distinct, start=len(z))}
            indices[places < 0] = [numbers.get(positive, -1) for positive in others]
            z = torch.cat([z, vectors])
    return indices, z


def _own_keys(pairs: Sequence[tuple[str, str]], numbers: dict[str, int]) -> TextKeys:
    """The ``query_text_keys`` of each query with its positives and itself, sorted."""
    encoded = [(numbers[query], query, positive) for query, positive in pairs if query in numbers]
    of_pairs = np.array([number for number, _, _ in encoded], np.int64)
    own_texts = ([query for _, query, _ in encoded], [positive for _, _, positive in encoded])
    return np.unique([query_text_keys(of_pairs, keys) for side in own_texts for keys in copy_keys(side)])


def without_own_texts(
    neighbours: Neighbours,
    k: int,
    queries: Tensor,
    texts: Tensor,
    own: TextKeys,
    text_keys: TextKeys,
    *,
    first: int = 0,
) -> tuple[Neighbours, int]:
    """The k nearest texts of each query that may be its negatives, and how many were left out.

    Args:
        neighbours: the nearest texts of n consecutive queries, ``(n, m)``.
        k: number of ranks to fill.
        queries: the vectors of all queries, ``(q, d)``; ``texts``: the vectors of the corpus, ``(t, d)``.
        own, text_keys: see ``are_own_or_repeated``.
        first: the number of the first of these queries.

    The result is ``(n, k)``, as that of ``search.permitted.permitted``.
    """

    def forbidden(rows: Tensor, ids: Tensor) -> Tensor:
        return torch.from_numpy(are_own_or_repeated(rows.numpy() + first, ids.numpy(), own, text_keys))

    def find_more(rows: Tensor, count: int) -> Neighbours:
        return nearest(queries[rows + first], texts, count)

    return permitted(neighbours, k, forbidden, find_more, len(texts))


def lowest_of_queries(scores: Float32s, queries: NDArray[np.integer], count: int) -> Float32s:
    """The lowest score among each query's positives, ``(count,)`` float32; infinity if it has none.

    ``scores`` are the scores of positives, ``(n,)``, and ``queries`` the numbers of their queries, ``(n,)``.
    """
    lowest = np.full(count, np.inf, np.float32)
    np.minimum.at(lowest, queries, scores)
    return lowest


def query_text_keys(queries: NDArray[np.integer], keys: TextKeys) -> TextKeys:
    """Keys ``(n,)`` uint64 that identify a query and a text together, from the key of the text.

    Different pairs of a query and a text have different keys as surely as different texts have. ``queries``,
    ``(n,)``, are the numbers of the queries, and ``keys``, ``(n,)``, are keys of the texts.
    """
    return keys ^ ((queries.astype(np.uint64) + np.uint64(1)) * _SPREAD)


def are_in(keys: TextKeys, ascending: TextKeys) -> NDArray[np.bool_]:
    """Which keys, ``(n,)``, are among the keys ``ascending``, ``(m,)`` with m above 0: ``(n,)`` bool."""
    at = np.minimum(np.searchsorted(ascending, keys), len(ascending) - 1)
    present: NDArray[np.bool_] = ascending[at] == keys
    return present


def are_own_or_repeated(
    queries: NDArray[np.int64], texts: NDArray[np.int64], own: TextKeys, text_keys: TextKeys
) -> NDArray[np.bool_]:
    """Which texts cannot be negatives of these queries, ``(p,)`` bool: their own, and repeated ones.

    Args:
        queries: ``(p,)``, the numbers of the queries.
        texts: ``(p,)``, the numbers in the corpus of texts near to the queries, for each query the nearest
            first; -1 for none.
        own: the ``query_text_keys`` of each query with its own texts, sorted: its positives and itself.
        text_keys: ``(m, 2)``, the ``copy_keys`` of the corpus's texts.
    """
    keys = text_keys[np.maximum(texts, 0)]
    unusable = texts < 0
    for column in (0, 1):
        unusable |= are_in(query_text_keys(queries, keys[:, column]), own)
    repeated = np.ones(len(texts), bool)
    repeated[np.unique(query_text_keys(queries, keys[:, 0]), return_index=True)[1]] = False
    return unusable | repeated


def places_of_copies(corpus: TextKeys, versions: Sequence[tuple[TextKeys, int]]) -> NDArray[np.int64]:
    """For each of n texts the number of its copy in the corpus, ``(n,)`` int64; -1 if there is none.

    Args:
        corpus: ``(m, 2)``, the ``copy_keys`` of the corpus's texts; may be mapped from a file.
        versions: keys of the texts, ``(n,)``, each with the column of ``corpus`` that it is compared with.
            Copies by the first version count before copies by later versions; of several copies by the same
            version, the first in the corpus counts.
    """
    places = np.full(len(versions[0][0]), -1, np.int64)
    for keys, column in versions:
        wanted, of_row = np.unique(keys, return_inverse=True)
        place = np.full(len(wanted), len(corpus), np.int64)
        for start in range(0, len(corpus), _TEXTS):
            part = np.asarray(corpus[start : start + _TEXTS, column])
            at = np.searchsorted(wanted, part)
            hit = np.flatnonzero(wanted[np.minimum(at, len(wanted) - 1)] == part)
            np.minimum.at(place, at[hit], hit + start)
        new = place[of_row]
        places = np.where((places < 0) & (new < len(corpus)), new, places)
    return places
