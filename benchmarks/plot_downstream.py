"""Draw what more and more pairs give, from results of mining_downstream.py.

python benchmarks/plot_downstream.py JSON... --figure rouge1 --out FILE.svg [--seed 2]

Sizes that were measured in several runs are drawn together, as means over the sets of seeds with their 95 %
intervals; with ``--seed`` only those of one set. It needs matplotlib.
"""

import argparse
import json
from pathlib import Path

from mining_downstream import Seeds, means, plot


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--seed")
    parser.add_argument("--figure", choices=["f1", "rouge1"], required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    every = joined(args.results)
    plot(means({args.seed: every[args.seed]} if args.seed else every), args.figure, args.out)


def joined(paths: list[Path]) -> Seeds:
    """The figures of several files; those of later files replace earlier ones of the same pairs."""
    every: Seeds = {}
    for path in paths:
        of_file: Seeds = json.loads(path.read_text(encoding="utf-8"))["results"]["seeds"]
        for seed, methods in of_file.items():
            if chosen := methods.pop(CHOSEN, None):
                methods["full"] = chosen
            for method, sizes in methods.items():
                every.setdefault(seed, {}).setdefault(method, {}).update(sizes)
    return every


CHOSEN = "full, chosen by SmolLM2"
"""If a run has these pairs, its others called ``full`` are those that the likelihood judge kept."""


if __name__ == "__main__":
    main()
