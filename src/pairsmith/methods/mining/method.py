"""Few-shot mining (Joshi et al. 2022), its first stage: pairs of an input and an output that belong together.

1. A bi-encoder, trained on about 100 seed pairs, encodes all inputs and all outputs (M1, M2).
2. The k nearest outputs of each input and the k nearest inputs of each output are found, by cosine (M3).
3. A candidate pair is scored by its margin: its cosine, divided by the mean cosine of both texts to their
   nearest neighbours (M3).
4. A retrieval rule takes the pairs of the largest margins. Pairs of which one text stands in the other word
   for word are left out, as a model would learn from them to copy (M5).
"""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from pairsmith.encoders.encode import encode_texts
from pairsmith.encoders.margin import (
    MarginName,
    Pairs,
    RetrievalName,
    accept_all,
    candidates,
    choose,
)
from pairsmith.encoders.search import two_way_search
from pairsmith.records import MinedPair, text_id
from pairsmith.texts.places import stands_in


def mine_pairs(
    inputs: Iterable[str],
    outputs: Iterable[str],
    encoder: SentenceTransformer,
    *,
    k: int = 4,
    margin: MarginName = "ratio",
    retrieval: RetrievalName = "max",
    threshold: float | None = None,
    best: int | None = None,
    keep_verbatim: bool = False,
) -> list[MinedPair]:
    """Find pairs of an input and an output that belong together.

    Args:
        inputs: texts, none of them blank; of equal ones the first counts. Likewise ``outputs``.
        encoder: encodes both sides, each with its own prompt where it has two.
        k: nearest neighbours of each text on the other side.
        margin: see ``encoders.margin.margin``; M3 is ``ratio``.
        retrieval: see ``encoders.margin.choose``.
        threshold: the smallest margin of a pair; all without.
        best: at most so many pairs, those of the largest margins.
        keep_verbatim: keep pairs of which one text stands in the other.

    Returns:
        the pairs, those of the largest margins first; ``score`` is the cosine.

    Raises:
        ValueError: there are no inputs or no outputs.
    """
    xs, ys = list(dict.fromkeys(inputs)), list(dict.fromkeys(outputs))
    x = normalized(encode_texts(encoder, xs, side="query"))
    y = normalized(encode_texts(encoder, ys, side="document"))
    forward, backward = candidates(*two_way_search(x, y, k), margin)

    def verbatim_of(pairs: Pairs) -> list[str]:
        return [verbatim(xs[i], ys[j]) for i, j in zip(pairs.x.tolist(), pairs.y.tolist(), strict=True)]

    judge = accept_all if keep_verbatim else verbatim_of
    chosen = choose(forward, backward, retrieval, judge=judge, best=best)
    pairs = mined_pairs(chosen.taken, xs, ys)
    return [pair for pair in pairs if threshold is None or pair.margin >= threshold]


def verbatim(input_: str, output: str) -> str:
    """Why one text that stands in the other, word for word, makes no pair (M5); empty where none does."""
    if stands_in(output, input_):
        return "the output stands word for word in the input"
    return "the input stands word for word in the output" if stands_in(input_, output) else ""


def answer_in_question(question: str, answer: str) -> str:
    """Why a question that holds its answer, in whatever case, makes no pair (M5); empty where it does not."""
    return "the answer stands in the question" if stands_in(answer.casefold(), question.casefold()) else ""


def mined_pairs(pairs: Pairs, inputs: Sequence[str], outputs: Sequence[str]) -> list[MinedPair]:
    """The rows of ``pairs``, whose numbers count ``inputs`` and ``outputs``."""
    columns = (pairs.x, pairs.y, pairs.margin, pairs.similarity)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [mined_pair(inputs[x], outputs[y], margin, cosine) for x, y, margin, cosine in rows]


def mined_pair(input_: str, output: str, margin: float, cosine: float) -> MinedPair:
    """The row of a pair; its id is made of both texts."""
    return MinedPair(f"{text_id(input_)}-{text_id(output)}", input_, output, margin, cosine)


def normalized(vectors: NDArray[np.float32]) -> torch.Tensor:
    """Vectors ``(n, d)`` brought to length 1; those of length 0 stay."""
    return torch.nn.functional.normalize(torch.from_numpy(vectors), dim=1)
