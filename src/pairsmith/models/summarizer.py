"""Summarisers: models with an encoder and a decoder that write a summary of a document (M9), by beam search.

The paper uses beam search without giving its settings. Here they are those of BART's authors for XSum:
6 beams, length penalty 1.0, no repeated trigrams, at least 11 and at most 62 tokens, early stopping as soon
as 6 summaries are complete. Token counts include the decoder's start token.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from pairsmith.core.errors import ModelError
from pairsmith.models.encode import batches_by_length, moved, one_thread_each, padded_inputs
from pairsmith.models.heads import Loading, TextModel, load_with_head

BEAMS = 6
SUMMARY_TOKENS = 62
"""Longest summary in tokens."""

SHORTEST = 11
"""Shortest summary in tokens."""

# Generation settings that are taken from the model: its special tokens, but nothing about the search.
_TOKENS = (
    "pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id", "forced_bos_token_id",
    "forced_eos_token_id", "bad_words_ids", "suppress_tokens", "begin_suppress_tokens",
)  # fmt: skip


def shortest_of(kind: str) -> int:
    """The shortest output in tokens: of a summary, or, for kind ``reading``, of a question."""
    return 1 if kind == "reading" else SHORTEST


@dataclass(frozen=True, slots=True)
class Summarizer(TextModel):
    """A model that writes summaries; ``context`` is the longest text that it could read or write."""

    context: int


def load_summarizer(
    model: str, *, fresh_decoder: bool = False, seed: int = 0, **how: Unpack[Loading]
) -> Summarizer:
    """Load ``model``, which has an encoder and a decoder as BART and T5 have, as a summariser.

    With ``fresh_decoder``, an encoder such as BERT gets a decoder, to be trained. The other arguments are as
    for ``load_with_head``.
    """
    from transformers import GenerationConfig

    max_length = how.pop("max_length", None)
    network, tokenizer, context = load_with_head(
        model, "summarization", fresh_head=fresh_decoder, seed=seed, **how
    )
    own = network.generation_config
    network.generation_config = GenerationConfig(**{name: getattr(own, name, None) for name in _TOKENS})
    network.generation_config.pad_token_id = tokenizer.pad_token_id
    if own.decoder_start_token_id is None and own.bos_token_id is None:
        raise ModelError(
            f"model {model}: does not say which token a summary starts from; add decoder_start_token_id "
            "to its config.json"
        )
    return Summarizer(network, tokenizer, min(max_length or context, context), context)


def add_marker(summarizer: Summarizer, marker: str, *, written: bool = False) -> None:
    """Make ``marker`` a special token of its own, in place (M9).

    Its embeddings are the mean of all others, so that nothing is random and no text becomes more likely by
    it. An existing marker is left as it is. In a pair of models, an encoder and a decoder, the decoder gets
    the marker only if it is ``written`` as well as read.
    """
    model = summarizer.model
    models = [model]
    if model.config.model_type == "encoder-decoder":
        models = [model.encoder, model.decoder] if written else [model.encoder]
    summarizer.tokenizer.add_tokens([marker], special_tokens=True)
    for each in models:
        _grow(each, len(summarizer.tokenizer))


def _grow(model: Any, count: int) -> None:
    """Enlarge a model's vocabulary to ``count`` tokens; new embeddings are the mean of the others."""
    before = [table.weight.detach() for table in _tables(model)]
    known = len(before[0])
    if count <= known:  # the token was known, or the table has rows to spare
        return
    shared = len({id(table.weight) for table in _tables(model)}) == 1
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        model.resize_token_embeddings(count, mean_resizing=False)
        if not shared:  # resizing ties the two tables where most models of the kind tie them
            model.get_output_embeddings().weight = nn.Parameter(model.get_input_embeddings().weight.clone())
        for table, rows in zip(_tables(model), before, strict=True):
            table.weight[:known] = rows
            table.weight[known:] = rows.mean(dim=0)


def _tables(model: Any) -> list[Any]:
    """The input embeddings and, if there are any, the output embeddings; often the same table."""
    tables = (model.get_input_embeddings(), model.get_output_embeddings())
    return [table for table in tables if table is not None]


def encode_documents(summarizer: Summarizer, documents: Sequence[str]) -> list[list[int]]:
    """The tokens of each document, special tokens included, cut off after ``max_length``."""
    return _encode(summarizer, text=list(documents), max_length=summarizer.max_length) if documents else []


def encode_summaries(summarizer: Summarizer, summaries: Sequence[str], tokens: int) -> list[list[int]]:
    """The tokens that a decoder has to write for each summary, at most ``tokens`` with the end token."""
    return _encode(summarizer, text_target=list(summaries), max_length=min(tokens, summarizer.context))


def _encode(summarizer: Summarizer, *, max_length: int, **texts: list[str]) -> list[list[int]]:
    encoded = summarizer.tokenizer(**texts, truncation=True, max_length=max_length, verbose=False)
    return list(encoded["input_ids"])


def document_features(summarizer: Summarizer, documents: Sequence[Sequence[int]]) -> dict[str, Tensor]:
    """Model inputs for documents from ``encode_documents``: tensors ``(n, longest)``, int64."""
    return padded_inputs(documents, summarizer.tokenizer.pad_token_id)


def summarize(
    summarizer: Summarizer,
    documents: Sequence[str],
    *,
    beams: int = BEAMS,
    summary_tokens: int = SUMMARY_TOKENS,
    shortest: int = SHORTEST,
    batch_size: int = 8,
    advance: Callable[[int], None] = lambda _: None,
) -> list[str]:
    """Write a summary of each document by beam search, see the module (M9). Long documents go first.

    The model is put into evaluation mode. Summaries lose white space at their ends.

    Documents are cut off after ``max_length`` tokens. One beam is greedy search. A summary has ``shortest``
    to ``summary_tokens`` tokens, at least 2 and never more than the model's context. ``advance`` is called
    with the number of documents that were finished.
    """
    from transformers import LogitsProcessorList

    summarizer.model.eval()
    device = summarizer.model.device
    how = search_settings(summarizer, beams, summary_tokens, shortest)
    rows = encode_documents(summarizer, documents)
    found = [""] * len(rows)

    def written(features: dict[str, Tensor]) -> Tensor:
        with torch.inference_mode():
            ids: Tensor = summarizer.model.generate(
                **moved(features, device),
                generation_config=how,
                logits_processor=LogitsProcessorList([_check_numbers]),
            )
            return ids.cpu()

    def begin(pool: ThreadPoolExecutor, batch: list[int]) -> Future[Tensor]:
        return pool.submit(written, document_features(summarizer, [rows[row] for row in batch]))

    most = batch_size * summarizer.max_length
    with one_thread_each(device) as pool:
        for batch, ids in pool.each(begin, batches_by_length([len(row) for row in rows], batch_size, most)):
            texts = summarizer.tokenizer.batch_decode(ids, skip_special_tokens=True)
            for row, text in zip(batch, texts, strict=True):
                found[row] = text.strip()
            advance(len(batch))
    return found


def search_settings(summarizer: Summarizer, beams: int, summary_tokens: int, shortest: int = SHORTEST) -> Any:
    """The generation config of ``summarize``, which can also be saved in a model folder."""
    from transformers import GenerationConfig

    longest = min(summary_tokens, summarizer.context)
    own = summarizer.model.generation_config
    of_beams = {"early_stopping": True, "length_penalty": 1.0} if beams > 1 else {}
    return GenerationConfig(
        **{name: getattr(own, name) for name in _TOKENS},
        num_beams=beams,
        max_length=longest,
        min_length=min(shortest, longest),
        no_repeat_ngram_size=3,
        **of_beams,
    )


def _check_numbers(_: Tensor, scores: Tensor) -> Tensor:
    """Raise an error where a score is NaN, as any token could then be taken for the best."""
    if torch.isnan(scores).any():
        raise ModelError(
            "the summariser's scores are not numbers; its weights are damaged, the training diverged (try a "
            "lower learning rate), or its number format is too narrow (try float32)"
        )
    return scores
