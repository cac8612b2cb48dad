"""Pairs of texts with people's judgements of how alike they are, in several languages (Q8)."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from pairsmith.core.errors import InputError
from pairsmith.core.paths import Place
from pairsmith.data.readers import column_text, graded_rows
from pairsmith.data.schemas import GradedPair
from pairsmith.data.sources import open_source

_LANGUAGES = ("languages", "language_pair", "lp", "language", "lang")


def read_judgements(source: str | Place) -> Mapping[str, Sequence[GradedPair]]:
    """Read the columns sentence1, sentence2 and score, grouped by the languages that were translated.

    These are in the first of the columns ``_LANGUAGES`` that exists, e.g. ``de-en``; without one, all pairs
    are one group. Blank scores are skipped; those of a group must not all be equal.
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
            of = f" of {languages}" if languages else ""
            raise InputError(f"{opened.name}: all scores{of} are equal, so they cannot choose a layer")
    return by_languages
