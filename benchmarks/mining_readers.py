"""What is worth adding to 100 seeds: readers trained on them and on mined, gold and model-made questions.

python benchmarks/mining_readers.py --data DATA --work FOLDER --json FILE --plot FILE.svg

FOLDER is that of ``mining.py squad``, which has mined for each set of seeds; the rest is the recipe
mining-ablation-small, tested on 1,500 of the questions. What all sets of seeds begin from is trained once.
Interrupted, it goes on where it was; sets of seeds whose figures FILE holds already are not measured again.
Several processes may share the work, each with ``--only`` for other methods. The plot wants matplotlib.
"""

import argparse
import importlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from common import machine, write
from mining_data import SquadCorpora, squad_corpora, write_squad
from pairsmith.bundled import recipe_path
from pairsmith.progress import Progress
from pairsmith.recipes import load_recipe
from pairsmith.running import run_recipe

RECIPE = "mining-ablation-small"
TESTED = 1_500
START = {"reader": {"reader-start", "before"}, "writer": {"writer-start"}}
METHODS = {
    "gold": "labelled by people",
    "full": "mined and filtered",
    "biencoder": "mined",
    "gen": "written by a model",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3])
    parser.add_argument("--only", nargs="*", choices=["seeds", *METHODS], help="Train these, no figures.")
    args = parser.parse_args()
    corpora, work = squad_corpora(args.data), args.work.resolve()
    if args.only:
        for seed in args.seeds:
            one(corpora, seed, work, args.only)
        return
    results = measured(args.json)
    for seed in args.seeds:
        if str(seed) not in results:
            results[str(seed)] = {**one(corpora, seed, work), **made_by()}
            keep(args.json, results)
    table = means(list(results.values()))
    print(json.dumps(table, indent=1))
    if args.plot:
        plot(table, args.plot)


def measured(path: Path | None) -> dict[str, dict[str, Any]]:
    """The figures that a file holds, by the number of the set of seeds."""
    if path is None or not path.exists():
        return {}
    found: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["results"]["seeds"]
    return found


def keep(path: Path | None, results: Mapping[str, Mapping[str, Any]]) -> None:
    if path:
        write(path, {"results": {"seeds": results, "means": means(list(results.values()))}})


def made_by() -> dict[str, str]:
    """Sets of seeds may be measured on several days."""
    return {"commit": machine()["commit"]}


def one(
    corpora: SquadCorpora, seed: int, work: Path, methods: Sequence[str] = ("seeds", *METHODS)
) -> Mapping[str, float]:
    """Exact match and F1 of the readers of one set of seeds, by method and number of questions added."""
    folder = work / f"seed-{seed}"
    done = {"@mined": folder / "mined", "@kept": folder / "filtered"}
    figures: dict[str, float] = {}
    for kind in ("reader", "writer") if "gen" in methods else ("reader",):
        figures |= ran(corpora, 1, work, f"start-{kind}", START[kind], {})
        done[f"@{kind}-start"] = work / f"start-{kind}" / "run" / f"{kind}-start"
    for method in methods:
        names = {step["name"] for step in recipe()["steps"]}
        steps = {name for name in names if re.fullmatch(rf"(of-)?{method}-\d+", name)}
        steps |= {"writer", "written"} if method == "gen" else set()
        figures |= ran(corpora, seed, work, f"seed-{seed}/readers-{method}", steps, done)
    return figures


def ran(
    corpora: SquadCorpora,
    seed: int,
    work: Path,
    name: str,
    steps: set[str],
    done: Mapping[str, Path],
) -> Mapping[str, float]:
    """The figures of some steps of the recipe; ``done`` are the folders of others."""
    folder = work / name
    picked = np.random.default_rng(3).permutation(len(corpora.test))[:TESTED]
    fewer = replace(corpora, test=[corpora.test[i] for i in sorted(picked.tolist())])
    write_squad(fewer, seed, folder / "mining-squad", 0)
    whole = recipe()
    kept = [step for step in whole["steps"] if step["name"] in steps]
    figures = {key: place for key, place in whole["results"].items() if place.split("/")[0] in steps}
    part = {"name": RECIPE, "seed": seed, "steps": led(kept, done), "results": figures}
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(part, sort_keys=False), encoding="utf-8")
    found = run_recipe(load_recipe(path), folder / "run", Progress())
    return {key: float(value) for key, value in found.items() if key in figures}


def recipe() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(recipe_path(RECIPE).read_text(encoding="utf-8"))
    return found


def led(value: Any, done: Mapping[str, Path]) -> Any:
    """References to steps that are done elsewhere, led there."""
    if isinstance(value, dict):
        return {key: led(each, done) for key, each in value.items()}
    if isinstance(value, list):
        return [led(each, done) for each in value]
    return str(done[value]) if isinstance(value, str) and value in done else value


def means(results: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Of each figure the mean over the sets of seeds, and the standard deviation."""
    found = {}
    for key in results[0].keys() - {"commit"}:
        values = [result[key] for result in results]
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        found[key] = [round(float(np.mean(values)), 2), round(spread, 2)]
    return found


def plot(table: Mapping[str, Sequence[float]], path: Path) -> None:
    """F1 by the number of questions added, a line for each method."""
    plt = importlib.import_module("matplotlib.pyplot")
    figure, axes = plt.subplots(figsize=(6, 4))
    for method, label in METHODS.items():
        counts = sorted(int(key.split("-")[-1]) for key in table if re.fullmatch(rf"f1-{method}-\d+", key))
        points = [table["f1-seeds-0"], *(table[f"f1-{method}-{count}"] for count in counts)]
        mean, spread = zip(*points, strict=True)
        axes.errorbar([0, *counts], mean, yerr=spread, label=label, marker="o", capsize=3)
    axes.set_xlabel("questions added to 100 seeds")
    axes.set_ylabel("F1")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)


if __name__ == "__main__":
    main()
