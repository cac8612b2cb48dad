"""The step train-retriever, on random models."""

import json

import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from tests.training.few import PEOPLE, PLAYS, write
from tests.training.stopping import Stopped, stopped_at

from pairsmith.core.errors import InputError
from pairsmith.core.progress import Progress, Silent
from pairsmith.runs import Run
from pairsmith.steps.training.plan import BESIDE_WEIGHTS
from pairsmith.steps.training.retriever import train_retriever
from pairsmith.steps.training.settings import TrainRetrieverSettings

pytestmark = pytest.mark.slow


def rows(numbers):
    return [
        {
            "query": f"who plays the {PLAYS[n]}?",
            "positive": f"{PEOPLE[n]} plays the {PLAYS[n]}.",
            "negatives": [f"{PEOPLE[n]} plays the {PLAYS[n - 1]}.", f"The {PLAYS[n]} is in Rome."],
            "score": 5.0 + n % 3,
            "scores": [1.0, -2.0 - n % 2],
        }
        for n in numbers
    ]


@pytest.fixture
def given(tmp_path, tiny_bert):
    def make(**changes):
        fast = {
            "base": str(tiny_bert),
            "data": write(tmp_path / "rows.jsonl", rows(range(10))),
            "validation": write(tmp_path / "validation.jsonl", rows(range(10, 12))),
            "epochs": 4,
            "batch_size": 4,
            "learning_rate": 3e-3,
            "eval_steps": 4,
            "checkpoint_steps": 3,
            "device": "cpu",
        }
        return TrainRetrieverSettings(**(fast | changes))

    return make


def weights(folder):
    (file,) = folder.rglob("*.safetensors")
    return load_file(file)


OBJECTIVES = [
    {},
    {"objective": "margin-mse", "matryoshka": [8], "query_prompt": "ask: "},
    {"objective": "kl", "negatives": 1, "temperature": 2.0},
]


@pytest.mark.parametrize("how", OBJECTIVES)
@pytest.mark.parametrize("step", [pytest.param(2, marks=pytest.mark.long), 8])
def test_a_stopped_training_goes_on_to_the_same_weights(given, tmp_path, monkeypatch, how, step):
    train_retriever(given(**how), Run(tmp_path / "whole", Silent()))
    with monkeypatch.context() as patch:
        stopped_at(patch, step)
        with pytest.raises(Stopped):
            train_retriever(given(**how), Run(tmp_path / "stopped", Silent()))
    said = []
    train_retriever(given(**how), Run(tmp_path / "stopped", Telling(said)))
    assert ("resuming from checkpoint-6" in said) == (step == 8)
    whole, stopped = weights(tmp_path / "whole"), weights(tmp_path / "stopped")
    assert whole.keys() == stopped.keys()
    assert all(torch.equal(whole[name], stopped[name]) for name in whole)
    assert not list((tmp_path / "stopped").glob(".pairsmith*"))
    again = []
    train_retriever(given(**how), Run(tmp_path / "stopped", Telling(again)))
    assert again == [f"{tmp_path / 'stopped'}: already trained with these settings; nothing to do"]


class Telling(Silent):
    def __init__(self, said):
        super().__init__()
        self._said = said

    def say(self, text):
        self._said.append(text)


@pytest.mark.parametrize(
    "how", [OBJECTIVES[0], *(pytest.param(how, marks=pytest.mark.long) for how in OBJECTIVES[1:])]
)
def test_training_finds_the_documents(given, tmp_path, quick_bert, how):
    data = write(tmp_path / "all.jsonl", rows(range(12)))
    train_retriever(
        given(base=str(quick_bert), data=data, validation=data, epochs=30, **how),
        Run(tmp_path / "out", Silent()),
    )
    record = json.loads((tmp_path / "out" / "training.json").read_text())
    curve = {point["step"]: point["ndcg@10"] for point in record["validation"]}
    assert curve[record["best_step"]] > curve[0] + 15
    encoder = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    assert encoder.prompts["query"] == how.get("query_prompt", "")
    assert record["steps"] == 90


def test_the_card_and_the_facts(given, tmp_path, capsys):
    records = rows(range(6))
    data = [write(tmp_path / "a.jsonl", records), write(tmp_path / "b.jsonl", records[:2])]
    train_retriever(given(data=data, validation=None, max_steps=2), Run(tmp_path / "out", Progress()))
    text = (tmp_path / "out" / "README.md").read_text()
    assert "# A retriever of documents for queries" in text
    for fact in (
        "training rows | 6",
        "duplicate rows left out | 2",
        "negatives of all rows | 12",
        "objective | ranking",
        "validation examples | 0",
    ):
        assert f"| {fact} |" in text
    assert "encode_query" in text
    assert "`pairsmith search --model path/to/this/folder --corpus CHUNKS" in text
    assert "GPL" in text
    assert "2 of 8 rows are duplicates and are left out" in capsys.readouterr().err


def test_questions_on_passages_are_rows_too(given, tmp_path):
    questions = [{"question": f"who plays the {PLAYS[n]}?", "context": f"{PEOPLE[n]} plays the {PLAYS[n]}.",
                  "answers": {"text": [PEOPLE[n]], "answer_start": [0]}} for n in range(6)]  # fmt: skip
    data = write(tmp_path / "asked.jsonl", questions)
    train_retriever(given(data=data, validation=None, max_steps=1), Run(tmp_path / "out", Silent()))
    assert "| negatives of all rows | 0 |" in (tmp_path / "out" / "README.md").read_text()


def test_a_causal_model_with_fewer_layers_that_sees_both_ways(given, tmp_path, tiny_llama):
    train_retriever(
        given(base=str(tiny_llama), layers=1, attention="bidirectional", max_steps=2),
        Run(tmp_path / "out", Silent()),
    )
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (config["num_hidden_layers"], config["is_causal"]) == (1, False)


def test_rows_without_scores_are_refused_before_the_training(given, tmp_path):
    bare = [{name: row[name] for name in ("query", "positive", "negatives")} for row in rows(range(4))]
    data = write(tmp_path / "bare.jsonl", bare)
    with pytest.raises(InputError, match=r"bare\.jsonl:1: the row has no scores"):
        train_retriever(given(data=data, objective="kl"), Run(tmp_path / "out", Silent()))
    assert not (tmp_path / "out").exists()


def test_the_plan(given):
    some = given(objective="margin-mse", checkpoint_steps=1)
    estimate = train_retriever.plan(some, {})
    assert 0 < estimate.seconds < 600
    weights = estimate.disk - BESIDE_WEIGHTS
    assert estimate.scratch == 3 * 4 * weights  # three checkpoints, with AdamW's moments and the best weights
    two = train_retriever.plan(some.model_copy(update={"learning_rate": [1e-5, 1e-4]}), {})
    assert two.scratch == ((2 + 3) * 4 + 2) * weights  # two of the first rate, and the results of both


def test_a_single_step_learns_and_is_said_to_be_short(given, tmp_path, quick_bert):
    said = []
    data = write(tmp_path / "all.jsonl", rows(range(6)))
    settings = given(base=str(quick_bert), data=data, validation=None, epochs=1, batch_size=64)
    train_retriever(settings, Run(tmp_path / "out", Telling(said)))
    before, after = load_file(quick_bert / "model.safetensors"), weights(tmp_path / "out")
    assert any(not torch.equal(before[name], after[name]) for name in before.keys() & after.keys())
    assert any(line.startswith("only 1 step of 64 rows") for line in said)
