"""How long a person waits for the help: starts of the command line, and of Python alone beside it.

On a busy machine the seconds grow with what else it does; those of the processor hardly do.

python benchmarks/help.py --json FILE
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

from common import write

COMMANDS = {
    "pairsmith --help": ["-m", "pairsmith", "--help"],
    "pairsmith generate --help": ["-m", "pairsmith", "generate", "--help"],
    "python alone": ["-c", "pass"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--starts", type=int, default=20)
    args = parser.parse_args()
    load = os.getloadavg()[0]  # how busy the machine was with other things
    for command in COMMANDS.values():
        seconds_of(command)  # once for the disk's cache and the compiled modules
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    processor: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(args.starts):  # in turns, so that what else the machine does meets all alike
        for name, command in COMMANDS.items():
            elapsed, computed = seconds_of(command)
            seconds[name].append(round(elapsed, 4))
            processor[name].append(round(computed, 4))
    medians = {
        what: {name: round(statistics.median(seconds), 3) for name, seconds in figures.items()}
        for what, figures in (("seconds", seconds), ("processor seconds", processor))
    }
    print(medians)
    if args.json:
        write(args.json, {"load before": round(load, 2), "medians": medians, "seconds": seconds})


def seconds_of(arguments: list[str]) -> tuple[float, float]:
    """Seconds from the start of a Python to its end, and those that a processor worked for it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    elapsed = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return elapsed, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
