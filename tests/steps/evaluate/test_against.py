"""The option ``--against`` of evaluations: differences from an earlier result on the same rows."""

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from sklearn.metrics import f1_score, roc_auc_score
from tests.tiny_bart import write_documents

from pairsmith.cli import planning
from pairsmith.cli.app import main
from pairsmith.core.errors import FolderError
from pairsmith.core.progress import Progress, Silent
from pairsmith.methods.quip.sentiment import Judged
from pairsmith.metrics.classification import accuracy, confusion_matrix, macro_f1
from pairsmith.runs import Run
from pairsmith.steps.evaluate import classification, ner, paraphrase, qa, sentiment
from pairsmith.steps.evaluate.classification_settings import EvaluateClassificationSettings
from pairsmith.steps.evaluate.settings import EvaluateQaSettings, EvaluateSummariesSettings
from pairsmith.steps.evaluate.summaries import evaluate_summaries
from pairsmith.steps.evaluate.transfer_settings import (
    EvaluateNerSettings,
    EvaluateParaphraseSettings,
    EvaluateSentimentSettings,
)

pytestmark = pytest.mark.slow

GOLD = ["red", "blue", "green", "grey", "black", "white"]


def lines(out):
    return [json.loads(line) for line in (out / "predictions.jsonl").read_text().splitlines()]


def limits_by_numpy(figure, own, earlier, bootstrap, seed):
    """The interval of a difference; ``figure`` is computed from the drawn rows of each evaluation."""
    rng, draws = np.random.default_rng(seed), []
    for _ in range(bootstrap):
        rows = rng.integers(0, len(own), size=len(own))
        draws.append(figure([own[row] for row in rows]) - figure([earlier[row] for row in rows]))
    return np.nanpercentile(draws, [2.5, 97.5])


def check(results, name, figure, own, earlier, *, bootstrap=200, seed=0):
    difference = results["against"][name]
    assert difference["difference"] == pytest.approx(figure(own) - figure(earlier), abs=1e-3)
    limits = limits_by_numpy(figure, own, earlier, bootstrap, seed)
    assert difference["difference_ci"] == pytest.approx(list(limits), abs=1e-3)


# Answers to questions


def write_questions(path, gold=GOLD):
    rows = (
        {
            "id": f"q{number}",
            "question": f"What is in box {number}?",
            "context": f"In box {number} is a {answer} ball.",
            "answers": {"text": [answer], "answer_start": [len(f"In box {number} is a ")]},
        }
        for number, answer in enumerate(gold)
    )
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


@pytest.fixture
def answering(monkeypatch, tiny_bert, tmp_path):
    """Evaluate answers that are given, in the place of a model's."""

    def evaluate(answers, out, progress=None, **more):
        def answerer(settings, progress):
            return lambda _: answers

        monkeypatch.setattr(qa, "answerer", answerer)
        given = {"data": str(tmp_path / "questions.jsonl"), "bootstrap": 200} | more
        settings = EvaluateQaSettings(model=str(tiny_bert), device="cpu", **given)
        return qa.evaluate_qa(settings, Run(out, progress or Silent()))

    write_questions(tmp_path / "questions.jsonl")
    return evaluate


def test_answers_are_compared_question_by_question(answering, tmp_path, capsys):
    # Four of six are exact, and one half right (F1 of "a dark grey" and "grey": 2/3), after two of six.
    before, after = tmp_path / "before", tmp_path / "after"
    answering(["red", "blue", "no", "no", "no", "no"], before)
    results = answering(
        ["red", "blue", "green", "a dark grey", "black", "no"], after, Progress(), against=str(before), seed=3
    )
    against = results["against"]
    assert list(against) == ["folder", "model", "exact", "f1"]
    assert against["folder"] == str(before)
    assert against["exact"]["difference"] == pytest.approx(100 * 2 / 6, abs=1e-4)
    assert against["f1"]["difference"] == pytest.approx(100 * (2 + 2 / 3) / 6, abs=1e-3)
    for name in ("exact", "f1"):

        def mean(rows, name=name):
            return 100 * np.mean([row[name] for row in rows])

        check(results, name, mean, lines(after), lines(before), seed=3)
    assert json.loads((after / "results.json").read_text()) == results
    said = capsys.readouterr()
    low, high = against["f1"]["difference_ci"]
    assert f"compared with {before} (bert), over the same questions" in said.out
    assert f"f1            +44.44  [{low:+.2f}, {high:+.2f}]  {against['f1']['verdict']}" in said.out
    assert "6 questions are few, which makes the intervals too narrow" in said.err
    assert "compared with before (bert), over the same questions" in (after / "README.md").read_text()
    same = answering(["red", "blue", "no", "no", "no", "no"], tmp_path / "same", against=str(before))
    assert same["against"]["f1"] == {
        "difference": 0.0, "difference_ci": [0.0, 0.0], "verdict": "within noise",
    }  # fmt: skip
    assert "against" not in answering(GOLD, after, seed=3)  # finished, and asked for no comparison


def test_results_on_other_rows_are_refused_before_the_model_answers(answering, tmp_path):
    before = tmp_path / "before"
    answering(GOLD, before)

    def refused(said, gold, against=before):
        write_questions(tmp_path / "questions.jsonl", gold)
        with pytest.raises(FolderError) as error:
            answering([], tmp_path / "out", against=str(against))
        assert said in str(error.value)
        assert not (tmp_path / "out").exists()

    advice = "give a result on the same rows in the same order, or first evaluate its model on these data"
    refused(
        f"--against {before}: measured on other questions (there 6, here 6): row 2 has the answers \"['blue']\" "
        f"there, \"['green']\" here; {advice}",
        ["red", "green", "blue", *GOLD[3:]],
    )
    refused("(there 6, here 5): row 6 is missing here", GOLD[:5])
    refused("(there 6, here 7): row 7 is missing there", [*GOLD, "pink"])
    folder = tmp_path / "folder"
    folder.mkdir()
    refused("give a folder that evaluate qa wrote", GOLD, against=folder)
    write_questions(tmp_path / "questions.jsonl")
    with pytest.raises(FolderError, match="is what --against reads; give another folder as --out"):
        answering(GOLD, before, against=str(before))


def test_an_earlier_result_may_change_during_the_evaluation(answering, monkeypatch, tmp_path):
    before, after = tmp_path / "before", tmp_path / "after"
    answering(["red", "blue", "no", "no", "no", "no"], before)
    compute = qa.evaluate_qa.compute

    def removing(*given):
        shutil.rmtree(before)
        return compute(*given)

    monkeypatch.setattr(qa, "evaluate_qa", replace(qa.evaluate_qa, compute=removing))
    results = answering(GOLD, after, against=str(before))
    assert results["against"]["exact"]["difference"] == pytest.approx(100 * 4 / 6, abs=1e-4)


@pytest.mark.parametrize(
    "model",
    [
        EvaluateQaSettings,
        EvaluateSummariesSettings,
        EvaluateClassificationSettings,
        EvaluateParaphraseSettings,
        EvaluateSentimentSettings,
        EvaluateNerSettings,
    ],
)
def test_a_comparison_needs_resamples(model):
    with pytest.raises(ValueError, match="against needs resamples for its intervals"):
        model(model="m", data="d", against="a", bootstrap=0)


def test_an_error_shows_where_long_texts_begin_to_differ(answering, tmp_path):
    before = tmp_path / "before"
    write_questions(tmp_path / "questions.jsonl", ["a" * 80 + " ball"])
    answering(["no"], before)
    write_questions(tmp_path / "questions.jsonl", ["a" * 80 + " box"])
    with pytest.raises(FolderError) as error:
        answering([], tmp_path / "out", against=str(before))
    common = "…" + "a" * 18 + " b"
    assert f'row 1 has the answers "{common}all\']" there, "{common}ox\']" here; give' in str(error.value)


# Summaries


def summaries(model, data, out, **more):
    settings = EvaluateSummariesSettings(model=model, data=data, bootstrap=200, **more)
    return evaluate_summaries(settings, Run(out, Silent()))


def test_summaries_are_compared_document_by_document(tmp_path):
    data = write_documents(tmp_path / "documents.jsonl", range(5))
    before, after = tmp_path / "before", tmp_path / "after"
    summaries("lead:1", data, before)
    results = summaries("lead:2", data, after, against=str(before))
    assert list(results["against"]) == ["folder", "model", "rougeL"]
    check(
        results,
        "rougeL",
        lambda rows: np.mean([row["rougeL"] for row in rows]),
        lines(after),
        lines(before),
    )
    with pytest.raises(FolderError, match="measured with words english, here it is any"):
        summaries("lead:2", data, tmp_path / "any", against=str(before), words="any")
    with pytest.raises(FolderError, match=r"other documents \(there 5, here 3\): row 4 is missing here"):
        summaries("lead:2", data, tmp_path / "fewer", against=str(before), limit=3)


def exit_code(*words):
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    return end.value.code


def test_a_recipe_compares_its_steps(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(planning, "_in_new_process", lambda work, *given: work(*given))
    write_documents(tmp_path / "documents.jsonl", range(5))

    def write(**second):
        given = {"data": "./documents.jsonl", "bootstrap": 100}
        steps = [
            {"name": name, "step": "evaluate-summaries", "settings": given | settings}
            for name, settings in (("one", {"model": "lead:1"}), ("two", {"model": "lead:2", **second}))
        ]
        results = {"gain": "two/against.rougeL.difference"}
        recipe = {"name": "leads", "description": "Compare.", "steps": steps, "results": results}
        (tmp_path / "leads.yaml").write_text(yaml.safe_dump(recipe))
        return str(tmp_path / "leads.yaml")

    recipe = write(against="@one")
    assert exit_code("plan", recipe) == 0
    assert exit_code("run", recipe, "--out", tmp_path / "out") == 0
    results = json.loads((tmp_path / "out" / "two" / "results.json").read_text())
    own, earlier = (
        json.loads((tmp_path / "out" / name / "results.json").read_text())["rougeL"]
        for name in ("one", "two")
    )
    assert results["against"]["rougeL"]["difference"] == pytest.approx(earlier - own, abs=1e-3)
    assert exit_code("run", write(against="nowhere"), "--out", tmp_path / "new") == 2
    assert "nowhere does not exist" in capsys.readouterr().err
    write_documents(tmp_path / "documents.jsonl", range(4))
    earlier_folder = str(tmp_path / "out" / "one")
    assert exit_code("run", write(against=earlier_folder), "--out", tmp_path / "new") == 2
    assert "row 5 is missing here" in capsys.readouterr().err
    assert not (tmp_path / "new" / "one").exists()


# Labels of texts


@pytest.fixture
def labelling(monkeypatch, tiny_bert):
    """Evaluate labels that are given, in the place of a classifier's."""

    def evaluate(predicted, data, out, **more):
        names = sorted({"bad", "good", "so-so", *predicted})
        scores = np.array([[float(name == label) for name in names] for label in predicted])
        classifier = SimpleNamespace(
            labels=names, trained_on=frozenset(), confidences=lambda texts, batch_size, advance: scores
        )
        monkeypatch.setattr(classification, "choose_classifier", lambda *given, **options: classifier)
        settings = EvaluateClassificationSettings(
            model=str(tiny_bert), data=str(data), device="cpu", bootstrap=200, **more
        )
        return classification.evaluate_classification(settings, Run(out, Silent()))

    return evaluate


def test_labels_are_compared_text_by_text(labelling, tmp_path):
    gold = ["good", "bad", "good", "bad", "so-so", "good", "bad", "so-so"]
    data = tmp_path / "texts.tsv"
    rows = [f"text {number}\t{label}\n" for number, label in enumerate(gold)]
    data.write_text("text\tlabel\n" + "".join(rows))
    before, after = tmp_path / "before", tmp_path / "after"
    labelling(["good"] * 6 + ["bad", "fair"], data, before)
    results = labelling(
        [*gold[:6], "good", "good"], data, after, against=str(before), name=["good=g", "bad=b"], seed=5
    )
    assert list(results["against"]) == ["folder", "model", "accuracy", "macro_f1"]
    assert results["against"]["accuracy"]["difference"] == 25.0  # six of eight after four of eight

    def by(measure):
        def figure(rows):
            names = sorted({row[key] for row in rows for key in ("label", "predicted")})
            of = [[names.index(row[key]) for row in rows] for key in ("label", "predicted")]
            return 100 * float(measure(confusion_matrix(*of, len(names))))

        return figure

    for name, measure in (("accuracy", accuracy), ("macro_f1", macro_f1)):
        check(results, name, by(measure), lines(after), lines(before), seed=5)
    data.write_text("text\tlabel\n" + "".join([rows[0], rows[1].replace("bad", "good"), *rows[2:]]))
    with pytest.raises(
        FolderError, match=r"\(there 8, here 8\): row 2 has the label 'bad' there, 'good' here"
    ):
        labelling(gold, data, tmp_path / "other", against=str(before))


def test_labels_may_be_spelled_as_the_model_does(labelling, tmp_path):
    data = tmp_path / "texts.tsv"
    data.write_text("text\tlabel\n" + "".join(f"text {number}\t{number % 2}\n" for number in range(6)))
    before, after = tmp_path / "before", tmp_path / "after"
    labelling(["0.0", "1.0"] * 3, data, before)
    assert {line["label"] for line in lines(before)} == {"0.0", "1.0"}
    results = labelling(["0.0", "1.0"] * 3, data, after, against=str(before))
    assert results["against"]["accuracy"]["difference"] == 0.0
    with pytest.raises(FolderError) as error:
        labelling(["no", "yes"] * 3, data, tmp_path / "other", against=str(before), map=["0=no", "1=yes"])
    assert str(error.value).endswith(
        "row 1 has the label '0.0' there, 'no' here; labels are compared under the names that --map gives "
        "them, so give a result on data with the same labels, of a model that has the same names for them"
    )


# Zero-shot and few-shot evaluations


def auroc_of(scores, gold):
    return 100 * roc_auc_score(gold, scores) if 0 < sum(gold) < len(gold) else np.nan


def test_sentiment_is_compared_text_by_text_over_the_prompts(monkeypatch, tiny_bert, tmp_path):
    rng = np.random.default_rng(2)
    labels = [1, 0, 1, 1, 0, 0, 1, 0, 1, 0]
    data = tmp_path / "dev.tsv"
    rows = [f"text {number}\t{label}\n" for number, label in enumerate(labels)]
    data.write_text("sentence\tlabel\n" + "".join(rows))

    def evaluate(prompts, out, **more):
        judged = Judged(rng.normal(size=(prompts, 10, 2)), rng.normal(size=(prompts, 2)) / 9, [""] * 10)
        monkeypatch.setattr(sentiment, "judge", lambda settings, progress: lambda texts: judged)
        settings = EvaluateSentimentSettings(
            model=str(tiny_bert), data=str(data), device="cpu", bootstrap=200, **more
        )
        return sentiment.evaluate_sentiment(settings, Run(out, Silent()))

    before, after = tmp_path / "before", tmp_path / "after"
    first = evaluate(1, before)
    results = evaluate(6, after, against=str(before), seed=4)
    assert list(results["against"]) == ["folder", "model", "accuracy", "auroc"]
    gain = results["calibrated"]["accuracy"] - first["calibrated"]["accuracy"]
    assert results["against"]["accuracy"]["difference"] == pytest.approx(gain, abs=1e-3)

    def accuracy_of(rows):
        return 100 * np.mean([[of == row["positive"] for of in row["taken_for_positive"]] for row in rows])

    def mean_auroc(rows):
        leads = np.array([[pos - neg for neg, pos in row["scores"]] for row in rows])
        return np.mean([auroc_of(column, [row["positive"] for row in rows]) for column in leads.T])

    check(results, "accuracy", accuracy_of, lines(after), lines(before), seed=4)
    check(results, "auroc", mean_auroc, lines(after), lines(before), seed=4)
    data.write_text("sentence\tlabel\n" + "".join([rows[1], rows[0], *rows[2:]]))
    with pytest.raises(FolderError, match="row 1 has the text 'text 0' there, 'text 1' here"):
        evaluate(6, tmp_path / "other", against=str(before))


def test_paraphrases_are_compared_pair_by_pair_over_the_splits(monkeypatch, tiny_bert, tmp_path):
    rng = np.random.default_rng(5)
    labels = [1, 0, 1, 1, 0, 0, 1, 0, 1, 0]
    data = tmp_path / "pairs.tsv"
    rows = (f"dog {number}\tcat {number}\t{label}\n" for number, label in enumerate(labels))
    data.write_text("sentence1\tsentence2\tlabel\n" + "".join(rows))
    scorer = SimpleNamespace(encoder=SimpleNamespace(layers=6))
    monkeypatch.setattr(paraphrase, "load_scorer", lambda settings: scorer)

    def detect(scorer, pairs, layer, train, *, tune, progress):
        kinds = ("frozen", "tuned") if tune else ("frozen",)
        predictions = {kind: {split: rng.random(10) < 0.5 for split in train} for kind in kinds}
        return rng.normal(size=10), predictions if train else {}

    monkeypatch.setattr(paraphrase, "detect_paraphrases", detect)

    def evaluate(out, **more):
        settings = EvaluateParaphraseSettings(
            model=str(tiny_bert), data=str(data), device="cpu", bootstrap=200, **more
        )
        return paraphrase.evaluate_paraphrase(settings, Run(out, Silent()))

    few = {"train": str(data), "shots": 2, "splits": [13, 21]}
    before, after = tmp_path / "before", tmp_path / "after"
    first = evaluate(before, **few)
    results = evaluate(after, **few, tune=True, against=str(before))
    # The earlier one fine-tuned no encoder.
    assert list(results["against"]) == ["folder", "model", "auroc", "frozen_f1"]
    gain = results["few_shot"]["frozen"]["f1"] - first["few_shot"]["frozen"]["f1"]
    assert results["against"]["frozen_f1"]["difference"] == pytest.approx(gain, abs=1e-3)

    def auroc_of_rows(rows):
        return auroc_of([row["score"] for row in rows], [row["label"] for row in rows])

    def mean_f1(rows):
        gold = [row["label"] for row in rows]
        of_splits = ([row["frozen"][split] for row in rows] for split in ("13", "21"))
        return 100 * np.mean([f1_score(gold, predicted, zero_division=0) for predicted in of_splits])

    check(results, "auroc", auroc_of_rows, lines(after), lines(before))
    check(results, "frozen_f1", mean_f1, lines(after), lines(before))
    with pytest.raises(FolderError, match=r"measured with splits \[13, 21\], here it is \[13\]"):
        evaluate(tmp_path / "other", **(few | {"splits": [13]}), against=str(before))
    turned = evaluate(tmp_path / "turned", **(few | {"splits": [21, 13]}), against=str(before))
    assert "frozen_f1" in turned["against"]
    # Without training pairs, shots and splits have no effect.
    untrained = evaluate(tmp_path / "untrained", against=str(before))
    assert list(untrained["against"]) == ["folder", "model", "auroc"]
    trained = evaluate(tmp_path / "trained", **few, against=str(tmp_path / "untrained"))
    assert list(trained["against"]) == ["folder", "model", "auroc"]


def test_entities_are_compared_sentence_by_sentence_over_the_splits(monkeypatch, tiny_bert, tmp_path):
    rng = np.random.default_rng(6)
    gold = [
        ["B-PER", "O", "B-LOC"],
        ["O", "B-LOC", "I-LOC"],
        ["B-PER", "I-PER", "O"],
        ["O", "O", "B-PER"],
    ] * 2
    data = tmp_path / "test.conll"
    blocks = ("".join(f"word{n} {tag}\n" for n, tag in enumerate(tags)) for tags in gold)
    data.write_text("\n".join(blocks))
    monkeypatch.setattr(ner, "tagger_encoder", lambda model, start, settings: None)

    def tag(encoder, split, test, questions, options, *, seed, advance):
        return [list(gold[row]) if rng.random() < 0.6 else ["O", "B-PER", "O"] for row in range(len(test))]

    monkeypatch.setattr(ner, "tag_after_training", tag)

    def evaluate(out, **more):
        given = {"train": str(data), "whole": True, "splits": [0, 1], "start": ["random"]} | more
        settings = EvaluateNerSettings(
            model=str(tiny_bert), data=str(data), device="cpu", bootstrap=200, **given
        )
        return ner.evaluate_ner(settings, Run(out, Silent()))

    before, after = tmp_path / "before", tmp_path / "after"
    first = evaluate(before)
    results = evaluate(after, against=str(before), seed=1)
    assert list(results["against"]) == ["folder", "model", "random_f1"]
    gain = results["random"]["f1"] - first["random"]["f1"]
    assert results["against"]["random_f1"]["difference"] == pytest.approx(gain, abs=1e-3)

    def mean_f1(rows):
        from seqeval.metrics import f1_score as entity_f1

        of_splits = ([row["predicted"]["random"][split] for row in rows] for split in ("0", "1"))
        golds = [row["tags"] for row in rows]
        return 100 * np.mean([entity_f1(golds, predicted, zero_division=0) for predicted in of_splits])

    check(results, "random_f1", mean_f1, lines(after), lines(before), seed=1)
    with pytest.raises(FolderError, match=r"measured with whole True, here it is False"):
        evaluate(tmp_path / "other", whole=False, against=str(before))
    monkeypatch.setattr(ner, "tag_after_training", None)
    with pytest.raises(
        FolderError, match=r"evaluation \(there random_f1; here questions_f1\); give a result"
    ):
        evaluate(tmp_path / "other", start=["questions"], against=str(before))
