"""Exact match and F1 of answers, as the official evaluation of SQuAD v1.1 computes them (M11, Q7)."""

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pairsmith.core.errors import InputError

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True, slots=True)
class QaScores:
    """Means over ``count`` questions, ×100: of the exact matches, and of the best F1 with a gold answer."""

    exact: float
    f1: float
    count: int

    def to_json(self) -> dict[str, Any]:
        """The entries of a results file, scores rounded to four places."""
        return {"exact": round(self.exact, 4), "f1": round(self.f1, 4), "count": self.count}


def normalized(answer: str) -> str:
    """``answer`` in lower case, without ASCII punctuation and the words a, an, the, in single spacing.

    Punctuation is removed before the articles and leaves no space: ``the-end`` becomes ``theend``.
    """
    bare = answer.lower().translate(_WITHOUT_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", bare).split())


def exact_match(prediction: str, golds: Sequence[str]) -> bool:
    """Whether ``prediction`` equals one of ``golds``, of which there is at least one, when ``normalized``."""
    _check(golds)
    return normalized(prediction) in [normalized(gold) for gold in golds]


def f1(prediction: str, golds: Sequence[str]) -> float:
    """The largest F1 of ``prediction`` with one of ``golds``, of which there is at least one, in [0, 1].

    F1 is the harmonic mean of precision and recall of the words of the ``normalized`` texts; a word counts
    as often as it occurs in both. It is 0 where no word is shared, so also where both are empty, which
    ``exact_match`` calls equal: version 1.1 has no empty answers.
    """
    _check(golds)
    words = normalized(prediction).split()
    return max(_overlap(words, normalized(gold).split()) for gold in golds)


def qa_scores(predictions: Sequence[str], golds: Sequence[Sequence[str]]) -> QaScores:
    """Score n answers, an empty text where none was found, each against one or more gold answers (M11, Q7).

    Raises an ``InputError`` where there are no questions, or a question has no gold answer.
    """
    if len(predictions) != len(golds):
        raise ValueError(f"expected a prediction for each question, got {len(predictions)} for {len(golds)}")
    if not golds:
        raise InputError("there are no questions, so there is nothing to score; expected one or more")
    for number, answers in enumerate(golds, start=1):
        if not answers:
            raise InputError(f"question {number} of {len(golds)} has no gold answer; drop it first")
    pairs = list(zip(predictions, golds, strict=True))
    exact = sum(exact_match(prediction, answers) for prediction, answers in pairs)
    overlap = sum(f1(prediction, answers) for prediction, answers in pairs)
    return QaScores(100.0 * exact / len(pairs), 100.0 * overlap / len(pairs), len(pairs))


def _check(golds: Sequence[str]) -> None:
    if not golds:
        raise ValueError("expected one gold answer or more, got none")


def _overlap(words: Sequence[str], gold: Sequence[str]) -> float:
    same = (Counter(words) & Counter(gold)).total()
    if same == 0:
        return 0.0
    precision, recall = same / len(words), same / len(gold)
    return 2 * precision * recall / (precision + recall)
