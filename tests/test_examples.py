"""The example files keep the promises of examples/README.md."""

import csv
import re
from collections import Counter
from pathlib import Path

from pairsmith.data.squad import read_questions

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def _sentences() -> list[str]:
    # Bytes, so that a CR or a missing last line end is not hidden by newline translation.
    text = (EXAMPLES / "sentences.txt").read_bytes().decode("utf-8")
    assert text.endswith("\n")
    return text[:-1].split("\n")


def _rows() -> list[list[str]]:
    text = (EXAMPLES / "graded-pairs.tsv").read_bytes().decode("utf-8")
    return list(csv.reader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))


def test_sentences_are_many_distinct_and_clean() -> None:
    sentences = _sentences()
    assert len(sentences) >= 200
    assert len({s.casefold() for s in sentences}) == len(sentences)
    for sentence in sentences:
        assert sentence == sentence.strip()
        assert '"' not in sentence
        assert "\r" not in sentence
        assert 5 <= len(sentence.split()) <= 20, sentence


def test_graded_pairs_have_header_columns_and_distinct_pairs() -> None:
    header, *rows = _rows()
    assert header == ["sentence1", "sentence2", "score"]
    assert len(rows) >= 250
    assert all(len(row) == 3 for row in rows)
    assert all(cell and cell == cell.strip() for row in rows for cell in row)
    assert all(row[0] != row[1] for row in rows)
    assert len({frozenset(row[:2]) for row in rows}) == len(rows)


def test_scores_are_half_points_spread_over_the_scale() -> None:
    scores = [float(row[2]) for row in _rows()[1:]]
    assert all(0.0 <= score <= 5.0 and (2 * score).is_integer() for score in scores)
    # Five unit intervals: [0, 1), [1, 2), [2, 3), [3, 4), [4, 5].
    buckets = Counter(min(int(score), 4) for score in scores)
    assert all(buckets[bucket] >= 30 for bucket in range(5)), buckets


def test_the_examples_for_ask_are_read_with_their_answers() -> None:
    questions = list(read_questions(str(EXAMPLES / "asked.jsonl")))
    assert len(questions) == 3
    for question in questions:
        (answer,) = question.answers
        assert question.context[answer.start :].startswith(answer.text)


def test_no_sentence_is_nearly_one_of_the_graded_pairs() -> None:
    def words(text: str) -> set[str]:
        return set(re.findall(r"\w+", text.casefold()))

    graded = [words(text) for row in _rows()[1:] for text in row[:2]]
    for sentence in _sentences():
        own = words(sentence)
        assert all(len(own & other) < len(own | other) / 2 for other in graded), sentence
