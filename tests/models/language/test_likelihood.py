"""How much likelier a language model finds a text after another one."""

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, BloomConfig, BloomForCausalLM, GPTNeoConfig, GPTNeoForCausalLM

from pairsmith.core.errors import ModelError
from pairsmith.models.language import likelihood
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
    likelihoods = log_likelihoods(judge, prompts, texts, batch_tokens=batch_tokens, advance=done.append)
    assert likelihoods == pytest.approx([alone(*pair) for pair in zip(prompts, texts, strict=True)], abs=1e-4)
    assert sum(done) == len(TEXTS)


def test_many_texts_behind_a_prompt_make_several_rows(judge, alone, monkeypatch):
    monkeypatch.setattr("pairsmith.models.language.prefix_batches.LONGEST_ROW", 12)
    prompt, texts = judge.prompt("the cat", "\n", 20), [judge.tokens(text) for text in TEXTS * 3]
    likelihoods = log_likelihoods(judge, [prompt] * len(texts), texts)
    assert likelihoods == pytest.approx([alone(prompt, text) for text in texts], abs=1e-4)


def test_a_ratio_is_what_the_given_text_adds(judge, alone):
    ratios = likelihood_ratios(judge, GIVEN, TEXTS, cue="\n")
    assert ratios.dtype == np.float32
    empty = judge.prompt("", "\n", 0)
    for given, text, ratio in zip(GIVEN, TEXTS, ratios.tolist(), strict=True):
        tokens = judge.tokens(text)
        expected = alone(judge.prompt(given, "\n", len(tokens)), tokens) - alone(empty, tokens)
        assert ratio == pytest.approx(expected, abs=1e-4)


def test_after_nothing_a_text_is_no_likelier(judge):
    assert likelihood_ratios(judge, [""], ["a cat sat"], cue="\n").tolist() == pytest.approx([0], abs=1e-5)


def test_a_long_text_is_cut_before_the_other(tiny_gpt2):
    judge = load_likelihood_judge(str(tiny_gpt2), device="cpu", dtype="float32", max_length=20)
    prompt = judge.prompt("the cat " * 50, "\n", 6)
    assert len(prompt) == 14
    assert judge.prompt("the cat " * 50, "\n", 5) == prompt  # one prompt for both is computed once
    assert len(judge.prompt("the cat " * 50, "\n", 7)) == 12
    text = "the cat the cat the"
    count = len(judge.tokens(text))
    assert len(judge.prompt(text, "\n", 18 - count)) == count + 2  # all of it fits
    assert prompt[-1:] == judge.tokens("\n")
    assert np.isfinite(likelihood_ratios(judge, ["the " * 90, "the"], ["a " * 90, ""], cue="\n")).all()


def test_what_looks_like_a_special_token_is_text(judge):
    assert len(judge.tokens("<|endoftext|>")) > 1


def test_a_token_that_the_model_has_no_vector_for_is_an_error_of_the_model(tiny_gpt2):
    judge = load_likelihood_judge(str(tiny_gpt2), device="cpu", dtype="float32")
    judge.tokenizer.add_tokens(["unheard"])
    assert len(likelihood_ratios(judge, ["a cat"], ["a dog"], cue="\n")) == 1
    with pytest.raises(ModelError, match="gives the token 300, but the model has vectors only for tokens"):
        likelihood_ratios(judge, ["a cat"], ["a dog unheard"], cue="\n")


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
    runs = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        try:
            runs.append(log_likelihoods(judge, prompts, texts, batch_tokens=30).tolist())
        finally:
            torch.set_num_threads(before)
    assert runs[0] == runs[1]


def test_a_question_and_its_answer_count_both_per_token(judge, alone):
    passage, question, answer = "the cat sat on the mat", "who sat on the mat?", "the cat"
    (ratio,) = question_likelihoods(judge, [question], [answer], [passage]).tolist()
    words, told = judge.tokens(question), judge.tokens(" the cat")
    after = judge.prompt("the cat sat on the mat\nAnswer: the cat", "\nQuestion: ", len(words))
    before = judge.prompt("", "\nQuestion: ", 0)
    spoken = judge.prompt("the cat sat on the mat\nQuestion: who sat on the mat?", "\nAnswer:", len(told))
    expected = (alone(after, words) - alone(before, words)) / len(words) + alone(spoken, told) / len(told)
    assert ratio == pytest.approx(expected, abs=1e-4)


def test_a_long_passage_is_cut_and_its_answer_and_question_are_kept(tiny_gpt2):
    judge = load_likelihood_judge(str(tiny_gpt2), device="cpu", dtype="float32", max_length=40)
    passage = "the cat sat on the mat " * 20
    ratios = question_likelihoods(judge, ["who sat?"] * 2, ["the cat", "rain"], [passage] * 2)
    assert ratios[0] != ratios[1]
    prefix, lead = judge.prefix_and_lead(passage, "\nAnswer: the cat", "\nQuestion: ", 6)
    assert judge.tokenizer.decode(lead) == "\nAnswer: the cat\nQuestion: "
    assert passage.startswith(judge.tokenizer.decode(prefix, skip_special_tokens=True))
    assert len(prefix) + len(lead) + 6 <= 40
    assert (
        judge.prefix_and_lead(passage, "\nAnswer: cat the", "\nQuestion: ", 6)[0] == prefix
    )  # computed once


def test_a_passage_is_computed_once_for_its_questions(judge, alone, monkeypatch):
    passage, pairs = "the cat sat on the mat", [("who sat?", "the cat"), ("sat where?", "on the mat")] * 2
    expected = []
    for question, answer in pairs:
        words, told = judge.tokens(question), judge.tokens(f" {answer}")
        after = judge.prompt(f"{passage}\nAnswer: {answer}", "\nQuestion: ", len(words))
        spoken = judge.prompt(f"{passage}\nQuestion: {question}", "\nAnswer:", len(told))
        ratio = alone(after, words) - alone(judge.prompt("", "\nQuestion: ", 0), words)
        expected.append(ratio / len(words) + alone(spoken, told) / len(told))
    sizes, computed = [], likelihood._of_batch

    def noted(judge, batch, texts, leads):
        sizes.extend((len(row.texts), len(row.prefix)) for row in batch)
        return computed(judge, batch, texts, leads)

    monkeypatch.setattr(likelihood, "_of_batch", noted)
    questions, answers = zip(*pairs, strict=True)
    done = []
    together = question_likelihoods(judge, questions, answers, [passage] * 4, advance=done.append)
    assert sum(done) == 4
    assert together.tolist() == pytest.approx(expected, abs=1e-4)
    of_passage = len(judge.prefix_and_lead(passage, "", "", 0)[0])
    assert [size for size in sizes if size[1] == of_passage] == [(8, of_passage)]  # questions and answers


def test_a_question_that_is_cut_counts_the_tokens_that_are_left(tiny_gpt2):
    judge = load_likelihood_judge(str(tiny_gpt2), device="cpu", dtype="float32", max_length=40)
    whole, cut = (question_likelihoods(judge, [text], ["x"], ["y"]) for text in ("a b " * 40, "a b " * 60))
    assert whole.tolist() == pytest.approx(cut.tolist(), abs=1e-5)


def test_texts_without_tokens_are_as_likely_after_anything(judge):
    assert likelihood_ratios(judge, ["a document"], [""], cue="\n").tolist() == [0.0]


def save(model, tokenizer_of, folder):
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(tokenizer_of).save_pretrained(folder)
    return str(folder)


def test_a_model_with_attention_of_its_own_sees_no_other_text(tiny_gpt2, tmp_path):
    torch.manual_seed(0)
    size = AutoTokenizer.from_pretrained(tiny_gpt2).vocab_size
    config = GPTNeoConfig(
        vocab_size=size, hidden_size=16, num_layers=2, num_heads=2, attention_types=[[["global"], 2]]
    )
    judge = load_likelihood_judge(
        save(GPTNeoForCausalLM(config), tiny_gpt2, tmp_path / "neo"), device="cpu", dtype="float32"
    )
    prompt, texts = (
        judge.prompt("the cat", "\n", 9),
        [judge.tokens("sat on it " * 5), judge.tokens("it rains")],
    )
    together = log_likelihoods(judge, [prompt, prompt], texts)
    expected = [log_likelihoods(judge, [prompt], [text])[0] for text in texts]
    assert together == pytest.approx(expected, abs=1e-4)


def test_a_model_that_counts_places_in_the_row_is_refused(tiny_gpt2, tmp_path):
    torch.manual_seed(0)
    size = AutoTokenizer.from_pretrained(tiny_gpt2).vocab_size
    model = save(
        BloomForCausalLM(BloomConfig(vocab_size=size, hidden_size=16, n_layer=2, n_head=2)),
        tiny_gpt2,
        tmp_path,
    )
    with pytest.raises(ModelError, match="models of the kind bloom cannot"):
        load_likelihood_judge(model, device="cpu", dtype="float32")
