"""Text generators: models that write a summary of a document, or a question, by beam search (M9).

In the paper, the encoder of BART reads the document and its decoder writes the summary. A decoder-only model
reads the document and a cue, and continues with the summary. The cue is ``TL;DR:`` on a line of its own, or
``Question:`` if a question is to be written.

The paper uses beam search and does not give its settings. Here they are those of BART's authors for XSum: 6
beams, length penalty 1.0, no repeated trigrams, at least 11 and at most 62 tokens, and early stopping as soon
as 6 summaries are complete. Numbers of tokens include the end token and, for encoder-decoder models, the
decoder's start token.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, Unpack

import torch
from torch import Tensor

from pairsmith.core.arguments import checked_texts, checked_whole_number
from pairsmith.core.errors import ModelError
from pairsmith.core.settings import MOST_BEAMS
from pairsmith.models.encode import (
    beginning,
    moved,
    padded_inputs,
    refuse_unknown_tokens,
    results_by_length,
)
from pairsmith.models.heads import Loading, TextModel, load_with_head, positions_of, writes_as

BEAMS = 6
SUMMARY_TOKENS = 62
"""Default largest number of tokens of a summary."""

SHORTEST = 11
"""Smallest number of tokens of a summary."""

CUES = {"summaries": "\nTL;DR:", "reading": "\nQuestion:"}
"""The text that a decoder-only model reads after a document, or after an answer in a passage."""

_NGRAM = 3  # no sequence of this many tokens occurs twice in a summary
_LEAST_WRITTEN = 4  # the smallest limit of a summary in tokens
LEAST_READ = 8  # the number of a document's tokens for which a decoder-only model must at least have room

# The generation settings that are kept from the model: those about its special tokens, none about the search.
_TOKENS = (
    "pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id", "forced_bos_token_id",
    "forced_eos_token_id", "bad_words_ids", "suppress_tokens", "begin_suppress_tokens",
)  # fmt: skip


def shortest_of(kind: str) -> int:
    """The smallest number of tokens of an output: 1 for questions (kind ``reading``), else ``SHORTEST``."""
    return 1 if kind == "reading" else SHORTEST


@dataclass(frozen=True, slots=True, repr=False)
class TextGenerator(TextModel):
    """A model that reads an input text and writes an output text: a summary, or a question."""

    context: int  # its number of positions; of a decoder-only model for input, cue and output together
    cue: str | None = None  # one of ``CUES`` for a decoder-only model

    def summarize(
        self,
        texts: Iterable[str],
        *,
        beams: int = BEAMS,
        summary_tokens: int = SUMMARY_TOKENS,
        batch_size: int = 8,
        advance: Callable[[int], None] = lambda _: None,
    ) -> list[str]:
        """The summaries of n texts by beam search, in the order of the texts (M9).

        Args:
            texts: the texts; of a long one only the beginning is read, see ``is_truncated``.
            beams: the number of beams, at most 1,000; 1 is greedy search.
            summary_tokens: the largest number of tokens of a summary, at least 4.
            batch_size: the largest number of texts in a batch, each with all its beams.
            advance: is called after each batch with the number of its texts.

        Raises:
            InputError: a text is no string.
            SettingsError: ``beams``, ``summary_tokens`` or ``batch_size`` is out of range.
            ModelError: the model has no room for the text and the summary, or a score is not finite.
        """
        return generate_outputs(
            self,
            checked_texts(texts, "texts"),
            beams=checked_whole_number(beams, "beams", 1, MOST_BEAMS),
            output_tokens=checked_whole_number(summary_tokens, "summary_tokens", _LEAST_WRITTEN),
            batch_size=checked_whole_number(batch_size, "batch_size", 1),
            advance=advance,
        )

    def is_truncated(self, texts: Iterable[str], summary_tokens: int = SUMMARY_TOKENS) -> list[bool]:
        """Whether the model reads only the beginning of a text, for each of n texts.

        A decoder-only model reads fewer tokens the longer a summary may be: ``summary_tokens``, its limit.
        """
        longest = longest_input(self, summary_tokens)
        rows = _encode(self, checked_texts(texts, "texts"), longest + 1)
        return [len(tokens) > longest for tokens in rows]


def load_text_generator(
    model: str,
    kind: Literal["summaries", "reading"] = "summaries",
    *,
    fresh_decoder: bool = False,
    seed: int = 0,
    **how: Unpack[Loading],
) -> TextGenerator:
    """Load ``model``, an encoder-decoder model such as BART or a decoder-only model, as a text generator.

    Args:
        model: a folder that ``train-summarizer`` wrote, or a folder or Hub id of a model with an encoder and
            a decoder, or with a decoder only.
        kind: what it writes, which decides the cue of a decoder-only model: summaries, or (``reading``)
            questions to answers in passages.
        fresh_decoder: whether an encoder such as BERT gets a decoder, to be trained.
        seed: random seed of a fresh decoder.
        how: as for ``load_with_head``; inputs longer than ``max_length`` are cut off.

    Raises:
        ModelError: the model cannot be loaded, or lacks a token that begins or ends a text.
        SettingsError: an argument has an invalid value, or there is no such device.
    """
    from transformers import GenerationConfig

    continues = writes_as(model) == "decoder"
    network, tokenizer, longest = load_with_head(
        model, "continuation" if continues else "summarization", fresh_head=fresh_decoder, seed=seed, **how
    )
    saved_config = network.generation_config
    network.generation_config = GenerationConfig(
        **{name: getattr(saved_config, name, None) for name in _TOKENS}
    )
    network.generation_config.pad_token_id = tokenizer.pad_token_id
    if continues:
        network.generation_config.eos_token_id = _end_tokens(
            model, saved_config.eos_token_id, tokenizer.eos_token_id
        )
    elif saved_config.decoder_start_token_id is None and saved_config.bos_token_id is None:
        raise ModelError(
            f"model {model}: does not say which token a summary starts from; add decoder_start_token_id "
            "to its config.json"
        )
    return TextGenerator(
        network, tokenizer, longest, positions_of(network), CUES[kind] if continues else None
    )


def _end_tokens(model: str, own: int | list[int] | None, trained: int | None) -> list[int]:
    """The tokens that end a text: the tokenizer's, which training uses, and the model's ``own``."""
    if trained is None:
        raise ModelError(
            f"model {model}: its tokenizer has no end token, which is to end a summary; name one as "
            "eos_token in its tokenizer_config.json"
        )
    own_tokens = [own] if isinstance(own, int) else own or []
    return [trained, *(token for token in own_tokens if token != trained)]


def require_text_generator(model: str) -> None:
    """Refuse an encoder without a decoder by its config, before its weights are read."""
    if writes_as(model) == "nothing":
        raise ModelError(
            f"model {model}: is an encoder without a decoder, which writes no summaries; give a folder that "
            "train-summarizer wrote, or a model with a decoder"
        )


def encode_inputs(
    generator: TextGenerator, inputs: Sequence[str], written: int = SUMMARY_TOKENS, marker: str = ""
) -> list[list[int]]:
    """The tokens of each input, including special tokens, truncated to ``longest_input`` tokens.

    For a decoder-only model the tokens of the cue are appended; they are not counted. ``written`` is the
    largest number of tokens of an output, for which its context needs room. ``marker`` in an input is the
    special token that ``add_marker`` added; the names of all other special tokens are ordinary text.
    """
    rows = _encode(generator, inputs, longest_input(generator, written), marker)
    if generator.cue is None:
        return rows
    cue = generator.tokenizer(generator.cue, add_special_tokens=False)["input_ids"]
    end = generator.tokenizer.eos_token_id
    return [[*(row[:-1] if row[-1:] == [end] else row), *cue] for row in rows]


def longest_input(generator: TextGenerator, written: int = SUMMARY_TOKENS) -> int:
    """The largest number of tokens of an input if an output has at most ``written`` tokens.

    It is ``max_length``, or less if a decoder-only model's context has no room for such an input, the cue and
    the output.

    Raises:
        ModelError: the context has room for fewer than 8 tokens of an input.
    """
    if generator.cue is None:
        return generator.max_length
    cue = len(generator.tokenizer(generator.cue, add_special_tokens=False)["input_ids"])
    room = generator.context - cue - written
    if room < LEAST_READ:
        raise ModelError(
            f"the model reads {generator.context} tokens, of which its cue takes {cue} and its output "
            f"{written}; have it write fewer tokens, or give a model that reads more"
        )
    return min(generator.max_length, room)


def encode_targets(
    generator: TextGenerator, targets: Sequence[str], tokens: int, separator: str = ""
) -> list[list[int]]:
    """The tokens that the decoder is trained to write for each target, at most ``tokens`` with the end token.

    For a decoder-only model a space is put before the text; it may be in one token with the first word. For
    other models, ``separator`` in a target is the special token of this name. The names of all other special
    tokens are ordinary text.
    """
    longest = min(tokens, generator.context)
    if generator.cue is None:
        return _encode(generator, targets, longest, separator, target=True)
    encoded = generator.tokenizer(
        [f"{generator.cue} {beginning(generator.tokenizer, text.strip(), longest)}" for text in targets],
        add_special_tokens=False,
        split_special_tokens=True,
        return_offsets_mapping=True,
        verbose=False,
    )
    rows = []
    for ids, offsets in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True):
        after = [token for token, (_, end) in zip(ids, offsets, strict=True) if end > len(generator.cue)]
        rows.append([*after[: longest - 1], generator.tokenizer.eos_token_id])
    refuse_unknown_tokens(generator.model.config, rows)
    return rows


def _encode(
    generator: TextGenerator, texts: Sequence[str], max_length: int, marker: str = "", *, target: bool = False
) -> list[list[int]]:
    """The tokens of texts, with special tokens around them, truncated to ``max_length`` tokens.

    Of the names of special tokens in a text, only ``marker`` becomes a special token. A ``target`` may have
    other special tokens around it than an input.
    """
    tokenizer = generator.tokenizer
    parts = [text.split(marker) if marker else [text] for text in texts]
    beginnings = [beginning(tokenizer, part, max_length) for part in chain.from_iterable(parts)]
    for text in ("a", *beginnings):  # the tokenizer of another script may have no token for "a"
        example = tokenizer(text_target=text) if target else tokenizer(text)
        own = [place for place, part in enumerate(example.sequence_ids(0)) if part is not None]
        if own:
            break
    ids = example["input_ids"]
    begin, end = (own[0], own[-1] + 1) if own else (len(ids), len(ids))
    before, after = ids[:begin], ids[end:]
    room = max(0, max_length - len(before) - len(after))
    how = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}
    # Tokenizers fail if there are no texts, and are fastest with all texts at once.
    encoded = iter(tokenizer(beginnings, **how)["input_ids"] if beginnings else [])
    rows = []
    for parts_of_text in parts:
        tokens = list(next(encoded))
        for _ in parts_of_text[1:]:
            tokens += [tokenizer.convert_tokens_to_ids(marker), *next(encoded)]
        rows.append([*before, *tokens[:room], *after])
    refuse_unknown_tokens(generator.model.config, rows)
    return rows


def input_features(generator: TextGenerator, inputs: Sequence[Sequence[int]]) -> dict[str, Tensor]:
    """Model inputs for the n inputs from ``encode_inputs``: tensors ``(n, longest)``, int64.

    They are padded on the right; for a decoder-only model, which continues its input, on the left.
    """
    filler = generator.tokenizer.pad_token_id
    if generator.cue is None:
        return padded_inputs(inputs, filler)
    reversed_inputs = padded_inputs([list(reversed(tokens)) for tokens in inputs], filler)
    return {name: values.flip(1) for name, values in reversed_inputs.items()}


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
    """The text that the model writes for each input by beam search, stripped of white space (M9).

    For the search, see the module's docstring. The longest inputs are processed first.

    Args:
        generator: the text generator; it is put into evaluation mode.
        inputs: the input texts; each is truncated to ``longest_input`` tokens.
        beams: the number of beams; 1 is greedy search.
        output_tokens: the largest number of tokens of an output, at least 2; it is limited by the context.
        shortest: the smallest number of tokens of an output.
        batch_size: the largest number of inputs in a batch.
        advance: is called after each batch with the number of its inputs.
    """
    # Imported here because it imports transformers, which takes seconds.
    from pairsmith.models.language.shared_beams import can_share_beams, search_shared_beams

    generator.model.eval()
    device = generator.model.device
    settings = search_settings(generator, beams, output_tokens, shortest)
    input_tokens = encode_inputs(generator, inputs, output_tokens)
    outputs = [""] * len(inputs)

    def output_ids(features: dict[str, Tensor]) -> Tensor:
        prompt = 0 if generator.cue is None else features["input_ids"].shape[1]  # its length in tokens
        arguments, rules = moved(features, device), _rules(prompt)
        if beams > 1 and prompt > 1 and can_share_beams(generator.model):
            return search_shared_beams(generator.model, arguments, settings, rules)[:, prompt:].cpu()
        with torch.inference_mode():
            ids: Tensor = generator.model.generate(
                **arguments, generation_config=settings, logits_processor=rules
            )
            return ids[:, prompt:].cpu()

    for rows, ids in results_by_length(
        list(map(len, input_tokens)),
        lambda rows: input_features(generator, [input_tokens[row] for row in rows]),
        output_ids,
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
    """The transformers generation config of ``generate_outputs``; it is also saved with trained models."""
    from transformers import GenerationConfig

    longest = min(output_tokens, generator.context)
    least = min(shortest, longest)
    token_settings = {name: getattr(generator.model.generation_config, name) for name in _TOKENS}
    beam_settings = {"early_stopping": True, "length_penalty": 1.0} if beams > 1 else {}
    if generator.cue is None:
        lengths = {"max_length": longest, "min_length": least, "no_repeat_ngram_size": _NGRAM}
    else:  # the library's rule against repetition would count trigrams of the input, too: see ``_rules``
        lengths = {"max_new_tokens": longest, "min_new_tokens": least - 1}
        # A chat model that may not end yet would begin the next message of a chat, with a special token.
        added = generator.tokenizer.added_tokens_decoder.items()
        special = {number for number, token in added if token.special} - set(token_settings["eos_token_id"])
        token_settings["suppress_tokens"] = sorted(special) or None
    return GenerationConfig(**token_settings, num_beams=beams, **lengths, **beam_settings)


def _rules(prompt: int) -> Any:
    """The logits processors that are applied in addition to those of the generation config.

    ``prompt`` is the number of tokens before the output, 0 for encoder-decoder models. Only in the tokens
    after them, no trigram may be repeated.
    """
    from transformers import LogitsProcessorList, NoRepeatNGramLogitsProcessor

    if not prompt:
        return LogitsProcessorList([_check_numbers])
    no_repeat = NoRepeatNGramLogitsProcessor(_NGRAM)
    return LogitsProcessorList([_check_numbers, lambda ids, scores: no_repeat(ids[:, prompt:], scores)])


def _check_numbers(_: Tensor, scores: Tensor) -> Tensor:
    """Raise a ``ModelError`` if a score is NaN, because the search would then choose an arbitrary token."""
    if torch.isnan(scores).any():
        raise ModelError(
            "the text generator's scores are not numbers; its weights are damaged, its training diverged "
            "(try a lower learning rate), or its number format is too narrow (try float32)"
        )
    return scores
