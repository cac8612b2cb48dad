"""Hard negatives: texts that are near a query and yet no answer to it.

Texts that are nearly as near as the known positive are often positives that nobody labelled, so they are
left out: a negative's cosine is at most a share of the positive's (Moreira et al. 2024, NV-Retriever, where
this is called TopK-PercPos).
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sentence_transformers import SentenceTransformer

from pairsmith.encoders.encode import encode_texts
from pairsmith.encoders.search import two_way_search
from pairsmith.methods.mining.method import normalized


@dataclass(frozen=True, slots=True)
class HardNegatives:
    """A pair with its hard negatives.

    Attributes:
        query: the first text of the pair.
        positive: the second.
        negatives: texts of the corpus, the nearest first; fewer than were asked for where no more qualify.
        similarities: the cosine of each negative with the query.
    """

    query: str
    positive: str
    negatives: tuple[str, ...]
    similarities: tuple[float, ...]


def find_hard_negatives(
    pairs: Iterable[tuple[str, str]],
    corpus: Iterable[str],
    encoder: SentenceTransformer,
    *,
    count: int = 5,
    ranks: tuple[int, int] = (1, 100),
    share: float = 0.95,
) -> list[HardNegatives]:
    """Find texts of a corpus that are near a pair's first text, and less near than its second.

    Args:
        pairs: queries with their positives; a query may come with several.
        corpus: texts to choose from; the positives may be among them, and are no negatives of their query.
        encoder: encodes queries and texts, each with its own prompt where it has two.
        count: negatives of each pair at most.
        ranks: the first and last place, counted from 1, in the list of the query's nearest texts, from which
            negatives are taken. Positives of the query take no place.
        share: the largest cosine of a negative, as a share of the positive's cosine.

    Returns:
        one for each pair, in their order.

    Raises:
        ValueError: ``ranks`` is no range, or there are no pairs or no texts.
    """
    first, last = ranks
    if not 1 <= first <= last:
        raise ValueError(f"ranks must be a first and a last place, counted from 1, not {ranks}")
    every = list(pairs)
    texts = list(dict.fromkeys(corpus))
    positives: dict[str, set[str]] = defaultdict(set)
    for query, positive in every:
        positives[query].add(positive)
    queries = list(positives)
    of_queries = normalized(encode_texts(encoder, queries, side="query"))
    of_texts = normalized(encode_texts(encoder, texts, side="document"))
    most = max(map(len, positives.values()))
    near, _ = two_way_search(of_queries, of_texts, last + most)
    of_positives = normalized(encode_texts(encoder, [positive for _, positive in every], side="document"))
    rows = {query: row for row, query in enumerate(queries)}
    found = []
    for (query, positive), vector in zip(every, of_positives, strict=True):
        row = rows[query]
        limit = share * float(of_queries[row] @ vector)
        ranked = zip(near.ids[row].tolist(), near.similarities[row].tolist(), strict=True)
        others = [(texts[i], cosine) for i, cosine in ranked if texts[i] not in positives[query]]
        kept = [each for each in others[first - 1 : last] if each[1] <= limit][:count]
        found.append(HardNegatives(query, positive, *_columns(kept)))
    return found


def _columns(kept: Sequence[tuple[str, float]]) -> tuple[tuple[str, ...], tuple[float, ...]]:
    return tuple(text for text, _ in kept), tuple(cosine for _, cosine in kept)
