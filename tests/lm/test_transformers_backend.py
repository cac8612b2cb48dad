"""The cached, batched decoder against the plainest possible one: whole sequences, one prompt at a time."""

import gc
import weakref
from functools import partial

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Gemma2Config,
    Gemma2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
)

from pairsmith.errors import ModelError
from pairsmith.lm.combine import self_debias
from pairsmith.lm.decoder import Group, MultiPromptDecoder
from pairsmith.lm.loading import load_model
from pairsmith.lm.sampling import Sampling, draw, truncate
from pairsmith.lm.transformers_backend import TransformersModel
from pairsmith.runs.seeds import stream_key, uniforms

SAMPLING = Sampling(top_k=5, top_p=0.9, max_tokens=12)
RULE = partial(self_debias, decay=100.0, floor=0.01)
SEED = 11


@pytest.fixture(scope="module", params=["gpt2", "llama", "gemma2"])
def model(request, tiny_gpt2):
    """Learned positions; rotary ones with grouped-query attention; capped logits and a sliding window."""
    if request.param == "gpt2":
        return load_model(str(tiny_gpt2), device="cpu")
    tokenizer = AutoTokenizer.from_pretrained(tiny_gpt2)
    torch.manual_seed(1)
    if request.param == "gemma2":
        config = Gemma2Config(
            vocab_size=len(tokenizer), hidden_size=32, intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=256,
            sliding_window=128, final_logit_softcapping=2.0, bos_token_id=0, eos_token_id=0, pad_token_id=0,
            initializer_range=0.4,
        )  # fmt: skip
        return TransformersModel(Gemma2ForCausalLM(config), tokenizer, name="gemma2", revision="test")
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
        bos_token_id=0, eos_token_id=0, initializer_range=0.4,
    )  # fmt: skip
    return TransformersModel(LlamaForCausalLM(config), tokenizer, name="llama", revision="test")


def groups_for(model, count):
    made = []
    for i in range(count):
        main = tuple(model.encode(f'Task {i}: write{" more" * (i % 7)}.\n"'))
        counters = [tuple(model.encode(f'Task: number {j} of {i % 5}.\n"')) for j in range(i % 3)]
        made.append(Group(main, tuple(counters), stream_key("g", i)))
    return made


def plainly(model, group):
    """One group, no cache, no batch, no padding."""
    tokens = []
    stops = model.tokens_with('"')
    for position in range(SAMPLING.max_tokens):
        rows = []
        for prompt in group.prompts:
            with torch.inference_mode():
                ids = torch.tensor([[*prompt, *tokens]])
                rows.append(
                    torch.softmax(model._model(input_ids=ids, use_cache=False).logits[0, -1].float(), 0)
                )
        p = rows[0][None]
        if len(rows) > 1:
            p = RULE(p, torch.stack(rows[1:]).max(dim=0).values[None])
        number = uniforms(
            SEED, torch.tensor([group.stream], dtype=torch.uint64).numpy(), torch.tensor([position]).numpy()
        )
        token = int(draw(*truncate(p, 5, 0.9), torch.from_numpy(number)))
        tokens.append(token)
        if token in stops or token in model.end_tokens:
            break
    return tuple(tokens)


def decode(model, groups, rows):
    decoder = MultiPromptDecoder(model, RULE, SAMPLING, SEED, rows)
    for group in groups:
        decoder.add(group)
    return {c.group.stream: c.tokens for c in decoder.finished()}


def test_batched_decoding_equals_plain_decoding(model):
    groups = groups_for(model, 25)
    expected = {group.stream: plainly(model, group) for group in groups}
    assert len({len(tokens) for tokens in expected.values()}) > 1, "some should stop early"
    assert decode(model, groups, rows=64) == expected
    assert decode(model, groups, rows=3) == expected


def test_a_group_alone_or_among_200_others_gives_the_same_tokens(model):
    groups = groups_for(model, 201)
    together = decode(model, groups, rows=256)
    for group in groups[::8]:
        assert decode(model, [group], rows=8)[group.stream] == together[group.stream]


def test_names_revision_context_and_ends(tiny_gpt2):
    model = load_model(str(tiny_gpt2), device="cpu")
    assert model.name == str(tiny_gpt2)
    assert model.revision.startswith("sha256:")
    assert model.context == 128
    assert model.end_tokens == {0}
    quotes = model.tokens_with('"')
    assert quotes
    assert all('"' in model.decode([token]) for token in quotes)
    others = set(range(model.vocab_size)) - quotes
    assert not any('"' in model.decode([token]) for token in others)


def test_text_survives_encode_and_decode(model):
    text = 'Sentence 1: "Zoë  said 你好 "\n\ttwice.'
    assert model.decode(model.encode(text)) == text


def test_a_folder_without_tokenizer_is_named(tiny_gpt2, tmp_path):
    AutoModelForCausalLM.from_pretrained(tiny_gpt2).save_pretrained(tmp_path / "bare")
    with pytest.raises(ModelError, match="holds no tokenizer") as caught:
        load_model(str(tmp_path / "bare"))
    assert "\n" not in str(caught.value)


def test_a_folder_that_is_no_model(tmp_path, tiny_gpt2):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match="holds no config.json"):
        load_model(str(tmp_path / "empty"))
    with pytest.raises(ModelError, match="no such folder"):
        load_model(str(tmp_path / "gone"))
    (tmp_path / "broken").mkdir()
    for file in tiny_gpt2.iterdir():
        data = b"{}" if file.name == "config.json" else file.read_bytes()
        (tmp_path / "broken" / file.name).write_bytes(data)
    with pytest.raises(ModelError, match="cannot be loaded as a causal language model"):
        load_model(str(tmp_path / "broken"))


def test_an_encoder_is_no_language_model(tiny_bert):
    with pytest.raises(ModelError, match="its weights lack cls.*no causal language model"):
        load_model(str(tiny_bert))


def test_damaged_weights(tmp_path, tiny_gpt2):
    for file in tiny_gpt2.iterdir():
        data = file.read_bytes()
        (tmp_path / file.name).write_bytes(data[: len(data) // 2] if file.suffix == ".safetensors" else data)
    with pytest.raises(ModelError, match="cannot be loaded as a causal language model"):
        load_model(str(tmp_path))


def test_rows_are_never_longer_than_a_sliding_window(model):
    assert model.context == 128  # Gemma's positions go to 256, its window sees 128


def test_rows_outgrow_their_first_places(tiny_gpt2):
    """Prompts of 60 tokens and 40 new ones cross the first 64 places of a slot."""
    model = load_model(str(tiny_gpt2), device="cpu")
    prompt = tuple(model.encode("x" * 200))[:60]
    group = Group(prompt, (prompt[:50],), stream_key("long"))
    sampling = Sampling(top_k=5, top_p=0.9, max_tokens=40, stop="\x00never")
    tokens = []
    for rows in (2, 64):
        decoder = MultiPromptDecoder(model, RULE, sampling, SEED, rows)
        decoder.add(group)
        (continuation,) = decoder.finished()
        tokens.append(continuation.tokens)
    assert tokens[0] == tokens[1]
    assert len(tokens[0]) == 40


def test_a_recurrent_model_is_refused(tiny_gpt2):
    tokenizer = AutoTokenizer.from_pretrained(tiny_gpt2)
    config = MambaConfig(vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, state_size=4)
    model = TransformersModel(MambaForCausalLM(config), tokenizer, name="mamba", revision="test")
    with pytest.raises(ModelError, match="keeps no keys and values"):
        decode(model, groups_for(model, 1), rows=4)


def test_probabilities_that_are_no_numbers_are_named(tiny_gpt2):
    model = load_model(str(tiny_gpt2), device="cpu")
    with torch.no_grad():
        model._model.transformer.ln_f.weight.fill_(torch.nan)
    with pytest.raises(ModelError, match="not finite numbers; use --dtype float32"):
        decode(model, groups_for(model, 2), rows=8)


def test_a_sessions_memory_goes_with_it(tiny_gpt2):
    model = load_model(str(tiny_gpt2), device="cpu")
    gc.collect()
    gc.disable()
    try:
        decoder = MultiPromptDecoder(model, RULE, SAMPLING, SEED, 8)
        decoder.add(groups_for(model, 1)[0])
        list(decoder.finished())
        keys = weakref.ref(decoder._session._cache.layers[0].keys)
        assert keys() is not None
        del decoder
        assert keys() is None
    finally:
        gc.enable()
