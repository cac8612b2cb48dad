"""What is worth adding to 100 seeds: readers trained on them and on mined, gold and model-made questions.

python benchmarks/mining_readers.py --data DATA --work FOLDER --json FILE --plot FILE.svg

FOLDER is that of ``mining.py squad``, which has mined for each set of seeds; the rest is the recipe
mining-ablation-small, tested on 1,500 of the questions. What all sets of seeds begin from is trained once.
Interrupted, it goes on where it was; methods whose figures FILE holds already are not measured again.
When what all begin from is trained, several processes may share the work, each with ``--only`` for other
methods. The plot wants matplotlib.
"""

import argparse
import fcntl
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
from pairsmith.cli.recipes import load_recipe
from pairsmith.cli.running import run_recipe
from pairsmith.core.bundled import recipe_path
from pairsmith.core.progress import Progress

RECIPE = "mining-ablation-small"
TESTED = 1_500
START = {"reader": {"reader-start", "before"}, "writer": {"writer-start"}}
Seeds = dict[str, dict[str, dict[str, Any]]]
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
    parser.add_argument("--only", nargs="*", choices=["seeds", *METHODS], help="These methods.")
    args = parser.parse_args()
    corpora, work = squad_corpora(args.data), args.work.resolve()
    for seed in args.seeds:
        for method in args.only or ("seeds", *METHODS):
            if method not in measured(args.json).get(str(seed), {}):
                figures = {**one(corpora, seed, work, method), "commit": machine()["commit"]}
                keep(args.json, seed, method, figures)
    if args.json:
        table = means(measured(args.json))
        print(json.dumps(table, indent=1))
        if args.plot and "f1-seeds-0" in table:
            plot(table, args.plot)


def measured(path: Path | None) -> Seeds:
    """The figures that a file holds, by the number of the set of seeds and by method."""
    if path is None or not path.exists():
        return {}
    by_seed: Seeds = json.loads(path.read_text(encoding="utf-8"))["results"]["seeds"]
    return by_seed


def keep(path: Path | None, seed: int, method: str, figures: Mapping[str, Any]) -> None:
    """Add figures to the file, with the commit that made them, as it may take several days to make all."""
    print(json.dumps({seed: {method: figures}}), flush=True)
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            every = measured(path)
            every.setdefault(str(seed), {})[method] = dict(figures)
            write(path, {"results": {"seeds": every, "means": means(every)}})


def one(corpora: SquadCorpora, seed: int, work: Path, method: str) -> Mapping[str, float]:
    """Exact match and F1 of the readers of one set of seeds by the number of questions added."""
    folder = work / f"seed-{seed}"
    done = {"@mined": folder / "mined", "@kept": folder / "filtered"}
    figures: dict[str, float] = {}
    for kind in ("reader", "writer") if method == "gen" else ("reader",):
        first = ran(corpora, 1, work, f"start-{kind}", START[kind], {})
        figures |= first if method == "seeds" else {}
        done[f"@{kind}-start"] = work / f"start-{kind}" / "run" / f"{kind}-start"
    names = {step["name"] for step in recipe()["steps"]}
    steps = {name for name in names if re.fullmatch(rf"(of-)?{method}-\d+", name)}
    steps |= {"writer", "written"} if method == "gen" else set()
    return {**figures, **ran(corpora, seed, work, f"seed-{seed}/readers-{method}", steps, done)}


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
    results = run_recipe(load_recipe(path), folder / "run", Progress())
    return {key: float(value) for key, value in results.items() if key in figures}


def recipe() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(recipe_path(RECIPE).read_text(encoding="utf-8"))
    return content


def led(value: Any, done: Mapping[str, Path]) -> Any:
    """References to steps that are done elsewhere, led there."""
    if isinstance(value, dict):
        return {key: led(inner, done) for key, inner in value.items()}
    if isinstance(value, list):
        return [led(inner, done) for inner in value]
    return str(done[value]) if isinstance(value, str) and value in done else value


def means(every: Seeds) -> dict[str, list[float]]:
    """Of each figure the mean over the sets of seeds, and the standard deviation."""
    values: dict[str, list[float]] = {}
    for methods in every.values():
        for figures in methods.values():
            for name, value in figures.items():
                if name != "commit":
                    values.setdefault(name, []).append(value)
    return {
        name: [
            round(float(np.mean(figure_values)), 2),
            round(float(np.std(figure_values, ddof=1)) if len(figure_values) > 1 else 0.0, 2),
        ]
        for name, figure_values in values.items()
    }


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
