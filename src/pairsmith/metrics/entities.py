"""F1 of named entities, by the package ``seqeval`` (Q10)."""

from collections.abc import Sequence

from pairsmith.core.errors import MissingExtra


def entity_f1(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> float:
    """F1 ×100, from 0 to 100, of the entities of n sentences: one is correct if its words and its type are.

    Both are n lists of BIO tags, one for each word. Raises ``MissingExtra`` if ``seqeval`` is not installed.
    """
    try:
        from seqeval.metrics import f1_score
    except ImportError:
        raise MissingExtra("seqeval", "eval") from None
    lists = ([list(sentence_tags) for sentence_tags in tags] for tags in (gold, predicted))
    return 100.0 * float(f1_score(*lists, zero_division=0))
