"""Few-shot mining (Joshi et al. 2022), its first stage: pairs of an input and an output that belong together.

1. A bi-encoder, trained on about 100 seed pairs, encodes all inputs and all outputs (M1, M2).
2. The k nearest outputs of each input and the k nearest inputs of each output are found, by cosine (M3).
   Texts of which one stands in the other word for word are no neighbours, as a model would learn from them to
   copy, and neither are a question and its answer's passage if the question holds the answer (M5,
   ``pairable.py``); they are left out before the k are counted.
3. A candidate pair is scored by its margin: its cosine, divided by the mean cosine of both texts to their
   nearest neighbours (M3).
4. All candidates go on to a cross-encoder (M6), or a retrieval rule takes those of the largest margins.

``mine_pairs`` does so with texts in memory. The step ``mine`` does the same with corpora of any size: it
encodes and searches them part by part, and hands the neighbours, in files, to the same functions.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from pairsmith.core.arguments import check_loaded, checked_texts
from pairsmith.core.errors import SettingsError
from pairsmith.data.readers import text_id
from pairsmith.data.schemas import MinedAnswer, MinedPair, as_columns
from pairsmith.methods.mining.candidates import NeighboursInMemory, keep_pairable, score_candidates
from pairsmith.methods.mining.pairable import TextsInMemory
from pairsmith.methods.mining.units import AnswerInPassage
from pairsmith.models.unit_vectors import distinct_unit_vectors
from pairsmith.runs.sorting import Rows
from pairsmith.search.exact import two_way_search
from pairsmith.search.margin import MarginName
from pairsmith.search.permitted import SPARE
from pairsmith.search.selection import RetrievalName, pairs_of, select_pairs

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def mine_pairs(
    inputs: Iterable[str],
    outputs: Iterable[str | AnswerInPassage],
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
        inputs: texts, none of them blank; of equal ones the first counts.
        outputs: likewise; for pairs of questions and answers (M7), candidate answers in their passages, as
            ``units.answers_in_passages`` finds them.
        encoder: encodes both sides, each with its own prompt where it has two.
        k: nearest neighbours of each text on the other side.
        margin: see ``search.margin.margin``; M3 is ``ratio``.
        retrieval: see ``search.selection.select_pairs``.
        threshold: leave out pairs with a smaller margin; None keeps all.
        best: keep only this many pairs, those with the largest margins; None keeps all.
        keep_verbatim: keep pairs of which one text stands in the other, or of a question that holds the
            answer.

    Returns:
        the pairs, those of the largest margins first, or for ``candidates`` input by input; ``score`` is
        the cosine. Pairs with an answer in its passage are ``MinedAnswer``s.

    Raises:
        InputError: there are no inputs or no outputs with a vector, or they are no lists of texts.
        SettingsError: k is less than 1, there is no such margin or retrieval rule, or the encoder is not
            loaded.
        ModelError: a vector is not finite.

    A text whose vector is 0 has no direction and is in no pair. The step ``mine`` leaves out texts of another
    style than the seeds' (M4), where the encoder has a classifier for it; this function leaves that to its
    caller (``StyleClassifier.probability``).
    """
    if k < 1:
        raise SettingsError(f"k must be at least 1, not {k}")
    for name, value, names in (("margin", margin, MarginName), ("retrieval", retrieval, RetrievalName)):
        if value not in get_args(names):
            raise SettingsError(f"{name} must be one of {', '.join(get_args(names))}, not {value!r}")
    check_loaded(encoder, "encoder", "preprocess", "load_encoder")
    inputs = checked_texts(inputs, "inputs")
    outputs_by_text = _by_text(checked_texts(outputs, "outputs", AnswerInPassage))
    # 1. Encode both sides (M2).
    xs, x = distinct_unit_vectors(encoder, inputs, "query", "inputs")
    ys, y = distinct_unit_vectors(encoder, outputs_by_text, "document", "outputs")
    # 2. The k nearest of each text both ways (M3) that may be paired with it (M5).
    of_x, of_y = two_way_search(x, y, k if keep_verbatim else k + SPARE)
    near = NeighboursInMemory(of_x), NeighboursInMemory(of_y)
    if not keep_verbatim:
        side_x = TextsInMemory([(text, None) for text in xs], x)
        side_y = TextsInMemory([(text, _answer_of(outputs_by_text[text])) for text in ys], y)
        keep_pairable(near, (side_x, side_y), k)
    # 3. The margins of all candidates (M3).
    forward: list[Rows] = []
    backward: list[Rows] = []
    score_candidates(near, (np.arange(len(xs)), np.arange(len(ys))), k, margin, (forward, backward))
    # 4. The retrieval rule.
    pairs = []
    for rows in select_pairs(forward, backward, retrieval, (len(xs), len(ys)), best=best):
        chosen = pairs_of(rows)
        columns = (chosen.x, chosen.y, chosen.margin, chosen.similarity)
        for i, j, score, cosine in zip(*(column.tolist() for column in columns), strict=True):
            pairs.append(mined_pair(xs[i], outputs_by_text[ys[j]], score, cosine))
    return [pair for pair in pairs if threshold is None or pair.margin >= threshold]


def _by_text(outputs: Iterable[str | AnswerInPassage]) -> dict[str, str | AnswerInPassage]:
    """The outputs by the texts that are encoded, in their order; of equal texts the first."""
    by_text: dict[str, str | AnswerInPassage] = {}
    for output in outputs:
        by_text.setdefault(output if isinstance(output, str) else output.text, output)
    return by_text


def _answer_of(output: str | AnswerInPassage) -> str | None:
    return None if isinstance(output, str) else output.answer


def mined_pair(input_: str, output: str | AnswerInPassage, margin: float, cosine: float) -> MinedPair:
    """The row of a pair; its id is made of those of both texts."""
    text = output if isinstance(output, str) else output.text
    ids = text_id(input_), text_id(text)
    pair = MinedPair("-".join(ids), input_, text, margin, cosine, input_id=ids[0], output_id=ids[1])
    if isinstance(output, str):
        return pair
    answers: dict[str, list[Any]] = {"text": [output.answer], "answer_start": [output.start]}
    return MinedAnswer(**as_columns(pair), context=output.passage, answers=answers)
