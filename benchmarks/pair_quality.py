"""What a model writes for the ``sts`` task: how many texts are accepted, and how similar they are by label.

    python benchmarks/pair_quality.py --data DATA --json FILE

300 first sentences of the STS benchmark's training part; cosine similarity under
all-MiniLM-L6-v2 (extra ``embedded``); self-debiasing off (decay 0), as in the paper (100), stronger
(200); three seeds. Copies of the first text, repeats and other rejects are counted by label. Intervals
are percentile bootstraps over input sentences. The file is written after each seed.
"""

import argparse
import json
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from common import stsb_sentences, write
from pairsmith.encoders.encode import encode_texts
from pairsmith.encoders.sentence import load_sentence_encoder
from pairsmith.encoders.similarity import cosine_similarity_rows
from pairsmith.generate.writing import generate_pairs
from pairsmith.lm.loading import load_model
from pairsmith.records import Reject, ScoredPair
from pairsmith.tasks import load_task

DECAYS = (100.0, 0.0, 200.0)
LABELS = (1.0, 0.5, 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--model", default="embedded:smollm2-135m-instruct")
    parser.add_argument("--dtype", default="auto", choices=["auto", "float32", "bfloat16"])
    parser.add_argument("--inputs", type=int, default=300)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    args = parser.parse_args()
    task, model = load_task("sts"), load_model(args.model, dtype=args.dtype)
    encoder = load_sentence_encoder("embedded:all-minilm-l6-v2")
    inputs = stsb_sentences(args.data, args.inputs)

    results: dict[str, Any] = {}
    for seed in args.seeds:
        cosines: dict[float, dict[float, dict[str, list[float]]]] = {}
        found: dict[str, Any] = {}
        for decay in DECAYS:
            started = time.monotonic()
            decoding = task.decoding.model_copy(update={"decay": decay})
            written = generate_pairs(task, model, inputs, decoding=decoding, seed=seed)
            seconds = time.monotonic() - started
            pairs = [row for row in written.rows if isinstance(row, ScoredPair)]
            first = encode_texts(encoder, [pair.sentence1 for pair in pairs])
            second = encode_texts(encoder, [pair.sentence2 for pair in pairs])
            by_label: dict[float, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
            for pair, cosine in zip(pairs, cosine_similarity_rows(first, second), strict=True):
                by_label[pair.score][pair.sentence1].append(float(cosine))
            cosines[decay] = by_label
            found[f"decay {decay:g}"] = {
                "complete": written.complete / written.asked,
                "accepted tries": len(pairs) / (len(pairs) + len(written.rejects)),
                "seconds": round(seconds, 1),
                "texts per second": round(len(pairs) / seconds, 1),
                "cosine": {f"{label:g}": interval(mean_draws(by_label[label], inputs)) for label in LABELS},
                "rejects": rejects_by_label(written.rejects),
            }
        gaps = {
            decay: mean_draws(cosines[decay][1.0], inputs) - mean_draws(cosines[decay][0.0], inputs)
            for decay in DECAYS
        }
        for decay in DECAYS:
            found[f"decay {decay:g}"]["gap"] = interval(gaps[decay])
        found["gap at 100 minus gap at 0"] = interval(gaps[100.0] - gaps[0.0])
        results[f"seed {seed}"] = found
        print(seed, found, flush=True)
        about = {"model": args.model, "revision": model.revision, "dtype": args.dtype, "inputs": len(inputs)}
        write(args.json, {**about, "seeds": results})


def rejects_by_label(rejects: list[Reject]) -> dict[str, dict[str, int]]:
    """How many tries were rejected, by label and reason."""
    found: dict[str, dict[str, int]] = {f"{label:g}": defaultdict(int) for label in LABELS}
    for reject in rejects:
        found[f"{json.loads(reject.row)['score']:g}"][reject.filter] += 1
    return found


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
