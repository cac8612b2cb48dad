"""Time and peak memory of ``mine`` with millions of texts, without encoding and search, on random data.

Keys: the texts of a corpus told apart and grouped by day. Texts: random lists of neighbours merged and
scored, and pairs chosen by each rule.

python benchmarks/mining_size.py --work DIR --json FILE
"""

import argparse
import json
import resource
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, process_time
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from common import write
from pairsmith.runs.storage import scratch_file
from pairsmith.search.exact import Neighbours
from pairsmith.search.names import RetrievalName
from pairsmith.search.selection import PairFile, select_pairs
from pairsmith.steps.corpora.encoded import Encoded
from pairsmith.steps.mine.search import scored_candidates
from pairsmith.steps.mine.settings import MineSettings
from pairsmith.steps.search_parts import SearchGroup, neighbour_rows

SHARD = 100_000
DAYS = 365
K = 4
STRETCHES = 2
"""Passes over the other side, as with so many indexes; each finds ``K`` neighbours."""
BEST = "candidates, the best tenth of a pair a text"
RULES = [*get_args(RetrievalName), BEST]
DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--work", type=Path, required=True, help="a folder on a disk; 40 GB for 50 million texts"
    )
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--keys", type=int, nargs="*", default=[10**6, 10**7, 10**8])
    parser.add_argument("--texts", type=int, nargs="*", default=[10**6, 10**7, 5 * 10**7])
    parser.add_argument("--rules", choices=RULES, nargs="*", default=RULES, help="which choices are measured")
    parser.add_argument("--run", choices=["keys", "texts"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        (count,) = getattr(args, args.run)
        figures = keys(count, args.work) if args.run == "keys" else candidates(count, args.work, args.rules)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(json.dumps({**figures, "peak_gb": round(peak, 3)}))
        return
    args.work.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {}
    for name in ("keys", "texts"):
        for count in getattr(args, name):
            command = [sys.executable, __file__, "--work", args.work, "--json", args.json, "--run", name]
            done = subprocess.run(
                [*map(str, command), f"--{name}", str(count), "--rules", *args.rules],
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            results.setdefault(name, {})[str(count)] = json.loads(done.stdout.splitlines()[-1])
            print(name, count, results[name][str(count)], flush=True)
    growth = {name: exponents(of_size) for name, of_size in results.items()}
    print(growth)
    write(args.json, {"k": K, "stretches": STRETCHES, "results": results, "exponents of time": growth})


def exponents(of_size: dict[str, dict[str, Any]]) -> dict[str, dict[str, float]]:
    """For each part of the work the exponent of its time against the size, from a line through the logs."""
    sizes = np.log([float(size) for size in of_size])
    runs = list(of_size.values())
    if len(runs) < 2:
        return {}
    return {
        kind: {
            part: round(float(np.polyfit(sizes, np.log([run[kind][part] for run in runs]), 1)[0]), 3)
            for part in runs[0][kind]
        }
        for kind in ("seconds", "processor")
    }


def keys(count: int, work: Path) -> dict[str, Any]:
    """Collect the distinct texts of ``count`` rows, a third of which are copies, and their groups."""
    watch = Watch()
    with scratch_file(work, "corpus") as file:
        with watch("making the rows once"):
            for number in range(count // SHARD):
                table(number, count, ["id", "group"])
        with watch("distinct and grouped"):
            texts = Encoded.of(corpus(count), file)
        groups = texts.groups()
        with watch("firsts"):
            firsts = texts.firsts()
    counts = {
        "distinct": len(texts),
        "groups": len(groups),
        "texts": int((firsts == np.arange(len(texts))).sum()),
    }
    return {**watch.figures(), **counts}


def corpus(count: int) -> Any:
    """What ``Encoded`` reads of a folder, made when it is read."""

    def shards(_: str, columns: Sequence[str], numbers: Iterable[int] | None = None) -> Iterator[pa.Table]:
        return (
            table(number, count, columns)
            for number in (range(count // SHARD) if numbers is None else numbers)
        )

    return SimpleNamespace(
        path=Path("corpus"),
        shards=shards,
        shard_rows=lambda: [SHARD] * (count // SHARD),
        schema=lambda: pa.schema({"vector": pa.list_(pa.float32())}),
    )


def table(number: int, count: int, columns: Sequence[str]) -> pa.Table:
    """A shard of texts drawn from ``count``, on random days, with vectors of one number."""
    draw = np.random.default_rng(number)
    texts, days = draw.integers(0, count, SHARD, np.uint64), draw.integers(0, DAYS, SHARD)
    columns_by_name = {
        "id": lambda: ids(texts),
        "group": lambda: pa.DictionaryArray.from_arrays(days, [f"day {day:03}" for day in range(DAYS)]).cast(
            pa.string()
        ),
        "vector": lambda: pa.ListArray.from_arrays(
            np.arange(SHARD + 1, dtype=np.int32), pa.array(np.ones(SHARD, np.float32))
        ),
    }
    return pa.table({name: columns_by_name[name]() for name in columns})


def ids(numbers: NDArray[np.uint64]) -> pa.Array:
    """Sixteen digits for each number, as if of a hash (SplitMix64)."""
    mixed = numbers * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    bytes_ = mixed.astype(">u8").view(np.uint8).reshape(-1, 8)
    digits = np.stack([DIGITS[bytes_ >> 4], DIGITS[bytes_ & 15]], axis=2)
    edges = np.arange(0, 16 * len(numbers) + 1, 16, dtype=np.int32)
    return pa.StringArray.from_buffers(len(numbers), pa.py_buffer(edges), pa.py_buffer(digits))


def candidates(count: int, work: Path, rules: Sequence[str]) -> dict[str, Any]:
    """Merge, score and choose the candidates of ``count`` texts on each side, by each of the rules."""
    settings = MineSettings(inputs=["x"], outputs=["y"], encoder="none", k=K, verbatim="keep")
    watch = Watch()
    chosen: dict[str, int] = {}
    with scratch_file(work, "forward") as ahead, scratch_file(work, "backward") as back:
        files = PairFile(ahead), PairFile(back)
        with scratch_file(work, "numbers") as numbers:
            for start in range(0, count, SHARD):
                with numbers.open("ab") as file:
                    np.arange(start, min(start + SHARD, count)).tofile(file)
            side = np.memmap(numbers, np.int64, "c")
            nothing: Any = ()  # corpora and their texts are only read to leave out copies
            groups = [SearchGroup(side, side)]
            with watch("making the lists once"):
                for _ in searched(count):
                    pass
            with watch("merged and scored"):
                _, unscored = scored_candidates(
                    searched(count), groups, nothing, nothing, settings, files, work
                )
        for name in rules:
            with scratch_file(work, "chosen") as file:
                pairs, best = PairFile(file), count // 10 if name == BEST else None
                rule: Any = "candidates" if name == BEST else name
                with watch(name):
                    forward, backward = (pair_file.parts() for pair_file in files)
                    sizes = count, count
                    pairs.extend(select_pairs(forward, backward, rule, sizes, best=best, folder=work))
                chosen[name] = len(pairs)
    counts = {
        "candidates": len(files[0]) + len(files[1]),
        "without a margin": unscored,
        "chosen": chosen,
    }
    return {**watch.figures(), **counts}


def searched(count: int) -> Iterator[pa.Table]:
    """The rows of a search in indexes of a part of the texts each, with random neighbours."""
    for side in ("x", "y"):
        for stretch in range(STRETCHES):
            low, high = stretch * count // STRETCHES, (stretch + 1) * count // STRETCHES
            for start in range(0, count, SHARD):
                draw = torch.Generator().manual_seed(hash((side == "x", stretch, start)))
                shape = min(SHARD, count - start), K
                cosines = 0.3 + 0.6 * torch.rand(shape, generator=draw).sort(dim=1, descending=True).values
                yield neighbour_rows(
                    0, side, start, Neighbours(torch.randint(low, high, shape, generator=draw), cosines)
                )


class Watch:
    """Seconds of each part of the work, those that the processor spent on it in this process, and the peak
    memory from the start to its end, in GB."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[float, float]] = {}
        self._peaks: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Measure what is done meanwhile."""
        begun, spent = perf_counter(), process_time()
        yield
        self._found[name] = perf_counter() - begun, process_time() - spent
        self._peaks[name] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 3)
        print(name, self._found[name], self._peaks[name], file=sys.stderr, flush=True)

    def figures(self) -> dict[str, dict[str, float]]:
        """All of each part that was measured."""
        of_kind = zip(("seconds", "processor"), zip(*self._found.values(), strict=True), strict=True)
        return {
            kind: {name: round(spent, 2) for name, spent in zip(self._found, values, strict=True)}
            for kind, values in of_kind
        } | {"peak_gb_until": self._peaks}


if __name__ == "__main__":
    main()
