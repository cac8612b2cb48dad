"""QUIP on objects: from texts to a student, with small models."""

import pytest
from tests.conftest import make_bert

from pairsmith.core.errors import ModelError, SettingsError
from pairsmith.data.squad import Answer, Question
from pairsmith.data.text.windows import PASSAGE_TOKENS
from pairsmith.methods.quip import method
from pairsmith.methods.quip.generators import load_question_generator
from pairsmith.methods.quip.method import add_labels, distil, generate_questions, label_questions
from pairsmith.methods.quip.options import GenerationOptions
from pairsmith.methods.quip.training_options import StudentOptions
from pairsmith.models.question_generator import GENERATED_QUESTION_TOKENS
from pairsmith.models.reader import ANSWER_TOKENS, load_reader
from pairsmith.models.span_answers import answer_with_span_encoder
from pairsmith.models.teacher import TOP, predict_spans
from pairsmith.steps.questions.settings import AskSettings, RelabelSettings

TEXTS = [
    "Ann met Bob in Rome in 1999. They went to Paris.",
    "In 2004 Cid saw 12 birds in London.",
    "so it was.",
]


def test_defaults_are_those_of_the_paper():
    """Q1 to Q3, Q5 and Q6, from Python and in the settings of the steps."""
    for asking in (GenerationOptions(), AskSettings(inputs="i", model="m").options):
        assert (asking.questions, asking.max_length, asking.top_p) == (10, 456, 0.6)
        assert (asking.decoding, asking.beams) == ("nucleus", 20)
    assert (PASSAGE_TOKENS, GENERATED_QUESTION_TOKENS) == (456, 50)
    of_step = RelabelSettings(data="d", model="m")
    assert (of_step.top, of_step.max_answer_tokens) == (TOP, ANSWER_TOKENS) == (8, 17)
    student = StudentOptions(base="b")
    assert (student.learning_rate, student.epochs, student.max_length) == ([1e-5], 2.0, 456 + 2)
    assert (student.labels, student.negatives, student.together) == ("teacher", "passage", 9)


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return str(make_bert(tmp_path_factory.mktemp("bert")))


@pytest.fixture(scope="module")
def questions():
    generator = load_question_generator("cloze", GenerationOptions(questions=3))
    return generate_questions([*TEXTS, TEXTS[0]], generator)


def test_questions_are_distinct_and_their_answers_stand_in_the_passage(questions):
    assert 3 < len(questions) <= 6
    assert len({(question.context, question.question) for question in questions}) == len(questions)
    assert {question.context for question in questions} == set(TEXTS[:2])
    for question in questions:
        assert question.context[slice(*question.answer)] == question.generated_answer
        assert question.starts is None


def test_a_teacher_labels_every_question_with_distributions(questions, bert):
    teacher = load_reader(bert, fresh_head=True, device="cpu")
    labelled = label_questions(questions, teacher, top=4)
    for before, after in zip(questions, labelled, strict=True):
        assert (after.id, after.question, after.generated_span) == (before.id, before.question, before.answer)
        assert 0 < len(after.starts.positions) <= 4
        assert 0 < sum(after.ends.probabilities) <= 1 + 1e-6
        assert list(after.starts.probabilities) == sorted(after.starts.probabilities, reverse=True)
        assert after.context[slice(*after.answer)]


def test_each_batch_of_questions_is_told_when_the_teacher_has_answered_it(questions, bert):
    teacher, heard = load_reader(bert, fresh_head=True, device="cpu"), []
    add_labels(questions, teacher, top=4, max_answer_tokens=5, batch_tokens=1, advance=heard.append)
    assert heard == [1] * len(questions)


def test_the_teacher_answers_few_questions_at_once(questions, bert, monkeypatch):
    teacher = load_reader(bert, fresh_head=True, device="cpu", dtype="float32")
    at_once, heard = [], []

    def predicting(teacher, texts, *arguments, **options):
        at_once.append(len(texts))
        return predict_spans(teacher, texts, *arguments, **options)

    monkeypatch.setattr(method, "predict_spans", predicting)
    together = label_questions(questions, teacher, batch_tokens=1)  # a batch has one question
    assert at_once == [len(questions)]
    monkeypatch.setattr(method, "_ANSWERED_AT_ONCE", 2)
    options = {"top": TOP, "max_answer_tokens": ANSWER_TOKENS, "batch_tokens": 1}
    assert add_labels(questions, teacher, **options, advance=heard.append) == together
    assert (max(at_once[1:]), sum(at_once[1:]), sum(heard)) == (2, len(questions), len(questions))


def test_a_second_teacher_leaves_the_generated_answer_as_it_was(questions, bert):
    teacher = load_reader(bert, fresh_head=True, device="cpu")
    twice = label_questions(label_questions(questions, teacher), teacher)
    assert [question.generated_span for question in twice] == [question.answer for question in questions]


def test_a_student_learns_from_a_teachers_labels(questions, bert):
    labelled = label_questions(questions, load_reader(bert, fresh_head=True, device="cpu"))
    trained = distil(labelled, bert, max_steps=2, batch_size=2, max_length=32, device="cpu")
    assert trained.questions == len(questions)
    (answer,) = answer_with_span_encoder(trained.model, ["who?"], [TEXTS[0]])
    assert answer.text in TEXTS[0]


def test_peoples_questions_choose_the_best_step_and_may_keep_the_base(questions, bert):
    people = [Question("1", "", TEXTS[0], "who?", (Answer("Ann", 0),))]
    labelled = label_questions(questions, load_reader(bert, fresh_head=True, device="cpu"))
    trained = distil(
        labelled,
        bert,
        validation=people,
        keep_base=True,
        max_steps=1,
        batch_size=2,
        max_length=32,
        device="cpu",
    )
    assert trained.history.validation


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": "none"}, "distil: labels: should be 'teacher', 'hard' or 'answers', not 'none'"),
        ({"keep_base": True}, "distil: keep_base has no effect without validation"),
        ({"checkpoint_steps": 5}, "only a training with a folder has checkpoint_steps"),
        ({"data": ["a"]}, "distil: data: give the questions themselves"),
        ({"device": "cuda:1"}, "distil: device: should be"),
        ({"questions": 0}, "distil: questions: should be greater than or equal to 1, not 0"),
    ],
)
def test_options_that_a_student_cannot_have_are_refused(options, message):
    with pytest.raises(SettingsError, match=message):
        distil([], "base", **options)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"questions": 0}, "questions must be at least 1, not 0"),
        ({"max_length": 0}, "max_length must be at least 1, or None, not 0"),
        ({"top_p": 1.5}, "top_p must be above 0 and at most 1, not 1.5"),
        ({"decoding": "beam"}, "decoding must be nucleus or beams, not 'beam'"),
        ({"instruction": "Ask!"}, "the instruction has no {passage}"),
    ],
)
def test_options_that_cannot_be_are_refused(given, message):
    with pytest.raises(SettingsError, match=message):
        GenerationOptions(**given)


def test_a_servers_model_is_no_question_generator():
    with pytest.raises(SettingsError, match="needs a model that it can load"):
        load_question_generator("http://localhost:8000/v1#model")


def test_an_encoder_alone_is_no_question_generator(bert):
    with pytest.raises(ModelError, match="an encoder alone cannot write text"):
        load_question_generator(bert)
