import pytest
import torch
from tests.tiny_bart import make_bart
from torch import nn
from transformers import AutoModel, MPNetConfig, MPNetModel

from pairsmith.core.errors import SettingsError
from pairsmith.models.text_generator import load_text_generator
from pairsmith.training.quick import set_attention_dropout


def without_other_dropout(model):
    """In training, so that what still differs from call to call is the attention."""
    for module in model.modules():
        inside = type(module).__name__.endswith("Attention")
        for child in [] if inside else module.children():
            if isinstance(child, nn.Dropout):
                child.p = 0.0
        if not inside and isinstance(getattr(module, "dropout", None), float):
            module.dropout = module.activation_dropout = 0.0
    return model.train()


def twice(model, **features):
    return [model(**features)[0].detach() for _ in range(2)]


@pytest.mark.parametrize("kind", ["bert", "bart", "bert with a decoder"])
def test_without_it_nothing_of_the_attention_is_left_to_chance(kind, tiny_bert, tmp_path):
    if kind == "bert with a decoder":
        model = load_text_generator(str(tiny_bert), device="cpu", fresh_decoder=True).model
    else:
        model = AutoModel.from_pretrained(tiny_bert if kind == "bert" else make_bart(tmp_path / "bart"))
    features = {"input_ids": torch.arange(5, 25).view(2, 10)}
    if kind == "bert with a decoder":
        features["decoder_input_ids"] = features["input_ids"]
    set_attention_dropout(without_other_dropout(model), 0.5)
    one, other = twice(model, **features)
    assert not torch.equal(one, other)
    set_attention_dropout(model, 0.0)
    one, other = twice(model, **features)
    assert torch.equal(one, other)


def test_dropout_beside_the_attention_stays():
    """MPNet keeps that of hidden states in a module around its attention."""
    config = MPNetConfig(vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2)
    config.intermediate_size = 16
    model = MPNetModel(config)
    set_attention_dropout(model, 0.0)
    attention = model.encoder.layer[0].attention
    assert attention.attn.dropout.p == 0.0
    assert attention.dropout.p == 0.1


def test_a_model_without_any_is_refused():
    with pytest.raises(SettingsError, match="attention_dropout 0: no dropout was found"):
        set_attention_dropout(nn.Linear(2, 2), 0.0)
