"""``mine`` from end to end on a million inputs and outputs, with an index, killed and continued.

    python benchmarks/mining_million.py --work DIR --json FILE --texts 20000 100000 1000000

Texts are random words of a topic, and each input has a twin among the outputs, with some other words. Vectors
are mean word vectors of 64 dimensions. Each run is killed (SIGKILL) once at each stage that ``--kill-at``
names, and continued; up to ``--compare`` texts, its files are compared with those of a run left alone. Time
and memory are those of the command's processes.
"""

import argparse
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from common import write

WIDTH = 64
TOPICS = 1_000
WORDS = 60
"""Words of a topic."""
LENGTH = 9
"""Words of a text; two of a twin's are others."""
STRETCHES = 2
"""Indexes on each side."""
STAGES = ("inputs", "outputs", "keys", "search", "candidates", "choice", "rows")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True, help="a folder on a disk; 3 GB for a million")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--texts", type=int, nargs="+", default=[20_000, 100_000, 1_000_000])
    parser.add_argument("--kill-at", choices=STAGES, nargs="*", default=["outputs", "search"])
    parser.add_argument("--compare", type=int, default=20_000, help="most texts of a run done twice")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    encoder(args.work / "encoder")
    results: dict[str, Any] = {}
    for count in args.texts:
        corpora(args.work, count)
        results[str(count)] = one_size(args.work, count, args.kill_at, compare=count <= args.compare)
        print(count, results[str(count)], flush=True)
        write(args.json, {"width": WIDTH, "indexes on each side": STRETCHES, "results": results})


def encoder(folder: Path) -> None:
    """Save a sentence encoder that takes the mean of random word vectors, of which a topic's are alike."""
    draw = np.random.default_rng(1)
    topics = draw.standard_normal((TOPICS, 1, WIDTH))
    vectors = topics + draw.standard_normal((TOPICS, WORDS, WIDTH))
    words = Tokenizer(WordLevel({word(n): n for n in range(TOPICS * WORDS)}, unk_token=word(0)))
    words.pre_tokenizer = WhitespaceSplit()
    embedding = StaticEmbedding(words, embedding_weights=vectors.reshape(-1, WIDTH).astype(np.float32))
    SentenceTransformer(modules=[embedding], device="cpu").save(str(folder), create_model_card=False)


def word(number: int) -> str:
    return f"w{number:05}"


def corpora(work: Path, count: int) -> None:
    """Write ``count`` inputs, and their twins in another order."""
    draw = np.random.default_rng(count)
    topics = draw.integers(0, TOPICS, (count, 1))
    inputs = topics * WORDS + draw.integers(0, WORDS, (count, LENGTH))
    outputs = draw.permuted(inputs, axis=1)
    outputs[:, :2] = topics * WORDS + draw.integers(0, WORDS, (count, 2))
    order = draw.permutation(count)
    np.save(work / "order.npy", order)
    for name, texts in (("inputs", inputs), ("outputs", outputs[order])):
        with (work / f"{name}.txt").open("w", encoding="utf-8") as lines:
            lines.writelines(" ".join(map(word, text)) + "\n" for text in texts.tolist())


def one_size(work: Path, count: int, kill_at: list[str], *, compare: bool) -> dict[str, Any]:
    """Run, kill, continue, and measure; then, where wished, run again without kills and compare."""
    killed = work / f"killed-{count}"
    shutil.rmtree(killed, ignore_errors=True)
    runs = [watched(work, killed, count, stage) for stage in sorted(kill_at, key=STAGES.index)]
    runs.append(watched(work, killed, count, None))
    figures = {"runs": runs, "peak_gb": max(run["peak_gb"] for run in runs), **quality(work, killed)}
    if compare:
        alone = work / f"alone-{count}"
        shutil.rmtree(alone, ignore_errors=True)
        figures["left alone"] = watched(work, alone, count, None)
        figures["same bytes"] = hashes(alone) == hashes(killed)
        shutil.rmtree(alone)
    return figures


def watched(work: Path, out: Path, count: int, kill_at: str | None) -> dict[str, Any]:
    """Run the command, kill it in the midst of a stage, and say how long each took and how much it held."""
    lists = 64 if count < 300_000 else 1024
    command = [sys.executable, "-m", "pairsmith", "mine", "--encoder", work / "encoder", "--out", out]
    command += ["--inputs", work / "inputs.txt", "--outputs", work / "outputs.txt"]
    command += ["--index", f"IVF{lists},Flat", "--index-rows", count // STRETCHES]
    command += ["--shard-size", 5_000, "--retrieval", "max", "--dtype", "float32"]
    seconds, spent = dict.fromkeys(STAGES, 0.0), {}
    most: dict[str, dict[str, float]] = {}
    with (work / "log.txt").open("a", encoding="utf-8") as log:
        process = subprocess.Popen([*map(str, command)], stdout=log, stderr=log)
        stage, last = "inputs", time.monotonic()
        while process.poll() is None:
            time.sleep(0.05)
            stage = stage_of(out, process.pid, stage)
            now = time.monotonic()
            seconds[stage] += now - last
            last = now
            spent[stage] = processor(process.pid)
            for name, size in memory(process.pid).items():
                peaks = most.setdefault(stage, {})
                peaks[name] = max(peaks.get(name, 0), round(size / 2**20, 3))
            if stage == kill_at and well_begun(out, stage, count):
                os.kill(process.pid, signal.SIGKILL)
    code = process.wait()
    if code != (-signal.SIGKILL if kill_at else 0):
        raise SystemExit(f"exit code {code}; see {work / 'log.txt'}")
    return {
        "killed at": kill_at,
        "seconds": {
            name: round(spent_seconds, 1) for name, spent_seconds in seconds.items() if spent_seconds
        },
        "processor seconds until the end of": spent,
        "memory_gb": most,
        "peak_gb": max(held["VmRSS"] for held in most.values()),
    }


def stage_of(out: Path, pid: int, last: str) -> str:
    """The stage that a run is in, by the files that it has made."""

    def scratch(name: str) -> bool:
        file_name = re.compile(rf"\.pairsmith-{pid}-[^-]+-{name}\.tmp")
        return any(file_name.fullmatch(file.name) for file in out.glob(".pairsmith-*.tmp"))

    if last in ("choice", "rows") or (last == "candidates" and not scratch("neighbours-x")):
        return "rows" if (out / "data").is_dir() else "choice"
    if scratch("neighbours-x"):
        return "candidates"
    if scratch("x"):
        return "search" if scratch("ys") and (out / "search").is_dir() else "keys"
    return "outputs" if (out / "outputs").is_dir() else "inputs"


def well_begun(out: Path, stage: str, count: int) -> bool:
    """Whether some of the stage's work is done."""
    if stage in ("inputs", "outputs"):
        return len(list((out / stage).glob("data/*.parquet"))) > count // 5_000 // 2
    if stage == "search":
        return len(list((out / stage).glob("data/*.parquet"))) >= STRETCHES
    return True


def memory(pid: int) -> dict[str, int]:
    """Resident memory of a process and those that it started, in kB: all, and without pages of files."""
    sizes = {"VmRSS": 0, "RssAnon": 0}
    for process in tree(pid):
        try:
            lines = Path(f"/proc/{process}/status").read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            name, _, rest = line.partition(":")
            if name in sizes:
                sizes[name] += int(rest.split()[0])
    return sizes


def processor(pid: int) -> float:
    """Seconds that a processor spent on a process and those that it started."""
    ticks = 0
    for process in tree(pid):
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return round(ticks / os.sysconf("SC_CLK_TCK"), 1)


def tree(pid: int) -> Iterator[int]:
    yield pid
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return
    for child in children:
        yield from tree(int(child))


def quality(work: Path, out: Path) -> dict[str, Any]:
    """How many rows there are, and how many of them pair an input with its twin."""
    order = np.load(work / "order.npy")
    sides = []
    for name in ("inputs", "outputs"):
        with (work / f"{name}.txt").open(encoding="utf-8") as lines:
            sides.append({line.strip(): number for number, line in enumerate(lines)})
    rows = right = 0
    for file in sorted((out / "data").glob("*.parquet")):
        table = pq.read_table(file, columns=["input", "output"])
        x, y = (
            np.array([side[text] for text in table[name].to_pylist()])
            for name, side in zip(("input", "output"), sides, strict=True)
        )
        rows, right = rows + len(x), right + int((order[y] == x).sum())
    return {"rows": rows, "twins": right}


def hashes(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*.parquet"))
    }


if __name__ == "__main__":
    main()
