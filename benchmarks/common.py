"""What every benchmark reports beside its figures."""

import json
import platform
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch

from pairsmith.core.model_files import multiplies_fast


def machine() -> dict[str, Any]:
    """Processor and GPU, whether the former multiplies bfloat16 fast, threads, versions and commit."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return {
        "processor": processor(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "bfloat16": multiplies_fast("bfloat16", "cpu"),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "commit": commit.stdout.strip(),
    }


def processor() -> str:
    """Its name where the system says it, else its kind."""
    about = Path("/proc/cpuinfo")
    lines = about.read_text().splitlines() if about.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def measured_apart(script: str, rounds: int, ways: Sequence[str], **given: object) -> dict[str, Any]:
    """The median of each figure by way, and each round; all ways take turns in a round.

    Each measurement is a process of its own: ``script --one JSON`` prints its figures as JSON, for the given
    values and the ``way``.
    """
    every: list[dict[str, dict[str, float]]] = []
    for _ in range(rounds):
        figures = {}
        for way in ways:
            command = [sys.executable, script, "--one", json.dumps(given | {"way": way})]
            figures[way] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        every.append(figures)
    medians = {
        way: {name: round(median(figures[way][name] for figures in every), 3) for name in every[0][way]}
        for way in ways
    }
    return medians | {"rounds": every}


def write(path: Path, results: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": machine(), **results}, indent=1) + "\n", encoding="utf-8")


class Figures:
    """The figures in a JSON file; a second start with the same settings adds those that are missing."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        """Read the file, if there is one; it must have been begun with the same ``settings``."""
        begun = json.loads(path.read_text()) if path.is_file() else {"settings": settings, "results": {}}
        if begun["settings"] != settings:
            raise SystemExit(f"{path} was begun with {begun['settings']}, not {settings}; name another file")
        self._path, self._settings = path, settings
        self.results: dict[str, Any] = begun["results"]

    def keep(self, *names: str, figures: Any) -> None:
        """Write the figures under these names, each a key in the mapping under the one before."""
        group = self.results
        for name in names[:-1]:
            group = group.setdefault(name, {})
        group[names[-1]] = figures
        print(*names, figures, flush=True)
        write(self._path, {"settings": self._settings, "results": self.results})

    def missing(self, *names: str) -> bool:
        """Whether there are no figures under these names."""
        group = self.results
        for name in names:
            group = group.get(name, {})
        return not group


def begun_with(pairs: Path) -> int | None:
    """The shard size of a folder that was begun earlier; another would be refused."""
    manifest = pairs / "manifest.json"
    return json.loads(manifest.read_text())["settings"]["shard_size"] if manifest.is_file() else None


def stsb_both_columns(data: Path, count: int) -> list[str]:
    """``count`` distinct sentences of both columns of STSb's training part, in a fixed random order."""
    with (data / "stsb" / "sts-train.csv").open(encoding="utf-8") as lines:
        rows = [line.rstrip("\n").split("\t") for line in lines]
    sentences = list(dict.fromkeys(text.strip() for row in rows for text in row[5:7]))
    random.Random(0).shuffle(sentences)
    return sentences[:count]


def stsb_sentences(data: Path, count: int) -> list[str]:
    """``count`` distinct first sentences of the STS benchmark's training part, in its order; no scores."""
    with (data / "stsb" / "sts-train.csv").open(encoding="utf-8") as lines:
        sentences = dict.fromkeys(line.split("\t")[5].strip() for line in lines)
    return list(sentences)[:count]
