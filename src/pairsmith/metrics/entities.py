"""F1 of named entity recognition, computed by the package ``seqeval`` (Q10)."""

from collections.abc import Sequence

from pairsmith.core.errors import MissingExtra


def entity_f1(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> float:
    """The F1 ×100, in [0, 100], of the entities in n sentences.

    A predicted entity is correct if its words and its type are those of a gold entity. ``gold`` and
    ``predicted`` have for each sentence a list of BIO tags, one for each word.

    Raises:
        MissingExtra: ``seqeval`` is not installed.
    """
    try:
        from seqeval.metrics import f1_score
    except ImportError:
        raise MissingExtra("seqeval", "eval") from None
    lists = ([list(sentence_tags) for sentence_tags in tags] for tags in (gold, predicted))
    return 100.0 * float(f1_score(*lists, zero_division=0))
