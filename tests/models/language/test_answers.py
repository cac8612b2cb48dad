"""A server's answers: an invalid one is neither used nor kept, but asked for again, and then named."""

import sqlite3
from contextlib import closing

import pytest

from pairsmith.core.errors import ModelError, RemoteError

pytestmark = pytest.mark.slow

PROMPTS = [tuple(b"A man is"), tuple(b"Two dogs run")]


def scored(model):
    return model.server.log_probabilities(PROMPTS, " here.")


def drawn(model):
    return model.continued(PROMPTS[0], 1, 5, 0.9, 4, '"')


def listed(model):
    return model.server.likeliest([(5, 6), (7, 8)], 5)


WAYS = {scored: "reranked", drawn: "plain", listed: "certified"}
FAULTS = [
    *[(request, "no choices", "no choices") for request in WAYS],
    *[(request, "no index", "no choice with index 0") for request in WAYS],
    *[(request, "null text", "no text") for request in WAYS],
    (drawn, "no finish", "no finish_reason"),
    (scored, "no logprobs", "no log-probabilities"),
    (scored, "no echo", r"no log-probabilities of the prompt \(it ignores echo\)"),
    (scored, "no offsets", r"no positions of tokens \(text_offset\)"),
    (scored, "short", r"no log-probability for each of \d+ tokens but \d+"),
    (scored, "not finite", "no number as a log-probability but NaN"),
    (listed, "no logprobs", "no log-probabilities"),
    (listed, "no list", r"no list of likeliest tokens \(top_logprobs\)"),
    (listed, "names", r"no numbers of tokens \(return_tokens_as_token_ids\)"),
]


@pytest.fixture
def asking(server, connect, tmp_path):
    """Connects to the server with a file that keeps answers; ``server.seen`` begins anew."""

    def asked(request):
        model = connect(way=WAYS[request], cache=str(tmp_path / "answers.sqlite"))
        server.seen.clear()
        return model

    return asked


@pytest.mark.parametrize(("request_for", "fault", "named"), FAULTS)
def test_an_invalid_answer_is_asked_for_again_and_then_given_up(
    server, asking, tmp_path, request_for, fault, named
):
    model = asking(request_for)
    expected = request_for(model)
    with closing(sqlite3.connect(tmp_path / "answers.sqlite")) as answers, answers:
        answers.execute("DELETE FROM answers")
    server.faults.extend([fault] * 8)
    with pytest.raises(
        RemoteError, match=rf"/completions: no usable answer after 8 tries \({named}: "
    ) as caught:
        request_for(model)
    assert "\n" not in str(caught.value)
    server.faults.extend([fault, "", fault])  # no invalid answer was kept
    assert request_for(model) == expected
    assert request_for(model) == expected  # the valid one was
    assert list(server.faults) == [fault]


@pytest.mark.parametrize(
    "kept", ["None", "[]", '{"choices": [{"index": 0, "text": null, "logprobs": null}]}']
)
@pytest.mark.parametrize("request_for", WAYS)
def test_an_invalid_answer_that_an_older_version_kept_is_asked_for_again(
    server, asking, tmp_path, request_for, kept
):
    expected = request_for(asking(request_for))
    with closing(sqlite3.connect(tmp_path / "answers.sqlite")) as answers, answers:
        answers.execute("UPDATE answers SET answer = ?", (kept,))
    assert request_for(asking(request_for)) == expected
    asked_again = server.seen.copy()
    assert "/v1/completions" in asked_again
    assert request_for(asking(request_for)) == expected
    assert not server.seen


@pytest.mark.parametrize(
    ("request_for", "fault", "tries", "lacking"),
    [
        (scored, "no logprobs", 3, "no log-probabilities"),
        (scored, "no offsets", 3, "no positions of tokens (text_offset)"),
        (scored, "no echo", 1, "no log-probabilities of the prompt (it ignores echo)"),
        (listed, "no logprobs", 3, "no log-probabilities"),
        (listed, "names", 3, "no numbers of tokens (return_tokens_as_token_ids)"),
    ],
)
def test_what_a_server_never_gives_is_named_soon(server, asking, request_for, fault, tries, lacking):
    model = asking(request_for)
    server.faults.extend([fault] * 8)
    with pytest.raises(ModelError) as caught:
        request_for(model)
    assert len(server.faults) == 8 - tries
    assert str(caught.value) == (
        f"{server.name.partition('#')[0]}: the server gives {lacking}, which --steering {WAYS[request_for]} "
        "needs; use vLLM or llama.cpp's server, or give --decay 0, which samples texts without steering"
    )


def test_half_a_character_becomes_one_that_is_rejected(server, asking):
    model = asking(drawn)
    server.faults.append("half a character")
    assert drawn(model)[0] == "a \ufffd b"
