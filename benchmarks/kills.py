"""Kill runs at random instants and compare what comes out with a run that was left alone.

    python benchmarks/kills.py --kills 200 --recipe-kills 20 --work DIR --json FILE

``generate`` and ``postprocess`` first, then recipes of every route, each with a training: pairs, mining,
questions and a retriever. Each killed run is started again until it ends; its files must be those of the
uninterrupted run, byte for byte.
"""

import argparse
import multiprocessing
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from common import write
from pairsmith.core.progress import Silent
from pairsmith.runs import Run
from pairsmith.steps.generate.postprocess import postprocess
from pairsmith.steps.generate.route import generate
from pairsmith.steps.generate.settings import GenerateSettings, PostprocessSettings
from small_recipes import RECIPES, files, run_small, write_recipes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--recipe-kills", type=int, default=20, help="Kills of each recipe.")
    parser.add_argument("--recipes", nargs="*", choices=list(RECIPES), default=list(RECIPES))
    parser.add_argument("--inputs", type=int, default=80)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    write_recipes(args.work, args.inputs)
    results = {}
    if args.kills:
        results["generate and postprocess"] = trial(
            partial(two_steps, args.work), args.work / "steps", args.kills
        )
        write(args.json, {"results": results})
    for name in args.recipes if args.recipe_kills else ():
        start = partial(run_small, args.work, name)
        results[f"recipe: {name}"] = trial(start, args.work / "runs" / name, args.recipe_kills)
        write(args.json, {"results": results})
    print(results)


def two_steps(work: Path, out: Path) -> None:
    """``generate`` and ``postprocess``, with shards so small that most kills hit one."""
    settings = GenerateSettings(inputs=[str(work / "sentences.jsonl")], shard_size=4, per_input=1)
    generate(settings, Run(out / "pairs", Silent()))
    postprocess(PostprocessSettings(data=str(out / "pairs")), Run(out / "clean", Silent()))


def trial(make: Callable[[Path], None], work: Path, kills: int) -> dict[str, Any]:
    """Kill ``kills`` times while ``make`` fills a folder of ``work``.

    A run that gets to its end is compared, and the next one begun.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pairsmith.steps.generate.route", "pairsmith.methods.dino.encoder"])

    def start(out: Path) -> multiprocessing.process.BaseProcess:
        process = context.Process(target=make, args=(out,))
        process.start()
        return process

    for once in ("waking", "whole"):  # the first one waits for the libraries to load
        begun = time.monotonic()
        whole = start(work / once)
        whole.join()
        seconds = time.monotonic() - begun
        assert whole.exitcode == 0
    expected = files(work / "whole")
    chance, done, runs, same = random.Random(1), 0, 0, 0
    while True:
        out = work / f"killed-{runs}"
        process = start(out)
        process.join(chance.uniform(0.0, 0.6) * seconds if done < kills else None)
        if process.is_alive():
            os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        done += process.exitcode == -signal.SIGKILL
        if process.exitcode == 0:
            runs += 1
            same += files(out) == expected
            shutil.rmtree(out)
            print(
                f"{work.name}: {done} kills, {runs} runs to their end, {same} with the same bytes", flush=True
            )
            if done >= kills:
                return {
                    "kills": done,
                    "runs": runs,
                    "same bytes": same,
                    "seconds uninterrupted": round(seconds, 1),
                }
        elif process.exitcode != -signal.SIGKILL:
            raise SystemExit(f"{out}: exit code {process.exitcode}")


if __name__ == "__main__":
    main()
