"""Pairsmith beside the programs that its users would otherwise take: the authors' of DINO, and distilabel.

    python benchmarks/beside.py --dino CHECKOUT --work DIR --json FILE [--distilabel PYTHON] [--core 1]

CHECKOUT is a copy of https://github.com/timoschick/dino, PYTHON an interpreter of an environment in which
``distilabel[hf-transformers]`` is installed. Neither is a part of this repository.

**agree**: the authors' functions and ours turn the same logits into the tokens that may be drawn; and the
authors' whole program, given our random numbers, writes the same texts as our decoder. **speed**: whole
programs, from the command to its end, in turns, on one core with one thread; what they wrote, and when the
first row was on the disk. **kills**: each is killed once in the middle and started again. A second start of
this script goes on with what is missing in FILE.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any

import pyarrow.parquet as pq

from beside_agree import compare_distributions, compare_texts
from common import Figures
from pairsmith.models.language.loading import load_causal

SENTENCES = Path(__file__).resolve().parent.parent / "examples" / "sentences.txt"
TEXTS = 2
ONE_THREAD = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
FIRST, OURS, SMALL = "authors' program", "pairsmith, float32", "pairsmith, five shards"
PARAPHRASES = ("distilabel", "pairsmith, label 1")
"""These write for the label 1 only, without counter-labels; the other programs for all three."""


@dataclass(frozen=True)
class Program:
    """A command that writes into a folder, what it is asked for, and how its rows are counted there."""

    command: Callable[[Path, int], list[str]]
    texts: int
    rows: Callable[[Path], int]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dino", type=Path, required=True)
    parser.add_argument("--distilabel", type=Path, help="An interpreter that can import it.")
    parser.add_argument("--model", default="embedded:smollm2-135m-instruct")
    parser.add_argument("--inputs", type=int, default=40)
    parser.add_argument("--agree", type=int, default=40, help="Sentences for which both are compared.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--core", type=int, help="The core that all programs run on.")
    parser.add_argument("--programs", nargs="*", help="Only these, by the names in the file.")
    parser.add_argument("--only", nargs="*", choices=["agree", "speed", "kills"])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    about = {"model": args.model, "inputs": args.inputs, "agree": args.agree}
    record = Figures(args.json, about)
    args.work.mkdir(parents=True, exist_ok=True)
    model = saved(args.model, args.work / "model")
    sentences = SENTENCES.read_text(encoding="utf-8").splitlines()
    wanted = args.only or ("agree", "speed", "kills")
    if "agree" in wanted:
        first = sentences[: args.agree]
        for name, compare in (("distributions", compare_distributions), ("texts", compare_texts)):
            if record.missing("agree", name):
                record.keep("agree", name, figures=compare(args.dino, str(model), first))
    inputs = args.work / "inputs.txt"
    inputs.write_text("\n".join(sentences[: args.inputs]) + "\n", encoding="utf-8")
    by_name = programs(args, model, inputs)
    for number in range(1, args.rounds + 1) if "speed" in wanted else ():
        for name, program in by_name.items():
            if name != SMALL and record.missing("speed", f"round {number}", name):
                out = args.work / f"round-{number}" / name.replace(" ", "-")
                figures = run(program, out, number, args.core)
                record.keep("speed", f"round {number}", name, figures=figures)
    if "speed" in record.results:
        record.keep("medians", figures=medians(record.results["speed"]))
    for name, program in by_name.items() if "kills" in wanted else ():
        if record.missing("kills", name):
            usual = record.results["medians"][OURS if name == SMALL else name]["seconds"]
            out = args.work / "kills" / name.replace(" ", "-")
            record.keep("kills", name, figures=killed(program, out, usual / 2, args.core))


def saved(name: str, folder: Path) -> Path:
    """The model in float32 in a folder, without its chat format, which the method does not use."""
    if not (folder / "config.json").is_file():
        tokenizer, network = load_causal(name, device="cpu", dtype="float32")
        tokenizer.chat_template = None
        tokenizer.save_pretrained(folder)
        network.save_pretrained(folder)
    return folder


def programs(args: argparse.Namespace, model: Path, inputs: Path) -> dict[str, Program]:
    """The programs by their names, in the order in which they take turns."""
    task = args.dino / "task_specs" / "sts-x2.json"

    def first_program(out: Path, seed: int) -> list[str]:
        script = str(Path(__file__).with_name("first_program.py"))
        lengths = ["--num_entries_per_input_and_label", str(TEXTS), "--decay_constant", "100", "--no_cuda"]
        files = ["--task_file", str(task), "--input_file", str(inputs), "--output_dir", str(out)]
        cleaning = ["--remove_duplicates", "--remove_identical_pairs", "--seed", str(seed)]
        options = ["--model_name", str(model), *files, *lengths, *cleaning]
        return [sys.executable, script, str(args.dino), *options]

    def ours(*options: str) -> Callable[[Path, int], list[str]]:
        return lambda out, seed: [
            *(sys.executable, "-m", "pairsmith", "generate", "--task", "sts", "--quiet", *options),
            *("--model", str(model), "--inputs", str(inputs), "--out", str(out), "--seed", str(seed)),
        ]

    def distilabel(out: Path, seed: int) -> list[str]:  # noqa: ARG001 - it has no seed
        instruction = json.loads(task.read_text())["labels"]["1"]["instruction"]
        script = str(Path(__file__).with_name("beside_distilabel.py"))
        return [str(args.distilabel), script, str(model), str(inputs), instruction, str(TEXTS), str(out)]

    texts = args.inputs * 3 * TEXTS
    once = ("--tries", str(TEXTS))
    by_name = {
        FIRST: Program(first_program, texts, lines),
        OURS: Program(ours(*once), texts, pairs),
        "pairsmith, --dtype auto": Program(ours(*once, "--dtype", "auto"), texts, pairs),
        SMALL: Program(ours(*once, "--shard-size", str(max(1, args.inputs // 5))), texts, pairs),
    }
    if args.distilabel:
        alone = ours(*once, "--labels", "1", "--decay", "0")
        theirs, own = PARAPHRASES
        by_name |= {theirs: Program(distilabel, texts // 3, usable), own: Program(alone, texts // 3, pairs)}
    return {name: program for name, program in by_name.items() if not args.programs or name in args.programs}


def lines(out: Path) -> int:
    """Rows that the authors' program saved."""
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in out.glob("*-dataset.jsonl"))


def pairs(out: Path) -> int:
    """Rows that pairsmith saved."""
    return sum(pq.read_metadata(file).num_rows for file in (out / "data").glob("*.parquet"))


def usable(out: Path) -> int:
    """Rows that distilabel saved, less what the others reject: no end, a line break, copies, repeats."""
    texts = set()
    files = [file for file in out.rglob("*.parquet") if {"sentence", "generation"} <= set(names_in(file))]
    for file in files:
        for row in pq.read_table(file, columns=["sentence", "generation"]).to_pylist():
            text, ended, _ = str(row["generation"]).partition('"')
            if ended and text.strip() and "\n" not in text and text.strip() != row["sentence"].strip():
                texts.add((row["sentence"], text.strip()))
    return len(texts)


def names_in(file: Path) -> list[str]:
    try:
        return list(pq.read_schema(file).names)
    except (OSError, ValueError):  # it is being written
        return []


def start(program: Program, out: Path, seed: int, core: int | None) -> "subprocess.Popen[bytes]":
    out.parent.mkdir(parents=True, exist_ok=True)
    pinned = ["taskset", "-c", str(core)] if core is not None else []
    with (out.parent / "log.txt").open("wb") as log:
        return subprocess.Popen(
            [*pinned, *program.command(out, seed)],
            env=os.environ | ONE_THREAD,
            stdout=log,
            stderr=log,
            process_group=0,
        )


def run(program: Program, out: Path, seed: int, core: int | None, *, fresh: bool = True) -> dict[str, Any]:
    """One run to its end: seconds by the clock and of the processor, until the first row, and the rows."""
    if fresh:
        shutil.rmtree(out, ignore_errors=True)
    begun = perf_counter()
    process = start(program, out, seed, core)
    first, ended = 0.0, 0
    while not ended:
        sleep(0.1)
        ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        first = first or (perf_counter() - begun if program.rows(out) else 0.0)
    seconds = perf_counter() - begun
    if status:
        raise SystemExit(f"{process.args!r} failed; see {out.parent / 'log.txt'}")
    rows = program.rows(out)
    processor = usage.ru_utime + usage.ru_stime
    return {
        "seconds": round(seconds, 1),
        "processor seconds": round(processor, 1),
        "first row after": round(first, 1),
        "rows": rows,
        "rejected": round(1 - rows / program.texts, 3),
        "rows a minute": round(60 * rows / seconds, 1),
        "rows a processor minute": round(60 * rows / processor, 1),
    }


def killed(program: Program, out: Path, after: float, core: int | None) -> dict[str, Any]:
    """One run killed after some seconds: the rows that it left, and the seconds of a second start."""
    shutil.rmtree(out, ignore_errors=True)
    process = start(program, out, 1, core)
    sleep(after)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    left = program.rows(out)
    again = run(program, out, 1, core, fresh=False)
    return {"killed after": round(after, 1), "rows left": left, "second start": again}


def medians(speed: dict[str, Any]) -> dict[str, Any]:
    """The medians over the rounds, and how often a program writes its rival's rows in the same time."""
    rounds = list(speed.values())
    complete = [name for name in rounds[0] if all(name in figures for figures in rounds)]
    figures_by_name: dict[str, Any] = {
        name: {kind: median(figures[name][kind] for figures in rounds) for kind in rounds[0][name]}
        for name in complete
    }
    for name in complete:
        rival = PARAPHRASES[0] if name in PARAPHRASES else FIRST
        if rival not in complete:
            continue
        for kind in ("rows a minute", "rows a processor minute"):
            ratios = [figures[name][kind] / figures[rival][kind] for figures in rounds]
            figures_by_name[name][f"{kind}, by those of {rival}"] = round(median(ratios), 2)
    return figures_by_name


if __name__ == "__main__":
    main()
