"""Draw what one set of seeds gives with more and more pairs, from results of mining_downstream.py.

python benchmarks/plot_downstream.py JSON... --seed 2 --figure rouge1 --out FILE.svg

Sizes that were measured in several runs are drawn together. It needs matplotlib.
"""

import argparse
import json
from pathlib import Path

from mining_downstream import plot


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--seed", required=True)
    parser.add_argument("--figure", choices=["f1", "rouge1"], required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    table: dict[str, dict[str, tuple[float, float]]] = {}
    for path in args.results:
        table |= one_set(path, args.seed, args.figure)
    plot(table, args.figure, args.out)


def one_set(path: Path, seed: str, figure: str) -> dict[str, dict[str, tuple[float, float]]]:
    """A figure of one set of seeds, by ``METHOD-SIZE``, without an interval."""
    methods = json.loads(path.read_text(encoding="utf-8"))["results"]["seeds"].get(seed, {})
    if chosen := methods.pop(CHOSEN, None):
        methods["full"] = chosen
    return {
        f"{method}-{size}": {figure: (figures[figure], 0.0)}
        for method, sizes in methods.items()
        for size, figures in sizes.items()
    }


CHOSEN = "full, chosen by SmolLM2"
"""If a run has these pairs, its others called ``full`` are those that the likelihood judge kept."""


if __name__ == "__main__":
    main()
