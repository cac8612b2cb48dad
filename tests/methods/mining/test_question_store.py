from hypothesis import given
from hypothesis import strategies as st

from pairsmith.data.squad import Answer
from pairsmith.methods.mining.question_store import QuestionWithSpans, StoredQuestions, span_of

MARKS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=2).map(tuple)
ASKED = st.builds(QuestionWithSpans, st.text(max_size=3), st.sampled_from(["A man.", "", "Ü\n"]), MARKS)


@given(st.lists(ASKED, max_size=12))
def test_questions_come_back_from_disk_as_they_were(questions):
    store = StoredQuestions(iter(questions))
    assert [*store] == store[:] == questions
    assert len(store) == len(questions)
    if questions:
        assert store[-1] == questions[-1]


def test_white_space_around_an_answer_does_not_count():
    assert span_of(Answer(" Two dogs\n", 3)) == (4, 11)
