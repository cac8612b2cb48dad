"""MRQA's format of questions: one line for each passage, with all its questions."""

from collections.abc import Iterable, Iterator
from typing import Any

from pairsmith.core.errors import InputError
from pairsmith.data.sources import Columns

WORDINGS = "(answers as people gave them)"
"""Column of the answers as people wrote them, which need not occur in the passage word for word."""


def one_a_row(rows: Iterable[tuple[str, Columns]]) -> Iterator[tuple[str, Columns]]:
    """Convert MRQA's rows to SQuAD's, one per question; other rows are unchanged.

    The first line of MRQA's files, their header, is left out. Each detected span is an answer; the answers
    that MRQA's own script scores against are under ``WORDINGS``.
    """
    for where, row in rows:
        if row.keys() == {"header"}:
            continue
        if "qas" not in row:
            yield where, row
            continue
        if not isinstance(row["qas"], list) or not isinstance(row.get("context"), str):
            raise InputError(f"{where}: a text called context and a list called qas are expected, as in MRQA")
        for number, asked in enumerate(row["qas"]):
            yield f"{where}.qas[{number}]", _row(asked, row["context"], f"{where}.qas[{number}]")


def _texts(value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise ValueError(f"answers are a list of texts, not {str(value)[:40]}")
    return value


def _row(asked: Any, context: str, where: str) -> dict[str, Any]:
    try:
        spans = [span for found in asked["detected_answers"] for span in found["char_spans"]]
        starts = [int(start) for start, _ in spans]
        texts = [context[int(start) : int(last) + 1] for start, last in spans]  # ``last`` is inclusive
        return {
            "id": str(asked.get("qid") or asked.get("id") or where),
            "context": context,
            "question": asked["question"],
            "answers": {"text": texts, "answer_start": starts},
            WORDINGS: _texts(asked.get("answers") or []),
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{where}: a question with detected_answers and their char_spans is expected, as MRQA has them "
            f"({type(error).__name__}: {error})"
        ) from None
