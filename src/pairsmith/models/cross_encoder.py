"""Cross-encoders: models that read an input and an output together and give the pair a score (M6).

BART's classification head is M6's: ``[CLS] x [SEP] y [SEP]`` goes to the encoder and the decoder, and a
perceptron of two layers scores the last decoder token's final state. Any other sequence classification
model can be used as well. A decoder-only model, such as Llama, reads both texts with a line break between
them, and one layer scores the last token's final state.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor

from pairsmith.core.arrays import Float32s
from pairsmith.core.model_files import META
from pairsmith.models.encode import moved, not_finite, results_by_length
from pairsmith.models.heads import Loading, TextModel, load_with_head, written_by
from pairsmith.models.language.prefix_batches import (
    PrefixRow,
    obstacle,
    prefix_features,
    prefix_inputs,
    prefix_rows,
)


@dataclass(frozen=True, slots=True)
class CrossEncoder(TextModel):
    """A model with a classification head of one number; see ``TextModel``.

    With ``shares`` an input is computed once for all outputs that follow it: such a model is decoder-only,
    so that no state of the input depends on the output.
    """

    shares: bool = False

    def rows(self, inputs: Sequence[str], outputs: Sequence[str]) -> list[PrefixRow]:
        """Rows of n pairs as tokens (M6), each pair in one of them, alone or behind the input that it shares.

        They hold the pairs' tokens where inputs are shared, else only how many there are. The ``numbers`` of
        a row say which of the n pairs are in it.
        """
        tokenized = self.tokenized(inputs, outputs)
        pairs = tokenized["input_ids"]
        if not self.shares:
            counts = map(len, pairs)  # the tokens of all pairs would take far more memory than the texts
            return [PrefixRow(range(count), [[]], [count], [number]) for number, count in enumerate(counts)]
        ends = [_end_of_input(tokenized.sequence_ids(number)) for number in range(len(pairs))]
        prefixes = [tokens[:end] for tokens, end in zip(pairs, ends, strict=True)]
        rest = [tokens[end:] for tokens, end in zip(pairs, ends, strict=True)]
        # Longer rows take more attention, so behind a short input nothing is saved.
        groups = [
            input_text if len(before) > len(behind) > 0 else number
            for number, (input_text, before, behind) in enumerate(zip(inputs, prefixes, rest, strict=True))
        ]
        return list(prefix_rows(prefixes, rest, groups))

    def row_features(
        self, rows: Sequence[PrefixRow], inputs: Sequence[str], outputs: Sequence[str]
    ) -> dict[str, Any]:
        """What ``scores`` needs for some of the rows of these pairs (M6).

        They are model inputs ``(pairs, longest)``, int64; where inputs are shared, the features of the rows
        (see ``prefix_features``) and ``last``, ``(pairs, 2)`` int64: the row and the column of the token
        whose state is scored.
        """
        if not self.shares:
            numbers = [number for row in rows for number in row.numbers]
            return dict(self.features([inputs[i] for i in numbers], [outputs[i] for i in numbers]))
        last = [
            (number, place)
            for number, row in enumerate(rows)
            for place in _scored_places(row, self.tokenizer.pad_token_id)
        ]
        return {**prefix_features(rows), "last": torch.tensor(last)}

    def scores(self, features: Mapping[str, Any]) -> Tensor:
        """The scores of the rows' pairs (M6), one row's after another's, ``(pairs,)`` float32, unbounded."""
        if not self.shares:
            scores: Tensor = self.model(**features).logits
        else:
            rest = {name: value for name, value in features.items() if name != "last"}
            states = self.model.base_model(**prefix_inputs(rest, self.model)).last_hidden_state
            scores = self.model.score(states[features["last"][:, 0], features["last"][:, 1]])
        return scores.float().squeeze(1)


def _end_of_input(parts: Sequence[int | None]) -> int:
    """The number of a pair's tokens before the separator after the input, which belongs to neither text."""
    first = parts.index(0) if 0 in parts else 0
    return next((place for place in range(first, len(parts)) if parts[place] != 0), len(parts))


def _scored_places(row: PrefixRow, padding: int) -> Iterator[int]:
    """The place of the token whose state is scored, in each pair: the last token that is not padding."""
    for text, seen, start in zip(row.texts, row.seen, row.starts(), strict=True):
        places = [*range(seen), *range(start, start + len(text))]
        tokens = [*row.prefix[:seen], *text]
        not_padding = [place for place, token in zip(places, tokens, strict=True) if token != padding]
        yield (not_padding or places)[-1]


def load_cross_encoder(
    model: str, *, fresh_head: bool = False, seed: int = 0, **how: Unpack[Loading]
) -> CrossEncoder:
    """Load ``model`` as a cross-encoder; all arguments are as for ``load_with_head``."""
    network, tokenizer, longest = load_with_head(
        model, "classification", labels=1, fresh_head=fresh_head, seed=seed, **how
    )
    decoder = written_by(network.config) == "decoder" and hasattr(network, "score")
    shares = decoder and how.get("device") != META and obstacle(network) is None
    return CrossEncoder(network, tokenizer, longest, shares)


def score_pairs(
    cross: CrossEncoder,
    inputs: Sequence[str],
    outputs: Sequence[str],
    *,
    batch_tokens: int | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> Float32s:
    """The score of each pair (M6), ``(n,)`` float32, unbounded, the same however many threads there are.

    The model is put into evaluation mode. A batch has at most ``batch_tokens`` tokens, padding included, or
    as many as suit the device; ``advance`` is called with the number of pairs that were finished.
    """
    if not inputs:
        return np.zeros(0, np.float32)
    cross.model.eval()
    device = cross.model.device
    rows = cross.rows(inputs, outputs)
    scores: Float32s = np.empty(len(inputs), np.float32)

    def scored(features: dict[str, Any]) -> Float32s:
        with torch.inference_mode():
            batch_scores: Float32s = cross.scores(moved(features, device)).cpu().numpy()
            return batch_scores

    for batch, results in results_by_length(
        list(map(len, rows)),
        lambda batch: cross.row_features([rows[row] for row in batch], inputs, outputs),
        scored,
        device,
        batch_size=1_024,
        batch_tokens=batch_tokens,
    ):
        scores[[number for row in batch for number in rows[row].numbers]] = results
        advance(len(results))
    if not np.isfinite(scores).all():
        raise not_finite("the cross-encoder gives scores")
    return scores
