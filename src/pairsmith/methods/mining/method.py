"""Few-shot mining (Joshi et al. 2022), its first stage: pairs of an input and an output that belong together.

1. A bi-encoder, trained on about 100 seed pairs, encodes all inputs and all outputs (M1, M2).
2. The k nearest outputs of each input, and the k nearest inputs of each output, are found by cosine (M3).
   Two texts are no neighbours if one contains the other verbatim, or if the input is a question that contains
   the output's answer: a model would learn from such pairs to copy (M5, ``unpairable``). Such texts are left
   out before the k nearest are counted.
3. A candidate pair is a text with one of its neighbours. With N_x the k nearest outputs of an input x, and
   N_y the k nearest inputs of an output y, its score is the margin cos(x, y) / (a_x / 2 + a_y / 2), where
   a_x is the mean of cos(x, z) over z in N_x, and a_y the mean of cos(z, y) over z in N_y (M3).
4. A retrieval rule selects the pairs with the largest margins, or all candidates go on to a cross-encoder
   (M6), and those that it ranks highest are kept (``ranking.py``).

The models are trained in ``biencoder.py``, which also has the style classifier, ``crossencoder.py``,
``reader.py`` and ``summarizer.py``.

``mine_pairs`` mines texts in memory. The step ``mine`` applies the same functions to corpora of any size: it
encodes and searches them part by part, and holds the neighbours in files. The step can also search each text
only among the texts of its group, such as a day's news (M8).
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from pairsmith.core.arguments import (
    check_flag,
    check_loaded,
    check_not_blank,
    check_progress,
    checked_number,
    checked_texts,
    checked_whole_number,
)
from pairsmith.core.errors import SettingsError
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.readers import text_id
from pairsmith.data.schemas import MinedAnswer, MinedPair, as_columns
from pairsmith.methods.mining.candidates import (
    NeighboursInMemory,
    TextsInMemory,
    keep_pairable,
    score_candidates,
)
from pairsmith.methods.mining.units import AnswerInPassage
from pairsmith.models.unit_vectors import distinct_unit_vectors
from pairsmith.runs.sorting import Rows
from pairsmith.search.exact import two_way_search
from pairsmith.search.names import MarginName, RetrievalName
from pairsmith.search.permitted import SPARE
from pairsmith.search.selection import pairs_of, select_pairs

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
    progress: Progress | None = None,
) -> list[MinedPair]:
    """Find pairs of an input and an output that belong together.

    Args:
        inputs: texts, none of them blank; of equal texts, the first one counts.
        outputs: likewise; for pairs of questions and answers (M7), candidate answers in their passages, as
            ``pairsmith.methods.mining.units.answers_in_passages`` finds them.
        encoder: encodes both sides; it may have a prompt for queries and one for documents.
        k: number of nearest neighbours of each text on the other side.
        margin: the score of a pair: ``ratio`` is its cosine divided by the mean cosine of both texts to their
            k nearest neighbours (M3), ``distance`` the cosine minus this mean, ``absolute`` the cosine.
        retrieval: which candidates become pairs: ``max`` takes them by falling margin if neither text is in a
            pair yet; ``forward`` takes the best output of each input, ``backward`` the best input of each
            output, ``intersection`` the pairs that both of these take; ``candidates`` takes all.
        threshold: the smallest margin of a pair; None keeps all pairs.
        best: keep only this many pairs, those with the largest margins; None keeps all pairs.
        keep_verbatim: whether to keep pairs in which one text contains the other verbatim, or in which the
            question contains the answer.
        progress: shows how many texts are encoded and searched; by default nothing is shown.

    Returns:
        the pairs in the order of falling margins, or with the rule ``candidates`` input by input; ``score``
        is the cosine. A pair whose output is an answer in its passage is a ``MinedAnswer``.

    Raises:
        InputError: ``inputs`` or ``outputs`` is not a list of texts, contains a blank text, or contains no
            text with a vector other than zero.
        SettingsError: ``k`` or ``best`` is less than 1, ``threshold`` is no number, ``keep_verbatim`` is
            neither True nor False, there is no such margin or retrieval rule, or the encoder is not loaded.
        ModelError: a vector is not finite.

    A text whose vector is zero has no direction and is in no pair. The step ``mine`` also leaves out texts
    that are not in the style of the seeds, if the encoder has a style classifier (M4). This function does
    not: call ``StyleClassifier.probability`` before.
    """
    check_progress(progress)
    shown = progress or Silent()
    k = checked_whole_number(k, "k", 1)
    if best is not None:
        best = checked_whole_number(best, "best", 1)
    if threshold is not None:
        threshold = checked_number(threshold, "threshold")
    for name, value, names in (("margin", margin, MarginName), ("retrieval", retrieval, RetrievalName)):
        if value not in get_args(names):
            raise SettingsError(f"{name} must be one of {', '.join(get_args(names))}, not {value!r}")
    check_flag(keep_verbatim, "keep_verbatim")
    check_loaded(encoder, "encoder", "preprocess", "load_encoder")
    inputs = checked_texts(inputs, "inputs")
    outputs_by_text = _by_text(checked_texts(outputs, "outputs", AnswerInPassage))
    check_not_blank(inputs, "inputs")
    check_not_blank(outputs_by_text, "outputs")
    # 1. Encode both sides (M2).
    xs, x = distinct_unit_vectors(encoder, inputs, "query", "inputs", unit="inputs", progress=shown)
    ys, y = distinct_unit_vectors(
        encoder, outputs_by_text, "document", "outputs", unit="outputs", progress=shown
    )
    distinct_outputs = [outputs_by_text[text] for text in ys]
    # 2. In both directions, the k nearest neighbours (M3) among the texts that may be paired (M5).
    with shown.task("search", len(x), "inputs") as bar:
        nearest_to_x, nearest_to_y = two_way_search(
            x, y, k if keep_verbatim else k + SPARE, advance=bar.advance
        )
    neighbours = NeighboursInMemory(nearest_to_x), NeighboursInMemory(nearest_to_y)
    if not keep_verbatim:
        side_x = TextsInMemory([(text, None) for text in xs], x)
        answers = (None if isinstance(output, str) else output.answer for output in distinct_outputs)
        side_y = TextsInMemory(list(zip(ys, answers, strict=True)), y)
        keep_pairable(neighbours, (side_x, side_y), k)
    # 3. The margins of all candidates (M3).
    forward: list[Rows] = []
    backward: list[Rows] = []
    score_candidates(neighbours, (np.arange(len(xs)), np.arange(len(ys))), k, margin, (forward, backward))
    # 4. Select pairs by the retrieval rule.
    pairs = []
    for rows in select_pairs(forward, backward, retrieval, (len(xs), len(ys)), best=best):
        chosen = pairs_of(rows)
        columns = (chosen.x, chosen.y, chosen.margin, chosen.similarity)
        for i, j, score, cosine in zip(*(column.tolist() for column in columns), strict=True):
            pairs.append(mined_pair(xs[i], distinct_outputs[j], score, cosine))
    return [pair for pair in pairs if threshold is None or pair.margin >= threshold]


def _by_text(outputs: Iterable[str | AnswerInPassage]) -> dict[str, str | AnswerInPassage]:
    """The outputs by the text that is encoded for each, in their order; of equal texts, the first one."""
    by_text: dict[str, str | AnswerInPassage] = {}
    for output in outputs:
        by_text.setdefault(output if isinstance(output, str) else output.text, output)
    return by_text


def mined_pair(input_: str, output: str | AnswerInPassage, margin: float, cosine: float) -> MinedPair:
    """The row of a pair; its id joins the ids of both texts."""
    text = output if isinstance(output, str) else output.text
    ids = text_id(input_), text_id(text)
    pair = MinedPair("-".join(ids), input_, text, margin, cosine, input_id=ids[0], output_id=ids[1])
    if isinstance(output, str):
        return pair
    answers: dict[str, list[Any]] = {"text": [output.answer], "answer_start": [output.start]}
    return MinedAnswer(**as_columns(pair), context=output.passage, answers=answers)
