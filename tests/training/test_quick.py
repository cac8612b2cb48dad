"""What makes trainings on a processor take less time."""

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertLMHeadModel, BertModel, EncoderDecoderModel, PreTrainedConfig

from pairsmith.training.quick import LONG, QuickDropout, quick_training


def test_a_share_is_dropped_and_the_rest_made_larger() -> None:
    torch.manual_seed(0)
    output = QuickDropout(0.25)(torch.full((1000, 401), 3.0))
    assert sorted(set(output.unique().tolist())) == [0.0, 4.0]
    assert (output == 0).float().mean().item() == pytest.approx(0.25, abs=0.005)
    assert output.mean().item() == pytest.approx(3.0, abs=0.02)
    rows, columns = (output == 0).float().mean(1), (output == 0).float().mean(0)
    assert rows.std().item() == pytest.approx((0.25 * 0.75 / 401) ** 0.5, rel=0.15)
    assert columns.std().item() == pytest.approx((0.25 * 0.75 / 1000) ** 0.5, rel=0.15)


def test_the_mask_is_another_each_time_and_follows_the_seed() -> None:
    dropout, values = QuickDropout(0.5), torch.ones(999)
    torch.manual_seed(3)
    first, second = dropout(values), dropout(values)
    torch.manual_seed(3)
    assert torch.equal(dropout(values), first)
    assert not torch.equal(first, second)


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1.0), (1.0, 0.0), (2**-16, None), (1 - 2**-16, None)])
def test_shares_at_the_ends(share: float, expected: float | None) -> None:
    output = QuickDropout(share)(torch.ones(64))
    assert torch.isfinite(output).all()
    if expected is not None:
        assert output.unique().tolist() == [expected]


def test_gradients_are_zero_where_a_value_was_dropped() -> None:
    values = torch.ones(500, requires_grad=True)
    output = QuickDropout(0.3)(values)
    output.sum().backward()
    assert torch.equal(values.grad, output.detach())


def test_numbers_of_sixteen_bits_stay_such() -> None:
    assert QuickDropout(0.1)(torch.ones(10, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_nothing_is_dropped_outside_a_training() -> None:
    dropout = QuickDropout(0.5).eval()
    assert torch.equal(dropout(torch.ones(100)), torch.ones(100))


def small(**settings: float) -> BertModel:
    torch.manual_seed(0)
    return BertModel(
        BertConfig(
            vocab_size=40,
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            **settings,
        )
    )


def test_the_model_is_as_before_behind_it() -> None:
    model = nn.ModuleDict({"inner": small()})
    before = [(name, type(module)) for name, module in model.named_modules()]
    keys = list(model.state_dict())
    with quick_training(model, "cpu"):
        assert model["inner"].config._attn_implementation == "eager"
        assert any(isinstance(module, QuickDropout) for module in model.modules())
        assert list(model.state_dict()) == keys
    assert model["inner"].config._attn_implementation == "sdpa"
    assert [(name, type(module)) for name, module in model.named_modules()] == before


def test_an_encoder_that_was_given_a_decoder_attends_so_in_every_layer() -> None:
    decoder = BertConfig(**small().config.to_dict() | {"is_decoder": True, "add_cross_attention": True})
    model = EncoderDecoderModel(encoder=small(), decoder=BertLMHeadModel(decoder))

    def attentions() -> set[str]:
        return {
            module.config._attn_implementation
            for module in model.modules()
            if isinstance(getattr(module, "config", None), PreTrainedConfig)
        }

    assert attentions() == {"sdpa"}
    with quick_training(model, "cpu") as as_usual:
        assert attentions() == {"eager"}
        assert as_usual(attentions) == {"sdpa"}
        assert attentions() == {"eager"}
    assert attentions() == {"sdpa"}


@pytest.mark.parametrize(
    ("tokens", "share", "expected"),
    [(LONG, 0.0, "eager"), (LONG + 1, 0.0, "sdpa"), (LONG + 1, 0.1, "eager")],
)
def test_long_texts_without_dropout_of_attention_are_attended_block_by_block(tokens, share, expected) -> None:
    model = small(attention_probs_dropout_prob=share, max_position_embeddings=LONG + 1).train()
    used = []
    model.encoder.register_forward_pre_hook(lambda *_: used.append(model.config._attn_implementation))
    with quick_training(model, "cpu") as as_usual:
        model(torch.zeros(1, tokens, dtype=torch.int64))
        model(inputs_embeds=torch.zeros(1, tokens, 16))
        as_usual(lambda: model(input_ids=torch.zeros(1, 2, dtype=torch.int64)))
        model(input_ids=torch.zeros(1, 2, dtype=torch.int64))
    assert used == [expected, expected, "sdpa", "eager"]
    model(torch.zeros(1, 2, dtype=torch.int64))
    assert used[-1] == "sdpa"


def test_elsewhere_nothing_changes() -> None:
    model = small()
    with quick_training(model, "cuda"):
        assert model.config._attn_implementation == "sdpa"
        assert not any(isinstance(module, QuickDropout) for module in model.modules())


def test_without_dropout_losses_and_gradients_are_the_same_but_for_rounding() -> None:
    model = small(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0).train()
    tokens = torch.randint(40, (3, 7), generator=torch.Generator().manual_seed(1))
    mask = torch.tensor([[1] * 7, [1] * 4 + [0] * 3, [1] * 2 + [0] * 5])

    def gradient() -> torch.Tensor:
        model.zero_grad()
        model(input_ids=tokens, attention_mask=mask).pooler_output.square().sum().backward()
        grad = model.embeddings.word_embeddings.weight.grad
        assert grad is not None
        return grad.clone()

    usual = gradient()
    with quick_training(model, "cpu"):
        quick = gradient()
    torch.testing.assert_close(quick, usual)
