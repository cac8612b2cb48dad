"""Few-shot mining (Joshi et al. 2022), its first stage: pairs of an input and an output that belong together.

1. A bi-encoder, trained on about 100 seed pairs, encodes all inputs and all outputs (M1, M2).
2. The k nearest outputs of each input and the k nearest inputs of each output are found, by cosine (M3).
   Texts of which one stands in the other word for word are no neighbours, as a model would learn from them to
   copy (M5); they are left out before the k are counted.
3. A candidate pair is scored by its margin: its cosine, divided by the mean cosine of both texts to their
   nearest neighbours (M3).
4. All candidates go on to a cross-encoder (M6), or a retrieval rule takes those of the largest margins.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, get_args

import numpy as np
import torch
from torch import Tensor

from pairsmith.core.errors import InputError, ModelError, SettingsError
from pairsmith.data.readers import text_id
from pairsmith.data.schemas import MinedPair
from pairsmith.data.text.spans import stands_in
from pairsmith.models.encode import Side, encode_texts
from pairsmith.search.exact import nearest, two_way_search
from pairsmith.search.margin import MarginName, RetrievalName, candidates, choose
from pairsmith.search.permitted import SPARE, permitted

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def mine_pairs(
    inputs: Iterable[str],
    outputs: Iterable[str],
    encoder: "SentenceTransformer",
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
        margin: see ``search.margin.margin``; M3 is ``ratio``.
        retrieval: see ``search.margin.choose``.
        threshold: leave out pairs with a smaller margin; None keeps all.
        best: keep only this many pairs, those with the largest margins; None keeps all.
        keep_verbatim: keep pairs of which one text stands in the other.

    Returns:
        the pairs, those of the largest margins first, or for ``candidates`` input by input; ``score`` is
        the cosine.

    Raises:
        InputError: there are no inputs or no outputs with a vector.
        SettingsError: k is less than 1, or there is no such margin or retrieval rule.
        ModelError: a vector is not finite.

    A text whose vector is 0 has no direction and is in no pair. The step ``mine`` leaves out texts of another
    style than the seeds' (M4), where the encoder has a classifier for it; this function does not.
    """
    if k < 1:
        raise SettingsError(f"k must be at least 1, not {k}")
    for name, value, known in (("margin", margin, MarginName), ("retrieval", retrieval, RetrievalName)):
        if value not in get_args(known):
            raise SettingsError(f"{name} must be one of {', '.join(get_args(known))}, not {value!r}")
    # 1. Encode both sides (M2).
    xs, x = unit_vectors_of(encoder, inputs, "query", "inputs")
    ys, y = unit_vectors_of(encoder, outputs, "document", "outputs")
    # 2. The k nearest of each text both ways (M3), without verbatim copies (M5).
    of_x, of_y = two_way_search(x, y, k if keep_verbatim else k + SPARE)
    if not keep_verbatim:

        def forbidden(inputs: Tensor, outputs: Tensor) -> Tensor:
            texts = zip(inputs.tolist(), outputs.tolist(), strict=True)
            return torch.tensor([bool(verbatim(xs[i], ys[j])) for i, j in texts], dtype=torch.bool)

        of_x, _ = permitted(of_x, k, forbidden, lambda rows, more: nearest(x[rows], y, more), len(y))
        of_y, _ = permitted(
            of_y, k, lambda j, i: forbidden(i, j), lambda rows, more: nearest(y[rows], x, more), len(x)
        )
    # 3 and 4. The margins of all candidates (M3), and the retrieval rule.
    chosen = choose(*candidates(of_x, of_y, margin), retrieval, best=best)
    columns = (chosen.x, chosen.y, chosen.margin, chosen.similarity)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    pairs = [mined_pair(xs[i], ys[j], margin, cosine) for i, j, margin, cosine in rows]
    return [pair for pair in pairs if threshold is None or pair.margin >= threshold]


def verbatim(input_: str, output: str) -> str:
    """The reason to reject a pair, if one of its texts contains the other word for word (M5); else empty."""
    if stands_in(output, input_):
        return "the output occurs word for word in the input"
    return "the input occurs word for word in the output" if stands_in(input_, output) else ""


def answer_in_question(question: str, answer: str) -> str:
    """Why a question that holds its answer, in whatever case, makes no pair (M5); empty where it does not."""
    return "the answer occurs in the question" if stands_in(answer.casefold(), question.casefold()) else ""


def unpairable(input_: str, output: str, answer: str | None) -> str:
    """Why an input and an output make no pair (M5); ``answer`` is the output's, if it is an answer."""
    return verbatim(input_, output) if answer is None else answer_in_question(input_, answer)


def mined_pair(input_: str, output: str, margin: float, cosine: float) -> MinedPair:
    """The row of a pair; its id is made of those of both texts."""
    ids = text_id(input_), text_id(output)
    return MinedPair("-".join(ids), input_, output, margin, cosine, input_id=ids[0], output_id=ids[1])


def unit_vectors_of(
    encoder: "SentenceTransformer", texts: Iterable[str], side: Side, name: str
) -> tuple[list[str], Tensor]:
    """The distinct texts with a nonzero vector, n of them, and their vectors of length 1, ``(n, d)`` float32.

    ``name`` is the name of the argument with the texts, for messages.
    """
    if isinstance(texts, str):
        raise InputError(f"{name} must be a list of texts, not a single text")
    distinct = list(dict.fromkeys(texts))
    vectors = encode_texts(encoder, distinct, side=side) if distinct else np.zeros((0, 1), np.float32)
    lengths = np.linalg.norm(vectors, axis=1)
    if not np.isfinite(lengths).all():
        text = distinct[int(np.flatnonzero(~np.isfinite(lengths))[0])]
        raise ModelError(f"the encoder gives a vector that is not finite for {text!r}")
    kept = lengths > 0
    if not kept.any():
        raise InputError(f"{name}: there are no texts, or none with a nonzero vector")
    texts_kept = [text for text, keep in zip(distinct, kept.tolist(), strict=True) if keep]
    return texts_kept, torch.from_numpy(vectors[kept] / lengths[kept, None])
