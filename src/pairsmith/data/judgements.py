"""Pairs of texts with human similarity judgements, in several languages (Q8)."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from pairsmith.core.errors import InputError
from pairsmith.core.paths import Place
from pairsmith.data.readers import column_text, graded_rows
from pairsmith.data.schemas import GradedPair
from pairsmith.data.sources import open_source

_LANGUAGES = ("languages", "language_pair", "lp", "language", "lang")


def read_judgements(source: str | Place) -> Mapping[str, Sequence[GradedPair]]:
    """Read the columns sentence1, sentence2 and score, grouped by language pair.

    The language pair, e.g. ``de-en``, is in the first of the columns ``_LANGUAGES`` that exists. Without such
    a column all pairs are one group, with the key "". Pairs with a blank score are skipped.

    Raises:
        InputError: there are no pairs with a score, or the scores of a group are all equal.
    """
    opened = open_source(source)
    by_languages: dict[str, list[GradedPair]] = defaultdict(list)
    for where, row, pair in graded_rows(opened):
        column = next((name for name in _LANGUAGES if name in row), None)
        by_languages[column_text(row, column, where) if column else ""].append(pair)
    if not by_languages:
        raise InputError(f"{opened.name} holds no graded pairs")
    for languages, pairs in by_languages.items():
        if len({pair.score for pair in pairs}) < 2:
            group = f" of {languages}" if languages else ""
            raise InputError(
                f"{opened.name}: all scores{group} are equal, so they cannot choose a layer; give pairs with "
                "different scores"
            )
    return by_languages
