"""The files of the recipe quip-small, from public data sets.

python benchmarks/quip_data.py --data DATA --out FOLDER/quip

SQuAD's development set stands in for its training set: 32 of its 48 articles are learned from and 16 are for
testing, as for mining; with them go QAMR's questions on single sentences. Passages are those 32 articles' and
news of the BBC.
"""

import argparse
import gzip
import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from mining_data import sentence_questions, squad_corpora, write_lines
from pairsmith.data.documents import read_documents
from pairsmith.data.squad import Question, to_question_table

COPIED = {
    "mrpc/msr_paraphrase_train.txt": "msr_paraphrase_train.txt",
    "mrpc/msr_paraphrase_test.txt": "msr_paraphrase_test.txt",
    "paws-wiki/dev.tsv.gz": "paws-train.tsv",
    "paws-wiki/test.tsv.gz": "paws-test.tsv",
    "qqp-duplicates/test.tsv": "qqp-test.tsv",
    "sst2/dev.tsv": "sst2-test.tsv",
    "fewshot-ner-huang2020/conll2003": "conll2003",
    "fewshot-ner-huang2020/WNUT17": "wnut17",
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
    texts += [each.document for each in read_documents(data / "bbc-news" / "bbc_news.jsonl.gz")][:news]
    write_lines(out / "texts.jsonl", ({"text": text} for text in texts))
    for source, target in COPIED.items():
        copy(data / source, out / target)


def write_questions(path: Path, questions: Iterable[Question]) -> None:
    write_lines(path, to_question_table(list(questions)).to_pylist())


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
