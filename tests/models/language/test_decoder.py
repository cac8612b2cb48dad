from collections import Counter
from functools import cache, partial

import pytest
import torch
from scipy import stats

from pairsmith.models.language.combine import self_debias
from pairsmith.models.language.decoder import Group, MultiPromptDecoder
from pairsmith.models.language.sampling import Sampling
from pairsmith.models.language.scripted import END_CHARACTER, ScriptedModel
from pairsmith.runs.seeds import stream_key

ALPHABET = 'abcd"'
DECAY = partial(self_debias, decay=5.0, floor=0.01)
# What each prompt makes likely as the first token, whatever its length, and then as the second.
TABLES = {
    "m": {"a": 0.4, "b": 0.3, "c": 0.2, "d": 0.05, '"': 0.05},
    "u": {"a": 0.6, "b": 0.1, "c": 0.1, "d": 0.1, '"': 0.1},
    "v": {"a": 0.1, "b": 0.5, "c": 0.1, "d": 0.1, '"': 0.2},
}


def following(prompt, text):
    table = TABLES[prompt[-1]]
    return table if len(text) % 2 == 0 else dict(zip(table, [0.1, 0.2, 0.3, 0.2, 0.2], strict=True))


@pytest.fixture
def model():
    model = ScriptedModel(following, ALPHABET + "muvx")
    model.logits = cache(model.logits)  # the script is pure, and 50,000 draws ask the same few questions
    return model


def run(model, groups, *, rule=DECAY, sampling=None, rows=64, seed=3):
    decoder = MultiPromptDecoder(model, rule, sampling or Sampling(0, 1.0, 2), seed, prompts_of(groups), rows)
    for next_group in groups:
        decoder.add(Group(next_group.main, next_group.counters, next_group.stream))
    return {done.stream: done for done in decoder.finished()}


def drawn(done):
    return {stream: (ended.text, ended.ending, ended.tokens) for stream, ended in done.items()}


def prompts_of(groups):
    return [prompt for group in groups for prompt in group.prompts]


def group(model, name, main="m", counters=()):
    return Group(tuple(model.encode(main)), tuple(tuple(model.encode(c)) for c in counters), stream_key(name))


def expected_first_tokens(counters):
    """D3 by plain arithmetic, token by token."""
    weights = {}
    for token, p in TABLES["m"].items():
        delta = p - max((TABLES[c][token] for c in counters), default=0.0)
        weights[token] = p * max(2.718281828459045 ** (5.0 * delta), 0.01) if delta < 0 else p
    total = sum(weights.values())
    return {token: weight / total for token, weight in weights.items()}


@pytest.mark.parametrize(
    "counters",
    [pytest.param((), marks=pytest.mark.long), pytest.param(("u",), marks=pytest.mark.long), ("u", "v")],
)
def test_draws_follow_the_exact_distribution(model, counters):
    # Prompts of unequal lengths, groups that stop early (a quarter of them at the first token or the
    # second), and a budget that makes groups wait: none of it may change what is drawn.
    draws = 50_000
    groups = [
        group(model, f"{counters}-{i}", "x" * (i % 3) + "m", ["x" * (i % 2) + c for c in counters])
        for i in range(draws)
    ]
    done = run(model, groups, rows=2048)
    assert len(done) == draws
    counted = Counter(model.decode(c.tokens[:1]) for c in done.values())
    expected = expected_first_tokens(counters)
    observed = [counted[token] for token in expected]
    assert sum(observed) == draws
    assert stats.chisquare(observed, [draws * p for p in expected.values()]).pvalue > 1e-3


def test_truncated_draws_follow_the_exact_distribution(model):
    draws = 50_000
    sampling = Sampling(top_k=3, top_p=0.7, max_tokens=1)
    done = run(model, [group(model, str(i), "m", ["v"]) for i in range(draws)], sampling=sampling, rows=4096)
    weights = sorted(expected_first_tokens(("v",)).items(), key=lambda item: -item[1])[:3]
    total = sum(w for _, w in weights)
    kept, before = {}, 0.0
    for token, weight in weights:
        if before < 0.7:
            kept[token] = weight / total
        before += weight / total
    counted = Counter(model.decode(c.tokens) for c in done.values())
    assert set(counted) == set(kept)
    norm = sum(kept.values())
    assert (
        stats.chisquare([counted[t] for t in kept], [draws * p / norm for p in kept.values()]).pvalue > 1e-3
    )


def test_a_group_ends_at_the_stop_string_the_limit_or_the_models_end():
    def script(prompt, text):
        wanted = {"s": 'ab"', "l": "aaaaa", "e": "b" + END_CHARACTER, "n": '"'}[prompt]
        return {wanted[len(text)]: 1.0}

    model = ScriptedModel(script, ALPHABET + "slen")
    done = run(model, [group(model, p, p) for p in "slen"], sampling=Sampling(5, 0.9, 4, may_end=True))
    got = {model.decode(c.main): (c.text, c.ending, len(c.tokens)) for c in done.values()}
    assert got == {
        "s": ("ab", "stop", 3),
        "l": ("aaaa", "length", 4),
        "e": ("b", "end", 2),
        "n": ("", "stop", 1),
    }


def test_a_model_that_may_not_end_goes_on_with_its_next_likeliest_token():
    def script(prompt, text):
        return (
            {END_CHARACTER: 0.98, "a": 0.015, "b": 0.005} if len(text) < 3 else {END_CHARACTER: 0.9, '"': 0.1}
        )

    model = ScriptedModel(script, ALPHABET + "mu")
    groups = [group(model, i, "m", ["u"] * (i % 3)) for i in range(2000)]
    for top_k, top_p in ((1, 0.9), (5, 0.9), (0, 1.0)):
        done = run(model, groups, rows=512, sampling=Sampling(top_k, top_p, 4))
        assert {(ended.ending, len(ended.tokens)) for ended in done.values()} == {("stop", 4)}
        shares = Counter("".join(ended.text for ended in done.values()))
        # Of what is left without the end: three quarters and a quarter, and top-p keeps both.
        expected = {"a": 1.0} if top_k == 1 else {"a": 0.75, "b": 0.25}
        assert {c: count / 6000 for c, count in shares.items()} == pytest.approx(expected, abs=0.02)
    # As a decoder whose model knows no end at all draws.
    bare = ScriptedModel(
        lambda *arguments: {c: p for c, p in script(*arguments).items() if c != END_CHARACTER},
        ALPHABET + "mu",
    )
    assert drawn(run(bare, groups, sampling=Sampling(0, 1.0, 4, may_end=True))) == drawn(done)
    done = run(model, groups[:50], sampling=Sampling(1, 0.9, 4, may_end=True))
    assert {(ended.text, ended.ending) for ended in done.values()} == {("", "end")}


def test_a_model_whose_tokenizer_has_special_tokens_that_it_gives_no_logits_for(model):
    groups = [group(model, str(i), "m", ["v"]) for i in range(20)]
    expected = drawn(run(model, groups))
    model.end_tokens |= {model.vocab_size, model.vocab_size + 7}
    assert drawn(run(model, groups)) == expected


def test_a_longer_stop_string_ends_a_text_only_when_it_is_whole():
    def script(prompt, text):
        return {'a"b""c'[len(text)]: 1.0}

    model = ScriptedModel(script, ALPHABET)
    (done,) = run(model, [group(model, "g", "a")], sampling=Sampling(5, 0.9, 6, stop='""')).values()
    assert (done.text, done.ending) == ('a"b', "stop")


def test_a_prompt_is_computed_once_for_all_groups_that_share_it(model):
    groups = [group(model, i, "m", ["u"] if i % 2 else ["v", "u"]) for i in range(10)]
    decoder = MultiPromptDecoder(model, DECAY, Sampling(0, 1.0, 2), 0, prompts_of(groups), 64)
    for next_group in groups:
        decoder.add(next_group)
    list(decoder.finished())
    assert sorted(decoder._session.prefilled) == ["m", "u", "v"]


def test_prompts_that_no_group_wants_any_more_are_forgotten(model, monkeypatch):
    monkeypatch.setattr("pairsmith.models.language.decoder.AHEAD_TOKENS", 1)
    groups = [group(model, i, "x" * i + "m") for i in range(20)]
    decoder = MultiPromptDecoder(model, DECAY, Sampling(0, 1.0, 2), 0, prompts_of(groups), 2)
    for next_group in groups:
        decoder.add(next_group)
    held = [len(decoder._session.held) for _ in decoder.finished()]
    assert max(held) <= 4
    assert len(held) == 20


def test_a_next_try_goes_first_and_its_prompts_are_not_computed_again(model, monkeypatch):
    monkeypatch.setattr("pairsmith.models.language.decoder.AHEAD_TOKENS", 1)
    groups = [group(model, i, "x" * i + "m") for i in range(6)]
    decoder = MultiPromptDecoder(model, DECAY, Sampling(0, 1.0, 2), 0, prompts_of(groups), 1)
    for next_group in groups:
        decoder.add(next_group)
    seen = []
    for done in decoder.finished():
        seen.append(len(done.main))
        if len(seen) == 1:
            decoder.add(Group(groups[0].main, (), stream_key("again")), soon=True)
    assert seen == [1, 1, 2, 3, 4, 5, 6]
    assert len(decoder._session.prefilled) == 6


def test_a_group_is_decoded_once(model):
    single = group(model, "g")
    decoder = MultiPromptDecoder(model, DECAY, Sampling(0, 1.0, 2), 0, single.prompts, 8)
    decoder.add(single)
    assert list(decoder.finished()) == [single]
    with pytest.raises(ValueError, match="decoded once"):
        decoder.add(single)


def test_groups_may_be_added_while_others_finish(model):
    groups = [group(model, i) for i in range(5)]
    decoder = MultiPromptDecoder(model, DECAY, Sampling(0, 1.0, 2), 0, prompts_of(groups), 8)
    decoder.add(groups[0])
    seen = []
    for done in decoder.finished():
        seen.append(done.stream)
        if len(seen) < 5:
            decoder.add(groups[len(seen)])
    assert seen == [stream_key(i) for i in range(5)]


@pytest.mark.parametrize(
    ("main", "counters", "text"),
    [
        ("m" * 99, (), "do not fit the model's 100"),
        ("", (), "empty"),
        ("m", ("u",) * 8, "needs more than 8 rows"),
        ("xm", (), "was not announced to the decoder"),
    ],
)
def test_a_group_that_cannot_be_decoded_is_refused(main, counters, text):
    model = ScriptedModel(following, ALPHABET + "muvx", context=100)
    prompts = [tuple(model.encode(prompt)) for prompt in ("m", "u", "m" * 99, "")]
    decoder = MultiPromptDecoder(model, DECAY, Sampling(0, 1.0, 2), 0, prompts, 8)
    with pytest.raises(ValueError, match=text):
        decoder.add(group(model, "g", main, counters))


def test_the_watcher_sees_both_distributions(model):
    draws = []
    watched = group(model, "g", "m", ["u"])
    decoder = MultiPromptDecoder(model, DECAY, Sampling(0, 1.0, 1), 0, watched.prompts, 8, draws.append)
    decoder.add(watched)
    list(decoder.finished())
    (step,) = draws
    expected = expected_first_tokens(("u",))
    for token, p in TABLES["m"].items():
        number = model.encode(token)[0]
        assert float(step.p_main[number]) == pytest.approx(p, abs=1e-6)
        assert float(step.p_steered[number]) == pytest.approx(expected[token], abs=1e-6)
    assert torch.isclose(step.p_steered.sum(), torch.tensor(1.0))
