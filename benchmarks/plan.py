"""What ``pairsmith plan`` says, against what then happens: time, memory and disk of four recipes.

    python benchmarks/plan.py --work DIR --json FILE

Memory is the largest sum of what the run's processes hold at one moment (resident); disk is what the
run's folder holds at the end, and the most that it held meanwhile.
"""

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from common import write
from pairsmith.cli.planning import plan_recipe
from pairsmith.cli.recipes import find_recipe, load_recipe
from pairsmith.core.progress import Silent
from pairsmith.runs.estimate import total

ROOT = Path(__file__).resolve().parent.parent
SENTENCES = ROOT / "examples" / "sentences.txt"
GRADED = ROOT / "examples" / "graded-pairs.tsv"
RECIPES = {
    "entailment": f"""
name: entailment
steps:
  - {{name: pairs, step: generate, settings: {{task: nli, inputs: {SENTENCES}, per_input: 2}}}}
  - {{name: clean, step: postprocess, settings: {{data: "@pairs"}}}}
""",
    "topics": """
name: topics
steps:
  - {name: texts, step: generate, settings: {task: topic, per_input: 500}}
  - {name: clean, step: postprocess, settings: {data: "@texts"}}
""",
    "two workers": f"""
name: two-workers
steps:
  - {{name: pairs, step: generate, settings: {{inputs: {SENTENCES}, shard_size: 20, workers: 2, tries: 8}}}}
  - {{name: clean, step: postprocess, settings: {{data: "@pairs"}}}}
  - name: encoder
    step: train-encoder
    settings: {{base: "pairsmith:tiny", data: "@clean", epochs: 2, checkpoint_steps: 40}}
  - {{name: after, step: evaluate-sts, settings: {{model: "@encoder", data: {GRADED}}}}}
""",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    paths = {"quickstart": find_recipe("quickstart")}
    for name, text in RECIPES.items():
        paths[name] = args.work / f"{name.replace(' ', '-')}.yaml"
        paths[name].write_text(text, encoding="utf-8")
    results = {}
    for name, path in paths.items():
        if args.only in name:
            results[name] = compare(path, args.work / path.stem)
            write(args.json, {"results": results})
            print(name, results[name], flush=True)


def compare(path: Path, out: Path) -> dict[str, Any]:
    begun = time.monotonic()
    planned = total(plan_recipe(load_recipe(path), Silent()).values())
    planning = time.monotonic() - begun
    real = run(path, out)
    expected = {
        "seconds": planned.seconds,
        "memory": planned.memory,
        "disk": planned.disk,
        "disk at most": planned.disk + planned.scratch,
    }
    return {
        "seconds for the plan": round(planning, 1),
        **{
            key: {"plan": round(value), "run": round(real[key]), "ratio": round(value / real[key], 3)}
            for key, value in expected.items()
        },
    }


def run(path: Path, out: Path) -> dict[str, float]:
    shutil.rmtree(out, ignore_errors=True)
    peaks = {"memory": 0.0, "disk at most": 0.0}
    begun = time.monotonic()
    command = [sys.executable, "-m", "pairsmith", "run", str(path), "--out", str(out), "--quiet"]
    process = psutil.Popen(command, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        peaks["memory"] = max(peaks["memory"], held(process))
        peaks["disk at most"] = max(peaks["disk at most"], disk(out))
        time.sleep(0.03)
    assert process.returncode == 0
    return {**peaks, "seconds": time.monotonic() - begun, "disk": disk(out)}


def held(process: psutil.Process) -> float:
    total = 0
    try:
        for member in (process, *process.children(recursive=True)):
            total += member.memory_info().rss
    except psutil.Error:  # one has just ended
        pass
    return total


def disk(folder: Path) -> float:
    total = 0
    for file in folder.rglob("*"):
        try:
            total += file.stat().st_size if file.is_file() else 0
        except FileNotFoundError:
            continue
    return total


if __name__ == "__main__":
    main()
