"""Mining on objects, against the step that does the same with folders, and against brute force."""

import numpy as np
import pytest
from tests.conftest import make_bert
from tests.fixed_vectors import encode_fixed_vectors

from pairsmith.core.errors import InputError, ModelError, SettingsError
from pairsmith.core.progress import Silent
from pairsmith.data.text import entities_of_texts
from pairsmith.methods.mining.candidates import unpairable
from pairsmith.methods.mining.method import mine_pairs
from pairsmith.methods.mining.units import answers_in_passages
from pairsmith.models.sentence_encoder import load_sentence_encoder
from pairsmith.runs import Run
from pairsmith.steps.mine.route import mine
from pairsmith.steps.mine.settings import MineSettings

INPUTS = ["a cat sat down", "rain fell all day", "she sold her car", "the bus was late", "a cat sat down"]
OUTPUTS = ["the car was sold", "the cat is sitting", "it rained", "a late bus", "soup is hot", "he runs"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def encoder(folder):
    return load_sentence_encoder(str(folder), device="cpu")


@pytest.mark.parametrize("retrieval", ["max", "forward", "backward", "intersection"])
def test_the_method_finds_what_the_step_writes(retrieval, encoder, folder, tmp_path):
    (tmp_path / "in.txt").write_text("\n".join(INPUTS))
    (tmp_path / "out.txt").write_text("\n".join(OUTPUTS))
    settings = MineSettings(
        inputs=[str(tmp_path / "in.txt")],
        outputs=[str(tmp_path / "out.txt")],
        encoder=str(folder),
        k=3,
        retrieval=retrieval,
        dtype="float32",
        device="cpu",
    )
    rows = mine(settings, Run(tmp_path / "mined", Silent())).table().to_pylist()
    pairs = mine_pairs(INPUTS, OUTPUTS, encoder, k=3, retrieval=retrieval)
    assert [(pair.id, pair.input, pair.output) for pair in pairs] == [
        (row["id"], row["input"], row["output"]) for row in rows
    ]
    assert [pair.margin for pair in pairs] == pytest.approx([row["margin"] for row in rows], abs=1e-5)


def test_answers_are_mined_in_their_passages_as_the_step_does(encoder, folder, tmp_path):
    questions = ["who sold a car in Rome", "where was the bus late", "when did it rain on Ann"]
    passages = [
        "Ann sold her car in Rome. It was late.",
        "The bus to Paris was late in 1999.",
        "In 2001 it rained.",
    ]
    (tmp_path / "in.txt").write_text("\n".join(questions))
    (tmp_path / "out.txt").write_text("\n".join(passages))
    settings = MineSettings(
        kind="reading",
        inputs=[str(tmp_path / "in.txt")],
        outputs=[str(tmp_path / "out.txt")],
        encoder=str(folder),
        k=2,
        retrieval="candidates",
        window=6,
        dtype="float32",
        device="cpu",
    )
    rows = mine(settings, Run(tmp_path / "mined", Silent())).table().to_pylist()
    answers = [
        answer
        for answers in answers_in_passages(passages, entities_of_texts("rule"), window=6)
        for answer in answers
    ]
    pairs = mine_pairs(questions, answers, encoder, k=2, retrieval="candidates")
    assert len(rows) > 6
    assert not any(
        pair.answers["text"][0] == name and name in pair.input for pair in pairs for name in ("Ann", "Rome")
    )
    assert [(pair.id, pair.output, pair.context, dict(pair.answers)) for pair in pairs] == [
        (row["id"], row["output"], row["context"], row["answers"]) for row in rows
    ]


def test_a_threshold_and_a_number_leave_the_largest_margins(encoder):
    every = mine_pairs(INPUTS, OUTPUTS, encoder, k=3)
    assert mine_pairs(INPUTS, OUTPUTS, encoder, k=3, best=2) == every[:2]
    limit = every[1].margin
    assert mine_pairs(INPUTS, OUTPUTS, encoder, k=3, threshold=limit) == every[:2]


def test_a_text_that_stands_in_the_other_is_no_pair(encoder):
    assert (
        unpairable("he said it rained", "it rained", None) == "the output occurs word for word in the input"
    )
    assert (
        unpairable("it rained", "he said it rained", None) == "the input occurs word for word in the output"
    )
    assert unpairable("it rained", "it rains", None) == ""
    assert mine_pairs(["it rained"], ["it rained again"], encoder) == []
    (pair,) = mine_pairs(["it rained"], ["it rained again"], encoder, keep_verbatim=True)
    assert pair.output == "it rained again"


@pytest.fixture
def fixed(monkeypatch):
    """Make an encoder of these vectors, and have the methods look vectors up in it."""
    return encode_fixed_vectors(monkeypatch)


def test_a_text_without_a_direction_is_in_no_pair(fixed):
    encoder = fixed({"a": [1, 0], "b": [0, 0], "c": [3, 1], "d": [0, 0]})
    (pair,) = mine_pairs(["a", "b"], ["c", "d"], encoder)
    assert (pair.input, pair.output) == ("a", "c")
    assert pair.score == pytest.approx(3 / 10**0.5)


def test_numbers_that_are_not_finite_are_told(fixed):
    with pytest.raises(ModelError, match="not finite for 'b'"):
        mine_pairs(["a", "b"], ["a"], fixed({"a": [1, 0], "b": [np.nan, 0]}))


def test_nothing_to_search_is_told(fixed):
    encoder = fixed({"a": [1, 0]})
    with pytest.raises(InputError, match="inputs: there are no texts"):
        mine_pairs([], ["a"], encoder)
    for wrong, message in (
        ({"k": 0}, "k must be at least 1, not 0"),
        ({"margin": "ration"}, "margin must be one of ratio, distance, absolute, not 'ration'"),
        ({"retrieval": "intersetion"}, "retrieval must be one of candidates, max, intersection"),
    ):
        with pytest.raises(SettingsError, match=message):
            mine_pairs(["a"], ["a"], encoder, **wrong)


def test_own_sentences_take_no_place_in_the_method(encoder):
    own = [f"a man plays the {thing}." for thing in ("drum", "harp", "bell", "viol", "pipe", "gong", "horn")]
    document, others = " ".join(own), ["it rains today", "she sings", "dogs bark"]
    pairs = mine_pairs([document, "nobody sings"], [*own, *others], encoder, k=2, retrieval="candidates")
    of_document = [pair.output for pair in pairs if pair.input == document]
    assert len(of_document) >= 2  # seven nearer ones are its own
    assert set(of_document) <= set(others)


def test_the_best_candidates_have_the_largest_margins(encoder):
    inputs, outputs = ["a man plays", "it rains", "nobody sings"], ["a dog barks", "she sings", "rain falls"]
    every = mine_pairs(inputs, outputs, encoder, k=2, retrieval="candidates")
    best = mine_pairs(inputs, outputs, encoder, k=2, retrieval="candidates", best=3)
    assert len(every) > 3
    assert sorted((pair.margin for pair in every), reverse=True)[:3] == sorted(
        (pair.margin for pair in best), reverse=True
    )
