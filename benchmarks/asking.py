"""Questions drawn per second: `ask`, and `generate` of transformers with the same batches.

python benchmarks/asking.py --model FOLDER --data DATA --json FILE
python benchmarks/asking.py --model embedded:smollm2-135m-instruct --data DATA --json FILE

FOLDER holds a question generator that train-asker wrote; one with an encoder and a decoder runs in float32. A
causal language model runs in bfloat16 where the processor has it, is shown three questions unless it is a
FOLDER, and has its share of the matrix rate measured: the arithmetic of all tokens that have to be computed,
each distinct prompt once, against the fastest large product. Ten sequences are drawn for each passage, once;
both ways in turns in one run, with all threads. Sequences are counted, kept or not.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, ClassVar
from unittest.mock import patch

import torch

from common import write
from decoding import needed
from decoding_baselines import generate_in_batches
from decoding_models import build, matrix_rate, products
from mining_data import squad_corpora
from pairsmith.core.model_files import pick_dtype
from pairsmith.data.squad import Question
from pairsmith.data.text.instructed import CLOSING_QUOTE, QUESTION_CUE, QuestionExample
from pairsmith.methods.quip import causal_generator
from pairsmith.methods.quip.causal_generator import CausalGenerator
from pairsmith.methods.quip.generators import generator_kind
from pairsmith.methods.quip.options import BATCH_SIZES, GenerationOptions
from pairsmith.methods.quip.passages import Passage
from pairsmith.methods.quip.sequence_generator import SequenceGenerator
from pairsmith.models.encode import batches_by_length
from pairsmith.models.language.decoder import Group, MultiPromptDecoder
from pairsmith.models.language.sampling import Sampling
from pairsmith.models.question_generator import GENERATED_ANSWER_TOKENS, GENERATED_QUESTION_TOKENS
from pairsmith.models.text_generator import encode_inputs, input_features, load_text_generator

SHOWN = 3
"""Questions that a language model is shown which was not trained to ask."""
PART = 8
"""``generate`` continues an eighth of a causal model's prompts only: its batches do not wait for others."""


@dataclass(frozen=True)
class Ways:
    """Both ways to draw sequences for some passages: each is called and returns sequences a second.

    ``shares`` gets the share of the matrix rate of each call of ``ask``, if it is known.
    """

    passages: int
    ask: Callable[[], float]
    generate: Callable[[], float]
    shares: list[float] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--passages", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    questions = squad_corpora(args.data).mining
    causal = generator_kind(args.model) == "causal"
    ways = (causal_ways if causal else sequence_ways)(args, questions)
    rounds = []
    for number in range(args.rounds + 1):
        speeds = {"ask": ways.ask(), "generate": ways.generate()}
        if number:  # the first one wakes up
            rounds.append(speeds)
            print({name: round(speed, 2) for name, speed in speeds.items()}, flush=True)
    results: dict[str, Any] = {
        "sequences per second": {
            name: median(speeds[name] for speeds in rounds) for name in ("ask", "generate")
        },
        "ratio": median(speeds["ask"] / speeds["generate"] for speeds in rounds),
        "rounds": rounds,
    }
    if ways.shares:
        results["share of the matrix rate"] = ways.shares[-args.rounds :]
    print({name: value for name, value in results.items() if name != "rounds"})
    if args.json:
        given = {
            "model": args.model if args.model.startswith("embedded:") else "trained",
            "passages": ways.passages,
            "rounds": args.rounds,
        }
        write(args.json, {"settings": given, "results": results})


def passages_of(
    questions: Sequence[Question], length: Callable[[str], int], most: int, count: int
) -> list[str]:
    """The first ``count`` distinct passages of at most ``most`` tokens."""
    every = dict.fromkeys(question.context for question in questions)
    return [text for text in every if length(text) <= most][:count]


def numbered(texts: Sequence[str]) -> list[Passage]:
    return [Passage(str(number), text) for number, text in enumerate(texts)]


def seconds(draw: Callable[[], object]) -> float:
    begun = perf_counter()
    draw()
    return perf_counter() - begun


def sequence_ways(args: argparse.Namespace, questions: Sequence[Question]) -> Ways:
    """Both ways of a model with an encoder and a decoder."""
    options, size = GenerationOptions(max_length=200, tries=1), BATCH_SIZES["encoder-decoder"]
    model = load_text_generator(args.model, device=args.device, dtype="float32")
    generator = SequenceGenerator(model, options, args.model)
    texts = passages_of(questions, generator.length, generator.limit, args.passages)

    def generate() -> None:
        """The same, as one would write it: batches of passages of about one length."""
        tokens = encode_inputs(model, texts)
        lengths = list(map(len, tokens))
        torch.manual_seed(1)
        for rows in batches_by_length(lengths, batch_size=size):
            features = input_features(model, [tokens[row] for row in rows])
            with torch.inference_mode():
                sequences = model.model.generate(
                    **features,
                    do_sample=True,
                    top_k=0,
                    top_p=options.top_p,
                    num_return_sequences=options.questions,
                    max_length=GENERATED_ANSWER_TOKENS + GENERATED_QUESTION_TOKENS + 4,
                )
            model.tokenizer.batch_decode(sequences, skip_special_tokens=True)

    def ask() -> None:
        generator.generate(numbered(texts))  # which keep their questions

    count = len(texts) * options.questions
    return Ways(len(texts), lambda: count / seconds(ask), lambda: count / seconds(generate))


class RecordedDecoder(MultiPromptDecoder):
    """A decoder that keeps the answers and questions that it drew."""

    drawn: ClassVar[list[Group]] = []

    def finished(self) -> Iterator[Group]:
        """Decode as usual, and keep every group that has ended."""
        for group in super().finished():
            self.drawn.append(group)
            yield group


def work(network: Any, drawn: Sequence[Group], cue: int) -> float:
    """The operations for all tokens that the model had to read: each distinct prompt once, and drawn tokens.

    ``cue`` is the number of tokens between an answer and its question.
    """
    questions = [group for group in drawn if group.before]
    counts = needed([group for group in drawn if not group.before])
    counts.tokens += sum(cue + len(question.tokens) - 1 for question in questions)
    counts.rows += sum(len(question.tokens) for question in questions)
    return float(products(network, counts))


def causal_ways(args: argparse.Namespace, questions: Sequence[Question]) -> Ways:
    """Both ways of a causal language model; ``generate`` gets the prompts that ``ask`` continued."""
    dtype = getattr(torch, pick_dtype("auto", args.device))
    network, model = build(args.model, dtype, args.device)
    told = not Path(args.model).is_dir()
    options = GenerationOptions(
        max_length=200, tries=1, batch_size=args.passages, examples=examples(questions) if told else ()
    )
    generator = CausalGenerator(model, options)
    cue = len(model.encode("x\n" + QUESTION_CUE)) - len(model.encode("x\n"))
    texts = passages_of(questions[1_000:], generator.length, generator.limit, args.passages)
    shares: list[float] = []

    def ask() -> float:
        before = matrix_rate(dtype, args.device)
        RecordedDecoder.drawn.clear()
        with patch.object(causal_generator, "MultiPromptDecoder", RecordedDecoder):
            spent = seconds(partial(generator.generate, numbered(texts)))
        rate = (before + matrix_rate(dtype, args.device)) / 2
        shares.append(round(work(network, RecordedDecoder.drawn, cue) / spent / rate, 3))
        return len(texts) * options.questions / spent

    def generate(size: int) -> float:
        begun = perf_counter()
        drawn = sorted(RecordedDecoder.drawn, key=lambda group: group.stream)  # not the shortest first
        answers = [group for group in drawn if not group.before]
        questions = [Group((*group.main, *group.before), (), group.stream) for group in drawn if group.before]
        for groups, most in ((answers, GENERATED_ANSWER_TOKENS), (questions, GENERATED_QUESTION_TOKENS)):
            sampling = Sampling(
                top_k=0, top_p=options.top_p, max_tokens=most, stop=CLOSING_QUOTE, may_end=True
            )
            generate_in_batches(network, model, groups[: -(-len(groups) // PART)], sampling, size)
        return -(-len(texts) * options.questions // PART) / (perf_counter() - begun)

    ask()
    sizes = {size: round(generate(size), 2) for size in (5, 10, 20)}
    print("generate, sequences a second by batch size:", sizes, flush=True)
    return Ways(len(texts), ask, partial(generate, max(sizes, key=lambda size: sizes[size])), shares)


def examples(questions: Sequence[Question]) -> tuple[QuestionExample, ...]:
    """The questions that are shown: of three passages, without quotation marks."""
    shown = {
        question.context: question
        for question in questions
        if CLOSING_QUOTE not in question.question + question.answers[0].text
    }
    return tuple(
        QuestionExample(question.context, question.answers[0].text.strip(), question.question)
        for question in list(shown.values())[:SHOWN]
    )


if __name__ == "__main__":
    main()
