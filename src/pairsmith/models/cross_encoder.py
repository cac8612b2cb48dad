"""Cross-encoders: models that read an input and an output together and score the pair (M6).

M6 uses BART's classification head: ``[CLS] x [SEP] y [SEP]`` is the input of the encoder and of the decoder,
and a perceptron with two layers maps the final state of the decoder's last token to the score. As usual with
BART, the decoder reads it shifted by one token, after an end token. Any other sequence classification model
can be used, too. A decoder-only model, such as Llama, reads the two texts with a line break between them, and
a linear layer maps the final state of the last token to the score.
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


@dataclass(frozen=True, slots=True, repr=False)
class CrossEncoder(TextModel):
    """A model whose classification head has one output; see ``TextModel``.

    With ``shares``, the states of an input's tokens are computed once for all of its outputs. This is
    possible for decoder-only models, in which the states of the input do not depend on the output.
    """

    shares: bool = False

    def rows(self, inputs: Sequence[str], outputs: Sequence[str]) -> list[PrefixRow]:
        """Rows of a batch for n pairs; each row has one pair, or several pairs with the same input (M6).

        If inputs are shared (``shares``), the rows contain the tokens of the pairs, otherwise only the
        numbers of tokens. The ``numbers`` of a row are the indices of its pairs.
        """
        tokenized = self.tokenized(inputs, outputs)
        pairs = tokenized["input_ids"]
        if not self.shares:
            counts = map(len, pairs)  # the tokens of all pairs would take far more memory than the texts
            return [PrefixRow(range(count), [[]], [count], [number]) for number, count in enumerate(counts)]
        ends = [_end_of_input(tokenized.sequence_ids(number)) for number in range(len(pairs))]
        prefixes = [tokens[:end] for tokens, end in zip(pairs, ends, strict=True)]
        rest = [tokens[end:] for tokens, end in zip(pairs, ends, strict=True)]
        # Attention takes longer in longer rows, so an input is shared only if it is longer than the output.
        groups = [
            input_text if len(prefix) > len(continuation) > 0 else number
            for number, (input_text, prefix, continuation) in enumerate(
                zip(inputs, prefixes, rest, strict=True)
            )
        ]
        return list(prefix_rows(prefixes, rest, groups))

    def row_features(
        self, rows: Sequence[PrefixRow], inputs: Sequence[str], outputs: Sequence[str]
    ) -> dict[str, Any]:
        """The features that ``scores`` needs for some of the rows of these pairs (M6).

        They are model inputs, ``(pairs, longest)`` int64. If inputs are shared, they are the
        ``prefix_features`` of the rows and ``last``, ``(pairs, 2)`` int64: the row and the column of the
        token whose final state is mapped to the pair's score.
        """
        if not self.shares:
            numbers = [number for row in rows for number in row.numbers]
            return dict(self.features([inputs[i] for i in numbers], [outputs[i] for i in numbers]))
        last = [
            (number, column)
            for number, row in enumerate(rows)
            for column in _scored_columns(row, self.tokenizer.pad_token_id)
        ]
        return {**prefix_features(rows), "last": torch.tensor(last)}

    def scores(self, features: Mapping[str, Any]) -> Tensor:
        """The scores of the pairs of all rows, row by row: ``(pairs,)`` float32, unbounded (M6)."""
        if not self.shares:
            scores: Tensor = self.model(**features).logits
        else:
            rest = {name: value for name, value in features.items() if name != "last"}
            states = self.model.base_model(**prefix_inputs(rest, self.model)).last_hidden_state
            scores = self.model.score(states[features["last"][:, 0], features["last"][:, 1]])
        return scores.float().squeeze(1)


def _end_of_input(parts: Sequence[int | None]) -> int:
    """The number of a pair's tokens up to the last token of the input.

    ``parts`` has for each token 0 if it is of the input, 1 if it is of the output, None if it is special.
    """
    first = parts.index(0) if 0 in parts else 0
    return next((index for index in range(first, len(parts)) if parts[index] != 0), len(parts))


def _scored_columns(row: PrefixRow, padding: int) -> Iterator[int]:
    """For each pair of a row, the column of its last token that is not the padding token."""
    for text, seen, start in zip(row.texts, row.seen, row.starts(), strict=True):
        columns = [*range(seen), *range(start, start + len(text))]
        tokens = [*row.prefix[:seen], *text]
        not_padding = [column for column, token in zip(columns, tokens, strict=True) if token != padding]
        yield (not_padding or columns)[-1]


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
    """The score of each of n pairs: ``(n,)`` float32, unbounded (M6).

    The scores do not depend on the number of threads.

    Args:
        cross: the cross-encoder; it is put into evaluation mode.
        inputs: the n inputs.
        outputs: the output of each pair.
        batch_tokens: the largest number of tokens in a batch, padding included; None: what suits the device.
        advance: is called after each batch with the number of its pairs.
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
