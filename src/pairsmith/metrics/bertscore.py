"""BERTScore: the similarity of two texts, computed from their token vectors (Q8)."""

import torch
from torch import Tensor


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
