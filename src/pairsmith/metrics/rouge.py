"""ROUGE of summaries, by the package ``rouge-score``: F with references, precision with sources (M11)."""

import importlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Literal

from pairsmith.core.errors import InputError, MissingExtra

RougeFigure = Literal["fmeasure", "precision"]

_TYPES = ("rouge1", "rouge2", "rougeL", "rougeLsum")


@dataclass(frozen=True, slots=True)
class RougeScores:
    """Means ×100 over ``count`` summaries: by single words, pairs of neighbouring words, and subsequences.

    ``rouge_l`` is by the longest common subsequence of the two whole texts. ``rouge_lsum`` compares line by
    line, and unites what each line of the reference has in common with all lines of the summary; for single
    lines it equals ``rouge_l``, and it is None if it was not computed. ``per_text`` has the ``count`` scores
    of the summaries, ×100, under ROUGE's usual names.
    """

    rouge1: float
    rouge2: float
    rouge_l: float
    rouge_lsum: float | None
    count: int
    settings: Mapping[str, Any]
    per_text: Mapping[str, tuple[float, ...]] = field(default_factory=dict, repr=False)

    def to_json(self) -> dict[str, Any]:
        """The entries of a results file: scores rounded to four places, under ROUGE's usual names."""
        named = zip(_TYPES, (self.rouge1, self.rouge2, self.rouge_l, self.rouge_lsum), strict=True)
        figures = {name: round(value, 4) for name, value in named if value is not None}
        return figures | {"count": self.count, "settings": dict(self.settings)}


def check_rouge() -> None:
    """Raise ``MissingExtra`` at the start of a long run if the package ``rouge-score`` is not installed."""
    _scorer(_TYPES)


def rouge_scores(predictions: Sequence[str], references: Sequence[str]) -> RougeScores:
    """ROUGE-1, -2, -L and -Lsum F of summaries against the reference of each; an empty summary scores 0."""
    return _scores(predictions, references, _TYPES, "fmeasure")


def abstractiveness(summaries: Sequence[str], documents: Sequence[str]) -> RougeScores:
    """ROUGE-1, -2 and -L precision of summaries against the documents they were written for (M11).

    This is the share of a summary that occurs in its document, 100 for a copied sentence: the lower, the
    more abstractive the summaries are. An empty summary scores 0.
    """
    return _scores(summaries, documents, _TYPES[:3], "precision")


def _scores(
    texts: Sequence[str], against: Sequence[str], types: Sequence[str], measure: RougeFigure
) -> RougeScores:
    if len(texts) != len(against):
        raise ValueError(f"expected a text for each summary, got {len(against)} for {len(texts)}")
    if not texts:
        raise InputError("there are no summaries, so there is nothing to score; expected one or more")
    scorer = _scorer(types)
    results = [
        scorer.score(target=other, prediction=text) for text, other in zip(texts, against, strict=True)
    ]
    by_type = {name: tuple(100.0 * getattr(scores[name], measure) for scores in results) for name in types}
    settings = {
        "package": f"rouge-score {version('rouge-score')}",
        "measure": measure,
        "use_stemmer": True,
        "tokenizer": "the package's own: lower case, runs of a-z and 0-9",
        "rougeL": "over the whole text",
        "rougeLsum": "over lines",
    }
    one, two, longest, *lines = (math.fsum(figures) / len(figures) for figures in by_type.values())
    return RougeScores(one, two, longest, lines[0] if lines else None, len(texts), settings, by_type)


def _scorer(types: Sequence[str]) -> Any:
    try:
        scoring = importlib.import_module("rouge_score.rouge_scorer")
        tokenizers = importlib.import_module("rouge_score.tokenizers")
    except ImportError:
        raise MissingExtra("rouge-score", "eval") from None
    # If the scorer made its own tokenizer, it would log that, which adds a handler to the root logger.
    return scoring.RougeScorer(list(types), tokenizer=tokenizers.DefaultTokenizer(use_stemmer=True))
