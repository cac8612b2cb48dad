"""Sequences drawn by nucleus sampling from random models of three kinds."""

import numpy as np
import pytest
import torch
from tests.without_float64 import WithoutFloat64
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertLMHeadModel,
    BertModel,
    EncoderDecoderModel,
    GenerationConfig,
    T5Config,
    T5ForConditionalGeneration,
)

from pairsmith.models.language import sequences
from pairsmith.models.language.sampling import draw_tokens, truncate
from pairsmith.models.language.sequences import draw_sequences
from pairsmith.runs.seeds import stream_key, uniforms

VOCAB, END, MOST = 24, 2, 20


def bart():
    sides = {f"{side}_{what}": 2 for side in ("encoder", "decoder") for what in ("layers", "attention_heads")}
    wide = {"d_model": 16, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    return BartForConditionalGeneration(BartConfig(vocab_size=VOCAB, **sides, **wide))


def t5():
    return T5ForConditionalGeneration(
        T5Config(vocab_size=VOCAB, d_model=16, d_kv=8, d_ff=16, num_layers=2, num_heads=2)
    )


def two_berts():
    sides = {"vocab_size": VOCAB, "hidden_size": 16, "intermediate_size": 16}
    sides |= {"num_hidden_layers": 2, "num_attention_heads": 2}
    decoder = BertConfig(**sides, is_decoder=True, add_cross_attention=True)
    return EncoderDecoderModel(encoder=BertModel(BertConfig(**sides)), decoder=BertLMHeadModel(decoder))


def drawn_apart(network, ids, stream, *, seed, top_p, ends=(END,), banned=(), banned_first=(), forced=None):
    """One sequence, the whole of it gone through again for each token."""
    tokens = [1]
    while len(tokens) <= MOST and tokens[-1] not in ends:
        scores = network(input_ids=ids[None], decoder_input_ids=torch.tensor([tokens])).logits[:, -1]
        first = len(tokens) == (1 if forced is None else 2)
        scores[:, [*banned, *(banned_first if first else ())]] = -torch.inf
        if forced is not None and len(tokens) == 1:
            scores = torch.full_like(scores, -torch.inf).index_fill(1, torch.tensor([forced]), 0.0)
        kept, numbers = truncate(scores.softmax(dim=1), 0, top_p)
        chance = uniforms(seed, np.array([stream], np.uint64), np.array([len(tokens)], np.int64))
        tokens.append(int(draw_tokens(kept, numbers, torch.from_numpy(chance))))
    return tokens[1:]


@pytest.mark.parametrize("make", [bart, t5, two_berts])
def test_many_at_once_are_those_that_are_drawn_one_by_one(make):
    """Also where most have ended and been taken out of the batch before the longest are done."""
    torch.manual_seed(0)
    network = make().eval()
    network.generation_config = GenerationConfig(decoder_start_token_id=1, eos_token_id=END, pad_token_id=0)
    ids = torch.randint(3, VOCAB, (3, 9))
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    streams = [
        np.array([stream_key(f"{row}", n) for n in range(count)], np.uint64)
        for row, count in enumerate((5, 1, 9))
    ]
    features = {"input_ids": ids, "attention_mask": mask}
    drawn = draw_sequences(network, features, streams, seed=3, top_p=0.95, max_tokens=MOST)
    with torch.inference_mode():
        expected = [
            [drawn_apart(network, ids[row][mask[row] > 0], stream, seed=3, top_p=0.95) for stream in of_row]
            for row, of_row in enumerate(streams)
        ]
    assert drawn == expected
    lengths = sorted(len(tokens) for of_row in drawn for tokens in of_row)
    assert lengths[0] < MOST // 4 < 3 * MOST // 4 < lengths[-1]


def test_what_a_model_forces_and_forbids_is_heeded():
    torch.manual_seed(0)
    network = bart().eval()
    ids, streams = (
        torch.randint(3, VOCAB, (1, 9)),
        np.array([stream_key("a", n) for n in range(12)], np.uint64),
    )
    given = {"decoder_start_token_id": 1, "pad_token_id": 0, "eos_token_id": [END, 9]}
    features = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    def drawn(**rules):
        network.generation_config = GenerationConfig(**given, **rules)
        return draw_sequences(network, features, [streams], seed=3, top_p=1.0, max_tokens=MOST)[0]

    def apart(**rules):
        with torch.inference_mode():
            return [
                drawn_apart(network, ids[0], stream, seed=3, top_p=1.0, ends=(END, 9), **rules)
                for stream in streams
            ]

    assert drawn() == apart()
    assert {row[-1] for row in drawn()} >= {END, 9}
    assert drawn(suppress_tokens=[4, 5], bad_words_ids=[[6]]) == apart(banned=(4, 5, 6))
    assert drawn(begin_suppress_tokens=[7]) == apart(banned_first=(7,))
    forced = drawn(forced_bos_token_id=8, begin_suppress_tokens=[7])
    assert forced == apart(forced=8, banned_first=(7,))
    assert {row[0] for row in forced} == {8}


def test_a_device_may_have_no_float64(monkeypatch):
    torch.manual_seed(0)
    network = t5().eval()
    network.generation_config = GenerationConfig(decoder_start_token_id=1, eos_token_id=END, pad_token_id=0)
    ids = torch.randint(3, VOCAB, (1, 9))
    features = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    streams = [np.array([stream_key("a", number) for number in range(3)], np.uint64)]
    expected = draw_sequences(network, features, streams, seed=3, top_p=0.9, max_tokens=5)
    usual = sequences.nucleus
    monkeypatch.setattr(
        sequences, "nucleus", lambda *given: tuple(x.as_subclass(WithoutFloat64) for x in usual(*given))
    )
    assert draw_sequences(network, features, streams, seed=3, top_p=0.9, max_tokens=5) == expected
