"""What a teacher says of a question: where its answer starts and ends, with which probability (Q3)."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from pairsmith.encoders.encode import batches_by_length, one_thread_each, tokens_at_once
from pairsmith.encoders.reader import (
    ANSWER_TOKENS,
    Feature,
    Prediction,
    Reader,
    TextScores,
    encode_questions,
    read_windows,
    whole_text,
)

TOP = 8
"""Likeliest places that are told."""

Places = list[tuple[int, float]]
"""Characters, and the probability of each, the likeliest first."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a teacher says of a question.

    Attributes:
        starts: where an answer's first token begins; ``ends``: where its last ends, the place behind it.
        best: the best span (Q7).
    """

    starts: Places
    ends: Places
    best: Prediction


def teach(
    reader: Reader,
    questions: Sequence[str],
    contexts: Sequence[str],
    *,
    top: int = TOP,
    max_answer_tokens: int = ANSWER_TOKENS,
    batch_tokens: int | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> list[Told]:
    """A teacher's sparse distributions over starts and ends, and its answers (Q3).

    Of a text in several windows each token counts in that in which more stands about it (see ``whole_text``),
    and one softmax is taken over all tokens of the text.

    Args:
        reader: the teacher; it is put into evaluation mode.
        questions: n of them.
        contexts: the text of each.
        top: likeliest places that are told; the others count as impossible.
        max_answer_tokens: longest answer in tokens.
        batch_tokens: most tokens that are read at once, padding included; None: what suits the device.
        advance: hears of how many questions are done, once these are all.

    Returns:
        what is said of each; of a blank text nothing, and an empty answer of score 0.

    Raises:
        ModelError: the model gives scores that are not finite.
    """
    if not questions:
        return []
    reader.model.eval()
    windows = encode_questions(reader, questions, contexts)
    scores = _scores(reader, windows, batch_tokens)
    found: dict[int, Told] = {}
    for number, rows in groupby(range(len(windows)), key=lambda row: windows[row].question):
        each = list(rows)
        text = whole_text([windows[row] for row in each], [scores[row] for row in each])
        found[number] = _told(contexts[number], text, top, max_answer_tokens)
    advance(len(questions))
    return [found[number] for number in range(len(questions))]


def _scores(reader: Reader, windows: Sequence[Feature], batch_tokens: int | None) -> list[Tensor]:
    """Of each window ``(2, tokens)`` float32, as starts and as ends."""
    device = reader.model.device
    found: list[Tensor] = [torch.empty(0)] * len(windows)

    def begin(pool: ThreadPoolExecutor, rows: list[int]) -> Future[list[Tensor]]:
        return pool.submit(read_windows, reader, [windows[row] for row in rows])

    lengths = [len(window.input_ids) for window in windows]
    batches = batches_by_length(lengths, len(windows), batch_tokens or tokens_at_once(device))
    with one_thread_each(device) as pool:
        for rows, each in pool.each(begin, batches):
            for row, both in zip(rows, each, strict=True):
                found[row] = both
    return found


def _told(context: str, text: TextScores, top: int, max_tokens: int) -> Told:
    """Of one text."""
    offsets = text.offsets[text.allowed]
    likely, tokens = text.scores[:, text.allowed].softmax(dim=1).topk(min(top, len(offsets)), dim=1)
    pieces = [context[begin:end] for begin, end in offsets.tolist()]
    # Byte-level tokens may begin with the space before a word.
    spaces = torch.tensor([len(piece) - len(piece.lstrip()) for piece in pieces], dtype=torch.int64)
    begins = offsets[:, 0] + spaces
    starts, ends = (
        [(place, share) for place, share in zip(at.tolist(), shares.tolist(), strict=True) if share > 0]
        for at, shares in ((begins[tokens[0]], likely[0]), (offsets[tokens[1], 1], likely[1]))
    )
    return Told(starts, ends, text.best(context, max_tokens))
