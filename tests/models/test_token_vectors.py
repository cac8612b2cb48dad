import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import word_pieces
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from pairsmith.models.token_vectors import end_tokens, start_tokens

#          0123456789
OFFSETS = np.array([[0, 3], [3, 5], [6, 10]])  # of "playing men": play|ing, a space, men


def test_positions_by_hand():
    assert start_tokens(OFFSETS, np.array([0, 2, 3, 5, 6, 9, 10])).tolist() == [0, 0, 1, 2, 2, 2, -1]
    assert end_tokens(OFFSETS, np.array([0, 1, 3, 4, 5, 6, 7, 10, 11])).tolist() == [
        -1,
        0,
        0,
        1,
        1,
        1,
        2,
        2,
        -1,
    ]


def test_no_tokens_have_no_positions():
    nothing = np.zeros((0, 2), np.int64)
    assert start_tokens(nothing, np.array([0, 4])).tolist() == [-1, -1]
    assert end_tokens(nothing, np.array([0, 4])).tolist() == [-1, -1]


TEXTS = ["the man plays the violin", "people of the town came", "a violin was found in the town"]


def bytes_tokenizer():
    """Its tokens have the space before a word in them."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=290, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    return tokenizer


def pieces_tokenizer():
    """It cuts words otherwise, and leaves spaces out."""
    vocabulary = ["[UNK]", *word_pieces(" ".join(TEXTS).split()), *".,-"]
    tokenizer = Tokenizer(
        models.WordPiece({piece: n for n, piece in enumerate(vocabulary)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


TEACHER, STUDENT = bytes_tokenizer(), pieces_tokenizer()


def offsets_of(tokenizer, text):
    """Without tokens of white space, and without the white space that tokens begin with."""
    spans = [
        (begin + len(text[begin:end]) - len(text[begin:end].lstrip()), end)
        for begin, end in tokenizer.encode(text).offsets
    ]
    return np.array([one for one in spans if one[0] < one[1]], np.int64).reshape(-1, 2)


@pytest.mark.parametrize(("one", "other"), [(TEACHER, STUDENT), (STUDENT, TEACHER)])
@given(text=st.text(alphabet="themanplyviod of,.\n-", max_size=60), data=st.data())
def test_a_span_of_one_tokenizer_is_covered_by_that_of_the_other_and_back(one, other, text, data):
    offsets, theirs = offsets_of(one, text), offsets_of(other, text)
    if not len(offsets):
        assert not len(theirs)
        return
    start = data.draw(st.integers(0, len(offsets) - 1))
    end = data.draw(st.integers(start, len(offsets) - 1))
    begin, finish = offsets[start, 0], offsets[end, 1]
    first = int(start_tokens(theirs, np.array([begin]))[0])
    last = int(end_tokens(theirs, np.array([finish]))[0])
    assert 0 <= first <= last
    # Their span holds all of ours, and not a whole token more at either end.
    assert theirs[first, 0] <= begin < theirs[first, 1]
    assert theirs[last, 0] < finish <= theirs[last, 1]
    # What starts at a token of ours starts at that token again.
    assert start_tokens(offsets, offsets[:, 0]).tolist() == list(range(len(offsets)))
    assert end_tokens(offsets, offsets[:, 1]).tolist() == list(range(len(offsets)))
