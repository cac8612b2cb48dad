"""Summaries by beam search in a decoder-only model: beams that share their document, and `generate` alone.

python benchmarks/beams.py --json FILE

Eight documents of about one length, six beams, 62 tokens at most; bfloat16 where the processor has it, one
thread. Each measurement is a process of its own, and both ways take turns within a round. Documents a minute
of the processor, and the program's peak memory. In float32 the summaries are the same
(`tests/models/language/test_shared_beams.py`).
"""

import argparse
import json
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from statistics import median
from time import process_time
from typing import Any

from common import measured_apart, write
from mining import SMOLLM2

DOCUMENTS = 8
WAYS = ("sharing", "generate")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default=SMOLLM2)
    parser.add_argument("--lengths", type=int, nargs="*", default=[128, 512])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", help=argparse.SUPPRESS)  # a measurement, in a process of its own
    args = parser.parse_args()
    if args.one:
        print(json.dumps(one(**json.loads(args.one))))
        return
    results: dict[str, Any] = {}
    for length in args.lengths:
        figures = measured_apart(__file__, args.rounds, WAYS, model=args.model, length=length)
        ratios = [ways["sharing"]["a minute"] / ways["generate"]["a minute"] for ways in figures["rounds"]]
        results[str(length)] = figures | {"ratio": round(median(ratios), 2)}
        print(length, results[str(length)], flush=True)
    if args.json:
        settings = {"model": args.model, "documents": DOCUMENTS, "rounds": args.rounds}
        write(args.json, {"settings": settings, "results": results})


def one(model: str, length: int, way: str) -> dict[str, float]:
    """Documents a minute and gigabytes."""
    from pairsmith.models.language import shared_beams
    from pairsmith.models.text_generator import generate_outputs, load_text_generator

    if way == "generate":
        shared_beams.can_share_beams = lambda network: False  # noqa: ARG005 - the signature of what it replaces
    summarizer = load_text_generator(model, max_length=length, dtype="auto", device="cpu")
    sentences = (
        Path(__file__).resolve().parent.parent.joinpath("examples", "sentences.txt").read_text("utf-8")
    )
    lines = sentences.splitlines()
    documents = [" ".join(lines[7 * number :]) for number in range(DOCUMENTS)]  # cut to the length
    begun = process_time()
    generate_outputs(summarizer, documents, batch_size=DOCUMENTS)
    spent = process_time() - begun
    return {"a minute": 60 * DOCUMENTS / spent, "GB": getrusage(RUSAGE_SELF).ru_maxrss / 2**20}


if __name__ == "__main__":
    main()
