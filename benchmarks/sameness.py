"""The same rows however they are made: workers, Ray nodes, a node that goes, and two shard sizes.

    python benchmarks/sameness.py --work DIR --json FILE

Small recipes of every route are run by one process, by two, on Ray with one node and with two (several Ray
nodes on this machine), and on Ray with a node killed in the middle; all rows, rejects and weights are
compared byte by byte. Shards of 7 and of 500 inputs are compared row by row.
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
from small_recipes import RECIPES, files, run_small, write_recipes

KILLED_IN = {"pairs": "pairs", "mining": "kept/scores", "questions": "answered", "retriever": "written"}
"""The step of each recipe in which a Ray node is killed, once a shard of it is finished."""
SENTENCES = Path(__file__).resolve().parent.parent / "examples" / "sentences.txt"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--per-input", type=int, default=14, help="Texts per input in the two shard sizes.")
    parser.add_argument("--recipes", nargs="*", choices=list(RECIPES), default=list(RECIPES))
    parser.add_argument("--inputs", type=int, default=80, help="Sentences of the recipe of pairs.")
    args = parser.parse_args()
    write_recipes(args.work, args.inputs)
    results: dict[str, Any] = {}
    for name in args.recipes:
        results[name] = ways(args.work, name)
        write(args.json, {"results": results})
    if args.per_input:
        results["shards of 7 and 500"] = shard_sizes(args.work / "shards", args.per_input)
        write(args.json, {"results": results})
    print(results)


def ways(work: Path, recipe: str) -> dict[str, Any]:
    """Whether each way of working gives the bytes of one process, and how it went."""
    from ray.cluster_utils import Cluster

    by_way: dict[str, Any] = {}
    runs = work / "runs" / recipe

    def run(way: str, **settings: Any) -> None:
        begun = time.monotonic()
        run_small(work, recipe, runs / way, *(f"*.{name}={value}" for name, value in settings.items()))
        hashes = files(runs / way)
        by_way[way] = {
            "files": len(hashes),
            "same bytes": hashes == files(runs / "one process"),
            "seconds": round(time.monotonic() - begun, 1),
        }
        print(recipe, way, by_way[way], flush=True)

    run("one process")
    run("two processes", workers=2)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        nodes = [cluster.add_node(num_cpus=1)]
        ray = {"executor": "ray", "ray_address": cluster.address}
        run("Ray, one node", **ray, workers=1)
        nodes.append(cluster.add_node(num_cpus=1))
        run("Ray, two nodes", **ray, workers=2)
        way = "Ray, a node killed"
        journal = runs / way / KILLED_IN[recipe] / "journal" / "00000.jsonl"
        unfinished = []

        def kill() -> None:
            unfinished.append(b'"complete": true' not in (journal.parents[1] / "manifest.json").read_bytes())
            cluster.remove_node(nodes[1], allow_graceful=False)

        killer = when(journal, 1, kill)
        run(way, **ray, workers=2)
        killer.join()
        by_way[way]["killed before the end of the step"] = unfinished[0]
    finally:
        cluster.shutdown()  # type: ignore[no-untyped-call]  # Ray has no types for its clusters
    return by_way


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


if __name__ == "__main__":
    main()
