"""Summarisers: models with an encoder and a decoder that write a summary of a document (M9), by beam search.

The paper writes with beams and does not say how. Here it is how BART's authors wrote summaries of XSum:
6 beams, length penalty 1.0, no three tokens twice, at least 11 and at most 62 tokens, the beams' end as soon
as there are 6 whole summaries. Tokens are counted with the one that the decoder starts from.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pairsmith.encoders.encode import batches_by_length, one_thread_each
from pairsmith.encoders.heads import load_with_head
from pairsmith.errors import ModelError
from pairsmith.modelnames import DtypeName

BEAMS = 6
SUMMARY_TOKENS = 62
"""Longest summary in tokens."""

SHORTEST = 11
"""Shortest summary in tokens."""

_LENGTH_PENALTY = 1.0
_NOT_TWICE = 3  # tokens in a row

# What a model says of its own special tokens. How its summaries are searched is not for it to say.
_TOKENS = (
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
    "decoder_start_token_id",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "bad_words_ids",
    "suppress_tokens",
    "begin_suppress_tokens",
)


def shortest_of(kind: str) -> int:
    """Tokens of a summary at least, or of kind ``reading`` of a question, which may be short."""
    return 1 if kind == "reading" else SHORTEST


@dataclass(frozen=True, slots=True)
class Summarizer:
    """A model that writes summaries, its tokenizer, and lengths in tokens.

    Attributes:
        max_length: of the longest document.
        context: of the longest text that the model could read or write.
    """

    model: Any
    tokenizer: Any
    max_length: int
    context: int


def load_summarizer(
    model: str,
    *,
    device: str = "auto",
    dtype: DtypeName = "float32",
    max_length: int | None = None,
    fresh_decoder: bool = False,
    seed: int = 0,
) -> Summarizer:
    """Load ``model`` as a summariser.

    Args:
        model: a folder or Hub id of a model with an encoder and a decoder, e.g. BART or T5, in the format of
            transformers.
        device: as for ``pick_device``.
        dtype: of the weights.
        max_length: longest document in tokens; never more than the model's context, which is the default.
        fresh_decoder: give an encoder such as BERT a decoder, to be trained; see ``load_with_head``.
        seed: of what such a decoder has drawn.

    Raises:
        ModelError: the model is missing, incomplete, of another kind, or does not say which token a text
            starts from; its tokenizer cannot be used.
        SettingsError: there is no such device.
    """
    from transformers import GenerationConfig

    network, tokenizer, context = load_with_head(
        model, "summarization", device=device, dtype=dtype, fresh_head=fresh_decoder, seed=seed
    )
    own = network.generation_config
    network.generation_config = GenerationConfig(**{name: getattr(own, name, None) for name in _TOKENS})
    network.generation_config.pad_token_id = tokenizer.pad_token_id
    if own.decoder_start_token_id is None and own.bos_token_id is None:
        raise ModelError(
            f"model {model}: does not say which token a summary starts from; give its config.json a "
            "decoder_start_token_id"
        )
    return Summarizer(network, tokenizer, min(max_length or context, context), context)


def add_marker(summarizer: Summarizer, marker: str, *, written: bool = False) -> None:
    """Make ``marker`` a special token of its own, in place (M9).

    Its vectors are the mean of all others, so that nothing is drawn and no text becomes more likely by it.
    One that is there already stays as it is.

    Args:
        summarizer: of one model, or of two, an encoder and a decoder.
        marker: the token as text.
        written: whether it is written as well as read; of two models the decoder learns of it too.
    """
    model = summarizer.model
    models = [model]
    if model.config.model_type == "encoder-decoder":
        models = [model.encoder, model.decoder] if written else [model.encoder]
    summarizer.tokenizer.add_tokens([marker], special_tokens=True)
    for each in models:
        _grow(each, len(summarizer.tokenizer))


def _grow(model: Any, count: int) -> None:
    """Give a model as many tokens, the new ones with the mean vector of the others."""
    before = [table.weight.detach() for table in _tables(model)]
    known = len(before[0])
    if count <= known:  # the token was known, or the table has rows to spare
        return
    shared = len({id(table.weight) for table in _tables(model)}) == 1
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        model.resize_token_embeddings(count, mean_resizing=False)
        if not shared:  # resizing makes one table of the two where most models of the kind have one
            model.get_output_embeddings().weight = nn.Parameter(model.get_input_embeddings().weight.clone())
        for table, rows in zip(_tables(model), before, strict=True):
            table.weight[:known] = rows
            table.weight[known:] = rows.mean(dim=0)


def _tables(model: Any) -> list[Any]:
    """The vectors of tokens that are read, and of those that are written, if any are; often the same."""
    tables = (model.get_input_embeddings(), model.get_output_embeddings())
    return [table for table in tables if table is not None]


def encode_documents(summarizer: Summarizer, documents: Sequence[str]) -> list[list[int]]:
    """The tokens of each document, special ones included; what is beyond ``max_length`` is cut off."""
    if not documents:
        return []
    return _encode(summarizer, text=list(documents), max_length=summarizer.max_length)


def encode_summaries(summarizer: Summarizer, summaries: Sequence[str], tokens: int) -> list[list[int]]:
    """The tokens that a decoder has to write for each summary, at most ``tokens`` with its end."""
    return _encode(summarizer, text_target=list(summaries), max_length=min(tokens, summarizer.context))


def _encode(summarizer: Summarizer, *, max_length: int, **texts: list[str]) -> list[list[int]]:
    encoded = summarizer.tokenizer(**texts, truncation=True, max_length=max_length, verbose=False)
    ids: list[list[int]] = encoded["input_ids"]
    return ids


def padded(rows: Sequence[Sequence[int]], filler: int) -> Tensor:
    """Rows of tokens, filled up on the right: ``(n, longest)`` int64."""
    longest = max(len(row) for row in rows)
    return torch.tensor([[*row, *[filler] * (longest - len(row))] for row in rows])


def document_features(summarizer: Summarizer, documents: Sequence[Sequence[int]]) -> dict[str, Tensor]:
    """What a model takes for documents of ``encode_documents``: tensors ``(n, longest)``, int64."""
    return {
        "input_ids": padded(documents, summarizer.tokenizer.pad_token_id),
        "attention_mask": padded([[1] * len(row) for row in documents], 0),
    }


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
    """Write a summary of each document; how, the module says (M9). Long documents go first.

    Args:
        summarizer: what to write with; it is put into evaluation mode.
        documents: what is beyond ``max_length`` is not read.
        beams: summaries that are followed at once, at least 1, which takes the likeliest token each time.
        summary_tokens: longest summary, at least 2, in tokens with the one that the decoder starts from;
            never more than the model's context.
        shortest: shortest summary in tokens.
        batch_size: documents at once.
        advance: hears of how many documents are done.

    Returns:
        a summary for each document, without white space at its ends.

    Raises:
        ModelError: the model's scores are not numbers.
    """
    from transformers import LogitsProcessorList

    summarizer.model.eval()
    device = summarizer.model.device
    how = search_settings(summarizer, beams, summary_tokens, shortest)
    rows = encode_documents(summarizer, documents)
    found = [""] * len(rows)

    def written(features: dict[str, Tensor]) -> Tensor:
        with torch.inference_mode():
            moved = {name: value.to(device) for name, value in features.items()}
            ids: Tensor = summarizer.model.generate(
                **moved, generation_config=how, logits_processor=LogitsProcessorList([_check_numbers])
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
    """How ``summarize`` writes, as transformers takes it and as a model folder can hold it."""
    from transformers import GenerationConfig

    longest = min(summary_tokens, summarizer.context)
    own = summarizer.model.generation_config
    of_beams = {"early_stopping": True, "length_penalty": _LENGTH_PENALTY} if beams > 1 else {}
    return GenerationConfig(
        **{name: getattr(own, name) for name in _TOKENS},
        num_beams=beams,
        max_length=longest,
        min_length=min(shortest, longest),
        no_repeat_ngram_size=_NOT_TWICE,
        **of_beams,
    )


def _check_numbers(_: Tensor, scores: Tensor) -> Tensor:
    """Stop where scores are not numbers: any token would do as the best then."""
    if torch.isnan(scores).any():
        raise ModelError(
            "the summariser's scores are not numbers; its weights are damaged, the training diverged (try a "
            "lower learning rate), or its number format is too short (try float32)"
        )
    return scores
