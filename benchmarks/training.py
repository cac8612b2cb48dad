"""How fast models are trained: ours, and the libraries' trainers on the same data.

    python benchmarks/training.py --json FILE

Scored pairs of ``examples/`` train an encoder by cosine regression and a cross-encoder by binary
cross-entropy, in batches of 32. Passages of some of its sentences, with a word as the answer and a sentence
as the question, train a reader and a question generator (SmolLM2, which learns to follow the instruction), in
batches of 8. Each of these is trained once by our training and once by a library's at its defaults, and with
its bf16 on: sentence-transformers' for pairs, transformers' for questions. Both see the same rows, each in an
order of its own; the reader of transformers learns the same span of all questions, which costs as much. The
first steps are left out, as memory is not warm yet. A share of the matrix rate is the arithmetic of the real
tokens (6 operations for each weight of the layers and token, 12 for each width and pair of tokens in a text),
divided by time and by the fastest of some large products in the same run.
"""

import argparse
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from transformers import (
    AutoModelForCausalLM,
    AutoModelForQuestionAnswering,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    DataCollatorWithPadding,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from common import write
from pairsmith.core.model_names import resolve_model
from pairsmith.core.progress import ProgressTask, Silent
from pairsmith.data.examples import Example
from pairsmith.data.squad import Answer, Question
from pairsmith.methods.dino.encoder import train_encoder_on
from pairsmith.methods.dino.options import EncoderOptions
from pairsmith.methods.mining.crossencoder import train_crossencoder_on
from pairsmith.methods.mining.options import CrossencoderOptions, ReaderOptions
from pairsmith.methods.mining.question_store import QuestionWithSpans
from pairsmith.methods.mining.reader import train_reader_on
from pairsmith.methods.quip.generator_training import (
    causal_rows,
    generator_examples,
    train_question_generator_on,
)
from pairsmith.methods.quip.training_options import QuestionGeneratorOptions
from pairsmith.models.sentence_encoder import load_sentence_encoder
from pairsmith.training.generators import PromptAndTarget

BATCH = 32
QUESTIONS = 8
"""Questions in a batch: passages are longer than sentences."""
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

    def draw(self, bar: ProgressTask) -> None:  # noqa: ARG002 - the signature of Progress
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
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only-ours", action="store_true")
    args = parser.parse_args()
    trainings: dict[str, Any] = {}
    for kind, model in ((kind_name, model) for kind_name in args.kinds for model in KINDS[kind_name].models):
        if model not in args.models:
            continue
        rows = KINDS[kind].rows(args.steps)
        ways = {"ours": KINDS[kind].ours}
        if not args.only_ours:
            ways["theirs"] = partial(KINDS[kind].theirs, bf16=False)
            ways["theirs, bf16"] = partial(KINDS[kind].theirs, bf16=True)
        work = arithmetic(MODELS[model], KINDS[kind].lengths(MODELS[model], rows)) / args.steps
        rounds: list[dict[str, Any]] = []
        for _ in range(args.rounds):
            rate = matrix_rate()
            seconds = {
                way: step_seconds(train(MODELS[model], rows, args.steps)) for way, train in ways.items()
            }
            share = {
                f"share of the bf16 rate, {way}": work / step_seconds / rate
                for way, step_seconds in seconds.items()
            }
            rounds.append({"bf16 rate in GFLOP/s": rate / 1e9, "seconds a step": seconds, **share})
            print(kind, model, rounds[-1], flush=True)
        ratios = {
            way: median(
                round_figures["seconds a step"][way] / round_figures["seconds a step"]["ours"]
                for round_figures in rounds
            )
            for way in ways
        }
        trainings[f"{kind}, {model}"] = {"rounds": rounds, "times ours": ratios}
        write(args.json, {"steps": args.steps, "trainings": trainings})


def read_pairs(steps: int) -> list[Pair]:
    """Scored pairs, over and over, in a fixed random order, ``BATCH`` for each step."""
    lines = (EXAMPLES / "graded-pairs.tsv").read_text(encoding="utf-8").splitlines()[1:]
    rows = [line.split("\t") for line in lines]
    pairs = [(one, other, float(score) / 5) for one, other, score in rows]
    chance = random.Random(0)
    return [chance.choice(pairs) for _ in range(steps * BATCH)]


def make_questions(steps: int) -> list[Question]:
    """Questions on passages of four to ten sentences, of which a word is the answer and one the question."""
    lines = (EXAMPLES / "sentences.txt").read_text(encoding="utf-8").splitlines()
    chance = random.Random(0)
    questions = []
    for number in range(steps * QUESTIONS):
        context = " ".join(chance.sample(lines, chance.randint(4, 10)))
        word = chance.choice([word for word in context.split() if '"' not in word])
        answer = Answer(word, context.index(word))
        questions.append(Question(str(number), "", context, chance.choice(lines).replace('"', ""), (answer,)))
    return questions


def ours_encoder(model: str, pairs: Sequence[Pair], steps: int) -> list[float]:
    watch = Watch()
    columns = zip(*pairs, strict=True)
    table = pa.table(dict(zip(("sentence1", "sentence2", "score"), map(list, columns), strict=True)))
    options = EncoderOptions(batch_size=BATCH, max_steps=steps)
    train_encoder_on(load_sentence_encoder(model, device="cpu"), table, None, options, progress=watch)
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
    options = CrossencoderOptions(
        base=model, kind="scored", batch_size=BATCH, steps=steps, learning_rate=[3e-5], device="cpu"
    )
    train_crossencoder_on(seeds, (), None, options, progress=watch)
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


def ours_reader(model: str, questions: Sequence[Question], steps: int) -> list[float]:
    watch = Watch()
    options = ReaderOptions(
        base=model, batch_size=QUESTIONS, steps=steps, learning_rate=[3e-5], max_length=384, device="cpu"
    )
    train_reader_on(list(map(QuestionWithSpans.of, questions)), (), options, progress=watch)
    return watch.times


def theirs_reader(model: str, questions: Sequence[Question], steps: int, bf16: bool) -> list[float]:
    tokenizer = AutoTokenizer.from_pretrained(resolve_model(model))
    rows = [
        {
            **tokenizer(question.question, question.context, truncation=True, max_length=384),
            "start_positions": 20,
        }
        for question in questions
    ]
    for row in rows:
        row["end_positions"] = row["start_positions"]
    reader = AutoModelForQuestionAnswering.from_pretrained(resolve_model(model))
    return transformers_steps(reader, rows, DataCollatorWithPadding(tokenizer), steps, bf16)


def ours_generator(model: str, questions: Sequence[Question], steps: int) -> list[float]:
    watch = Watch()
    options = generator_options(model, steps)
    train_question_generator_on(list(generator_examples(questions, options)), (), options, progress=watch)
    return watch.times


def theirs_generator(model: str, questions: Sequence[Question], steps: int, bf16: bool) -> list[float]:
    tokenizer = AutoTokenizer.from_pretrained(resolve_model(model))
    rows = [
        {"input_ids": row.tokens, "labels": [*[-100] * row.prompt_length, *row.tokens[row.prompt_length :]]}
        for row in generator_rows(model, questions)
    ]
    writer = AutoModelForCausalLM.from_pretrained(resolve_model(model), dtype=torch.float32)
    return transformers_steps(writer, rows, DataCollatorForSeq2Seq(tokenizer), steps, bf16)


def generator_options(model: str, steps: int) -> QuestionGeneratorOptions:
    return QuestionGeneratorOptions(
        base=model, batch_size=QUESTIONS, max_steps=steps, learning_rate=[3e-5], device="cpu"
    )


def generator_rows(model: str, questions: Sequence[Question]) -> list[PromptAndTarget]:
    examples = generator_examples(questions, generator_options(model, 1))
    return list(causal_rows(AutoTokenizer.from_pretrained(resolve_model(model)), examples, 8192))


def transformers_steps(model: Any, rows: list[Any], collate: Any, steps: int, bf16: bool) -> list[float]:
    """Train by the trainer of transformers; the times of its steps."""
    clock = Clock()
    given = {**AS_USUAL, "per_device_train_batch_size": QUESTIONS}
    arguments = TrainingArguments(max_steps=steps, bf16=bf16, **given)
    data = Dataset.from_list(rows)
    Trainer(model, arguments, train_dataset=data, data_collator=collate, callbacks=[clock]).train()
    return clock.times


def step_seconds(times: Sequence[float]) -> float:
    """The median time of a step, without the first ones."""
    return median(after - before for before, after in zip(times[WARM:-1], times[WARM + 1 :], strict=True))


def arithmetic(model: str, lengths: Sequence[int]) -> float:
    """Operations of the forward and backward passes on texts of these lengths in tokens.

    A generator's products with its vocabulary are left out, as few tokens need them.
    """
    transformer: Any = load_sentence_encoder(model, device="cpu")[0].auto_model
    weights = sum(
        weight.numel() for name, weight in transformer.named_parameters() if "embed" not in name.lower()
    )
    config = transformer.config
    attention = 12 * config.num_hidden_layers * config.hidden_size * sum(length**2 for length in lengths)
    return float(6 * weights * sum(lengths) + attention)


def tokenized(model: str, *texts: Sequence[str]) -> list[int]:
    """Lengths in tokens of texts, or of pairs of texts."""
    tokenizer = load_sentence_encoder(model, device="cpu").tokenizer
    return [len(tokens) for tokens in tokenizer(*map(list, texts))["input_ids"]]


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


@dataclass(frozen=True)
class Kind:
    """A training: its models, the rows for so many steps, their lengths, and both ways to train on them."""

    models: Sequence[str]
    rows: Callable[[int], list[Any]]
    lengths: Callable[[str, Any], list[int]]
    ours: Callable[[str, Any, int], list[float]]
    theirs: Callable[..., list[float]]


def columns(pairs: Sequence[Pair]) -> tuple[list[str], list[str]]:
    return [one for one, _, _ in pairs], [other for _, other, _ in pairs]


KINDS = {
    "encoder": Kind(
        list(MODELS),
        read_pairs,
        lambda model, pairs: [length for texts in columns(pairs) for length in tokenized(model, texts)],
        ours_encoder,
        theirs_encoder,
    ),
    "cross-encoder": Kind(
        ["MiniLM-L6"],
        read_pairs,
        lambda model, pairs: tokenized(model, *columns(pairs)),
        ours_cross_encoder,
        theirs_cross_encoder,
    ),
    "reader": Kind(
        ["MiniLM-L6"],
        make_questions,
        lambda model, questions: tokenized(
            model, [q.question for q in questions], [q.context for q in questions]
        ),
        ours_reader,
        theirs_reader,
    ),
    "question generator": Kind(
        ["SmolLM2-135M"],
        make_questions,
        lambda model, questions: [len(row.tokens) for row in generator_rows(model, questions)],
        ours_generator,
        theirs_generator,
    ),
}

if __name__ == "__main__":
    main()
