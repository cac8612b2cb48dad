"""BERTScore: the similarity of two texts, computed from their token vectors (Q8)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pairsmith.core.arrays import Float32s, Float64s
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.paraphrases import Paraphrase
from pairsmith.data.schemas import GradedPair
from pairsmith.models.encode import not_finite, results_by_length
from pairsmith.models.token_vectors import TokenEncoder

TextPair = Paraphrase | GradedPair

_AT_ONCE = 512
"""Largest number of pairs in a batch."""


@dataclass(frozen=True, slots=True)
class BertScorer:
    """Scores pairs of texts with the token vectors of an encoder's layers (Q8).

    Attributes:
        encoder: computes the token vectors.
        special_tokens: whether the similarities of special tokens are averaged, too, as in QUIP's figures.
        batch_tokens: the largest number of tokens in a batch, padding included; None: what suits the device.
    """

    encoder: TokenEncoder
    special_tokens: bool = True
    batch_tokens: int | None = None

    def scores(
        self, pairs: Sequence[TextPair], layers: Sequence[int], progress: Progress | None = None
    ) -> Float64s:
        """The BERTScore F of each pair with each of ``layers``: ``(pairs, layers)`` float64, at most 1 (Q8).

        The scores are computed in float32. The encoder is put into evaluation mode.

        Args:
            pairs: one or more pairs of texts, none of which is blank.
            layers: the numbers of the layers, from 0 to ``encoder.layers``.
            progress: shows how far the scoring is; by default nothing is shown.

        Raises:
            ModelError: the encoder gives vectors that are not finite.
        """
        self.encoder.model.eval()
        scores: Float64s = np.empty((len(pairs), len(layers)))
        sides = [pair.sentence1 for pair in pairs], [pair.sentence2 for pair in pairs]
        lengths = map(max, *(self.encoder.token_counts(side) for side in sides))

        def compute(features: Mapping[str, Tensor]) -> Float32s:
            with torch.inference_mode():
                return np.asarray(self.batch_scores(features, layers).T.cpu().numpy(), np.float32)

        with (progress or Silent()).task("score", len(pairs), "pairs") as bar:
            for rows, results in results_by_length(
                [2 * longest for longest in lengths],
                lambda rows: self.features([pairs[row] for row in rows]),
                compute,
                self.encoder.model.device,
                batch_size=_AT_ONCE,
                batch_tokens=self.batch_tokens,
            ):
                scores[rows] = results
                bar.advance(len(rows))
        if not np.isfinite(scores).all():
            raise not_finite("the encoder gives vectors")
        return scores

    def features(self, pairs: Sequence[TextPair]) -> Mapping[str, Tensor]:
        """The encoder's inputs for n pairs, first texts before second texts: ``(2 · n, longest)`` int64."""
        return self.encoder.features([pair.sentence1 for pair in pairs] + [pair.sentence2 for pair in pairs])

    def batch_scores(self, features: Mapping[str, Tensor], layers: Sequence[int]) -> Tensor:
        """The BERTScore F of n pairs with each of ``layers``: ``(layers, n)`` float32, at most 1 (Q8).

        ``features`` are the features of the pairs; the layers are numbers from 0 to ``encoder.layers``.
        Gradients are propagated to the encoder, as fine-tuning needs them (Q9). A score is NaN if the
        encoder's vectors are not finite.
        """
        by_layer = self.encoder.states(features)
        states = torch.stack([by_layer[layer] for layer in layers])  # (layers, 2 · n, longest, d)
        attended = features["attention_mask"].bool().to(states.device)
        counted = attended
        if not self.special_tokens:
            plain = attended & ~self.encoder.is_special(features).to(states.device)
            counted = torch.where(plain.any(dim=1, keepdim=True), plain, attended)
        first, second = states.chunk(2, dim=1)
        return bertscore(first, second, *attended.chunk(2), *counted.chunk(2))


def bertscore(
    first: Tensor,
    second: Tensor,
    first_mask: Tensor,
    second_mask: Tensor,
    first_counted: Tensor | None = None,
    second_counted: Tensor | None = None,
) -> Tensor:
    """The BERTScore F of n pairs of texts (Q8): ``(…, n)`` float32, at most 1.

    A token's similarity is its largest cosine with a token of the other text. F is the harmonic mean of the
    mean similarity of the first text's tokens and that of the second text's tokens; it is 0 if these two
    means add up to 0.

    Args:
        first: ``(…, n, a, d)`` of any floating dtype, the token vectors of n texts; the leading dimensions
            may be layers. A zero vector has cosine 0 with all others.
        second: ``(…, n, b, d)``, the token vectors of the texts to compare with.
        first_mask: ``(n, a)`` bool, False for padding; each text has at least one token.
        second_mask: ``(n, b)`` bool, likewise.
        first_counted: ``(n, a)`` bool, the tokens whose similarity is averaged, at least one per text. None:
            all tokens, including special tokens, as in QUIP's figures. (The package ``bert_score`` does not
            average special tokens, but a special token may have the largest cosine.)
        second_counted: ``(n, b)`` bool or None, likewise.
    """
    _check(first, second, first_mask, second_mask)
    a, b = (torch.nn.functional.normalize(vectors.float(), dim=-1) for vectors in (first, second))
    cosines = a @ b.transpose(-1, -2)  # (…, n, a, b)
    largest_of_first = cosines.masked_fill(~second_mask[:, None, :], -torch.inf).amax(dim=-1)
    largest_of_second = cosines.masked_fill(~first_mask[:, :, None], -torch.inf).amax(dim=-2)
    first_mean = _mean(largest_of_first, first_mask if first_counted is None else first_counted)
    second_mean = _mean(largest_of_second, second_mask if second_counted is None else second_counted)
    total = first_mean + second_mean
    return torch.where(total == 0, 0.0, 2 * first_mean * second_mean / total)


def _mean(values: Tensor, counted: Tensor) -> Tensor:
    """The mean over the last dimension of the values that are ``counted``."""
    return values.masked_fill(~counted, 0.0).sum(dim=-1) / counted.sum(dim=-1)


def _check(first: Tensor, second: Tensor, first_mask: Tensor, second_mask: Tensor) -> None:
    masks_fit = all(
        vectors.ndim >= 3 and vectors.shape[-3:-1] == mask.shape
        for vectors, mask in ((first, first_mask), (second, second_mask))
    )
    comparable = first.shape[:-2] == second.shape[:-2] and first.shape[-1:] == second.shape[-1:]
    if not masks_fit or not comparable:
        raise ValueError(
            f"expected (…, n, a, d) and (…, n, b, d) with (n, a) and (n, b), got {tuple(first.shape)} and "
            f"{tuple(second.shape)} with {tuple(first_mask.shape)} and {tuple(second_mask.shape)}"
        )
