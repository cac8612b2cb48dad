"""ROUGE of summaries, by the package ``rouge-score``: F against references, precision against documents."""

import importlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Literal

from pairsmith.core.errors import InputError, MissingExtra
from pairsmith.data.text.words import words_or_letters

RougeFigure = Literal["fmeasure", "precision"]

RougeWords = Literal["english", "any"]
"""``english``: the words of the package ``rouge-score``, whose figures are published, stemmed by Porter's
stemmer. ``any``: words of any script without stemming, and single letters of scripts without spaces."""

_TOKENIZERS: Mapping[RougeWords, str] = {
    "english": "the package's own: lower case, runs of a-z and 0-9",
    "any": "words of any script, single letters of scripts without spaces",
}

_TYPES = ("rouge1", "rouge2", "rougeL", "rougeLsum")


@dataclass(frozen=True, slots=True)
class RougeScores:
    """ROUGE scores ×100, in [0, 100], of n summaries.

    Attributes:
        per_text: the scores of all summaries by the usual names: ``rouge1`` counts common words, ``rouge2``
            common pairs of consecutive words; ``rougeL`` is computed from the longest common subsequence of
            the two texts; ``rougeLsum`` compares texts line by line, and counts the words of each line of the
            reference that are in common subsequences with lines of the summary.
        settings: the package, its version and its options, for the results file.
    """

    per_text: Mapping[str, tuple[float, ...]] = field(repr=False)
    settings: Mapping[str, Any]

    def mean(self, name: str) -> float:
        """The mean over the summaries of the score with this name."""
        return math.fsum(self.per_text[name]) / len(self.per_text[name])

    def to_json(self) -> dict[str, Any]:
        """The entries of a results file: the means, rounded to four decimal places, by ROUGE's names."""
        means = {name: round(self.mean(name), 4) for name in self.per_text}
        return means | {"count": len(self.per_text["rouge1"]), "settings": dict(self.settings)}


_UNCOUNTED = re.compile(r"[^\W_a-z0-9]")
_FEW_UNCOUNTED = 0.005


def uncounted_letters(texts: Iterable[str]) -> float:
    """The share, in [0, 1], of the letters and digits of ``texts`` that ROUGE's tokenizer does not see.

    The tokenizer sees a to z, after lower-casing, and 0 to 9. Other letters divide words: ``größer`` counts
    as the words ``gr`` and ``er``, and a text in another script has no words.
    """
    letters = "".join(character for text in texts for character in text.lower() if character.isalnum())
    return len(_UNCOUNTED.findall(letters)) / max(1, len(letters))


def rouge_warning(references: Sequence[str]) -> str:
    """A warning if ROUGE does not see many of the references' letters, as in other languages; else empty."""
    share = uncounted_letters(references)
    if share <= _FEW_UNCOUNTED:
        return ""
    return (
        f"{100 * share:.1f} % of the references' letters do not count: ROUGE sees a to z and 0 to 9 only, "
        "other letters divide words, and its stemmer is for English; for other languages give --words any"
    )


class _AnyWords:
    """The tokenizer for texts in any language, of the kind that ``rouge_score`` takes."""

    def tokenize(self, text: str) -> list[str]:
        return words_or_letters(text)


def check_rouge() -> None:
    """Raise ``MissingExtra`` at the start of a long run if the package ``rouge-score`` is not installed."""
    _scorer(_TYPES, "english")


def rouge_scores(
    predictions: Sequence[str], references: Sequence[str], words: RougeWords = "english"
) -> RougeScores:
    """ROUGE-1, -2, -L and -Lsum F of each summary against its reference; an empty summary scores 0."""
    return _scores(predictions, references, _TYPES, "fmeasure", words)


def abstractiveness(
    summaries: Sequence[str], documents: Sequence[str], words: RougeWords = "english"
) -> RougeScores:
    """ROUGE-1, -2 and -L precision of each summary against its document (M11).

    The precision ×100 is the percentage of the summary that occurs in the document, 100 for a copied
    sentence. The lower it is, the more abstractive is the summary. An empty summary scores 0.
    """
    return _scores(summaries, documents, _TYPES[:3], "precision", words)


def _scores(
    texts: Sequence[str],
    against: Sequence[str],
    types: Sequence[str],
    measure: RougeFigure,
    words: RougeWords,
) -> RougeScores:
    if len(texts) != len(against):
        raise ValueError(f"expected one text for each summary, got {len(against)} for {len(texts)}")
    if not texts:
        raise InputError("there are no summaries, so there is nothing to score; expected one or more")
    scorer = _scorer(types, words)
    results = [
        scorer.score(target=other, prediction=text) for text, other in zip(texts, against, strict=True)
    ]
    by_type = {name: tuple(100.0 * getattr(scores[name], measure) for scores in results) for name in types}
    settings = {
        "package": f"rouge-score {version('rouge-score')}",
        "measure": measure,
        "use_stemmer": words == "english",
        "tokenizer": _TOKENIZERS[words],
        "rougeL": "over the whole text",
        "rougeLsum": "over lines",
    }
    return RougeScores(by_type, settings)


def _scorer(types: Sequence[str], words: RougeWords) -> Any:
    try:
        scoring = importlib.import_module("rouge_score.rouge_scorer")
        tokenizers = importlib.import_module("rouge_score.tokenizers")
    except ImportError:
        raise MissingExtra("rouge-score", "eval") from None
    # A tokenizer is given because the scorer logs when it makes its own, which adds a handler to the root
    # logger.
    tokenizer = _AnyWords() if words == "any" else tokenizers.DefaultTokenizer(use_stemmer=True)
    return scoring.RougeScorer(list(types), tokenizer=tokenizer)
