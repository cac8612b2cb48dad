"""What public functions say to arguments of the wrong kind, such as a name instead of a loaded model."""

import inspect
import math
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from datasets import Dataset
from tests.folders import write_folder

import pairsmith
from pairsmith.core.arguments import checked_pairs, checked_texts
from pairsmith.core.errors import InputError, SettingsError, TaskError, UserError
from pairsmith.data.questions import GeneratedQuestion
from pairsmith.data.schemas import (
    SCORED_PAIR,
    GradedPair,
    LabelledPair,
    LabelledText,
    MinedPair,
    ScoredPair,
    to_table,
)
from pairsmith.data.squad import Question
from pairsmith.data.tagged import TaggedSentence
from pairsmith.methods.dino.method import GeneratedRows
from pairsmith.methods.dino.options import ClassifierOptions
from pairsmith.methods.dino.training_set import TrainingSet
from pairsmith.methods.quip.options import GenerationOptions
from pairsmith.models.classifier import TextClassifier
from pairsmith.models.language.scripted import ScriptedModel
from pairsmith.training.best_step import TrainingHistory
from pairsmith.training.fit import TrainedModel

pytestmark = pytest.mark.slow


class Loaded:
    """Stands in for what any of the functions that load a model returns; it computes nothing."""

    preprocess = tries = tokenized = question_vectors = by_names = None


LOADED = Loaded()
MODEL = ScriptedModel(lambda prompt, written: {'"': 1.0}, 'a"')
TASK, TEXTS_TASK = pairsmith.load_task("sts"), pairsmith.load_task("movie-reviews")
PAIR = ScoredPair("1", "a", "b", 1.0)
NAMED = LabelledPair("1", "a", "b", "same")
TEXT = LabelledText("1", "a", "good")
MINED = MinedPair("1-2", "a", "b", 1.1, 0.5, input_id="1", output_id="2")
TAGGED = TaggedSentence(("Ann", "left"), ("B-PER", "O"))
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
        (lambda value: pairsmith.answer_with_student(value, ["a"], ["b"]), "student", "load_student"),
        (lambda value: pairsmith.train_encoder(value, [PAIR]), "encoder", "load_encoder"),
        (lambda value: pairsmith.evaluate_sts(value, [PAIR]), "encoder", "load_encoder"),
        (lambda value: pairsmith.train_classifier(value, [TEXT]), "encoder", "load_encoder"),
        (lambda value: pairsmith.train_tagger(value, [TAGGED]), "student", "load_student"),
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
            "inputs must be a list of texts; inputs[1] is None; leave it out, as with Series.dropna()",
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
            "pairs[1].sentence2 must be a text; it is None; leave the row out, as with DataFrame.dropna()",
        ),
        (
            lambda: pairsmith.evaluate_sts(LOADED, [GradedPair("a", "b", "1.0")]),
            "data[0].score must be a number; it is of the type str",
        ),
        (
            lambda: pairsmith.train_classifier(LOADED, [LabelledText("1", None, "good")]),
            "texts[0].text must be a text; it is None; leave the row out, as with DataFrame.dropna()",
        ),
        (
            lambda: pairsmith.train_classifier(LOADED, [LabelledText("1", math.nan, "good")]),
            "texts[0].text is a missing value (nan); leave the row out, as with DataFrame.dropna()",
        ),
        (
            lambda: pairsmith.train_classifier(LOADED, [LabelledText(1, "a", "good")]),
            "texts[0].id must be a text; it is of the type int; give '1'",
        ),
        (
            lambda: pairsmith.generate_pairs(TASK, MODEL, np.array("a")),
            "inputs must be a list of texts; it is of the type ndarray",
        ),
        (
            lambda: pairsmith.distil([Question("1", "", "Ann left.", "who?", ())], "no model"),
            "questions must be a list of GeneratedQuestions; questions[0] is of the type Question; a row is made "
            "with pairsmith.data.questions.GeneratedQuestion(id, context, question, generated_answer, answer, "
            "generated_span, starts, ends, confidence, kept)",
        ),
        (
            lambda: pairsmith.answer_with_student(LOADED, ["a", "b"], ["c"]),
            "got 2 questions and 1 context; give one context for each question",
        ),
        (
            lambda: pairsmith.make_training_set([PAIR, NAMED]),
            "rows must all be of one class, not LabelledPair and ScoredPair",
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
        (
            {"smothing": 1},
            "make_training_set: smothing: unknown key; did you mean 'smoothing'? known: augment, min_words",
        ),
        ({"data": "a"}, "give the rows"),
    ):
        with pytest.raises(SettingsError, match=re.escape(message)):
            pairsmith.make_training_set(rows, **options)


class Table:
    """Iterates over the names of its columns, as a DataFrame of pandas does."""

    columns = ("text",)

    def __iter__(self):
        return iter(self.columns)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (Table(), "inputs must be a list of texts; it is of the type Table; give one of its columns"),
        ({"a": 1}, "inputs must be a list of texts; it is of the type dict"),
        ({"a"}, "inputs must be a list of texts; a set has no order: give sorted(…)"),
        (b"a", "inputs must be a list of texts; it is of the type bytes"),
        (["a", " \n"], "inputs[1] is blank; leave it out"),
        (
            ["a\udc80"],
            "inputs[0] is not valid Unicode: the character 2 is the surrogate '\\udc80'; read its file with the "
            "right encoding, or with errors='replace'",
        ),
    ],
)
def test_what_would_be_read_as_other_texts_is_refused(texts, message):
    for call in (
        lambda: pairsmith.generate_pairs(TASK, MODEL, texts),
        lambda: pairsmith.mine_pairs(texts, ["a"], LOADED),
    ):
        with pytest.raises(InputError) as refused:
            call()
        assert str(refused.value) == message


def test_rows_and_pairs_of_invalid_values_are_refused():
    for call, message in (
        (
            lambda: pairsmith.train_encoder(LOADED, Table()),
            "pairs must be a list of ScoredPairs; it is of the",
        ),
        (
            lambda: pairsmith.train_encoder(LOADED, {PAIR}),
            "pairs must be a list of ScoredPairs; a set has no order: give a list$",
        ),
        (
            lambda: pairsmith.make_training_set([ScoredPair("1", "a", "b", float("nan"))]),
            r"rows\[0\].score must be a finite number; it is nan",
        ),
        (
            lambda: pairsmith.evaluate_sts(LOADED, [GradedPair("a", "", 1.0)]),
            r"the sentence2 of data\[0\] is blank; leave it out",
        ),
        (
            lambda: pairsmith.find_hard_negatives([("a", "b"), ("a", " ")], ["c"], LOADED),
            r"the positive of pairs\[1\] is blank; leave it out",
        ),
        (
            lambda: pairsmith.evaluate_sts(LOADED, [GradedPair("a", "b\ud800", 1.0)]),
            r"data\[0\].sentence2 is not valid Unicode",
        ),
        (
            lambda: pairsmith.find_hard_negatives([("a", "\ud800")], ["c"], LOADED),
            r"a text of pairs\[0\] is not valid Unicode",
        ),
        (
            lambda: pairsmith.make_training_set([PAIR, ScoredPair("2", "a", "b", 0.7)], TASK),
            r"rows\[1\] has the label 0.7, which the task sts does not have \(1, 0.5, 0\)",
        ),
    ):
        with pytest.raises(InputError, match=message):
            call()


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda rows: pairsmith.train_classifier(LOADED, rows), "texts"),
        (lambda rows: pairsmith.train_classifier(LOADED, [TEXT], rows), "validation"),
        (lambda rows: pairsmith.evaluate_classification(LOADED, rows), "texts"),
        (lambda rows: pairsmith.make_training_set(rows), "rows"),
    ],
)
def test_a_blank_label_or_text_is_refused_with_its_place(call, name):
    for label in ("", " \n"):
        with pytest.raises(InputError, match=rf"^the label of {name}\[1\] is blank; leave it out$"):
            call([TEXT, LabelledText("2", "b", label)])
    if name != "rows":  # whose blank texts become rejects
        with pytest.raises(InputError, match=rf"^the text of {name}\[1\] is blank; leave it out$"):
            call([TEXT, LabelledText("2", " ", "bad"), TEXT])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pairsmith.generate_pairs(TASK, MODEL, []), "inputs is empty; give at least one text"),
        (lambda: pairsmith.generate_questions([], LOADED), "texts is empty; give at least one text"),
        (lambda: pairsmith.distil([], "none"), "questions is empty; give at least one GeneratedQuestion"),
        (lambda: pairsmith.make_training_set([]), "rows is empty; give at least one row"),
        (lambda: pairsmith.train_encoder(LOADED, []), "pairs is empty; give at least one ScoredPair"),
        (lambda: pairsmith.train_classifier(LOADED, []), "texts is empty; give at least one LabelledText"),
        (
            lambda: pairsmith.evaluate_classification(LOADED, []),
            "texts is empty; give at least one LabelledText",
        ),
        (lambda: pairsmith.evaluate_sts(LOADED, iter([])), "data is empty; give at least one GradedPair"),
        (lambda: pairsmith.generate_questions(["a", " "], LOADED), r"texts\[1\] is blank; leave it out"),
    ],
)
def test_nothing_to_work_on_is_refused(call, message):
    with pytest.raises(InputError, match=f"^{message}$"):
        call()


def test_options_of_validation_without_validation_are_refused():
    for call in (
        lambda: pairsmith.train_encoder(LOADED, [PAIR], iter([]), keep_base=True),
        lambda: pairsmith.distil([QUESTION], "none", validation=iter([]), keep_base=True),
    ):
        with pytest.raises(SettingsError, match="has no effect without validation"):
            call()


@pytest.mark.parametrize("overrides", ["pairs.top_k=10", {"pairs.top_k": 10}, [None], 3, None])
def test_overrides_of_a_recipe_are_a_list_of_texts(overrides, tmp_path):
    with pytest.raises(InputError, match="^overrides must be a list of texts"):
        pairsmith.run_recipe("quickstart", tmp_path / "run", overrides=overrides)
    assert not (tmp_path / "run").exists()


def test_names_of_test_sets_may_be_an_array_but_no_single_text():
    with pytest.raises(SettingsError, match="suites are names of a folder's test sets"):
        pairsmith.evaluate_sts(LOADED, [PAIR], suites=np.array(["sts12", "sick"]))
    with pytest.raises(InputError, match="suites must be a list of texts, not a single text"):
        pairsmith.evaluate_sts(LOADED, "examples", suites="sts12")


def test_numpy_numbers_are_labels_and_options():
    labels = {number: {"instruction": f'{number} <X1> "'} for number in np.array([0, 1])}
    task = pairsmith.load_task({"name": "own", "kind": "pair", "labels": labels})
    assert task.label_names == ("0", "1")
    few = task.decoding.model_copy(update={"per_input": np.int64(1), "decay": np.float32(0)})
    assert pairsmith.generate_pairs(task, MODEL, ["b"], decoding=few).requests == 2
    assert ClassifierOptions(c=np.array([0.5, 2])).c == [0.5, 2]
    assert ClassifierOptions(c=np.float32(2)).c == [2]


def test_numpy_texts_become_plain_texts():
    class Text(str):
        __slots__ = ()

    written = pairsmith.generate_pairs(TASK, MODEL, [Text("A dog runs.")], seed=1)
    assert {type(reject.id) for reject in written.rejects} == {str}
    assert type(checked_texts([Text("a")], "texts")[0]) is str


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pairsmith.mine_pairs(["a"], ["b"], LOADED, k="3"), "k must be a whole number, not '3'"),
        (lambda: pairsmith.mine_pairs(["a"], ["b"], LOADED, k=2.5), "k must be a whole number, not 2.5"),
        (lambda: pairsmith.mine_pairs(["a"], ["b"], LOADED, best=-1), "best must be at least 1, not -1"),
        (
            lambda: pairsmith.mine_pairs(["a"], ["b"], LOADED, threshold=float("nan")),
            "threshold must be a finite number, not nan",
        ),
        (
            lambda: pairsmith.mine_pairs(["a"], ["b"], LOADED, keep_verbatim="no"),
            "keep_verbatim must be True or False, not 'no'",
        ),
        (
            lambda: pairsmith.mine_pairs(["a"], ["b"], LOADED, keep_verbatim=np.array([True, False])),
            "keep_verbatim must be True or False, not array([ True, False])",
        ),
        (
            lambda: pairsmith.load_encoder("pairsmith:tiny", bidirectional="no"),
            "bidirectional must be True or False, not 'no'",
        ),
        (lambda: pairsmith.load_reader("a", fresh_head="false"), "fresh_head must be True or False"),
        (lambda: pairsmith.load_reader("a", perceptrons=None), "perceptrons must be True or False, not None"),
        (lambda: pairsmith.load_student("a", fresh_heads="0"), "fresh_heads must be True or False, not '0'"),
        (lambda: GenerationOptions(beams=10**9), "beams must be at most 1000, not 1000000000"),
        (lambda: GenerationOptions(chat="no"), "chat must be True or False, not 'no'"),
        (
            lambda: pairsmith.find_hard_negatives([("a", "b")], ["c"], LOADED, count="1"),
            "count must be a whole number, not '1'",
        ),
        (
            lambda: pairsmith.find_hard_negatives([("a", "b")], ["c"], LOADED, ranks=5),
            "ranks must be a first and a last place, counted from 1, not 5",
        ),
        (
            lambda: pairsmith.find_hard_negatives([("a", "b")], ["c"], LOADED, ranks=(1, 2.5)),
            "each of ranks must be a whole number, not 2.5",
        ),
        (
            lambda: pairsmith.find_hard_negatives([("a", "b")], ["c"], LOADED, share="a"),
            "share must be a finite number, not 'a'",
        ),
        (lambda: pairsmith.label_questions([QUESTION], LOADED, top=0), "top must be at least 1, not 0"),
        (
            lambda: pairsmith.answer_with_student(LOADED, ["a"], ["b"], max_answer_tokens=0),
            "max_answer_tokens must be at least 1, not 0",
        ),
        (lambda: pairsmith.evaluate_sts(LOADED, [PAIR], suites=["STS12"]), "suites are names of a folder's"),
        (
            lambda: pairsmith.evaluate_sts(LOADED, [PAIR], bootstrap=-1),
            "bootstrap must be at least 0, not -1",
        ),
        (lambda: pairsmith.evaluate_classification(LOADED, [TEXT], seed=None), "seed must be a whole number"),
        (
            lambda: pairsmith.generate_pairs(TASK, MODEL, ["a"], seed="1"),
            "seed must be a whole number, not '1'",
        ),
        (lambda: pairsmith.generate_pairs(TASK, MODEL, ["a"], seed=2**63), "seed must be at most"),
        (
            lambda: pairsmith.generate_texts(TEXTS_TASK, MODEL, rows=2.5),
            "rows must be a whole number, not 2.5",
        ),
        (
            lambda: pairsmith.generate_pairs(TASK, MODEL, ["a"], decoding={"top_k": 3}),
            'decoding must be a Decoding, such as task.decoding.model_copy(update={"top_k": 10}), not',
        ),
        (
            lambda: pairsmith.generate_pairs(
                TASK, MODEL, ["a"], decoding=TASK.decoding.model_copy(update={"per_inpt": 3})
            ),
            "decoding: per_inpt: unknown key; did you mean 'per_input'?",
        ),
        (
            lambda: pairsmith.generate_texts(
                TEXTS_TASK, MODEL, decoding=TEXTS_TASK.decoding.model_copy(update={"top_p": 5})
            ),
            "decoding: top_p: should be less than or equal to 1, not 5",
        ),
        (
            lambda: pairsmith.generate_pairs(TASK, MODEL, ["a"], rule=5),
            "rule must be a function or its dotted",
        ),
        (
            lambda: pairsmith.generate_pairs(TASK, MODEL, ["a"], rule=lambda *_: None),
            "the rule <lambda> must return a tensor of the shape of its arguments, (",
        ),
        (
            lambda: pairsmith.generate_pairs(TASK, MODEL, ["a"], rule=lambda p, _: p[:1]),
            "the rule <lambda> must return a tensor of the shape of its arguments, (",
        ),
        (
            lambda: pairsmith.generate_pairs(TASK, MODEL, ["a"], rule=lambda p, q: q - 2 * p),
            "the rule <lambda> must return finite weights of at least 0, some above 0; they are from -",
        ),
        (
            lambda: pairsmith.generate_pairs(TASK, MODEL, ["a"], rule=lambda p, _: p / 0),
            "the rule <lambda> must return finite weights of at least 0, some above 0; they are from ",
        ),
        (
            lambda: pairsmith.generate_pairs(TASK, MODEL, ["a"], rule=lambda p, _: 2 * p - p.mean()),
            "the rule <lambda> must return finite weights of at least 0, some above 0; they are from -",
        ),
        (
            lambda: pairsmith.generate_pairs(TASK, MODEL, ["a"], rule=lambda p, _: p + math.inf),
            "the rule <lambda> must return finite weights of at least 0, some above 0; they are from inf to inf",
        ),
        (
            lambda: pairsmith.generate_pairs(TASK, MODEL, ["a"], rule=lambda p, _: p * 0),
            "the rule <lambda> must return finite weights of at least 0, some above 0; they are from 0 to 0",
        ),
        (
            lambda: pairsmith.generate_texts(TEXTS_TASK, MODEL, rule=lambda p: p),
            "the rule <lambda> cannot be called with two arguments, p_main and p_counter: too many",
        ),
        (
            lambda: pairsmith.generate_pairs(TASK, MODEL, ["a"], rule="guidance"),
            "no rule is called 'guidance'; give package.module.function, or name a built-in rule in decoding",
        ),
        (
            lambda: pairsmith.load_question_generator("cloze", {"answers": "x"}),
            "options must be pairsmith.methods.quip.options.GenerationOptions(…)",
        ),
        (lambda: pairsmith.train_encoder(LOADED, [PAIR], progress=True), "progress must be pairsmith.core"),
        (
            lambda: pairsmith.open_dataset(None),
            "path must be the path of a folder, not of the type NoneType",
        ),
        (
            lambda: pairsmith.run_recipe({"steps": []}, "out"),
            "recipe must be the name of a recipe or the path",
        ),
        (lambda: pairsmith.run_recipe("x" * 300, "out"), "no shipped recipe is called 'xxx"),
        (
            lambda: pairsmith.run_recipe("quickstart", None),
            "out must be the path of a folder, not of the type NoneType",
        ),
        (
            lambda: pairsmith.run_recipe("quickstart", "out", seed="a"),
            "seed must be a whole number",
        ),
        (
            lambda: pairsmith.load_language_model("http://user:secret@host/v1#own"),
            "model http://***@host/v1#own: a model behind a server cannot be loaded; the step generate writes",
        ),
        (lambda: pairsmith.load_encoder("pairsmith:tiny", pooling="max"), "pooling must be one of default,"),
        (lambda: pairsmith.load_encoder("pairsmith:tiny", layers=0), "layers must be at least 1, not 0"),
        (
            lambda: pairsmith.load_encoder("pairsmith:tiny", dtype="fp16"),
            "dtype must be one of auto, float32,",
        ),
        (
            lambda: pairsmith.load_encoder("pairsmith:tiny", device=0),
            "no device is called '0'; known: auto, cpu",
        ),
    ],
)
def test_an_option_of_another_type_or_out_of_bounds_is_refused(call, message):
    with pytest.raises(SettingsError) as refused:
        call()
    assert str(refused.value).startswith(message)


class SavedModel:
    """Stands in for a model of transformers that is already loaded."""

    def save_pretrained(self, folder):
        """Never called."""


@pytest.mark.parametrize(
    "load",
    [
        pairsmith.load_language_model,
        pairsmith.load_encoder,
        pairsmith.load_reader,
        pairsmith.load_student,
        pairsmith.load_classifier,
        pairsmith.load_question_generator,
        pairsmith.load_summarizer,
        pairsmith.load_tagger,
        lambda base: pairsmith.distil([QUESTION], base, labels="answers"),
    ],
)
def test_a_model_is_loaded_by_its_name_or_path_alone(load, tmp_path):
    with pytest.raises(SettingsError, match="the name of a model or the path of a folder; it is None$"):
        load(None)
    with pytest.raises(
        SettingsError, match="of the type SavedModel; save it in a folder, and give the folder"
    ):
        load(SavedModel())
    with pytest.raises(UserError, match="no-model"):
        load(tmp_path / "no-model")


def test_a_summarizer_is_loaded_without_arguments_of_a_training():
    names = inspect.signature(pairsmith.load_summarizer).parameters
    assert list(names) == ["model", "device", "dtype", "max_length"]
    with pytest.raises(SettingsError, match="^max_length must be at least 8, not 7$"):
        pairsmith.load_summarizer("pairsmith:tiny", max_length=7)


@pytest.mark.parametrize("column", [pa.array(["Ann saw Bob."]), pa.chunked_array([["Ann saw Bob."]])])
def test_texts_may_be_a_column_of_a_table(column):
    generator = pairsmith.load_question_generator("cloze")
    expected = pairsmith.generate_questions(["Ann saw Bob."], generator)
    assert pairsmith.generate_questions(column, generator) == expected


def test_a_task_can_be_given_as_a_mapping():
    labels = {
        label: {"instruction": f'Task: Write {label}.\nText 1: "<X1>"\nText 2: "', "counter_labels": "others"}
        for label in ("same", "other")
    }
    task = pairsmith.load_task(
        {"name": "own", "description": "Two labels.", "kind": "pair", "labels": labels}
    )
    assert (task.label_names, task.counters("same")) == (("same", "other"), ("other",))
    del labels["other"]["instruction"]
    with pytest.raises(TaskError, match=r"^labels\.other\.instruction: missing"):
        pairsmith.load_task({"name": "own", "description": "d", "kind": "pair", "labels": labels})
    with pytest.raises(TaskError, match="or as a mapping, not as an object of the type list"):
        pairsmith.load_task(["sts"])


def test_a_classifier_predicts_nothing_for_no_texts_and_refuses_blank_ones():
    classifier = TextClassifier(LOADED, ("bad", "good"), np.zeros((2, 3)), np.zeros(2), None)
    assert classifier.predict([]) == []
    encoder = pairsmith.load_encoder("pairsmith:tiny", device="cpu")
    untrained = TextClassifier(
        encoder, ("bad", "good"), np.zeros((2, 256), np.float32), np.zeros(2, np.float32)
    )
    for scores in (untrained.scores, untrained.confidences):
        assert scores([]).shape == (0, 2)
        with pytest.raises(SettingsError, match="batch_size must be at least 1, not 0"):
            scores(["a"], batch_size=0)
    with pytest.raises(InputError, match=r"^texts\[1\] is blank; leave it out$"):
        classifier.predict(["a", ""])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: pairsmith.generate_pairs(TASK, MODEL, ["a", float("nan")]),
            "inputs[1] is a missing value (nan); leave it out, as with Series.dropna()",
        ),
        (
            lambda: pairsmith.make_training_set(GeneratedRows([PAIR], [], 1, 1)),
            "rows must be a list of ScoredPairs or LabelledPairs or LabelledTexts; it is of the type "
            "GeneratedRows; give its rows",
        ),
        (
            lambda: pairsmith.train_encoder(LOADED, TrainingSet([PAIR], [], [], 0)),
            "pairs must be a list of ScoredPairs; it is of the type TrainingSet; give its train",
        ),
        (
            lambda: pairsmith.evaluate_sts(LOADED, Table()),
            "data must be a list of GradedPairs or ScoredPairs; it is of the type Table; give "
            '[GradedPair(**record) for record in frame.to_dict("records")]',
        ),
        (
            lambda: pairsmith.find_hard_negatives(Table(), ["a"], LOADED),
            "pairs must be a list of pairs of texts; it is of the type Table; give zip(…) of two of its columns",
        ),
        (
            lambda: pairsmith.generate_pairs(TASK, MODEL, Dataset.from_dict({"text": ["a"]})),
            "inputs must be a list of texts; it is of the type Dataset; give one of its columns",
        ),
        (
            lambda: pairsmith.train_classifier(LOADED, Dataset.from_dict({"text": ["a"]})),
            "texts must be a list of LabelledTexts; it is of the type Dataset; give "
            "[LabelledText(**record) for record in dataset]",
        ),
        (
            lambda: pairsmith.train_classifier(LOADED, pa.table({"text": ["a"]})),
            "texts must be a list of LabelledTexts; it is of the type Table; give "
            "[LabelledText(**record) for record in table.to_pylist()]",
        ),
        (
            lambda: pairsmith.generate_pairs(TASK, MODEL, Path("mails.txt")),
            "inputs must be a list of texts; it is of the type PosixPath; give the lines of the file, as in "
            'path.read_text("utf-8").splitlines()',
        ),
        (
            lambda: pairsmith.find_hard_negatives([MINED], ["a"], LOADED),
            "pairs must be a list of pairs of texts, (query, positive); pairs[0] is of the type MinedPair; give "
            "(row.input, row.output) of each row",
        ),
        (
            lambda: pairsmith.find_hard_negatives([PAIR], ["a"], LOADED),
            "pairs must be a list of pairs of texts, (query, positive); pairs[0] is of the type ScoredPair; give "
            "(row.sentence1, row.sentence2) of each row",
        ),
    ],
)
def test_the_message_says_what_to_give_instead(call, message):
    with pytest.raises(InputError) as refused:
        call()
    assert str(refused.value) == message


def test_the_message_about_a_folder_of_rows_is_a_line_that_reads_them(tmp_path):
    write_folder(tmp_path / "pairs", {"train": to_table([PAIR, PAIR], SCORED_PAIR)})
    folder = pairsmith.open_dataset(tmp_path / "pairs")
    with pytest.raises(InputError) as refused:
        pairsmith.train_encoder(LOADED, folder)
    start, line = str(refused.value).split("; give ")
    assert start == "pairs must be a list of ScoredPairs; it is of the type DatasetFolder"
    assert eval(line, {"ScoredPair": ScoredPair, "folder": folder}) == [PAIR, PAIR]


def test_the_rows_of_an_array_are_pairs():
    assert checked_pairs(np.array([["a", "b"], ["c", "d"]]), "pairs") == [["a", "b"], ["c", "d"]]


def test_the_result_of_a_training_in_place_of_its_model_is_refused():
    trained = TrainedModel(LOADED, 1e-5, TrainingHistory(1, 1, "f1", {}, 0.0))
    with pytest.raises(
        SettingsError, match="load_student returns; it is of the type TrainedModel; give its model$"
    ):
        pairsmith.answer_with_student(trained, ["a"], ["b"])


def test_what_functions_return_is_shown_in_one_line():
    assert repr(GeneratedRows([PAIR] * 2000, [], 3, 2)) == (
        "GeneratedRows(2,000 rows, 0 rejects, 2 of 3 requests complete)"
    )
    assert repr(TrainingSet([PAIR], [], [], 1)) == (
        "TrainingSet(1 training row, 0 validation rows, 0 rejects, 1 negative)"
    )
