"""What more inputs cost: time per accepted text and peak memory of ``generate`` on 1,000 and 10,000 inputs.

python benchmarks/growth.py --work DIR --json FILE
"""

import argparse
import json
import random
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from common import write
from pairsmith.runs import DatasetFolder

EXAMPLES = Path(__file__).resolve().parent.parent / "examples" / "sentences.txt"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--counts", type=int, nargs="*", default=[1_000, 10_000])
    parser.add_argument("--rounds", type=int, default=3, help="Of the smallest; a larger one takes fewer.")
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        print(json.dumps(one(args.run)))
        return
    args.work.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {}
    for number in range(args.rounds):
        for count in args.counts:
            if number and count > 3 * min(args.counts):
                continue
            inputs = args.work / f"{count}.txt"
            inputs.write_text("\n".join(sentences(count)) + "\n", encoding="utf-8")
            command = [sys.executable, __file__, "--work", args.work, "--json", args.json, "--run", inputs]
            done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=True)
            results.setdefault(str(count), []).append(json.loads(done.stdout.splitlines()[-1]))
            print(count, results[str(count)][-1], flush=True)
    medians = {
        count: {name: median(run[name] for run in runs) for name in ("ms_per_text", "peak_mb")}
        for count, runs in results.items()
    }
    print(medians)
    write(args.json, {"results": results, "medians": medians})


def one(inputs: Path) -> dict[str, float]:
    """One run in this process."""
    from pairsmith.core.progress import Silent
    from pairsmith.runs import Run
    from pairsmith.steps.generate.route import generate
    from pairsmith.steps.generate.settings import GenerateSettings

    out = inputs.with_suffix(".out")
    shutil.rmtree(out, ignore_errors=True)
    settings = GenerateSettings(inputs=[str(inputs)], dtype="bfloat16")
    begun = perf_counter()
    generate(settings, Run(out, Silent()))
    seconds = perf_counter() - begun
    rows = DatasetFolder.open(out).rows
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": round(seconds, 2), "rows": rows, "ms_per_text": 1000 * seconds / rows, "peak_mb": peak}


def sentences(count: int) -> list[str]:
    """Distinct sentences, from the words of the examples, of the examples' lengths."""
    lines = [line for line in EXAMPLES.read_text(encoding="utf-8").splitlines() if line]
    words = sorted({word for line in lines for word in line.split()})
    draw = random.Random(1)
    sentences = (" ".join(draw.choices(words, k=len(draw.choice(lines).split()))) for _ in range(2 * count))
    return list(dict.fromkeys(sentences))[:count]


if __name__ == "__main__":
    main()
