"""Do earlier commits compute the same as this one? Rows, weights and figures of small runs of most commands.

    python benchmarks/unchanged.py --since REV [REV ...] --work DIR --json FILE

The programs of each commit and of the working tree run the commands of small_commands.py, on one thread and
in fixed number formats, with MiniLM, SmolLM2 and its first six layers. Each command reads what earlier
commands of its own commit wrote, so a difference also shows in the commands after it. DIR keeps what was run:
a second start runs only the commands that are missing there, or with --only those of them that are named,
and compares all. After a change of the working tree give another DIR.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch
from safetensors.torch import load_file

from common import write
from same_rows import EXAMPLES
from small_commands import COMMANDS, write_inputs, write_six_layers

COMPARED = ("*.parquet", "*.safetensors", "results.json", "predictions.jsonl")
SHOWN = 8
"""How many of the values that differ are named."""

# Runs the commands of a JSON text, {name: words}, in one process: torch is imported once for all.
# The output of each goes to NAME.log, its exit code to NAME.exit.
RUNNER = """
import json, sys, traceback
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from pairsmith.cli.app import main
for name, words in json.loads(sys.argv[1]).items():
    code = 0
    with open(name + ".log", "w") as log, redirect_stdout(log), redirect_stderr(log):
        try:
            main(words)
        except SystemExit as end:
            code = end.code or 0
        except Exception:
            traceback.print_exc()
            code = 1
    Path(name + ".exit").write_text(str(code))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--since", nargs="+", required=True, help="commits to compare with")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=list(COMMANDS), choices=list(COMMANDS))
    args = parser.parse_args()
    work = args.work.resolve()
    present = work / "present"
    write_six_layers(work / "smollm2-six")
    if any(refusals := run_all(EXAMPLES.parent / "src", present, args.only).values()):
        raise SystemExit(f"the working tree refuses a command: {' '.join(refusals)}")
    compared = {name: amounts(present / name) for name in COMMANDS if (present / name).is_dir()}
    results: dict[str, dict[str, Any]] = {}
    for commit in args.since:
        folder = work / commit
        results[commit] = {
            name: {"refused": refusal} if refusal else verdict(folder / name, present / name)
            for name, refusal in run_all(source(commit, folder), folder, args.only).items()
        }
        write(args.json, {"commands": COMMANDS, "compared": compared, "results": results})
        others = {name: found for name, found in results[commit].items() if found != "same"}
        print(commit, others or "all the same", flush=True)


def source(commit: str, folder: Path) -> Path:
    """The folder ``src`` of a commit, unpacked into ``folder``."""
    if not (folder / "src").is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        archive = subprocess.run(
            ["git", "archive", commit, "src"], cwd=EXAMPLES.parent, capture_output=True, check=True
        )
        subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder / "src"


def run_all(source: Path, folder: Path, names: list[str]) -> dict[str, str]:
    """Run commands in ``folder`` with the program in ``source``, and say why each that ever ran there failed.

    The reason is the last line of its output; it is empty for commands that did not fail.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_inputs(folder)
    codes = {name: folder / f"{name}.exit" for name in COMMANDS}
    words = {
        name: [*COMMANDS[name].split(), "--quiet", "--out", name]
        for name in names
        if not codes[name].is_file()
    }
    if words:
        environment = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(source)}
        runner = [sys.executable, "-c", RUNNER, json.dumps(words)]
        subprocess.run(runner, cwd=folder, check=True, env={**os.environ, **environment})
    ran = {name: code.read_text(encoding="utf-8") for name, code in codes.items() if code.is_file()}
    logs = {name: (folder / f"{name}.log").read_text(encoding="utf-8") for name in ran}
    return {name: "" if code == "0" else logs[name].strip().splitlines()[-1] for name, code in ran.items()}


def files(folder: Path) -> dict[str, list[Path]]:
    """The files that are compared, by their places in ``folder``; those of several shards stand together."""
    places: dict[str, list[Path]] = {}
    for path in sorted(path for pattern in COMPARED for path in folder.rglob(pattern)):
        name = re.sub(r"-\d+(?=\.parquet$)", "", path.relative_to(folder).as_posix())
        places.setdefault(name, []).append(path)
    return places


def content(paths: list[Path]) -> Any:
    """The rows, tensors or figures of a file, or of the files of several shards."""
    path = paths[0]
    if path.suffix == ".parquet":
        return [row for shard in paths for row in pq.read_table(shard).to_pylist()]
    if path.suffix == ".safetensors":
        return load_file(path)
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()]
    figures = json.loads(text)
    figures.pop("about", None)  # the settings, and hashes of models and data
    return figures


def amounts(folder: Path) -> dict[str, int]:
    """The number of values by file."""
    return {name: len(list(leaves(content(paths)))) for name, paths in files(folder).items()}


def leaves(value: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """Each value that is compared, a text, number or tensor, with its keys and positions."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, f"{where}.{key}")
    else:
        yield where, value


def verdict(old: Path, new: Path) -> Any:
    """What differs in each file, or the word same."""
    before, after = files(old), files(new)
    differing: dict[str, Any] = {
        name: "only earlier" if name in before else "only now"
        for name in sorted(before.keys() ^ after.keys())
    }
    for name in sorted(before.keys() & after.keys()):
        if [path.read_bytes() for path in before[name]] != [path.read_bytes() for path in after[name]]:
            difference = differences(dict(leaves(content(before[name]))), dict(leaves(content(after[name]))))
            differing |= {name: difference} if difference else {}
    return {"differs": differing} if differing else "same"


def differences(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """What only one side has, how many values differ, the first of them, and by how much; empty if none."""
    changed = [key for key in old if key in new and not equal(old[key], new[key])]
    distances = [distance(old[key], new[key]) for key in changed]
    numbers = [value for value in distances if value is not None]
    found = {
        "only earlier": sorted(old.keys() - new.keys())[:SHOWN],
        "only now": sorted(new.keys() - old.keys())[:SHOWN],
        "values that differ": len(changed),
        "first": changed[:SHOWN],
        "largest difference": max(numbers, default=0.0),
    }
    return {key: value for key, value in found.items() if value}


def equal(old: Any, new: Any) -> bool:
    if isinstance(old, torch.Tensor):
        return torch.equal(old, new)
    return bool(old == new or (old != old and new != new))  # not a number is unequal to itself


def distance(old: Any, new: Any) -> float | None:
    """The largest absolute difference of two numbers or two tensors of a shape; None for other values."""
    if isinstance(old, torch.Tensor):
        return float((old.double() - new.double()).abs().max()) if old.shape == new.shape else None
    if isinstance(old, int | float) and isinstance(new, int | float):
        return abs(float(old) - float(new))
    return None


if __name__ == "__main__":
    main()
