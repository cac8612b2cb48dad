"""What every benchmark reports beside its figures."""

import json
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch


def machine() -> dict[str, Any]:
    """Processor, threads, versions and commit."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return {
        "processor": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "commit": commit.stdout.strip(),
    }


def write(path: Path, results: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": machine(), **results}, indent=1) + "\n", encoding="utf-8")


def stsb_sentences(data: Path, count: int) -> list[str]:
    """``count`` distinct first sentences of the STS benchmark's training part, in its order; no scores."""
    with (data / "stsb" / "sts-train.csv").open(encoding="utf-8") as lines:
        sentences = dict.fromkeys(line.split("\t")[5].strip() for line in lines)
    return list(sentences)[:count]
