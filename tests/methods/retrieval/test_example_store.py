import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairsmith.data import stored_rows
from pairsmith.data.tuples import RetrievalExample
from pairsmith.methods.retrieval.example_store import ExampleStore, KnownPositives

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
    distinct = list(
        {(example, repr(example.scores)): example for example in examples}.values()
    )  # 0.0 and -0.0 differ
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored_rows, "_TOGETHER", together)
        store = ExampleStore(iter(examples))
        assert list(store) == [store[number] for number in range(len(store))] == store[:] == distinct
    assert store.read == len(examples)


@given(EXAMPLES, WORDS)
def test_positives_are_those_of_all_examples_with_the_query(examples, query):
    positives = KnownPositives(examples)
    for some_query in {query, *(example.query for example in examples)}:
        expected = {example.positive for example in examples if example.query == some_query}
        assert positives.of(some_query) == {KnownPositives.key(text) for text in expected}
        assert len(positives.of(some_query)) == len(expected)
