"""Trainings that several processes share, started as people start them: by torchrun."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file
from tests.folders import write_folder
from tests.training.few import PEOPLE, PLAYS, reading, write

from pairsmith.cli.app import _progress, main
from pairsmith.cli.process import refuse_several
from pairsmith.core.errors import SettingsError
from pairsmith.core.progress import Progress, Quiet, Silent
from pairsmith.data.schemas import SCORED_PAIR, ScoredPair, to_table
from pairsmith.runs import Run
from pairsmith.steps.training.biencoder import train_biencoder
from pairsmith.steps.training.encoder import train_encoder
from pairsmith.steps.training.settings import TrainBiencoderSettings, TrainEncoderSettings
from pairsmith.training import fit
from pairsmith.training.processes import Processes

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
ENCODER = (
    "train-encoder --data pairs --objective contrastive --hard-negatives 0 --epochs 3 --max-steps 7 "
    "--batch-size 4 --eval-steps 3 --checkpoint-steps 2 --learning-rate 1e-3 --attention-dropout 0"
)
CROSS = (
    "train-crossencoder --seeds seeds.tsv --steps 5 --batch-size 4 --learning-rate 1e-3 --attention-dropout 0"
)
INFUSE = (
    "infuse --data asked.jsonl --labels answers --max-steps 5 --batch-size 4 --learning-rate 1e-3 "
    "--validation asked.jsonl --eval-steps 2 --attention-dropout 0"
)
# Passages with different numbers of questions, and questions with different numbers of tokens, in both halves.
READER = (
    "train-reader --seeds asked.jsonl --steps 5 --batch-size 4 --learning-rate 1e-3 --attention-dropout 0"
)
ASKER = (
    "train-asker --data asked.jsonl --max-steps 5 --batch-size 4 --learning-rate 1e-3 --attention-dropout 0"
)
WITHOUT_EFFECT = ("qa_outputs.bias", "encoder.layer.1.output.LayerNorm.bias")
"""Numbers that a reader adds to the logits of all tokens alike: what changes them is rounding, made large by Adam."""


@pytest.fixture
def world(tmp_path, tiny_bert, monkeypatch):
    """A folder with a base without dropout, scored pairs and seeds."""
    from transformers import AutoModel, AutoTokenizer

    base = AutoModel.from_pretrained(tiny_bert, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    base.save_pretrained(tmp_path / "base")
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(tmp_path / "base")
    texts = [(f"who plays the {play}", f"{person} plays") for play, person in zip(PLAYS, PEOPLE, strict=True)]
    rows = [
        ScoredPair(f"{number}{score}", one, f"{other} {word}", score)
        for number, (one, other) in enumerate(texts)
        for score, word in ((1.0, "well"), (0.0, "never"))
    ]
    tables = {"train": to_table(rows, SCORED_PAIR), "validation": to_table(rows[:6], SCORED_PAIR)}
    write_folder(tmp_path / "pairs", tables)
    lines = [f"{one}\t{other}" for one, other in texts]
    (tmp_path / "seeds.tsv").write_text("\n".join(["input\toutput", *lines]) + "\n")
    uneven = [0, *range(12), 0, 3, 3, 7]
    rows = [
        json.loads(line) for line in Path(reading(tmp_path / "all.jsonl", uneven)).read_text().splitlines()
    ]
    for number, row in enumerate(rows):
        row["question"] += " in the evening" * (number % 5)
    write(tmp_path / "asked.jsonl", rows)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def by_two(command):
    """Run a command in two processes; returns what they said."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*launch, "-m", "pairsmith", *command.split()],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def largest_difference(one, other, without=()):
    files = sorted(path.name for path in one.glob("*.safetensors"))
    assert files == sorted(path.name for path in other.glob("*.safetensors"))
    largest = 0.0
    for file in files:
        mine, theirs = (load_file(folder / file) for folder in (one, other))
        assert mine.keys() == theirs.keys()
        names = [name for name in mine if not name.endswith(without)]
        largest = max(largest, *(float((mine[name] - theirs[name]).abs().max()) for name in names))
    return largest


@pytest.mark.long
@pytest.mark.parametrize("command", [ENCODER, CROSS, INFUSE, READER, ASKER])
def test_two_processes_learn_what_one_learns(world, command):
    given = f"{command} --base base --device cpu --dtype float32"
    with pytest.raises(SystemExit, match="0"):
        main([*given.split(), "--out", "one", "--quiet"])
    said = by_two(f"{given} --out two")
    without = WITHOUT_EFFECT if command == READER else ()
    assert largest_difference(world / "one", world / "two", without) < 1e-6
    assert (world / "one/README.md").read_text() == (world / "two/README.md").read_text()
    assert said.count("wrote two") == 1
    assert said.count("next: ") <= 1
    assert "Traceback" not in said
    assert "find_unused_parameters" not in said
    assert not list((world / "two").glob(".pairsmith*"))


# Python 3.12 and later warn of it.
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("command", [CROSS, INFUSE, ASKER])
def test_processes_that_prepare_batches_change_no_weight(world, command, monkeypatch):
    make_row = fit.EpochRows.__getitem__

    def noted(rows, index):
        with (world / "pids").open("a") as file:
            file.write(f"{os.getpid()}\n")
        return make_row(rows, index)

    monkeypatch.setattr(fit.EpochRows, "__getitem__", noted)
    given = f"{command} --base base --device cpu --dtype float32 --quiet"
    for out, more in (("one", ""), ("two", " --loader-workers 2")):
        with pytest.raises(SystemExit, match="0"):
            main([*f"{given}{more}".split(), "--out", out])
    files = sorted(path.name for path in (world / "one").glob("*.safetensors"))
    assert files
    for file in files:
        assert (world / "one" / file).read_bytes() == (world / "two" / file).read_bytes()
    assert len(set((world / "pids").read_text().split()) - {str(os.getpid())}) == 2


def as_two(monkeypatch, number=0):
    for name, value in {"LOCAL_RANK": number, "RANK": number, "WORLD_SIZE": 2, "MASTER_ADDR": "x"}.items():
        monkeypatch.setenv(name, str(value))


def test_what_the_launcher_says(monkeypatch, tmp_path):
    assert Processes.current() == Processes()
    monkeypatch.setenv("WORLD_SIZE", "4")  # as Slurm's own tools set it, without a launcher
    assert Processes.current() == Processes()
    as_two(monkeypatch, 1)
    assert Processes.current() == Processes(1, 2)
    assert not Processes.current().writes
    run = Run(tmp_path, Progress())
    assert type(Processes.current().quiet_unless_writing(run).progress) is Quiet
    assert Processes(0, 2).quiet_unless_writing(run) is run
    assert Processes(1, 2).part_of(8) == 4


def test_trainings_that_cannot_be_shared_are_refused(monkeypatch, tmp_path):
    as_two(monkeypatch)
    run = Run(tmp_path / "out", Silent())
    with pytest.raises(SettingsError, match="--batch-size 7 cannot be shared by 2 processes"):
        train_encoder(TrainEncoderSettings(base="b", data="d", batch_size=7, device="cpu"), run)
    with pytest.raises(SettingsError, match="--objective cosent compares all pairs of a batch"):
        train_encoder(TrainEncoderSettings(base="b", data="d", objective="cosent"), run)
    with pytest.raises(
        SettingsError, match="train-biencoder runs in one process: its loss compares each output"
    ):
        train_biencoder(TrainBiencoderSettings(base="b", seeds="d"), run)
    assert not (tmp_path / "out").exists()


def test_only_the_first_process_says_what_to_do_next(monkeypatch, capsys):
    for number, said in ((0, "next\n"), (1, "")):
        as_two(monkeypatch, number)
        _progress(quiet=False).say("next")
        assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("command", "instead"),
    [
        ("generate --out out", "start it without and give it --workers"),
        ("evaluate sts --model m --data d --out out", "start it without"),
        ("run quickstart --out out", "start the recipe without, or run its trainings as single commands"),
        ("compare compare-sts --out out", "start it without"),
    ],
)
def test_other_commands_are_refused(monkeypatch, tmp_path, capsys, command, instead):
    """Else one of them would write, and the launcher would end it when the others are refused the folder."""
    as_two(monkeypatch)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="2"):
        main(command.split())
    assert capsys.readouterr().err == (
        "pairsmith: error: a launcher such as torchrun started this command 2 times, but only trainings can "
        f"be shared by several processes; {instead}\n"
    )
    assert not (tmp_path / "out").exists()


def test_only_the_first_process_of_a_launcher_says_that_a_command_is_refused(monkeypatch, tmp_path, capsys):
    """The others wait, as the launcher would end the first one if they failed before it."""
    as_two(monkeypatch, 1)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pairsmith.cli.process.signal.signal", lambda *_: None)
    waits = []
    monkeypatch.setattr("pairsmith.cli.process.time.sleep", waits.append)
    with pytest.raises(SystemExit, match="2"):
        main(["generate", "--out", "out"])
    assert (capsys.readouterr().err, waits) == ("", [30.0])


def test_the_processes_of_a_launcher_do_not_show_warnings_of_ddp(monkeypatch):
    monkeypatch.setenv("TORCH_CPP_LOG_LEVEL", "INFO")
    as_two(monkeypatch)
    for given, level in (("INFO", "INFO"), (None, "ERROR")):
        if given is None:
            monkeypatch.delenv("TORCH_CPP_LOG_LEVEL")
        with pytest.raises(SystemExit, match="0"):
            main(["--version"])
        assert os.environ["TORCH_CPP_LOG_LEVEL"] == level


@pytest.mark.parametrize(
    "variables",
    [
        {"RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "node"},  # set for all jobs of some clusters
        {"LOCAL_RANK": "0", "RANK": "0", "WORLD_SIZE": "4"},
        {"LOCAL_RANK": "0", "RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "node"},  # torchrun, one process
    ],
)
def test_a_single_process_is_no_part_of_a_training(monkeypatch, capsys, variables):
    for name in ("LOCAL_RANK", "RANK", "WORLD_SIZE", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    refuse_several("start it without")
    _progress(quiet=False).say("next")
    assert capsys.readouterr().err == "next\n"
