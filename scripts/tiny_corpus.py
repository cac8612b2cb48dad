"""The documents that ``pairsmith:tiny`` learns from.

Plain text, and sentence pairs written out in the instruction formats of the built-in tasks.
"""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

from pairsmith.data.tasks import load_task
from tiny_pairs import Pairs
from tiny_sources import Sources

X1 = "<X1>"


def write_out(instruction: str, x1: str | None, x2: str) -> str:
    """A task's instruction filled in, with its answer and the closing quotation mark."""
    prompt = instruction if x1 is None else instruction.replace(X1, x1)
    return f'{prompt}{x2}"'


def documents(data: Path, count: int, seed: int) -> Iterator[str]:
    """``count`` training documents, the same for the same ``seed``."""
    rng = random.Random(seed)
    sources = Sources(data)
    pairs = Pairs(sources, rng)
    sts, nli, paraphrase = load_task("sts"), load_task("nli"), load_task("paraphrase")
    movies, topic = load_task("movie-reviews"), load_task("topic")
    sts_pairs: dict[str, Callable[[], tuple[str, str]]] = {
        "1": pairs.same,
        "0.5": pairs.similar,
        "0": pairs.unrelated,
    }

    def passage() -> str:
        article = rng.choice(sources.articles)
        start = rng.randrange(len(article))
        return " ".join(" ".join(article[start : start + 12]).split()[:130])

    def sts_document() -> str:
        label = rng.choice(["1", "0.5", "0"])
        return write_out(sts.instruction(label), *sts_pairs[label]())

    def other_document() -> str:
        draw = rng.random()
        if draw < 0.35:
            label = rng.choice(nli.label_names)
            return write_out(nli.instruction(label), *rng.choice(sources.nli[label]))
        if draw < 0.6:
            label = rng.choice(paraphrase.label_names)
            pair = pairs.same() if label == "paraphrase" else pairs.similar()
            return write_out(paraphrase.instruction(label), *pair)
        if draw < 0.85:
            label = rng.choice(movies.label_names)
            return write_out(movies.instruction(label), None, rng.choice(sources.reviews[label]))
        label = rng.choice(topic.label_names)
        return write_out(topic.instruction(label), None, rng.choice(sources.headlines[label]))

    for _ in range(count):
        draw = rng.random()
        yield sts_document() if draw < 0.74 else other_document() if draw < 0.86 else passage()
