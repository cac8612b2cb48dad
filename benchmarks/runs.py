"""What keeping runs safe costs, and what workers bring.

    python benchmarks/runs.py --work DIR --json FILE

The share of a real run of 1,000 small shards (10 inputs each) that goes into committing and the rest of
the bookkeeping; what a commit of a usual shard costs, the first hundred and the last; ``status`` on a
folder of 100,000 shards; rows per second of one worker on one core and of two workers on two, in turns.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from common import write
from pairsmith.core.progress import Silent
from pairsmith.data.schemas import REJECT, SCORED_PAIR, Reject, ScoredPair, to_table
from pairsmith.runs import FolderWriter, Run
from pairsmith.runs.identity import Identity
from pairsmith.runs.journal import Journal
from pairsmith.runs.manifest import FileEntry, ShardEntry, read_manifest, run_of
from pairsmith.runs.status import status_lines
from pairsmith.steps.generate.route import generate
from pairsmith.steps.generate.settings import GenerateSettings

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help="One of commits, status, workers, bookkeeping.")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {}
    for name, measured in (
        ("commits", lambda: commits(args.work / "commits", 1000)),
        ("status", lambda: status(args.work / "status", 100_000)),
        ("workers", lambda: workers(args.work / "workers", args.rounds)),
        ("bookkeeping", lambda: bookkeeping(args.work, 1000)),
    ):
        if args.only not in (None, name):
            continue
        results[name] = measured()
        print(name, results[name], flush=True)
        write(args.json, {"results": results})


def start(out: Path, planned: int) -> FolderWriter:
    return FolderWriter.start(Run(out, Silent()), Identity.of("generate", {}), SCORED_PAIR, planned=planned)


def commits(out: Path, shards: int) -> dict[str, float]:
    """Seconds that a commit of 1,200 rows takes, the first hundred and the last."""
    shutil.rmtree(out, ignore_errors=True)
    rows = [
        ScoredPair(f"{n:016x}-1-0", f"The {n} dogs ran.", f"Dogs, {n}, were running.", 0.5)
        for n in range(1200)
    ]
    table = to_table(rows, SCORED_PAIR)
    rejects = to_table([Reject.of(f"r{n}", "no end", "no mark", {"n": n}) for n in range(60)], REJECT)
    writer = start(out, shards)
    times = []
    for number in range(shards):
        begun = time.monotonic()
        writer.commit(number, {"train": table}, rejects)
        times.append(time.monotonic() - begun)
    first, last = sum(times[:100]) / 100, sum(times[-100:]) / 100
    return {"shards": shards, "first hundred": round(first, 5), "last hundred": round(last, 5)}


def bookkeeping(work: Path, shards: int) -> dict[str, float]:
    """A whole run of small shards, and the time in it that is not the making of rows."""
    out = work / "bookkeeping"
    shutil.rmtree(out, ignore_errors=True)
    lines = [f"The {n} dogs ran down the street to house {n % 97}.\n" for n in range(shards * 10)]
    (work / "many.txt").write_text("".join(lines), encoding="utf-8")
    spent = {"commit": 0.0, "start": 0.0, "finish": 0.0}
    for name in spent:
        timed_method(FolderWriter, name, spent)
    begun = time.monotonic()
    settings = GenerateSettings(inputs=[str(work / "many.txt")], shard_size=10, per_input=1)
    generate(settings, Run(out, Silent()))
    seconds = time.monotonic() - begun
    return {
        "shards": shards,
        "seconds": round(seconds, 1),
        **{f"seconds in {name}": round(value, 2) for name, value in spent.items()},
        "share": round(sum(spent.values()) / seconds, 4),
    }


def timed_method(owner: Any, name: str, spent: dict[str, float]) -> None:
    """Have ``owner.name`` add the seconds that it takes to ``spent``."""
    real = getattr(owner, name)

    def timed(*arguments: Any, **keywords: Any) -> Any:
        begun = time.monotonic()
        try:
            return real(*arguments, **keywords)
        finally:
            spent[name] += time.monotonic() - begun

    setattr(owner, name, timed)


def status(out: Path, shards: int) -> dict[str, float]:
    shutil.rmtree(out, ignore_errors=True)
    start(out, shards)
    run = run_of(read_manifest(out).base)
    part = FileEntry(path="data/train-00000.parquet", split="train", rows=1200, sha256="0" * 64, bytes=30_000)
    rejected = part.model_copy(update={"split": "rejects", "path": "rejects/part-00000.parquet", "rows": 60})
    Journal(out).add(
        [
            ShardEntry(
                shard=n,
                files=(part, rejected),
                reasons={"no end: no mark": 60},
                items=200,
                content="0" * 64,
                run=run,
            )
            for n in range(shards)
        ]
    )
    begun = time.monotonic()
    lines = status_lines(out)
    return {"shards": shards, "seconds": round(time.monotonic() - begun, 2), "lines": len(lines)}


def workers(out: Path, rounds: int) -> dict[str, Any]:
    """Texts per second, the loading of models left out by taking the difference of two sizes."""
    growth_rates: dict[str, list[float]] = {"one worker, one core": [], "two workers, two cores": []}
    for number in range(rounds):
        for name, count in (("one worker, one core", 1), ("two workers, two cores", 2)):
            small, large = (timed(out / f"{number}-{count}-{size}", count, size) for size in (1, 6))
            growth_rates[name].append((large[0] - small[0]) / (large[1] - small[1]))
    ratio = sum(growth_rates["two workers, two cores"]) / sum(growth_rates["one worker, one core"])
    return {
        **{name: [round(x, 1) for x in rates] for name, rates in growth_rates.items()},
        "ratio": round(ratio, 2),
    }


def timed(out: Path, count: int, per_input: int) -> tuple[int, float]:
    """Texts and seconds of one run, in a process that starts anew."""
    shutil.rmtree(out, ignore_errors=True)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path; import runs;"
        "runs.one(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))"
    )
    folder = str(Path(__file__).parent)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    begun = time.monotonic()
    subprocess.run(
        [sys.executable, "-c", code, folder, str(out), str(count), str(per_input)],
        check=True,
        env=environment,
    )
    seconds = time.monotonic() - begun
    from pairsmith.runs import DatasetFolder

    return DatasetFolder.open(out).rows, seconds


def one(out: Path, count: int, per_input: int) -> None:
    settings = GenerateSettings(
        inputs=[str(EXAMPLES / "sentences.txt")],
        per_input=per_input,
        tries=per_input + 3,
        workers=count,
        shard_size=20,
    )
    generate(settings, Run(out, Silent()))


if __name__ == "__main__":
    main()
