import errno
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from pydantic import ValidationError
from tests.heard import Heard
from tests.planned import planned

from pairsmith.core.errors import FolderError, InputError, ModelError, StorageError
from pairsmith.core.progress import Progress, Silent
from pairsmith.metrics.squad import exact_match, mean_f1
from pairsmith.models.reader import ANSWER_TOKENS, Prediction
from pairsmith.runs import Run, storage
from pairsmith.runs.estimate import Estimate
from pairsmith.steps.evaluate import qa as module
from pairsmith.steps.evaluate import results as files
from pairsmith.steps.evaluate.qa import evaluate_qa, qa_figures, qa_table
from pairsmith.steps.evaluate.settings import EvaluateQaSettings
from pairsmith.steps.table import STEPS

pytestmark = pytest.mark.slow

CONTEXTS = [
    "A man is playing. A woman is slicing an onion. Two dogs run on the beach.",
    "The stock market fell again today; the weather was not good, they said. " * 9,
    "Someone is talking about a child who rides a horse.",
]
ROWS = [
    ("a", "Who is slicing an onion?", CONTEXTS[0], ["A woman", "woman"]),
    ("b", "What fell?", CONTEXTS[1], ["stock market"]),
    ("c", "Who rides a horse?", CONTEXTS[2], ["a child", "child"]),
    ("d", "Where do the dogs run?", CONTEXTS[0], ["on the beach", "the beach"]),
]


def write(path, rows=ROWS):
    lines = [
        {
            "id": name,
            "question": question,
            "context": context,
            "answers": {"text": golds, "answer_start": [context.index(gold) for gold in golds]},
        }
        for name, question, context, golds in rows
    ]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


@pytest.fixture
def data(tmp_path):
    return write(tmp_path / "questions.jsonl")


@pytest.fixture(scope="module")
def reader(tiny_bert, tmp_path_factory):
    """A random BERT with a random head."""
    from transformers import AutoTokenizer, BertConfig, BertForQuestionAnswering

    folder = tmp_path_factory.mktemp("readers") / "bert"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        BertForQuestionAnswering(BertConfig.from_pretrained(tiny_bert)).save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(folder)
    return folder


def settings(model, data, **rest):
    return EvaluateQaSettings(model=str(model), data=str(data), device="cpu", **({"bootstrap": 50} | rest))


def predictions(out):
    return [json.loads(line) for line in (out / "predictions.jsonl").read_text().splitlines()]


@pytest.fixture
def saying(monkeypatch):
    """Have questions answered by what is given, in the place of a model."""

    def say(*texts):
        def answer(reader, questions, contexts, *, advance, **rest):
            advance(len(questions))
            return [Prediction(text, 0, 1.0) for text in texts]

        monkeypatch.setattr("pairsmith.models.question_answering.answer", answer)

    return say


# Figures.


def test_figures_are_means_in_hundreds():
    figures = qa_figures([True, False, False, False], [1.0, 0.5, 0.0, 0.25], bootstrap=0)
    assert figures == {"exact": 25.0, "exact_ci": None, "f1": 43.75, "f1_ci": None, "count": 4}


def test_the_interval_is_that_of_the_resampled_means():
    rng = np.random.default_rng(1)
    worth = rng.integers(0, 2, 60).astype(bool).tolist(), rng.random(60).tolist()
    figures = qa_figures(*worth, bootstrap=2000, seed=3)
    for name, of_questions in zip(("exact", "f1"), worth, strict=True):
        values = 100 * np.array(of_questions, float)
        low, high = figures[f"{name}_ci"]
        # The normal approximation; 60 questions are enough for it.
        spread = 1.96 * values.std() / np.sqrt(60)
        assert low == pytest.approx(values.mean() - spread, abs=1.5)
        assert high == pytest.approx(values.mean() + spread, abs=1.5)
    assert figures == qa_figures(*worth, bootstrap=2000, seed=3)
    assert figures != qa_figures(*worth, bootstrap=2000, seed=4)


def test_both_figures_are_of_the_same_resamples():
    # Where F1 equals exact match, so do its intervals.
    exact = [bool(n % 3) for n in range(30)]
    figures = qa_figures(exact, [*map(float, exact)], bootstrap=40)
    assert figures["exact_ci"] == figures["f1_ci"]


def test_a_table_shows_the_figures():
    head, line = qa_table(
        {"exact": 35.27, "exact_ci": [34.1, 36.25], "f1": 49.43, "f1_ci": None, "count": 10570}
    ).splitlines()
    assert head.split() == ["questions", "exact", "match", "×100", "(95", "%)", "F1", "×100", "(95", "%)"]
    assert line.split() == ["10,570", "35.27", "[34.10,", "36.25]", "49.43"]
    assert line.index("49.43") == head.index("F1") + 1


# The step.


def test_answers_are_compared_with_what_people_marked(reader, data, tmp_path, saying, capsys):
    saying("The woman", "stock", "horse", "on the beach.")
    results = evaluate_qa(settings(reader, data), Run(tmp_path / "out", Progress()))
    # Exact: woman, on beach. F1: 1, 2·(1·½)/1.5 = 2/3, 0, 1.
    assert (results["exact"], results["count"]) == (50.0, 4)
    assert results["f1"] == pytest.approx(100 * (2 + 2 / 3) / 4, abs=1e-3)
    assert json.loads((tmp_path / "out" / "results.json").read_text()) == results
    first, second, *_ = predictions(tmp_path / "out")
    assert first == {
        "id": "a",
        "question": "Who is slicing an onion?",
        "prediction": "The woman",
        "answers": ["A woman", "woman"],
        "exact": True,
        "f1": 1.0,
    }
    assert (second["exact"], second["f1"]) == (False, 0.666667)
    said = capsys.readouterr()
    assert "answer: 4/4 questions · 100 %" in said.err
    assert said.out.splitlines()[-1].split()[:2] == ["4", "50.00"]


def test_a_model_is_evaluated(reader, data, tmp_path):
    out = tmp_path / "out"
    results = evaluate_qa(settings(reader, data), Run(out, Silent()))
    lines = predictions(out)
    written, golds = [line["prediction"] for line in lines], [row[3] for row in ROWS]
    assert results["f1"] == round(mean_f1(written, golds), 4)
    assert results["exact"] == 100 * sum(map(exact_match, written, golds)) / len(ROWS)
    assert results["count"] == len(ROWS)
    assert all(line["prediction"] in row[2] for line, row in zip(lines, ROWS, strict=True))
    about = results["about"]
    assert about["complete"]
    assert about["step"] == "evaluate qa"
    assert about["models"]["model"].startswith("sha256:")
    assert len(about["inputs"]["data"]) == 64
    assert about["settings"]["max_answer_tokens"] == 17
    assert (about["batch_size"], about["data"]) == (32, str(data))
    assert {file.name for file in out.iterdir()} == {"README.md", "results.json", "predictions.jsonl"}


def test_the_card_has_the_figures_and_the_command(reader, data, tmp_path):
    given = EvaluateQaSettings(model=str(reader), data=str(data), bootstrap=9)
    out = tmp_path / "out"
    heard = Heard()
    results = STEPS["evaluate-qa"].run(given, Run(out, heard))
    card = (out / "README.md").read_text()
    assert card.startswith(
        f"# evaluate qa: {Path(reader).name} on {data.name}\n\n```text\n{qa_table(results)}\n```"
    )
    assert (
        f"pairsmith evaluate qa --model {Path(reader).name} --data {data.name} --bootstrap 9 --out FOLDER"
        in card
    )
    assert str(tmp_path) not in card
    (out / "README.md").unlink()
    STEPS["evaluate-qa"].run(given, Run(out, heard))
    assert (out / "README.md").read_text() == card


def test_the_card_has_no_passwords(tmp_path):
    given = EvaluateQaSettings(model="pairsmith:tiny", data="s3://anna:secret@bucket/dev.json")
    files.write_card(
        Run(tmp_path, Silent(), options="--data s3://anna:secret@bucket"), "evaluate qa", given, ""
    )
    card = (tmp_path / "README.md").read_text()
    assert card.startswith("# evaluate qa: pairsmith:tiny on dev.json\n\n`results.json` has all figures.\n")
    assert "secret" not in card


def test_of_a_folder_the_split_test_is_measured_on(reader, data, tmp_path, saying, capsys):
    rows = pa.Table.from_pylist([json.loads(line) for line in data.read_text().splitlines()])
    (tmp_path / "in" / "data").mkdir(parents=True)
    for split, part in {"train": rows.slice(0, 3), "test": rows.slice(3)}.items():
        pq.write_table(part, tmp_path / "in" / "data" / f"{split}-00000.parquet")
    saying("on the beach")
    assert evaluate_qa(settings(reader, tmp_path / "in"), Run(tmp_path / "out", Progress()))["count"] == 1
    assert [prediction["id"] for prediction in predictions(tmp_path / "out")] == ["d"]
    assert "in: its split test is measured on; train is not" in capsys.readouterr().err


def test_questions_without_answers_are_left_out_and_counted(reader, data, tmp_path, saying, capsys):
    saying("The woman", "stock", "horse", "on the beach.")
    whole = evaluate_qa(settings(reader, data), Run(tmp_path / "whole", Silent()))
    asked = {
        "id": "e",
        "question": "Who?",
        "context": CONTEXTS[0],
        "answers": {"text": [], "answer_start": []},
    }
    data.write_text(f"{json.dumps(asked)}\n{data.read_text()}")
    results = evaluate_qa(settings(reader, data), Run(tmp_path / "out", Progress()))
    assert "1 of 5 questions has no answer and is left out" in capsys.readouterr().err
    assert results["count"] == 4
    assert results["about"]["inputs"] == whole["about"]["inputs"]
    assert [line["id"] for line in predictions(tmp_path / "out")] == ["a", "b", "c", "d"]


def test_the_batch_size_changes_nothing(reader, data, tmp_path):
    for size in (1, 8):
        evaluate_qa(settings(reader, data, batch_size=size), Run(tmp_path / str(size), Silent()))
    assert predictions(tmp_path / "1") == predictions(tmp_path / "8")
    results = [json.loads((tmp_path / size / "results.json").read_text()) for size in ("1", "8")]
    assert results[0]["about"]["fingerprint"] == results[1]["about"]["fingerprint"]


def test_answers_are_no_longer_than_asked_for(reader, data, tmp_path):
    evaluate_qa(settings(reader, data, max_answer_tokens=1), Run(tmp_path / "out", Silent()))
    assert all(" " not in line["prediction"] for line in predictions(tmp_path / "out"))


def test_the_settings_reach_the_reader(reader, data, tmp_path, monkeypatch):
    seen = {}

    def load(model, **rest):
        seen.update(rest)
        raise ModelError("stop")

    monkeypatch.setattr("pairsmith.models.question_answering.load_reader", load)
    with pytest.raises(ModelError, match="stop"):
        evaluate_qa(settings(reader, data, dtype="bfloat16", max_length=40), Run(tmp_path / "out", Silent()))
    assert seen == {"device": "cpu", "dtype": "bfloat16", "max_length": 40, "fresh_head": False}


@pytest.fixture
def evaluated(reader, data, tmp_path):
    evaluate_qa(settings(reader, data), Run(tmp_path / "out", Silent()))
    return tmp_path / "out"


def test_results_that_are_there_are_not_computed_again(
    evaluated, reader, data, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(module, "answerer", None)
    moved = data.rename(tmp_path / "moved.jsonl")
    copied = shutil.copytree(reader, tmp_path / "copied")
    again = evaluate_qa(settings(copied, moved, batch_size=7), Run(evaluated, Progress()))
    assert again == json.loads((evaluated / "results.json").read_text())
    said = capsys.readouterr()
    assert "already evaluated with these settings; give --fresh to evaluate again" in said.err
    assert "F1 ×100" in said.out


@pytest.mark.parametrize("damage", [None, "{}\n"])
def test_predictions_that_are_not_as_written_are_made_again(evaluated, reader, data, damage):
    path = evaluated / "predictions.jsonl"
    before = path.read_text()
    path.unlink() if damage is None else path.write_text(damage)
    evaluate_qa(settings(reader, data), Run(evaluated, Silent()))
    assert path.read_text() == before


def test_fresh_computes_again(evaluated, reader, data):
    path = evaluated / "results.json"
    path.write_text(path.read_text().replace('"count": 4', '"count": 40'))
    evaluate_qa(settings(reader, data), Run(evaluated, Silent(), fresh=True))
    assert json.loads(path.read_text())["count"] == 4


class Stopped(Exception):  # noqa: N818 - it is no error
    pass


@pytest.mark.parametrize("stop", [1, 2, 3])
def test_a_run_that_was_stopped_while_writing_goes_on(reader, data, tmp_path, monkeypatch, stop):
    evaluate_qa(settings(reader, data), Run(tmp_path / "whole", Silent()))
    left = [stop]

    def stopping(real):
        def write(path, content):
            left[0] -= 1
            if left[0] == 0:
                raise Stopped
            real(path, content)

        return write

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_json", stopping(files.write_json))
        patch.setattr(files, "write_atomic", stopping(files.write_atomic))
        with pytest.raises(Stopped):
            evaluate_qa(settings(reader, data), Run(tmp_path / "out", Silent()))
    evaluate_qa(settings(reader, data), Run(tmp_path / "out", Silent()))
    for name in ("results.json", "predictions.jsonl"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("seed", "seed: 0 there, 3 here"),
        ("data", "input data is another, or has changed: "),
        ("model", "the model is another, or was trained again: "),
    ],
)
def test_results_of_other_settings_are_kept(evaluated, reader, data, tmp_path, change, message):
    model = reader
    if change == "data":
        write(data, ROWS[1:])
    if change == "model":
        model = tmp_path / "model"
        model.mkdir()
        for file in reader.iterdir():
            (model / file.name).write_bytes(file.read_bytes())
        (model / "model.safetensors").write_bytes(b"others")
    before = (evaluated / "results.json").read_bytes()
    with pytest.raises(FolderError, match=rf"(?s){message}.*--fresh to start over"):
        evaluate_qa(settings(model, data, seed=3 if change == "seed" else 0), Run(evaluated, Silent()))
    assert (evaluated / "results.json").read_bytes() == before


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("run.json", "{}", r"holds something else \(run\.json\)"),
        ("results.json", '{"after": 71.2}', "holds no results of this evaluation; give another folder"),
    ],
)
def test_a_folder_that_holds_something_else_is_left_as_it_is(reader, data, tmp_path, name, content, message):
    out = tmp_path / "run"
    out.mkdir()
    (out / name).write_text(content)
    for fresh in (False, True):
        with pytest.raises(FolderError, match=message):
            evaluate_qa(settings(reader, data), Run(out, Silent(), fresh))
    assert [(out / name).read_text()] == [file.read_text() for file in out.iterdir()]


# What cannot be.


def test_missing_data_is_named_before_the_model_is_loaded(tmp_path):
    with pytest.raises(InputError, match=r"gone\.json"):
        evaluate_qa(settings("no/such/model", tmp_path / "gone.json"), Run(tmp_path / "out", Silent()))


def test_questions_without_answers_are_no_data(reader, tmp_path):
    path = tmp_path / "none.jsonl"
    path.write_text(
        '{"context": "Two dogs.", "question": "Who?", "answers": {"text": [], "answer_start": []}}\n'
    )
    with pytest.raises(InputError, match="none of its 1 questions has an answer in its passage"):
        evaluate_qa(settings(reader, path), Run(tmp_path / "out", Silent()))


def test_a_model_without_a_head_leaves_the_folder_to_another(tiny_bert, reader, data, tmp_path):
    with pytest.raises(ModelError, match="give a model that train-teacher, train-reader or infuse wrote"):
        evaluate_qa(settings(tiny_bert, data), Run(tmp_path / "out", Silent()))
    assert evaluate_qa(settings(reader, data), Run(tmp_path / "out", Silent()))["count"] == 4


def test_results_that_cannot_be_written_are_a_storage_error(reader, data, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write"):
        evaluate_qa(settings(reader, data), Run(tmp_path / "file" / "out", Silent()))


@pytest.mark.parametrize(
    "wrong",
    [{"device": "tpu"}, {"batch_size": 0}, {"max_answer_tokens": 0}, {"max_length": 15}, {"unheard": 1}],
)
def test_settings_refuse_what_makes_no_sense(wrong):
    with pytest.raises(ValidationError):
        EvaluateQaSettings(model="m", data="d", **wrong)


def test_the_longest_answer_is_that_of_the_method():
    assert EvaluateQaSettings(model="m", data="d").max_answer_tokens == ANSWER_TOKENS


def test_a_plan_reads_questions_that_an_earlier_step_will_make(reader, data):
    there = evaluate_qa.plan(settings(reader, data), {})
    sample = pa.Table.from_pylist([json.loads(line) for line in data.read_text().splitlines()])
    before = {"@questions": Estimate(1.0, 1, 1, {"train": 40}, sample=sample)}
    later = planned("evaluate-qa", settings(reader, "@questions"), before)
    assert later.disk - 4096 == 10 * (there.disk - 4096) > 0


def test_questions_without_an_answer_are_counted(reader, tmp_path):
    data = write(tmp_path / "questions.jsonl", [*ROWS[:2], ("e", "Who sings?", CONTEXTS[0], [])])
    heard = Heard()
    assert evaluate_qa(settings(reader, data), Run(tmp_path / "out", heard))["count"] == 2
    assert any(line.startswith("1 of 3 questions has no answer and is left out: ") for line in heard.lines)


def test_a_refused_evaluation_leaves_no_folder(tmp_path, monkeypatch):
    data = write(tmp_path / "questions.jsonl")

    def refused(*_):
        raise InputError("no")

    monkeypatch.setattr(module, "answerer", refused)
    settings = EvaluateQaSettings(model="pairsmith:tiny", data=str(data))
    with pytest.raises(InputError, match="no"):
        evaluate_qa(settings, Run(tmp_path / "new" / "parent" / "x", Silent()))
    assert not (tmp_path / "new").exists()
    (tmp_path / "before").mkdir()
    for out in (tmp_path / "before", tmp_path / "before" / "x"):
        with pytest.raises(InputError, match="no"):
            evaluate_qa(settings, Run(out, Silent()))
        assert list((tmp_path / "before").iterdir()) == []


@pytest.mark.parametrize("name", ["results.json", "predictions.jsonl"])
def test_a_full_disk_keeps_nothing_and_leaves_no_folder(tmp_path, reader, monkeypatch, name):
    """The disk fills up while one of the two files is written."""
    data, real = write(tmp_path / "questions.jsonl"), storage._write_synced

    def full(path, data):
        if name in path.name:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        real(path, data)

    monkeypatch.setattr(storage, "_write_synced", full)
    with pytest.raises(StorageError, match=r"no space left .* free\); fix this and evaluate again$"):
        evaluate_qa(settings(reader, data), Run(tmp_path / "new" / "x", Silent()))
    assert not (tmp_path / "new").exists()
