"""The settings of the trainings: they decide as ever what a run is, and how to learn knows no files."""

from pathlib import Path

import pytest

from pairsmith.cli.options import in_help_order
from pairsmith.cli.setting_texts import free_texts
from pairsmith.cli.steps import SOURCE_SETTINGS, STEPS
from pairsmith.core.fields import WorkerSettings
from pairsmith.core.progress import Progress
from pairsmith.core.settings import Settings
from pairsmith.methods.dino.options import ClassifierOptions, EncoderOptions
from pairsmith.methods.mining.options import (
    BiencoderOptions,
    CrossencoderOptions,
    ReaderOptions,
    SummarizerOptions,
)
from pairsmith.methods.quip.training_options import (
    QuestionGeneratorOptions,
    StudentOptions,
    TeacherOptions,
)
from pairsmith.methods.retrieval.retriever_options import RetrieverOptions
from pairsmith.runs import hash_source
from pairsmith.runs.identity import Identity
from pairsmith.steps.training.step import warn_of_equal_data

OPTIONS = {
    "train-encoder": EncoderOptions,
    "train-classifier": ClassifierOptions,
    "train-biencoder": BiencoderOptions,
    "train-crossencoder": CrossencoderOptions,
    "train-reader": ReaderOptions,
    "train-summarizer": SummarizerOptions,
    "train-asker": QuestionGeneratorOptions,
    "train-teacher": TeacherOptions,
    "infuse": StudentOptions,
    "train-retriever": RetrieverOptions,
}

# Of all trainings by steps: the settings that they share, and those of the ones on drawn examples.
LOOP = """attention_dropout base batch_size checkpoint_steps device dtype eval_steps keep_base learning_rate
    max_length seed tensorboard warmup weight_decay"""
FIT = f"{LOOP} loader_workers validation"
EPOCHS = "epochs max_steps"
NAMES = {
    "train-encoder": f"""{LOOP} {EPOCHS} attention centre data eval_batch_size hard_negatives layers objective
        pooling scale""",
    "train-classifier": """balanced base batch_size c data device dtype label_column max_length pooling seed
        text_column validation""",
    "train-biencoder": f"""{FIT} answers input_column inputs kind least_score negatives output_column outputs
        pooling sample scale seeds steps style_weight towers window""",
    "train-crossencoder": f"""{FIT} answers encoder kind least_score loss mined negatives retrieved seeds
        steps window""",
    "train-reader": f"{FIT} added extra seeds steps",
    "train-summarizer": f"{FIT} added beams extra kind label_smoothing marker seeds steps summary_tokens",
    "train-asker": f"{FIT} {EPOCHS} data label_smoothing questions",
    "train-teacher": f"{FIT} {EPOCHS} data labels",
    "infuse": f"{FIT} {EPOCHS} batch_tokens data labels negatives questions together",
    "train-retriever": f"""{FIT} {EPOCHS} attention data document_prompt layers matryoshka negatives objective
        pooling query_prompt scale temperature""",
}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_trainings_settings_are_how_it_learns_and_what_it_reads(name):
    settings, options = STEPS[name].settings, OPTIONS[name]
    assert issubclass(settings, options)
    assert set(settings.model_json_schema()["properties"]) == set(NAMES[name].split())
    assert not SOURCE_SETTINGS & free_texts(options)


# The fingerprints of settings by which folders on people's disks are recognised.
FINGERPRINTS = [
    ("train-encoder", {"data": "d"}, "f6fc73ea0fd9c9de"),
    (
        "train-encoder",
        {"data": "d", "objective": "cosent", "centre": True, "layers": 6, "max_steps": 3},
        "363acfc1c22f2862",
    ),
    ("train-classifier", {"data": "d"}, "5f9b93986d1a7644"),
    ("train-classifier", {"data": "d", "c": [1, 2], "seed": 3}, "a5d8afa548aea245"),
    ("train-biencoder", {"seeds": "s"}, "b209e832d3311eed"),
    (
        "train-biencoder",
        {"seeds": "s", "kind": "reading", "outputs": "o", "window": 60, "learning_rate": 0.0001},
        "5cf987b32338b582",
    ),
    ("train-crossencoder", {"seeds": "s"}, "3c12340cc63e70fd"),
    (
        "train-crossencoder",
        {"seeds": "s", "kind": "summaries", "mined": "m", "encoder": "e", "retrieved": 5},
        "bf106633cb8ad613",
    ),
    ("train-reader", {"seeds": "s", "max_length": 384}, "f69b719798da7c95"),
    (
        "train-reader",
        {"seeds": "s", "added": "a", "extra": 9, "validation": "v", "keep_base": True, "max_length": 384},
        "4f493fa04e304f87",
    ),
    ("train-summarizer", {"seeds": "s", "max_length": 512}, "d05e4560f0315f41"),
    (
        "train-summarizer",
        {"seeds": "s", "max_length": 512, "kind": "reading", "marker": "", "beams": 2},
        "ffae5f7eb55dd013",
    ),
    ("train-asker", {"data": "d"}, "e0cfaba644b9314d"),
    ("train-asker", {"data": "d", "questions": 4, "label_smoothing": 0.1}, "cbfc290f2117660d"),
    ("train-teacher", {"data": "d"}, "92d5a0a7c6bb6d35"),
    ("train-teacher", {"data": "d", "labels": "hard", "epochs": 1}, "96ac8a89651e06f5"),
    ("infuse", {"data": "d"}, "d44b1119dfdd6aea"),
    ("infuse", {"data": "d", "negatives": "batch", "together": 3, "batch_tokens": 64}, "c98e6415fa6107b3"),
    ("train-retriever", {"data": "d"}, "a255bf07872712ac"),
    (
        "train-retriever",
        {"data": "d", "objective": "kl", "temperature": 2, "matryoshka": [8], "query_prompt": "q: "},
        "8fb089e03d546837",
    ),
]


@pytest.mark.parametrize(("name", "given", "fingerprint"), FINGERPRINTS)
def test_folders_that_are_there_are_recognised(name, given, fingerprint):
    settings = STEPS[name].settings(base="b", **given)
    actual = Identity.of(name, settings.deciding(), {}, {}).fingerprint
    told = (
        f"{name} has another fingerprint, so earlier folders are refused (CONTRIBUTING.md, “add an option”)"
    )
    assert actual.startswith(fingerprint), f"{told}: {actual[:16]}"


class Inherited(Settings):
    needed: int
    validation: str = ""
    usual: int = 1


class How(Inherited):
    special: int = 1
    usual: int = 2


class Step(How):
    first: str = ""
    second: str


def test_help_begins_with_what_must_be_given_and_ends_with_what_all_have():
    assert [*in_help_order(Step)] == ["needed", "first", "second", "validation", "special", "usual"]
    assert [*in_help_order(Inherited)] == ["needed", "validation", "usual"]
    assert [*in_help_order(STEPS["train-reader"].settings)][:4] == ["base", "seeds", "added", "extra"]


@pytest.mark.parametrize("name", ["generate", "chunk"])  # both have a help text of their own for workers
def test_help_ends_with_where_the_work_runs(name):
    assert [*in_help_order(STEPS[name].settings)][-5:] == [*WorkerSettings.model_fields]


def test_a_model_that_is_measured_on_what_it_learns_from_is_told(tmp_path, capsys):
    sources = {name: str(tmp_path / f"{name}.jsonl") for name in ("seeds", "added", "validation")}
    for name, source in sources.items():
        Path(source).write_text("other" if name == "added" else "same")
    hashes = {name: hash_source(source) for name, source in sources.items()}
    warn_of_equal_data(sources, hashes, Progress().say)
    assert capsys.readouterr().err.count("holds the same data as --seeds") == 1
    del hashes["validation"], sources["validation"]
    warn_of_equal_data(sources, hashes, Progress().say)
    assert not capsys.readouterr().err
