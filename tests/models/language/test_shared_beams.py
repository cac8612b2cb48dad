"""A beam search that shares what its beams continue finds what the search of transformers finds."""

import pytest
import torch

from pairsmith.models.language import shared_beams
from pairsmith.models.language.shared_beams import BeamCache
from pairsmith.models.text_generator import encode_inputs, generate_outputs, load_text_generator

pytestmark = pytest.mark.slow

TEXTS = [f"{word} was seen by {number} people. " * (1 + number % 3) for number, word in enumerate("abcdefg")]


@pytest.mark.parametrize("model", ["tiny_gpt2", "tiny_llama"])
@pytest.mark.parametrize(("beams", "batch_size"), [(6, 8), (3, 2), (2, 1)])
def test_the_summaries_are_those_of_transformers(model, beams, batch_size, request, monkeypatch):
    loaded = load_text_generator(
        str(request.getfixturevalue(model)), max_length=60, device="cpu", dtype="float32"
    )
    how = {"beams": beams, "batch_size": batch_size, "output_tokens": 14}
    read = []

    def note(base, __, given):
        if isinstance(given["past_key_values"], BeamCache):  # a copy with the same weights
            assert base is not loaded.model.base_model
            pairs = zip(base.parameters(), loaded.model.base_model.parameters(), strict=True)
            assert all(one is other for one, other in pairs)
        else:
            read.extend(given["attention_mask"].sum(dim=1).tolist())

    hook = loaded.model.base_model.register_forward_pre_hook(note, with_kwargs=True)
    shared = generate_outputs(loaded, TEXTS, **how)
    # Each text went through the model's own attention once, all but its last token.
    assert sorted(read) == sorted(len(tokens) - 1 for tokens in encode_inputs(loaded, TEXTS, 14))
    hook.remove()
    monkeypatch.setattr(shared_beams, "can_share_beams", lambda _: False)
    assert shared == generate_outputs(loaded, TEXTS, **how)
    assert len(set(shared)) > 1


def test_models_whose_attention_is_not_known_are_searched_as_before(tiny_llama, monkeypatch):
    loaded = load_text_generator(str(tiny_llama), max_length=60, device="cpu", dtype="float32")
    expected = generate_outputs(loaded, TEXTS, beams=2, output_tokens=14)
    monkeypatch.setattr("pairsmith.models.language.transformers_backend.SHARED_ATTENTION_TYPES", ())
    monkeypatch.setattr(shared_beams, "search_shared_beams", None)  # would fail
    assert generate_outputs(loaded, TEXTS, beams=2, output_tokens=14) == expected


def test_the_network_keeps_its_weights_and_its_attention(tiny_llama):
    loaded = load_text_generator(str(tiny_llama), max_length=60, device="cpu", dtype="float32")
    before = loaded.model.config._attn_implementation
    weights = {name: value.clone() for name, value in loaded.model.state_dict().items()}
    generate_outputs(loaded, TEXTS, beams=2, output_tokens=14)
    assert loaded.model.config._attn_implementation == before
    assert all(torch.equal(value, loaded.model.state_dict()[name]) for name, value in weights.items())
    assert not loaded.model._forward_hooks
