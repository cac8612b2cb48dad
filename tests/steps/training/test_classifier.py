"""The steps train-classifier and evaluate classification, on a small random encoder and the bundled model."""

import json
import re

import numpy as np
import pyarrow as pa
import pytest
from sentence_transformers import SentenceTransformer
from sklearn.linear_model import LogisticRegression
from tests.planned import planned
from tests.tools.report.test_parts import read
from tests.training.few import write

import pairsmith
from pairsmith.cli.app import main
from pairsmith.core.errors import InputError, ModelError, OtherWorkError, SettingsError
from pairsmith.core.progress import Silent
from pairsmith.data.labelled_texts import LabelledTexts, read_labelled_texts
from pairsmith.data.schemas import LabelledText
from pairsmith.methods.dino.classifier import distinct, train_classifier_on
from pairsmith.methods.dino.options import ClassifierOptions
from pairsmith.models.classifier import TextClassifier, load_classifier, text_unit_vectors
from pairsmith.models.sentence_encoder import load_sentence_encoder
from pairsmith.runs import Run
from pairsmith.runs.estimate import Estimate
from pairsmith.steps.evaluate.classification import (
    _gold_labels,
    classification_table,
    evaluate_classification,
)
from pairsmith.steps.evaluate.classification_settings import EvaluateClassificationSettings
from pairsmith.steps.training.classifier import plan_train_classifier, train_classifier
from pairsmith.steps.training.settings import TrainClassifierSettings
from pairsmith.tools.report.route import report
from pairsmith.tools.settings import ReportSettings
from pairsmith.training.processes import Processes

pytestmark = pytest.mark.slow

GOOD = [
    "A fine film.",
    "I loved this movie.",
    "Great actors and a great story.",
    "What a joy!",
    "Lovely.",
    "So good.",
]
BAD = [
    "A dull film.",
    "I hated this movie.",
    "Poor actors and no story.",
    "What a bore!",
    "Awful.",
    "So bad.",
]
ROWS = [{"text": text, "label": label} for pair in zip(GOOD, BAD, strict=True) for text, label in zip(pair, ("good", "bad"), strict=True)]  # fmt: skip


class Said(Silent):
    """Keeps what is said."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def say(self, text):
        self.lines.append(text)

    def result(self, text):
        self.lines.append(text)


@pytest.fixture
def given(tmp_path, tiny_bert):
    def make(**changes):
        own = {"base": str(tiny_bert), "data": write(tmp_path / "rows.jsonl", ROWS), "device": "cpu"}
        return TrainClassifierSettings(**(own | changes))

    return make


@pytest.fixture
def trained(given, tmp_path):
    train_classifier(given(), Run(tmp_path / "model", Silent()))
    return tmp_path / "model"


def measured(tmp_path, rows, progress=None, **changes):
    data = write(tmp_path / "test.jsonl", rows)
    settings = EvaluateClassificationSettings(**({"data": data, "device": "cpu", "bootstrap": 50} | changes))
    return evaluate_classification(settings, Run(tmp_path / "out", progress or Silent()))


def test_a_trained_folder_opens_and_classifies(trained):
    record = json.loads((trained / "training.json").read_text())
    assert record["complete"]
    assert record["texts"] == {"bad": 6, "good": 6}
    assert (record["c"], record["measured_on"], record["choices"]) == (1.0, "", [])
    assert not list(trained.rglob("*.bin")) + list(trained.rglob("*.pkl"))
    classifier = load_classifier(str(trained), device="cpu")
    assert classifier.labels == ("bad", "good")
    assert set(classifier.predict([*GOOD, *BAD])) <= {"bad", "good"}


@pytest.mark.parametrize("labels", [["a", "b"], ["a", "b", "c"]])
def test_the_head_is_scikit_learns(tiny_bert, labels):
    encoder = load_sentence_encoder(str(tiny_bert), device="cpu")
    texts = [*GOOD, *BAD]
    # The first label is the most frequent, so that equal weights of the labels are not those of the texts.
    rows = LabelledTexts(texts, [labels[n % len(labels) if n < 6 else 0] for n in range(12)], 0)
    classifier, training = train_classifier_on(encoder, rows, None, ClassifierOptions(c=3.0))
    vectors = text_unit_vectors(encoder, texts)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    theirs = LogisticRegression(C=3.0, class_weight="balanced", max_iter=1000).fit(
        vectors.astype(float), rows.labels
    )
    scores = classifier.scores(texts).astype(float)
    shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(shares, theirs.predict_proba(vectors.astype(float)), atol=1e-5)
    assert (training.c, training.measured_on, training.curve) == (3.0, "", {})


def test_the_snippet_on_the_card_gives_the_same_labels(trained, capsys):
    card = (trained / "README.md").read_text()
    snippet = re.search(r"```python\n(.*?)```", card, re.DOTALL)[1].replace(
        "path/to/this/folder", str(trained)
    )
    exec(compile(snippet, "card", "exec"), {})
    expected = load_classifier(str(trained), device="cpu").predict(["A film to fall in love with."])
    assert capsys.readouterr().out.strip().endswith(str(expected))
    assert isinstance(SentenceTransformer(str(trained), device="cpu").encode("x"), np.ndarray)
    assert "pipeline_tag: text-classification" in card


def test_a_finished_folder_is_left_alone_and_another_setting_refused(given, trained, tmp_path):
    before = (trained / "training.json").stat().st_mtime_ns
    said = Said()
    train_classifier(given(), Run(trained, said))
    assert "already trained" in said.lines[-1]
    assert (trained / "training.json").stat().st_mtime_ns == before
    with pytest.raises(OtherWorkError, match="with other settings: c: "):
        train_classifier(given(c=[5.0]), Run(trained, Silent()))
    again = tmp_path / "again"
    train_classifier(given(), Run(again, Silent()))
    for name in ("classifier.safetensors", "classifier.json", "README.md", "trained-on.txt"):
        assert (again / name).read_bytes() == (trained / name).read_bytes()


def test_labels_that_differ_only_in_capitals_are_told(given, tmp_path):
    data = write(tmp_path / "more.jsonl", [*ROWS, {"text": "It is long.", "label": "Bad"}])
    said = Said()
    train_classifier(given(data=data), Run(tmp_path / "model", said))
    assert "Bad, bad are different labels; if they are one, rename them in the data" in said.lines


@pytest.mark.parametrize(
    ("labels", "counts"),
    [
        (["good", "bad"], "3 × good, 2 × bad"),
        ([f"topic {n:02}" for n in range(13)], "13 labels, from 2 × topic 12 to 3 × topic 00"),
    ],
)
def test_the_columns_and_the_number_of_texts_of_each_label_are_told(given, tmp_path, labels, counts):
    rows = [{"Message": f"{n} of {label}", "category": label} for label in labels for n in range(2)]
    rows.append({"Message": "another", "category": labels[0]})
    said = Said()
    data = write(tmp_path / "messages.jsonl", rows)
    train_classifier(given(data=data, text_column="Message"), Run(tmp_path / "model", said))
    start = "the texts are read from the column 'Message', their labels from 'category': "
    assert f"{start}{counts}" in said.lines


def test_repeats_and_contradictions_are_left_out_and_told(given, tmp_path):
    more = [ROWS[0], {"text": "It is long.", "label": "good"}, {"text": "It is long.", "label": "bad"}, {"text": " ", "label": "bad"}]  # fmt: skip
    data = write(tmp_path / "more.jsonl", [*ROWS, *more])
    said = Said()
    train_classifier(given(data=data), Run(tmp_path / "model", said))
    text = "\n".join(said.lines)
    assert "1 row is left out: the text is blank" in text
    assert "different labels" not in text
    assert "1 of 15 texts are left out because they repeat an earlier one" in text
    assert "2 of 15 texts are left out because the same text has several labels" in text


def test_distinct_texts():
    rows = LabelledTexts(["a", "b", "a", "c", "c"], ["x", "y", "x", "x", "y"], 0)
    assert distinct(rows) == (["a", "b"], ["x", "y"], 1, 2)


def test_the_validation_texts_choose_c(given, tmp_path):
    validation = write(tmp_path / "validation.jsonl", ROWS[:4])
    train_classifier(given(validation=validation, c=[0.1, 1, 10]), Run(tmp_path / "model", Silent()))
    record = json.loads((tmp_path / "model" / "training.json").read_text())
    assert record["measured_on"] == "4 validation texts"
    assert [choice["c"] for choice in record["choices"]] == [0.1, 1.0, 10.0]
    assert record["c"] == min(record["choices"], key=lambda choice: choice["log_loss"])["c"]
    assert set(record["inputs"]) == {"data", "validation"}


def test_cross_validation_chooses_among_several(given, tmp_path):
    train_classifier(given(c=[0.1, 1, 10]), Run(tmp_path / "model", Silent()))
    record = json.loads((tmp_path / "model" / "training.json").read_text())
    assert record["measured_on"] == "cross-validation"
    assert record["c"] == min(record["choices"], key=lambda choice: choice["log_loss"])["c"]
    assert "that was tried, measured on cross-validation (" in (tmp_path / "model" / "README.md").read_text()


def test_a_label_with_one_text_leaves_nothing_to_choose_by(given, tmp_path):
    said = Said()
    few = write(tmp_path / "few.jsonl", ROWS[:3])
    train_classifier(given(data=few, c=[0.1, 1, 10, 100]), Run(tmp_path / "model", said))
    assert "a label has a single text, so C cannot be chosen; C 1 is used" in said.lines
    assert json.loads((tmp_path / "model" / "training.json").read_text())["c"] == 1.0


@pytest.mark.parametrize(
    ("rows", "validation", "words"),
    [
        (ROWS[::2], None, r"rows2.jsonl: a classifier needs texts of at least two labels; .* all 6 have the label 'good'"),
        ([ROWS[0], {**ROWS[0], "label": "bad"}], None, "at least two labels; .* none are left"),
        (ROWS, [{"text": "x", "label": "fair"}], "the validation texts have the labels fair, .* the training texts have: bad, good"),
    ],
)  # fmt: skip
def test_what_cannot_be_trained_on_is_told(given, tmp_path, rows, validation, words):
    more = {"validation": write(tmp_path / "validation.jsonl", validation)} if validation else {}
    with pytest.raises(InputError, match=words):
        train_classifier(
            given(data=write(tmp_path / "rows2.jsonl", rows), **more), Run(tmp_path / "model", Silent())
        )


@pytest.mark.parametrize(
    ("c", "words"), [([0.0], "above 0"), ([1.0, 1.0], "give each C once"), ([], "at least 1")]
)
def test_settings_of_c(c, words):
    with pytest.raises(ValueError, match=words):
        ClassifierOptions(c=c)


# evaluation


def test_an_evaluation_with_other_label_names_and_rows_that_were_trained_on(trained, tmp_path):
    said = Said()
    rows = [
        {"text": GOOD[0].upper(), "label": 1},
        {"text": "Something else.", "label": 0},
        {"text": "", "label": 1},
    ]
    results = measured(tmp_path, rows, said, model=str(trained), map=["0=bad", "1=good"])
    assert (results["count"], results["blank"], results["trained_on"]) == (2, 1, 1)
    assert any(
        line.startswith("1 of 2 texts are among those that the classifier was trained on")
        for line in said.lines
    )
    predictions = [
        json.loads(line) for line in (tmp_path / "out" / "predictions.jsonl").read_text().splitlines()
    ]
    assert [prediction["label"] for prediction in predictions] == ["good", "bad"]
    assert all(0.5 <= prediction["score"] <= 1 for prediction in predictions)
    again = measured(tmp_path, rows, said, model=str(trained), map={"0": "bad", "1": "good"})
    assert again == results
    assert any("already evaluated" in line for line in said.lines)


def test_by_the_names_of_labels(tiny_bert, tmp_path):
    names = ["good=A fine film.", "good=Lovely.", "bad=A dull film."]
    results = measured(tmp_path, ROWS, model=str(tiny_bert), name=names)
    assert results["count"] == 12
    assert results["labels"].keys() == {"good", "bad"}
    predictions = [
        json.loads(line) for line in (tmp_path / "out" / "predictions.jsonl").read_text().splitlines()
    ]
    assert predictions[1]["predicted"] == "bad"
    assert predictions[1]["score"] == pytest.approx(1, abs=1e-3)  # the name itself


def test_labels_that_are_whole_numbers_match_however_they_are_spelled(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("text,label\nx,1.0\ny,2.0\nz,1\n")
    for labels in ({"1.0", "2.0"}, {"1", "2"}):
        evaluate_classification.check_data(EvaluateClassificationSettings(model="m", data=str(file)), labels)
    given = EvaluateClassificationSettings(model="m", data=str(file))
    for labels, expected in (
        (["1.0", "2.0"], "1.0"),
        (["1", "1.0", "2"], "1"),
    ):  # the label itself comes first
        gold = _gold_labels(given, read_labelled_texts(str(file)), labels)
        assert [gold[0], gold[2]] == [expected, expected]
    mapped = EvaluateClassificationSettings(model="m", data=str(file), map=["1.0=a", "2=3.0"])
    evaluate_classification.check_data(mapped, {"a", "3"})
    with pytest.raises(InputError, match="the model does not know the labels 2;"):
        evaluate_classification.check_data(
            EvaluateClassificationSettings(model="m", data=str(file)), {"1", "2.5"}
        )


def test_one_label_is_warned_of(trained, tmp_path):
    said = Said()
    measured(tmp_path, ROWS[::2], said, model=str(trained))
    assert "all texts have the label good: the figures say nothing about other labels" in said.lines


@pytest.mark.parametrize(
    ("rows", "changes", "error", "words"),
    [
        ([{"text": "x", "label": "0"}], {}, InputError, "does not know the labels 0; it knows bad, good; .* --map 0=LABEL"),
        (ROWS, {"map": ["0=bad"]}, InputError, "--map 0=bad: no row of .* has this label"),
        (ROWS, {"map": ["good=god"]}, InputError, "--map good=god: did you mean"),
        (ROWS, {"name": ["good=x", "bad=y"]}, SettingsError, "--name is for an encoder"),
        (
            ROWS,
            {"model": "pairsmith:tiny", "name": ["pos=good", "neg=bad"]},
            InputError,
            "--name describes neg, pos; .* --map bad=LABEL, or describe them with --name$",
        ),
        (ROWS, {"model": "pairsmith:tiny"}, ModelError, "pairsmith:tiny is no classifier; .* --name good="),
        (ROWS, {"model": "no/such/folder"}, ModelError, "no/such/folder"),
    ],
)  # fmt: skip
def test_what_cannot_be_evaluated_is_told(trained, tmp_path, rows, changes, error, words):
    with pytest.raises(error, match=words):
        measured(tmp_path, rows, **({"model": str(trained)} | changes))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"map": ["bad"]}, "map is 'bad'; give OLD=NEW"),
        ({"name": ["good="]}, "name is 'good='; give LABEL=TEXT"),
        ({"name": ["good=x"]}, "two labels or more"),
        ({"map": ["0=a", "0=b"]}, "map names 0 twice"),
    ],
)
def test_assignments(changes, words):
    with pytest.raises(ValueError, match=words):
        EvaluateClassificationSettings(model="m", data="d", **changes)


def test_a_damaged_head_is_told(trained):
    (trained / "classifier.json").write_text('{"labels": ["a", "b", "c"]}')
    with pytest.raises(ModelError, match="does not fit 3 labels"):
        load_classifier(str(trained), device="cpu")
    (trained / "classifier.safetensors").write_bytes(b"no")
    with pytest.raises(ModelError, match="its classifier cannot be read"):
        load_classifier(str(trained), device="cpu")


def test_several_processes_are_refused(given, tmp_path, monkeypatch):
    monkeypatch.setattr("pairsmith.steps.training.classifier.Processes.current", lambda: Processes(0, 2))
    with pytest.raises(SettingsError, match="runs in one process"):
        train_classifier(given(), Run(tmp_path / "model", Silent()))


def test_plans(given, trained, tmp_path):
    estimate = plan_train_classifier(given(), {})
    assert estimate.seconds > 0
    with pytest.raises(InputError, match="at least two labels"):
        plan_train_classifier(given(data=write(tmp_path / "one.jsonl", ROWS[::2])), {})
    assert estimate.disk >= (trained / "model.safetensors").stat().st_size
    settings = EvaluateClassificationSettings(model=str(trained), data=write(tmp_path / "t.jsonl", ROWS))
    assert evaluate_classification.plan(settings, {}).seconds > 0


def test_a_plan_counts_and_checks_the_validation_texts(given, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "pairsmith.steps.training.classifier.timed", lambda load, _: (load() and 0.0, 1.0, None)
    )
    validation = write(tmp_path / "validation.jsonl", ROWS[:2])
    assert plan_train_classifier(given(validation=validation), {}).seconds == len(ROWS) + 2
    other = write(tmp_path / "other.jsonl", [{"text": "So so.", "label": "middling"}])
    with pytest.raises(InputError, match="the validation texts have the labels middling"):
        plan_train_classifier(given(validation=other), {})


@pytest.mark.parametrize("column", [None, "review"])
def test_the_plan_of_an_evaluation_reads_the_column_that_is_named(trained, column):
    settings = EvaluateClassificationSettings(model=str(trained), data="@texts", text_column=column)
    sample = pa.table({"id": ["1"], column or "sentence": ["Ten letters"], "label": ["a"]})
    before = {"@texts": Estimate(1.0, 1, 1, {"train": 90}, sample=sample)}
    assert planned("evaluate-classification", settings, before).disk == 4096 + 90 * (11 + 80)
    before = {"@texts": Estimate(1.0, 1, 1, {"train": 0}, sample=sample.slice(0, 0))}
    assert planned("evaluate-classification", settings, before).disk == 0  # there is nothing to do


def test_the_whole_way_with_the_bundled_model(tmp_path, tiny_bert, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for line in (
        "generate --task movie-sentences --per-input 6 --out texts",
        "postprocess --data texts --validation 0.3 --out clean",
        f"train-classifier --base {tiny_bert} --data clean --out classifier",
        "evaluate classification --model classifier --data clean:validation --out measured",
        "report --data measured --out page",
        "report --data classifier --out page2",
        "mix --data clean --out mixed",
        "export --data clean --form csv --out table",
    ):
        with pytest.raises(SystemExit) as ended:
            main(line.split())
        assert ended.value.code == 0, (line, capsys.readouterr().err)
    assert {"accuracy", "macro_f1"} <= json.loads((tmp_path / "measured" / "results.json").read_text()).keys()
    record = json.loads((tmp_path / "classifier" / "training.json").read_text())
    measured = json.loads((tmp_path / "measured" / "results.json").read_text())
    measured_on = f"{measured['count']} validation texts"
    assert record["measured_on"] == measured_on
    page = (tmp_path / "page2" / "report.html").read_text()
    assert measured_on in page
    assert f"{sum(record['texts'].values())}: " in page
    assert "log loss" in page
    assert "clean:validation: a program wrote these texts; the figures show" in capsys.readouterr().err


def test_all_right_and_texts_of_a_program_are_told(trained, tmp_path):
    said = Said()
    labels = load_classifier(str(trained), device="cpu").predict([*GOOD, *BAD])
    rows = [{"text": text, "label": label} for text, label in zip([*GOOD, *BAD], labels, strict=True)]
    assert measured(tmp_path, rows, said, model=str(trained))["accuracy"] == 100
    # 0.05 ** (1 / 12) = 0.779
    assert (
        "all are correct: with so many texts the accuracy may still be as low as 77.9 (95 %)"
        in said.lines[-1]
    )
    assert not any("a program wrote" in line for line in said.lines)


def test_the_page_of_an_evaluation_shows_what_was_taken_for_what_and_wrong_texts(trained, tmp_path):
    swapped = [{"text": row["text"], "label": {"good": "bad", "bad": "good"}[row["label"]]} for row in ROWS]
    results = measured(tmp_path, swapped, model=str(trained))
    page = report(ReportSettings(data=str(tmp_path / "out"), examples=4), Run(tmp_path / "page", Silent()))
    text = " ".join("".join(read(page.read_text(encoding="utf-8")).text).split())
    assert "Label by label" in text
    for label, row in results["confusion"].items():
        assert f"{label}{row['bad']}{row['good']}" in text
    rows = [json.loads(line) for line in (tmp_path / "out" / "predictions.jsonl").read_text().splitlines()]
    wrong = sorted((row for row in rows if row["label"] != row["predicted"]), key=lambda row: -row["score"])
    assert len(wrong) > 4  # so that some are left out
    for row in wrong[:4]:
        assert f"{row['label']}, predicted {row['predicted']} ({row['score']:.2f})" in text
        assert row["text"] in text
    assert wrong[-1]["text"] not in text


def test_a_users_mistake_ends_with_2(tmp_path, capsys):
    data = write(tmp_path / "rows.jsonl", ROWS)
    with pytest.raises(SystemExit) as ended:
        main(
            [
                "evaluate",
                "classification",
                "--model",
                "pairsmith:tiny",
                "--data",
                data,
                "--out",
                str(tmp_path / "o"),
            ]
        )
    assert ended.value.code == 2
    assert "is no classifier" in capsys.readouterr().err


def test_from_python(tiny_bert):
    encoder = pairsmith.load_encoder(str(tiny_bert), device="cpu")
    rows = [LabelledText(str(n), row["text"], row["label"]) for n, row in enumerate(ROWS)]
    classifier = pairsmith.train_classifier(encoder, rows, rows[:4], c=[1.0, 5.0])
    figures = pairsmith.evaluate_classification(classifier, rows, bootstrap=20)
    assert figures["count"] == 12
    right = sum(
        a == b.label for a, b in zip(classifier.predict([row.text for row in rows]), rows, strict=True)
    )
    assert figures["accuracy"] == pytest.approx(100 * right / 12, abs=1e-3)
    with pytest.raises(SettingsError, match="epochs: unknown key; known: balanced, batch_size, c, seed"):
        pairsmith.train_classifier(encoder, rows, epochs=3)
    with pytest.raises(SettingsError, match="train_classifier: c: "):
        pairsmith.train_classifier(encoder, rows, c=[-1.0])
    with pytest.raises(InputError, match="does not know the labels fair; it knows bad, good"):
        pairsmith.evaluate_classification(classifier, [LabelledText("1", "x", "fair")])
    with pytest.raises(InputError, match="texts is empty; give at least one LabelledText"):
        pairsmith.evaluate_classification(classifier, [])


@pytest.mark.parametrize("names", [("1", "2.5"), ("1.0", "2.5")])
def test_from_python_a_label_matches_however_it_is_spelled(tiny_bert, names):
    encoder = load_sentence_encoder(str(tiny_bert), device="cpu")
    width = encoder.get_embedding_dimension()
    classifier = TextClassifier(
        encoder, names, np.zeros((2, width), np.float32), np.array([1, 0], np.float32)
    )
    rows = [LabelledText(label, f"a film of {label}", label) for label in ("1", "1.0", "2.5")]
    figures = pairsmith.evaluate_classification(classifier, rows, bootstrap=0)
    assert [figures["labels"][name]["count"] for name in names] == [2, 1]
    learned = pairsmith.train_classifier(encoder, [*rows, LabelledText("4", "a play", "2.50")], c=[1.0])
    assert learned.labels == ("1", "2.5", "2.50")


def test_a_classifier_by_hand(tiny_bert):
    encoder = load_sentence_encoder(str(tiny_bert), device="cpu")
    width = encoder.get_embedding_dimension()
    classifier = TextClassifier(
        encoder, ("x", "y"), np.zeros((2, width), np.float32), np.array([0, 1], np.float32)
    )
    assert classifier.predict(["anything"]) == ["y"]


def test_wide_labels_take_two_columns_a_letter():
    labels = ["苦情と質問です", "other"]
    results = {
        "count": 2,
        "largest": 50.0,
        **dict.fromkeys(("accuracy", "macro_f1"), 50.0),
        **{f"{name}_ci": [40.0, 60.0] for name in ("accuracy", "macro_f1")},
        "labels": {key: {"count": 1, "precision": 50.0, "recall": 50.0, "f1": 50.0} for key in labels},
        "confusion": {label: dict.fromkeys(labels, 1) for label in labels},
    }
    heading, first, second = classification_table(results).splitlines()[-3:]
    assert heading == " " * 18 + "苦情と質問です" + " " * 11 + "other"
    assert first == "苦情と質問です" + " " * 17 + "1" + " " * 15 + "1"
    assert second == "other" + " " * 26 + "1" + " " * 15 + "1"


def test_long_labels_that_begin_alike_are_shown_whole():
    alike = ["invoice received twice by a private customer", "invoice received twice by a company"]
    labels = [*alike, "another matter, named at great length"]
    figures = {"count": 2, "precision": 50.0, "recall": 50.0, "f1": 50.0}
    results = {
        "count": 6,
        "largest": 33.0,
        **dict.fromkeys(("accuracy", "macro_f1"), 50.0),
        **{f"{name}_ci": [40.0, 60.0] for name in ("accuracy", "macro_f1")},
        "labels": dict.fromkeys(labels, figures),
        "confusion": {label: dict.fromkeys(labels, 1) for label in labels},
    }
    table = classification_table(results)
    assert [table.count(label) for label in alike] == [3, 3]  # its figures, its line and its column
    assert labels[2] not in table
    assert table.count(labels[2][:24]) == 3


def test_a_classifier_that_was_trained_in_python_is_saved_and_loaded(tiny_bert, tmp_path):
    encoder = pairsmith.load_encoder(tiny_bert, device="cpu")
    rows = [LabelledText(str(number), **row) for number, row in enumerate(ROWS)]
    classifier = pairsmith.train_classifier(encoder, rows, c=[1.0])
    assert repr(classifier) == "TextClassifier(2 labels: bad, good, device=cpu)"
    classifier.save(tmp_path / "saved")
    loaded = pairsmith.load_classifier(tmp_path / "saved", device="cpu")
    assert loaded.labels == classifier.labels
    assert loaded.trained_on == classifier.trained_on
    np.testing.assert_allclose(loaded.confidences(GOOD), classifier.confidences(GOOD), atol=1e-6)
    assert SentenceTransformer(str(tmp_path / "saved"), device="cpu").encode(GOOD).shape == (6, 16)
