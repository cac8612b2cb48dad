"""What a page about a very large data set costs: time, memory, and the size of the page.

python benchmarks/report.py --work FOLDER --json FILE

The rows are pairs of up to 12 made-up words with three scores, in shards of 50,000; --words and --shard
change that. FOLDER gets some 200 MB.
"""

import argparse
import resource
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from common import write
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.schemas import REJECT, SCORED_PAIR
from pairsmith.runs import Card, FolderWriter, Run
from pairsmith.runs.identity import Identity
from pairsmith.tools.report.route import report
from pairsmith.tools.settings import ReportSettings

VOCABULARY = 20_000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--words", type=int, default=12, help="Of a text, at most.")
    parser.add_argument("--shard", type=int, default=50_000, help="Rows in a shard.")
    args = parser.parse_args()
    make(args.work / "pairs", args.rows, args.words, args.shard)
    begun = time.perf_counter()
    page = report(ReportSettings(data=str(args.work / "pairs")), Run(args.work / "page", Progress()))
    seconds = time.perf_counter() - begun
    results = {
        "rows": args.rows,
        "words at most": args.words,
        "rows in a shard": args.shard,
        "seconds": round(seconds, 1),
        "peak memory MB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "page kB": round(page.stat().st_size / 1000),
    }
    print(results)
    if args.json:
        write(args.json, {"results": results})


def make(folder: Path, rows: int, words: int, size: int) -> None:
    """A data set of that many rows in shards of ``size``."""
    rng = np.random.default_rng(0)
    writer = FolderWriter.start(Run(folder, Silent()), Identity.of("generate", {}), SCORED_PAIR)
    if writer.finished:
        return
    for shard in range(-(-rows // size)):
        count = min(size, rows - shard * size)
        columns = {
            "id": [f"{shard}-{row}" for row in range(count)],
            "sentence1": texts(count, words, rng),
            "sentence2": texts(count, words, rng),
            "score": rng.choice([0.0, 0.5, 1.0], count),
        }
        writer.commit(shard, {"train": pa.table(columns, schema=SCORED_PAIR)}, REJECT.empty_table())
    writer.finish(Card("Made-up pairs", "For a benchmark."))


def texts(count: int, longest: int, rng: np.random.Generator) -> list[str]:
    """Of a third of ``longest`` to so many words, some of which come much more often than others."""
    words = rng.zipf(1.3, size=(count, longest)) % VOCABULARY
    lengths = rng.integers(longest // 3, longest + 1, size=count)
    return [
        " ".join(f"word{word}" for word in row[:length]) for row, length in zip(words, lengths, strict=True)
    ]


if __name__ == "__main__":
    main()
