"""Recipes of every route, so small that each ends within seconds, and what they read.

They are run over and over to see whether the same bytes come out (kills.py, sameness.py). The models are the
bundled one and the tests' tiny encoder.
"""

import importlib
import sys
from pathlib import Path

from mining_data import write_lines
from pairsmith.cli.recipes import load_recipe
from pairsmith.cli.running import run_recipe
from pairsmith.core.progress import Silent

sys.path.insert(0, str(Path(__file__).parents[1]))
make_bert = importlib.import_module("tests.conftest").make_bert

PAIRS = """
name: pairs
steps:
  - {name: pairs, step: generate, settings: {inputs: ./sentences.jsonl, per_input: 1, shard_size: 10}}
  - {name: clean, step: postprocess, settings: {data: "@pairs"}}
  - name: encoder
    step: train-encoder
    settings: {base: "pairsmith:tiny", data: "@clean", batch_size: 8, checkpoint_steps: 5, eval_steps: 10}
"""
MINING = """
name: mining
steps:
  - name: biencoder
    step: train-biencoder
    settings: {kind: reading, seeds: ./seeds.jsonl, inputs: ./questions.jsonl, outputs: ./passages.jsonl,
               base: "pairsmith:tiny", steps: 20, batch_size: 8, checkpoint_steps: 5}
  - name: mined
    step: mine
    settings: {kind: reading, inputs: ./questions.jsonl, outputs: ./passages.jsonl, encoder: "@biencoder",
               style: 0, shard_size: 20, search_rows: 30, retrieval: candidates, best: 90}
  - name: crossencoder
    step: train-crossencoder
    settings: {kind: reading, seeds: ./seeds.jsonl, base: "pairsmith:tiny", mined: "@mined",
               encoder: "@biencoder", steps: 20, batch_size: 4, checkpoint_steps: 5}
  - name: kept
    step: filter
    settings: {pairs: "@mined", model: "@crossencoder", one_per: both, best: 20, shard_size: 10}
  - name: likely
    step: filter
    settings: {pairs: "@mined", model: "pairsmith:tiny", judge: likelihood, beside: margin, best: 20,
               shard_size: 10}
  - name: by-margin
    step: filter
    settings: {pairs: "@mined", judge: margin, one_per: both, best: 20}
  - name: reader
    step: train-reader
    settings: {seeds: ./seeds.jsonl, added: "@kept", base: "pairsmith:tiny", steps: 20, batch_size: 4,
               checkpoint_steps: 5}
"""
QUESTIONS = """
name: questions
steps:
  - name: asker
    step: train-asker
    settings: &trained {data: ./seeds.jsonl, base: ./bert, epochs: 4, batch_size: 4, checkpoint_steps: 5}
  - name: asked
    step: ask
    settings: &asking {inputs: ./passages.jsonl, model: "@asker", questions: 2, tries: 1, shard_size: 10}
  - name: clozes
    step: ask
    settings: {<<: *asking, model: cloze}
  - name: teacher
    step: train-teacher
    settings: *trained
  - name: answered
    step: relabel
    settings: {data: "@clozes", model: "@teacher", shard_size: 20}
  - name: student
    step: infuse
    settings: {<<: *trained, data: "@answered", epochs: 2, batch_size: 10}
"""
RETRIEVER = """
name: retriever
steps:
  - {name: chunks, step: chunk, settings: {documents: [./passages.jsonl], shard_size: 20}}
  - name: written
    step: queries
    settings: {chunks: "@chunks", model: "pairsmith:tiny", kinds: [question], queries: 1, tries: 2,
               max_tokens: 16, shard_size: 10}
  - name: kept
    step: filter-queries
    settings: {queries: "@written", corpus: ["@chunks"], encoder: "pairsmith:tiny", within: 100,
               duplicates: 1, shard_size: 10}
  - name: negatives
    step: negatives
    settings: {pairs: "@kept", corpus: ["@chunks"], encoder: "pairsmith:tiny", judge: "pairsmith:tiny",
               judge_kind: likelihood, negatives: 2, last_rank: 10, positive_share: 0, shard_size: 10}
  - name: retriever
    step: train-retriever
    settings: {base: "pairsmith:tiny", data: ["@negatives"], batch_size: 8, checkpoint_steps: 2}
"""
RECIPES = {"pairs": PAIRS, "mining": MINING, "questions": QUESTIONS, "retriever": RETRIEVER}
COMPARED = (".parquet", ".safetensors")


def write_recipes(work: Path, inputs: int) -> None:
    """Write the recipes, ``inputs`` sentences, a model, and questions and passages, some of them answered."""
    passages = [f"Ann{n} built the mill of Brook{n} in {1700 + n}. It still stands." for n in range(100)]
    questions = [f"who built the mill of Brook{n}?" for n in range(100)]
    answers = [{"text": [f"Ann{n}"], "answer_start": [0]} for n in range(20)]
    seeds = [
        {"question": question, "context": passage, "answers": answer}
        for question, passage, answer in zip(questions, passages, answers, strict=False)
    ]
    write_lines(work / "seeds.jsonl", seeds)
    write_lines(work / "questions.jsonl", [{"question": question} for question in questions[20:]])
    write_lines(work / "passages.jsonl", [{"text": passage} for passage in passages])
    write_lines(
        work / "sentences.jsonl",
        [{"text": f"The {number} dogs ran down the street to the river."} for number in range(inputs)],
    )
    make_bert(work / "bert")
    for name, recipe in RECIPES.items():
        (work / f"{name}.yaml").write_text(recipe, encoding="utf-8")


def run_small(work: Path, name: str, out: Path, *overrides: str) -> None:
    """Run one of the recipes, in ``work``, into ``out``."""
    run_recipe(load_recipe(work / f"{name}.yaml", overrides=overrides), out, Silent())


def files(folder: Path) -> dict[str, bytes]:
    """What is compared: rows, rejects and weights, by their places in the folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.suffix in COMPARED
    }
