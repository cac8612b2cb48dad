"""What it saves to compute a passage once for all its questions, and a document once for all its outputs.

python benchmarks/shared_prefix.py --data DATA --json FILE

SmolLM2, one step each, forward and backward: as a question generator on questions of SQuAD's development
articles, five a passage; as a cross-encoder, with the list-wise loss, on news documents, each with its
summary and eight others'; as a judge the same pairs forward only; and as a judge of questions, untrained, ten
pairs of a question and an answer for each passage. Times are those of one thread of the
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
from pairsmith.methods.mining.crossencoder import CrossEncoderWithLoss, RankingRow
from pairsmith.methods.quip.generator_training import CausalWriter, generator_examples
from pairsmith.methods.quip.training_options import QuestionGeneratorOptions
from pairsmith.models.cross_encoder import load_cross_encoder, score_pairs
from pairsmith.models.language.likelihood import (
    LikelihoodJudge,
    load_likelihood_judge,
    question_likelihoods,
)
from pairsmith.models.language.protocols import Prompt

SMOLLM2 = "embedded:smollm2-135m-instruct"
TOGETHER = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--passages", type=int, default=3)
    parser.add_argument("--documents", type=int, default=2)
    parser.add_argument("--tries", type=int, default=2)
    parser.add_argument("--only", choices=["learning to ask", "cross-encoders", "likelihoods"])
    args = parser.parse_args()
    torch.set_num_threads(1)
    results: dict[str, Any] = {}
    if args.only in (None, "learning to ask"):
        results["question generator"] = questions(args.data, args.passages, args.tries)
    if args.only in (None, "cross-encoders"):
        results |= pairs(args.data, args.documents, args.tries)
    if args.only in (None, "likelihoods"):
        results["question likelihoods"] = likelihoods(args.data, args.passages, args.tries)
    for name, figures in results.items():
        print(f"{name}: {figures}", flush=True)
    if args.json:
        settings = {name: getattr(args, name) for name in ("passages", "documents", "tries")}
        write(args.json, {"settings": settings, "results": results})


def questions(data: Path, passages: int, tries: int) -> dict[str, Any]:
    """Steps on the questions of some passages."""
    options = {
        questions: QuestionGeneratorOptions(base=SMOLLM2, max_length=256, questions=questions)
        for questions in (1, TOGETHER)
    }
    examples = list(generator_examples(asked(data, passages), options[1]))
    writers = {number: CausalWriter(option, "cpu") for number, option in options.items()}

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
    enough = (some[:TOGETHER] for some in of_passage.values() if len(some) >= TOGETHER)
    return [question for some in islice(enough, passages) for question in some]


def pairs(data: Path, documents: int, tries: int) -> dict[str, dict[str, Any]]:
    """Steps on, and scores of, some documents with their own summaries and others'."""
    corpus = news_corpora(data, 0).mining
    summaries = [document.summary for document in corpus]
    rows = [
        RankingRow(document.text, [document.summary, *summaries[documents + 8 * number :][:8]])
        for number, document in enumerate(corpus[:documents])
    ]
    shared = load_cross_encoder(SMOLLM2, device="cpu", fresh_head=True, seed=1, max_length=256)
    alone = replace(shared, shares=False)

    def step(cross: Any) -> float:
        scorer = CrossEncoderWithLoss(cross, listwise=True)
        scorer.zero_grad()
        loss = scorer(**scorer.batch(rows))["loss"]
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


def likelihoods(data: Path, passages: int, tries: int) -> dict[str, Any]:
    """Scores of questions, each with its own answer and with the next question's."""
    judge = load_likelihood_judge(SMOLLM2, device="cpu", dtype="float32")
    some = asked(data, passages)
    triples = [
        (question.question, other.answers[0].text, question.context)
        for number, question in enumerate(some)
        for other in (question, some[number - number % TOGETHER + (number + 1) % TOGETHER])
    ]
    columns = tuple(map(list, zip(*triples, strict=True)))

    apart = Apart(judge.network, judge.tokenizer, judge.max_length, judge.predictions)

    def score(judge: LikelihoodJudge) -> Sequence[float]:
        return list(question_likelihoods(judge, *columns))

    return compared(lambda: score(apart), lambda: score(judge), tries) | {"pairs": len(triples)}


class Apart(LikelihoodJudge):
    """All of a prompt is its prefix, so that none is shared but by the same question and answer."""

    def prefix_and_lead(self, context: str, tail: str, cue: str, reserve: int) -> tuple[Prompt, Prompt]:
        """As the judge's, but the lead is part of the prefix."""
        prefix, lead = super().prefix_and_lead(context, tail, cue, reserve)
        return (*prefix, *lead), ()


def compared(alone: Callable[[], Any], together: Callable[[], Any], tries: int) -> dict[str, Any]:
    """Seconds of both ways, how many times faster the second is, and the largest difference of results."""
    seconds: dict[str, list[float]] = {"alone": [], "together": []}
    by_way: dict[str, torch.Tensor] = {}
    for _ in range(tries):
        for name, way in (("alone", alone), ("together", together)):
            begun = time.process_time()
            by_way[name] = torch.as_tensor(way(), dtype=torch.float64)
            seconds[name].append(time.process_time() - begun)
    best = {name: round(min(spent), 2) for name, spent in seconds.items()}
    return {
        **best,
        "times faster": round(best["alone"] / best["together"], 2),
        "largest difference": float((by_way["alone"] - by_way["together"]).abs().max()),
    }


if __name__ == "__main__":
    main()
