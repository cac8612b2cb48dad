"""Questions per second in training a student: a passage encoded once, or anew for each of its questions.

python benchmarks/infuse.py --data DATA --json FILE

Three ways, in turns in one run: as `infuse` trains; the same with each (passage, question) pair apart; and a
cross-encoder as student, which reads both together. Steps of the optimiser are counted. ``tokens`` says how
many tokens the model computes in each way, padding included: if a token cost the same everywhere, these would
decide how many times as fast the first way is.
"""

import argparse
import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn

from common import write
from mining_data import squad_corpora
from pairsmith.core.model_files import pick_dtype
from pairsmith.core.model_names import MINILM
from pairsmith.data.questions import Distribution
from pairsmith.data.squad import Question
from pairsmith.methods.mining.question_store import QuestionWithSpans
from pairsmith.methods.mining.reader import ReaderWithLoss, training_windows
from pairsmith.methods.quip.distillation import LabelledQuestion, PassageExample
from pairsmith.methods.quip.student import SpanEncoderWithLoss
from pairsmith.models.reader import load_reader
from pairsmith.models.span_encoder import load_span_encoder
from pairsmith.training.quick import quick_training, set_attention_dropout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--json", type=Path)
    parser.add_argument(
        "--questions", type=int, nargs="+", default=[10], help="Of a passage; 10 in the paper."
    )
    parser.add_argument("--passages", type=int, default=8, help="A step.")
    parser.add_argument("--steps", type=int, default=4, help="A round.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dtype", choices=["auto", "float32", "bfloat16"], default="auto")
    args = parser.parse_args()
    args.dtype = pick_dtype(args.dtype, "cpu")
    questions = squad_corpora(args.data).mining
    results = {number: measured(by_passage(questions, number), args) for number in args.questions}
    if args.json:
        only = results[args.questions[0]] if len(results) == 1 else {"by questions of a passage": results}
        write(args.json, {"settings": vars(args) | {"json": None, "data": None}, "results": only})


def measured(passages: Sequence[list[Question]], args: argparse.Namespace) -> dict[str, Any]:
    """Questions per second of the three ways, round by round, and how many times as fast the first is."""
    batches = list(islice(batched(passages, args.passages), args.steps))
    ways = {"together": together(batches), "apart": apart(batches), "cross-encoder": crossed(batches)}
    rounds = []
    for number in range(args.rounds + 1):
        speeds = {name: way.questions / seconds(way, args.dtype) for name, way in ways.items()}
        if number:  # the first one wakes up
            rounds.append(speeds)
            print({name: round(speed, 1) for name, speed in speeds.items()}, flush=True)
    speeds = {name: median(round_speeds[name] for round_speeds in rounds) for name in ways}
    ratios = {
        name: median(round_speeds["together"] / round_speeds[name] for round_speeds in rounds)
        for name in ways
    }
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    tokens = {name: sum(tokens_in(batch()) for batch in way.batches) for name, way in ways.items()}
    shown = {name: round(ratio, 2) for name, ratio in ratios.items()}
    print(
        f"{len(passages[0])} questions a passage: ratios {shown}, tokens {tokens}, memory {memory} MB",
        flush=True,
    )
    results = {"questions per second": speeds, "ratios": ratios, "rounds": rounds, "tokens": tokens}
    return results | {"memory_mb": memory}


def by_passage(questions: Sequence[Question], number: int) -> list[list[Question]]:
    """So many questions of each passage; of one with fewer some twice."""
    by_passage: dict[str, list[Question]] = {}
    for question in questions:
        by_passage.setdefault(question.context, []).append(question)
    return [list(islice(cycle(of_passage), number)) for of_passage in by_passage.values()]


def batched(passages: Sequence[list[Question]], size: int) -> Iterator[list[list[Question]]]:
    """Batches of passages, one after the other."""
    for first in range(0, len(passages), size):
        yield list(passages[first : first + size])


@dataclass(frozen=True)
class Way:
    """A model that gives a loss, and the batches that it is called with; ``questions`` in all of them."""

    model: nn.Module
    batches: Sequence[Callable[[], Any]]
    questions: int


def lesson(questions: Sequence[Question]) -> PassageExample:
    """A passage and its questions, the answers with all probability."""
    labelled = []
    for question in questions:
        answer = question.answers[0]
        places = answer.start, answer.start + len(answer.text)
        labelled.append(
            LabelledQuestion(question.question, *(Distribution((place,), (1.0,)) for place in places))
        )
    return PassageExample(questions[0].context, labelled)


def student() -> SpanEncoderWithLoss:
    return SpanEncoderWithLoss(load_span_encoder(MINILM, fresh_heads=True))


def together(batches: Sequence[list[list[Question]]]) -> Way:
    model = student()
    rows = [[lesson(group) for group in batch] for batch in batches]
    return Way(model, [partial(model.batch, batch) for batch in rows], _count(batches))


def apart(batches: Sequence[list[list[Question]]]) -> Way:
    model = student()
    rows = [[lesson([question]) for group in batch for question in group] for batch in batches]
    return Way(model, [partial(model.batch, batch) for batch in rows], _count(batches))


def crossed(batches: Sequence[list[list[Question]]]) -> Way:
    reader = load_reader(MINILM, fresh_head=True, perceptrons=True)
    model = ReaderWithLoss(reader, 0)
    rows = [
        [
            windows[0]
            for windows in training_windows(
                reader, [QuestionWithSpans.of(q) for group in batch for q in group]
            )
        ]
        for batch in batches
    ]
    return Way(model, [partial(model.batch, batch) for batch in rows], _count(batches))


def tokens_in(batch: Any) -> int:
    """The number of tokens in a batch's nested features, padding included."""
    if isinstance(batch, Mapping):
        own = batch["input_ids"].numel() if "input_ids" in batch else 0
        return own + sum(map(tokens_in, batch.values()))
    return sum(map(tokens_in, batch)) if isinstance(batch, list) else 0


def _count(batches: Sequence[list[list[Question]]]) -> int:
    return sum(len(group) for batch in batches for group in batch)


def seconds(way: Way, dtype: str) -> float:
    """Of a step for each batch, tokenizing included."""
    set_attention_dropout(way.model, 0.0)
    way.model.train()
    optimizer = torch.optim.AdamW(way.model.parameters(), lr=1e-5, fused=True)
    with quick_training(way.model, "cpu"):
        begun = time.monotonic()
        for batch in way.batches:
            with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
                loss = way.model(**batch())["loss"]
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return time.monotonic() - begun


if __name__ == "__main__":
    main()
