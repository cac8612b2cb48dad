import json
import math
import signal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from pydantic import ValidationError
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from tests.folders import write_folder
from tests.heard import Heard

import pairsmith
from pairsmith.__main__ import main
from pairsmith.core.errors import FolderError, InputError, ModelError, SettingsError
from pairsmith.core.paths import place
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.schemas import LABELLED_PAIR, SCORED_PAIR, ScoredPair
from pairsmith.methods.dino import encoder as module
from pairsmith.methods.dino.encoder import train_encoder_on, validation_spearman
from pairsmith.methods.dino.options import EncoderOptions
from pairsmith.models.sentence_encoder import load_sentence_encoder
from pairsmith.runs import Run
from pairsmith.runs.estimate import Estimate
from pairsmith.steps.evaluate.settings import EvaluateStsSettings
from pairsmith.steps.evaluate.sts import evaluate_sts
from pairsmith.steps.training.encoder import train_encoder
from pairsmith.steps.training.settings import TrainEncoderSettings
from pairsmith.training.best_step import BestStepCallback, TrainingHistory

pytestmark = pytest.mark.slow

KINDS = (["guitar", "market", "onion", "beach"], ["dog", "weather", "horse", "woman"])


def pairs(count, seed=0):
    """Pairs of two kinds of words, scored 0.9 within a kind and 0.1 across; only learning tells."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        one, two = rng.choice(KINDS[0]), rng.choice(KINDS[number % 2])
        rows.append((f"A {one}.", f"The {two}", 0.1 if number % 2 else 0.9))
    first, second, scores = zip(*rows, strict=True)
    return pa.table(
        {
            "id": [f"{seed}-{number}" for number in range(count)],
            "sentence1": list(first),
            "sentence2": list(second),
            "score": list(scores),
        },
        schema=SCORED_PAIR,
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_folder(
        tmp_path_factory.mktemp("data") / "pairs", {"train": pairs(48), "validation": pairs(16, 1)}
    ).path


@pytest.fixture(scope="module")
def train_only(tmp_path_factory):
    """Without validation pairs, so that the weights of the last step are kept: any error in resuming shows."""
    return write_folder(tmp_path_factory.mktemp("data") / "train-only", {"train": pairs(48)}).path


FAST = {"batch_size": 8, "learning_rate": 5e-3, "eval_steps": 4}


def settings(base, data, **rest):
    return TrainEncoderSettings(base=str(base), data=str(data), **({"device": "cpu"} | FAST | rest))


def options(**rest):
    return EncoderOptions(**(FAST | rest))


@pytest.fixture(scope="module")
def trained(tiny_gpt2, data, tmp_path_factory):
    out = tmp_path_factory.mktemp("trained") / "encoder"
    train_encoder(settings(tiny_gpt2, data, epochs=6), Run(out, Silent()))
    return out


def test_training_improves_the_encoder_on_pairs_it_has_not_seen(trained, tiny_gpt2):
    unseen = pairs(60, 2)
    before = validation_spearman(load_sentence_encoder(str(tiny_gpt2), device="cpu"), unseen, 64)
    after = validation_spearman(SentenceTransformer(str(trained), device="cpu"), unseen, 64)
    assert after > before + 15


def test_the_record_tells_how_it_went_and_the_best_step_was_kept(trained, data):
    record = json.loads((trained / "training.json").read_text())
    assert record["steps"] == 36
    assert [point["step"] for point in record["validation"]] == [*range(0, 37, 4)]
    best = max(record["validation"][1:], key=lambda point: point["spearman"])
    assert record["best_step"] == best["step"]
    assert record["seconds"] > 0
    kept = validation_spearman(SentenceTransformer(str(trained), device="cpu"), pairs(16, 1), 64)
    assert kept == pytest.approx(best["spearman"], abs=1e-3)


def test_the_folder_holds_a_model_and_nothing_of_the_trainer(trained):
    names = {file.name for file in trained.rglob("*") if file.is_file()}
    assert {"model.safetensors", "modules.json", "tokenizer.json", "README.md", "training.json"} <= names
    assert not {
        name for name in names if "optimizer" in name or "scheduler" in name or name.endswith((".bin", ".pt"))
    }


def test_the_card_says_what_it_was_trained_on(trained, tiny_gpt2):
    text = (trained / "README.md").read_text()
    _, head, body = text.split("---\n", 2)
    assert yaml.safe_load(head)["library_name"] == "sentence-transformers"
    assert "base_model" not in yaml.safe_load(head)
    assert "`gpt2`" in body
    assert "| data | the dataset folder `pairs` (last step `generate`, fingerprint `" in body
    assert "was trained to come close to the score of the pair" in body
    assert (
        "| training pairs | 48 |\n| validation examples | 16 of the same data, whose scores are by a program if"
        in body
    )
    assert "chosen by the Spearman correlation (×100)" in body
    assert "Steps: 36, each of 8 examples" in body
    assert str(tiny_gpt2) not in text


def test_an_evaluation_counts_the_pairs_that_were_learned(trained, tmp_path):
    learned, unseen = pairs(48).to_pylist(), pairs(8, 2).to_pylist()
    rows = [(row["sentence2"], row["sentence1"].upper(), row["score"]) for row in learned[:3]]
    rows += [(row["sentence1"], row["sentence2"], row["score"]) for row in unseen]
    lines = "".join(f"{one}\t{other}\t{score}\n" for one, other, score in rows)
    (tmp_path / "graded.tsv").write_text(f"sentence1\tsentence2\tscore\n{lines}")
    of = {(row["sentence1"], row["sentence2"]) for row in learned}
    again = 3 + sum((row["sentence1"], row["sentence2"]) in of for row in unseen)
    settings = EvaluateStsSettings(
        model=str(trained), data=str(tmp_path / "graded.tsv"), device="cpu", bootstrap=0
    )
    heard = Heard()
    results = evaluate_sts(settings, Run(tmp_path / "out", heard))
    assert results["graded"]["trained_on"] == again
    said = f"graded: {again} of 11 pairs are among those that the encoder was trained on"
    assert any(line.startswith(said) for line in heard.lines)


def test_the_last_line_says_what_was_written(tiny_gpt2, data, tmp_path, capsys):
    train_encoder(settings(tiny_gpt2, data, max_steps=2), Run(tmp_path / "out", Progress()))
    last = capsys.readouterr().err.splitlines()[-1]
    record = json.loads((tmp_path / "out" / "training.json").read_text())
    before, kept = (round(point["spearman"], 1) for point in record["validation"])
    better = (
        f"; the base was better before training: {before} (keep_base would have kept it)"
        if before > kept
        else ""
    )
    assert last == f"wrote {tmp_path}/out: best step 2 of 2, validation spearman {kept}{better}"


def test_without_a_validation_figure_the_last_step_was_kept():
    assert str(TrainingHistory(1200, 1200, "spearman", {}, 1.0)) == "the last of 1,200 steps"


@pytest.mark.parametrize(
    ("before", "told"),
    [
        (73.24, "; the base was better before training: 73.2 (keep_base would have kept it)"),
        (71.81, ""),  # no difference at the digits shown
        (71.8, ""),
        (60.0, ""),
        (None, ""),
    ],
)
def test_a_base_that_was_better_than_every_step_is_told(before, told):
    training = TrainingHistory(200, 100, "spearman", {0: before, 100: 71.8, 200: 70.0}, 1.0)
    assert str(training) == f"best step 100 of 200, validation spearman 71.8{told}"
    start = None if before is None else pytest.approx(before)
    assert training.to_json()["validation"][0] == {"step": 0, "spearman": start}


def test_from_python_validation_pairs_with_a_single_score_keep_the_last_step(tiny_gpt2):
    rows = [ScoredPair(str(n), f"a dog {n}", f"a hound {n}", n / 2) for n in range(3)]
    heard = Heard()
    encoder = load_sentence_encoder(str(tiny_gpt2), device="cpu")
    history = pairsmith.train_encoder(encoder, rows, rows[:1], progress=heard, max_steps=1)
    assert (history.best_step, history.validation) == (1, {})
    assert any("1 validation example cannot choose the best step" in line for line in heard.lines)


@pytest.mark.parametrize(("most", "said"), [(1, False), (300, True)])
def test_few_steps_that_were_not_asked_for_are_reported(tiny_gpt2, most, said):
    encoder, heard = load_sentence_encoder(str(tiny_gpt2), device="cpu"), Heard()
    rows = [ScoredPair(str(n), f"a dog {n}", f"a hound {n}", n / 2) for n in range(3)]
    assert pairsmith.train_encoder(encoder, rows, progress=heard, max_steps=most).steps == 1
    assert any("too few to learn much" in line for line in heard.lines) == said


def test_a_training_that_makes_the_base_worse_says_so(tiny_gpt2, tmp_path, capsys, monkeypatch):
    figures = iter([73.2, 71.8])
    monkeypatch.setattr(module, "validation_spearman", lambda *_: next(figures))
    folder = write_folder(tmp_path / "in", {"train": pairs(8), "validation": pairs(8, 1)}).path
    train_encoder(settings(tiny_gpt2, folder, max_steps=1), Run(tmp_path / "out", Progress()))
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.endswith(
        "best step 1 of 1, validation spearman 71.8; the base was better before training: 73.2 "
        "(keep_base would have kept it)"
    )
    record = json.loads((tmp_path / "out" / "training.json").read_text())
    assert record["best_step"] == 1  # the start is no candidate
    assert record["validation"] == [{"step": 0, "spearman": 73.2}, {"step": 1, "spearman": 71.8}]


def test_a_device_that_is_not_there_is_refused_before_anything_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(SettingsError, match="no MPS device here; use device cpu"):
        train_encoder(settings("none", "none", device="mps"), Run(tmp_path / "out", Silent()))


def test_the_same_training_is_not_done_again(trained, tiny_gpt2, data, capsys):
    before = (trained / "model.safetensors").stat().st_mtime_ns
    train_encoder(settings(tiny_gpt2, data, epochs=6), Run(trained, Progress()))
    assert (trained / "model.safetensors").stat().st_mtime_ns == before
    assert "already trained with these settings" in capsys.readouterr().err


def test_another_training_in_its_folder_is_refused(trained, tiny_gpt2, data):
    with pytest.raises(FolderError, match="seed: 1 there, 2 here"):
        train_encoder(settings(tiny_gpt2, data, epochs=6, seed=2), Run(trained, Silent()))


# 13 steps, a look at the validation pairs every 4, a checkpoint every 4; the tiny models have dropout.
STOPPED = {"epochs": 3, "max_steps": 13, "checkpoint_steps": 4}


@pytest.fixture(scope="module")
def whole_gpt2(tiny_gpt2, data, tmp_path_factory):
    """Trained without a stop."""
    return train_encoder(
        settings(tiny_gpt2, data, **STOPPED), Run(tmp_path_factory.mktemp("gpt2") / "whole", Silent())
    )


@pytest.fixture(scope="module")
def whole_bert(tiny_bert, train_only, tmp_path_factory):
    return train_encoder(
        settings(tiny_bert, train_only, **STOPPED), Run(tmp_path_factory.mktemp("bert") / "whole", Silent())
    )


def same_weights(*folders):
    one, other = (load_file(folder / "model.safetensors") for folder in folders)
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


class Stopped(Exception):  # noqa: N818 - it is no error
    pass


def stop_at(monkeypatch, step, *, while_saving=False):
    """Have the next training end after ``step`` steps, or while the checkpoint of that step is written."""
    real = BestStepCallback.on_save if while_saving else BestStepCallback.on_step_end

    def stopping(self, args, state, control, **kwargs):
        if state.global_step == step:
            raise Stopped
        real(self, args, state, control, **kwargs)

    monkeypatch.setattr(BestStepCallback, "on_save" if while_saving else "on_step_end", stopping)


@pytest.mark.parametrize(
    ("model", "step", "while_saving"),
    [
        pytest.param("tiny_gpt2", 2, False, marks=pytest.mark.long),
        ("tiny_gpt2", 8, False),
        pytest.param("tiny_gpt2", 13, False, marks=pytest.mark.long),
        pytest.param("tiny_bert", 11, False, marks=pytest.mark.long),
        ("tiny_bert", 8, True),
    ],
)
def test_a_stopped_training_goes_on_to_the_same_weights(
    model, step, while_saving, tmp_path, monkeypatch, request, capsys
):
    rows = request.getfixturevalue("data" if model == "tiny_gpt2" else "train_only")
    given = settings(request.getfixturevalue(model), rows, **STOPPED)
    whole = request.getfixturevalue(f"whole_{model.removeprefix('tiny_')}")
    with monkeypatch.context() as patch:
        stop_at(patch, step, while_saving=while_saving)
        with pytest.raises(Stopped):
            train_encoder(given, Run(tmp_path / "stopped", Silent()))
    train_encoder(given, Run(tmp_path / "stopped", Progress()))
    said = capsys.readouterr().err
    begun = {2: None, 8: 4, 11: 8, 13: 12}[step]
    assert ("resuming from checkpoint-" in said) == (begun is not None)
    assert f"checkpoint-{begun}" in said or begun is None
    assert same_weights(whole, tmp_path / "stopped")
    records = [json.loads((out / "training.json").read_text()) for out in (whole, tmp_path / "stopped")]
    assert records[0]["validation"] == records[1]["validation"]
    assert records[0]["best_step"] == records[1]["best_step"]
    assert not list((tmp_path / "stopped").glob(".pairsmith*"))


def test_where_steps_take_long_checkpoints_are_saved_by_the_clock(
    tiny_bert, train_only, whole_bert, tmp_path, monkeypatch, capsys
):
    given = settings(tiny_bert, train_only, **{**STOPPED, "checkpoint_steps": 100})
    with monkeypatch.context() as patch:
        patch.setattr("pairsmith.training.best_step.SAVE_SECONDS", 0.0)
        stop_at(patch, 7)
        with pytest.raises(Stopped):
            train_encoder(given, Run(tmp_path / "stopped", Silent()))
    train_encoder(given, Run(tmp_path / "stopped", Progress()))
    assert "resuming from checkpoint-6" in capsys.readouterr().err
    assert same_weights(whole_bert, tmp_path / "stopped")


def signalled(monkeypatch, *numbers):
    """Have the next training receive these signals in its third step."""
    real = BestStepCallback.on_step_begin

    def stopping(self, args, state, control, **kwargs):
        if state.global_step == 2:
            for number in numbers:
                signal.raise_signal(number)
        real(self, args, state, control, **kwargs)

    monkeypatch.setattr(BestStepCallback, "on_step_begin", stopping)


@pytest.fixture
def interruptible():
    """Ctrl-C interrupts, also where the tests run in the background, which begins without."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_command_that_is_stopped_keeps_the_step_that_it_makes(
    tiny_bert, data, tmp_path, monkeypatch, capsys, number, code
):
    command = ["train-encoder", "--base", tiny_bert, "--data", data, "--device", "cpu", "--batch-size", "8"]
    command += ["--max-steps", "5", "--eval-steps", "3", "--out"]
    before = signal.getsignal(signal.SIGTERM)

    def exit_code(out):
        with pytest.raises(SystemExit) as end:
            main([*map(str, command), str(tmp_path / out)])
        signal.signal(signal.SIGTERM, before)
        return end.value.code or 0

    assert exit_code("whole") == 0
    with monkeypatch.context() as patch:
        signalled(patch, number)
        assert exit_code("stopped") == code
    assert "stopped; finished parts are kept" in capsys.readouterr().err
    assert exit_code("stopped") == 0
    assert "resuming from checkpoint-3" in capsys.readouterr().err
    whole, stopped = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "stopped"))
    assert all(torch.equal(whole[name], stopped[name]) for name in whole)
    records = [json.loads((tmp_path / name / "training.json").read_text()) for name in ("whole", "stopped")]
    assert records[0]["validation"] == records[1]["validation"]


@pytest.mark.usefixtures("interruptible")
def test_a_second_signal_stops_a_training_at_once(tiny_bert, data, tmp_path, monkeypatch):
    given = settings(tiny_bert, data, max_steps=5)
    signalled(monkeypatch, signal.SIGINT, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        train_encoder(given, Run(tmp_path / "stopped", Silent()))
    assert not list((tmp_path / "stopped").glob(".pairsmith*/checkpoint-*"))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("damage", [b"half", None])
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(
    tiny_gpt2, data, whole_gpt2, tmp_path, monkeypatch, capsys, damage
):
    given = settings(tiny_gpt2, data, **STOPPED)
    with monkeypatch.context() as patch:
        stop_at(patch, 11)
        with pytest.raises(Stopped):
            train_encoder(given, Run(tmp_path / "stopped", Silent()))
    (weights,) = (tmp_path / "stopped").glob(".pairsmith*/checkpoint-8/model.safetensors")
    weights.unlink() if damage is None else weights.write_bytes(damage)
    train_encoder(given, Run(tmp_path / "stopped", Progress()))
    said = capsys.readouterr().err
    assert "checkpoint-8 is damaged; an earlier checkpoint is used if there is one" in said
    assert "checkpoint-4 is damaged" not in said
    assert "resuming from checkpoint-4" in said
    assert same_weights(whole_gpt2, tmp_path / "stopped")


def test_a_training_in_a_store_goes_on_from_the_checkpoint_there(
    tiny_gpt2, data, whole_gpt2, tmp_path, monkeypatch, capsys
):
    given = settings(tiny_gpt2, data, **STOPPED)
    out = place(f"memory://{tmp_path.name}/out")
    with monkeypatch.context() as patch:
        stop_at(patch, 11)
        with pytest.raises(Stopped):
            train_encoder(given, Run(out, Silent()))
    kept = {path.name for path in (out / ".pairsmith-checkpoints.tmp").iterdir()}
    assert kept == {"checkpoint-8", "step.json"}
    train_encoder(given, Run(out, Progress()))
    assert "resuming from checkpoint-8" in capsys.readouterr().err
    assert (out / "model.safetensors").read_bytes() == (whole_gpt2 / "model.safetensors").read_bytes()
    assert not [
        p for p in out.rglob("*") if p.is_file() and (".pairsmith" in str(p) or p.name == "lease.json")
    ]
    assert load_sentence_encoder(str(out)).encode(["a"]).shape == (1, 16)
    train_encoder(given, Run(out, Progress()))
    assert "nothing to do" in capsys.readouterr().err


def test_checkpoints_of_another_training_are_not_gone_on_from(tiny_gpt2, data, tmp_path, monkeypatch):
    given = settings(tiny_gpt2, data, epochs=2, checkpoint_steps=4)
    with monkeypatch.context() as patch:
        stop_at(patch, 6)
        with pytest.raises(Stopped):
            train_encoder(given, Run(tmp_path / "out", Silent()))
    other = given.model_copy(update={"seed": 2})
    train_encoder(other, Run(tmp_path / "out", Silent(), fresh=True))
    train_encoder(other, Run(tmp_path / "whole", Silent()))
    whole, out = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "out"))
    assert all(torch.equal(whole[name], out[name]) for name in whole)


def train_on(model, *, seed=1, validation=None, progress=None, **rest):
    encoder = load_sentence_encoder(str(model), device="cpu")
    training = train_encoder_on(encoder, pairs(40), validation, options(seed=seed, **rest), progress=progress)
    return encoder, training


def weights(encoder):
    return {name: value.clone() for name, value in encoder.state_dict().items()}


def equal(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("model", ["tiny_gpt2", "tiny_bert"])
def test_the_same_seed_gives_the_same_weights_and_another_seed_others(model, request):
    folder = request.getfixturevalue(model)
    first = weights(train_on(folder)[0])
    torch.manual_seed(99)  # whatever happened before must not matter
    assert equal(first, weights(train_on(folder)[0]))
    assert not equal(first, weights(train_on(folder, seed=2)[0]))


def test_a_centred_encoder_learns_its_layer_too_and_goes_on_to_the_same_weights(
    tiny_gpt2, data, tmp_path, monkeypatch
):
    given = settings(tiny_gpt2, data, epochs=3, max_steps=9, checkpoint_steps=4, centre=True)
    train_encoder(given, Run(tmp_path / "whole", Silent()))
    with monkeypatch.context() as patch:
        stop_at(patch, 6)
        with pytest.raises(Stopped):
            train_encoder(given, Run(tmp_path / "stopped", Silent()))
    train_encoder(given, Run(tmp_path / "stopped", Silent()))
    for file in ("model.safetensors", "2_Dense/model.safetensors"):
        whole, stopped = (load_file(tmp_path / name / file) for name in ("whole", "stopped"))
        assert whole
        assert equal(whole, stopped)
    assert not torch.equal(whole["linear.weight"], torch.eye(len(whole["linear.bias"])))


def test_a_plan_counts_the_layer_that_centres(tiny_gpt2, data):
    without, centred = (
        train_encoder.plan(settings(tiny_gpt2, data, centre=centre), {}).disk for centre in (False, True)
    )
    width = load_sentence_encoder(str(tiny_gpt2), device="cpu").get_embedding_dimension()
    assert centred - without == 4 * width * (width + 1)


def test_a_plan_counts_the_evaluations_on_pairs_that_an_earlier_step_will_make(tiny_gpt2, data, tmp_path):
    sample = write_folder(tmp_path / "sample", {"train": pairs(16)}).path

    def seconds(**rows):
        estimate = Estimate(1.0, 1, 1, rows, sample=pairs(16))
        given = settings(tiny_gpt2, sample, max_steps=8, eval_steps=1)
        return train_encoder.plan(given, {str(sample): estimate}).seconds

    assert seconds(train=48, validation=10**6) > 100 * seconds(train=48)


def test_looking_at_the_validation_pairs_does_not_change_the_training(tiny_gpt2, monkeypatch):
    # A rising figure, so that the last step is kept, as it is without validation pairs.
    figures = iter(range(6))
    monkeypatch.setattr(module, "spearman", lambda a, b: float(next(figures)))
    watched, training = train_on(tiny_gpt2, validation=pairs(10, 1), eval_steps=1)
    assert list(training.validation) == [0, 1, 2, 3, 4, 5]
    assert equal(weights(watched), weights(train_on(tiny_gpt2)[0]))


def test_the_weights_of_the_best_step_are_put_back(tiny_gpt2, monkeypatch):
    figures = iter([50.0, 10.0, 30.0, 30.0, None, 20.0])
    seen = []

    def figure(encoder, pairs, batch_size):
        seen.append(weights(encoder))
        return next(figures)

    monkeypatch.setattr(module, "validation_spearman", figure)
    encoder, training = train_on(tiny_gpt2, validation=pairs(10, 1), eval_steps=1)
    # The start (50) is no candidate; steps 2 and 3 are equal and the earlier one counts.
    assert training.best_step == 2
    assert equal(seen[2], weights(encoder))
    assert not equal(seen[5], weights(encoder))
    assert training.validation == {0: 50.0, 1: 10.0, 2: 30.0, 3: 30.0, 4: None, 5: 20.0}


def test_without_validation_pairs_the_last_step_is_kept_and_that_is_said(tiny_gpt2, capsys):
    _, training = train_on(tiny_gpt2, progress=Progress())
    assert (training.best_step, training.steps, training.validation) == (5, 5, {})
    err = capsys.readouterr().err
    assert "no validation split" in err
    assert "train: 5/5 steps · 100 %" in err


def test_validation_pairs_of_one_score_choose_nothing_and_that_is_said(tiny_gpt2, capsys):
    table = pairs(10, 1)
    flat = table.set_column(3, "score", pa.array([0.5] * 10))
    _, training = train_on(tiny_gpt2, validation=flat, progress=Progress())
    assert training.validation == {}
    said = (
        "10 validation examples cannot choose the best step: Spearman needs two or more with different scores"
    )
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("model", ["tiny_gpt2", "tiny_bert"])
def test_training_is_quiet(model, data, tmp_path, capfd, caplog, request):
    base = request.getfixturevalue(model)
    capfd.readouterr()  # what making the base wrote
    train_encoder(settings(base, data, max_steps=2), Run(tmp_path / "out", Silent()))
    assert capfd.readouterr() == ("", "")
    assert not caplog.records


def test_the_learning_rate_warms_up_and_falls(tiny_gpt2, monkeypatch):
    rates = []
    step = torch.optim.AdamW.step

    def watched(self, *args, **kwargs):
        rates.append(self.param_groups[0]["lr"])
        decays = {group["weight_decay"] for group in self.param_groups}
        assert decays == {0.01, 0.0}
        return step(self, *args, **kwargs)

    monkeypatch.setattr(torch.optim.AdamW, "step", watched)
    train_on(tiny_gpt2, epochs=4, warmup=0.1, learning_rate=1e-3)
    # 20 steps, two of them warm-up: 0, 1/2, then 18/18, 17/18, … 1/18 of the rate.
    expected = [0, 0.5, *(left / 18 for left in range(18, 0, -1))]
    assert rates == pytest.approx([1e-3 * share for share in expected])


def test_steps_are_those_of_the_epochs_or_fewer():
    assert options(batch_size=32).steps_of(100) == 4
    assert options(batch_size=32, epochs=0.5).steps_of(100) == 2
    assert options(batch_size=32, epochs=2.5).steps_of(100) == 10
    assert options(batch_size=32, max_steps=3).steps_of(100) == 3
    assert options(batch_size=32, max_steps=30).steps_of(100) == 4
    assert options(epochs=0.01).steps_of(1) == 1


def test_bfloat16_sums_keep_float32_weights(tiny_gpt2):
    encoder, _ = train_on(tiny_gpt2, dtype="bfloat16", max_steps=2)
    assert {weight.dtype for weight in encoder.parameters()} == {torch.float32}
    float32, _ = train_on(tiny_gpt2, dtype="float32", max_steps=2)
    assert not equal(weights(encoder), weights(float32))


def test_a_training_that_diverges_is_an_error(tiny_gpt2, monkeypatch):
    monkeypatch.setattr(
        BestStepCallback, "evaluate", lambda self, step: self.model[0].model.wte.weight.data.fill_(math.nan)
    )
    with pytest.raises(ModelError, match=r"the training diverged.*lower learning rate"):
        train_on(tiny_gpt2, max_steps=1)


def test_validation_is_undefined_for_vectors_that_are_not_finite_or_all_alike(tiny_gpt2):
    encoder = load_sentence_encoder(str(tiny_gpt2), device="cpu")
    for weight in encoder.parameters():
        weight.data.zero_()
    assert validation_spearman(encoder, pairs(6), 8) is None
    next(encoder.parameters()).data.fill_(math.nan)
    assert validation_spearman(encoder, pairs(6), 8) is None


def test_labels_instead_of_scores_are_refused(tiny_gpt2, tmp_path):
    row = {"id": ["1"], "sentence1": ["a"], "sentence2": ["b"], "label": ["entailment"]}
    folder = write_folder(tmp_path / "d", {"train": pa.table(row, schema=LABELLED_PAIR)}).path
    message = "needs the columns sentence1, sentence2, score; found id, .*, label; labels have to be numbers"
    with pytest.raises(InputError, match=message):
        train_encoder(settings(tiny_gpt2, folder), Run(tmp_path / "out", Silent()))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("score", pa.array([0.1, 0.2, math.nan, None]), "2 of 4 rows have no finite score"),
        ("score", pa.array(["0.1"] * 4), "scores must be numbers, the column holds string"),
        ("sentence2", pa.array(["a", " ", None, "b"]), "2 of 4 rows have a blank sentence2"),
    ],
)
def test_rows_without_texts_or_scores_are_refused(tiny_gpt2, column, value, message):
    table = pairs(4)
    faulty = table.set_column(table.column_names.index(column), column, value)
    encoder = load_sentence_encoder(str(tiny_gpt2), device="cpu")
    with pytest.raises(InputError, match=message):
        train_encoder_on(encoder, faulty, None, options())


@pytest.mark.parametrize("score", [5.0, -1.5])
def test_scores_that_no_cosine_can_reach_are_refused(tiny_gpt2, tmp_path, score):
    table = pairs(4).set_column(3, "score", pa.array([0.1, 0.2, 0.3, score]))
    folder = write_folder(tmp_path / "d", {"train": table}).path
    with pytest.raises(InputError, match=r"scores range from .* scale the scores to 0 … 1"):
        train_encoder(settings(tiny_gpt2, folder), Run(tmp_path / "out", Silent()))


def test_a_folder_without_rows_is_refused(tiny_gpt2, tmp_path):
    folder = write_folder(tmp_path / "d", {"train": SCORED_PAIR.empty_table()}).path
    with pytest.raises(InputError, match="d:train: no rows|d: no rows"):
        train_encoder(settings(tiny_gpt2, folder), Run(tmp_path / "out", Silent()))


def test_a_folder_without_rows_in_it_is_refused(tiny_gpt2, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InputError, match="is a folder without data"):
        train_encoder(settings(tiny_gpt2, empty), Run(tmp_path / "out", Silent()))


def test_a_sentence_transformers_base_keeps_its_pooling(tiny_bert, data, tmp_path):
    base = tmp_path / "base"
    load_sentence_encoder(str(tiny_bert), pooling="cls", device="cpu").save(
        str(base), create_model_card=False
    )
    out = train_encoder(settings(base, data, max_steps=2), Run(tmp_path / "out", Silent()))
    assert SentenceTransformer(str(out), device="cpu")[1].pooling_mode == "cls"
    assert load_file(out / "model.safetensors").keys() == load_file(base / "model.safetensors").keys()


@pytest.mark.parametrize(
    "wrong", [{"warmup": 1.0}, {"epochs": 0}, {"device": "cuda:1"}, {"learning_rate": 0}, {"decay": 1}]
)
def test_settings_refuse_what_makes_no_sense(wrong):
    with pytest.raises(ValidationError):
        TrainEncoderSettings(base="b", data="d", **wrong)


def test_defaults_are_those_of_the_paper():
    chosen = EncoderOptions()
    assert (chosen.batch_size, chosen.learning_rate, chosen.epochs, chosen.warmup) == (32, 2e-5, 1.0, 0.1)
    assert chosen.eval_steps == 100


def test_pairs_may_be_in_any_file_or_in_one_split(tiny_gpt2, data, tmp_path):
    lines = ["sentence1\tsentence2\tscore", "A guitar.\tThe market\t0.9", "A beach.\tThe dog\t0.1"]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines))
    train_encoder(settings(tiny_gpt2, tmp_path / "pairs.tsv", max_steps=1), Run(tmp_path / "a", Silent()))
    card = (tmp_path / "a" / "README.md").read_text()
    assert "| data | `pairs.tsv` |\n| training pairs | 2 |\n| validation examples | 0 |" in card
    train_encoder(settings(tiny_gpt2, f"{data}:validation", max_steps=1), Run(tmp_path / "b", Silent()))
    assert "| validation examples | 0 |" in (tmp_path / "b" / "README.md").read_text()
    (tmp_path / "d" / "data").mkdir(parents=True)
    for split in ("validation", "test"):
        pq.write_table(pairs(2), tmp_path / "d" / "data" / f"{split}-00000.parquet")
    with pytest.raises(InputError, match="has no split train, only test, validation; name one"):
        train_encoder(settings(tiny_gpt2, tmp_path / "d"), Run(tmp_path / "c", Silent()))
    (tmp_path / "pairs.tsv").write_text("text\tlabel\na\tb\n")
    with pytest.raises(InputError, match="needs the columns sentence1, sentence2, score; found text, label"):
        train_encoder(settings(tiny_gpt2, tmp_path / "pairs.tsv"), Run(tmp_path / "c", Silent()))
