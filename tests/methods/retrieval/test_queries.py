"""Queries by a scripted model: it writes the first word of the text that its prompt shows, or of another."""

from dataclasses import replace

import pytest

from pairsmith.core.errors import ModelError
from pairsmith.data.chunk_rows import ChunkRow, QueryExample
from pairsmith.methods.retrieval.queries import EXAMPLE_TEXTS, QUERY_TEMPLATES, QueryWriter
from pairsmith.methods.retrieval.query_options import QueryOptions
from pairsmith.models.language.scripted import ScriptedModel

ALPHABET = 'abxy "'
OPTIONS = QueryOptions(
    queries=2, kinds=("question",), against=("neighbours",), tries=2, max_tokens=8, top_k=3
)


def following(prompt, text):
    """Two letters: the text's own, which is likely, and x, which its neighbours' prompts want as much."""
    if len(text) == 1:
        return {" ": 1.0}
    if len(text) >= 3:
        return {'"': 1.0}
    own = "a" if '"aaa' in prompt else "b"
    return {own: 0.4, "x": 0.6}


def writer(script=following, options=OPTIONS, examples=(), **kwargs):
    return QueryWriter(ScriptedModel(script, ALPHABET, **kwargs), options, examples)


def chunk(letter, *neighbours):
    return ChunkRow(f"of-{letter}", "", letter * 3, tuple(neighbour * 3 for neighbour in neighbours))


def test_what_the_neighbours_want_as_much_is_avoided():
    """By D3: x has 0.6 for both, so delta is 0; a has 0.4 for its text and 0 for the neighbour's.

    A neighbour that wants x with 0.9 makes delta -0.3, and the weight of x 0.6 * exp(-30), that is 0.6 * 0.01.
    """

    def script(prompt, text):
        probabilities = following(prompt, text)
        if "x" in probabilities and '"bbb' in prompt:
            return {"b": 0.1, "x": 0.9}
        return probabilities

    options = replace(OPTIONS, queries=1, tries=1)
    many = [ChunkRow(f"{number}", "", "aaa", ("bbb",)) for number in range(300)]
    steered, _ = writer(script, options).write(many)
    plain, _ = writer(script, replace(options, decay=0.0)).write(many)
    share = sum("x" in query.query for query in steered) / len(steered)
    usual = sum("x" in query.query for query in plain) / len(plain)
    # Two letters each: 1 - 0.4 ** 2 without, 1 - (0.4 / 0.406) ** 2 with; 0.03 is three standard errors.
    assert usual == pytest.approx(1 - 0.4**2, abs=0.07)
    assert share == pytest.approx(1 - (0.4 / 0.406) ** 2, abs=0.03)


def test_each_try_is_told_as_it_ends_and_those_that_are_not_needed_too():
    told = []
    options = replace(OPTIONS, tries=3)
    written, rejects = writer(options=options).write([chunk("a", "b"), chunk("b", "a")], told.append)
    assert sum(told) == 2 * options.queries * options.tries
    assert told[:4] == [1, 1, 1, 1]  # the first try of each, before any is judged
    assert len(written) + len(rejects) <= len(told)


def test_repeats_are_tried_again_and_those_that_are_left_are_rejected():
    def one(prompt, text):
        return {"a": 1.0} if len(text) in (0, 2) else {" ": 1.0} if len(text) == 1 else {'"': 1.0}

    written, rejects = writer(one).write([chunk("a")])
    assert [query.query for query in written] == ["a a"]
    assert [reject.filter for reject in rejects] == ["duplicate", "duplicate"]
    assert [reject.id for reject in rejects] == ["of-a-1-try-0", "of-a-1-try-1"]


def test_further_tries_start_from_the_prompts_of_the_first():
    sessions = []

    class Watched(ScriptedModel):
        def session(self, *limits):
            sessions.append(super().session(*limits))
            return sessions[-1]

    def short(_, text):
        return {'"': 1.0} if text else {"a": 1.0}

    options = replace(OPTIONS, queries=1, tries=3)
    written, rejects = QueryWriter(Watched(short, ALPHABET), options).write(
        [chunk("a", "b"), chunk("b", "y")]
    )
    assert not written
    assert [reject.id for reject in rejects] == [
        f"of-{letter}-0-try-{number}" for number in range(3) for letter in "ab"
    ]
    computed = [prompt for session in sessions for prompt in session.prefilled]
    assert len(computed) == len(set(computed)) == 3  # of the texts aaa, bbb and yyy


@pytest.mark.parametrize(
    ("script", "fault"),
    [
        ({0: {"a": 1.0}}, "no end"),
        ({0: {"a": 1.0}, 1: {'"': 1.0}}, "too short"),
    ],
)
def test_what_is_no_query_is_rejected(script, fault):
    def following(_, text):
        return script.get(len(text), script[max(script)])

    written, rejects = writer(following).write([chunk("b")])
    assert not written
    assert {reject.filter for reject in rejects} == {fault}


@pytest.mark.parametrize(
    ("query", "text", "faults"),
    [
        ("東京駅", "別の話", []),
        ("駅", "別の話", ["too short"]),
        ("東京駅は東京駅は東京駅は東京駅は", "駅東京駅は東京駅は東京駅は東京駅は", ["copy"]),
    ],
)
def test_words_of_a_script_without_spaces(query, text, faults):
    def following(_, done):
        return {query[len(done)]: 1.0} if len(done) < len(query) else {'"': 1.0}

    options = replace(OPTIONS, queries=1, tries=1, max_tokens=20)
    model = ScriptedModel(following, 'abxy "東京駅は別の話')
    written, rejects = QueryWriter(model, options, ()).write([ChunkRow("1", "", text)])
    assert [reject.filter for reject in rejects] == faults
    assert [row.query for row in written] == ([] if faults else [query])


def test_a_copy_of_the_text_is_rejected():
    text = "a b a b a b a b"

    def copying(_, done):
        return {text[len(done)]: 1.0} if len(done) < len(text) else {'"': 1.0}

    options = replace(OPTIONS, queries=1, tries=1, max_tokens=20)
    _, rejects = writer(copying, options).write([ChunkRow("1", "", f"y {text} y")])
    assert [reject.filter for reject in rejects] == ["copy"]
    written, _ = writer(copying, options).write([ChunkRow("1", "", "another text")])
    assert [query.query for query in written] == [text]


def test_a_chunks_queries_do_not_depend_on_the_others():
    chunks = [chunk("a", "b"), chunk("b", "a"), ChunkRow("other", "", "bbb")]
    together, _ = writer().write(chunks)
    alone = [query for single in chunks for query in writer().write([single])[0]]
    assert together == alone
    assert len(together) > 3


def test_kinds_take_turns_and_rows_lead_back_to_the_chunk():
    options = replace(OPTIONS, queries=3, kinds=("question", "keywords"), tries=9)
    written, _ = writer(options=options).write([ChunkRow("7", "a title", "aaa")])
    assert [query.kind for query in written] == ["question", "keywords", "question"]
    assert [query.id for query in written] == ["7-0", "7-1", "7-2"]
    few = replace(options, queries=1)
    chunks = [ChunkRow(f"{number}", "a title", "aaa") for number in range(7, 27)]
    kinds = [query.kind for query in writer(options=few).write(chunks)[0]]
    assert len(kinds) == len(chunks)
    assert 5 <= kinds.count("question") <= 15  # the others ask for keywords
    assert written[0].columns() == {
        "id": "7-0",
        "query": written[0].query,
        "positive": "aaa",
        "title": "a title",
        "chunk": "7",
        "kind": written[0].kind,
    }


def test_examples_are_shown_with_their_texts_or_alone():
    seen = set()

    def script(prompt, text):
        seen.add(prompt)
        return following(prompt, text)

    examples = [QueryExample('who "a"', "the\ntext"), QueryExample("alone", "")]
    writer(script, examples=examples).write([chunk("a")])
    shown = min(seen)
    assert shown.startswith(
        'Queries are such as "alone".\nText: "the text"\nTask: Write a question that the text answers.\n'
        "Question: \"who 'a'\"\n\n"
    )
    assert shown.endswith('Text: "aaa"\nTask: Write a question that the text answers.\nQuestion: "')


def test_without_examples_of_the_user_invented_ones_of_the_kind_are_shown():
    seen = set()

    def script(prompt, text):
        seen.add(prompt)
        return following(prompt, text)

    writer(script, replace(OPTIONS, kinds=("statement",))).write([chunk("a")])
    shown = min(seen)
    assert shown.count("Task: Write a short claim that the text supports.") == 3
    assert all(f'Claim: "{example}"' in shown for example in QUERY_TEMPLATES["statement"].examples)
    assert shown.index(EXAMPLE_TEXTS[0]) < shown.index(EXAMPLE_TEXTS[1]) < shown.index('"aaa"')


@pytest.mark.parametrize(
    ("text", "query", "kept"),
    [
        ("a park", "heat and black leaves", False),  # "black" and "leaves" are of an invented text
        ("black leaves fall in a park", "black leaves in a park", True),
        ("a park", "the black park", True),  # one such word may be chance
    ],
)
def test_a_query_about_an_example_is_rejected(text, query, kept):
    def script(_, done):
        return {query[len(done)]: 1.0} if len(done) < len(query) else {'"': 1.0}

    options = replace(OPTIONS, queries=1, tries=1, max_tokens=40)
    model = ScriptedModel(script, 'abcdefghijklmnopqrstuvwxyz "')
    written, rejects = QueryWriter(model, options).write([ChunkRow("1", "", text)])
    assert [row.query for row in written] == ([query] if kept else [])
    assert [reject.filter for reject in rejects] == ([] if kept else ["example"])


def test_long_texts_are_cut_to_what_the_model_reads():
    lengths = set()

    def script(prompt, text):
        lengths.add(len(prompt))
        return following(prompt, text)

    written, _ = writer(script, context=120).write([ChunkRow("1", "", "a" * 500)])
    assert written
    assert max(lengths) <= 120 - OPTIONS.max_tokens
    with pytest.raises(ModelError, match="give fewer or shorter examples"):
        writer(context=120, examples=[QueryExample("q", "b" * 200)])
