"""Labelled texts under the names that files have for them."""

import json

import pytest

from pairsmith.core.errors import InputError
from pairsmith.data.labelled_texts import read_labelled_texts, renamed


def saved(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_usual_names_numbers_and_blank_texts(tmp_path):
    rows = [
        {"sentence": " Good. ", "Label": 1},
        {"sentence": "  ", "Label": 0},
        {"sentence": "Bad.", "Label": 0.0},
    ]
    labelled_texts = read_labelled_texts(saved(tmp_path / "a.jsonl", rows))
    assert (labelled_texts.texts, labelled_texts.labels, labelled_texts.blank) == (
        ["Good.", "Bad."],
        ["1", "0"],
        1,
    )


@pytest.mark.parametrize("column", ["message", "body", "comment", "review"])
def test_usual_names_of_messages_and_comments(tmp_path, column):
    rows = [{column: "Where is it?", "note": "n", "label": "a"}]
    assert read_labelled_texts(saved(tmp_path / "a.jsonl", rows)).texts == ["Where is it?"]
    rows = [{column: "Not this.", "text": "This.", "label": "a"}]
    assert read_labelled_texts(saved(tmp_path / "a.jsonl", rows)).texts == ["This."]


def test_csv_with_named_columns(tmp_path):
    (tmp_path / "a.csv").write_text('id,body,stars\n1,"Good, really.",five\n')
    labelled_texts = read_labelled_texts(str(tmp_path / "a.csv"), text_column="body", label_column="stars")
    assert (labelled_texts.texts, labelled_texts.labels) == (["Good, really."], ["five"])


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (
            [{"remark": "a", "label": "x"}],
            "name the one with the texts with --text-column; it has: remark, label",
        ),
        (
            [{"text": "a", "stars": "x"}],
            "name the one with the labels with --label-column; it has: text, stars",
        ),
        ([{"text": "a", "label": None}], "the label is 'None'; give a word or a number"),
        ([{"text": "a", "label": ["x"]}], "give a word or a number"),
        ([{"text": 3, "label": "x"}], "column 'text' holds a number, not text"),
        ([{"text": "", "label": "x"}], "holds no labelled texts"),
    ],
)
def test_what_is_wrong_is_told(tmp_path, rows, words):
    with pytest.raises(InputError, match=words):
        read_labelled_texts(saved(tmp_path / "a.jsonl", rows))


def test_labels_get_other_names():
    assert renamed(["0", "1", "2"], {"0": "bad", "1": "good"}, "f") == ["bad", "good", "2"]
    assert renamed(["1", "2"], {"1.0": "good", "2": "2.0"}, "f") == ["good", "2.0"]
    with pytest.raises(InputError, match="--map one=good: no row of f has this label; did you mean"):
        renamed(["zero", "ones"], {"one": "good"}, "f")
