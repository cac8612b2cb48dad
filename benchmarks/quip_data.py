"""The files of the recipes quip-small, quip-people and quip-smollm2, from public data sets.

python benchmarks/quip_data.py --data DATA --out FOLDER/quip

SQuAD's development set stands in for its training set: 32 of its 48 articles are learned from and 16 are for
testing, as for mining; with them go QAMR's questions on single sentences. Passages are those 32 articles' and
news of the BBC; for quip-smollm2 also news of Reuters and ABC, the Brown corpus, and children's stories.
"""

import argparse
import gzip
import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from mining_data import sentence_questions, squad_corpora, write_lines, written
from pairsmith.data.documents import read_documents
from pairsmith.data.squad import Question

COPIED = {
    "mrpc/msr_paraphrase_train.txt": "msr_paraphrase_train.txt",
    "mrpc/msr_paraphrase_test.txt": "msr_paraphrase_test.txt",
    "paws-wiki/dev.tsv.gz": "paws-train.tsv",
    "paws-wiki/test.tsv.gz": "paws-test.tsv",
    "qqp-duplicates/test.tsv": "qqp-test.tsv",
    "sst2/dev.tsv": "sst2-test.tsv",
    "fewshot-ner-huang2020/conll2003": "conll2003",
    "fewshot-ner-huang2020/WNUT17": "wnut17",
    "conll2003/eng.train.gz": "conll2003-train.conll",
    "conll2003/eng.testb": "conll2003-test.conll",
    "wnut17/wnut17train.conll": "wnut17-train.conll",
    "wnut17/emerging.test.annotated": "wnut17-test.conll",
    "mr": "mr",
    "cr": "cr",
}


def write_quip(
    data: Path, out: Path, news: int | None = None, qamr: int | None = None, passages: int | None = None
) -> None:
    """Write the files.

    Args:
        data: where the public data sets lie.
        out: where to write.
        news: only the first so many of the BBC's texts.
        qamr: only the first so many of QAMR's questions.
        passages: only so many of the articles' passages to learn from, drawn, and their questions.
    """
    squad = squad_corpora(data)
    texts = list(dict.fromkeys(question.context for question in squad.mining))
    if passages is not None:
        drawn = np.random.default_rng(4).permutation(len(texts))[:passages]
        texts = [texts[place] for place in sorted(drawn.tolist())]
    some = set(texts)
    files = {
        "squad-train": [question for question in squad.mining if question.context in some],
        "squad-test": squad.test,
        "qamr": sentence_questions(data, one_passage=True)[:qamr],
    }
    for name, questions in files.items():
        write_questions(out / f"{name}.jsonl", questions)
    texts += [article.text for article in read_documents(data / "bbc-news" / "bbc_news.jsonl.gz")][:news]
    write_lines(out / "texts.jsonl", ({"text": text} for text in texts))
    write_lines(out / "many.jsonl", ({"text": text} for text in (*texts, *more_texts(data))))
    for source, target in COPIED.items():
        if (data / source).exists():
            copy(data / source, out / target)
        else:
            print(f"{data / source} is not there, so {target} is not made; not every recipe needs it")


def more_texts(data: Path, reuters: int = 3_000) -> Iterator[str]:
    """News of Reuters, the first so many of some sentences, of ABC, the Brown corpus and stories."""
    articles = (row["body"] for row in rows_of(data / "reuters-21578" / "reuters21578.jsonl.gz"))
    yield from islice((" ".join(text.split()) for text in articles if text and len(text) > 600), reuters)
    for name in ("rural", "science"):
        with gzip.open(data / "text-abc" / f"{name}.txt.gz", "rt", errors="replace") as file:
            yield from together([line.strip() for line in file if line.strip()])
    documents: dict[str, list[str]] = {}
    with gzip.open(data / "text-brown" / "brown_sentences.tsv.gz", "rt", encoding="utf-8") as file:
        for line in file:
            name, _, sentence = line.rstrip("\n").split("\t", 2)
            documents.setdefault(name, []).append(written(sentence.split())[0])
    for sentences in documents.values():
        yield from together(sentences)
    for row in rows_of(data / "text-pratham-stories" / "stories_en.jsonl"):
        yield " ".join(row["text"].split())


def together(sentences: Sequence[str], count: int = 8) -> Iterator[str]:
    """Texts of so many neighbouring sentences."""
    return (" ".join(sentences[first : first + count]) for first in range(0, len(sentences), count))


def rows_of(path: Path) -> Iterator[dict[str, Any]]:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def write_questions(path: Path, questions: Iterable[Question]) -> None:
    write_lines(path, (question.columns() for question in questions))


def copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True, copy_function=shutil.copyfile)
    elif source.suffix == ".gz":
        target.write_bytes(gzip.decompress(source.read_bytes()))
    else:
        shutil.copyfile(source, target)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--news", type=int, help="Only the first so many of the BBC's texts.")
    parser.add_argument("--qamr", type=int, help="Only the first so many of QAMR's questions.")
    parser.add_argument("--passages", type=int, help="Only so many passages of SQuAD to learn from.")
    args = parser.parse_args()
    write_quip(args.data, args.out, args.news, args.qamr, args.passages)
    print(args.out)


if __name__ == "__main__":
    main()
