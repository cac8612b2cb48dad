"""How fast nearest neighbours are found both ways, and how time and memory grow with the rows of both sides.

Ours, which is exact, against two exact searches of FAISS with a margin loop; and our approximate search.

python benchmarks/search.py --json FILE
python benchmarks/search.py --rounds 0 --index 'IVF{lists},Flat' HNSW32 --json FILE
python benchmarks/search.py --peers --rows 50000 --json FILE

--peers times the exact search of both ways alone: ours, FAISS, NumPy and USearch (pip install usearch).
"""

import argparse
import resource
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from common import write
from pairsmith.methods.mining.candidates import NeighboursInMemory, score_candidates
from pairsmith.runs.sorting import Rows
from pairsmith.search.exact import two_way_search
from pairsmith.search.faiss_search import FaissIndex, faiss_search
from pairsmith.search.selection import pairs_of, select_pairs

WIDTH = 384
CENTRES = 2_000
"""Texts are about something: each vector is one of so many, and noise as long as it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--growth", type=int, nargs="*", default=[25_000, 50_000, 100_000, 200_000])
    parser.add_argument(
        "--index",
        nargs="*",
        default=["IVF{lists},Flat"],
        help="Indexes of FAISS whose growth is measured; {lists} is 4 times the square root of the rows.",
    )
    parser.add_argument("--k", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["ours"], help="Without FAISS.")
    parser.add_argument("--peers", action="store_true", help="Exact searches alone, of four libraries.")
    args = parser.parse_args()
    if args.peers:
        figures = peers(random_vectors(args.rows, 1), random_vectors(args.rows, 2), args.k, args.rounds)
        if args.json:
            write(args.json, {"settings": vars(args) | {"json": None}, "results": figures})
        return
    results: dict[str, Any] = {"growth": growth(args.growth, args.k, None)}
    if not args.only:
        results["index growth"] = {index: growth(args.growth, args.k, index) for index in args.index}
    x, y = random_vectors(args.rows, 1), random_vectors(args.rows, 2)
    rounds = []
    for _ in range(0 if args.only else args.rounds):
        mine, (pairs, near) = timed(partial(ours, x, y, args.k))
        theirs, (expected, known) = timed(partial(faiss, x, y, args.k))
        same = len(pairs & expected) / len(expected)
        rounds.append({"ours": mine, "faiss": theirs, "ratio": theirs / mine, "pairs in common": same})
        for name, ours_there, faiss_there in zip(("forward", "backward"), near, known, strict=True):
            rounds[-1] |= in_common(name, ours_there, faiss_there)
        print(rounds[-1], flush=True)
    if rounds:
        results["rounds"] = rounds
        results["ratio"] = median(r["ratio"] for r in rounds)
        print("ratio", round(results["ratio"], 2))
    if args.json:
        write(args.json, {"settings": vars(args) | {"json": None}, "results": results})


def peers(x: Tensor, y: Tensor, k: int, rounds: int) -> dict[str, Any]:
    """Seconds of exact searches both ways, in turns, and the share of ours that each other finds too."""
    seconds: dict[str, list[float]] = {name: [] for name in PEERS}
    same: dict[str, float] = {}
    for _ in range(rounds):
        ids_by_name = {}
        for name, search in PEERS.items():
            took, ids_by_name[name] = timed(partial(search, x, y, k))
            seconds[name].append(round(took, 2))
        same = {
            name: float(np.mean(np.sort(ids) == np.sort(ids_by_name["ours"])))
            for name, ids in ids_by_name.items()
        }
        print({name: spent[-1] for name, spent in seconds.items()}, same, flush=True)
    ours_took = seconds["ours"]
    times = {
        name: round(median(a / b for a, b in zip(spent, ours_took, strict=True)), 2)
        for name, spent in seconds.items()
    }
    return {"seconds": seconds, "times ours": times, "neighbours as ours": same}


def ids_by_ours(x: Tensor, y: Tensor, k: int) -> Any:
    """The ids of each text's nearest, ``(2, n, k)``."""
    return np.stack([nearest.ids.numpy() for nearest in two_way_search(x, y, k)])


def ids_by_faiss(x: Tensor, y: Tensor, k: int) -> Any:
    """The same by FAISS."""
    import faiss as library

    both = []
    for one, other in ((x.numpy(), y.numpy()), (y.numpy(), x.numpy())):
        index = library.IndexFlatIP(WIDTH)
        index.add(other)
        both.append(index.search(one, k)[1])
    return np.stack(both)


def ids_by_numpy(x: Tensor, y: Tensor, k: int) -> Any:
    """The same by NumPy, some thousand rows at a time."""
    both = []
    for one, other in ((x.numpy(), y.numpy()), (y.numpy(), x.numpy())):
        parts = np.array_split(one, max(1, len(one) // 1_000))
        both.append(np.concatenate([np.argpartition(-(part @ other.T), k, axis=1)[:, :k] for part in parts]))
    return np.stack(both)


def ids_by_usearch(x: Tensor, y: Tensor, k: int) -> Any:
    """The same by USearch's exact search, on as many threads as torch."""
    library = import_module("usearch.index")
    how = {"metric": library.MetricKind.IP, "exact": True, "threads": torch.get_num_threads()}
    sides = (x.numpy(), y.numpy()), (y.numpy(), x.numpy())
    both = [library.search(other, one, k, **how).keys for one, other in sides]
    return np.stack(both).astype(np.int64)


PEERS: dict[str, Callable[[Tensor, Tensor, int], Any]] = {
    "ours": ids_by_ours,
    "FAISS": ids_by_faiss,
    "NumPy": ids_by_numpy,
    "USearch": ids_by_usearch,
}


def growth(counts: Sequence[int], k: int, index: str | None) -> dict[str, Any]:
    """Seconds and memory by rows, each in a new process, and the power of the rows that time follows."""
    points: dict[int, dict[str, Any]] = {}
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:
        for count in counts:
            points[count] = pool.submit(point, count, k, index).result()
            print(count, ", ".join(f"{name} {value}" for name, value in points[count].items()), flush=True)
    if len(points) < 2:
        return {"points": points}
    seconds = [measured["seconds"] for measured in points.values()]
    exponent = float(np.polyfit(np.log(list(points)), np.log(seconds), 1)[0])
    print("exponent", round(exponent, 2), flush=True)
    return {"points": points, "exponent": exponent}


def point(count: int, k: int, index: str | None) -> dict[str, Any]:
    """One search in this process: ours with margins and pairs, or with an index of FAISS the search alone."""
    x, y = random_vectors(count, 1), random_vectors(count, 2)
    before = peak()
    if index is None:
        seconds, _ = timed(partial(ours, x, y, k))
        return {"seconds": round(seconds, 3), "memory_mb": peak() - before}
    name = index.format(lists=round(4 * count**0.5))
    seconds, recall = timed(partial(by_index, x, y, k, name))
    memory = peak() - before
    return {"seconds": round(seconds, 3), "memory_mb": memory, "index": name, "recall": round(recall, 4)}


def by_index(x: Tensor, y: Tensor, k: int, index: str) -> float:
    """Search both ways with an index; the smaller recall."""
    recalls = []
    for queries, others in ((x, y), (y, x)):
        faiss_index = FaissIndex(index, others.shape[1])
        faiss_index.train(others)
        faiss_index.hold(others)
        recalls.append(faiss_search(queries, faiss_index, k)[1])
    return min(recalls)


def random_vectors(count: int, seed: int) -> Tensor:
    """Vectors of length 1 that lie about common centres; made in place, lest memory peak here."""
    centres = torch.randn(CENTRES, WIDTH, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(seed)
    which = torch.randint(CENTRES, (count,), generator=generator)
    vectors = torch.randn(count, WIDTH, generator=generator)
    for part, of_part in zip(torch.split(vectors, 1000), torch.split(which, 1000), strict=True):
        part += centres[of_part]
        part /= part.norm(dim=1, keepdim=True)
    return vectors


Found = tuple[set[tuple[int, int]], Sequence[tuple[Any, Any]]]
"""Pairs, and the similarities and ids of the nearest of each x and of each y."""


def ours(x: Tensor, y: Tensor, k: int) -> Found:
    """Search both ways, margins, pairs."""
    near = two_way_search(x, y, k)
    forward: list[Rows] = []
    backward: list[Rows] = []
    stores = NeighboursInMemory(near[0]), NeighboursInMemory(near[1])
    score_candidates(stores, (np.arange(len(x)), np.arange(len(y))), k, "ratio", (forward, backward))
    (rows,) = select_pairs(forward, backward, "max", (len(x), len(y)))
    pairs = pairs_of(rows)
    both = [(nearest.similarities.numpy(), nearest.ids.numpy()) for nearest in near]
    return set(zip(pairs.x.tolist(), pairs.y.tolist(), strict=True)), both


def in_common(name: str, mine: tuple[Any, Any], theirs: tuple[Any, Any]) -> dict[str, float]:
    """The share of FAISS's neighbours that are ours too, and how far the similarities lie apart at most."""
    same = (mine[1][:, :, None] == theirs[1][:, None, :]).any(axis=1).mean()
    return {f"{name} ids": float(same), f"{name} apart": float(np.abs(mine[0] - theirs[0]).max())}


def faiss(x: Tensor, y: Tensor, k: int) -> Found:
    """An exact index of each side, searched with the other, and a loop over the candidates.

    Of each text it takes the best candidate alone, so that some of its pairs differ from ours.
    """
    import faiss as library

    a, b = x.numpy(), y.numpy()
    near: list[tuple[Any, Any]] = []
    for one, other in ((a, b), (b, a)):
        index = library.IndexFlatIP(WIDTH)
        index.add(other)
        near.append(index.search(one, k))
    means = [similarities.mean(axis=1) for similarities, _ in near]
    scored: list[tuple[float, int, int]] = []
    for side, (similarities, ids) in enumerate(near):
        for i in range(len(ids)):
            margins = [
                similarities[i, j] / ((means[side][i] + means[1 - side][ids[i, j]]) / 2) for j in range(k)
            ]
            best = int(np.argmax(margins))
            pair = (i, int(ids[i, best])) if side == 0 else (int(ids[i, best]), i)
            scored.append((float(margins[best]), *pair))
    seen_x: set[int] = set()
    seen_y: set[int] = set()
    pairs = set()
    for _, i, j in sorted(scored, key=lambda scored_pair: (-scored_pair[0], scored_pair[1], scored_pair[2])):
        if i not in seen_x and j not in seen_y:
            seen_x.add(i)
            seen_y.add(j)
            pairs.add((i, j))
    return pairs, near


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds, and what came."""
    begun = perf_counter()
    result = work()
    return perf_counter() - begun, result


def peak() -> int:
    """The most memory of this process so far, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


if __name__ == "__main__":
    main()
