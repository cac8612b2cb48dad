"""What each step from documents to a retriever costs: processor time and peak memory.

python benchmarks/retriever_cost.py --documents FOLDER-OR-FILE --work FOLDER --json FILE
python benchmarks/retriever_cost.py --synthetic 1000 20000 --model pairsmith:tiny --encoder pairsmith:tiny ...

Each step is a process of its own, as from the command line. Synthetic documents are of forty words in three
sentences, and one query is written for each; those are kept whose document is among the thousand nearest, and
training, where it is wanted, ends after three steps, so that only memory is to be compared.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from common import write
from mining import MINILM, SMOLLM2
from mining_data import write_lines

Cost = dict[str, float]
STEPS = ("chunk", "queries", "filter-queries", "negatives", "train-retriever", "evaluate retrieval")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--documents", help="Documents of your own, in place of synthetic ones.")
    parser.add_argument("--synthetic", type=int, nargs="*", default=[1_000, 20_000])
    parser.add_argument("--training", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument(
        "--steps", nargs="+", choices=STEPS, help="Only these, again, in the folder of an earlier run."
    )
    parser.add_argument("--model", default=SMOLLM2)
    parser.add_argument("--encoder", default=MINILM)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    results: dict[str, Any] = {}
    for size in [0] if args.documents else args.synthetic:
        work = args.work / (str(size) if size else "own")
        if not args.steps:
            shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True, exist_ok=True)
        documents = args.documents or str(synthetic(work / "documents.jsonl", size))
        results[work.name] = costs(documents, work, args, bool(size))
    write(args.json, {"settings": {"model": args.model, "encoder": args.encoder}, "results": results})


def synthetic(path: Path, count: int) -> Path:
    """A file of documents of random words, which differ from one another."""
    draw = np.random.default_rng(0)
    words = ["".join(draw.choice(list("abcdefghijklmnop"), 6)) for _ in range(3_000)]

    def sentence(length: int) -> str:
        return " ".join(draw.choice(words, length)).capitalize() + "."

    return write_lines(
        path,
        ({"id": str(i), "text": " ".join(sentence(n) for n in (14, 13, 13))} for i in range(count)),
    )


def costs(documents: str, work: Path, args: argparse.Namespace, few: bool) -> dict[str, Cost]:
    """The cost of each step; with ``few`` queries and steps of training."""
    encoder = args.encoder
    one = ["--queries", "1", "--tries", "1", "--max-tokens", "16"] if few else []
    chunks, written, kept = (str(work / name) for name in ("chunks", "written", "kept"))
    within = ["--within", "1000", "--duplicates", "1", "--contaminated", "1"] if few else []
    stop = ["--max-steps", "3"] if few else []
    corpus = ["--corpus", chunks, "--encoder", encoder]
    trained = str(work / "retriever") if args.training else encoder
    options_of = (
        ["--documents", documents],
        ["--chunks", chunks, "--model", args.model, *one],
        ["--queries", written, *corpus, "--held-back", "0.05", *within],
        ["--pairs", f"{kept}:train", *corpus],
        ["--base", encoder, "--data", str(work / "hard"), "--batch-size", "64", *stop],
        ["--model", trained, "--data", f"{kept}:test", "--corpus", chunks],
    )
    places = (chunks, written, kept, str(work / "hard"), str(work / "retriever"), str(work / "measured"))
    wanted = args.steps or [step for step in STEPS if args.training or step != "train-retriever"]
    costs = {}
    for step, options, place in zip(STEPS, options_of, places, strict=True):
        if step in wanted:
            shutil.rmtree(place, ignore_errors=True)
            costs[step] = cost([*step.split(), *options, "--out", place])
    return costs


def cost(command: list[str]) -> Cost:
    """Seconds of the clock and of the processor, and peak memory in megabytes, of a command."""
    begun = perf_counter()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "pairsmith", *command, "--quiet"], stdout=said, stderr=said
        )
        _, status, used = os.wait4(process.pid, 0)
        if status:
            said.seek(0)
            raise SystemExit(said.read().decode()[-2_000:])
    figures = {
        "seconds": round(perf_counter() - begun, 1),
        "processor": round(used.ru_utime + used.ru_stime, 1),
        "megabytes": round(used.ru_maxrss / (1024 if sys.platform != "darwin" else 2**20)),
    }
    print(command[:2], figures, flush=True)
    return figures


if __name__ == "__main__":
    main()
