"""Text generators: models that write a summary of a document, or a question (M9), by beam search.

In the paper the encoder of BART reads the document and its decoder writes the summary. A decoder-only model
reads the document and a cue, and writes the summary after them. The cue is ``TL;DR:`` on a line of its own,
or ``Question:`` where a question is to be written.

The paper uses beam search without giving its settings. Here they are those of BART's authors for XSum:
6 beams, length penalty 1.0, no repeated trigrams, at least 11 and at most 62 tokens, early stopping as soon
as 6 summaries are complete. Token counts include the end token, and the start token that a decoder has after
an encoder.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Unpack

import torch
from torch import Tensor, nn

from pairsmith.core.errors import ModelError
from pairsmith.models.encode import beginning, moved, padded_inputs, results_by_length
from pairsmith.models.heads import Loading, TextModel, load_with_head, positions_of, writes_as

BEAMS = 6
SUMMARY_TOKENS = 62
"""Longest summary in tokens."""

SHORTEST = 11
"""Shortest summary in tokens."""

CUES = {"summaries": "\nTL;DR:", "reading": "\nQuestion:"}
"""The cue that a decoder-only model reads after a document, or after an answer in a passage."""

_NGRAM = 3  # no so many tokens occur twice in a summary
_LEAST_READ = 8  # fewest tokens of a document that a decoder-only model has to have room for

# Generation settings that are taken from the model: its special tokens, but nothing about the search.
_TOKENS = (
    "pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id", "forced_bos_token_id",
    "forced_eos_token_id", "bad_words_ids", "suppress_tokens", "begin_suppress_tokens",
)  # fmt: skip


def shortest_of(kind: str) -> int:
    """The shortest output in tokens: of a summary, or, for kind ``reading``, of a question."""
    return 1 if kind == "reading" else SHORTEST


@dataclass(frozen=True, slots=True)
class TextGenerator(TextModel):
    """A model that reads a text, its input, and writes another: a summary, or a question.

    ``context`` is the longest text that it could read or write. A decoder-only model has a ``cue``, one of
    ``CUES``, and its context holds input, cue and output together.
    """

    context: int
    cue: str | None = None


def load_text_generator(
    model: str,
    kind: Literal["summaries", "reading"] = "summaries",
    *,
    fresh_decoder: bool = False,
    seed: int = 0,
    **how: Unpack[Loading],
) -> TextGenerator:
    """Load ``model``, which has an encoder and a decoder as BART has, or a decoder only.

    ``kind`` is what a decoder-only model writes: summaries, or questions to answers in passages. With
    ``fresh_decoder``, an encoder such as BERT gets a decoder, to be trained. The other arguments are as for
    ``load_with_head``.
    """
    from transformers import GenerationConfig

    continues = writes_as(model) == "decoder"
    network, tokenizer, longest = load_with_head(
        model,
        "continuation" if continues else "summarization",
        fresh_head=fresh_decoder,
        seed=seed,
        **how,
    )
    own = network.generation_config
    network.generation_config = GenerationConfig(**{name: getattr(own, name, None) for name in _TOKENS})
    network.generation_config.pad_token_id = tokenizer.pad_token_id
    if continues:
        network.generation_config.eos_token_id = _ends(model, own.eos_token_id, tokenizer.eos_token_id)
    elif own.decoder_start_token_id is None and own.bos_token_id is None:
        raise ModelError(
            f"model {model}: does not say which token a summary starts from; add decoder_start_token_id "
            "to its config.json"
        )
    return TextGenerator(
        network, tokenizer, longest, positions_of(network), CUES[kind] if continues else None
    )


def _ends(model: str, own: int | list[int] | None, taught: int | None) -> list[int]:
    """The tokens that end a text: those that the model knows, and the tokenizer's, which is trained."""
    if taught is None:
        raise ModelError(
            f"model {model}: its tokenizer has no end token, which is to end a summary; name one as "
            "eos_token in its tokenizer_config.json"
        )
    ends = [own] if isinstance(own, int) else own or []
    return [taught, *(token for token in ends if token != taught)]


def add_marker(generator: TextGenerator, marker: str, *, written: bool = False) -> None:
    """Make ``marker`` a special token of its own, in place (M9).

    Its embeddings are the mean of all others, so that nothing is random and no text becomes more likely by
    it. An existing marker is left as it is. In a pair of models, an encoder and a decoder, the decoder gets
    the marker only if it is ``written`` as well as read.
    """
    model = generator.model
    models = [model]
    if model.config.model_type == "encoder-decoder":
        models = [model.encoder, model.decoder] if written else [model.encoder]
    generator.tokenizer.add_tokens([marker], special_tokens=True)
    for network in models:
        _grow(network, len(generator.tokenizer))


def _grow(model: Any, count: int) -> None:
    """Enlarge a model's vocabulary to ``count`` tokens; new embeddings are the mean of the others."""
    before = [table.weight.detach() for table in _tables(model)]
    size = len(before[0])
    if count <= size:  # the token was known, or the table has rows to spare
        return
    shared = len({id(table.weight) for table in _tables(model)}) == 1
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        model.resize_token_embeddings(count, mean_resizing=False)
        if not shared:  # resizing ties the two tables where most models of the kind tie them
            model.get_output_embeddings().weight = nn.Parameter(model.get_input_embeddings().weight.clone())
        for table, rows in zip(_tables(model), before, strict=True):
            table.weight[:size] = rows
            table.weight[size:] = rows.mean(dim=0)


def _tables(model: Any) -> list[Any]:
    """The input embeddings and, if there are any, the output embeddings; often the same table."""
    tables = (model.get_input_embeddings(), model.get_output_embeddings())
    return [table for table in tables if table is not None]


def encode_inputs(
    generator: TextGenerator, inputs: Sequence[str], written: int = SUMMARY_TOKENS
) -> list[list[int]]:
    """The tokens of each input, special tokens included, cut off after ``max_length``.

    For a decoder-only model the cue follows each input, and the context keeps room for an output of
    ``written`` tokens; the tokens of the cue do not count as the input's.
    """
    if not inputs:
        return []
    if generator.cue is None:
        return _encode(generator, text=list(inputs), max_length=generator.max_length)
    cue = generator.tokenizer(generator.cue, add_special_tokens=False)["input_ids"]
    rows = _encode(generator, text=list(inputs), max_length=longest_input(generator, written))
    end = generator.tokenizer.eos_token_id
    return [[*(row[:-1] if row[-1:] == [end] else row), *cue] for row in rows]


def longest_input(generator: TextGenerator, written: int = SUMMARY_TOKENS) -> int:
    """The longest input in tokens that is read if an output may have ``written`` tokens.

    That is ``max_length``, and never more than cue and output leave of a decoder-only model's context.
    """
    if generator.cue is None:
        return generator.max_length
    cue = len(generator.tokenizer(generator.cue, add_special_tokens=False)["input_ids"])
    room = generator.context - cue - written
    if room < _LEAST_READ:
        raise ModelError(
            f"the model reads {generator.context} tokens, of which its cue takes {cue} and what it "
            f"writes {written}; have it write fewer tokens, or give a model that reads more"
        )
    return min(generator.max_length, room)


def encode_targets(generator: TextGenerator, targets: Sequence[str], tokens: int) -> list[list[int]]:
    """The tokens that a decoder has to write for each target text, at most ``tokens`` with the end token.

    A decoder-only model has to write a space first, in the same token as the first word where its tokenizer
    puts them together.
    """
    longest = min(tokens, generator.context)
    if generator.cue is None:
        return _encode(generator, text_target=list(targets), max_length=longest)
    encoded = generator.tokenizer(
        [f"{generator.cue} {beginning(generator.tokenizer, text.strip(), longest)}" for text in targets],
        add_special_tokens=False,
        return_offsets_mapping=True,
        verbose=False,
    )
    rows = []
    for ids, offsets in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True):
        after = [token for token, (_, end) in zip(ids, offsets, strict=True) if end > len(generator.cue)]
        rows.append([*after[: longest - 1], generator.tokenizer.eos_token_id])
    return rows


def _encode(generator: TextGenerator, *, max_length: int, **texts: list[str]) -> list[list[int]]:
    cut = {
        name: [beginning(generator.tokenizer, text, max_length) for text in side]
        for name, side in texts.items()
    }
    encoded = generator.tokenizer(**cut, truncation=True, max_length=max_length, verbose=False)
    return list(encoded["input_ids"])


def input_features(generator: TextGenerator, inputs: Sequence[Sequence[int]]) -> dict[str, Tensor]:
    """Model features of the inputs from ``encode_inputs``: tensors ``(n, longest)``, int64.

    They are padded on the right, but for a decoder-only model, which goes on at the end, on the left.
    """
    filler = generator.tokenizer.pad_token_id
    if generator.cue is None:
        return padded_inputs(inputs, filler)
    turned = padded_inputs([list(reversed(tokens)) for tokens in inputs], filler)
    return {name: values.flip(1) for name, values in turned.items()}


def generate_outputs(
    generator: TextGenerator,
    inputs: Sequence[str],
    *,
    beams: int = BEAMS,
    output_tokens: int = SUMMARY_TOKENS,
    shortest: int = SHORTEST,
    batch_size: int = 8,
    advance: Callable[[int], None] = lambda _: None,
) -> list[str]:
    """The text that the model writes for each input, by beam search, see the module (M9).

    Long inputs go first. The model is put into evaluation mode. Outputs lose white space at their ends.

    Inputs are cut off after ``max_length`` tokens. One beam is greedy search. An output has ``shortest`` to
    ``output_tokens`` tokens, at least 2 and never more than the model's context. ``advance`` is called with
    the number of inputs that were finished.
    """
    # Imported here because it imports transformers, which takes seconds.
    from pairsmith.models.language.shared_beams import can_share_beams, search_shared_beams

    generator.model.eval()
    device = generator.model.device
    how = search_settings(generator, beams, output_tokens, shortest)
    input_tokens = encode_inputs(generator, inputs, output_tokens)
    outputs = [""] * len(inputs)

    def written(features: dict[str, Tensor]) -> Tensor:
        read = 0 if generator.cue is None else features["input_ids"].shape[1]
        arguments, rules = moved(features, device), _rules(read)
        if beams > 1 and read > 1 and can_share_beams(generator.model):
            return search_shared_beams(generator.model, arguments, how, rules)[:, read:].cpu()
        with torch.inference_mode():
            ids: Tensor = generator.model.generate(**arguments, generation_config=how, logits_processor=rules)
            return ids[:, read:].cpu()

    for rows, ids in results_by_length(
        list(map(len, input_tokens)),
        lambda rows: input_features(generator, [input_tokens[row] for row in rows]),
        written,
        device,
        batch_size=batch_size,
        batch_tokens=batch_size * generator.max_length,
    ):
        texts = generator.tokenizer.batch_decode(ids, skip_special_tokens=True)
        for row, text in zip(rows, texts, strict=True):
            outputs[row] = text.strip()
        advance(len(rows))
    return outputs


def search_settings(
    generator: TextGenerator, beams: int, output_tokens: int, shortest: int = SHORTEST
) -> Any:
    """The generation config of ``generate_outputs``, which can also be saved in a model folder."""
    from transformers import GenerationConfig

    longest = min(output_tokens, generator.context)
    least = min(shortest, longest)
    own = {name: getattr(generator.model.generation_config, name) for name in _TOKENS}
    of_beams = {"early_stopping": True, "length_penalty": 1.0} if beams > 1 else {}
    if generator.cue is None:
        lengths = {"max_length": longest, "min_length": least, "no_repeat_ngram_size": _NGRAM}
    else:  # the library would not have the output repeat the input either: see ``_rules``
        lengths = {"max_new_tokens": longest, "min_new_tokens": least - 1}
        # Until its shortest length a model may not end, and would begin the next message of a chat instead.
        added = generator.tokenizer.added_tokens_decoder.items()
        special = {number for number, token in added if token.special} - set(own["eos_token_id"])
        own["suppress_tokens"] = sorted(special) or None
    return GenerationConfig(**own, num_beams=beams, **lengths, **of_beams)


def _rules(read: int) -> Any:
    """Logits processors for next tokens, in addition to those of the generation config.

    The first ``read`` tokens are those of the input, if these stand before the output: only those after
    them may not repeat three tokens.
    """
    from transformers import LogitsProcessorList, NoRepeatNGramLogitsProcessor

    if not read:
        return LogitsProcessorList([_check_numbers])
    unrepeated = NoRepeatNGramLogitsProcessor(_NGRAM)
    return LogitsProcessorList([_check_numbers, lambda ids, scores: unrepeated(ids[:, read:], scores)])


def _check_numbers(_: Tensor, scores: Tensor) -> Tensor:
    """Raise an error if a score is NaN, as any token could then count as the best."""
    if torch.isnan(scores).any():
        raise ModelError(
            "the summariser's scores are not numbers; its weights are damaged, the training diverged (try a "
            "lower learning rate), or its number format is too narrow (try float32)"
        )
    return scores
