"""The decoder against the plainest possible one, for every supported architecture.

The plain one takes whole sequences, one group and one prompt at a time, without a cache, padding or sharing.
Both compute in float32, in different orders. Where a random number falls on a border between two tokens, or
two tokens are equally likely, but for float32's rounding, which one is drawn is nobody's mistake: the plain
decoder knows such draws, and a group is compared up to its first.
"""

import os
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
import torch
import transformers as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from pairsmith.models.language.combine import self_debias
from pairsmith.models.language.decoder import Group, MultiPromptDecoder
from pairsmith.models.language.packed_weights import packed
from pairsmith.models.language.sampling import Sampling, draw_tokens, truncate
from pairsmith.models.language.transformers_backend import (
    SHARED_ATTENTION_TYPES,
    TransformersModel,
    TransformersSession,
)
from pairsmith.runs.seeds import stream_key, uniforms

pytestmark = pytest.mark.slow

SAMPLING = Sampling(top_k=5, top_p=0.9, max_tokens=36, stop="n")
FEW = replace(SAMPLING, max_tokens=12)
"""For long prompts, which the plain decoder reads anew for each token."""
RULE = partial(self_debias, decay=100.0, floor=0.01)
SEED = 11
GROUPS = int(os.environ.get("PAIRSMITH_GROUPS", "8"))
"""For each architecture; the plain decoder takes a second for twenty."""
RAGGED_EXAMPLES = GROUPS
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

DOUBT = 2e-5
"""Rounding of a distribution: float32's, made larger by the rule's decay of 100."""

LONG = ("gpt_neox", "opt", "qwen2", "gemma", "gemma3", "bloom", "mpt", "mistral")
"""Kinds whose ways another kind has, too."""

WINDOWED = ("gemma2", "gemma3", "mistral")


RAGGED = ("gpt2", "gemma2")
"""Positions that are learned; and rotary ones, grouped queries, capped products, and windows."""


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=pytest.mark.long if name in LONG else ()) for name in CONFIGS],
)
def model(request, tiny_gpt2):
    return random_model(request.param, CONFIGS[request.param], tiny_gpt2)


def random_model(name, config_of, tiny_gpt2):
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
    groups = []
    for i in range(count):
        words = " ".join(rng.choice(["a", "man", "plays", "the", "guitar", "today"], rng.integers(1, 9)))
        prompts = [f'{rng.choice(starts)}"{words}"\n"' for _ in range(rng.integers(1, 5))]
        main, *counters = (tuple(model.encode(prompt)) for prompt in prompts)
        groups.append(Group(main, tuple(counters), stream_key("g", seed, i)))
    return groups


@dataclass(frozen=True)
class Plain:
    """What the plain decoder draws for a group, and how many of its first tokens are beyond doubt."""

    tokens: tuple[int, ...]
    clear: int

    def agrees(self, tokens):
        if self.clear == len(self.tokens):
            return tokens == self.tokens
        return tokens[: self.clear] == self.tokens[: self.clear] and len(tokens) > self.clear


def plainly(model, group, rule=RULE, sampling=SAMPLING):
    """The tokens of one group."""
    tokens, clear = [], None
    stops = model.tokens_with(sampling.stop)
    for position in range(sampling.max_tokens):
        rows = []
        for prompt in group.prompts:
            with torch.inference_mode():
                ids = torch.tensor([[*prompt, *tokens]])
                logits = model._model(input_ids=ids, use_cache=False).logits[0, -1]
                for end in () if sampling.may_end else model.end_tokens:
                    logits[end] = -torch.inf
                rows.append(torch.softmax(logits, 0))
        p = rows[0][None]
        if len(rows) > 1:
            p = rule(p, torch.stack(rows[1:]).max(dim=0).values[None])
        number = uniforms(SEED, np.array([group.stream], dtype=np.uint64), np.array([position]))
        kept, numbers = truncate(p, sampling.top_k, sampling.top_p)
        if clear is None and nearness(p[0], kept[0], float(number[0]), sampling) < DOUBT:
            clear = position
        tokens.append(int(draw_tokens(kept, numbers, torch.from_numpy(number))))
        if tokens[-1] in model.end_tokens or (tokens[-1] in stops and sampling.stop in model.decode(tokens)):
            break
    return Plain(tuple(tokens), len(tokens) if clear is None else clear)


def nearness(p, kept, number, sampling):
    """How far a draw is from another outcome: the smallest distance to a border, or between two tokens."""
    likely = p.sort(descending=True).values
    count = min(sampling.top_k or len(p), len(p))
    gaps = 1 - likely[1 : count + 1] / likely[:count][: len(likely) - 1]
    distances = [gaps[: int((kept > 0).sum()) + 1], (kept.cumsum(0)[:-1] - number).abs()]
    if sampling.top_k and len(likely) > count:
        distances.append(gaps[count - 1 :])
    if sampling.top_p < 1:
        distances.append((likely[:count].cumsum(0) / likely[:count].sum() - sampling.top_p).abs())
    return float(torch.cat(distances).min())


def disagreeing(by_stream, expected):
    """The groups whose tokens differ from the plain decoder's, and cannot for rounding."""
    assert by_stream.keys() == expected.keys()
    doubtful = sum(plain.clear < len(plain.tokens) for plain in expected.values())
    assert doubtful <= max(2, len(expected) // 20), "too many to mean anything"
    return [stream for stream, plain in expected.items() if not plain.agrees(by_stream[stream])]


def decoded(model, groups, rows, rule=RULE, sampling=SAMPLING):
    prompts = [prompt for group in groups for prompt in group.prompts]
    decoder = MultiPromptDecoder(model, rule, sampling, SEED, prompts, rows)
    for group in groups:
        decoder.add(Group(group.main, group.counters, group.stream))
    return {group.stream: tuple(group.tokens) for group in decoder.finished()}


@pytest.fixture(scope="module")
def expected(model):
    groups = random_groups(model, GROUPS)
    return groups, {group.stream: plainly(model, group) for group in groups}


@pytest.mark.parametrize("rows", [pytest.param(256, marks=pytest.mark.long), 7])
def test_tokens_equal_those_of_the_plain_decoder(model, expected, rows):
    groups, tokens = expected
    assert len({len(plain.tokens) for plain in tokens.values()}) > 2, "some should stop early"
    assert not disagreeing(decoded(model, groups, rows), tokens)


def test_nothing_changes_without_sharing(model, expected, monkeypatch):
    """No common starts, and each group decoded by itself: nobody else's prompts, rows or gaps."""
    monkeypatch.setattr(
        "pairsmith.models.language.transformers_backend.common_starts", lambda p, *_: dict.fromkeys(p, ())
    )
    groups, tokens = expected
    for group in groups[::10]:
        assert tokens[group.stream].agrees(decoded(model, [group], 4)[group.stream])


@pytest.mark.parametrize(
    "rows", [64, pytest.param(12, marks=pytest.mark.long)], ids=["kept for all", "computed for all"]
)
def test_nothing_changes_where_some_prompts_share_a_passage(model, rows, monkeypatch):
    groups = groups_of_passages(model)
    computed = 0
    compute = TransformersSession._compute_batch

    def counting(self, some, before):
        nonlocal computed
        computed += sum(map(len, some)) - len(some) * (before[0][0].shape[1] if before else 0)
        return compute(self, some, before)

    monkeypatch.setattr(TransformersSession, "_compute_batch", counting)
    by_stream = decoded(model, groups, rows, sampling=FEW)
    assert computed < 0.75 * sum(len(group.main) for group in groups)
    for group in groups[::4]:
        assert plainly(model, group, sampling=FEW).agrees(by_stream[group.stream])


def groups_of_passages(model):
    """Passages of different lengths, each the beginning of a few prompts, some of them near the limit."""
    random = np.random.default_rng(5)
    lengths = [40, 41, 42, 44, 46, 50, 55, 60, 70, 80, 120, 160, 233]
    passages = [tuple(random.integers(1, 299, length).tolist()) for length in lengths]
    prompts = [passage + tuple(range(7, 8 + more)) for passage in passages for more in (0, 8)]
    groups = [Group(prompt, (prompts[i - 1],), 500 + i) for i, prompt in enumerate(prompts)]
    return [group for group in groups if max(map(len, group.prompts)) + FEW.max_tokens <= model.context]


@pytest.mark.parametrize(
    "model",
    [pytest.param(name, marks=() if name in RAGGED else pytest.mark.long) for name in CONFIGS],
    indirect=True,
)
def test_nothing_changes_where_a_call_takes_as_long_as_many_tokens(model, monkeypatch):
    """As on a GPU: all prompts that stand in line are computed in one call, and no passage apart."""
    groups = groups_of_passages(model)
    monkeypatch.setattr("pairsmith.models.language.transformers_backend.call_tokens", lambda *_: 60_000)
    monkeypatch.setattr("pairsmith.models.language.transformers_backend.FEW_TOKENS", 60_000)
    calls = []
    compute = TransformersSession._compute_batch

    def counting(self, some, before):
        calls.append(len(some))
        return compute(self, some, before)

    monkeypatch.setattr(TransformersSession, "_compute_batch", counting)
    by_stream = decoded(model, groups, 64, sampling=FEW)
    assert calls == [len({prompt for group in groups for prompt in group.prompts})]
    for group in groups[::4]:
        assert plainly(model, group, sampling=FEW).agrees(by_stream[group.stream])


def test_nothing_changes_with_keys_and_values_handed_over_in_full(model, expected, monkeypatch):
    if model.name in WINDOWED:
        pytest.skip("such a model's context is then its window, shorter than these prompts")
    monkeypatch.setattr(type(model._model), "_can_set_attn_implementation", classmethod(lambda _: False))
    groups, tokens = expected
    assert not disagreeing(decoded(model, groups, 64), tokens)


@pytest.fixture(scope="module")
def ragged_models(tiny_gpt2):
    return {kind: random_model(kind, CONFIGS[kind], tiny_gpt2) for kind in RAGGED}


@st.composite
def ragged(draw):
    """A kind of model, groups of prompts of any lengths, many of which begin alike, settings, and a budget."""
    tokens = st.integers(1, 299)
    starts = draw(st.lists(st.lists(tokens, max_size=40).map(tuple), min_size=1, max_size=3))
    rest = st.lists(tokens, min_size=1, max_size=30).map(tuple)
    pool = [start + draw(rest) for start in starts for _ in range(draw(st.integers(1, 3)))]
    sets = draw(st.lists(st.lists(st.sampled_from(pool), min_size=1, max_size=4), min_size=1, max_size=6))
    groups = [Group(main, tuple(counters), 1000 + i) for i, (main, *counters) in enumerate(sets)]
    sampling = Sampling(
        top_k=draw(st.sampled_from([0, 1, 5, 100])),
        top_p=draw(st.sampled_from([0.5, 0.9, 1.0])),
        max_tokens=draw(st.integers(1, 20)),
        stop=draw(st.sampled_from(["e", "in", '"', "\n", "qqq"])),
        may_end=draw(st.booleans()),
    )
    return draw(st.sampled_from(RAGGED)), groups, sampling, draw(st.integers(4, 30))


@given(case=ragged())
@settings(
    max_examples=RAGGED_EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_prompts_stops_and_budgets(ragged_models, case):
    kind, groups, sampling, rows = case
    model = ragged_models[kind]
    by_stream = decoded(model, groups, rows, sampling=sampling)
    for group in groups:
        plain = plainly(model, group, sampling=sampling)
        assert plain.agrees(by_stream[group.stream])


@pytest.mark.long
@pytest.mark.parametrize("kind", MORE)
def test_other_kinds_of_model(kind, tiny_gpt2):
    model = random_model(kind, MORE[kind], tiny_gpt2)
    groups = random_groups(model, 8)
    assert not disagreeing(decoded(model, groups, 64), {g.stream: plainly(model, g) for g in groups})


def test_every_kind_that_attends_as_we_do_is_tested(tiny_gpt2):
    kinds = {**CONFIGS, **MORE}
    assert {random_model(kind, kinds[kind], tiny_gpt2)._model.config.model_type for kind in kinds} >= set(
        SHARED_ATTENTION_TYPES
    )
