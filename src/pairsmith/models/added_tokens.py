"""Special tokens that trainings add to text generators: the marker of mined documents, and separators."""

from typing import Any

import torch
from torch import nn

from pairsmith.models.text_generator import TextGenerator


def add_marker(generator: TextGenerator, marker: str, *, written: bool = False) -> None:
    """Add ``marker`` to the vocabulary as a special token, in place (M9).

    Its embeddings are the mean of all others, so that they are not random and the marker does not make any
    text more likely. An existing token is not changed. In a model of an encoder and a decoder with separate
    vocabularies, the decoder gets the marker only if it is ``written``, and not only read.
    """
    model = generator.model
    models = [model]
    if model.config.model_type == "encoder-decoder":
        models = [model.encoder, model.decoder] if written else [model.encoder]
    generator.tokenizer.add_tokens([marker], special_tokens=True)
    for network in models:
        _grow(network, len(generator.tokenizer))


def _grow(model: Any, count: int) -> None:
    """Enlarge a model's vocabulary to ``count`` tokens; new embeddings are the mean of the existing ones."""
    before = [table.weight.detach() for table in _tables(model)]
    size = len(before[0])
    if count <= size:  # the token exists, or the table has unused rows
        return
    shared = len({id(table.weight) for table in _tables(model)}) == 1
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        model.resize_token_embeddings(count, mean_resizing=False)
        if not shared:  # resizing ties the two tables if most models of this type tie them
            model.get_output_embeddings().weight = nn.Parameter(model.get_input_embeddings().weight.clone())
        for table, rows in zip(_tables(model), before, strict=True):
            table.weight[:size] = rows
            table.weight[size:] = rows.mean(dim=0)


def _tables(model: Any) -> list[Any]:
    """The input embeddings and, if the model has them, the output embeddings; both are often one table."""
    tables = (model.get_input_embeddings(), model.get_output_embeddings())
    return [table for table in tables if table is not None]
