"""What a teacher says of a question: where its answer starts and ends, with which probability (Q3)."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pairsmith.encoders.encode import batches_by_length, one_thread_each, tokens_at_once
from pairsmith.encoders.middles import keep_middles
from pairsmith.encoders.reader import ANSWER_TOKENS, Feature, Prediction, Reader, collate, encode_questions
from pairsmith.encoders.spans import best_span
from pairsmith.errors import ModelError

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

    Of a text in several windows each token counts in that in which more stands about it, and one softmax is
    taken over all tokens of the text.

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
    logits = _logits(reader, windows, batch_tokens)
    found: dict[int, Told] = {}
    for number, rows in groupby(range(len(windows)), key=lambda row: windows[row].question):
        each = list(rows)
        some = [windows[row] for row in each]
        kept = [window.is_context.clone() for window in some]
        keep_middles([window.offsets for window in some], kept)
        offsets = torch.cat([window.offsets[mask] for window, mask in zip(some, kept, strict=True)])
        scores = torch.cat([logits[row][:, mask] for row, mask in zip(each, kept, strict=True)], dim=1)
        found[number] = _told(contexts[number], scores, offsets, top, max_answer_tokens)
    advance(len(questions))
    return [found[number] for number in range(len(questions))]


def _logits(reader: Reader, windows: Sequence[Feature], batch_tokens: int | None) -> list[Tensor]:
    """Of each window ``(2, tokens)`` float32, as starts and as ends."""
    device = reader.model.device
    found: list[Tensor] = [torch.empty(0)] * len(windows)

    def read(rows: Sequence[Feature]) -> NDArray[np.float32]:
        with torch.inference_mode():
            output = reader.model(**{name: value.to(device) for name, value in collate(reader, rows).items()})
            both = torch.stack([output.start_logits, output.end_logits], dim=1)
            numbers: NDArray[np.float32] = both.float().cpu().numpy()
            return numbers

    def begin(pool: ThreadPoolExecutor, rows: list[int]) -> Future[NDArray[np.float32]]:
        return pool.submit(read, [windows[row] for row in rows])

    lengths = [len(window.input_ids) for window in windows]
    batches = batches_by_length(lengths, len(windows), batch_tokens or tokens_at_once(device))
    with one_thread_each(device) as pool:
        for rows, numbers in pool.each(begin, batches):
            for row, both in zip(rows, numbers, strict=True):
                found[row] = torch.from_numpy(both[:, : lengths[row]])
    return found


def _told(context: str, scores: Tensor, offsets: Tensor, top: int, max_tokens: int) -> Told:
    """Of one text: ``scores`` ``(2, tokens)``, where its tokens are at ``offsets``."""
    if not len(offsets):
        return Told([], [], Prediction("", 0, 0.0))
    if not torch.isfinite(scores).all():
        raise ModelError(
            "the teacher gives scores that are not finite; its weights are damaged, or its number format is "
            "too short: try float32"
        )
    likely, tokens = scores.softmax(dim=1).topk(min(top, len(offsets)), dim=1)
    texts = [context[begin:end] for begin, end in offsets.tolist()]
    spaces = [len(text) - len(text.lstrip()) for text in texts]  # of byte-level tokens, before the word
    begins = offsets[:, 0] + torch.tensor(spaces)
    starts, ends = (
        [(place, share) for place, share in zip(at.tolist(), shares.tolist(), strict=True) if share > 0]
        for at, shares in ((begins[tokens[0]], likely[0]), (offsets[tokens[1], 1], likely[1]))
    )
    spans = best_span(scores[:1], scores[1:], torch.ones(1, len(offsets), dtype=torch.bool), max_tokens)
    begin, end = int(offsets[spans.starts[0], 0]), int(offsets[spans.ends[0], 1])
    return Told(starts, ends, Prediction.of(context, float(spans.scores[0]), begin, end))
