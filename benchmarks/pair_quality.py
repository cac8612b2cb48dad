"""What a model writes for the ``sts`` task: how many texts are accepted, and how similar they are by label.

    python benchmarks/pair_quality.py --data DATA --work DIR --json FILE

300 sentences of the STS benchmark's training part; cosine similarity under all-MiniLM-L6-v2 (extra
``embedded``); self-debiasing off (decay 0), as in the paper (100), stronger (200); three seeds. Copies of the
first text, repeats and other rejects are counted by label. Intervals are percentile bootstraps over input
sentences. Pairs that lie in DIR are not written again, so ``sts_x2.py`` can train on the same ones.
``--task`` takes other instructions for the same labels, such as those in ``benchmarks/tasks``.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from common import begun_with, stsb_both_columns, write
from pairsmith.core.progress import Progress
from pairsmith.metrics.similarity import cosine_similarity_rows
from pairsmith.models.encode import encode_texts
from pairsmith.models.sentence_encoder import load_sentence_encoder
from pairsmith.runs import DatasetFolder, Run
from pairsmith.steps.generate.route import generate
from pairsmith.steps.generate.settings import GenerateSettings

DECAYS = (100.0, 0.0, 200.0)
LABELS = (1.0, 0.5, 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="folder for the pairs")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--task", default="sts", help="a task with the labels 1, 0.5 and 0")
    parser.add_argument("--decays", type=float, nargs="+", default=list(DECAYS))
    parser.add_argument("--model", default="embedded:smollm2-135m-instruct")
    parser.add_argument("--dtype", default="auto", choices=["auto", "float32", "bfloat16"])
    parser.add_argument("--inputs", type=int, default=300)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    encoder = load_sentence_encoder("embedded:all-minilm-l6-v2")
    inputs = stsb_both_columns(args.data, args.inputs)

    results: dict[str, Any] = {}
    for seed in args.seeds:
        cosines: dict[float, dict[float, dict[str, list[float]]]] = {}
        by_decay: dict[str, Any] = {}
        for decay in args.decays:
            folder = written(args, inputs, seed, decay)
            pairs = folder.table().to_pylist()
            first = encode_texts(encoder, [pair["sentence1"] for pair in pairs])
            second = encode_texts(encoder, [pair["sentence2"] for pair in pairs])
            by_label: dict[float, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
            for pair, cosine in zip(pairs, cosine_similarity_rows(first, second), strict=True):
                by_label[pair["score"]][pair["sentence1"]].append(float(cosine))
            cosines[decay] = by_label
            by_decay[f"decay {decay:g}"] = {
                "pairs": folder.rows,
                "cosine": {f"{label:g}": interval(mean_draws(by_label[label], inputs)) for label in LABELS},
                "rejects": rejects_by_label(folder),
            }
        gaps = {
            decay: mean_draws(cosines[decay][1.0], inputs) - mean_draws(cosines[decay][0.0], inputs)
            for decay in args.decays
        }
        for decay in args.decays:
            by_decay[f"decay {decay:g}"]["gap"] = interval(gaps[decay])
        if {100.0, 0.0} <= set(args.decays):
            by_decay["gap at 100 minus gap at 0"] = interval(gaps[100.0] - gaps[0.0])
        results[f"seed {seed}"] = by_decay
        print(seed, by_decay, flush=True)
        about = {"model": args.model, "task": args.task, "dtype": args.dtype, "inputs": len(inputs)}
        write(args.json, {**about, "seeds": results})


def written(args: argparse.Namespace, inputs: list[str], seed: int, decay: float) -> DatasetFolder:
    """The pairs of this seed and decay, written now where they do not lie there."""
    source = args.work / "inputs.txt"
    source.write_text("\n".join(inputs) + "\n", encoding="utf-8")
    pairs = args.work / f"pairs-{seed}-{decay:g}"
    settings = GenerateSettings(
        model=args.model,
        task=args.task,
        inputs=[str(source)],
        seed=seed,
        dtype=args.dtype,
        decay=decay,
        shard_size=begun_with(pairs) or 50,
    )
    folder = generate(settings, Run(pairs, Progress(every=60)))
    assert folder is not None
    return folder


def rejects_by_label(folder: DatasetFolder) -> dict[str, dict[str, int]]:
    """How many tries were rejected, by label and filter."""
    counts: dict[str, dict[str, int]] = {f"{label:g}": defaultdict(int) for label in LABELS}
    for reject in folder.rejects().to_pylist():
        counts[f"{json.loads(reject['row'])['score']:g}"][reject["filter"]] += 1
    return counts


def mean_draws(cosines: dict[str, list[float]], inputs: list[str], draws: int = 2000) -> np.ndarray:
    """The mean cosine (first) and its bootstrap draws; the same resamples of inputs for every series."""
    sums = np.array([sum(cosines.get(text, ())) for text in inputs])
    counts = np.array([len(cosines.get(text, ())) for text in inputs])
    chosen = np.random.default_rng(0).integers(0, len(inputs), size=(draws, len(inputs)))
    chosen = np.vstack([np.arange(len(inputs)), chosen])
    means: np.ndarray = sums[chosen].sum(axis=1) / counts[chosen].sum(axis=1)
    return means


def interval(values: np.ndarray) -> list[float]:
    """The value itself and its 95 % interval."""
    low, high = np.quantile(values[1:], [0.025, 0.975])
    return [round(float(value), 4) for value in (values[0], low, high)]


if __name__ == "__main__":
    main()
