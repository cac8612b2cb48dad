"""Hard negatives: texts that are near a query and yet no answer to it.

Texts that are nearly as near as the known positive are often positives that nobody labelled, so they are
left out: a negative's cosine is at most a share of the positive's (Moreira et al. 2024, NV-Retriever, where
this is called TopK-PercPos).
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pairsmith.core.errors import SettingsError
from pairsmith.methods.mining.method import unit_vectors_of
from pairsmith.search.exact import one_way_search
from pairsmith.search.hard_negatives import NegativesRule, chosen_places

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


@dataclass(frozen=True, slots=True)
class HardNegatives:
    """A pair with its hard negatives, the nearest first, and the cosine of each with the query.

    There are fewer than were asked for where no more qualify.
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
            negatives are taken. The query itself and its positives take no place.
        share: the largest cosine of a negative, as a share of the positive's cosine c; where c is below 0,
            the largest is c - (1 - share) |c|.

    Returns:
        one for each pair, in their order.

    Raises:
        InputError: there are no pairs or no texts.
        SettingsError: ``ranks`` is no range, or a number is out of bounds.
        ModelError: a vector is not finite.

    Pairs with a text whose vector is 0 get no negatives.
    """
    first, last = ranks
    if not 1 <= first <= last:
        raise SettingsError(f"ranks must be a first and a last place, counted from 1, not {ranks}")
    if count < 1 or not 0 < share <= 1:
        raise SettingsError(
            f"count must be at least 1 and share above 0 and at most 1, not {count} and {share}"
        )
    every, rule = list(pairs), NegativesRule(count, share)
    own: dict[str, set[str]] = defaultdict(set)  # the query's texts that are no negatives of it
    for query, positive in every:
        own[query] |= {query, positive}
    queries, of_queries = unit_vectors_of(encoder, own, "query", "pairs")
    positives, of_positives = unit_vectors_of(
        encoder, (positive for _, positive in every), "document", "pairs"
    )
    texts, of_texts = unit_vectors_of(encoder, corpus, "document", "corpus")
    near = one_way_search(of_queries, of_texts, last + max(map(len, own.values())))
    rows = {query: row for row, query in enumerate(queries)}
    places = {positive: place for place, positive in enumerate(positives)}
    results = []
    for query, positive in every:
        if query not in rows or positive not in places:
            results.append(HardNegatives(query, positive, (), ()))
            continue
        row = rows[query]
        cosine = float(of_queries[row] @ of_positives[places[positive]])
        ranked = zip(near.ids[row].tolist(), near.similarities[row].tolist(), strict=True)
        others = [(texts[i], nearness) for i, nearness in ranked if texts[i] not in own[query]]
        others = others[first - 1 : last]
        scores = np.array([[nearness for _, nearness in others]]).reshape(1, -1)
        chosen = chosen_places(scores, np.array([cosine]), rule)[0]
        kept = [others[place] for place in chosen.tolist() if place >= 0]
        negatives = tuple(text for text, _ in kept)
        results.append(HardNegatives(query, positive, negatives, tuple(nearness for _, nearness in kept)))
    return results
