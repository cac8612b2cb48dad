"""Entities of named entity recognition that are found, counted by the package ``seqeval`` (Q10)."""

from collections.abc import Sequence

import numpy as np

from pairsmith.core.errors import MissingExtra
from pairsmith.metrics.classification import F1Counts


def entity_counts(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> F1Counts:
    """The numbers of correct, predicted and gold entities in each of n sentences: ``(n, 3)`` int64.

    A predicted entity is correct if its words and its type are those of a gold entity. ``gold`` and
    ``predicted`` have for each sentence a list of BIO tags, one for each word. ``f1_of_counts`` of the sums
    is the entity F1.

    Raises:
        MissingExtra: ``seqeval`` is not installed.
    """
    try:
        from seqeval.metrics.sequence_labeling import get_entities
    except ImportError:
        raise MissingExtra("seqeval", "eval") from None
    counts: F1Counts = np.zeros((len(gold), 3), np.int64)
    for row, tags in zip(counts, zip(gold, predicted, strict=True), strict=True):
        of_gold, of_predicted = (set(get_entities(list(sentence_tags))) for sentence_tags in tags)
        row[:] = len(of_gold & of_predicted), len(of_predicted), len(of_gold)
    return counts
