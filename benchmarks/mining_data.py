"""Corpora in which pairs that belong together are known, to measure how many of them mining finds.

SQuAD's development set stands in for its training set: 32 of its 48 articles are mined in, 16 test what is
trained on the result.
"""

import gzip
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pairsmith.records import Question, read_documents, read_questions

MINED_ARTICLES = 32
UNRELATED = 4
"""Unrelated questions for each question of the articles."""


@dataclass(frozen=True)
class SquadCorpora:
    """Questions and passages, and what belongs together.

    Attributes:
        mining: questions of the articles to mine in; ``test`` of the others.
        questions: unrelated ones.
        passages: unrelated ones.
    """

    mining: Sequence[Question]
    test: Sequence[Question]
    questions: Sequence[str]
    passages: Sequence[str]


def squad_corpora(data: Path) -> SquadCorpora:
    every = list(read_questions(data / "squad" / "dev-v1.1.from-explorer.json.gz"))
    titles = sorted({question.title for question in every})
    order = np.random.default_rng(0).permutation(len(titles))
    mined = {titles[i] for i in order[:MINED_ARTICLES]}
    mining = [question for question in every if question.title in mined]
    files = sorted((data / "questions").glob("*.jsonl")) + sorted((data / "questions").glob("*.tsv*"))
    known = {question.question.casefold() for question in every}
    pool: dict[str, None] = {}
    for file in files:
        pool.update((text, None) for text in unrelated_questions(file) if text.casefold() not in known)
    texts = sorted(pool)
    picked = np.random.default_rng(1).permutation(len(texts))[: UNRELATED * len(mining)]
    return SquadCorpora(
        mining,
        [question for question in every if question.title not in mined],
        [texts[i] for i in picked],
        list(unrelated_passages(data)),
    )


def unrelated_questions(file: Path) -> Iterable[str]:
    """Questions of one of the files, whatever its columns are called."""
    opened: Any = gzip.open if file.suffix == ".gz" else open
    with opened(file, "rt", encoding="utf-8") as lines:
        for line in lines:
            if ".jsonl" in file.name:
                row = json.loads(line)
                text = row.get("question") or row.get("qText") or ""
            else:
                text = next((cell for cell in line.rstrip("\n").split("\t") if " " in cell), "")
            if 3 <= len(text.split()) <= 30:
                yield text.strip()


def unrelated_passages(data: Path) -> Iterable[str]:
    """News of some length, cut to passages like SQuAD's."""
    for document in read_documents(data / "bbc-news" / "bbc_news.jsonl.gz"):
        words = document.document.split()
        for start in range(0, len(words) - 60, 120):
            yield " ".join(words[start : start + 120])


def seeds_and_rest(
    questions: Sequence[Question], seed: int, count: int = 100
) -> tuple[list[Question], list[Question]]:
    """``count`` questions that people have labelled, and the others, whose labels nobody knows."""
    order = np.random.default_rng(100 + seed).permutation(len(questions))
    chosen = set(order[:count].tolist())
    return [questions[i] for i in sorted(chosen)], [q for i, q in enumerate(questions) if i not in chosen]


def write_lines(path: Path, rows: Iterable[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path
