"""Keys of texts, against their ids."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pairsmith.data.readers import text_id
from pairsmith.data.text_keys import text_keys

TEXTS = ["", "a text", "0123456789abcdef", "0123456789ABCDEF", "fffffffffffffff", "ffffffffffffffff", "ünï €"]


def test_keys_by_hand():
    # SHA-256 of nothing begins with e3b0c44298fc1c14.
    texts = pa.chunked_array([["", "0000000000000010"], ["ffffffffffffffff", "00000000000000g0", ""]])
    keys = text_keys(texts).tolist()
    assert keys[:3] == [0xE3B0C44298FC1C14, 16, 2**64 - 1]
    assert keys[3] == int(text_id("00000000000000g0"), 16)
    assert keys[4] == keys[0]


@given(texts=st.lists(st.sampled_from(TEXTS) | st.text(max_size=20), max_size=12), skip=st.integers(0, 3))
def test_a_text_and_its_id_have_the_same_key(texts, skip):
    ids = [text_id(text) for text in texts]
    kinds = (pa.string(), pa.large_string())
    columns = [pa.chunked_array([pa.array(ids, kind)]).slice(skip) for kind in kinds]
    assert text_keys(columns[0]).tolist() == [int(identifier, 16) for identifier in ids[skip:]]
    assert text_keys(columns[1]).tolist() == text_keys(columns[0]).tolist()
    plain = [text for text in texts if not is_id(text)]
    assert text_keys(pa.chunked_array([plain], pa.string())).tolist() == [int(text_id(t), 16) for t in plain]


def is_id(text):
    return len(text) == 16 and set(text) <= set("0123456789abcdef")
