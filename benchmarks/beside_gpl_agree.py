"""What ``beside_gpl.py`` gives to both sides, and whether GPL's program computes what ours does."""

import json
import math
import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from time import process_time
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from mining import MINILM
from mining_data import write_lines
from pairsmith.core.progress import Silent
from pairsmith.data.tuples import RetrievalExample
from pairsmith.methods.retrieval.retriever import Retriever, train_retriever_on
from pairsmith.methods.retrieval.retriever_options import RetrieverOptions
from pairsmith.models.cross_encoder import load_cross_encoder, score_pairs
from pairsmith.models.sentence_encoder import load_sentence_encoder, save_sentence_encoder
from pairsmith.runs import Run
from pairsmith.runs.seeds import generator
from pairsmith.steps.negatives.route import negatives
from pairsmith.steps.negatives.settings import NegativesSettings
from retrieval_data import make, squad

WORDS, TOKENS = 90, 128
"""Words of a paragraph at most, and the tokens of it that the encoder reads."""
RANKS = 50
RATE = 2e-5
"""The learning rate of the library's training loop, which the program does not change."""
DIVISOR = 10.0
"""The cross-encoder's scores are divided by it, so that margins are within reach of cosines' differences."""


class Files:
    """What both sides read, in ``work``; made once."""

    def __init__(self, args: Namespace) -> None:
        self.args = args
        self.work: Path = args.work
        self.base, self.judge = self.work / "base", self.work / "judge"
        self.generated, self.test = self.work / "generated", self.work / "test"
        self.pairs, self.own = self.work / "pairs.jsonl", self.work / "their-triples"

    def prepare(self) -> None:
        """Write the texts, the encoder and the cross-encoder."""
        if not self.pairs.is_file():
            self._texts()
        if not (self.base / "modules.json").is_file():
            self._encoder()
        if not (self.judge / "made").is_file():
            self._cross_encoder()

    def _texts(self) -> None:
        """Paragraphs: of each one question to train on and two to measure on. The judge learns others."""
        questions: dict[tuple[str, str], list[str]] = {}
        for question, (document,) in squad(self.args.data):
            if len(document[1].split()) <= WORDS:
                questions.setdefault(document, []).extend([question] if question else [])
        count, kept = self.args.passages, list(questions)
        make(((q, [d]) for d in kept[:count] for q in ["", *questions[d][1:4:2]]), self.test)
        make(((q, [d]) for d in kept[:count] for q in ["", *questions[d][:1]]), self.generated)
        for old, new in (("queries.jsonl", "qgen-queries.jsonl"), ("qrels", "qgen-qrels")):
            (self.generated / old).rename(self.generated / new)
        (self.generated / "qgen-qrels" / "test.tsv").rename(self.generated / "qgen-qrels" / "train.tsv")
        learned = ((d, q) for d in kept[count:] for q in questions[d])
        write_lines(self.work / "judged.jsonl", ({"input": q, "output": "\n".join(d)} for d, q in learned))
        queries, documents = self.read_queries(), self.read_documents()
        write_lines(
            self.pairs,
            (
                {"query": queries[query], "positive": documents[document], "query_id": query}
                for query, document in self.read_positives()
            ),
        )

    def _encoder(self) -> None:
        encoder = load_sentence_encoder(MINILM, device="cpu", layers=self.args.layers)
        save_sentence_encoder(encoder, self.base)
        width = encoder.get_embedding_dimension()
        # The old library knows older names of these settings only; today's library knows both.
        old = {
            "sentence_bert_config.json": {"max_seq_length": TOKENS, "do_lower_case": False},
            "1_Pooling/config.json": {"word_embedding_dimension": width, "pooling_mode_mean_tokens": True},
        }
        for name, settings in old.items():
            (self.base / name).write_text(json.dumps(settings), encoding="utf-8")
        no_dropout(self.base)

    def _cross_encoder(self) -> None:
        options = ["--seeds", self.work / "judged.jsonl", "--steps", self.args.judge_steps]
        options += ["--learning-rate", 1e-4, "--max-length", TOKENS, "--out", self.judge]
        cost(ours("train-crossencoder", "--base", self.base, *options))
        weights = load_file(self.judge / "model.safetensors")
        for name in ("classifier.weight", "classifier.bias"):
            weights[name] = weights[name] / DIVISOR
        save_file(weights, self.judge / "model.safetensors", {"format": "pt"})
        # As the models that the authors use, it says that its scores are not put through a sigmoid.
        config = json.loads((self.judge / "config.json").read_text())
        config["sbert_ce_default_activation_function"] = "torch.nn.modules.linear.Identity"
        (self.judge / "config.json").write_text(json.dumps(config), encoding="utf-8")
        (self.judge / "made").touch()

    def read_queries(self) -> dict[str, str]:
        """The queries to train on, by their ids."""
        return {row["_id"]: row["text"] for row in lines(self.generated / "qgen-queries.jsonl")}

    def read_documents(self) -> dict[str, str]:
        """The documents by their ids, each with its title on a line before it."""
        rows = lines(self.generated / "corpus.jsonl")
        return {row["_id"]: f"{row['title']}\n{row['text']}" for row in rows}

    def read_positives(self) -> list[tuple[str, str]]:
        """The ids of each query and its document."""
        table = (self.generated / "qgen-qrels" / "train.tsv").read_text(encoding="utf-8").splitlines()[1:]
        return [(query, document) for query, document, _ in (line.split("\t") for line in table)]


def lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def no_dropout(folder: Path) -> None:
    """Set a model's dropout to 0, so that both sides compute the same without the same random numbers."""
    config = json.loads((folder / "config.json").read_text())
    config |= {"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def cost(command: list[str]) -> float:
    """The processor seconds, user and system, of a command."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(said.decode()[-3_000:])
    return round(used.ru_utime + used.ru_stime, 1)


def trained(out: Path) -> Path:
    return out / "model"


def ours(*command: object) -> list[str]:
    return [sys.executable, "-m", "pairsmith", *map(str, command), "--device", "cpu", "--quiet"]


def compare_negatives(files: Files, first: Path) -> dict[str, Any]:
    """Their nearest texts of each query, the positive left out, against ours at the same ranks."""
    settings = NegativesSettings(
        pairs=str(files.pairs),
        corpus=[str(files.generated)],
        encoder=str(files.base),
        negatives=RANKS,
        positive_share=0,
        device="cpu",
        dtype="float32",
    )
    rows = negatives(settings, Run(files.work / "nearest", Silent())).table().to_pylist()
    documents = {text: name for name, text in files.read_documents().items()}
    own = {row["query_id"]: [documents[text] for text in row["negatives"]] for row in rows}
    counts = {"queries": 0, "same, in the same order": 0, "same texts": 0, "theirs has one less": 0}
    for row in lines(first / "generated" / "hard-negatives.jsonl"):
        (theirs,) = row["neg"].values()
        mine = own[row["qid"]][: len(theirs)]
        counts["queries"] += 1
        counts["same, in the same order"] += theirs == mine
        counts["same texts"] += set(theirs) == set(mine)
        counts["theirs has one less"] += len(theirs) == RANKS - 1
    return counts


def triples(files: Files, first: Path) -> list[tuple[str, str, str, float]]:
    """Their query, positive, negative and margin of each example, in their order."""
    queries, documents = files.read_queries(), files.read_documents()
    table = (first / "generated" / "gpl-training-data.tsv").read_text(encoding="utf-8").splitlines()
    rows = (line.split("\t") for line in table)
    return [(queries[q], documents[p], documents[n], float(margin)) for q, p, n, margin in rows]


def compare_margins(files: Files, first: Path) -> dict[str, Any]:
    """Their margins against the differences of our scores by the same cross-encoder."""
    queries, positives, negative_texts, margins = zip(*triples(files, first), strict=True)
    cross = load_cross_encoder(str(files.judge), device="cpu", dtype="float32")
    scores = score_pairs(cross, queries * 2, positives + negative_texts)
    gaps = np.abs(scores[: len(queries)] - scores[len(queries) :] - np.array(margins))
    return {
        "margins": len(margins),
        "smallest": round(min(margins), 4),
        "largest": round(max(margins), 4),
        "largest difference": float(gaps.max()),
        "differ by more than 1e-5": int((gaps > 1e-5).sum()),
    }


def compare_training(files: Files, first: Path) -> dict[str, Any]:
    """The loss of each step and the weights at the end, if ours learns their triples in their order."""
    rows, steps = triples(files, first), files.args.steps
    options = RetrieverOptions(
        base=str(files.base),
        objective="margin-mse",
        scale=1.0,
        batch_size=files.args.batch,
        max_steps=steps,
        learning_rate=[RATE],
        warmup=math.ceil(steps / 10) / steps,
        device="cpu",
        dtype="float32",
    )
    examples = [RetrievalExample("", "")] * len(rows)
    for place, row in zip(generator(options.seed, "order", 0).permutation(len(rows)), rows, strict=True):
        query, positive, negative, margin = row
        examples[place] = RetrievalExample(query, positive, (negative,), (margin, 0.0))
    losses, forward = [], Retriever.forward

    def noted(self: Retriever, *given: Any, **named: Any) -> Any:
        result = forward(self, *given, **named)
        losses.append(float(result["loss"].detach()))
        return result

    begun = process_time()
    with patch.object(Retriever, "forward", noted):
        retriever = train_retriever_on(examples, [], options).model
    seconds = process_time() - begun
    save_sentence_encoder(retriever.encoder, files.own)
    theirs = json.loads((first / "notes.json").read_text())["losses"]
    base, own = weights_of(files.base), weights_of(files.own)
    other = weights_of(trained(first))
    apart, moved = (own - other).abs(), (other - base).abs()
    return {
        "steps": len(losses),
        "losses of theirs": [round(loss, 6) for loss in theirs[:: max(1, steps // 6)]],
        "largest difference of a loss": max(abs(a - b) for a, b in zip(losses, theirs, strict=True)),
        "largest relative difference": max(abs(a / b - 1) for a, b in zip(losses, theirs, strict=True)),
        "largest movement of a weight": float(moved.max()),
        "largest difference of a weight": float(apart.max()),
        "difference, as a share of the movement (norms)": float((own - other).norm() / (other - base).norm()),
        "processor seconds of our training": round(seconds, 1),
    }


def weights_of(folder: Path) -> torch.Tensor:
    """All trained weights of a model in one vector; the pooler, which nothing uses, is left out."""
    weights = load_file(folder / "model.safetensors")
    return torch.cat([weights[name].flatten() for name in sorted(weights) if "pooler" not in name])


AGREEMENTS: Mapping[str, Callable[[Files, Path], dict[str, Any]]] = {
    "negatives": compare_negatives,
    "margins": compare_margins,
    "training": compare_training,
}
