"""Hard negatives on objects, against the step that does the same with folders, and against brute force."""

import io
import json

import numpy as np
import pytest
from tests.conftest import make_bert
from tests.fixed_vectors import encode_fixed_vectors

from pairsmith.core.errors import InputError, SettingsError
from pairsmith.core.progress import Progress, Silent
from pairsmith.methods.retrieval.negatives import find_hard_negatives
from pairsmith.models.encode import encode_texts
from pairsmith.models.sentence_encoder import load_sentence_encoder
from pairsmith.runs import Run
from pairsmith.steps.negatives.route import negatives
from pairsmith.steps.negatives.settings import NegativesSettings

INPUTS = ["a cat sat down", "rain fell all day", "she sold her car"]
OUTPUTS = ["the car was sold", "the cat is sitting", "it rained", "a late bus", "soup is hot", "he runs"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def encoder(folder):
    return load_sentence_encoder(str(folder), device="cpu")


@pytest.fixture
def fixed(monkeypatch):
    """Make an encoder of these vectors, and have the methods look vectors up in it."""
    return encode_fixed_vectors(monkeypatch)


def test_the_function_finds_what_the_step_writes(encoder, folder, tmp_path):
    pairs = [
        (INPUTS[0], "The cat is sitting!"),
        (INPUTS[0], "soup is hot"),
        (INPUTS[1], "rain"),
        (INPUTS[2], "the car was sold"),
        ("he runs", "a late bus"),
    ]
    corpus = [
        *OUTPUTS,
        "A LATE BUS",
        "soup: is hot.",
        "Animals\nthe cat is sitting",
        "a man sings",
        "she sang",
    ]
    rows = [json.dumps({"query": query, "positive": positive}) for query, positive in pairs]
    (tmp_path / "pairs.jsonl").write_text("\n".join(rows))
    (tmp_path / "corpus.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in corpus))
    settings = NegativesSettings(
        pairs=str(tmp_path / "pairs.jsonl"),
        corpus=[str(tmp_path / "corpus.jsonl")],
        encoder=str(folder),
        positive_share=0.999,
        dtype="float32",
        device="cpu",
    )
    written = negatives(settings, Run(tmp_path / "out", Silent())).table().to_pylist()
    results = [row for row in find_hard_negatives(pairs, corpus, encoder, share=0.999) if row.negatives]
    assert len(results) >= 3
    assert [(row.query, row.positive, list(row.negatives)) for row in results] == [
        (row["query"], row["positive"], row["negatives"]) for row in written
    ]
    for result, row in zip(results, written, strict=True):
        assert list(result.similarities) == pytest.approx(row["scores"], abs=1e-5)


def test_copies_are_no_negatives_and_take_no_place(fixed):
    vectors = {"q": [1, 0], "a dog": [0.9, 0.19**0.5], "A dog.": [0.9, 0.19**0.5], "x y": [0.8, 0.6]}
    vectors |= {"Pets\na dog": [0.89, 0.2079**0.5], "X, y": [0.79, 0.3759**0.5], "z": [0.6, 0.8]}
    corpus = ["Q?", "Pets\na dog", "A dog.", "x y", "X, y", "z"]
    vectors["Q?"] = [1, 0]
    (row,) = find_hard_negatives([("q", "a dog")], corpus, fixed(vectors), ranks=(1, 2), share=1.0)
    assert row.positive == "A dog."  # as it stands in the corpus
    assert row.negatives == ("x y", "z")  # of copies the nearest


def test_the_lowest_positive_of_a_query_limits_the_negatives_of_all(fixed):
    encoder = fixed({"q": [1, 0], "p": [0.96, 0.28], "r": [0.6, 0.8], "x": [0.8, 0.6], "y": [0.28, 0.96]})
    rows = find_hard_negatives([("q", "p"), ("q", "r")], ["x", "y"], encoder)
    assert [row.negatives for row in rows] == [("y",), ("y",)]


def test_positives_of_the_corpus_are_not_encoded_again(fixed):
    shown = io.StringIO()
    encoder = fixed({"q": [1, 0], "p": [0.8, 0.6], "other": [0.6, 0.8], "zero": [0, 0], "x": [0.28, 0.96]})
    pairs = [("q", "p"), ("q", "P."), ("q", "other")]
    rows = find_hard_negatives(pairs, ["x", "p"], encoder, progress=Progress(shown))
    assert [row.negatives for row in rows] == [("x",)] * 3
    assert [row.positive for row in rows] == ["p", "p", "other"]
    assert "encode: 1/1 positives" in shown.getvalue()
    # Without a positive that remains, and with one whose vector is zero.
    for others, expected in (([], []), ([("q", "zero")], [()])):
        rows = find_hard_negatives([("q", "p"), *others], ["x", "p", "zero"], encoder)
        assert [row.negatives for row in rows] == [("x",), *expected]
    with pytest.raises(InputError, match="pairs: there are no texts, or none with a nonzero vector"):
        find_hard_negatives([("q", "zero")], ["x", "p"], encoder)


def test_no_pairs_are_told(fixed):
    with pytest.raises(InputError, match="pairs: there are no texts"):
        find_hard_negatives([], ["a"], fixed({"a": [1, 0]}))


def test_hard_negatives_are_those_of_an_exhaustive_comparison(encoder):
    pairs = [(INPUTS[0], OUTPUTS[1]), (INPUTS[0], OUTPUTS[4]), (INPUTS[2], OUTPUTS[0])]
    rows = find_hard_negatives(pairs, OUTPUTS, encoder, count=2, ranks=(2, 4), share=0.99)
    x, y = encode_texts(encoder, INPUTS), encode_texts(encoder, OUTPUTS)
    x, y = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in (x, y))
    for (query, positive), row in zip(pairs, rows, strict=True):
        cosines = y @ x[INPUTS.index(query)]
        known = {OUTPUTS.index(output) for text, output in pairs if text == query}
        ranked = [i for i in np.argsort(-cosines) if i not in known][1:4]
        limit = 0.99 * min(cosines[i] for i in known)
        expected = [OUTPUTS[i] for i in ranked if cosines[i] <= limit][:2]
        assert row.query == query
        assert row.positive == positive
        assert list(row.negatives) == expected
        assert list(row.similarities) == pytest.approx(
            [cosines[OUTPUTS.index(output)] for output in expected], abs=1e-5
        )


def test_a_negative_is_less_near_than_a_positive_that_points_away(fixed):
    # Cosines with the query: p -0.2, near -0.195, far -0.6; 0.95 of -0.2 would be -0.19.
    encoder = fixed(
        {
            "q": [1, 0],
            "p": [-0.2, (1 - 0.2**2) ** 0.5],
            "near": [-0.195, (1 - 0.195**2) ** 0.5],
            "far": [-0.6, 0.8],
        }
    )
    (row,) = find_hard_negatives([("q", "p")], ["near", "far", "p"], encoder)
    assert row.negatives == ("far",)
    assert row.similarities == pytest.approx((-0.6,))


def test_the_query_itself_is_no_negative_and_takes_no_place(fixed):
    encoder = fixed({"q": [1, 0], "p": [0.8, 0.6], "x": [0.6, 0.8]})
    (row,) = find_hard_negatives([("q", "p")], ["q", "p", "x"], encoder, ranks=(1, 1), share=1.0)
    assert row.negatives == ("x",)


def test_ranks_that_are_no_range_are_refused(encoder):
    with pytest.raises(SettingsError, match="ranks must be a first and a last place"):
        find_hard_negatives([("a", "b")], ["c"], encoder, ranks=(0, 5))
