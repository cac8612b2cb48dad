"""Gradients of token embeddings, accumulated in memory that every step uses again."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel


@contextmanager
def kept_vocabulary_gradients(model: nn.Module) -> Iterator[None]:
    """Within this context, gradients of token embeddings are accumulated in memory that each step uses again.

    In each call of the model torch allocates a gradient for the whole vocabulary, although a batch uses few
    of its tokens. The system has to clear this memory, which for a small model takes a quarter of a step.
    Within the context, the gradient of a call has rows for its own tokens only. These rows are added into one
    tensor that lasts as long as the context and becomes the weight's ``grad``. The gradient is the same
    except for rounding, as the rows of a token that occurs in several calls are added in another order.
    Embeddings that share their weight with another module are not changed.
    """
    embeddings = _embeddings(model)
    hooks = []
    for embedding in embeddings:
        spread = partial(_spread, torch.empty_like(embedding.weight))
        hooks.append(embedding.weight.register_post_accumulate_grad_hook(spread))  # type: ignore[no-untyped-call]  # torch has no types for it
        embedding.sparse = True
    try:
        yield
    finally:
        for embedding in embeddings:
            embedding.sparse = False
        for hook in hooks:
            hook.remove()


def _embeddings(model: nn.Module) -> list[nn.Embedding]:
    """The trained token embeddings of all transformers models in ``model`` that share no weight."""
    holders: dict[int, int] = {}
    for module in model.modules():
        for weight in module.parameters(recurse=False):
            holders[id(weight)] = holders.get(id(weight), 0) + 1
    by_id: dict[int, nn.Embedding] = {}
    for module in model.modules():
        if isinstance(module, PreTrainedModel):
            tokens = module.get_input_embeddings()
            if type(tokens) is nn.Embedding and tokens.weight.requires_grad and not tokens.sparse:
                by_id[id(tokens)] = tokens
    return [embedding for embedding in by_id.values() if holders[id(embedding.weight)] == 1]


def _spread(kept: Tensor, weight: Tensor) -> None:
    """Turn the sparse gradient of ``weight`` into a dense one, in the memory of ``kept``."""
    rows = weight.grad
    if rows is None or not rows.is_sparse:
        return
    weight.grad = kept.zero_().index_add_(0, rows._indices()[0], rows._values().to(kept.dtype))
