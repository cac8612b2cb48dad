"""Models behind a server: equal to the model itself, and no row lost or made twice whatever goes wrong."""

from functools import partial

import pytest
import requests

from pairsmith.core.errors import ModelError, RemoteError
from pairsmith.data.tasks import Decoding, load_task
from pairsmith.methods.dino.method import make_decoder, write
from pairsmith.methods.dino.requests import pair_requests
from pairsmith.models.language.combine import self_debias
from pairsmith.models.language.decoder import Group, MultiPromptDecoder
from pairsmith.models.language.remote import RemoteModel
from pairsmith.models.language.remote_decoder import RemoteDecoder
from pairsmith.models.language.sampling import Sampling
from pairsmith.runs.seeds import stream_key

pytestmark = pytest.mark.slow

SAMPLING = Sampling(top_k=5, top_p=0.9, max_tokens=12)
SENTENCES = ["A man is playing a guitar.", "Two dogs run on the beach."]


def test_a_server_takes_no_rule_of_ones_own(connect):
    model = connect(way="plain")
    with pytest.raises(ModelError, match="a server steers by self-debiasing; leave rule out"):
        make_decoder(model, Decoding(), 1, (), None, rule=lambda main, counters: main)
    with pytest.raises(ModelError, match="a server steers by self-debiasing; leave rule out"):
        make_decoder(model, Decoding(rule="guidance"), 1, (), None)


def test_a_model_behind_a_server_is_shown_in_one_line(connect, server):
    model = connect(way="plain")
    assert repr(model) == f"RemoteModel({server.name!r}, way='plain')"
    model.name = server.name.replace("//", "//user:secret@")
    assert "secret" not in repr(model)


def test_the_token_of_a_space_is_no_end_where_a_texts_first_space_is_dropped(connect):
    model = connect(way="plain")
    pieces = {
        0: "</s>",
        1: "\u2581",
        2: "\u2581a",
        3: "",
    }  # as SentencePiece's, with a token that is never shown
    model.decode = lambda tokens: "".join(map(pieces.get, tokens)).replace("\u2581", " ").removeprefix(" ")
    assert [model.text_of(token) for token in pieces] == ["</s>", "", "a", ""]
    assert [model.ends(token) for token in pieces] == [True, False, False, True]


def groups(model, texts=1, sentences=SENTENCES):
    return [
        Group(
            tuple(model.encode(request.prompt)),
            tuple(tuple(model.encode(counter)) for counter in request.counter_prompts),
            stream_key(request.id, number),
        )
        for request in pair_requests(load_task("sts"), sentences, 1)
        for number in range(texts)
    ]


def remotely(model, texts=1, sentences=SENTENCES):
    decoder = RemoteDecoder(model, SAMPLING, 5, decay=100.0, floor=0.01)
    for group in groups(model, texts, sentences):
        decoder.add(group)
    return {group.stream: group for group in decoder.finished()}


def exactly(local):
    all_groups = groups(local)
    prompts = [prompt for group in all_groups for prompt in group.prompts]
    decoder = MultiPromptDecoder(local, partial(self_debias, decay=100.0), SAMPLING, 5, prompts)
    for group in all_groups:
        decoder.add(group)
    return {done.stream: done for done in decoder.finished()}


def test_certified_rows_equal_those_of_the_model_itself(bundled, server, connect):
    done = remotely(connect())
    exact = exactly(bundled)
    assert {k: (c.tokens, c.text, c.ending) for k, c in done.items()} == {
        k: (c.tokens, c.text, c.ending) for k, c in exact.items()
    }


@pytest.mark.parametrize("refuses", [True, False])
def test_lists_that_are_too_short_cost_rows_but_never_make_wrong_ones(bundled, server, connect, refuses):
    server.most, server.refuses_longer = 6, refuses
    done = remotely(connect(listed=6))
    exact = exactly(bundled)
    certified = {stream for stream, group in done.items() if group.ending != "uncertified"}
    assert len(done) == len(exact)
    assert 0 < len(certified) < len(done)
    assert all(done[stream].tokens == exact[stream].tokens for stream in certified)


def test_a_server_that_gives_fewer_than_asked_is_asked_for_no_more(server, connect):
    server.most = 6
    remotely(connect(listed=20))
    posts = server.seen.count("/v1/completions")
    done = remotely(connect(listed=20))
    draws = sum(len(group.tokens) + (group.ending == "uncertified") for group in done.values())
    assert server.seen.count("/v1/completions") - posts == draws


@pytest.mark.parametrize("fault", ["429", "500", "503", "timeout", "cut", "malformed"])
@pytest.mark.parametrize("way", ["plain", pytest.param("certified", marks=pytest.mark.long), "reranked"])
def test_faults_change_nothing(server, connect, monkeypatch, fault, way):
    post = requests.Session.post

    def soon_given_up(self, url, timeout, **more):
        """Only what may meet a fault is given up soon, as a busy machine takes seconds for any answer."""
        return post(self, url, timeout=1.0 if "timeout" in server.faults else timeout, **more)

    monkeypatch.setattr(requests.Session, "post", soon_given_up)
    expected = remotely(connect(way=way), sentences=SENTENCES[:1])
    server.faults.extend([fault, "", fault, fault])
    done = remotely(connect(way=way), sentences=SENTENCES[:1])
    assert not server.faults
    assert {k: (c.text, c.ending) for k, c in done.items()} == {
        k: (c.text, c.ending) for k, c in expected.items()
    }


def test_what_was_answered_is_never_asked_again(server, connect, tmp_path):
    expected = remotely(connect(cache=str(tmp_path / "answers.sqlite")))
    requests = len(server.seen)
    done = remotely(connect(cache=str(tmp_path / "answers.sqlite")))
    assert len(server.seen) == requests
    assert done.keys() == expected.keys()


def test_a_server_that_stays_broken_ends_the_run_and_is_named(server, connect, tmp_path):
    model = connect(way="plain")
    server.faults.extend(["500"] * 1000)
    with pytest.raises(RemoteError, match=r"127\.0\.0\.1.*no usable answer after 8 tries \(500"):
        remotely(model)


def test_a_model_can_be_used_again_after_an_error(server, connect):
    model = connect(way="plain")
    server.faults.append("400")
    with pytest.raises(ModelError, match="refuses the request: 400"):
        remotely(model)
    assert all(group.text or group.tokens for group in remotely(model).values())


def test_a_refused_request_is_the_users_to_mend(server, connect):
    model = connect(way="plain")
    server.faults.append("404")
    with pytest.raises(ModelError, match="refuses the request: 404"):
        remotely(model)


@pytest.mark.parametrize("refusal", ["400 maximum context length is 64 tokens", "413"])
def test_a_prompt_that_the_server_finds_too_long_is_rejected_without_further_tries(
    server, connect, monkeypatch, refusal
):
    answer = server.RequestHandlerClass._do

    def refusing(handler, body):
        code, _, said = refusal.partition(" ")
        return (int(code), {"error": said}) if "long " * 9 in str(body["prompt"]) else answer(handler, body)

    monkeypatch.setattr(server.RequestHandlerClass, "_do", refusing)
    task = load_task("sts")
    decoding = task.decoding.model_copy(update={"decay": 0.0, "tries": 4})
    model = connect(way="plain")
    requests = pair_requests(task, ["long " * 20, *SENTENCES], 2)
    written = write(task, model, requests, decoding, 1, None)
    too_long = [reject for reject in written.rejects if reject.filter == "too long"]
    assert {reject.reason for reject in too_long} == {
        "the server says that the prompt exceeds the model's context"
    }
    assert len(too_long) == len(task.label_names)  # one for each prompt, of which two texts are wanted
    assert {row.sentence1 for row in written.rows} == set(SENTENCES)


def test_a_giant_prompt_is_not_sent_to_a_server_that_does_not_tell_its_context(server, connect, monkeypatch):
    monkeypatch.setattr("pairsmith.methods.dino.requests.MOST_SENT", 400)
    task = load_task("sts")
    decoding = task.decoding.model_copy(update={"decay": 0.0, "tries": 2})
    model = connect(way="plain")
    written = write(task, model, pair_requests(task, ["long " * 100, *SENTENCES[:1]], 1), decoding, 1, None)
    too_long = [reject for reject in written.rejects if reject.filter == "too long"]
    assert [reject.reason for reject in too_long] == len(task.label_names) * [
        "a prompt exceeds 10,000,000 characters, the most that is sent to a server that does not tell its context"
    ]
    assert {row.sentence1 for row in written.rows} == {SENTENCES[0]}


def test_if_all_prompts_are_too_long_the_run_ends_with_the_servers_words(server, connect, monkeypatch):
    task = load_task("sts")
    decoding = task.decoding.model_copy(update={"decay": 0.0, "tries": 2})
    requests = list(pair_requests(task, SENTENCES[:1], 1))
    model, refused = connect(way="plain"), (400, {"error": "max_tokens exceeds the context length of 16"})
    monkeypatch.setattr(server.RequestHandlerClass, "_do", lambda *_: refused)
    with pytest.raises(ModelError, match="refuses the request: 400 .*context length of 16"):
        write(task, model, requests, decoding, 1, None)


def test_a_text_that_is_too_long_to_be_scored_is_one_failed_try(server, connect, monkeypatch):
    answer = server.RequestHandlerClass._do

    def refusing(handler, body):
        scoring = (
            body.get("echo") or body.get("prompt_logprobs") is not None or isinstance(body["prompt"], list)
        )
        return (400, {"error": "maximum context length"}) if scoring else answer(handler, body)

    model = connect(way="reranked")
    monkeypatch.setattr(server.RequestHandlerClass, "_do", refusing)
    done = remotely(model, texts=3)
    assert "too long" not in {group.ending for group in done.values()}
    assert {group.ending for group in done.values() if group.counters} <= {"length", "end"}


@pytest.mark.parametrize("name", ["http://127.0.0.1:1/v1", "http://#x"])
def test_a_url_without_a_model_is_refused(name):
    with pytest.raises(ModelError, match="HOST:PORT/v1#NAME"):
        RemoteModel(name, way="plain")


@pytest.mark.long
def test_reranked_texts_are_likelier_under_their_own_prompt(bundled, server, connect):
    model = connect(way="reranked")
    done = remotely(model, texts=6)
    judged = [group for group in done.values() if group.counters and group.ending in ("stop", "outranked")]
    assert {group.ending for group in judged} == {"stop", "outranked"}
    for group in judged:
        own, *others = model.server.log_probabilities(group.prompts, group.text + '"')
        assert (own > max(others)) == (group.ending == "stop")
