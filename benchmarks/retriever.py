"""A retriever for documents without labels: how much each step of the recipe is worth.

python benchmarks/retriever.py --data DATA --work FOLDER --json FILE

SQuAD's development articles are the documents, their paragraphs the chunks, and people's questions the
queries to measure with. An encoder is measured as it is; trained on all written queries; on those that lead
back to their chunks; on these with hard negatives; and, as a ceiling, on people's questions about half of
the articles, where all are measured on the other half (``other half``). BM25 stands beside them.
Interrupted, it goes on where it was.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from common import write
from mining import MINILM, SMOLLM2, run
from mining_data import write_lines
from pairsmith.data.squad import Question, read_questions
from pairsmith.steps.evaluate.retrieval import evaluate_retrieval
from pairsmith.steps.evaluate.retrieval_settings import BM25, EvaluateRetrievalSettings
from pairsmith.steps.negatives.route import negatives
from pairsmith.steps.negatives.settings import NegativesSettings
from pairsmith.steps.retrieval.filter_queries import filter_queries
from pairsmith.steps.retrieval.queries import write_queries
from pairsmith.steps.retrieval.settings import FilterQueriesSettings, QueriesSettings
from pairsmith.steps.training.retriever import train_retriever
from pairsmith.training.retriever_settings import TrainRetrieverSettings

FIGURES = ("ndcg@10", "recall@100", "map")


@dataclass(frozen=True)
class Files:
    """The chunks; people's questions about all of them, and about those of the second half of the articles;
    and, to train on, people's questions about the first half."""

    chunks: str
    questions: str
    other_half: str
    of_people: str


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--articles", type=int, default=48)
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3])
    parser.add_argument("--base", default=MINILM)
    parser.add_argument("--decay", type=float, nargs="*", default=[100.0, 0.0])
    args = parser.parse_args()
    questions = list(read_questions(args.data / "squad" / "dev-v1.1.from-explorer.json.gz"))
    files = write_files(questions, args.articles, args.work)
    results: dict[str, Any] = {"bm25": measured(BM25, files, args.work / "bm25")}
    results["before"] = measured(args.base, files, args.work / "before")
    for seed in args.seeds:
        for decay in args.decay:
            folder = args.work / f"seed-{seed}-decay-{decay:g}"
            results[f"seed {seed}, decay {decay:g}"] = one(files, folder, args.base, seed, decay)
        ceiling = train(args.base, [files.of_people], args.work / f"seed-{seed}-people", seed)
        results[f"seed {seed}, people's questions"] = measured(ceiling, files, Path(f"{ceiling}-measured"))
        print(json.dumps(results, indent=1), flush=True)
        if args.json:
            write(args.json, {"settings": vars(args) | {"json": None}, "results": results})


def write_files(questions: Sequence[Question], articles: int, work: Path) -> Files:
    """The files of the first articles, in a fixed random order."""
    titles = sorted({question.title for question in questions})
    order = np.random.default_rng(0).permutation(len(titles))[:articles]
    picked = [titles[i] for i in order]
    half = set(picked[: len(picked) // 2])
    some = [question for question in questions if question.title in picked]
    texts = list(dict.fromkeys((question.title, question.context) for question in some))
    ids = {context: f"{title}-{place}" for place, (title, context) in enumerate(texts)}
    rows = [
        {"id": ids[text], "title": title.replace("_", " "), "text": text, "document": title}
        for title, text in texts
    ]
    asked = [
        (question.title, {"query": question.question, "chunk": ids[question.context]}) for question in some
    ]
    to_learn = [
        {"query": question.question, "positive": question.context}
        for question in some
        if question.title in half
    ]
    parts = {
        "chunks": rows,
        "questions": [row for _, row in asked],
        "other-half": [row for title, row in asked if title not in half],
        "of-people": to_learn,
    }
    paths = (str(write_lines(work / f"{name}.jsonl", part)) for name, part in parts.items())
    return Files(*paths)


def one(files: Files, folder: Path, base: str, seed: int, decay: float) -> Mapping[str, Any]:
    """The figures of one set of written queries."""
    found: dict[str, Any] = {}
    settings = {"chunks": files.chunks, "model": SMOLLM2, "seed": seed, "decay": decay}
    written = write_queries(QueriesSettings(**settings), run(folder / "written"))
    corpus = {"corpus": [files.chunks], "encoder": MINILM}
    kept = filter_queries(
        FilterQueriesSettings(queries=str(written.path), evaluation=[files.questions], **corpus),
        run(folder / "kept"),
    )
    hard = negatives(NegativesSettings(pairs=str(kept.path), **corpus), run(folder / "hard"))
    found["rows"] = {"written": written.rows, "kept": kept.rows, "with negatives": hard.rows}
    for name, rows in (("all", written), ("kept", kept), ("hard", hard)):
        model = train(base, [str(rows.path)], folder / f"retriever-{name}", seed)
        found[name] = measured(model, files, folder / f"measured-{name}")
    return found


def train(base: str, data: Sequence[str], folder: Path, seed: int) -> str:
    """A retriever trained on some rows."""
    settings = {"base": base, "data": list(data), "batch_size": 64, "seed": seed, "attention_dropout": 0.0}
    train_retriever(TrainRetrieverSettings(**settings), run(folder))
    return str(folder)


def measured(model: str, files: Files, folder: Path) -> Mapping[str, Any]:
    """The figures of a model on people's questions about all articles, and about the second half."""
    evaluate = partial(EvaluateRetrievalSettings, model=model, corpus=[files.chunks])
    every = evaluate_retrieval(evaluate(data=files.questions), run(folder / "all"))
    half = evaluate_retrieval(evaluate(data=files.other_half), run(folder / "other-half"))
    names = [name for figure in FIGURES for name in (figure, f"{figure}_ci")]
    return {name: every[name] for name in names} | {"other half": {name: half[name] for name in names}}


if __name__ == "__main__":
    main()
