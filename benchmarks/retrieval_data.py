"""Test sets of retrieval in BEIR's layout, made of public data sets of questions and answers.

python benchmarks/retrieval_data.py --data DATA --out FOLDER

``squad``: the paragraphs of SQuAD 1.1's 48 development articles as documents, titled by their article, and
people's questions as queries. ``squad-reqa``: the same articles' sentences. ``wikiqa``: the sentences of
WikiQA's test set. Several questions may be equal, and so may documents; each distinct text is one.
"""

import argparse
import gzip
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from pairsmith.data.sources import open_source

Document = tuple[str, str]
"""A title, which may be empty, and a text."""
Rows = Iterator[tuple[str, list[Document]]]
"""A query and the documents that are relevant to it, or an empty query and other documents."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    for name, read in SETS.items():
        print(name, make(read(args.data), args.out / name))


def make(rows: Rows, out: Path) -> dict[str, int]:
    """Write the three files, and return how many queries and documents there are."""
    documents: dict[Document, str] = {}
    queries: dict[str, str] = {}
    judged: dict[tuple[str, str], None] = {}  # a set that keeps its order
    for query, relevant in rows:
        for document in relevant:
            name = documents.setdefault(document, f"d{len(documents)}")
            if query:
                judged[queries.setdefault(query, f"q{len(queries)}"), name] = None
    (out / "qrels").mkdir(parents=True, exist_ok=True)
    corpus = ({"_id": name, "title": title, "text": text} for (title, text), name in documents.items())
    lines_of_queries = ({"_id": name, "text": text} for text, name in queries.items())
    for file, lines in (("corpus", corpus), ("queries", lines_of_queries)):
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        (out / f"{file}.jsonl").write_text(text, encoding="utf-8")
    table = "".join(f"{query}\t{name}\t1\n" for query, name in judged)
    (out / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{table}", encoding="utf-8")
    return {"queries": len(queries), "documents": len(documents)}


def squad(data: Path) -> Rows:
    with gzip.open(data / "squad" / "dev-v1.1.from-explorer.json.gz", "rt", encoding="utf-8") as file:
        articles = json.load(file)["data"]
    for article in articles:
        for paragraph in article["paragraphs"]:
            document = (article["title"].replace("_", " "), paragraph["context"].strip())
            yield "", [document]
            for question in paragraph["qas"]:
                yield question["question"].strip(), [document]


def squad_reqa(data: Path) -> Rows:
    folder = data / "squad-reqa"
    with gzip.open(folder / "test_candidates.txt.gz", "rt", encoding="utf-8", newline="\n") as file:
        documents = [("", line.strip()) for line in file]
    yield "", documents
    for _, row in open_source(folder / "test_questions.jsonl.gz").rows():
        yield row["question"].strip(), [documents[number] for number in row["ground_truth_candidates"]]


def wikiqa(data: Path) -> Rows:
    for _, row in open_source(data / "wikiqa" / "test.tsv").rows():
        yield row["question"] if row["label"] == "1" else "", [("", row["answer_sentence"])]


SETS: Mapping[str, Callable[[Path], Rows]] = {"squad": squad, "squad-reqa": squad_reqa, "wikiqa": wikiqa}


if __name__ == "__main__":
    main()
