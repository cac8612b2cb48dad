"""How fast models are trained: ours, and the trainers of sentence-transformers on the same data.

    python benchmarks/training.py --json FILE

Scored pairs of ``examples/`` train an encoder by cosine regression and a cross-encoder by binary
cross-entropy, in batches of 32, each of these once by our training and once by the library's trainer at its
defaults, and with its bf16 on. Both see the same pairs in the same order. The first steps are left out, as
memory is not warm yet. A share of the matrix rate is the arithmetic of the real tokens (6 operations for each
weight of the layers and token, 12 for each width and pair of tokens in a text), divided by time and by the
fastest of some large products in the same run.
"""

import argparse
import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import pyarrow as pa
import torch
from datasets import Dataset
from sentence_transformers import (
    CrossEncoder,
    CrossEncoderTrainer,
    CrossEncoderTrainingArguments,
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss
from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss
from transformers import TrainerCallback

from common import write
from pairsmith.core.model_names import resolve_model
from pairsmith.core.progress import Silent, Task
from pairsmith.data.examples import Example
from pairsmith.methods.dino.encoder import train_encoder_on
from pairsmith.methods.mining.crossencoder import train_crossencoder_on
from pairsmith.models.sentence_encoder import load_sentence_encoder
from pairsmith.training.encoder_settings import TrainEncoderSettings
from pairsmith.training.settings import TrainCrossencoderSettings

BATCH = 32
WARM = 3
MODELS = {"SmolLM2-135M": "embedded:smollm2-135m-instruct", "MiniLM-L6": "embedded:all-minilm-l6-v2"}
EXAMPLES = Path(__file__).parent.parent / "examples"

AS_USUAL: dict[str, Any] = {
    "output_dir": "/tmp/theirs",
    "per_device_train_batch_size": BATCH,
    "use_cpu": True,
    "save_strategy": "no",
    "report_to": "none",
    "disable_tqdm": True,
    "logging_strategy": "no",
}
"""What the library's trainers are given besides; nothing that changes what they learn."""

Pair = tuple[str, str, float]


class Watch(Silent):
    """Notes the time of each step of our trainings."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def draw(self, bar: Task) -> None:  # noqa: ARG002 - the signature of Progress
        """Note the time."""
        self.times.append(perf_counter())


class Clock(TrainerCallback):  # type: ignore[misc]  # transformers has no types for it
    """Notes the time of each step of the library's trainings."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Note the time."""
        self.times.append(perf_counter())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--kinds", nargs="+", default=["encoder", "cross-encoder"])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only-ours", action="store_true")
    args = parser.parse_args()
    pairs = read_pairs(args.steps * BATCH)
    found: dict[str, Any] = {}
    for kind in args.kinds:
        for name in args.models:
            if kind == "cross-encoder" and name != "MiniLM-L6":
                continue  # decoder-only cross-encoders are not taken by either
            ways = WAYS[kind] if not args.only_ours else {"ours": WAYS[kind]["ours"]}
            rounds: list[dict[str, Any]] = []
            for _ in range(args.rounds):
                rate = matrix_rate()
                seconds = {
                    way: step_seconds(train(MODELS[name], pairs, args.steps)) for way, train in ways.items()
                }
                work = arithmetic(MODELS[name], kind, pairs, args.steps)
                share = {
                    f"share of the bf16 rate, {way}": work / each / rate for way, each in seconds.items()
                }
                rounds.append({"bf16 rate in GFLOP/s": rate / 1e9, "seconds a step": seconds, **share})
                print(kind, name, rounds[-1], flush=True)
            ratios = {
                way: median(each["seconds a step"][way] / each["seconds a step"]["ours"] for each in rounds)
                for way in ways
            }
            found[f"{kind}, {name}"] = {"rounds": rounds, "times ours": ratios}
            write(args.json, {"batch": BATCH, "steps": args.steps, "trainings": found})


def read_pairs(count: int) -> list[Pair]:
    """Scored pairs, over and over, in a fixed random order."""
    lines = (EXAMPLES / "graded-pairs.tsv").read_text(encoding="utf-8").splitlines()[1:]
    rows = [line.split("\t") for line in lines]
    pairs = [(one, other, float(score) / 5) for one, other, score in rows]
    chance = random.Random(0)
    return [chance.choice(pairs) for _ in range(count)]


def ours_encoder(model: str, pairs: Sequence[Pair], steps: int) -> list[float]:
    watch = Watch()
    columns = zip(*pairs, strict=True)
    table = pa.table(dict(zip(("sentence1", "sentence2", "score"), map(list, columns), strict=True)))
    settings = TrainEncoderSettings(
        base=model, data="-", batch_size=BATCH, max_steps=steps, attention_dropout=None, seed=1
    )
    train_encoder_on(load_sentence_encoder(model, device="cpu"), table, None, settings, progress=watch)
    return watch.times


def theirs_encoder(model: str, pairs: Sequence[Pair], steps: int, bf16: bool) -> list[float]:
    encoder: SentenceTransformer = load_sentence_encoder(model, device="cpu")
    columns = dict(zip(("sentence1", "sentence2", "score"), map(list, zip(*pairs, strict=True)), strict=True))
    clock = Clock()
    arguments = SentenceTransformerTrainingArguments(max_steps=steps, bf16=bf16, **AS_USUAL)
    SentenceTransformerTrainer(
        encoder,
        arguments,
        train_dataset=Dataset.from_dict(columns),
        loss=CosineSimilarityLoss(encoder),
        callbacks=[clock],
    ).train()
    return clock.times


def ours_cross_encoder(model: str, pairs: Sequence[Pair], steps: int) -> list[float]:
    watch = Watch()
    seeds = [Example(one, other, score=score) for one, other, score in pairs]
    settings = TrainCrossencoderSettings(
        base=model, kind="scored", seeds="-", batch_size=BATCH, steps=steps, learning_rate=[3e-5]
    )
    train_crossencoder_on(seeds, (), None, settings, "cpu", progress=watch)
    return watch.times


def theirs_cross_encoder(model: str, pairs: Sequence[Pair], steps: int, bf16: bool) -> list[float]:
    cross = CrossEncoder(resolve_model(model), num_labels=1, device="cpu")
    columns = dict(zip(("sentence1", "sentence2", "label"), map(list, zip(*pairs, strict=True)), strict=True))
    clock = Clock()
    arguments = CrossEncoderTrainingArguments(max_steps=steps, bf16=bf16, **AS_USUAL)
    CrossEncoderTrainer(
        cross,
        arguments,
        train_dataset=Dataset.from_dict(columns),
        loss=BinaryCrossEntropyLoss(cross),
        callbacks=[clock],
    ).train()
    return clock.times


def step_seconds(times: Sequence[float]) -> float:
    """The median time of a step, without the first ones."""
    return median(after - before for before, after in zip(times[WARM:-1], times[WARM + 1 :], strict=True))


def arithmetic(model: str, kind: str, pairs: Sequence[Pair], steps: int) -> float:
    """Operations of a step's forward and backward pass on real tokens, in the mean of the steps."""
    encoder = load_sentence_encoder(model, device="cpu")
    transformer: Any = encoder[0].auto_model
    weights = sum(
        weight.numel() for name, weight in transformer.named_parameters() if "embed" not in name.lower()
    )
    config = transformer.config
    tokenize: Callable[..., Any] = encoder.tokenizer
    if kind == "encoder":
        texts = [text for one, other, _ in pairs for text in (one, other)]
        lengths = [len(ids) for ids in tokenize(texts)["input_ids"]]
    else:
        firsts, seconds = [one for one, _, _ in pairs], [other for _, other, _ in pairs]
        lengths = [len(ids) for ids in tokenize(firsts, seconds)["input_ids"]]
    attention = 12 * config.num_hidden_layers * config.hidden_size * sum(length**2 for length in lengths)
    return float(6 * weights * sum(lengths) + attention) / steps


def matrix_rate() -> float:
    """Operations a second of the fastest of some large bf16 products."""
    best = 0.0
    for rows, inner, columns in ((1024, 576, 1536), (2048, 2048, 2048), (4096, 1024, 1024)):
        a, b = torch.randn(rows, inner).bfloat16(), torch.randn(columns, inner).bfloat16()
        torch.nn.functional.linear(a, b)
        for _ in range(8):
            begun = perf_counter()
            torch.nn.functional.linear(a, b)
            best = max(best, 2 * rows * inner * columns / (perf_counter() - begun))
    return best


WAYS: dict[str, dict[str, Callable[[str, Sequence[Pair], int], list[float]]]] = {
    "encoder": {
        "ours": ours_encoder,
        "theirs": partial(theirs_encoder, bf16=False),
        "theirs, bf16": partial(theirs_encoder, bf16=True),
    },
    "cross-encoder": {
        "ours": ours_cross_encoder,
        "theirs": partial(theirs_cross_encoder, bf16=False),
        "theirs, bf16": partial(theirs_cross_encoder, bf16=True),
    },
}

if __name__ == "__main__":
    main()
