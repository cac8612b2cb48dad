import gzip

import numpy as np
import pytest

from pairsmith.core.errors import InputError
from pairsmith.models.glove import encode_with_glove, read_vectors, split_words

LINES = """the 1 0 0
cat 0 2 0
NATO 0 0 5
nato 9 9 9
. 1 1 1
"""


@pytest.fixture
def glove(tmp_path):
    path = tmp_path / "glove.txt"
    path.write_text(LINES)
    return path


def test_a_sentence_is_the_average_of_its_known_words(glove):
    vectors = encode_with_glove(glove, ["the cat", "The cat zzz.", "NATO"])
    assert vectors.dtype == np.float32
    assert vectors.tolist()[0] == [0.5, 1.0, 0.0]
    # "The" falls back to lower case, "zzz" is unknown and left out, "." counts.
    assert vectors.tolist()[1] == pytest.approx([2 / 3, 1.0, 1 / 3])
    # As written comes before lower case.
    assert vectors.tolist()[2] == [0, 0, 5]


def test_a_sentence_without_a_known_word_is_a_zero_vector(glove):
    assert encode_with_glove(glove, ["zzz", "the"]).tolist() == [[0, 0, 0], [1, 0, 0]]


def test_only_wanted_words_are_kept(glove):
    assert set(read_vectors(glove, {"cat", "dog"})) == {"cat"}


def test_a_word2vec_header_and_gzip_are_understood(tmp_path):
    path = tmp_path / "vectors.txt.gz"
    path.write_bytes(gzip.compress(f"5 3\n{LINES}".encode()))
    assert encode_with_glove(path, ["cat"]).tolist() == [[0, 2, 0]]


def test_the_first_of_two_vectors_of_a_word_counts(tmp_path):
    path = tmp_path / "g.txt"
    path.write_text("a 1 2\na 3 4\n")
    assert encode_with_glove(path, ["a"]).tolist() == [[1, 2]]


def test_words_are_cut_as_glove_cuts_them():
    assert split_words("\"Don't go,\" she's said.") == [
        '"',
        "Do",
        "n't",
        "go",
        ",",
        '"',
        "she",
        "'s",
        "said",
        ".",
    ]
    assert split_words("state-of-the-art, 3.5") == ["state-of-the-art", ",", "3", ".", "5"]


def test_a_word_with_spaces_inside_is_passed_over(tmp_path):
    path = tmp_path / "g.txt"
    path.write_text("a 1 2\n. . . 3 4\nb 5 6\n")
    assert encode_with_glove(path, ["b"]).tolist() == [[5, 6]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a 1 2\nb 1 2 3\n", r"g.txt:2: 3 values, where the lines before have 2"),
        ("a 1 2\nb 1\n", r"g.txt:2: 1 values, where the lines before have 2; is the file cut off"),
        ("a 1 x\n", r"g.txt:1: a value is not a number"),
        ("a 1 nan\n", r"g.txt:1: a value is not finite"),
        ("", r"holds no vector for any word"),
        ("q 1 2\n", r"holds no vector for any word"),
    ],
)
def test_faults_are_named_with_their_line(tmp_path, text, message):
    path = tmp_path / "g.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        encode_with_glove(path, ["a b"])


def test_a_file_that_is_no_gzip_is_refused(tmp_path):
    path = tmp_path / "g.txt.gz"
    path.write_text("a 1 2\n")
    with pytest.raises(InputError, match="cannot be read as word vectors"):
        encode_with_glove(path, ["a"])


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be read as word vectors"):
        encode_with_glove(tmp_path / "none.txt", ["a"])
