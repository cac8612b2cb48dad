import json
from functools import partial

import pytest
import torch
from transformers.utils import logging

from pairsmith.core import model_files
from pairsmith.core.errors import ModelError, SettingsError
from pairsmith.core.folder_kinds import folder_kind
from pairsmith.core.model_files import check_model_folder, damage, pick_device, quiet_loading
from pairsmith.core.model_names import model_revision


@pytest.fixture
def machine(monkeypatch):
    def have(cuda=0, mps=False):
        monkeypatch.setattr(torch.cuda, "device_count", lambda: cuda)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)

    have()
    return have


def test_auto_is_the_best_there_is(machine):
    assert pick_device("auto") == "cpu"
    machine(mps=True)
    assert pick_device("auto") == "mps"
    machine(cuda=2, mps=True)
    assert pick_device("auto") == "cuda"


def test_a_device_that_is_there_is_itself(machine):
    machine(cuda=2, mps=True)
    for name in ("cpu", "mps", "cuda", "cuda:1"):
        assert pick_device(name) == name


def test_workers_take_one_gpu_after_the_other_unless_one_is_named(machine, monkeypatch):
    machine(cuda=2)
    devices = []
    for worker in range(3):
        monkeypatch.setattr(model_files, "_worker", worker)
        devices.append([pick_device(name) for name in ("auto", "cuda", "cuda:0", "cpu")])
    assert devices == [[f"cuda:{n}", f"cuda:{n}", "cuda:0", "cpu"] for n in (0, 1, 0)]
    for count, expected in ((1, "cuda"), (0, "cpu")):
        machine(cuda=count)
        assert pick_device("auto") == expected


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("cuda", "no CUDA device here; use device cpu"),
        ("cuda:0", "no CUDA device here; use device cpu"),
        ("mps", "no MPS device here; use device cpu"),
        ("tpu", "no device is called 'tpu'; known: auto, cpu, mps, cuda, cuda:1 …"),
    ],
)
def test_a_device_that_is_not_there_is_an_error(machine, device, message):
    with pytest.raises(SettingsError) as caught:
        pick_device(device)
    assert str(caught.value) == message


def test_a_number_too_high_names_the_last(machine):
    machine(cuda=2)
    with pytest.raises(SettingsError, match="no device cuda:2 here, the last one is cuda:1; use device cuda"):
        pick_device("cuda:2")


@pytest.fixture
def bars():
    before = logging.is_progress_bar_enabled()
    logging.enable_progress_bar()
    yield logging.is_progress_bar_enabled
    (logging.enable_progress_bar if before else logging.disable_progress_bar)()


def test_bars_are_hidden_while_loading_and_come_back(bars):
    with quiet_loading():
        assert not bars()
    assert bars()
    with pytest.raises(KeyError), quiet_loading():
        raise KeyError
    assert bars()


def test_bars_of_a_download_stay(bars):
    with quiet_loading(local=False):
        assert bars()


def test_bars_that_were_hidden_before_stay_hidden(bars):
    logging.disable_progress_bar()
    with quiet_loading():
        pass
    assert not bars()


def test_a_folder_lacks_its_files_in_words(tmp_path):
    def fault():
        with pytest.raises(ModelError) as caught:
            check_model_folder(tmp_path, "mine")
        return str(caught.value)

    assert fault() == "model mine: the folder holds no config.json; give a folder saved by transformers"
    (tmp_path / "config.json").write_text(json.dumps({}))
    assert (
        fault()
        == "model mine: the folder holds no weights (model.safetensors); give a folder saved by transformers"
    )
    (tmp_path / "model.safetensors").touch()
    assert fault() == (
        "model mine: the folder holds no tokenizer (tokenizer.json); "
        "save it there with tokenizer.save_pretrained(FOLDER)"
    )
    (tmp_path / "training.json").write_text(json.dumps({"step": "infuse", "complete": True}))
    assert fault() == (
        "model mine: the folder holds no tokenizer (tokenizer.json); "
        "rerun the command that trained it, or copy or download the folder again"
    )
    (tmp_path / "vocab.txt").touch()
    check_model_folder(tmp_path, "mine")
    (tmp_path / "config.json").unlink()
    assert fault().endswith(
        "no config.json; rerun the command that trained it, or copy or download the folder again"
    )


@pytest.mark.parametrize(
    ("name", "record", "message"),
    [
        ("manifest.json", {"step": "mine"}, "a data set that mine wrote, not a model; give a folder that a"),
        ("results.json", {"about": {"step": "evaluate sts"}}, "results that evaluate sts wrote, not a model"),
        (
            "training.json",
            {"step": "infuse", "complete": False},
            "an unfinished model that infuse trained; run",
        ),
        (
            "training.json",
            {"step": "infuse", "complete": True},
            "a model that infuse trained, without its weights; rerun the command that trained it, or copy",
        ),
        (
            "run.json",
            {"steps": {"rows": {}, "gone": {}}},
            "a recipe's run, with the folders rows, not a model",
        ),
    ],
)
def test_a_folder_of_another_step_is_named_as_what_it_is(tmp_path, name, record, message):
    (tmp_path / name).write_text(json.dumps(record))
    (tmp_path / "rows").mkdir()
    for refusing in (partial(check_model_folder, tmp_path, "mine"), partial(model_revision, str(tmp_path))):
        with pytest.raises(ModelError, match=f"this is {message}"):
            refusing()


def test_a_file_that_is_damaged_or_missing_is_named(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    assert damage(tmp_path) == ""
    again = "; rerun the command that trained it, or copy or download the folder again"
    (tmp_path / "training.json").write_text(
        json.dumps({"files": {"config.json": "", "model.safetensors": ""}})
    )
    assert damage(tmp_path) == f"its file model.safetensors is missing{again}"
    (tmp_path / "model.safetensors").write_bytes(b"short")
    assert damage(tmp_path).startswith("its file model.safetensors is damaged (")
    (tmp_path / "config.json").write_text("{")
    assert damage(tmp_path).startswith("its file config.json is damaged (")
    assert damage(tmp_path).endswith(again)


def test_files_of_other_programs_name_no_kind(tmp_path):
    for name, text in {"manifest.json": "[]", "results.json": '{"step": "x"}', "run.json": "{"}.items():
        (tmp_path / name).write_text(text)
    assert folder_kind(tmp_path) == ""
    (tmp_path / "config.json").write_text("{}")
    assert folder_kind(tmp_path) == "a model"
