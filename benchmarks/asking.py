"""Questions drawn per second: `ask`, and `generate` of transformers with the same batches.

python benchmarks/asking.py --model FOLDER --data DATA --json FILE

FOLDER holds an asker with an encoder and a decoder, as train-asker writes. Ten sequences are drawn for each
passage, once; both ways in turns in one run, with all threads. Sequences are counted, kept or not.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import torch

from common import write
from mining_data import squad_corpora
from pairsmith.methods.quip.passages import Passage
from pairsmith.methods.quip.sequence_generator import SequenceGenerator
from pairsmith.models.encode import batches_by_length
from pairsmith.models.question_generator import ANSWER_TOKENS, QUESTION_TOKENS
from pairsmith.models.summarizer import Summarizer, document_features, encode_documents
from pairsmith.steps.infuse.ask import load_generator
from pairsmith.steps.infuse.settings import AskSettings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--passages", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    settings = AskSettings(
        inputs=["-"], model=args.model, max_length=200, tries=1, dtype="float32", device="cpu"
    )
    asker = load_generator(settings)
    if not isinstance(asker, SequenceGenerator):
        parser.error(f"--model {args.model}: has no encoder with a decoder")
    every = dict.fromkeys(each.context for each in squad_corpora(args.data).mining)
    texts = [text for text in every if asker.length(text) <= asker.limit][: args.passages]
    ways: dict[str, Callable[[], None]] = {
        "ask": lambda: asked(asker, texts),
        "generate": lambda: generated(asker.model, settings, texts),
    }
    rounds = []
    for number in range(args.rounds + 1):
        speeds = {name: len(texts) * settings.questions / seconds(way) for name, way in ways.items()}
        if number:  # the first one wakes up
            rounds.append(speeds)
            print({name: round(speed, 2) for name, speed in speeds.items()}, flush=True)
    ratio = median(each["ask"] / each["generate"] for each in rounds)
    print("ratio", round(ratio, 2))
    if args.json:
        found = {name: median(each[name] for each in rounds) for name in ways}
        results = {"sequences per second": found, "ratio": ratio, "rounds": rounds}
        given = {"passages": len(texts), "rounds": args.rounds, "questions": settings.questions}
        write(args.json, {"settings": given, "results": results})


def asked(asker: SequenceGenerator, texts: Sequence[str]) -> None:
    asker.generate([Passage(str(number), text) for number, text in enumerate(texts)])


def generated(model: Summarizer, settings: AskSettings, texts: Sequence[str]) -> None:
    """The same, as one would write it: batches of passages of about one length."""
    tokens = encode_documents(model, texts)
    lengths = list(map(len, tokens))
    torch.manual_seed(1)
    for rows in batches_by_length(lengths, settings.batch_size, settings.batch_size * max(lengths)):
        features = document_features(model, [tokens[row] for row in rows])
        with torch.inference_mode():
            found = model.model.generate(
                **features,
                do_sample=True,
                top_k=0,
                top_p=settings.top_p,
                num_return_sequences=settings.questions,
                max_length=ANSWER_TOKENS + QUESTION_TOKENS + 4,
            )
        model.tokenizer.batch_decode(found, skip_special_tokens=True)


def seconds(way: Callable[[], None]) -> float:
    begun = time.monotonic()
    way()
    return time.monotonic() - begun


if __name__ == "__main__":
    main()
