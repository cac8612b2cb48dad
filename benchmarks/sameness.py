"""The same rows however they are made: workers, Ray nodes, a node that goes, and two shard sizes.

    python benchmarks/sameness.py --work DIR --json FILE

Bytes of ``data/`` and ``rejects/`` are compared between one process, two, Ray with one node and with two
(several Ray nodes on this machine), and Ray with a node killed in the middle. Shards of 7 and of 500
inputs are compared row by row.
"""

import argparse
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import write
from pairsmith.core.progress import Silent
from pairsmith.runs import DatasetFolder, Run
from pairsmith.steps.generate.route import generate
from pairsmith.steps.generate.settings import GenerateSettings

SENTENCES = Path(__file__).resolve().parent.parent / "examples" / "sentences.txt"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--per-input", type=int, default=14, help="Texts per input in the two shard sizes.")
    args = parser.parse_args()
    results: dict[str, Any] = {"bytes": workers(args.work / "bytes")}
    write(args.json, {"results": results})
    results["shards of 7 and 500"] = shard_sizes(args.work / "shards", args.per_input)
    write(args.json, {"results": results})
    print(results)


def workers(work: Path) -> dict[str, Any]:
    """Whether each way of working gives the bytes of one process, and how it went."""
    from ray.cluster_utils import Cluster

    found: dict[str, Any] = {}

    def run(name: str, **settings: Any) -> None:
        begun = time.monotonic()
        folder = make(work / name.replace(" ", "-"), shard_size=10, **settings)
        found[name] = {
            "rows": folder.rows,
            "same bytes": files(folder) == files(DatasetFolder.open(work / "one-process")),
            "seconds": round(time.monotonic() - begun, 1),
        }
        print(name, found[name], flush=True)

    run("one process")
    run("two processes", workers=2)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        nodes = [cluster.add_node(num_cpus=1)]
        run("ray one node", executor="ray", ray_address=cluster.address, workers=1)
        nodes.append(cluster.add_node(num_cpus=1))
        run("ray two nodes", executor="ray", ray_address=cluster.address, workers=2)
        killer = when(
            work / "ray-a-node-killed" / "journal" / "00000.jsonl",
            5,
            lambda: cluster.remove_node(nodes[1], allow_graceful=False),
        )
        run("ray a node killed", executor="ray", ray_address=cluster.address, workers=2)
        killer.join()
    finally:
        cluster.shutdown()  # type: ignore[no-untyped-call]  # Ray has no types for its clusters
    return found


def when(journal: Path, lines: int, act: Callable[[], object]) -> threading.Thread:
    """Call ``act`` when so many shards are finished."""

    def watch() -> None:
        while not journal.is_file() or len(journal.read_bytes().splitlines()) < lines:
            time.sleep(0.05)
        act()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def shard_sizes(work: Path, per_input: int) -> dict[str, Any]:
    """How many rows are others, or elsewhere, with shards of 7 inputs than with shards of 500."""
    small, large = (
        make(work / str(size), shard_size=size, per_input=per_input, tries=per_input + 3).table()
        for size in (7, 500)
    )
    rows, others = small.to_pylist(), large.to_pylist()
    different = sum(one != other for one, other in zip(rows, others, strict=False))
    return {"rows": len(rows), "rows with 500": len(others), "different": different}


def make(out: Path, **settings: Any) -> DatasetFolder:
    folder = generate(GenerateSettings(inputs=[str(SENTENCES)], **settings), Run(out, Silent()))
    assert folder is not None  # that is so with a preview only
    return folder


def files(folder: DatasetFolder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(Path(str(folder.path)).rglob("*.parquet"))}


if __name__ == "__main__":
    main()
