"""Gradients of a vocabulary's vectors."""

import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM

from pairsmith.training.chunks import sum_of_losses
from pairsmith.training.embedding_gradients import kept_vocabulary_gradients
from pairsmith.training.quick import quick_training

SIZES = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
TOKENS = torch.tensor([[3, 5, 3, 0], [7, 5, 5, 9]])
"""Tokens 3 and 5 occur more than once, and 5 in both texts; 0 is padding."""


def bert() -> BertModel:
    torch.manual_seed(0)
    config = BertConfig(intermediate_size=32, hidden_dropout_prob=0, attention_probs_dropout_prob=0, **SIZES)
    return BertModel(config).train()


def loss_of(model: nn.Module, tokens: Tensor) -> Tensor:
    loss: Tensor = model(input_ids=tokens).last_hidden_state.square().sum()
    return loss


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


def plain(model: BertModel, batches: list[Tensor]) -> dict[str, Tensor]:
    model.zero_grad()
    for batch in batches:
        loss_of(model, batch).backward()
    return gradients(model)


def test_they_are_what_torch_gives() -> None:
    model = bert()
    expected = plain(model, [TOKENS])
    model.zero_grad()
    with kept_vocabulary_gradients(model):
        loss_of(model, TOKENS).backward()
        by_name = gradients(model)
    torch.testing.assert_close(by_name, expected)
    assert by_name["embeddings.word_embeddings.weight"][[0, 1]].abs().sum() == 0  # padding, and never used


def test_of_several_calls_in_one_step() -> None:
    model = bert()
    expected = plain(model, [TOKENS[:1], TOKENS[1:]])
    model.zero_grad()
    with kept_vocabulary_gradients(model):
        (loss_of(model, TOKENS[:1]) + loss_of(model, TOKENS[1:])).backward()
        torch.testing.assert_close(gradients(model), expected)


def test_of_several_backward_passes_in_one_step() -> None:
    model = bert()
    expected = plain(model, [TOKENS, TOKENS[1:]])
    model.zero_grad()
    with kept_vocabulary_gradients(model):
        loss_of(model, TOKENS).backward()
        loss_of(model, TOKENS[1:]).backward()
        torch.testing.assert_close(gradients(model), expected)


@pytest.mark.parametrize("chunks", [[TOKENS], [TOKENS[:1], TOKENS[1:]]])
@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_of_a_sum_over_chunks(chunks: list[Tensor], scale: float) -> None:
    model = bert()
    expected = {name: scale * gradient for name, gradient in plain(model, chunks).items()}
    model.zero_grad()
    with kept_vocabulary_gradients(model):
        losses = [{"input_ids": chunk} for chunk in chunks]
        loss = sum_of_losses(lambda chunk: loss_of(model, chunk["input_ids"])[None], losses, model)
        (scale * loss).backward()
        torch.testing.assert_close(gradients(model), expected)


def test_each_step_uses_the_same_memory_and_nothing_of_the_step_before() -> None:
    model = bert()
    with kept_vocabulary_gradients(model):
        loss_of(model, TOKENS).backward()
        weight = model.embeddings.word_embeddings.weight
        assert weight.grad is not None
        place = weight.grad.data_ptr()
        model.zero_grad()
        loss_of(model, torch.tensor([[11, 12]])).backward()
        assert weight.grad.data_ptr() == place
        assert weight.grad.abs().sum(1).nonzero().flatten().tolist() == [11, 12]


def test_afterwards_the_model_is_as_before() -> None:
    model = bert()
    with quick_training(model, "cpu"):
        assert model.embeddings.word_embeddings.sparse
    assert not model.embeddings.word_embeddings.sparse
    loss_of(model, TOKENS).backward()
    assert model.embeddings.word_embeddings.weight.grad is not None
    assert not model.embeddings.word_embeddings.weight.grad.is_sparse


def test_a_weight_that_predicts_tokens_too_is_left_alone() -> None:
    config = LlamaConfig(intermediate_size=32, tie_word_embeddings=True, **SIZES)
    model = LlamaForCausalLM(config)
    with kept_vocabulary_gradients(model):
        assert not model.get_input_embeddings().sparse


def test_so_are_frozen_ones() -> None:
    model = bert()
    model.embeddings.word_embeddings.weight.requires_grad_(False)
    with kept_vocabulary_gradients(model):
        assert not model.embeddings.word_embeddings.sparse


def test_several_processes_send_each_other_whole_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "-"}.items():
        monkeypatch.setenv(name, value)
    model = bert()
    with quick_training(model, "cpu"):
        assert not model.embeddings.word_embeddings.sparse
