"""How much better one model answers the same questions than another, with a paired bootstrap interval.

python benchmarks/paired_answers.py FOLDER OTHER --json FILE [--figure rougeL]

Both are folders of ``evaluate qa``, or with ``--figure rougeL`` of ``evaluate summaries``; what is printed is
the mean F1 (or ROUGE-L) ×100 of FOLDER minus that of OTHER.
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
    parser.add_argument("--figure", choices=["f1", "rougeL"], default="f1")
    args = parser.parse_args()
    one, other = (figures_by_id(folder, args.figure) for folder in (args.folder, args.other))
    if one.keys() != other.keys():
        raise SystemExit(
            f"{args.folder} and {args.other} do not have the same questions or documents; give evaluations "
            "of one file"
        )
    differences = np.array([one[name] - other[name] for name in one])
    rng = np.random.default_rng(0)
    draws = np.array([rng.choice(differences, len(differences)).mean() for _ in range(DRAWS)])
    results = {
        "documents" if args.figure == "rougeL" else "questions": len(differences),
        "difference": round(float(differences.mean()), 2),
        "interval": [round(end, 2) for end in interval(draws) or ()],
    }
    name = f"{args.folder.name}, {args.other.name}"
    known = json.loads(args.json.read_text(encoding="utf-8"))["results"] if args.json.exists() else {}
    write(args.json, {"results": known | {name: results}})
    print(name, results)


def figures_by_id(folder: Path, figure: str) -> dict[str, float]:
    """The figure ×100 of each answer or summary, by the id of its question or document."""
    lines = (folder / "predictions.jsonl").read_text(encoding="utf-8").splitlines()
    scale = 100 if figure == "f1" else 1  # as evaluations write them
    return {row["id"]: scale * row[figure] for row in map(json.loads, lines)}


if __name__ == "__main__":
    main()
