"""The public names: what they are, that they are cheap to import, and that the examples run."""

import inspect
import io
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from tests.tiny_bart import make_asker

import pairsmith
from pairsmith.core.errors import SettingsError
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.questions import GeneratedQuestion
from pairsmith.data.schemas import GradedPair, LabelledText, ScoredPair
from pairsmith.data.tagged import TaggedSentence
from pairsmith.methods.dino.options import ClassifierOptions, EncoderOptions
from pairsmith.methods.quip import generators
from pairsmith.methods.quip.tagger_options import TaggerOptions
from pairsmith.methods.quip.training_options import StudentOptions
from pairsmith.models.language.scripted import ScriptedModel
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
    "load_summarizer",
    "load_tagger",
    "load_task",
    "make_training_set",
    "mine_pairs",
    "open_dataset",
    "run_recipe",
    "train_classifier",
    "train_encoder",
    "train_tagger",
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


@pytest.mark.parametrize("name", NAMES[1:])
def test_the_page_on_python_calls_the_first_arguments_as_the_function_does(name):
    page = (EXAMPLES.parent / "docs" / "python.md").read_text(encoding="utf-8")
    (arguments,) = re.findall(rf"^\| `{name}\((.+)\)` \|", page, re.MULTILINE)
    parameters = inspect.signature(getattr(pairsmith, name)).parameters
    listed = arguments.split(", ")
    assert listed == list(parameters)[: len(listed)]
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    required = {
        key for key, value in parameters.items() if value.default is value.empty and value.kind not in kinds
    }
    assert required <= set(listed)


@pytest.mark.parametrize(
    ("name", "options", "others"),
    [
        ("make_training_set", PostprocessSettings, {"data"}),
        ("train_encoder", EncoderOptions, {"checkpoint_steps", "tensorboard"}),
        ("train_classifier", ClassifierOptions, set()),
        ("train_tagger", TaggerOptions, set()),
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


LANGUAGE_MODEL = ScriptedModel(lambda prompt, written: {'"': 1.0}, 'a"')
STS = pairsmith.load_task("sts")
REVIEWS = pairsmith.load_task("movie-reviews")
FEW = REVIEWS.decoding.model_copy(update={"per_input": 2})
QUESTIONS = [GeneratedQuestion(name, "Ann left.", f"{name}?", "Ann", (0, 3), (0, 3)) for name in "ab"]
SCORED = [ScoredPair(name, name, f"{name} b", float(name == "a")) for name in "abc"]
LABELLED = [LabelledText(name, f"{name} {label}", label) for name in "abc" for label in ("good", "bad")]
TAGGED = TaggedSentence(("Ann", "ran"), ("B-PER", "O"))
RECIPE = """\
name: own
steps:
  - name: pairs
    step: ask
    settings: {inputs: ./texts.txt, model: cloze, questions: 1}
"""

CALLS = {
    "answer_with_student": (
        lambda of, how: pairsmith.answer_with_student(of("student"), ["a?", "b?"], ["a", "a"], **how),
        ["answer: 2/2 questions"],
    ),
    "distil": (
        lambda of, how: pairsmith.distil(
            QUESTIONS, of("bert"), labels="answers", max_steps=1, device="cpu", **how
        ),
        ["look for answers: 1/1 passages", "train: 1/1 steps"],
    ),
    "evaluate_classification": (
        lambda of, how: pairsmith.evaluate_classification(of("classifier"), LABELLED, **how),
        ["classify: 6/6 texts"],
    ),
    "evaluate_sts": (
        lambda of, how: pairsmith.evaluate_sts(
            of("encoder"), [GradedPair("a", "b", 1.0), GradedPair("a", "c", 2.0)], **how
        ),
        ["encode: 3/3 sentences"],
    ),
    "find_hard_negatives": (
        lambda of, how: pairsmith.find_hard_negatives(
            [("a", "b"), ("a", "c")], ["d", "e"], of("encoder"), **how
        ),
        ["encode: 1/1 queries", "encode: 2/2 texts", "encode: 2/2 positives", "search: 1/1 queries"],
    ),
    "generate_pairs": (
        lambda of, how: pairsmith.generate_pairs(STS, LANGUAGE_MODEL, ["a", "b"], **how),
        ["generate: 6/6 prompts"],
    ),
    "generate_questions": (
        lambda of, how: pairsmith.generate_questions(["Ann left.", "Bob came."], of("generator"), **how),
        ["generate: 2/2 passages"],
    ),
    "generate_texts": (
        lambda of, how: pairsmith.generate_texts(REVIEWS, LANGUAGE_MODEL, decoding=FEW, **how),
        ["generate: 4/4 prompts"],
    ),
    "label_questions": (
        lambda of, how: pairsmith.label_questions(QUESTIONS, of("reader"), **how),
        ["answer: 2/2 questions"],
    ),
    "mine_pairs": (
        lambda of, how: pairsmith.mine_pairs(["a", "b"], ["c", "d", "e"], of("encoder"), **how),
        ["encode: 2/2 inputs", "encode: 3/3 outputs", "search: 2/2 inputs"],
    ),
    "run_recipe": (
        lambda of, how: pairsmith.run_recipe(of("recipe"), of("recipe").parent / "out", **how),
        ["ask: 1/1 texts"],
    ),
    "train_classifier": (
        lambda of, how: pairsmith.train_classifier(of("encoder"), LABELLED, **how),
        ["encode: 6/6 texts"],
    ),
    "train_encoder": (
        lambda of, how: pairsmith.train_encoder(of("encoder"), SCORED, max_steps=1, **how),
        ["train: 1/1 steps"],
    ),
    "train_tagger": (
        lambda of, how: pairsmith.train_tagger(of("student"), [TAGGED], epochs=2, **how),
        ["train: 2/2 sentences"],
    ),
}
"""For each function that may run for longer than some seconds, a call of it, and the bars that it shows."""


def test_all_functions_but_these_show_their_progress():
    others = {"make_training_set", "open_dataset", *(name for name in NAMES if name.startswith("load_"))}
    assert [name for name in NAMES[1:] if name not in others] == sorted(CALLS)


@pytest.mark.parametrize("name", CALLS)
def test_a_function_shows_how_far_it_is_and_nothing_by_default(name, tiny_bert, tmp_path, capfd):
    def of(kind):
        """A small model or file of this kind; the encoder may be trained, so it is loaded for each call."""
        match kind:
            case "bert":
                return str(tiny_bert)
            case "encoder":
                return pairsmith.load_encoder(str(tiny_bert), device="cpu")
            case "classifier":
                return pairsmith.train_classifier(of("encoder"), LABELLED)
            case "generator":
                return pairsmith.load_question_generator("cloze")
            case "reader":
                return pairsmith.load_reader(str(tiny_bert), fresh_head=True, device="cpu")
            case "student":
                return pairsmith.load_student(str(tiny_bert), fresh_heads=True, device="cpu")
        (tmp_path / "texts.txt").write_text("Ann met Bob in Rome.\n", encoding="utf-8")
        (tmp_path / "own.yaml").write_text(RECIPE, encoding="utf-8")
        return tmp_path / "own.yaml"

    call, bars = CALLS[name]
    parameter = inspect.signature(getattr(pairsmith, name)).parameters["progress"]
    assert (parameter.kind, parameter.default) == (inspect.Parameter.KEYWORD_ONLY, None)
    stream = io.StringIO()
    call(of, {"progress": Progress(stream, every=0)})
    counts = re.findall(r"^([^:\n]+: ([\d,]+)/([\d,]+) \w+) · ", stream.getvalue(), re.MULTILINE)
    assert list(dict.fromkeys(line for line, done, total in counts if done == total)) == bars
    capfd.readouterr()
    call(of, {})
    assert capfd.readouterr() == ("", "")
    with pytest.raises(SettingsError, match=r"^progress must be pairsmith.core.progress.Progress\(\), or"):
        call(of, {"progress": True})


def test_a_model_is_saved_in_a_folder_only(tiny_bert, tmp_path):
    classifier = pairsmith.train_classifier(pairsmith.load_encoder(str(tiny_bert), device="cpu"), LABELLED)
    student = pairsmith.load_student(str(tiny_bert), fresh_heads=True, device="cpu")
    tagger = pairsmith.train_tagger(student, [TAGGED], epochs=1)
    file = tmp_path / "file"
    file.write_text("kept")
    for model in (classifier, student, tagger):
        with pytest.raises(SettingsError, match=r"^folder \S+file is a file; give the path of a folder$"):
            model.save(file)
        with pytest.raises(
            SettingsError, match=r"^folder must be the path of a folder, not of the type None"
        ):
            model.save(None)
    assert file.read_text() == "kept"


def test_what_is_loaded_is_shown_in_one_line(tiny_bert, tiny_gpt2, tmp_path):
    bert, gpt2, asker = str(tiny_bert), str(tiny_gpt2), str(make_asker(tmp_path / "asker"))
    pairsmith.train_classifier(pairsmith.load_encoder(bert, device="cpu"), LABELLED).save(tmp_path / "saved")
    cpu = {"device": "cpu"}
    student = pairsmith.load_student(bert, fresh_heads=True, **cpu)
    pairsmith.train_tagger(student, [TAGGED], epochs=1).save(tmp_path / "tagger")
    of_gpt2 = f"TransformersModel({gpt2!r}, dtype=float32, device=cpu)"
    of_bert = f"{bert!r}, max_length=64, dtype=float32, device=cpu"
    shown = {
        "load_classifier": [
            (
                pairsmith.load_classifier(tmp_path / "saved", **cpu),
                "TextClassifier(2 labels: bad, good, device=cpu)",
            )
        ],
        "load_language_model": [(pairsmith.load_language_model(gpt2, **cpu), of_gpt2)],
        "load_question_generator": [
            (pairsmith.load_question_generator("cloze"), "ClozeGenerator(answers='rule')"),
            (
                pairsmith.load_question_generator("pairsmith:tiny", **cpu),
                f"CausalGenerator({of_gpt2})".replace(gpt2, "pairsmith:tiny"),
            ),
            (
                pairsmith.load_question_generator(asker, **cpu),
                f"SequenceGenerator(TextGenerator(BartForConditionalGeneration {asker!r}, max_length=64, "
                "dtype=float32, device=cpu))",
            ),
        ],
        "load_reader": [
            (
                pairsmith.load_reader(bert, fresh_head=True, **cpu),
                f"Reader(BertForQuestionAnswering {of_bert})",
            ),
            (
                pairsmith.load_reader(bert, fresh_head=True, perceptrons=True, **cpu),
                f"Reader(PerceptronReader {of_bert})",
            ),
        ],
        "load_summarizer": [
            (
                pairsmith.load_summarizer(asker, **cpu),
                f"TextGenerator(BartForConditionalGeneration {asker!r}, max_length=64, dtype=float32, device=cpu)",
            )
        ],
        "load_tagger": [
            (
                pairsmith.load_tagger(tmp_path / "tagger", **cpu),
                f"Tagger(BertForTokenClassification {of_bert})".replace(bert, str(tmp_path / "tagger")),
            )
        ],
        "load_student": [
            (
                pairsmith.load_student(bert, fresh_heads=True, **cpu),
                f"SpanEncoder(TokenEncoder(BertModel {of_bert}))",
            )
        ],
        "load_task": [(STS, "TaskSpec(name='sts', kind='pair', labels=('1', '0.5', '0'))")],
    }
    # ``load_encoder`` returns a class of sentence-transformers.
    loaders = [name for name in NAMES if name.startswith("load_") and name != "load_encoder"]
    assert sorted(shown) == loaders
    for loaded in shown.values():
        assert [repr(value) for value, _ in loaded] == [line for _, line in loaded]


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


def test_what_a_function_imports_when_it_is_called_is_imported_with_its_name():
    code = (
        "import sys, pairsmith; "
        "pairsmith.load_question_generator('cloze'); print('transformers.modeling_utils' in sys.modules); "
        "pairsmith.load_reader; print('transformers.modeling_utils' in sys.modules); "
        "pairsmith.distil; print('pairsmith.methods.quip.student' in sys.modules)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.split() == ["False", "True", "True"]


def test_a_question_generator_imports_its_libraries_before_its_model_is_opened(monkeypatch):
    did = []
    monkeypatch.setattr(generators, "import_whole", lambda *names: did.extend(names))
    monkeypatch.setattr(generators, "generator_kind", lambda model: "encoder-decoder")
    monkeypatch.setattr(generators, "load_text_generator", lambda model, **how: did.append(model))
    monkeypatch.setattr(generators, "SequenceGenerator", lambda *given: None)
    pairsmith.load_question_generator("org/asker")
    assert did == ["transformers.modeling_utils", "org/asker"]


def test_the_traceback_of_a_stopped_recipe_says_how_to_go_on(tmp_path):
    class Stopping(Silent):
        def say(self, text):
            raise KeyboardInterrupt

    (tmp_path / "in.txt").write_text("A dog runs.\n")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("name: r\nsteps:\n  - {name: parts, step: chunk, settings: {documents: [./in.txt]}}\n")
    with pytest.raises(KeyboardInterrupt) as stopped:
        pairsmith.run_recipe(recipe, tmp_path / "out", progress=Stopping())
    (note,) = stopped.value.__notes__
    assert note == "finished parts are kept; the same call of run_recipe continues the recipe"
    assert pairsmith.run_recipe(recipe, tmp_path / "out").keys() == {"seconds"}


def test_a_script_without_a_guard_is_told_of_it_by_its_workers(tmp_path):
    settings = (
        '{task: sts, model: "pairsmith:tiny", inputs: ./in.txt, per_input: 1, workers: 2, shard_size: 1}'
    )
    (tmp_path / "in.txt").write_text("A dog runs.\nA man plays.\n")
    (tmp_path / "recipe.yaml").write_text(
        f"name: r\nsteps:\n  - name: pairs\n    step: generate\n    settings: {settings}\n"
    )
    (tmp_path / "script.py").write_text("import pairsmith\npairsmith.run_recipe('recipe.yaml', 'out')\n")
    process = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    said = process.stderr
    assert said.count('put what the script does below if __name__ == "__main__":') == 2
    assert said.splitlines()[-1].endswith("(exit code 1); their errors, above this one, say why")
    assert process.returncode == 1


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
