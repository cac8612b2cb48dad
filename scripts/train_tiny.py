"""Train ``pairsmith:tiny``, the small causal LM that ships with pairsmith.

    python scripts/train_tiny.py --data DATA --out src/pairsmith/models/tiny --tokens 20000000 --seed 1

Documents are packed into rows; a row's documents do not see each other and each starts at
position 0, as a prompt does. Writes the model as fp16 safetensors, its tokenizer, and
``training.json`` (loss curve, time).
"""

import argparse
import json
import math
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from tiny_corpus import documents

END = "<|endoftext|>"
HELD_OUT = 400


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the source texts")
    parser.add_argument("--out", type=Path, required=True, help="folder the model is written to")
    parser.add_argument("--tokens", type=int, default=20_000_000, help="tokens trained on")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--vocab", type=int, default=4096)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--rows", type=int, default=24, help="packed rows of --context tokens in a step")
    parser.add_argument("--lr", type=float, default=3e-3, help="peak learning rate")
    parser.add_argument("--stop-after", type=int, help="stop early, after this many steps (to try settings)")
    return parser.parse_args()


def train_tokenizer(texts: Iterable[str], vocab: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE of ``vocab`` tokens in the manner of GPT-2."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, bos_token=END, unk_token=END)


def pack(encoded: Iterator[list[int]], context: int, end: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows of ``context`` tokens and the number (1, 2, …) of the document each belongs to.

    A document that does not fit into the rest of a row starts the next one; the rest is padding
    of document 0.
    """
    row, owner = np.full(context, end), np.zeros(context, dtype=np.int64)
    used, number = 0, 0
    for tokens in encoded:
        tokens = [*tokens, end][:context]
        if used + len(tokens) > context:
            yield row, owner
            row, owner = np.full(context, end), np.zeros(context, dtype=np.int64)
            used, number = 0, 0
        number += 1
        row[used : used + len(tokens)] = tokens
        owner[used : used + len(tokens)] = number
        used += len(tokens)


def batch(rows: list[tuple[np.ndarray, np.ndarray]]) -> tuple[torch.Tensor, ...]:
    """Inputs, positions, attention mask and targets of packed rows.

    Shapes ``(rows, context)`` int64 for inputs, positions and targets (-100: no loss), and
    ``(rows, 1, context, context)`` bool for the mask.
    """
    tokens = torch.from_numpy(np.stack([row for row, _ in rows]))
    owner = torch.from_numpy(np.stack([owner for _, owner in rows]))
    length = tokens.shape[1]
    starts = torch.ones_like(owner, dtype=torch.bool)
    starts[:, 1:] = owner[:, 1:] != owner[:, :-1]
    index = torch.arange(length).expand_as(tokens)
    positions = index - torch.where(starts, index, 0).cummax(dim=1).values
    mask = (owner[:, :, None] == owner[:, None, :]).tril()[:, None]
    targets = torch.full_like(tokens, -100)
    inside = (owner[:, 1:] == owner[:, :-1]) & (owner[:, 1:] > 0)
    targets[:, :-1][inside] = tokens[:, 1:][inside]
    return tokens, positions, mask, targets


def schedule(step: int, steps: int) -> float:
    """Share of the peak learning rate: a short rise, a plateau, a linear fall over the last half."""
    return min(1.0, (step + 1) / (0.02 * steps + 1), 2.0 * (steps - step) / steps)


def optimizers(model: GPT2LMHeadModel, lr: float) -> list[torch.optim.Optimizer]:
    """Muon for the blocks' matrices, AdamW for the rest.

    After 100 steps the held-out loss was 4.33, against 4.58 with AdamW for all.
    """
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and ".h." in name]
    chosen = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in chosen]
    groups = [
        {"params": [p for p in rest if p.ndim == 2], "weight_decay": 0.1},
        {"params": [p for p in rest if p.ndim != 2], "weight_decay": 0.0},
    ]
    return [
        torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95)),
        torch.optim.Muon(matrices, lr=lr, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
    ]


def main() -> None:
    args = arguments()
    torch.manual_seed(args.seed)
    texts = documents(args.data, count=10**9, seed=args.seed)
    sample = list(islice(texts, 40_000))
    tokenizer = train_tokenizer(sample, args.vocab)
    end = tokenizer.eos_token_id

    def encoded() -> Iterator[list[int]]:
        yield from tokenizer(sample[HELD_OUT:])["input_ids"]
        while chunk := list(islice(texts, 2000)):
            yield from tokenizer(chunk)["input_ids"]

    held_out = batch(list(pack(iter(tokenizer(sample[:HELD_OUT])["input_ids"]), args.context, end)))
    rows = pack(encoded(), args.context, end)
    config = GPT2Config(
        vocab_size=args.vocab, n_positions=args.context, n_embd=args.width, n_layer=args.layers,
        n_head=args.width // 64, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        bos_token_id=end, eos_token_id=end,
    )  # fmt: skip
    model = GPT2LMHeadModel(config)

    def loss_of(
        tokens: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor, targets: torch.Tensor
    ) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(
                input_ids=tokens, position_ids=positions, attention_mask=mask, use_cache=False
            ).logits
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())

    compiled = torch.compile(loss_of)
    opts = optimizers(model, args.lr)
    steps = args.tokens // (args.rows * args.context)
    curve: list[dict[str, float]] = []
    begun = time.monotonic()
    smooth = math.nan
    for step in range(steps):
        for opt in opts:
            for group in opt.param_groups:
                group["lr"] = args.lr * schedule(step, steps)
        loss = compiled(*batch(list(islice(rows, args.rows))))
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for opt in opts:
            opt.step()
            opt.zero_grad(set_to_none=True)
        value = loss.item()
        smooth = value if math.isnan(smooth) else 0.98 * smooth + 0.02 * value
        if step % 100 == 0 or step == steps - 1:
            with torch.no_grad():
                held = loss_of(*held_out).item()
            seconds = time.monotonic() - begun
            curve.append(
                {
                    "step": step,
                    "train": round(smooth, 4),
                    "held_out": round(held, 4),
                    "seconds": round(seconds, 1),
                }
            )
            rate = (step + 1) * args.rows * args.context / seconds
            print(
                f"step {step}/{steps} train {smooth:.3f} held-out {held:.3f} {rate:,.0f} tokens/s", flush=True
            )
        if step % 500 == 499:
            save(model, tokenizer, args.out, curve)
        if args.stop_after and step >= args.stop_after:
            return
    save(model, tokenizer, args.out, curve)


def save(
    model: GPT2LMHeadModel, tokenizer: PreTrainedTokenizerFast, out: Path, curve: list[dict[str, float]]
) -> None:
    out.mkdir(parents=True, exist_ok=True)
    half = GPT2LMHeadModel(model.config)
    half.load_state_dict(model.state_dict())
    half.half().save_pretrained(out)
    tokenizer.save_pretrained(out)
    parameters = sum(p.numel() for p in model.parameters())
    facts = {"parameters": parameters, "curve": curve}
    (out / "training.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
