"""What a GPU does faster: the exact search of both ways, and decoding.

python benchmarks/gpu.py --json FILE

Search: ours on the GPU against ours on the processor, and against products in float32 and ``topk`` of torch,
each way by itself. Decoding: a model of GPT-2's shape with random weights, by the number of rows at once.
"""

import argparse
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from common import write
from decoding import SAMPLING, first_texts, groups_of
from decoding_models import build
from pairsmith.data.tasks import load_task
from pairsmith.methods.dino.requests import pair_requests
from pairsmith.models.language.combine import self_debias
from pairsmith.models.language.decoder import MultiPromptDecoder
from search import random_vectors

K = 4
GPU = torch.device("cuda")
BATCHES = ((64, 100.0, 1024), (240, 100.0, 1024), (240, 100.0, 4096), (240, 0.0, 1024), (240, 0.0, 2048))
"""First texts, decay and rows at once."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--vectors", type=int, nargs="*", default=[20_000, 100_000, 1_000_000])
    parser.add_argument("--compared", type=int, default=100_000, help="The most vectors to compare with.")
    args = parser.parse_args()
    results = {"decoding": decoding(), "search": {n: search(n, n <= args.compared) for n in args.vectors}}
    print(results)
    if args.json:
        write(args.json, {"settings": vars(args) | {"json": None}, "results": results})


def search(count: int, compared: bool) -> dict[str, Any]:
    """Seconds of searches both ways, and whether ours is the same on both devices, bit for bit."""
    x, y = random_vectors(count, 1), random_vectors(count, 2)
    two_way(x[:20_000], y[:20_000], GPU)  # a first time wakes the libraries up
    figures: dict[str, Any] = {}
    figures["ours on the GPU"], on_gpu = seconds(partial(two_way, x, y, GPU))
    if compared:
        figures["ours on the processor"], usual = seconds(partial(two_way, x, y, torch.device("cpu")))
        figures["the same"] = all(map(torch.equal, on_gpu, usual))
        figures["torch on the GPU"], _ = seconds(partial(by_torch, x, y))
    return figures


def two_way(x: Tensor, y: Tensor, device: torch.device) -> list[Tensor]:
    from pairsmith.search.exact import two_way_search

    return [
        part
        for nearest in two_way_search(x, y, K, device=device)
        for part in (nearest.ids, nearest.similarities)
    ]


def by_torch(x: Tensor, y: Tensor) -> list[Tensor]:
    """All products in float32, twice, and the largest of each row."""
    x, y = x.to(GPU), y.to(GPU)
    return [
        torch.cat([(part @ other.T).topk(K).indices.cpu() for part in torch.split(one, 4096)])
        for one, other in ((x, y), (y, x))
    ]


def decoding() -> dict[str, Any]:
    """Texts per second."""
    _, model = build("gpt2", torch.bfloat16, "cuda")
    written(model, 16, 100.0, 256)
    figures = {}
    for inputs, decay, rows in BATCHES:
        took, texts = seconds(partial(written, model, inputs, decay, rows))
        figures[f"{inputs} first texts, decay {decay:g}, {rows} rows"] = round(texts / took, 1)
    return figures


def written(model: Any, inputs: int, decay: float, rows: int) -> int:
    """The number of texts written."""
    requests = list(pair_requests(load_task("sts"), first_texts(inputs), 2))
    groups = groups_of(model, requests, counters=decay > 0)
    prompts = [prompt for group in groups for prompt in group.prompts]
    rule = partial(self_debias, decay=decay, floor=0.01)
    decoder = MultiPromptDecoder(model, rule, SAMPLING, 1, prompts, rows)
    for group in groups:
        decoder.add(group)
    return len(list(decoder.finished()))


def seconds(work: Any) -> tuple[float, Any]:
    """Seconds, and what came."""
    begun = perf_counter()
    result = work()
    torch.cuda.synchronize()
    return round(perf_counter() - begun, 3), result


if __name__ == "__main__":
    main()
