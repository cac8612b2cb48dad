"""The files of the comparisons that ship, from public data sets.

python benchmarks/compare_data.py sts --data DATA --out FOLDER/sts
python benchmarks/compare_data.py reading --data DATA --out FOLDER/reading

sts: 100 scored pairs of the STS benchmark's training part, 2,000 other first sentences of it without their
scores, and as a corpus captions of Flickr8k, questions of Quora and sentences of the BBC's news. reading: as
for mining.py, 100 questions of 32 of SQuAD's articles, all their passages or some, and raw questions, most of
them other people's.
"""

import argparse
import gzip
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from mining_data import UNRELATED, squad_corpora, write_lines, write_squad
from pairsmith.data.documents import read_documents
from pairsmith.data.text import split_sentences

SCORED = 100
ALIKE = 4.0
"""Pairs of at least this score, of 5, mean about the same."""
SENTENCES = 2_000
CORPUS = 4_000
"""Texts of each of the three sources."""
TESTED = 1_000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("comparison", choices=["sts", "reading"])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--passages", type=int, help="reading: only so many of SQuAD's, drawn.")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.comparison == "sts":
        write_sts(args.data, args.out)
    else:
        write_reading(args.data, args.out, args.passages)


def write_sts(data: Path, out: Path) -> None:
    lines = (data / "stsb" / "sts-train.csv").read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines]
    order = np.random.default_rng(0).permutation(len(rows))
    scored = [rows[i] for i in order[:SCORED]]
    write_lines(
        out / "scored.jsonl",
        ({"sentence1": row[5], "sentence2": row[6], "score": float(row[4]) / 5} for row in scored),
    )
    write_lines(
        out / "alike.jsonl",
        ({"input": row[5], "output": row[6]} for row in scored if float(row[4]) >= ALIKE),
    )
    known = {row[5] for row in scored}
    others = dict.fromkeys(rows[i][5].strip() for i in order[SCORED:] if rows[i][5] not in known)
    write_texts(out / "sentences.txt", list(others)[:SENTENCES])
    rng = np.random.default_rng(1)
    texts = []
    for source in (captions(data), questions(data), news(data)):
        distinct = sorted(set(source))
        texts += [distinct[i] for i in sorted(rng.permutation(len(distinct))[:CORPUS].tolist())]
    write_texts(out / "corpus.txt", texts)
    shutil.copytree(data / "stsb", out / "stsb", dirs_exist_ok=True, copy_function=shutil.copyfile)


def captions(data: Path) -> Iterator[str]:
    with gzip.open(data / "flickr8k" / "Flickr8k.token.txt.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            yield line.split("\t")[1].strip().removesuffix(" .") + "."


def questions(data: Path) -> Iterator[str]:
    with (data / "quora-questions" / "quora_sample_questions.txt").open(encoding="utf-8") as lines:
        yield from (line.strip() for line in lines if 4 <= len(line.split()) <= 25)


def news(data: Path) -> Iterator[str]:
    for document in read_documents(data / "bbc-news" / "bbc_news.jsonl.gz"):
        for sentence in split_sentences(document.text):
            if 5 <= len(sentence.text.split()) <= 25:
                yield " ".join(sentence.text.split())


def write_texts(path: Path, texts: list[str]) -> None:
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")


def write_reading(data: Path, out: Path, passages: int | None = None) -> None:
    corpora = squad_corpora(data)
    if passages is not None:
        texts = list(dict.fromkeys(question.context for question in corpora.mining))
        some = {texts[i] for i in np.random.default_rng(4).permutation(len(texts))[:passages]}
        mining = [question for question in corpora.mining if question.context in some]
        corpora = replace(corpora, mining=mining, questions=corpora.questions[: UNRELATED * len(mining)])
    files = write_squad(corpora, 1, out, 0)
    lines = Path(files["test"]).read_text(encoding="utf-8").splitlines()
    picked = np.random.default_rng(3).permutation(len(lines))[:TESTED]
    write_lines(out / "test.jsonl", (json.loads(lines[i]) for i in sorted(picked.tolist())))


if __name__ == "__main__":
    main()
