"""Kill runs at random instants and compare what comes out with a run that was left alone.

    python benchmarks/kills.py --kills 200 --recipe-kills 20 --mining-kills 20 --asking-kills 20 \
        --work DIR --json FILE

``generate`` and ``postprocess`` first, then a whole recipe with a training, then one of mining, then one that
asks, answers and infuses with the tests' tiny model. Each killed run is started again until it ends; its
files must be those of the uninterrupted run, byte for byte.
"""

import argparse
import importlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import write
from pairsmith.cli.recipes import load_recipe
from pairsmith.cli.running import run_recipe
from pairsmith.core.progress import Silent
from pairsmith.runs import Run
from pairsmith.steps.generate.postprocess import postprocess
from pairsmith.steps.generate.route import generate
from pairsmith.steps.generate.settings import GenerateSettings, PostprocessSettings

sys.path.insert(0, str(Path(__file__).parents[1]))
make_bert = importlib.import_module("tests.conftest").make_bert

RECIPE = """
name: kills
steps:
  - {name: pairs, step: generate, settings: {inputs: ./in.txt, per_input: 1, shard_size: 10}}
  - {name: clean, step: postprocess, settings: {data: "@pairs"}}
  - name: encoder
    step: train-encoder
    settings: {base: "pairsmith:tiny", data: "@clean", batch_size: 8, checkpoint_steps: 5, eval_steps: 10}
"""
MINING = """
name: mining
steps:
  - name: biencoder
    step: train-biencoder
    settings: {kind: reading, seeds: ./seeds.jsonl, inputs: ./questions.jsonl, outputs: ./passages.jsonl,
               base: "pairsmith:tiny", steps: 20, batch_size: 8, checkpoint_steps: 5}
  - name: mined
    step: mine
    settings: {kind: reading, inputs: ./questions.jsonl, outputs: ./passages.jsonl, encoder: "@biencoder",
               style: 0, shard_size: 20, search_rows: 30, retrieval: candidates, best: 90}
  - name: crossencoder
    step: train-crossencoder
    settings: {kind: reading, seeds: ./seeds.jsonl, base: "pairsmith:tiny", mined: "@mined",
               encoder: "@biencoder", steps: 20, batch_size: 4, checkpoint_steps: 5}
  - name: kept
    step: filter
    settings: {pairs: "@mined", model: "@crossencoder", one_per: both, best: 20, shard_size: 10}
  - name: likely
    step: filter
    settings: {pairs: "@mined", model: "pairsmith:tiny", judge: likelihood, beside: margin, best: 20,
               shard_size: 10}
  - name: by-margin
    step: filter
    settings: {pairs: "@mined", judge: margin, one_per: both, best: 20}
  - name: reader
    step: train-reader
    settings: {seeds: ./seeds.jsonl, added: "@kept", base: "pairsmith:tiny", steps: 20, batch_size: 4,
               checkpoint_steps: 5}
"""
ASKING = """
name: asking
steps:
  - name: asker
    step: train-asker
    settings: &trained {data: ./seeds.jsonl, base: ./bert, epochs: 4, batch_size: 4, checkpoint_steps: 5}
  - name: asked
    step: ask
    settings: &asking {inputs: ./passages.jsonl, model: "@asker", questions: 2, tries: 1, shard_size: 10}
  - name: clozes
    step: ask
    settings: {<<: *asking, model: cloze}
  - name: teacher
    step: train-teacher
    settings: *trained
  - name: answered
    step: relabel
    settings: {data: "@clozes", model: "@teacher", shard_size: 20}
  - name: student
    step: infuse
    settings: {<<: *trained, data: "@answered", epochs: 2, batch_size: 10}
"""
COMPARED = (".parquet", ".safetensors")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--recipe-kills", type=int, default=20)
    parser.add_argument("--mining-kills", type=int, default=20)
    parser.add_argument("--asking-kills", type=int, default=20)
    parser.add_argument("--inputs", type=int, default=80)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    args.work.mkdir(parents=True, exist_ok=True)
    lines = [f"The {number} dogs ran down the street to the river.\n" for number in range(args.inputs)]
    (args.work / "in.txt").write_text("".join(lines), encoding="utf-8")
    (args.work / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    write_mining(args.work)
    (args.work / "asking.yaml").write_text(ASKING, encoding="utf-8")
    make_bert(args.work / "bert")
    results = {}
    for name, work_on, kills in (
        ("generate and postprocess", two_steps, args.kills),
        ("recipe with training", recipe, args.recipe_kills),
        ("recipe of mining", mining, args.mining_kills),
        ("recipe of questions", asking, args.asking_kills),
    ):
        if not kills:
            continue
        results[name] = trial(work_on, args.work, work_on.__name__, kills)
        write(args.json, {"results": results})
    print(results)


def two_steps(work: Path, out: Path) -> None:
    settings = GenerateSettings(inputs=[str(work / "in.txt")], shard_size=4, per_input=1)
    generate(settings, Run(out / "pairs", Silent()))
    postprocess(PostprocessSettings(data=str(out / "pairs")), Run(out / "clean", Silent()))


def recipe(work: Path, out: Path) -> None:
    run_recipe(load_recipe(work / "recipe.yaml"), out, Silent())


def mining(work: Path, out: Path) -> None:
    run_recipe(load_recipe(work / "mining.yaml"), out, Silent())


def asking(work: Path, out: Path) -> None:
    run_recipe(load_recipe(work / "asking.yaml"), out, Silent())


def write_mining(work: Path) -> None:
    """Questions, passages, and seeds of both."""
    (work / "mining.yaml").write_text(MINING, encoding="utf-8")
    passages = [f"Ann{n} built the mill of Brook{n} in {1700 + n}. It still stands." for n in range(100)]
    seeds = [
        {
            "question": f"who built the mill of Brook{n}?",
            "context": passage,
            "answers": {"text": [f"Ann{n}"], "answer_start": [0]},
        }
        for n, passage in enumerate(passages[:20])
    ]
    for name, rows in (
        ("seeds", seeds),
        ("questions", [{"question": f"who built the mill of Brook{n}?"} for n in range(20, 100)]),
        ("passages", [{"text": passage} for passage in passages]),
    ):
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (work / f"{name}.jsonl").write_text(lines, encoding="utf-8")


def trial(work_on: Callable[[Path, Path], None], work: Path, name: str, kills: int) -> dict[str, Any]:
    """Kill ``kills`` times; a run that gets to its end is compared, and the next one begun."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pairsmith.steps.generate.route", "pairsmith.methods.dino.encoder"])

    def start(out: Path) -> multiprocessing.process.BaseProcess:
        process = context.Process(target=work_on, args=(work, out))
        process.start()
        return process

    for once in ("waking", "whole"):  # the first one waits for the libraries to load
        begun = time.monotonic()
        whole = start(work / name / once)
        whole.join()
        seconds = time.monotonic() - begun
        assert whole.exitcode == 0
    expected = files(work / name / "whole")
    chance, done, runs, same = random.Random(1), 0, 0, 0
    while True:
        out = work / name / f"killed-{runs}"
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
            print(f"{name}: {done} kills, {runs} runs to their end, {same} with the same bytes", flush=True)
            if done >= kills:
                return {
                    "kills": done,
                    "runs": runs,
                    "same bytes": same,
                    "seconds uninterrupted": round(seconds, 1),
                }
        elif process.exitcode != -signal.SIGKILL:
            raise SystemExit(f"{out}: exit code {process.exitcode}")


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.suffix in COMPARED
    }


if __name__ == "__main__":
    main()
