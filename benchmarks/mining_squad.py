"""How many mined questions and answers belong together: SQuAD questions among others, answers among others.

python benchmarks/mining_squad.py --data DATA --work FOLDER --json FILE

Of 32 articles, 100 questions are seeds; the other questions, among four times as many unrelated ones, are the
inputs, and all candidate answers of the articles' passages and of news are the outputs. Each mined pair is
right in its passage or not, and right in its answer or not. Interrupted, it goes on where it was.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from common import write
from mining_data import SquadCorpora, squad_corpora, write_squad
from pairsmith.mine.filter import filter_pairs
from pairsmith.mine.route import mine
from pairsmith.mine.settings import FilterSettings, MineSettings
from pairsmith.progress import Progress
from pairsmith.records import Question
from pairsmith.runs import Run
from pairsmith.texts.squad_metrics import normalized
from pairsmith.training.biencoder import train_biencoder
from pairsmith.training.crossencoder import train_crossencoder
from pairsmith.training.settings import TrainBiencoderSettings, TrainCrossencoderSettings

MINILM = "embedded:all-minilm-l6-v2"
BEST = (100, 250, 500)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3, 4, 5])
    parser.add_argument("--passages", type=int, default=1_500, help="Unrelated ones.")
    parser.add_argument("--biencoder", default="{}", help="Settings of train-biencoder, as JSON.")
    parser.add_argument("--crossencoder", default="{}", help="Settings of train-crossencoder, as JSON.")
    parser.add_argument("--candidates", type=int, default=4_000, help="Pairs that are filtered.")
    args = parser.parse_args()
    corpora = squad_corpora(args.data)
    results = {}
    for seed in args.seeds:
        results[seed] = one(corpora, seed, args.work / f"seed-{seed}", args)
        print(json.dumps({seed: results[seed]}), flush=True)
    means = {
        method: {
            figure: round(float(np.mean([found[method][figure] for found in results.values()])), 2)
            for figure in next(iter(results.values()))[method]
        }
        for method in next(iter(results.values()))
    }
    print(json.dumps(means, indent=1))
    if args.json:
        settings = {
            name: str(value) for name, value in vars(args).items() if name not in ("data", "work", "json")
        }
        write(args.json, {"settings": settings, "results": {"seeds": results, "means": means}})


def one(corpora: SquadCorpora, seed: int, work: Path, args: Any) -> dict[str, dict[str, float]]:
    """The figures of one set of seeds: bi-encoder alone, and with the cross-encoder behind it."""
    files = write_squad(corpora, seed, work, args.passages)
    gold = gold_of(corpora.mining)

    def run(name: str) -> Run:
        return Run(work / name, Progress())

    common = {"kind": "reading", "seeds": files["seeds"], "base": MINILM, "seed": seed, "dtype": "bfloat16"}
    train_biencoder(
        TrainBiencoderSettings(
            **{
                **common,
                "inputs": [files["inputs"]],
                "outputs": [files["outputs"]],
                "batch_size": 16,
                "steps": 100,
                **json.loads(args.biencoder),
            }
        ),
        run("biencoder"),
    )
    mined = mine(
        MineSettings(
            kind="reading",
            inputs=[files["inputs"]],
            outputs=[files["outputs"]],
            encoder=str(work / "biencoder"),
            best=args.candidates,
        ),
        run("mined"),
    )
    found = {"biencoder": precision(mined.table(), gold)}
    if args.crossencoder == "none":
        return found
    train_crossencoder(
        TrainCrossencoderSettings(
            **{
                **common,
                "mined": str(work / "mined"),
                "encoder": str(work / "biencoder"),
                "steps": 300,
                **json.loads(args.crossencoder),
            }
        ),
        run("crossencoder"),
    )
    kept = filter_pairs(
        FilterSettings(pairs=str(work / "mined"), model=str(work / "crossencoder")), run("filtered")
    )
    return found | {"full": precision(kept.table(), gold)}


def gold_of(questions: Sequence[Question]) -> Mapping[str, tuple[str, set[str]]]:
    """The passage of each question, and its answers, normalised."""
    return {
        question.question: (question.context, {normalized(answer.text) for answer in question.answers})
        for question in questions
    }


def precision(rows: pa.Table, gold: Mapping[str, tuple[str, set[str]]]) -> dict[str, float]:
    """Shares, ×100, of the first rows that are right in their passage, and in their answer too."""
    passage, answer = [], []
    for row in rows.slice(0, max(BEST)).to_pylist():
        context, answers = gold.get(row["input"], ("", set()))
        passage.append(row["context"] in context if context else False)
        answer.append(passage[-1] and normalized(row["answers"]["text"][0]) in answers)
    figures: dict[str, float] = {}
    for best in BEST:
        figures[f"passage@{best}"] = round(100 * float(np.mean(passage[:best])), 2)
        figures[f"answer@{best}"] = round(100 * float(np.mean(answer[:best])), 2)
    return figures


if __name__ == "__main__":
    main()
