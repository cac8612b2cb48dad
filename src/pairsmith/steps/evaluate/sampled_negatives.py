"""Sampled negatives for paraphrase data that have none: texts with similar words."""

from collections.abc import Sequence

import numpy as np

from pairsmith.core.errors import InputError
from pairsmith.data.paraphrases import Paraphrase

NEAR = 50
"""Number of most similar texts from which a negative is drawn."""
_AT_ONCE = 100


def with_negatives(pairs: Sequence[Paraphrase], seed: int) -> list[Paraphrase]:
    """The pairs labelled as paraphrases, with as many sampled negatives.

    Each first text is paired with another pair's second text, drawn from the ``NEAR`` ones with the largest
    tf-idf cosine, so that not every negative is easy. Some may be paraphrases that nobody has labelled, so
    figures on them must be reported as figures on sampled negatives.

    Args:
        pairs: at least 2 distinct pairs.
        seed: seed of the draw.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    firsts, seconds = [pair.sentence1 for pair in pairs], [pair.sentence2 for pair in pairs]
    vectors = TfidfVectorizer(token_pattern=r"\w+").fit([*firsts, *seconds])
    a, b = vectors.transform(firsts), vectors.transform(seconds)
    rng = np.random.default_rng(seed)
    same: dict[str, set[str]] = {}
    for pair in pairs:
        same.setdefault(pair.sentence1, {pair.sentence1}).add(pair.sentence2)
    found = []
    for top in range(0, len(pairs), _AT_ONCE):
        near = np.argsort(-(a[top : top + _AT_ONCE] @ b.T).toarray(), axis=1, kind="stable")
        for first, order in zip(firsts[top : top + _AT_ONCE], near[:, : 2 * NEAR], strict=True):
            others = [seconds[each] for each in order if seconds[each] not in same[first]][:NEAR]
            if not others:
                raise InputError(
                    f"there are too few texts to find one that is not a paraphrase of {first[:60]!r}; "
                    "give more pairs, or labels"
                )
            found.append(Paraphrase(first, others[int(rng.integers(len(others)))], label=False))
    return [Paraphrase(pair.sentence1, pair.sentence2, label=True) for pair in pairs] + found
