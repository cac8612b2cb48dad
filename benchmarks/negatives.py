"""Time and peak memory of ``negatives``, against ``mine_hard_negatives`` of sentence-transformers with FAISS.

Synthetic texts of twelve words, a tenth as many queries, and an encoder that looks words up; one thread. With
the same settings both should find the same negatives, which is checked.

taskset -c 0 python benchmarks/negatives.py --work DIR --json FILE
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch

from common import write
from pairsmith.core.progress import Progress
from pairsmith.data.readers import text_id

WORDS = 30_000
SPECIAL = 60
"""Words of a topic; a text has seven of one topic and five of all words."""
COUNT, RANKS, SHARE = 5, 50, 0.95
"""Negatives of a query, the ranks from which they are taken, and their highest score."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--work", type=Path, required=True, help="a folder on a disk; 3 GB for a million texts"
    )
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--texts", type=int, nargs="*", default=[1_000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--width", type=int, default=128, help="numbers in a vector")
    parser.add_argument("--seconds", type=int, default=2_400, help="each run is ended after so long")
    parser.add_argument("--only", choices=["ours", "theirs"])
    parser.add_argument("--run", choices=["ours", "theirs"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    if args.run:
        (count,) = args.texts
        encoder = args.work / f"encoder-{args.width}"
        figures = {"ours": ours, "theirs": theirs}[args.run](encoder, args.work / str(count))
        figures["peak_gb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 3)
        print(json.dumps(figures))
        return
    args.work.mkdir(parents=True, exist_ok=True)
    make_encoder(args.work / f"encoder-{args.width}", args.width)
    results: dict[str, Any] = {}
    for count in args.texts:
        make_texts(args.work / str(count), count)
        of_size = results[str(count)] = {"queries": count // 10}
        for name in [args.only] if args.only else ["ours", "theirs"]:
            command = [sys.executable, __file__, "--run", name, "--texts", count, "--width", args.width]
            of_size[name] = timed(
                [*map(str, command), "--work", str(args.work), "--json", str(args.json)], args.seconds
            )
            print(count, name, of_size[name], flush=True)
        if all((args.work / str(count) / f"{name}.json").is_file() for name in ("ours", "theirs")):
            of_size |= in_common(args.work / str(count))
        print(count, of_size, flush=True)
        write(
            args.json,
            {"width": args.width, "negatives": COUNT, "ranks": RANKS, "share": SHARE, "results": results},
        )


def timed(command: list[str], seconds: int) -> dict[str, Any]:
    """What a run prints, or how it ended."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return {"ended": f"not within {seconds} s"}
    if done.returncode:
        return {"ended": f"exit code {done.returncode}"}
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def make_encoder(folder: Path, width: int) -> None:
    """Save an encoder whose vector of a text is the mean of its words' random vectors."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer, models, pre_tokenizers

    if folder.is_dir():
        return
    vocabulary = {word(number): number for number in range(WORDS)} | {"[UNK]": WORDS}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    weights = np.random.default_rng(0).standard_normal((WORDS + 1, width)).astype(np.float32)
    module = StaticEmbedding(tokenizer, embedding_weights=weights)
    SentenceTransformer(modules=[module], device="cpu").save(str(folder))


def word(number: int) -> str:
    return f"w{number}"


def make_texts(folder: Path, count: int) -> None:
    """Write a corpus, and pairs of a query and a text of it, from which the query has five words."""
    if (folder / "pairs.jsonl").is_file():
        return
    folder.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(count)
    with (folder / "corpus.jsonl").open("w") as corpus, (folder / "pairs.tmp").open("w") as pairs:
        for number in range(count):
            topic = int(draw.integers(0, max(10, count // 200)))
            special = np.random.default_rng(topic).integers(0, WORDS, SPECIAL)
            words = [*draw.choice(special, 7), *draw.integers(0, WORDS, 5)]
            text = " ".join(map(word, draw.permutation(words).tolist()))
            corpus.write(json.dumps({"text": text}) + "\n")
            if number % 10 == 0:
                numbers = [*draw.choice(words, 5, replace=False), *draw.integers(0, WORDS, 2)]
                query = " ".join(map(word, map(int, numbers)))
                pairs.write(json.dumps({"query": query, "positive": text}) + "\n")
    (folder / "pairs.tmp").rename(folder / "pairs.jsonl")


def ours(encoder: Path, folder: Path) -> dict[str, Any]:
    """The step, as the command runs it; libraries are loaded before."""
    import pairsmith.models.sentence_encoder  # noqa: F401
    from pairsmith.runs import Run
    from pairsmith.steps.negatives.route import negatives
    from pairsmith.steps.negatives.settings import NegativesSettings

    torch.set_num_threads(1)
    settings = NegativesSettings(
        pairs=str(folder / "pairs.jsonl"),
        corpus=[str(folder / "corpus.jsonl")],
        encoder=str(encoder),
        negatives=COUNT,
        last_rank=RANKS,
        positive_share=SHARE,
        dtype="float32",
        shard_size=20_000,
    )
    shutil.rmtree(folder / "out", ignore_errors=True)
    begun, spent = perf_counter(), process_time()
    dataset = negatives(settings, Run(folder / "out", Progress()))
    seconds, processor = perf_counter() - begun, process_time() - spent
    rows = (row for table in dataset.batches("train") for row in table.to_pylist())
    save(folder / "ours.json", ((row["query_id"], row["negative_ids"]) for row in rows))
    shutil.rmtree(folder / "out")
    return {"seconds": round(seconds, 1), "processor": round(processor, 1), "rows": dataset.rows}


def theirs(encoder: Path, folder: Path) -> dict[str, Any]:
    """The function of sentence-transformers on lists of the same texts."""
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.util import mine_hard_negatives

    torch.set_num_threads(1)
    begun, spent = perf_counter(), process_time()
    lines = (folder / "pairs.jsonl").read_text().splitlines()
    corpus = [json.loads(line)["text"] for line in (folder / "corpus.jsonl").read_text().splitlines()]
    rows = mine_hard_negatives(
        Dataset.from_list([json.loads(line) for line in lines]),
        SentenceTransformer(str(encoder), device="cpu"),
        anchor_column_name="query",
        positive_column_name="positive",
        corpus=corpus,
        range_max=RANKS,
        relative_margin=1 - SHARE,
        num_negatives=COUNT,
        batch_size=1_024,
        use_faiss=True,
        output_format="labeled-list",
        output_scores=True,
        verbose=False,
    )
    seconds, processor = perf_counter() - begun, process_time() - spent
    save(
        folder / "theirs.json",
        ((text_id(row["query"]), [text_id(text) for text in row["positive"][1:]]) for row in rows),
    )
    return {"seconds": round(seconds, 1), "processor": round(processor, 1), "rows": len(rows)}


def save(file: Path, rows: Iterator[tuple[str, list[str]]]) -> None:
    file.write_text(json.dumps(dict(rows)))


def in_common(folder: Path) -> dict[str, Any]:
    """How many queries have the same negatives in the same order, and the share of negatives in common."""
    one, other = (json.loads((folder / f"{name}.json").read_text()) for name in ("ours", "theirs"))
    both = one.keys() & other.keys()
    shared = sum(len(set(one[query]) & set(other[query])) for query in both)
    return {
        "queries with negatives": {"ours": len(one), "theirs": len(other)},
        "queries with the same negatives": sum(one[query] == other[query] for query in both),
        "negatives in common": round(shared / max(1, sum(map(len, other.values()))), 6),
    }


if __name__ == "__main__":
    main()
