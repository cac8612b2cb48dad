import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairsmith.data import stored_rows
from pairsmith.data.tuples import RetrievalExample
from pairsmith.methods.retrieval.example_store import ExampleStore, Positives

WORDS = st.text("ab é😀\n\0", max_size=3)
EXAMPLES = st.lists(
    st.builds(
        RetrievalExample,
        WORDS,
        WORDS,
        st.lists(WORDS, max_size=2).map(tuple),
        st.lists(st.floats(allow_nan=False), max_size=2).map(tuple),
    ),
    max_size=20,
)


@given(EXAMPLES, st.integers(1, 4))
def test_distinct_examples_keep_their_order(examples, together):
    distinct = list({(each, repr(each.scores)): each for each in examples}.values())  # 0.0 and -0.0 differ
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored_rows, "_TOGETHER", together)
        store = ExampleStore(iter(examples))
        assert list(store) == [store[number] for number in range(len(store))] == store[:] == distinct
    assert store.read == len(examples)


@given(EXAMPLES, WORDS)
def test_positives_are_those_of_all_examples_with_the_query(examples, query):
    found = Positives(examples)
    for asked in {query, *(each.query for each in examples)}:
        expected = {each.positive for each in examples if each.query == asked}
        assert found.of(asked) == {Positives.key(text) for text in expected}
        assert len(found.of(asked)) == len(expected)
