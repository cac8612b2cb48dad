"""What ``mine`` would cost at the papers' sizes, by rates measured on one core.

    python benchmarks/mining_cost.py --million FILE --json FILE

Measured here: how many products of a vector's numbers FAISS computes in a second, in training an index, in
adding vectors to it and in searching it, on one thread. The other rates are read from ``results/``; all are
of one core. Work that workers share is divided by ``CORES``; the rest is done by one process. A day, where
texts are paired within days, is taken to have as many texts as any other.
"""

import argparse
import json
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import torch

from common import write
from pairsmith.search.faiss_search import PER_CENTROID, FaissIndex, _Effort
from search import WIDTH, random_vectors

RESULTS = Path(__file__).parent / "results"
CORES = 64
WORKERS = 8
"""Each on so many cores, and with an index of its own."""
ITERATIONS = 10
"""Of k-means, when FAISS trains the lists of an index."""
HELD = 40_000_000
"""Vectors in an index: 61 GB."""
K, SPARE = 4, 4
PROBE = 32
"""Lists searched for a query; an assumption, as the recall that they give depends on the texts."""
DAYS = 2_900
SIZES = {
    f"40 M × 550 M, paired within {DAYS:,} days": (40_000_000, 550_000_000, DAYS),
    "40 M × 550 M": (40_000_000, 550_000_000, 0),
    "20 M × 200 M": (20_000_000, 200_000_000, 0),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--million", type=Path, default=RESULTS / "mining_million.json")
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    rates = index_rates(args.rows) | other_rates(args.million)
    hours = {name: cost(*size, rates) for name, size in SIZES.items()}
    write(args.json, {"cores": CORES, "rates of one core": rates, "hours": hours})
    for part in next(iter(hours.values())):
        print("|", part, "|", " | ".join(f"{of[part]:.2g}" for of in hours.values()), "|")


def index_rates(rows: int) -> dict[str, float]:
    """Products of numbers in a second, in millions."""
    lists = round(4 * rows**0.5)
    others, queries = random_vectors(rows, 1), random_vectors(2_000, 2)
    index = FaissIndex(f"IVF{lists},Flat", WIDTH)
    train, _ = timed(lambda: index.train(others))
    add, _ = timed(lambda: index.hold(others))
    effort = _Effort(PROBE, 2 * (K + SPARE))
    search, _ = timed(lambda: index.search(queries, K + SPARE, effort))
    coarse = len(queries) * lists * WIDTH
    scanned = len(queries) * PROBE * rows / lists * WIDTH
    adding = rows * lists * WIDTH / add / 1e6
    return {
        "million products a second, training": PER_CENTROID * lists**2 * WIDTH * ITERATIONS / train / 1e6,
        "million products a second, adding": adding,
        "million products a second, searching": scanned / max(1e-9, search - coarse / adding / 1e6) / 1e6,
    }


def timed(work: Any) -> tuple[float, Any]:
    begun = process_time()
    result = work()
    return process_time() - begun, result


def other_rates(million: Path) -> dict[str, float]:
    """Rates that other benchmarks measured on one core."""
    encoding, search, size = (
        read(RESULTS / f"{name}.json") for name in ("encoding", "search", "mining_size")
    )
    keys = size["results"]["keys"]["100000000"]["processor"]
    texts = size["results"]["texts"]["50000000"]["processor"]
    end_to_end = read(million)["results"]["1000000"]["runs"][-1]["processor seconds until the end of"]
    return {
        "texts encoded a second": median(
            round_speeds["ours, bfloat16"] for round_speeds in encoding["results"]["texts per second"]
        ),
        "million exact products a second": 1e10 * WIDTH / search["results"]["rounds"][0]["ours"] / 1e6,
        "million keys a second, told apart": 100 / keys["distinct and grouped"],
        "million keys a second, firsts": 100 / keys["firsts"],
        "million texts a second, merged and scored": 100 / texts["merged and scored"],
        "million texts a second, chosen by max": 100 / texts["max"],
        "million texts a second, read and compared": 2 / (end_to_end["candidates"] - end_to_end["search"]),
    }


def read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def cost(x: int, y: int, days: int, rates: dict[str, float]) -> dict[str, float]:
    """Hours of each part, on ``CORES`` cores where workers share it."""
    million = (x + y) / 1e6

    def at(work: str) -> float:
        return million / rates[f"million texts a second, {work}"]

    train: list[float] = []
    add = exact = find = 0.0
    if days:
        exact = x * y / days * WIDTH / 1e6 / rates["million exact products a second"]
    else:
        for queries, others in ((x, y), (y, x)):
            held = min(others, HELD)
            lists = 4 * held**0.5
            train.append(PER_CENTROID * lists**2 * WIDTH * ITERATIONS)
            add += others * lists * WIDTH
            coarse = queries * others / held * lists * WIDTH / rates["million products a second, adding"]
            scan = queries * others / lists * PROBE * WIDTH
            find += (coarse + scan / rates["million products a second, searching"]) / 1e6
        add /= 1e6 * rates["million products a second, adding"]
    trained = max(train, default=0.0) / 1e6 / rates["million products a second, training"]
    keys = million / rates["million keys a second, told apart"]
    if days:
        keys += million / rates["million keys a second, firsts"]
    parts = {
        "encoding, shared": million * 1e6 / rates["texts encoded a second"] / CORES,
        "keys, one process": keys,
        "training an index, one worker for each side": trained / CORES * WORKERS,
        "filling it, shared": add / CORES,
        "search, shared": (exact + find) / CORES,
        "candidates: merged and scored, one process": at("merged and scored"),
        "candidates: texts read and compared, one process": at("read and compared"),
        "choice by max, one process": at("chosen by max"),
    }
    parts["all"] = sum(parts.values())
    return {name: seconds / 3600 for name, seconds in parts.items()}


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
