"""Exact match and F1 of answers, defined as in the official evaluation of SQuAD v1.1 (M11, Q7)."""

import re
import string
from collections import Counter
from collections.abc import Sequence

from pairsmith.core.errors import InputError
from pairsmith.data.text.words import is_unspaced

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalized(answer: str) -> str:
    """``answer`` in lower case, without ASCII punctuation and the words a, an and the, with single spaces.

    Punctuation is removed before the articles, and is not replaced by a space: ``the-end`` becomes
    ``theend``.
    """
    letters = answer.lower().translate(_WITHOUT_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", letters).split())


def squad_warning(golds: Sequence[Sequence[str]]) -> str:
    """A warning if many gold answers are in a script without spaces between words, else empty.

    ``golds`` are the answers to each question.
    """
    count = sum(any(map(is_unspaced, answer)) for answers in golds for answer in answers[:1])
    if 20 * count < len(golds):
        return ""
    return (
        f"{count:,} of {len(golds):,} questions have answers in a script without spaces between words: there "
        "the words of F1 are whole phrases, and only ASCII punctuation is ignored, so that F1 hardly differs "
        "from exact match"
    )


def exact_match(prediction: str, golds: Sequence[str]) -> bool:
    """Whether the prediction equals one of ``golds``, at least one, with both ``normalized`` (M11, Q7)."""
    _check(golds)
    return normalized(prediction) in [normalized(gold) for gold in golds]


def f1(prediction: str, golds: Sequence[str]) -> float:
    """The largest F1, in [0, 1], of the prediction with one of ``golds``, at least one (M11, Q7).

    F1 is the harmonic mean of precision and recall of the words in the ``normalized`` texts; a common word
    counts as often as it occurs in both. F1 is 0 if the texts have no common word, also if both are empty,
    although ``exact_match`` is then true. SQuAD 1.1 has no empty answers.
    """
    _check(golds)
    words = normalized(prediction).split()
    return max(_f1_of_words(words, normalized(gold).split()) for gold in golds)


def mean_f1(predictions: Sequence[str], golds: Sequence[Sequence[str]]) -> float:
    """The mean F1 ×100, in [0, 100], of the predictions for n questions, at least one (M11, Q7).

    Args:
        predictions: the predicted answer to each question; empty if the model gave none.
        golds: for each question, its gold answers, at least one.

    Raises:
        InputError: a question has no gold answer.
    """
    for number, answers in enumerate(golds, start=1):
        if not answers:
            raise InputError(f"question {number} of {len(golds)} has no gold answer; drop it first")
    return 100.0 * sum(f1(*pair) for pair in zip(predictions, golds, strict=True)) / len(golds)


def _check(golds: Sequence[str]) -> None:
    if not golds:
        raise ValueError("expected one gold answer or more, got none")


def _f1_of_words(words: Sequence[str], gold_words: Sequence[str]) -> float:
    common = (Counter(words) & Counter(gold_words)).total()
    if common == 0:
        return 0.0
    precision, recall = common / len(words), common / len(gold_words)
    return 2 * precision * recall / (precision + recall)
