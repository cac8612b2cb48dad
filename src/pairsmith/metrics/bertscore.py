"""BERTScore: the similarity of two texts by their tokens' vectors (Q8)."""

import torch
from torch import Tensor


def bertscore(
    first: Tensor,
    second: Tensor,
    first_there: Tensor,
    second_there: Tensor,
    first_counted: Tensor | None = None,
    second_counted: Tensor | None = None,
) -> Tensor:
    """BERTScore F of pairs of texts (Q8), from each token's largest cosine with a token of the other text.

    F is the harmonic mean of the mean over the first text's tokens and the mean over the second's.

    Args:
        first: ``(…, n, a, d)`` of any floating dtype: token vectors of n texts, perhaps from several layers.
            A zero vector has cosine 0 with all others. ``second`` is ``(…, n, b, d)``.
        first_there: ``(n, a)`` bool, false for padding; at least one token in each text.
        first_counted: ``(n, a)`` bool, the tokens whose cosines are averaged, at least one in each text; if
            not given, all tokens, special tokens included, as for QUIP's figures. The package ``bert_score``
            averages all but the special tokens, which can still be the nearest.

    Returns:
        ``(…, n)`` float32, at most 1; 0 where the two means add up to 0.
    """
    _check(first, second, first_there, second_there)
    a, b = (torch.nn.functional.normalize(vectors.float(), dim=-1) for vectors in (first, second))
    cosines = a @ b.transpose(-1, -2)  # (…, n, a, b)
    nearest_to_first = cosines.masked_fill(~second_there[:, None, :], -torch.inf).amax(dim=-1)
    nearest_to_second = cosines.masked_fill(~first_there[:, :, None], -torch.inf).amax(dim=-2)
    one = _mean(nearest_to_first, first_there if first_counted is None else first_counted)
    other = _mean(nearest_to_second, second_there if second_counted is None else second_counted)
    total = one + other
    return torch.where(total == 0, 0.0, 2 * one * other / total)


def _mean(values: Tensor, counted: Tensor) -> Tensor:
    return values.masked_fill(~counted, 0.0).sum(dim=-1) / counted.sum(dim=-1)


def _check(first: Tensor, second: Tensor, first_there: Tensor, second_there: Tensor) -> None:
    fits = all(
        vectors.ndim >= 3 and vectors.shape[-3:-1] == mask.shape
        for vectors, mask in ((first, first_there), (second, second_there))
    )
    same = first.shape[:-2] == second.shape[:-2] and first.shape[-1:] == second.shape[-1:]
    if not fits or not same:
        raise ValueError(
            f"expected (…, n, a, d) and (…, n, b, d) with (n, a) and (n, b), got {tuple(first.shape)} and "
            f"{tuple(second.shape)} with {tuple(first_there.shape)} and {tuple(second_there.shape)}"
        )
