import errno

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairsmith.core.errors import StorageError
from pairsmith.data import stored_rows
from pairsmith.data.questions import Distribution
from pairsmith.methods.quip.distillation import LabelledQuestion, PassageExample
from pairsmith.methods.quip.passage_store import PassageStore

distributions = st.none() | st.lists(st.tuples(st.integers(0, 99), st.floats(0.25, 1, width=32))).map(
    lambda pairs: Distribution(tuple(p for p, _ in pairs), tuple(v for _, v in pairs))
)
pairs = st.lists(
    st.tuples(st.sampled_from(["A man.", "Two dogs.", "Ü\n", "x"]), st.builds(LabelledQuestion, st.text(), distributions, distributions)),
    max_size=12,
)  # fmt: skip


@given(pairs=pairs, together=st.integers(1, 5))
def test_passages_have_their_questions_in_the_order_in_which_they_came(pairs, together):
    expected = {}
    for text, question in pairs:
        expected.setdefault(text, []).append(question)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored_rows, "_TOGETHER", together)
        store = PassageStore(pairs)
        assert len(store) == len(expected)
        assert store.questions == len(pairs)
        assert list(store) == [PassageExample(text, questions) for text, questions in expected.items()]


def test_places_are_those_of_a_list():
    store = PassageStore([(text, LabelledQuestion(f"What is {text}?", None, None)) for text in "abcab"])
    assert store[-1] == store[2] == PassageExample("c", [LabelledQuestion("What is c?", None, None)])
    assert [passage.text for passage in store[:2]] == ["a", "b"]
    with pytest.raises(IndexError):
        store[3]


def test_some_questions_are_left_in_their_order_and_passages_without_any_are_not():
    questions = [LabelledQuestion(f"What is {number}?", None, None) for number in range(5)]
    store = PassageStore(zip("abcab", questions, strict=True)).only(
        np.array([False, True, False, False, True])
    )
    assert list(store) == [PassageExample("a", [questions[3]]), PassageExample("c", [questions[2]])]
    assert (len(store), store.questions) == (2, 2)


def test_the_files_go_with_the_lessons(tmp_path, monkeypatch):
    monkeypatch.setattr(stored_rows.tempfile, "tempdir", str(tmp_path))
    store = PassageStore([("a", LabelledQuestion("What?", None, None))])
    store = store.only(np.array([True]))
    assert list(tmp_path.glob("*/*.arrow"))
    assert store[0].text == "a"
    del store
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_written_is_told(monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pa.ipc, "new_file", full)
    with pytest.raises(StorageError, match="set TMPDIR to a disk with room"):
        PassageStore([("a", LabelledQuestion("What?", None, None))])
