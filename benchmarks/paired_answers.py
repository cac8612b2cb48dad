"""How much better one model answers the same questions than another, with a paired bootstrap interval.

python benchmarks/paired_answers.py FOLDER OTHER --json FILE

Both are folders of ``evaluate qa``; what is printed is the mean F1 ×100 of FOLDER minus that of OTHER.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from common import write
from pairsmith.metrics.bootstrap import interval

DRAWS = 2_000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("other", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    one, other = (f1_by_question(folder) for folder in (args.folder, args.other))
    if one.keys() != other.keys():
        raise SystemExit(
            f"{args.folder} and {args.other} answer different questions; give evaluations of one file"
        )
    differences = 100 * np.array([one[name] - other[name] for name in one])
    rng = np.random.default_rng(0)
    draws = np.array([rng.choice(differences, len(differences)).mean() for _ in range(DRAWS)])
    results = {
        "questions": len(differences),
        "difference": round(float(differences.mean()), 2),
        "interval": [round(end, 2) for end in interval(draws) or ()],
    }
    name = f"{args.folder.name}, {args.other.name}"
    known = json.loads(args.json.read_text(encoding="utf-8"))["results"] if args.json.exists() else {}
    write(args.json, {"results": known | {name: results}})
    print(name, results)


def f1_by_question(folder: Path) -> dict[str, float]:
    """The F1 of each answer, by the question's id."""
    lines = (folder / "predictions.jsonl").read_text(encoding="utf-8").splitlines()
    return {row["id"]: row["f1"] for row in map(json.loads, lines)}


if __name__ == "__main__":
    main()
