"""What is made of llama.cpp's lists, for answers that are written down here."""

import math

import pytest
import torch

from pairsmith.core.errors import ModelError
from pairsmith.models.language.certified import certified
from pairsmith.models.language.sampling import Sampling
from pairsmith.models.language.servers import LlamaCppServer, server_of

END, LETTER, TOKENS = 0, 1, 2000
MAIN = [0.001, *[0.50, 0.22, 0.08, 0.05, 0.03]]
COUNTER = [0.00001, *[0.515, 0.10, 0.05, 0.02, 0.01]]


def distribution(head):
    """The first probabilities, and the rest shared by all other tokens, each a little less than the last."""
    falling = torch.linspace(1.2, 0.8, TOKENS - len(head), dtype=torch.float64)
    return torch.cat(
        [torch.tensor(head, dtype=torch.float64), (1 - sum(head)) * falling / falling.sum()]
    ).tolist()


class Server:
    """Answers llama.cpp's requests with the two distributions, by the prompt's only token."""

    def __init__(self):
        self.lengths = []

    def __call__(self, path, body, read):
        if path == "tokenize":
            return read({"tokens": [{"</s>": END, "a": LETTER}[body["content"]]]})
        self.lengths.append(body["logprobs"])
        ((drawn, _),) = body["logit_bias"]
        choices = []
        for index, (number,) in enumerate(body["prompt"]):
            p = distribution((MAIN, COUNTER)[number])
            likeliest = sorted(range(TOKENS), key=lambda token: -p[token])[: body["logprobs"]]
            top = [{"id": token, "logprob": math.log(p[token])} for token in likeliest]
            draw = {"id": drawn, "logprob": math.log(p[drawn]), "top_logprobs": top}
            choices.append({"index": index, "text": "", "logprobs": {"content": [draw]}})
        return read({"choices": choices})


@pytest.fixture
def answers():
    return Server()


@pytest.fixture
def server(answers):
    return LlamaCppServer(answers, {"default_generation_settings": {"n_ctx": 64}, "eos_token": "</s>"})


def without_end(head):
    p = distribution(head)
    return [value / (1 - p[END]) for value in p]


def test_the_share_of_an_end_goes_to_the_others_however_unlikely_the_end(server, answers):
    for number, head in enumerate((MAIN, COUNTER)):
        (listed,) = server.likeliest([(number,)], 5)
        expected = without_end(head)
        assert list(listed) == [1, 2, 3, 4, 5]
        assert listed == pytest.approx({token: math.log(expected[token]) for token in listed}, abs=1e-9)
    assert answers.lengths == [6, 6]  # the lists stay short, as all answers are kept


def test_certified_weights_are_those_of_the_whole_distributions(server):
    """D3 and D4 by plain arithmetic: lambda 100, the five largest weights, of them nine tenths."""
    main, counter = (without_end(head) for head in (MAIN, COUNTER))
    weights = [
        p * max(math.exp(100 * (p - q)), 0.01) if p < q else p for p, q in zip(main, counter, strict=True)
    ]
    weights[END] = 0.0
    best = sorted(range(TOKENS), key=lambda token: -weights[token])[:5]
    total, kept = sum(weights[token] for token in best), []
    while sum(weights[token] for token in kept) < 0.9 * total:
        kept.append(best[len(kept)])
    probabilities, tokens = certified(
        *split(server.likeliest([(0,), (1,)], 20)), Sampling(5, 0.9), 100.0, 0.01
    )
    assert tokens[0].tolist() == kept
    expected = [weights[token] / sum(weights[token] for token in kept) for token in kept]
    assert probabilities[0].tolist() == pytest.approx(expected, abs=1e-5)


def split(lists):
    return lists[0], lists[1:]


def test_a_server_without_tokens_is_told_what_the_other_ways_need():
    def refuses(path, body, read):
        raise ModelError(f"http://server/{path} refuses the request: 404")

    other_ways = r"give --steering reranked if yours returns log-probabilities of prompts .*, else --decay 0"
    with pytest.raises(ModelError, match=rf"404\n--steering certified needs .*; {other_ways}"):
        server_of(refuses, None, by_tokens=True)


class CharacterServer:
    """llama.cpp's requests on texts, by a tokenizer of characters with one special token, ``</s>``."""

    def __init__(self):
        self.paths = []

    def __call__(self, path, body, read):
        self.paths.append(path)
        if path == "apply-template":
            (message,) = body["messages"]
            return read({"prompt": f"[{message['content'].strip()}</s>]"})
        pieces = body["content"].split("</s>") if body["parse_special"] else [body["content"]]
        tokens = [END] if body["add_special"] else []
        for place, piece in enumerate(pieces):
            tokens += [END] * (place > 0) + list(map(ord, piece))
        return read({"tokens": tokens})


def test_only_the_template_and_the_begin_of_a_prompt_have_special_tokens():
    answers = CharacterServer()
    server = LlamaCppServer(answers, {"default_generation_settings": {"n_ctx": 64}, "eos_token": "</s>"})
    assert server.encode("a</s>") == [END, *map(ord, "a</s>")]
    assert server.encode_chat(" Hi </s>!\n", '</s>"') == [
        *map(ord, "[Hi </s>!"),
        END,
        *map(ord, ']</s>"'),
    ]
    answers.paths.clear()
    assert server.encode_chat(" Hi!\n", '"') == [*map(ord, "[Hi!"), END, *map(ord, ']"')]
    assert answers.paths == ["apply-template", "tokenize"]
