"""The decoder against the plainest possible one, for every supported architecture.

The plain one takes whole sequences, one group and one prompt at a time, without a cache, padding or sharing.
"""

import os
from functools import partial

import numpy as np
import pytest
import torch
import transformers as tf
from transformers import AutoTokenizer

from pairsmith.lm.combine import self_debias
from pairsmith.lm.decoder import Group, MultiPromptDecoder
from pairsmith.lm.packing import packed
from pairsmith.lm.sampling import Sampling, draw, truncate
from pairsmith.lm.transformers_backend import FOLDED, TransformersModel
from pairsmith.runs.seeds import stream_key, uniforms

SAMPLING = Sampling(top_k=5, top_p=0.9, max_tokens=36, stop="e")
RULE = partial(self_debias, decay=100.0, floor=0.01)
SEED = 11
GROUPS = int(os.environ.get("PAIRSMITH_GROUPS", "16"))
"""For each architecture; the plain decoder takes a second for twenty."""
SMALL = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256, "initializer_range": 0.4,
    "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0,
}  # fmt: skip
GROUPED = {**SMALL, "head_dim": 8}
CONFIGS = {
    "gpt2": lambda v: tf.GPT2Config(
        vocab_size=v, n_positions=256, n_embd=32, n_layer=2, n_head=4, initializer_range=0.4,
        bos_token_id=0, eos_token_id=0,
    ),
    "gpt_neox": lambda v: tf.GPTNeoXConfig(
        vocab_size=v, **{k: x for k, x in SMALL.items() if k != "num_key_value_heads"}
    ),
    "opt": lambda v: tf.OPTConfig(
        vocab_size=v, hidden_size=32, num_hidden_layers=2, ffn_dim=48, num_attention_heads=4, init_std=0.4,
        max_position_embeddings=256, word_embed_proj_dim=32, pad_token_id=0, bos_token_id=0, eos_token_id=0,
    ),
    "llama": lambda v: tf.LlamaConfig(vocab_size=v, **SMALL),
    "qwen2": lambda v: tf.Qwen2Config(vocab_size=v, **SMALL),
    "qwen3": lambda v: tf.Qwen3Config(vocab_size=v, **GROUPED),
    "gemma": lambda v: tf.GemmaConfig(vocab_size=v, **GROUPED),
    # Capped products, and a window shorter than the prompts in every other layer.
    "gemma2": lambda v: tf.Gemma2Config(
        vocab_size=v, sliding_window=16, final_logit_softcapping=4.0, attn_logit_softcapping=3.0, **GROUPED
    ),
    "gemma3": lambda v: tf.Gemma3TextConfig(vocab_size=v, sliding_window=16, **GROUPED),
    "mistral": lambda v: tf.MistralConfig(vocab_size=v, sliding_window=16, **SMALL),
    # Their attention is not replaced: keys and values are handed over in full, without gaps.
    "bloom": lambda v: tf.BloomConfig(
        vocab_size=v, hidden_size=32, n_layer=2, n_head=4, initializer_range=0.4, bos_token_id=0, eos_token_id=0
    ),
    "mpt": lambda v: tf.MptConfig(
        vocab_size=v, d_model=32, n_layers=2, n_heads=4, max_seq_len=256, initializer_range=0.4, eos_token_id=0
    ),
    "gpt_oss": lambda v: tf.GptOssConfig(
        vocab_size=v, num_local_experts=4, num_experts_per_tok=2, sliding_window=128, rope_scaling=None, **GROUPED
    ),
}  # fmt: skip
EXPERTS = {"moe_intermediate_size": 16, "num_experts": 4, "num_experts_per_tok": 2}
MORE = {
    "phi": lambda v: tf.PhiConfig(vocab_size=v, **SMALL),
    "phi3": lambda v: tf.Phi3Config(vocab_size=v, sliding_window=16, **SMALL),
    "olmo2": lambda v: tf.Olmo2Config(vocab_size=v, **SMALL),
    "qwen3_moe": lambda v: tf.Qwen3MoeConfig(vocab_size=v, **EXPERTS, **GROUPED),
    "mixtral": lambda v: tf.MixtralConfig(vocab_size=v, sliding_window=16, num_local_experts=4, **SMALL),
    "starcoder2": lambda v: tf.Starcoder2Config(vocab_size=v, sliding_window=16, **SMALL),
    "granite": lambda v: tf.GraniteConfig(vocab_size=v, **SMALL),
    "cohere": lambda v: tf.CohereConfig(vocab_size=v, **SMALL),
    "stablelm": lambda v: tf.StableLmConfig(vocab_size=v, **SMALL),
    "smollm3": lambda v: tf.SmolLM3Config(vocab_size=v, **SMALL),
}
"""Kinds that are compared on a few groups only."""

WINDOWED = ("gemma2", "gemma3", "mistral")


@pytest.fixture(scope="module", params=CONFIGS)
def model(request, tiny_gpt2):
    return made(request.param, CONFIGS[request.param], tiny_gpt2)


def made(name, config_of, tiny_gpt2):
    tokenizer = AutoTokenizer.from_pretrained(tiny_gpt2)
    torch.manual_seed(1)
    config = config_of(len(tokenizer))
    config.tie_word_embeddings = False  # tied and random, models repeat themselves
    network = tf.AutoModelForCausalLM.from_config(config)
    return TransformersModel(packed(network), tokenizer, name=name, revision="test")


def random_groups(model, count, seed=0):
    """Groups with one to four prompts, most of which share their start with others, and some all of it."""
    rng = np.random.default_rng(seed)
    starts = ["Task: write two sentences that mean the same thing.\n", "Task: write a review.\n", ""]
    made = []
    for i in range(count):
        words = " ".join(rng.choice(["a", "man", "plays", "the", "guitar", "today"], rng.integers(1, 9)))
        prompts = [f'{rng.choice(starts)}"{words}"\n"' for _ in range(rng.integers(1, 5))]
        main, *counters = (tuple(model.encode(prompt)) for prompt in prompts)
        made.append(Group(main, tuple(counters), stream_key("g", seed, i)))
    return made


def plainly(model, group, rule=RULE, sampling=SAMPLING):
    """The tokens of one group."""
    tokens = []
    stops = model.tokens_with(sampling.stop)
    for position in range(sampling.max_tokens):
        rows = []
        for prompt in group.prompts:
            with torch.inference_mode():
                ids = torch.tensor([[*prompt, *tokens]])
                rows.append(torch.softmax(model._model(input_ids=ids, use_cache=False).logits[0, -1], 0))
        p = rows[0][None]
        if len(rows) > 1:
            p = rule(p, torch.stack(rows[1:]).max(dim=0).values[None])
        number = uniforms(SEED, np.array([group.stream], dtype=np.uint64), np.array([position]))
        token = int(draw(*truncate(p, sampling.top_k, sampling.top_p), torch.from_numpy(number)))
        tokens.append(token)
        if token in stops or token in model.end_tokens:
            break
    return tuple(tokens)


def decoded(model, groups, rows, rule=RULE, sampling=SAMPLING):
    prompts = [prompt for group in groups for prompt in group.prompts]
    decoder = MultiPromptDecoder(model, rule, sampling, SEED, prompts, rows)
    for group in groups:
        decoder.add(group)
    return {continuation.group.stream: continuation.tokens for continuation in decoder.finished()}


@pytest.fixture(scope="module")
def expected(model):
    groups = random_groups(model, GROUPS)
    return groups, {group.stream: plainly(model, group) for group in groups}


@pytest.mark.parametrize("rows", [256, 7])
def test_tokens_equal_those_of_the_plain_decoder(model, expected, rows):
    groups, tokens = expected
    assert len({len(each) for each in tokens.values()}) > 3, "some should stop early"
    assert decoded(model, groups, rows) == tokens


def test_nothing_changes_without_sharing(model, expected, monkeypatch):
    """No common starts, and each group decoded by itself: nobody else's prompts, rows or gaps."""
    monkeypatch.setattr("pairsmith.lm.transformers_backend.common_starts", lambda p: dict.fromkeys(p, ()))
    groups, tokens = expected
    for group in groups[::10]:
        assert decoded(model, [group], 4) == {group.stream: tokens[group.stream]}


def test_nothing_changes_with_keys_and_values_handed_over_in_full(model, expected, monkeypatch):
    if model.name in WINDOWED:
        pytest.skip("such a model's context is then its window, shorter than these prompts")
    monkeypatch.setattr(type(model._model), "_can_set_attn_implementation", classmethod(lambda _: False))
    groups, tokens = expected
    assert decoded(model, groups, 64) == tokens


@pytest.mark.parametrize("kind", MORE)
def test_other_kinds_of_model(kind, tiny_gpt2):
    model = made(kind, MORE[kind], tiny_gpt2)
    groups = random_groups(model, 8)
    assert decoded(model, groups, 64) == {group.stream: plainly(model, group) for group in groups}


def test_every_kind_that_attends_as_we_do_is_tested(tiny_gpt2):
    kinds = {**CONFIGS, **MORE}
    assert {made(kind, kinds[kind], tiny_gpt2)._model.config.model_type for kind in kinds} >= set(FOLDED)
