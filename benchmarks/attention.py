"""A training step with attention in full and block by block: processor time and peak memory, by length.

python benchmarks/attention.py --json FILE

Some 2,048 tokens a step in texts of one length, bfloat16 where the processor has it, without dropout of
attention weights. Each measurement is a process of its own; both ways in turns within a round.
"""

import argparse
import json
from pathlib import Path
from time import process_time
from typing import Any

from common import measured_apart, write
from mining import MINILM, SMOLLM2

TOKENS = 2_048
WAYS = ("in full", "block by block")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="*", default=[MINILM, SMOLLM2])
    parser.add_argument("--lengths", type=int, nargs="*", default=[64, 128, 256, 512, 1_024, 2_048])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", help=argparse.SUPPRESS)  # a measurement, in a process of its own
    args = parser.parse_args()
    if args.one:
        print(json.dumps(one(**json.loads(args.one))))
        return
    results: dict[str, Any] = {}
    for model in args.models:
        for length in args.lengths:
            if model == MINILM and length > 512:  # it reads no more
                continue
            figures = measured_apart(__file__, args.rounds, WAYS, model=model, length=length)
            results.setdefault(model, {})[str(length)] = figures
            print(model, length, figures, flush=True)
    if args.json:
        write(args.json, {"settings": {"tokens": TOKENS, "rounds": args.rounds}, "results": results})


def one(model: str, length: int, way: str) -> dict[str, float]:
    """Processor seconds of the fastest of three steps, and peak memory in gigabytes."""
    import torch
    from transformers import AutoModel

    from pairsmith.core.model_files import pick_dtype
    from pairsmith.core.model_names import resolve_model
    from pairsmith.runs.estimate import peak_memory
    from pairsmith.training import quick

    quick.LONG = 10**9 if way == "in full" else 0
    network = AutoModel.from_pretrained(resolve_model(model), dtype=torch.float32).train()
    quick.set_attention_dropout(network, 0.0)
    dtype = getattr(torch, pick_dtype("auto", "cpu"))
    tokens = torch.randint(1_000, 20_000, (max(1, TOKENS // length), length))
    mask = torch.ones_like(tokens)
    mask[0, -(length // 8) :] = 0
    spent = []
    with quick.quick_training(network, "cpu"), torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        for _ in range(3):
            begun = process_time()
            network(
                input_ids=tokens, attention_mask=mask
            ).last_hidden_state.float().square().mean().backward()
            spent.append(process_time() - begun)
            network.zero_grad(set_to_none=True)
    return {"seconds": min(spent), "gigabytes": peak_memory() / 1e9}


if __name__ == "__main__":
    main()
