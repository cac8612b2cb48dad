from hypothesis import given, settings
from hypothesis import strategies as st

from pairsmith.data.examples import Example
from pairsmith.methods.quip.example_store import GeneratorExamples

EXAMPLES = st.lists(st.builds(Example, st.text(), st.sampled_from(["a<sep>Who?", "Ü\n"])), max_size=9)


@settings(max_examples=20)
@given(EXAMPLES)
def test_examples_come_back_from_disk_as_they_were(examples):
    store = GeneratorExamples(iter(examples))
    assert [*store] == store[:] == [store[number] for number in range(len(store))] == examples
    assert store[1:3] == examples[1:3]
    if examples:
        assert store[-1] == examples[-1]
