"""Pairsmith's retriever beside the program of GPL's authors: hard negatives, a judge's margins, MarginMSE.

    python benchmarks/beside_gpl.py --gpl CHECKOUT --python PYTHON --data DATA --work DIR --json FILE

CHECKOUT is a copy of https://github.com/UKPLab/gpl, PYTHON an interpreter of an environment in which it runs
(``gpl_program.py``). Neither is a part of this repository. Both sides get the same short paragraphs of
SQuAD, people's questions on these in place of generated ones, the same encoder (MiniLM's first
layers, without dropout), and the same cross-encoder, trained on other articles.

**agree**: negatives, margins, the loss of each step, and the trained weights, if ours learns the triples of
theirs in their order. **end to end**: nDCG@10 on other questions. **cost**: processor seconds of
their program, and of our commands for the same work. A second start goes on with what is missing in FILE.
"""

import argparse
import json
import os
import shutil
from pathlib import Path
from statistics import median
from typing import Any

import torch

from beside_gpl_agree import AGREEMENTS, RANKS, TOKENS, Files, cost, ours, trained
from common import Figures
from pairsmith.core.progress import Silent
from pairsmith.runs import Run
from pairsmith.steps.evaluate.retrieval import evaluate_retrieval
from pairsmith.steps.evaluate.retrieval_settings import EvaluateRetrievalSettings

ONE_THREAD = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
PROGRAMS = ("authors' program", "pairsmith")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpl", type=Path, required=True)
    parser.add_argument("--python", required=True, help="An interpreter that can import beir.")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--passages", type=int, default=260)
    parser.add_argument("--layers", type=int, default=2, help="Layers of the encoder and the cross-encoder.")
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--judge-steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=["agree", "end to end", "cost"])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    names = ("passages", "layers", "steps", "batch", "judge_steps")
    about = {name: getattr(args, name) for name in names}
    record = Figures(args.json, about)

    def missing(*path: str) -> bool:
        return record.missing(*path) and (not args.only or path[0] in args.only)

    torch.set_num_threads(1)
    os.environ |= ONE_THREAD
    files = Files(args)
    files.prepare()
    first = args.work / "first"
    if not (first / "notes.json").is_file():
        shutil.rmtree(first, ignore_errors=True)
        cost(their_command(files, first))
    for name, compare in AGREEMENTS.items():
        if missing("agree", name):
            record.keep("agree", name, figures=compare(files, first))
    for number in range(1, args.rounds + 1):
        if missing("cost", f"round {number}"):
            record.keep("cost", f"round {number}", figures=costs(files, args.work / f"round-{number}"))
    if record.results.get("cost"):
        record.keep("medians", figures=medians(list(record.results["cost"].values())))
    models = {"base": files.base, "authors' program": trained(first), "pairsmith, their triples": files.own}
    second = args.work / "round-1"
    models |= {"authors' program, again": trained(second), "pairsmith, all of its own": second / "retriever"}
    for name, model in models.items():
        if missing("end to end", name) and model.is_dir():
            record.keep("end to end", name, figures=found(files, name, model))


def their_command(files: Files, out: Path) -> list[str]:
    """Their program, from the texts to the trained model; what it makes on the way stays in ``out``."""
    if not out.is_dir():
        shutil.copytree(files.generated, out / "generated")
    given = {
        "path_to_generated_data": str(out / "generated"),
        "output_dir": str(trained(out)),
        "base_ckpt": str(files.base),
        "cross_encoder": str(files.judge),
        "batch_size_gpl": files.args.batch,
        "max_seq_length": TOKENS,
        "gpl_steps": files.args.steps,
        "retrievers": [str(files.base)],
        "retriever_score_functions": ["cos_sim"],
        "negatives_per_query": RANKS,
        "gpl_score_function": "cos_sim",
    }
    script = str(Path(__file__).with_name("gpl_program.py"))
    return [files.args.python, script, str(files.args.gpl), str(out / "notes.json"), json.dumps(given)]


def our_commands(files: Files, out: Path) -> dict[str, list[str]]:
    """Our commands for the same work: a random negative of each query, judged, and the same steps."""
    pool = ["--negatives", 1, "--pick", "random", "--last-rank", RANKS, "--positive-share", 0]
    read = ["--pairs", files.pairs, "--corpus", files.generated, "--encoder", files.base]
    hard, dtype = out / "hard", ["--dtype", "float32"]
    options = ["--base", files.base, "--data", hard, "--objective", "margin-mse", "--scale", 1]
    steps = ["--max-steps", files.args.steps, "--batch-size", files.args.batch, "--checkpoint-steps", 10]
    return {
        "negatives": ours("negatives", *read, *pool, "--judge", files.judge, *dtype, "--out", hard),
        "train-retriever": ours("train-retriever", *options, *steps, *dtype, "--out", out / "retriever"),
    }


def costs(files: Files, out: Path) -> dict[str, Any]:
    """Processor seconds of both sides, in turns; of theirs also by stage."""
    shutil.rmtree(out, ignore_errors=True)
    figures: dict[str, Any] = {"authors' program": cost(their_command(files, out))}
    notes = json.loads((out / "notes.json").read_text())
    figures["its stages"] = {name: round(seconds, 1) for name, seconds in notes["seconds"].items()}
    commands = {name: cost(command) for name, command in our_commands(files, out).items()}
    return figures | {"pairsmith": round(sum(commands.values()), 1), "its commands": commands}


def medians(rounds: list[dict[str, Any]]) -> dict[str, float]:
    """The medians over the rounds, and how often ours is done in the time of theirs."""
    rows = [figures | figures["its commands"] for figures in rounds]
    names = (*PROGRAMS, *rows[0]["its commands"])
    found = {name: round(median(figures[name] for figures in rows), 1) for name in names}
    ratios = [figures["authors' program"] / figures["pairsmith"] for figures in rounds]
    return found | {"theirs by ours": round(median(ratios), 2)}


def found(files: Files, name: str, model: Path) -> dict[str, Any]:
    """nDCG@10 of a model on the questions that nobody was trained on, with its interval."""
    against = files.work / "measured" / "authors' program"
    settings = EvaluateRetrievalSettings(
        data=str(files.test),
        model=str(model),
        device="cpu",
        against=str(against) if name not in ("base", against.name) else None,
    )
    figures = evaluate_retrieval(settings, Run(files.work / "measured" / name, Silent()))
    compared = figures.get("against", {})
    return {name: figures[name] for name in ("queries", "documents", "ndcg@10", "ndcg@10_ci")} | {
        "less theirs": {name: value for name, value in compared.items() if name.startswith("ndcg")}
    }


if __name__ == "__main__":
    main()
