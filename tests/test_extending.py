"""What CONTRIBUTING.md promises: an evaluation or a step is one file and one line, a decoding rule one function."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

import pairsmith
from pairsmith.cli.app import main
from pairsmith.cli.steps import STEPS
from pairsmith.models.language.scripted import ScriptedModel
from pairsmith.steps.step import Step

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
EVALUATION = '''
"""How long the texts of pairs are."""

from pydantic import Field

from pairsmith.core.settings import BY_CONTENT, Settings
from pairsmith.data.readers import read_pairs
from pairsmith.runs import Identity, Run, hash_source
from pairsmith.steps.evaluate.results import evaluate_once


class EvaluateLengthSettings(Settings):
    """Measure how long the texts of pairs are."""

    data: str = Field(description="Pairs, as generate writes them.", json_schema_extra=BY_CONTENT)
    unit: str = Field(default="words", pattern="^(words|characters)$", description="words or characters.")


def evaluate_length(settings: EvaluateLengthSettings, run: Run) -> dict[str, object]:
    """Write the mean length to ``results.json``."""

    def compute():
        texts = [text for pair in read_pairs(settings.data) for text in (pair.sentence1, pair.sentence2)]
        counts = [len(text.split()) if settings.unit == "words" else len(text) for text in texts]
        return {"mean": sum(counts) / len(counts)}, [{"length": count} for count in counts]

    identity = Identity.of("evaluate length", settings.deciding(), {"data": hash_source(settings.data)})
    return evaluate_once(run, identity, settings, compute)
'''

MODEL_EVALUATION = '''
"""How many tokens a model needs for the texts of pairs."""

from pydantic import Field
from transformers import AutoTokenizer

from pairsmith.core.model_names import resolve_model
from pairsmith.core.settings import BY_CONTENT
from pairsmith.data.readers import read_pairs
from pairsmith.steps.evaluate.evaluation import Evaluation, extrapolated
from pairsmith.steps.evaluate.figures import means_and_intervals, resampled_means, with_interval
from pairsmith.steps.evaluate.paired import Paired
from pairsmith.steps.evaluate.settings import ComparedSettings
from pairsmith.steps.planning import count_in_run


class EvaluateTokensSettings(ComparedSettings):
    """Measure how many tokens a model needs for the texts of pairs."""

    model: str = Field(description="A language model.", json_schema_extra=BY_CONTENT)
    data: str = Field(description="Pairs, as generate writes them.", json_schema_extra=BY_CONTENT)


def load(settings):
    tokenizer = AutoTokenizer.from_pretrained(resolve_model(settings.model))
    return lambda texts: [len(tokenizer(text)["input_ids"]) for text in texts]


def read(settings):
    return [text for pair in read_pairs(settings.data) for text in (pair.sentence1, pair.sentence2)]


def compute(settings, texts, progress):
    counts = load(settings)(texts)
    figures = means_and_intervals({"tokens": counts}, bootstrap=settings.bootstrap, seed=settings.seed)
    return figures, [{"text": text, "tokens": count} for text, count in zip(texts, counts)]


def resampled(settings, lines):
    figures = {"tokens": [line["tokens"] for line in lines]}
    return resampled_means(figures, bootstrap=settings.bootstrap, seed=settings.seed)


def plan(settings, before):
    texts = read(settings)
    count = count_in_run(len(texts), [settings.data], before)
    return extrapolated(lambda: load(settings), texts, count, lambda text: len(text) + 30)


evaluate_tokens = Evaluation(
    "evaluate tokens",
    read,
    compute,
    lambda results: f"tokens of a text (95 %)  {with_interval(results, 'tokens')}",
    plan,
    Paired("texts", lambda settings, texts: ({"text": text} for text in texts), resampled),
)
'''

STEP = '''
"""Turns both texts of pairs to lower case."""

from pydantic import Field

from pairsmith.core.settings import BY_CONTENT, Settings
from pairsmith.data.readers import read_pairs
from pairsmith.data.schemas import REJECT, SCORED_PAIR, ScoredPair, to_table
from pairsmith.runs import Card, FolderWriter, Identity, Run, hash_source


class LowerSettings(Settings):
    """Turn both texts of scored pairs to lower case."""

    data: str = Field(description="Scored pairs.", json_schema_extra=BY_CONTENT)


def lower(settings: LowerSettings, run: Run) -> None:
    """Write the pairs into a dataset folder."""
    identity = Identity.of("lower", settings.deciding(), {"data": hash_source(settings.data)})
    writer = FolderWriter.start(run, identity, SCORED_PAIR, planned=1)
    pairs = enumerate(read_pairs(settings.data))
    rows = [ScoredPair(str(n), p.sentence1.lower(), p.sentence2.lower(), p.score) for n, p in pairs]
    writer.commit_all({"train": to_table(rows, SCORED_PAIR)}, to_table([], REJECT))
    writer.finish(Card("Pairs in lower case", "The pairs of a file."))
'''

RULE = '''
def sharpened(p_main, p_counter):
    """The square of the main prompt's probabilities, renormalised; counter-prompts have no say."""
    squared = p_main**2
    return squared / squared.sum(dim=1, keepdim=True)
'''


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "extra"
    folder.mkdir()
    files = {"length": EVALUATION, "tokens": MODEL_EVALUATION, "lower": STEP, "rules": RULE}
    for name, text in {"__init__": "", **files}.items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "extra"]:
        del sys.modules[name]


@pytest.fixture
def pairs(tmp_path):
    rows = [
        {"sentence1": f"A Man plays {n}.", "sentence2": "Two DOGS run on.", "score": n % 2}
        for n in range(300)
    ]
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def called(*arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return ended.value.code


def test_an_evaluation_is_one_file_and_one_line(package, pairs, tmp_path, monkeypatch, capsys):
    from extra.length import EvaluateLengthSettings

    monkeypatch.setitem(  # the line in steps/table.py
        STEPS,
        "evaluate-length",
        Step(
            EvaluateLengthSettings,
            "extra.length:evaluate_length",
            "Measure how long texts are.",
            planned_rows_setting="data",
        ),
    )
    assert called("evaluate", "length", "--data", pairs, "--out", tmp_path / "out") == 0
    assert json.loads((tmp_path / "out" / "results.json").read_text())["mean"] == 4.0
    capsys.readouterr()
    assert called("evaluate", "--help") == 0
    assert "Measure how long texts are." in capsys.readouterr().out
    spec = importlib.util.spec_from_file_location("make_docs", ROOT / "scripts" / "make_docs.py")
    make_docs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_docs)
    assert "`--unit`" in make_docs.step_page("evaluate-length", STEPS["evaluate-length"])
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        f"name: lengths\nsteps:\n  - name: long\n    step: evaluate-length\n    settings: {{data: {pairs}, unit: lines}}\n"
    )
    assert called("run", recipe, "--out", tmp_path / "run") == 2
    assert "unit" in capsys.readouterr().err
    recipe.write_text(recipe.read_text().replace("lines", "characters"))
    assert called("run", recipe, "--out", tmp_path / "run") == 0
    planned = STEPS["evaluate-length"].planner()(EvaluateLengthSettings(data=str(pairs)), {})
    whole = sum(file.stat().st_size for file in (tmp_path / "out").rglob("*") if file.is_file())
    assert planned.seconds > 0
    assert planned.disk == pytest.approx(whole, rel=0.1)


def test_an_evaluation_of_a_model_is_compared_and_planned(package, pairs, tmp_path, monkeypatch, capsys):
    from extra.tokens import EvaluateTokensSettings

    step = Step(
        EvaluateTokensSettings, "extra.tokens:evaluate_tokens", "Measure how long texts are in tokens."
    )
    monkeypatch.setitem(STEPS, "evaluate-tokens", step)
    command = ["evaluate", "tokens", "--model", "pairsmith:tiny", "--data", pairs]
    assert called(*command, "--out", tmp_path / "first") == 0
    assert called(*command, "--out", tmp_path / "second", "--against", tmp_path / "first") == 0
    results = json.loads((tmp_path / "second" / "results.json").read_text())
    assert results["tokens_ci"][0] <= results["tokens"] <= results["tokens_ci"][1]
    assert results["against"]["tokens"] == {
        "difference": 0.0,
        "difference_ci": [0.0, 0.0],
        "verdict": "within noise",
    }
    said = capsys.readouterr()
    assert f"tokens of a text (95 %)  {results['tokens']:6.2f}  [" in said.out + said.err
    assert called(*command, "--out", tmp_path / "first") == 0
    assert "already evaluated with these settings" in capsys.readouterr().err
    settings = EvaluateTokensSettings(model="pairsmith:tiny", data=str(pairs))
    assert step.planner()(settings, {}).seconds > 0
    step.data_checker()(settings, ())


def test_a_step_is_one_file_and_one_line(package, pairs, tmp_path, monkeypatch):
    from extra.lower import LowerSettings

    monkeypatch.setitem(
        STEPS,
        "lower",
        Step(LowerSettings, "extra.lower:lower", "Lower the texts.", planned_rows_setting="data"),
    )
    assert called("lower", "--data", pairs, "--out", tmp_path / "out") == 0
    rows = pairsmith.open_dataset(tmp_path / "out").table().to_pylist()
    assert len(rows) == 300
    assert (rows[7]["sentence1"], rows[7]["sentence2"]) == ("a man plays 7.", "two dogs run on.")


def test_a_decoding_rule_is_one_function(package):
    from extra.rules import sharpened

    task = pairsmith.load_task("sts")
    model = ScriptedModel(lambda prompt, written: {"a": 0.5, "b": 0.2, '"': 0.3}, 'ab"')
    pairs = pairsmith.generate_pairs(task, model, ["A man plays."], rule="extra.rules.sharpened", seed=1)
    assert pairs == pairsmith.generate_pairs(task, model, ["A man plays."], rule=sharpened, seed=1)
