"""Beam search in a session finds what brute force and the search of transformers find."""

import math
from itertools import product

import pytest
import torch
from transformers import GenerationConfig

from pairsmith.core.errors import ModelError
from pairsmith.models.language.beam_search import Continuation, search_continuations
from pairsmith.models.language.loading import load_model
from pairsmith.models.language.scripted import ScriptedModel

TEXTS = [
    "A dog runs.",
    "Two cats sleep on the old red sofa.",
    "Snow",
    "The band plays.",
    "It is late, said Ann.",
]


def prompts_of(model, texts=TEXTS):
    return [tuple(model.encode(text)) for text in texts]


@pytest.mark.parametrize("name", ["tiny_gpt2", "tiny_llama"])
@pytest.mark.parametrize(("beams", "count", "penalty"), [(6, 6, 0.0), (4, 2, 1.0), (1, 1, 1.0)])
def test_the_continuations_are_those_of_transformers(name, beams, count, penalty, request):
    model = load_model(str(request.getfixturevalue(name)), device="cpu", dtype="float32")
    network = model._model
    never = [3, 4]
    ends = [token for token in range(5, model.vocab_size) if token % 3]
    found = search_continuations(
        model, prompts_of(model), beams=beams, count=count, max_tokens=12, ends=ends, never=never,
        length_penalty=penalty,
    )  # fmt: skip
    how = GenerationConfig(
        do_sample=False, num_beams=beams, num_return_sequences=count, early_stopping=beams > 1,
        length_penalty=penalty, max_new_tokens=12, eos_token_id=ends, pad_token_id=0, suppress_tokens=never,
    )  # fmt: skip
    compared = 0
    for prompt, continuations in zip(prompts_of(model), found, strict=True):
        assert len(continuations) == count
        rows = network.generate(torch.tensor([prompt]), generation_config=how)[:, len(prompt) :].tolist()
        for continuation, row in zip(continuations, rows, strict=True):
            if continuation.ended:  # transformers ranks those that did not end among the others
                assert list(continuation.tokens) == row[: len(continuation.tokens)]
                compared += 1
    assert compared > count * len(TEXTS) / 2


def test_a_continuations_log_probability_is_that_of_its_tokens(tiny_gpt2):
    model = load_model(str(tiny_gpt2), device="cpu", dtype="float32")
    (prompt,) = prompts_of(model, ["A dog runs."])
    (found,) = search_continuations(
        model, [prompt], beams=3, count=3, max_tokens=8, ends=range(5, model.vocab_size, 7)
    )
    for continuation in found:
        with torch.inference_mode():
            logits = model._model(torch.tensor([[*prompt, *continuation.tokens]])).logits[0]
        scores = logits.log_softmax(dim=1)[len(prompt) - 1 : -1]
        likelihood = scores.gather(1, torch.tensor(continuation.tokens)[:, None]).sum()
        assert continuation.log_probability == pytest.approx(float(likelihood), abs=1e-4)


def test_prompts_searched_apart_give_the_same(tiny_llama):
    model = load_model(str(tiny_llama), device="cpu", dtype="float32")
    how = {"beams": 3, "count": 3, "max_tokens": 9, "ends": range(0, model.vocab_size, 9)}
    together = search_continuations(model, prompts_of(model), **how)
    for prompt, expected in zip(prompts_of(model), together, strict=True):
        ((*alone,),) = search_continuations(model, [prompt], **how)
        assert [found.tokens for found in alone] == [found.tokens for found in expected]
    model.rows_that_fit = lambda _: 7  # two prompts at a time
    assert [
        [found.tokens for found in row] for row in search_continuations(model, prompts_of(model), **how)
    ] == [[found.tokens for found in row] for row in together]


def chances(_, begun):
    """A model that forgets all but the last letter; '.' ends."""
    return {"": {"a": 0.6, "b": 0.4}, "a": {"a": 0.3, "b": 0.3, ".": 0.4}, "b": {"a": 0.1, ".": 0.9}}[
        begun[-1:]
    ]


def test_with_beams_enough_the_likeliest_texts_of_all_are_found():
    model = ScriptedModel(chances, "ab.")
    (stop,) = model.tokens_with(".")
    (found,) = search_continuations(
        model, [model.encode("x")], beams=64, count=5, max_tokens=5, ends={stop}, length_penalty=0.0
    )

    def likelihood(text):
        return math.prod(chances("", text[:place])[letter] for place, letter in enumerate(text))

    texts = ["".join(letters) + "." for length in range(5) for letters in product("ab", repeat=length)]
    possible = [text for text in texts if text != "." and "bb" not in text]
    ranked = sorted(possible, key=likelihood, reverse=True)[:5]
    assert [model.decode(continuation.tokens) for continuation in found] == ranked
    assert math.exp(found[0].log_probability) == pytest.approx(0.4 * 0.9)


def test_one_beam_takes_the_likeliest_token_each_time():
    model = ScriptedModel(chances, "ab.")
    (stop,) = model.tokens_with(".")
    (found,) = search_continuations(model, [model.encode("x")], beams=1, count=1, max_tokens=5, ends={stop})
    assert found == [Continuation(tuple(model.encode("a.")), pytest.approx(math.log(0.6 * 0.4)), True)]


def test_texts_that_do_not_end_fill_up_and_forbidden_tokens_never_come():
    model = ScriptedModel(chances, "ab.")
    (stop,) = model.tokens_with(".")
    (found,) = search_continuations(
        model, [model.encode("x")], beams=2, count=2, max_tokens=3, ends={stop}, never={stop}
    )
    assert [(model.decode(beam.tokens), beam.ended) for beam in found] == [("aaa", False), ("aab", False)]
    (none,) = search_continuations(
        model, [model.encode("x")], beams=2, count=2, max_tokens=3, ends={stop}, never=model.encode("ab.")
    )
    assert none == []


def test_scores_that_are_no_numbers_are_told():
    model = ScriptedModel(lambda *_: {"a": math.nan}, "a.")
    with pytest.raises(ModelError, match="not finite"):
        search_continuations(model, [model.encode("x")], beams=2, count=1, max_tokens=3, ends={1})
