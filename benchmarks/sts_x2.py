"""The generate route from end to end: an encoder before and after, and the ablations.

    python benchmarks/sts_x2.py --data DATA --work DIR --json FILE

Pairs for 2,000 sentences of the STS benchmark's training part (its scores are not read), then an
encoder trained on them and measured on the test parts of STSb, SICK and STS12-16. Rows as in the
DINO paper's Table 2: as it is, decay 0, no label smoothing, no augmentation; three seeds each.
"""

import argparse
from pathlib import Path
from typing import Any

from common import stsb_sentences, write
from pairsmith.evaluate.settings import EvaluateStsSettings
from pairsmith.evaluate.sts import evaluate_sts
from pairsmith.generate.postprocess import postprocess
from pairsmith.generate.route import generate
from pairsmith.generate.settings import GenerateSettings, PostprocessSettings
from pairsmith.progress import Progress
from pairsmith.runs import Run
from pairsmith.training.encoder import train_encoder
from pairsmith.training.settings import TrainEncoderSettings

SUITES = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sick")
VARIANTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "as in the paper": ({}, {}),
    "decay 0": ({"decay": 0.0}, {}),
    "no smoothing": ({}, {"smoothing": 0.0}),
    "no augmentation": ({}, {"augment": 0}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument(
        "--work", type=Path, required=True, help="folder for the runs; a second call continues"
    )
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--model", default="pairsmith:tiny", help="writes the pairs")
    parser.add_argument("--base", default="pairsmith:tiny", help="encoder to start from")
    parser.add_argument("--inputs", type=int, default=2000)
    # The paper's 2e-5 is for roberta-base; 2e-4 was best for the bundled model on the STSb development part.
    parser.add_argument("--learning-rate", type=float, default=2e-4)
    parser.add_argument(
        "--dtype", default="bfloat16", choices=["float32", "bfloat16"], help="of the training"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    inputs = args.work / "inputs.txt"
    inputs.write_text("\n".join(stsb_sentences(args.data, args.inputs)) + "\n", encoding="utf-8")

    results = {"before": measure(args.base, args.data, args.work / "before")}
    print("before", results["before"], flush=True)
    for seed in args.seeds:
        for name in args.variants:
            results[f"{name}, seed {seed}"] = figures = variant(args, name, seed, inputs)
            print(name, seed, figures, flush=True)
            keys = ("model", "base", "inputs", "learning_rate", "dtype")
            write(args.json, {**{key: getattr(args, key) for key in keys}, "results": results})


def variant(args: argparse.Namespace, name: str, seed: int, inputs: Path) -> dict[str, float]:
    generation, cleaning = VARIANTS[name]
    suffix = "-".join(f"{key}{value:g}" for key, value in {**generation, **cleaning}.items()) or "default"
    pairs = args.work / f"pairs-{seed}-{generation.get('decay', 100.0):g}"
    clean, encoder = args.work / f"clean-{seed}-{suffix}", args.work / f"encoder-{seed}-{suffix}"
    progress = Progress(every=60)
    generate(
        GenerateSettings(model=args.model, inputs=str(inputs), seed=seed, **generation), Run(pairs, progress)
    )
    folder = postprocess(PostprocessSettings(data=str(pairs), seed=seed, **cleaning), Run(clean, progress))
    train_encoder(
        TrainEncoderSettings(
            base=args.base, data=str(clean), learning_rate=args.learning_rate, dtype=args.dtype, seed=seed
        ),
        Run(encoder, progress),
    )
    return {"pairs": folder.rows, **measure(str(encoder), args.data, args.work / f"results-{seed}-{suffix}")}


def measure(model: str, data: Path, out: Path) -> dict[str, float]:
    """Spearman ×100, subsets of a year concatenated, and the average over the suites."""
    settings = EvaluateStsSettings(
        model=model, data=str(data), suites=list(SUITES), bootstrap=0, dtype="bfloat16"
    )
    found = evaluate_sts(settings, Run(out, Progress(every=60)))
    figures = {suite: round(float(found[suite]["all"]), 2) for suite in SUITES}
    return {**figures, "average": round(sum(figures.values()) / len(figures), 2)}


if __name__ == "__main__":
    main()
