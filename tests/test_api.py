"""The public names: what they are, that they are cheap to import, and that the examples run."""

import inspect
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import pairsmith
from pairsmith.core.errors import SettingsError
from pairsmith.methods.dino.options import ClassifierOptions, EncoderOptions
from pairsmith.methods.quip.training_options import StudentOptions
from pairsmith.steps.generate.settings import PostprocessSettings

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
NAMES = [
    "__version__",
    "answer_with_student",
    "distil",
    "evaluate_classification",
    "evaluate_sts",
    "find_hard_negatives",
    "generate_pairs",
    "generate_questions",
    "generate_texts",
    "label_questions",
    "load_classifier",
    "load_encoder",
    "load_language_model",
    "load_question_generator",
    "load_reader",
    "load_student",
    "load_task",
    "make_training_set",
    "mine_pairs",
    "open_dataset",
    "run_recipe",
    "train_classifier",
    "train_encoder",
]


def test_the_public_names_are_these():
    assert pairsmith.__all__ == NAMES
    assert dir(pairsmith) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES[1:])
def test_a_public_docstring_says_what_is_returned_and_sends_nobody_to_internals(name):
    text = inspect.getdoc(getattr(pairsmith, name))
    assert "Returns:" in text
    references = re.findall(r"(?:[Aa]s for|[Ss]ee) ``([\w.]+)", text)
    assert [target for target in references if target not in NAMES] == []


@pytest.mark.parametrize("name", NAMES[1:])
def test_a_public_function_is_documented_and_typed(name):
    function = getattr(pairsmith, name)
    signature = inspect.signature(function)
    assert inspect.getdoc(function)
    assert signature.return_annotation is not inspect.Signature.empty
    assert all(
        parameter.annotation is not inspect.Parameter.empty for parameter in signature.parameters.values()
    )


@pytest.mark.parametrize(
    ("name", "options", "others"),
    [
        ("make_training_set", PostprocessSettings, {"data"}),
        ("train_encoder", EncoderOptions, {"checkpoint_steps", "tensorboard"}),
        ("train_classifier", ClassifierOptions, set()),
        ("distil", StudentOptions, {"base", "checkpoint_steps", "device", "tensorboard"}),
    ],
)
def test_the_docstring_names_all_options(name, options, others):
    described = inspect.getdoc(getattr(pairsmith, name)).partition("options: ")[2].partition("Returns:")[0]
    listed = set(re.findall(r"``(\w+)``", described.partition(": ")[2])) - {"load_encoder"}
    assert listed == options.model_fields.keys() - others


def test_the_version_is_the_same_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert pairsmith.__version__ == project["version"] == citation["version"]


def test_another_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'pairsmith' has no attribute 'generate_pears'"):
        pairsmith.generate_pears  # noqa: B018


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": 6, "attention": "bidirectional"}, "give attention, layers to load_encoder"),
        ({"objektive": "cosine"}, "train_encoder: objektive: "),
        ({"keep_base": True}, "keep_base has no effect without validation pairs"),
        ({"learning_rate": -1}, "train_encoder: learning_rate: should be greater than 0, not -1"),
        ({"tensorboard": True}, "only a training with a folder has tensorboard"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(options, message):
    with pytest.raises(SettingsError, match=message):
        pairsmith.train_encoder(None, [], **options)


def test_importing_the_package_imports_no_large_library():
    code = "import sys, pairsmith; print([m for m in ('torch', 'numpy', 'pyarrow', 'pydantic') if m in sys.modules])"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "[]"


@pytest.fixture
def example(tmp_path, monkeypatch, capsys):
    """Runs an example as ``python FILE`` does, beside fewer texts; gives what it prints."""
    for name in ("write_pairs.py", "mine_pairs.py", "learn_from_questions.py"):
        shutil.copy(EXAMPLES / name, tmp_path)
    for name, count in (("sentences.txt", 60), ("graded-pairs.tsv", 60)):
        lines = (EXAMPLES / name).read_text(encoding="utf-8").splitlines(keepends=True)
        (tmp_path / name).write_text("".join(lines[:count]), encoding="utf-8")

    def run(name, *words):
        monkeypatch.setattr(sys, "argv", [name, *words])
        runpy.run_path(str(tmp_path / name), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_the_example_that_writes_pairs_runs(example):
    out = example("write_pairs.py", "pairsmith:tiny", "8")
    assert "texts rejected" in out
    assert "Spearman's correlation with people's grades:" in out


def test_the_example_that_mines_pairs_finds_texts_that_mean_the_same(example):
    out = example("mine_pairs.py")
    assert out.count("margin ") == 5
    assert "positive: " in out


def test_the_example_that_learns_from_questions_runs(example):
    assert "trained on " in example("learn_from_questions.py")
