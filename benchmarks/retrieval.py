"""Models and BM25 on sets of ``retrieval_data.py``, and our figures against those of pytrec_eval.

python benchmarks/retrieval.py --sets FOLDER --json FILE
python benchmarks/retrieval.py --sets FOLDER --models embedded:smollm2-135m-instruct --only wikiqa --json FILE

Every figure of every query is compared, on the same rankings. Results are added to those in the file.
"""

import argparse
import csv
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytrec_eval
import torch

from common import write
from pairsmith.core.progress import Progress
from pairsmith.data.beir import read_retrieval
from pairsmith.metrics.bootstrap import mean_intervals
from pairsmith.steps.evaluate.retrieval import figures_of_queries
from pairsmith.steps.evaluate.retrieval_settings import EvaluateRetrievalSettings
from pairsmith.steps.evaluate.retrievers import Rankings, retrieve

MODELS = ("bm25", "embedded:all-minilm-l6-v2")
THEIRS = {
    "ndcg@10": "ndcg_cut_10",
    "recall@100": "recall_100",
    "recall@10": "recall_10",
    "precision@10": "P_10",
    "mrr@10": "recip_rank",  # of the first ten documents alone
    "map": "map",
}
"""What pytrec_eval calls our measures."""
AT_ONCE = 500
"""Queries that pytrec_eval is given at once; its rankings are dicts."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=Path, required=True)
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--only", nargs="+", help="names of sets")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    there = args.json and args.json.is_file()
    results: dict[str, Any] = json.loads(args.json.read_text())["results"] if there else {}
    for model in args.models:
        for name in args.only or sorted(folder.name for folder in args.sets.iterdir()):
            figures = measured(args.sets / name, model)
            print(name, model, figures, flush=True)
            results.setdefault(name, {})[model] = figures
            if args.json:
                write(args.json, {"results": results})


def measured(folder: Path, model: str) -> dict[str, Any]:
    """Means and intervals ×100, and the largest difference of a query's figure from pytrec_eval's."""
    settings = EvaluateRetrievalSettings(model=model, data=str(folder), device="cpu")
    data = read_retrieval(settings.data)
    rankings = retrieve(settings, data.documents, data.queries, Progress())
    by_figure = figures_of_queries(data, rankings)
    means = {name: round(sum(figures) / len(figures), 4) for name, figures in by_figure.items()}
    theirs = figures_of_pytrec_eval(rankings, list(data.queries), judgements(folder))
    differences = {
        name: max(abs(own / 100 - other) for own, other in zip(by_figure[name], theirs[name], strict=True))
        for name in by_figure
    }
    return {
        "queries": len(data.queries),
        "documents": len(data.documents),
        "faults": {fault: len(ids) for fault, ids in data.faults.items()},
        **means,
        **mean_intervals(by_figure, bootstrap=1000, seed=0),
        "largest difference from pytrec_eval": max(differences.values()),
        "means of pytrec_eval": {
            name: round(100 * sum(figures) / len(figures), 4) for name, figures in theirs.items()
        },
    }


def judgements(folder: Path) -> dict[str, dict[str, int]]:
    """The relevance of documents by query, read without our reader."""
    judgements: dict[str, dict[str, int]] = defaultdict(dict)
    with (folder / "qrels" / "test.tsv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            judgements[row["query-id"]][row["corpus-id"]] = int(row["score"])
    return dict(judgements)


def figures_of_pytrec_eval(
    rankings: Rankings, queries: list[str], judged: dict[str, dict[str, int]]
) -> dict[str, list[float]]:
    """The figures of each query by trec_eval; the run that it is given may be in any order."""
    by_figure: dict[str, list[float]] = defaultdict(list)
    whole = pytrec_eval.RelevanceEvaluator(judged, {"ndcg_cut.10", "recall.10,100", "P.10", "map"})
    first = pytrec_eval.RelevanceEvaluator(judged, {"recip_rank"})
    for begin in range(0, len(queries), AT_ONCE):
        some = range(begin, min(begin + AT_ONCE, len(queries)))
        long = whole.evaluate({queries[row]: dict(rankings.best(row, 10**9)) for row in some})
        short = first.evaluate({queries[row]: dict(rankings.best(row, 10)) for row in some})
        for row in some:
            figures = {**long.get(queries[row], {}), **short.get(queries[row], {})}
            for figure, name in THEIRS.items():
                by_figure[figure].append(figures.get(name, 0.0))
    return by_figure


if __name__ == "__main__":
    main()
