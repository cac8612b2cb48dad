"""Corpora in which pairs that belong together are known, to measure how many of them mining finds.

python benchmarks/mining_data.py squad --data DATA --out FOLDER
python benchmarks/mining_data.py news --data DATA --out FOLDER

SQuAD's development set stands in for its training set: 32 of its 48 articles are mined in, 16 test what is
trained on the result. News: XSum's documents and summaries among BBC's and Reuters' documents and sentences.
"""

import argparse
import gzip
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pairsmith.data.documents import Document, read_documents
from pairsmith.data.squad import Answer, Question, read_questions
from pairsmith.data.text import split_sentences

MINED_ARTICLES = 32
UNRELATED = 4
"""Unrelated questions for each question of the articles."""
SEEDS = 100
TESTED = 300
"""Of XSum's documents so many are kept to test on."""
MIN_SENTENCES = 4
MIN_WORDS = 8


@dataclass(frozen=True)
class SquadCorpora:
    """Questions and passages, and what belongs together.

    Attributes:
        mining: questions of the articles to mine in; ``test`` of the others.
        questions: unrelated ones.
        passages: unrelated ones.
        start: questions of another data set, from which small models learn what questions and answers are.
    """

    mining: Sequence[Question]
    test: Sequence[Question]
    questions: Sequence[str]
    passages: Sequence[str]
    start: Sequence[Question]


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
        sentence_questions(data),
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
        words = document.text.split()
        for start in range(0, len(words) - 60, 120):
            yield " ".join(words[start : start + 120])


def sentence_questions(data: Path, *, one_passage: bool = False) -> list[Question]:
    """QAMR's questions about single sentences, each sentence among three others.

    With ``one_passage`` a sentence stands among the same others for all its questions.
    """
    folder = data / "qamr"
    lines = (folder / "wiki-sentences.tsv").read_text(encoding="utf-8").splitlines()
    sentences = {name: tokens.split(" ") for name, tokens in (line.split("\t") for line in lines)}
    answer_tokens: dict[tuple[str, str], tuple[int, int]] = {}
    for file in ("filtered_dev.tsv.gz", "filtered_test.tsv.gz"):
        with gzip.open(folder / file, "rt", encoding="utf-8") as rows:
            for row in rows:
                name, _, _, _, _, question, answer, *_ = row.rstrip("\n").split("\t")
                tokens = [int(number) for number in answer.split()]
                if name in sentences and tokens and tokens[-1] - tokens[0] == len(tokens) - 1 < 10:
                    answer_tokens.setdefault((name, question.strip()), (tokens[0], tokens[-1]))
    names = sorted({name for name, _ in answer_tokens})
    rng = np.random.default_rng(0)
    questions = []
    for (name, question), places in answer_tokens.items():
        if one_passage:
            rng = np.random.default_rng(names.index(name))
        others = [names[i] for i in rng.integers(len(names), size=3)]
        questions.append(_in_passage(sentences, name, others, question, places, rng))
    return questions


def _in_passage(
    sentences: Mapping[str, Sequence[str]],
    name: str,
    others: Sequence[str],
    question: str,
    answer: tuple[int, int],
    rng: np.random.Generator,
) -> Question:
    texts = [written(sentences[other])[0] for other in others if other != name]
    own, places = written(sentences[name])
    at = int(rng.integers(len(texts) + 1))
    passage = " ".join([*texts[:at], own, *texts[at:]])
    first = sum(len(text) + 1 for text in texts[:at])
    start, end = places[answer[0]][0], places[answer[1]][1]
    return Question(f"{name}:{question}", "", passage, question, (Answer(own[start:end], first + start),))


def written(tokens: Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
    """Tokens as a text, and where each stands in it."""
    marks = {"-LRB-": "(", "-RRB-": ")", "``": '"', "''": '"'}
    text, places, glued = "", [], True
    for token in tokens:
        shown = marks.get(token, token)
        before = "" if glued or token in {"-RRB-", "''"} or re.match(r"[,.;:?!%]|n't|'", token) else " "
        places.append((len(text) + len(before), len(text) + len(before) + len(shown)))
        text += before + shown
        glued = token in {"-LRB-", "``", "$"}
    return text, places


def seeds_and_rest(
    questions: Sequence[Question], seed: int, count: int = 100
) -> tuple[list[Question], list[Question]]:
    """``count`` questions that people have labelled, and the others, whose labels nobody knows."""
    order = np.random.default_rng(100 + seed).permutation(len(questions))
    chosen = set(order[:count].tolist())
    return [questions[i] for i in sorted(chosen)], [q for i, q in enumerate(questions) if i not in chosen]


def shuffled(questions: Sequence[Question], seed: int) -> list[Question]:
    """So that the first few are of all articles."""
    return [questions[i] for i in np.random.default_rng(200 + seed).permutation(len(questions))]


def write_lines(path: Path, rows: Iterable[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


@dataclass(frozen=True)
class NewsCorpora:
    """Documents, and summaries of some of them.

    Attributes:
        mining: documents with the summaries that are hidden; ``test`` others.
        other: documents without summaries.
        start: first sentences of these, and the rest of each.
    """

    mining: Sequence[Document]
    test: Sequence[Document]
    other: Sequence[str]
    start: Sequence[Mapping[str, str]]


def news_corpora(data: Path, reuters: int = 5_000) -> NewsCorpora:
    every: dict[str, Document] = {}
    for file in sorted((data / "xsum").glob("*.jsonl.gz")):
        for document in read_documents(file):
            every.setdefault(document.text, document)
    documents = list(every.values())
    order = np.random.default_rng(0).permutation(len(documents))
    other = [document.text for document in read_documents(data / "bbc-news" / "bbc_news.jsonl.gz")]
    wires = [
        unwrapped(document.text)
        for document in read_documents(data / "reuters-21578" / "reuters21578.jsonl.gz", column="body")
        if len(document.text) > 400
    ]
    picked = np.random.default_rng(1).permutation(len(wires))[:reuters]
    other += [wires[i] for i in sorted(picked.tolist())]
    return NewsCorpora(
        [documents[i] for i in order[TESTED:]],
        [documents[i] for i in order[:TESTED]],
        other,
        first_sentences(other),
    )


def first_sentences(texts: Iterable[str]) -> list[dict[str, str]]:
    """Of each text its first sentence as the summary of the rest, where that has some length."""
    documents = []
    for number, text in enumerate(texts):
        sentences = split_sentences(text)
        if len(sentences) > MIN_SENTENCES and len(sentences[0].text.split()) > MIN_WORDS:
            rest = text[sentences[1].start :]
            documents.append({"id": str(number), "document": rest, "summary": sentences[0].text})
    return documents


def unwrapped(text: str) -> str:
    """Paragraphs of hard-wrapped text, which begin with spaces, on a line each."""
    return "\n".join(" ".join(part.split()) for part in re.split(r"\n {3,}", text))


def write_squad(corpora: SquadCorpora, seed: int, out: Path, passages: int) -> dict[str, str]:
    """The files of one set of seeds; their paths by name."""
    seeds, rest = seeds_and_rest(corpora.mining, seed)
    questions = sorted({question.question for question in rest} | set(corpora.questions))
    unrelated = np.random.default_rng(2).permutation(len(corpora.passages))[:passages]
    texts = sorted({q.context for q in corpora.mining} | {corpora.passages[i] for i in unrelated})
    # Others of the same articles: people who have 100 seeds may have some more to choose a model by.
    _, others = seeds_and_rest(rest, seed, count=len(rest) - SEEDS)
    files = {
        "seeds": write_lines(out / "seeds.jsonl", map(Question.columns, seeds)),
        "gold": write_lines(out / "gold.jsonl", map(Question.columns, shuffled(rest, seed))),
        "start": write_lines(out / "start.jsonl", map(Question.columns, corpora.start)),
        "validation": write_lines(out / "validation.jsonl", map(Question.columns, others)),
        "test": write_lines(out / "test.jsonl", map(Question.columns, corpora.test)),
        "inputs": write_lines(out / "questions.jsonl", ({"question": text} for text in questions)),
        "outputs": write_lines(out / "passages.jsonl", ({"text": text} for text in texts)),
    }
    return {name: str(path) for name, path in files.items()}


def write_news(corpora: NewsCorpora, seed: int, out: Path) -> dict[str, str]:
    """The files of one set of seeds; their paths by name."""
    order = np.random.default_rng(100 + seed).permutation(len(corpora.mining))
    seeds, rest = ([corpora.mining[i] for i in part] for part in (order[:SEEDS], order[SEEDS:]))
    inputs = sorted([document.text for document in rest] + list(corpora.other))
    outputs = sorted([document.summary for document in rest] + list(corpora.other))
    files = {
        "seeds": write_lines(out / "seeds.jsonl", map(with_summary, seeds)),
        "gold": write_lines(out / "gold.jsonl", map(with_summary, rest)),
        "test": write_lines(out / "test.jsonl", map(with_summary, corpora.test)),
        "start": write_lines(out / "start.jsonl", corpora.start),
        "inputs": write_lines(out / "documents.jsonl", ({"document": text} for text in inputs)),
        "outputs": write_lines(out / "sentences.jsonl", ({"document": text} for text in outputs)),
    }
    return {name: str(path) for name, path in files.items()}


def with_summary(document: Document) -> dict[str, str]:
    return {"id": document.id, "document": document.text, "summary": document.summary}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("corpora", choices=["squad", "news"])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1, help="Which set of seeds.")
    parser.add_argument("--passages", type=int, default=500, help="Unrelated ones (squad).")
    args = parser.parse_args()
    if args.corpora == "squad":
        files = write_squad(squad_corpora(args.data), args.seed, args.out, args.passages)
    else:
        files = write_news(news_corpora(args.data), args.seed, args.out)
    print("\n".join(files.values()))


if __name__ == "__main__":
    main()
