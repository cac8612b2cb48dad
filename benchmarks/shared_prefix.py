"""What it saves to compute a passage once for all its questions, and a document once for all its outputs.

python benchmarks/shared_prefix.py --data DATA --json FILE

SmolLM2, one step each, forward and backward: as a question generator on questions of SQuAD's development
articles, five a passage; as a cross-encoder, with the list-wise loss, on news documents, each with its
summary and eight others'; and as a judge the same pairs forward only. Times are those of one thread of the
processor, each the shortest of ``--tries``, and both ways take turns. Beside the times: by how much the two
ways differ.
"""

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from common import write
from mining_data import news_corpora, squad_corpora
from pairsmith.data.squad import Question
from pairsmith.methods.mining.crossencoder import Row, Scorer, batch_of_rows
from pairsmith.methods.quip.generator_training import CausalWriter, generator_examples
from pairsmith.models.cross_encoder import load_cross_encoder, score_pairs
from pairsmith.training.question_settings import TrainQuestionGeneratorSettings

SMOLLM2 = "embedded:smollm2-135m-instruct"
TOGETHER = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--passages", type=int, default=3)
    parser.add_argument("--documents", type=int, default=2)
    parser.add_argument("--tries", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    results = {
        "question generator": questions(args.data, args.passages, args.tries),
        **pairs(args.data, args.documents, args.tries),
    }
    for name, each in results.items():
        print(f"{name}: {each}", flush=True)
    if args.json:
        write(
            args.json,
            {"settings": {name: str(value) for name, value in vars(args).items()}, "results": results},
        )


def questions(data: Path, passages: int, tries: int) -> dict[str, Any]:
    """Steps on the questions of some passages."""
    settings = {
        questions: TrainQuestionGeneratorSettings(
            base=SMOLLM2, data=["-"], max_length=256, questions=questions
        )
        for questions in (1, TOGETHER)
    }
    examples = list(generator_examples(asked(data, passages), settings[1]))
    writers = {number: CausalWriter(each, "cpu") for number, each in settings.items()}

    def step(number: int) -> float:
        writers[number].zero_grad()
        loss = writers[number](**writers[number].collate(examples))["loss"]
        loss.backward()
        return float(loss.item())

    return compared(lambda: step(1), lambda: step(TOGETHER), tries) | {"questions": len(examples)}


def asked(data: Path, passages: int) -> list[Question]:
    """The first five questions on each of the first passages that have so many."""
    of_passage: dict[str, list[Question]] = defaultdict(list)
    for question in squad_corpora(data).mining:
        of_passage[question.context].append(question)
    enough = (each[:TOGETHER] for each in of_passage.values() if len(each) >= TOGETHER)
    return [question for some in islice(enough, passages) for question in some]


def pairs(data: Path, documents: int, tries: int) -> dict[str, dict[str, Any]]:
    """Steps on, and scores of, some documents with their own summaries and others'."""
    corpus = news_corpora(data, 0).mining
    summaries = [each.summary for each in corpus]
    rows = [
        Row(each.document, [each.summary, *summaries[documents + 8 * number :][:8]])
        for number, each in enumerate(corpus[:documents])
    ]
    shared = load_cross_encoder(SMOLLM2, device="cpu", fresh_head=True, seed=1, max_length=256)
    alone = replace(shared, shares=False)

    def step(cross: Any) -> float:
        scorer = Scorer(cross, listwise=True)
        scorer.zero_grad()
        loss = scorer(**batch_of_rows(cross, rows))["loss"]
        loss.backward()
        return float(loss.item())

    def score(cross: Any) -> Sequence[float]:
        inputs = [row.input for row in rows for _ in row.outputs]
        return list(score_pairs(cross, inputs, [output for row in rows for output in row.outputs]))

    count = {"pairs": sum(len(row.outputs) for row in rows)}
    return {
        "cross-encoder, learning": compared(lambda: step(alone), lambda: step(shared), tries) | count,
        "cross-encoder, judging": compared(lambda: score(alone), lambda: score(shared), tries) | count,
    }


def compared(alone: Callable[[], Any], together: Callable[[], Any], tries: int) -> dict[str, Any]:
    """Seconds of both ways, how many times faster the second is, and the largest difference of results."""
    seconds: dict[str, list[float]] = {"alone": [], "together": []}
    found: dict[str, torch.Tensor] = {}
    for _ in range(tries):
        for name, way in (("alone", alone), ("together", together)):
            begun = time.process_time()
            found[name] = torch.as_tensor(way(), dtype=torch.float64)
            seconds[name].append(time.process_time() - begun)
    best = {name: round(min(each), 2) for name, each in seconds.items()}
    return {
        **best,
        "times faster": round(best["alone"] / best["together"], 2),
        "largest difference": float((found["alone"] - found["together"]).abs().max()),
    }


if __name__ == "__main__":
    main()
