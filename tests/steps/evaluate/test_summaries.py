import json
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError
from tests.planned import planned
from tests.tiny_bart import document, make_bart, summary, write_documents

from pairsmith.core.errors import FolderError, InputError, MissingExtra, ModelError, StorageError
from pairsmith.core.progress import Progress, Silent
from pairsmith.metrics.bootstrap import mean_intervals
from pairsmith.models.text_generator import generate_outputs, load_text_generator
from pairsmith.runs import Run, hash_file
from pairsmith.runs.estimate import Estimate
from pairsmith.steps.evaluate import summaries as module
from pairsmith.steps.evaluate.settings import EvaluateSummariesSettings, check_summarizer_name, lead_count
from pairsmith.steps.evaluate.summaries import (
    evaluate_summaries,
    lead_summaries,
    summary_figures,
    summary_rouge,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def bart(tmp_path_factory):
    return make_bart(tmp_path_factory.mktemp("summaries") / "bart")


@pytest.fixture
def data(tmp_path):
    return write_documents(tmp_path / "data.jsonl", range(5))


def settings(model, data, **rest):
    fast = {"device": "cpu", "beams": 2, "bootstrap": 50}
    return EvaluateSummariesSettings(model=str(model), data=str(data), **(fast | rest))


def lines(out):
    return [json.loads(line) for line in (out / "predictions.jsonl").read_text().splitlines()]


# The figures.


def of(*rows):
    return [SimpleNamespace(text=text, summary=gold) for text, gold in rows]


def test_figures_by_hand():
    # Words of the first: "two boats sank" against "two boats sank today": precision 1, recall 3/4, F 6/7; of the
    # two and three pairs two are shared: F 4/5. The second shares none of its words.
    documents = of(("A storm came. Two boats sank.", "Two boats sank today."), ("Rain fell.", "It was wet."))
    written = ["Two boats sank.", "Sun shone."]
    figures = summary_figures(summary_rouge(written, documents), written, documents, bootstrap=0)
    assert figures["rouge1"] == pytest.approx(100 * (6 / 7) / 2, abs=1e-4)
    assert figures["rouge2"] == pytest.approx(100 * (4 / 5) / 2, abs=1e-4)
    assert figures["rougeL"] == figures["rougeLsum"] == figures["rouge1"]
    assert figures["rouge1_ci"] is None
    assert figures["count"] == 2
    # Of the first summary all words stand in the document, of the second none; of people's 3 of 4 and none.
    shares = figures["abstractiveness"]
    assert [shares[name]["rouge1"] for name in ("written", "gold")] == [50.0, 37.5]
    assert shares["gold"]["rouge2"] == pytest.approx(100 * (2 / 3) / 2, abs=1e-4)
    assert "rougeLsum" not in shares["written"]


def test_lsum_compares_sentences():
    # The same two sentences the other way round: as one text half of the words are in order.
    documents = of(("x", "Dogs bark loudly. Cats sleep here."))
    figures = summary_figures(
        summary_rouge(["Cats sleep here. Dogs bark loudly."], documents), ["y"], documents
    )
    assert (figures["rougeL"], figures["rougeLsum"]) == (50.0, 100.0)
    assert figures["settings"]["lines"] == "a sentence each"


def test_an_interval_holds_the_middle_of_the_means_of_resamples():
    rng = np.random.default_rng(3)
    rows = rng.normal(40, 10, size=400)
    intervals = mean_intervals({"a": rows, "b": rows + 7, "c": np.full(400, 5.0)}, bootstrap=1000, seed=1)
    low, high = intervals["a_ci"]
    # The mean of 400 rows has a standard error of 10 / 20, and 95 % lie within 1.96 of them.
    half = 1.96 * rows.std() / 20
    assert [low, high] == pytest.approx([rows.mean() - half, rows.mean() + half], abs=0.12)
    assert intervals["b_ci"] == pytest.approx([low + 7, high + 7], abs=1e-3)  # the same resamples
    assert intervals["c_ci"] == [5.0, 5.0]
    assert intervals == mean_intervals(
        {"a": rows, "b": rows + 7, "c": np.full(400, 5.0)}, bootstrap=1000, seed=1
    )
    assert mean_intervals({"a": rows}, bootstrap=1000, seed=2)["a_ci"] != [low, high]
    assert mean_intervals({"a": [1.0]}, bootstrap=0, seed=0) == {"a_ci": None}


# The first sentences.


def test_the_first_sentences_are_a_summary():
    text = "Dr. Smith came. He stayed!\nThen he left."
    assert lead_summaries([text, "One."], 2) == ["Dr. Smith came.\nHe stayed!", "One."]
    assert lead_count("lead:3") == 3
    assert lead_count("some/model") is None


@pytest.mark.parametrize("name", ["lead:", "lead:0", "lead:x", "lead:-1", "lead:1.5"])
def test_a_lead_of_no_number_is_refused(name):
    with pytest.raises(ModelError, match="give lead:N with a number of sentences"):
        check_summarizer_name(name)


def test_any_other_name_is_checked_as_a_model(tmp_path):
    check_summarizer_name("lead:1")
    with pytest.raises(ModelError, match="no such folder"):
        check_summarizer_name(str(tmp_path / "none" / "model"))


def test_the_lead_is_evaluated_without_a_model(data, tmp_path):
    results = evaluate_summaries(settings("lead:1", data), Run(tmp_path / "out", Silent()))
    assert results["abstractiveness"]["written"]["rouge1"] == 100.0
    assert results["about"]["models"] == {"model": "lead:1"}
    assert lines(tmp_path / "out")[0]["summary"] == "A guitar was heard in the town."


def test_a_plan_reads_documents_that_an_earlier_step_will_make(data):
    rows = [{"document": document(n), "summary": summary(n)} for n in range(5)]
    before = {"@written": Estimate(1.0, 1, 1, {"train": 50}, sample=pa.Table.from_pylist(rows))}
    there = evaluate_summaries.plan(settings("lead:1", data), {}).disk - 4096
    for limit, times in ((None, 10), (10, 2), (5, 1)):
        later = planned("evaluate-summaries", settings("lead:1", "@written", limit=limit), before)
        assert later.disk - 4096 == times * there > 0


def test_of_a_folder_the_split_test_is_measured_on(tmp_path, capsys):
    for split, numbers in {"train": range(3), "validation": [3], "test": range(4, 6)}.items():
        folder = tmp_path / "in" / "data"
        folder.mkdir(parents=True, exist_ok=True)
        rows = [{"document": document(n), "summary": summary(n)} for n in numbers]
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{split}-00000.parquet")
    given = settings("lead:1", tmp_path / "in")
    assert evaluate_summaries(given, Run(tmp_path / "out", Progress()))["count"] == 2
    assert "in: its split test is measured on; train, validation is not" in capsys.readouterr().err
    assert evaluate_summaries.plan(given, {}).disk < evaluate_summaries.plan(train_of(given), {}).disk
    assert evaluate_summaries(train_of(given), Run(tmp_path / "other", Silent()))["count"] == 3
    (folder / "test-00000.parquet").unlink()
    with pytest.raises(InputError, match="has no split test, only train, validation; name one, such as"):
        evaluate_summaries(given, Run(tmp_path / "none", Silent()))


def train_of(given):
    return given.model_copy(update={"data": f"{given.data}:train"})


# The step.


def test_a_model_is_evaluated_on_a_file(bart, data, tmp_path, capsys):
    out = tmp_path / "out"
    results = evaluate_summaries(settings(bart, data), Run(out, Progress()))
    assert json.loads((out / "results.json").read_text()) == results
    assert sorted(file.name for file in out.iterdir()) == ["README.md", "predictions.jsonl", "results.json"]
    rows = lines(out)
    summarizer = load_text_generator(str(bart), device="cpu")
    assert [row["summary"] for row in rows] == generate_outputs(
        summarizer, [document(n) for n in range(5)], beams=2
    )
    assert [row["reference"] for row in rows] == [summary(n) for n in range(5)]
    assert len({row["id"] for row in rows}) == 5
    assert results["rougeL"] == pytest.approx(np.mean([row["rougeL"] for row in rows]), abs=1e-4)
    low, high = results["rougeL_ci"]
    assert low <= results["rougeL"] <= high
    about = results["about"]
    assert about["complete"] is True
    assert about["models"]["model"].startswith("sha256:")
    assert about["files"] == {"predictions.jsonl": hash_file(out / "predictions.jsonl")}
    assert about["settings"]["beams"] == 2
    assert about["batch_size"] == 8
    said = capsys.readouterr()
    assert "5 documents" in said.out
    assert "ROUGE-Lsum" in said.out
    assert "summarize: 5/5 documents" in said.err


def test_a_document_longer_than_the_model_reads_and_more_beams(bart, data, tmp_path):
    path = tmp_path / "long.jsonl"
    path.write_text(json.dumps({"id": "a", "document": document(0) * 30, "summary": summary(0)}) + "\n")
    results = [
        evaluate_summaries(settings(bart, path, beams=beams, max_length=9999), Run(tmp_path / name, Silent()))
        for name, beams in (("one", 1), ("many", 8))
    ]
    assert results[0]["count"] == 1
    assert [row["id"] for row in lines(tmp_path / "many")] == ["a"]
    assert results[0]["about"]["fingerprint"] != results[1]["about"]["fingerprint"]


def test_only_the_first_documents_are_taken(bart, data, tmp_path):
    results = evaluate_summaries(settings(bart, data, limit=2), Run(tmp_path / "out", Silent()))
    assert results["count"] == len(lines(tmp_path / "out")) == 2
    two = write_documents(tmp_path / "two.jsonl", range(2))
    again = evaluate_summaries(settings(bart, two), Run(tmp_path / "out", Silent()))
    assert again == results  # the same documents


@pytest.fixture
def evaluated(bart, data, tmp_path):
    evaluate_summaries(settings(bart, data), Run(tmp_path / "out", Silent()))
    return tmp_path / "out"


def test_results_that_are_there_are_not_computed_again(evaluated, bart, data, monkeypatch, capsys):
    monkeypatch.setattr(module, "summarizer", None)
    again = evaluate_summaries(settings(bart, data, batch_size=3), Run(evaluated, Progress()))
    assert again == json.loads((evaluated / "results.json").read_text())
    said = capsys.readouterr()
    assert "already evaluated with these settings; give --fresh to evaluate again" in said.err
    assert "5 documents" in said.out


@pytest.mark.parametrize("damage", ["lost", "changed", "unfinished"])
def test_results_that_are_not_whole_are_computed_again(evaluated, bart, data, damage):
    before = {name: (evaluated / name).read_bytes() for name in ("results.json", "predictions.jsonl")}
    if damage == "lost":
        (evaluated / "predictions.jsonl").unlink()
    elif damage == "changed":
        (evaluated / "predictions.jsonl").write_text("{}\n")
    else:
        path = evaluated / "results.json"
        path.write_text(path.read_text().replace('"complete": true', '"complete": false'))
    evaluate_summaries(settings(bart, data), Run(evaluated, Silent()))
    assert {name: (evaluated / name).read_bytes() for name in before} == before


def test_a_run_that_was_stopped_between_the_files_goes_on(bart, data, tmp_path, monkeypatch):
    from pairsmith.steps.evaluate import results

    class Stopped(Exception):  # noqa: N818 - it is no error
        pass

    def stop(*_):
        raise Stopped

    begun = []
    with monkeypatch.context() as patch:
        patch.setattr(results, "write_atomic", stop)
        run = Run(tmp_path / "out", Silent(), fresh=True, on_begun=lambda: begun.append(1))
        with pytest.raises(Stopped):
            evaluate_summaries(settings(bart, data), run)
    assert begun == [1]
    evaluate_summaries(settings(bart, data), Run(tmp_path / "out", Silent()))
    assert len(lines(tmp_path / "out")) == 5


def test_fresh_computes_again(evaluated, bart, data):
    path = evaluated / "results.json"
    path.write_text(path.read_text().replace('"count": 5', '"count": 50'))
    evaluate_summaries(settings(bart, data), Run(evaluated, Silent(), fresh=True))
    assert json.loads(path.read_text())["count"] == 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"beams": 3}, "beams: 2 there, 3 here"),
        ({"model": "lead:2"}, "the model is another, or was trained again: sha256"),
        ({"limit": 3}, "input data is another, or has changed: "),
    ],
)
def test_results_of_other_settings_are_kept(evaluated, bart, data, change, message):
    before = (evaluated / "results.json").read_bytes()
    other_settings = settings(**({"model": bart, "data": data} | change))
    with pytest.raises(FolderError, match=rf"(?s){message}.*--fresh to start over"):
        evaluate_summaries(other_settings, Run(evaluated, Silent()))
    assert (evaluated / "results.json").read_bytes() == before


@pytest.mark.parametrize("content", ['{"after": 71.2}', "["])
def test_a_folder_that_holds_something_else_is_left_as_it_is(bart, data, tmp_path, content):
    out = tmp_path / "run"
    out.mkdir()
    (out / "results.json").write_text(content)
    for fresh in (False, True):
        with pytest.raises(FolderError, match="holds no results of this evaluation"):
            evaluate_summaries(settings(bart, data), Run(out, Silent(), fresh))
    assert (out / "results.json").read_text() == content


def test_a_document_without_a_summary_is_named(bart, tmp_path):
    path = tmp_path / "half.jsonl"
    path.write_text('{"document": "A.", "summary": "B."}\n{"document": "C."}\n')
    with pytest.raises(InputError, match=r"half\.jsonl"):
        evaluate_summaries(settings(bart, path), Run(tmp_path / "out", Silent()))
    evaluate_summaries(settings("lead:1", path, limit=1), Run(tmp_path / "first", Silent()))
    path.write_text('{"document": "A.", "summary": "B."}\n{"document": "C.", "summary": ""}\n')
    with pytest.raises(InputError, match=r"half\.jsonl:2: the summary is blank or missing"):
        evaluate_summaries(settings(bart, path), Run(tmp_path / "out", Silent()))
    path.write_text('{"document": "A."}\n')
    with pytest.raises(InputError, match=r"none of the columns summary, .*; it has: document$"):
        evaluate_summaries(settings(bart, path), Run(tmp_path / "out", Silent()))


def test_a_row_without_a_document_is_left_out_and_told(tmp_path, capsys):
    path = tmp_path / "half.jsonl"
    path.write_text('{"document": "A.", "summary": "B."}\n{"document": "", "summary": "D."}\n')
    results = evaluate_summaries(settings("lead:1", path), Run(tmp_path / "out", Progress()))
    assert results["count"] == 1
    assert "left out, as the document is blank or missing: " in (said := capsys.readouterr().err)
    assert "half.jsonl:2\n" in said


def test_faults_are_told_before_anything_is_written(silent_model, data, tmp_path, monkeypatch):
    run = Run(tmp_path / "out", Silent())
    with pytest.raises(InputError, match=r"none\.jsonl"):
        evaluate_summaries(settings("no/such", tmp_path / "none.jsonl"), run)
    with pytest.raises(ModelError, match="no continuation for models of type distilbert"):
        evaluate_summaries(settings(silent_model, data), run)
    assert not list((tmp_path / "out").glob("*.json*"))
    monkeypatch.setitem(sys.modules, "rouge_score.rouge_scorer", None)
    with pytest.raises(MissingExtra, match=r"pip install 'pairsmith\[eval\]'"):
        evaluate_summaries(settings("no/such", data), run)


def test_results_that_cannot_be_written_are_a_storage_error(data, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write"):
        evaluate_summaries(settings("lead:1", data), Run(tmp_path / "file" / "out", Silent()))


def test_what_is_written_by_a_trained_folder_is_evaluated(bart, data, tmp_path):
    # A model with a marker has a row more than its tokenizer had, which must not show.
    from pairsmith.models.added_tokens import add_marker

    marked = load_text_generator(str(bart), device="cpu")
    add_marker(marked, "<mined>")
    shutil.copytree(bart, tmp_path / "marked")
    marked.model.save_pretrained(tmp_path / "marked")
    marked.tokenizer.save_pretrained(tmp_path / "marked")
    for name, model in (("plain", bart), ("with", tmp_path / "marked")):
        evaluate_summaries(settings(model, data), Run(tmp_path / name, Silent()))
    assert lines(tmp_path / "plain") == lines(tmp_path / "with")


@pytest.mark.parametrize(
    "wrong", [{"device": "tpu"}, {"beams": 0}, {"batch_size": 0}, {"limit": 0}, {"unheard": 1}]
)
def test_settings_refuse_what_makes_no_sense(wrong):
    with pytest.raises(ValidationError):
        EvaluateSummariesSettings(model="m", data="d", **wrong)


def test_summaries_in_another_language(tmp_path, capsys):
    rows = [{"document": "東京で大雨が降った。電車が止まった。", "summary": "東京で大雨。"}] * 2
    (tmp_path / "data.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    results = {
        words: evaluate_summaries(
            settings("lead:1", tmp_path / "data.jsonl", words=words), Run(tmp_path / words, Progress())
        )
        for words in ("english", "any")
    }
    said = "".join(capsys.readouterr())
    assert said.count("100.0 % of the references' letters do not count") == 1
    # The five letters of the summary are the first of the document's nine.
    assert [results[words]["rouge1"] for words in ("english", "any")] == [0.0, pytest.approx(71.4286)]
    assert results["any"]["abstractiveness"]["gold"]["rouge1"] == pytest.approx(100.0)
