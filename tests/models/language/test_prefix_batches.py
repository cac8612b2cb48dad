"""Texts behind a common prefix in one row."""

from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoConfig,
    GPTNeoForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    modeling_utils,
)

from pairsmith.core.errors import ModelError
from pairsmith.models.language import prefix_batches
from pairsmith.models.language.prefix_batches import (
    PrefixRow,
    obstacle,
    predict_some,
    prefix_features,
    prefix_inputs,
    prefix_rows,
)
from pairsmith.training.generators import CausalGeneratorWithLoss, PromptAndTarget

SIZE = {
    "vocab_size": 50,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
KINDS = {
    "gemma3": lambda: Gemma3ForCausalLM(
        Gemma3TextConfig(**SIZE, sliding_window=4, layer_types=["sliding_attention", "full_attention"])
    ),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=16, n_layer=2, n_head=2)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZE)),
    "mistral": lambda: MistralForCausalLM(MistralConfig(**SIZE, sliding_window=4)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SIZE)),
}
ROWS = [
    PrefixRow([3, 4, 5, 6, 7, 8, 9], [[10, 11], [12], [13, 14, 15, 16, 17, 18]], [7, 4, 7]),
    PrefixRow([20, 21], [[22, 23, 24]], [2]),
]

ALONE = [PrefixRow([3, 4, 5, 6, 7], [[10, 11]], [5]), PrefixRow([20, 21], [[22]], [2])]


def random_model(kind):
    torch.manual_seed(0)
    return KINDS[kind]().eval()


@pytest.mark.parametrize("rows", [ROWS, ALONE], ids=["several", "alone"])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_text_has_the_states_that_it_has_alone(kind, rows):
    """Also where a layer sees the last four tokens only."""
    model = random_model(kind)
    assert obstacle(model) is None
    with torch.inference_mode():
        states = model.base_model(**prefix_inputs(prefix_features(rows), model)).last_hidden_state
        for of_row, row in zip(states, rows, strict=True):
            for text, seen, start in zip(row.texts, row.seen, row.starts(), strict=True):
                alone = model.base_model(torch.tensor([[*row.prefix[:seen], *text]])).last_hidden_state[0]
                assert torch.allclose(of_row[start : start + len(text)], alone[seen:], atol=1e-5)


def test_padding_after_texts_that_are_alone_in_their_rows_brings_no_warning(monkeypatch):
    """GPT-2 would warn of the padding of the second row, to which no token attends."""
    warnings = []
    monkeypatch.setattr(modeling_utils.logger, "warning_once", warnings.append)
    model = random_model("gpt2")
    model.config.pad_token_id = 0
    model.base_model(**prefix_inputs(prefix_features(ALONE), model))
    assert warnings == []


def test_padding_after_continuations_brings_no_warning(monkeypatch):
    warnings = []
    monkeypatch.setattr(modeling_utils.logger, "warning_once", warnings.append)
    model = random_model("gpt2")
    model.config.pad_token_id = 0
    generator = CausalGeneratorWithLoss(model, 0.0)
    batch = generator.continuations([PromptAndTarget([1, 2, 3], 1), PromptAndTarget([1, 2], 1)])
    assert 0 in batch["pairs"]["chunks"][0]["input_ids"]
    generator(**batch)
    assert warnings == []


def test_models_that_mind_neither_mask_nor_positions_have_an_obstacle():
    bloom = BloomForCausalLM(BloomConfig(vocab_size=50, hidden_size=16, n_layer=2, n_head=2))
    assert obstacle(bloom)
    neo = GPTNeoConfig(
        vocab_size=50, hidden_size=16, num_layers=2, num_heads=2, attention_types=[[["global", "local"], 1]]
    )
    assert "last few tokens" in obstacle(GPTNeoForCausalLM(neo))


def test_a_token_that_also_pads_brings_no_warning(monkeypatch):
    model = random_model("gpt2")
    model.config.pad_token_id = 0  # with which the first text of the check begins
    monkeypatch.setattr(modeling_utils.logger, "warning_once", lambda text: pytest.fail(text))
    assert obstacle(model) is None


def test_a_model_that_ignores_the_mask_has_an_obstacle(monkeypatch):
    model = random_model("llama")
    body = type(model.model).forward
    monkeypatch.setattr(
        type(model.model),
        "forward",
        lambda self, attention_mask=None, **rest: body(self, **rest),
    )
    assert obstacle(model) == "a text behind a shared prefix is not read as it is alone"


def test_predictions_are_computed_at_their_places_only_and_pass_on_gradients():
    model = random_model("llama")
    ids = torch.tensor([[3, 4, 5, 6], [7, 8, 9, 10]])
    every = model(ids).logits
    predictions = predict_some(model)
    assert torch.equal(model(ids).logits, every)
    predictions.places = torch.tensor([[1, 2], [0, 0], [1, 2]])
    logits = model(ids).logits
    assert torch.allclose(logits, every[[1, 0, 1], [2, 0, 2]][None], atol=1e-6)
    logits.sum().backward()
    assert model.model.layers[0].mlp.up_proj.weight.grad.abs().sum() > 0


def test_a_model_whose_logits_cannot_be_narrowed_is_refused(monkeypatch):
    model = random_model("llama")
    monkeypatch.setattr(model, "get_output_embeddings", lambda: None)
    with pytest.raises(ModelError, match="kind llama compute the logits of all tokens"):
        predict_some(model)


def test_too_little_memory_is_no_obstacle(monkeypatch):
    model = random_model("llama")

    def full(*_, **__):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(model.model, "forward", full)
    with pytest.raises(torch.OutOfMemoryError):
        obstacle(model)


def test_a_long_prefix_is_shared_too():
    texts = [[1] * 50] * 6
    rows = list(prefix_rows([[2] * 1_500] * 6, texts))
    assert [len(row.texts) for row in rows] == [6]
    assert [len(row.texts) for row in prefix_rows([[2] * 900] * 6, texts)] == [6]


TOKENS = st.lists(st.integers(0, 3), min_size=1, max_size=6)


@settings(max_examples=100)
@given(
    st.lists(st.tuples(TOKENS, st.integers(1, 6), TOKENS), min_size=1, max_size=12),
    st.integers(1, 20),
    st.booleans(),
)
def test_each_text_is_in_one_row_behind_its_own_prefix(drawn, longest, grouped):
    prefixes = [prefix[:cut] for prefix, cut, _ in drawn]
    texts = [text for *_, text in drawn]
    groups = [number % 2 for number in range(len(drawn))] if grouped else None
    with patch.object(prefix_batches, "LONGEST_ROW", longest):
        rows = list(prefix_rows(prefixes, texts, groups))
    by_number = {
        number: (list(row.prefix[:seen]), text)
        for row in rows
        for number, seen, text in zip(row.numbers, row.seen, row.texts, strict=True)
    }
    assert by_number == {number: (prefixes[number], texts[number]) for number in range(len(drawn))}
    assert all(len(row) <= max(longest, 2 * len(row.prefix)) or len(row.texts) == 1 for row in rows)
    for row in rows:
        assert len({number % 2 for number in row.numbers}) == 1 or not grouped


def test_beginnings_of_a_prefix_share_its_row_and_others_of_the_group_do_not():
    prefixes = [[1, 2], [1, 2, 3], [9], [1, 2, 3]]
    rows = list(prefix_rows(prefixes, [[5], [6], [7], [8]], ["same"] * 4))
    assert rows == [
        PrefixRow([9], [[7]], [1], [2]),
        PrefixRow([1, 2, 3], [[5], [6], [8]], [2, 3, 3], [0, 1, 3]),
    ]
