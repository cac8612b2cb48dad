"""Our judgement of answers against that of SQuAD's own script, which is public and not kept here.

python benchmarks/official.py --script evaluate-v1.1.py --predictions FILE --json FILE

FILE is a ``predictions.jsonl`` that ``evaluate qa`` wrote.
"""

import argparse
import importlib.util
import json
from pathlib import Path
from typing import Any

from common import write


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--script", type=Path, required=True)
    parser.add_argument("--predictions", type=Path, required=True)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    official = module(args.script)
    rows = [json.loads(line) for line in args.predictions.read_text(encoding="utf-8").splitlines()]
    exact = [
        max(official.exact_match_score(row["prediction"], gold) for gold in row["answers"]) for row in rows
    ]
    overlap = [max(official.f1_score(row["prediction"], gold) for gold in row["answers"]) for row in rows]
    results = {
        "answers": len(rows),
        "exact match differs": sum(theirs != row["exact"] for theirs, row in zip(exact, rows, strict=True)),
        # Ours are written with six places.
        "F1 differs": sum(abs(theirs - row["f1"]) > 1e-6 for theirs, row in zip(overlap, rows, strict=True)),
        "exact match": 100 * sum(exact) / len(rows),
        "F1": 100 * sum(overlap) / len(rows),
    }
    print(results)
    if args.json:
        write(args.json, {"results": results})


def module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("official", path)
    assert spec is not None  # of a path
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


if __name__ == "__main__":
    main()
