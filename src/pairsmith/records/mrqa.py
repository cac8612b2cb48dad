"""MRQA's form of questions: a line for each passage, with all that is asked of it."""

from collections.abc import Iterable, Iterator
from typing import Any

from pairsmith.errors import InputError
from pairsmith.records.sources import Columns

WORDINGS = "(answers as people gave them)"
"""Column of the answers as people gave them, which need not stand in the passage as they are."""


def one_a_row(rows: Iterable[tuple[str, Columns]]) -> Iterator[tuple[str, Columns]]:
    """Rows of MRQA's form as rows of one question each, in SQuAD's; others as they are.

    The first line of MRQA's files, their header, is left out. An answer is each place that was detected; what
    MRQA's own script compares with is under ``WORDINGS``.

    Raises:
        InputError: questions, or the places of an answer, are not as MRQA has them.
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
        texts = [context[int(start) : int(last) + 1] for start, last in spans]  # the last one belongs to it
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
