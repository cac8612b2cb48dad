"""What public functions say to a model or task by its name, a single text, other rows, and None among texts."""

from pathlib import Path

import pytest

import pairsmith
from pairsmith.core.errors import InputError, SettingsError
from pairsmith.data.questions import GeneratedQuestion
from pairsmith.data.schemas import GradedPair, LabelledPair, LabelledText, ScoredPair
from pairsmith.data.squad import Question
from pairsmith.models.language.scripted import ScriptedModel

pytestmark = pytest.mark.slow


class Loaded:
    """Stands in for what any of the functions that load a model returns; it computes nothing."""

    preprocess = limit = tokenized = question_vectors = by_names = None


LOADED = Loaded()
MODEL = ScriptedModel(lambda prompt, written: {'"': 1.0}, 'a"')
TASK, TEXTS_TASK = pairsmith.load_task("sts"), pairsmith.load_task("movie-reviews")
PAIR = ScoredPair("1", "a", "b", 1.0)
NAMED = LabelledPair("1", "a", "b", "same")
TEXT = LabelledText("1", "a", "good")
QUESTION = GeneratedQuestion("1", "Ann left.", "who?", "Ann", (0, 3), (0, 3))


@pytest.mark.parametrize(
    ("call", "name", "loader"),
    [
        (lambda value: pairsmith.generate_pairs(value, MODEL, ["a"]), "task", "load_task"),
        (lambda value: pairsmith.generate_pairs(TASK, value, ["a"]), "model", "load_language_model"),
        (lambda value: pairsmith.generate_texts(value, MODEL), "task", "load_task"),
        (lambda value: pairsmith.generate_texts(TEXTS_TASK, value), "model", "load_language_model"),
        (lambda value: pairsmith.make_training_set([PAIR], value), "task", "load_task"),
        (lambda value: pairsmith.mine_pairs(["a"], ["b"], value), "encoder", "load_encoder"),
        (lambda value: pairsmith.find_hard_negatives([("a", "b")], ["c"], value), "encoder", "load_encoder"),
        (lambda value: pairsmith.generate_questions(["a"], value), "generator", "load_question_generator"),
        (lambda value: pairsmith.label_questions([QUESTION], value), "teacher", "load_reader"),
        (lambda value: pairsmith.answer_with_student(value, ["a"], ["b"]), "encoder", "load_student"),
        (lambda value: pairsmith.train_encoder(value, [PAIR]), "encoder", "load_encoder"),
        (lambda value: pairsmith.evaluate_sts(value, [PAIR]), "encoder", "load_encoder"),
        (lambda value: pairsmith.train_classifier(value, [TEXT]), "encoder", "load_encoder"),
        (lambda value: pairsmith.evaluate_classification(value, [TEXT]), "classifier", "load_classifier"),
    ],
)
def test_a_name_in_place_of_what_it_names_is_refused(call, name, loader):
    for given in ("sts", Path("sts")):
        with pytest.raises(SettingsError) as refused:
            call(given)
        expected = f"{name} must be what pairsmith.{loader} returns"
        assert str(refused.value) == f"{expected}, not a name: give pairsmith.{loader}('sts')"
    with pytest.raises(SettingsError, match=f"{loader} returns; it is of the type dict"):
        call({})


@pytest.mark.parametrize(
    ("call", "name", "rows"),
    [
        (lambda texts: pairsmith.generate_pairs(TASK, MODEL, texts), "inputs", "texts"),
        (lambda texts: pairsmith.mine_pairs(texts, ["a"], LOADED), "inputs", "texts"),
        (lambda texts: pairsmith.mine_pairs(["a"], texts, LOADED), "outputs", "texts"),
        (lambda texts: pairsmith.find_hard_negatives(texts, ["a"], LOADED), "pairs", "pairs of texts"),
        (lambda texts: pairsmith.find_hard_negatives([("a", "b")], texts, LOADED), "corpus", "texts"),
        (lambda texts: pairsmith.generate_questions(texts, LOADED), "texts", "texts"),
        (lambda texts: pairsmith.answer_with_student(LOADED, texts, ["a"]), "questions", "texts"),
        (lambda texts: pairsmith.answer_with_student(LOADED, ["a"], texts), "contexts", "texts"),
        (lambda rows: pairsmith.label_questions(rows, LOADED), "questions", "GeneratedQuestions"),
        (lambda rows: pairsmith.distil(rows, "no model"), "questions", "GeneratedQuestions"),
        (lambda rows: pairsmith.distil([QUESTION], "none", validation=rows), "validation", "Questions"),
        (
            lambda rows: pairsmith.make_training_set(rows),
            "rows",
            "ScoredPairs or LabelledPairs or LabelledTexts",
        ),
        (lambda rows: pairsmith.train_encoder(LOADED, rows), "pairs", "ScoredPairs"),
        (lambda rows: pairsmith.train_encoder(LOADED, [PAIR], rows), "validation", "ScoredPairs"),
        (lambda rows: pairsmith.train_classifier(LOADED, rows), "texts", "LabelledTexts"),
        (lambda rows: pairsmith.train_classifier(LOADED, [TEXT], rows), "validation", "LabelledTexts"),
        (lambda rows: pairsmith.evaluate_classification(LOADED, rows), "texts", "LabelledTexts"),
        (lambda rows: pairsmith.evaluate_sts(LOADED, rows), "data", "GradedPairs or ScoredPairs"),
    ],
)
def test_what_is_no_list_of_texts_or_rows_is_refused(call, name, rows):
    if name != "data":  # which may be the path of a file
        with pytest.raises(InputError, match=f"^{name} must be a list of {rows}, not a single text$"):
            call("A dog runs.")
    for wrong in ([None], [3.5], [("a", "b", 1.0)], [{"sentence1": "a"}], iter([QUESTION.answer]), 3):
        with pytest.raises(InputError, match=rf"^{name} must be a list of {rows}"):
            call(wrong)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: pairsmith.generate_pairs(TASK, MODEL, ["a", None]),
            "inputs must be a list of texts; inputs[1] is None",
        ),
        (
            lambda: pairsmith.find_hard_negatives(["who?"], ["a"], LOADED),
            "pairs must be a list of pairs of texts, (query, positive); pairs[0] is 'who?'",
        ),
        (
            lambda: pairsmith.find_hard_negatives([("a", None)], ["a"], LOADED),
            "pairs must be a list of pairs of texts, (query, positive); pairs[0] is ('a', None)",
        ),
        (
            lambda: pairsmith.train_encoder(LOADED, [NAMED]),
            "pairs must be a list of ScoredPairs; pairs[0] is of the type LabelledPair; a row is made with "
            "pairsmith.data.schemas.ScoredPair(id, sentence1, sentence2, score)",
        ),
        (
            lambda: pairsmith.train_encoder(LOADED, [PAIR, ScoredPair("2", "a", None, 1.0)]),
            "pairs[1].sentence2 must be a text; it is None",
        ),
        (
            lambda: pairsmith.evaluate_sts(LOADED, [GradedPair("a", "b", "1.0")]),
            "data[0].score must be a number; it is of the type str",
        ),
        (
            lambda: pairsmith.train_classifier(LOADED, [LabelledText("1", None, "good")]),
            "texts[0].text must be a text; it is None",
        ),
        (
            lambda: pairsmith.distil([Question("1", "", "Ann left.", "who?", ())], "no model"),
            "questions must be a list of GeneratedQuestions; questions[0] is of the type Question; a row is made "
            "with pairsmith.data.questions.GeneratedQuestion(id, context, question, generated_answer, answer, "
            "generated_span, starts, ends, confidence, kept)",
        ),
        (
            lambda: pairsmith.answer_with_student(LOADED, ["a", "b"], ["c"]),
            "there are 2 questions and 1 contexts; give one context for each question",
        ),
        (
            lambda: pairsmith.make_training_set([PAIR, NAMED]),
            "rows must be of one class, not LabelledPair and ScoredPair",
        ),
    ],
)
def test_the_message_says_which_text_or_row_is_wrong(call, message):
    with pytest.raises(InputError) as refused:
        call()
    assert str(refused.value) == message


def test_a_training_set_is_what_postprocess_makes():
    rows = [
        ScoredPair(f"{number}-{score}", f"text {number}", f"other {number} {score}", score)
        for number in range(20)
        for score in (1.0, 0.5, 0.0)
    ]
    copied = ScoredPair("copy", "text 1", "text 1", 1.0)
    made = pairsmith.make_training_set([*rows, copied], TASK, augment=1, validation=0.25)
    assert [reject.id for reject in made.rejects] == ["copy"]
    assert made.negatives == 20
    assert len(made.train) + len(made.validation) == 80
    assert {pair.score for pair in made.train} == {0.9, 0.5, 0.1, 0.0}
    assert len([pair for pair in made.validation if pair.score == 0.9]) == 5
    for options, message in (
        ({"smothing": 1}, "make_training_set: smothing: unknown key"),
        ({"data": "a"}, "give the rows"),
    ):
        with pytest.raises(SettingsError, match=message):
            pairsmith.make_training_set(rows, **options)
