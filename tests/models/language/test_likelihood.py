"""How much likelier a language model finds a text after another one."""

import numpy as np
import pytest
import torch

from pairsmith.core.errors import ModelError
from pairsmith.models.language.likelihood import (
    likelihood_ratios,
    load_likelihood_judge,
    log_likelihoods,
    question_likelihoods,
)
from pairsmith.models.language.loading import load_causal

GIVEN = ["the cat sat on the mat", "the cat sat on the mat", "it rains", "the cat sat on the mat"]
TEXTS = ["a cat sat", "rain falls in Spain", "a cat sat", "x"]


@pytest.fixture(scope="module")
def judge(tiny_gpt2):
    return load_likelihood_judge(str(tiny_gpt2), device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def alone(tiny_gpt2):
    """log p(text | prompt), by the model of transformers and one sequence at a time."""
    network = load_causal(str(tiny_gpt2), device="cpu")[1].eval()

    def sum_of(prompt, text):
        with torch.inference_mode():
            log_p = network(input_ids=torch.tensor([[*prompt, *text]])).logits[0].log_softmax(dim=1)
        return sum(log_p[len(prompt) - 1 + i, token].item() for i, token in enumerate(text))

    return sum_of


@pytest.mark.parametrize("batch_tokens", [1, 40, None])
def test_they_are_those_of_each_text_alone(judge, alone, batch_tokens):
    prompts = [judge.prompt(given, "\n", 20) for given in GIVEN]
    texts = [judge.tokens(text) for text in TEXTS]
    done = []
    found = log_likelihoods(judge, prompts, texts, batch_tokens=batch_tokens, advance=done.append)
    assert found == pytest.approx([alone(*pair) for pair in zip(prompts, texts, strict=True)], abs=1e-4)
    assert sum(done) == len(TEXTS)


def test_many_texts_behind_a_prompt_make_several_rows(judge, alone, monkeypatch):
    monkeypatch.setattr("pairsmith.models.language.likelihood.LONGEST_ROW", 12)
    prompt, texts = judge.prompt("the cat", "\n", 20), [judge.tokens(text) for text in TEXTS * 3]
    found = log_likelihoods(judge, [prompt] * len(texts), texts)
    assert found == pytest.approx([alone(prompt, text) for text in texts], abs=1e-4)


def test_a_ratio_is_what_the_given_text_adds(judge, alone):
    found = likelihood_ratios(judge, GIVEN, TEXTS, cue="\n")
    assert found.dtype == np.float32
    empty = judge.prompt("", "\n", 0)
    for given, text, ratio in zip(GIVEN, TEXTS, found.tolist(), strict=True):
        tokens = judge.tokens(text)
        expected = alone(judge.prompt(given, "\n", len(tokens)), tokens) - alone(empty, tokens)
        assert ratio == pytest.approx(expected, abs=1e-4)


def test_after_nothing_a_text_is_no_likelier(judge):
    assert likelihood_ratios(judge, [""], ["a cat sat"], cue="\n").tolist() == pytest.approx([0], abs=1e-5)


def test_a_long_text_is_cut_before_the_other(tiny_gpt2):
    judge = load_likelihood_judge(str(tiny_gpt2), device="cpu", dtype="float32", max_length=20)
    prompt = judge.prompt("the cat " * 50, "\n", 6)
    assert len(prompt) == 14
    assert prompt[-1:] == judge.tokens("\n")
    assert np.isfinite(likelihood_ratios(judge, ["the " * 90, "the"], ["a " * 90, ""], cue="\n")).all()


def test_what_looks_like_a_special_token_is_text(judge):
    assert len(judge.tokens("<|endoftext|>")) > 1


def test_damaged_weights_are_an_error(tiny_gpt2):
    judge = load_likelihood_judge(str(tiny_gpt2), device="cpu", dtype="float32")
    with torch.no_grad():
        judge.network.get_input_embeddings().weight.fill_(torch.nan)
    with pytest.raises(ModelError, match="log-probabilities"):
        likelihood_ratios(judge, GIVEN, TEXTS, cue="\n")


def test_no_pairs_have_no_ratios(judge):
    assert likelihood_ratios(judge, [], [], cue="\n").shape == (0,)


def test_threads_change_nothing(judge):
    prompts = [judge.prompt(given, "\n", 20) for given in GIVEN * 3]
    texts = [judge.tokens(text) for text in TEXTS * 3]
    before = torch.get_num_threads()
    found = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        try:
            found.append(log_likelihoods(judge, prompts, texts, batch_tokens=30).tolist())
        finally:
            torch.set_num_threads(before)
    assert found[0] == found[1]


def test_a_question_and_its_answer_count_both_per_token(judge, alone):
    passage, question, answer = "the cat sat on the mat", "who sat on the mat?", "the cat"
    (found,) = question_likelihoods(judge, [question], [answer], [passage]).tolist()
    asked, told = judge.tokens(question), judge.tokens(" the cat")
    after = judge.prompt("the cat sat on the mat\nAnswer: the cat", "\nQuestion: ", len(asked))
    before = judge.prompt("", "\nQuestion: ", 0)
    spoken = judge.prompt("the cat sat on the mat\nQuestion: who sat on the mat?", "\nAnswer:", len(told))
    expected = (alone(after, asked) - alone(before, asked)) / len(asked) + alone(spoken, told) / len(told)
    assert found == pytest.approx(expected, abs=1e-4)
