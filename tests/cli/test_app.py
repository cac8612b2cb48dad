import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field
from typer.testing import CliRunner

from pairsmith import __version__
from pairsmith.__main__ import main as entry_point
from pairsmith.cli import app as cli
from pairsmith.cli.app import make_app
from pairsmith.cli.options import default_text, settings_from
from pairsmith.cli.process import errors_as_messages
from pairsmith.cli.steps import STEPS
from pairsmith.core.bundled import recipe_path
from pairsmith.core.errors import FolderError, SettingsError
from pairsmith.core.progress import Progress, Quiet
from pairsmith.core.settings import Settings, option_name
from pairsmith.data.tasks import builtin_path, builtin_tasks
from pairsmith.steps.step import Step, command_of


class DemoSettings(Settings):
    source: str = Field(description="What to read.")
    top_p: float = Field(default=0.9, gt=0, le=1, description="Share of probability.")
    limit: int | None = Field(default=None, ge=1, description="At most so many.")
    smooth: bool = Field(default=True, description="Smooth the scores.")
    kind: Literal["plain", "fancy"] = Field(default="plain", description="Which kind.")
    names: list[str] = Field(default=["a", "b"], description="Names.")
    pair: tuple[int, ...] = Field(default=(), description="Numbers.")
    device: Annotated[str, Field(pattern=r"^(cpu|cuda)$")] = Field(
        default="cpu", description="cpu or cuda. Where."
    )
    either: int | str = Field(default=0, description="A number or a word.")
    preview: int = Field(default=0, description="Show so many, write nothing.")


class Demo:
    def __init__(self):
        self.runs = []
        self.error = None

    def __call__(self, settings, run):
        self.runs.append((settings, run))
        if self.error:
            raise self.error


@pytest.fixture
def demo():
    return Demo()


@pytest.fixture
def invoke(demo, monkeypatch):
    steps = {
        "demo": Step(
            DemoSettings,
            demo,
            "Do a demonstration.",
            preview_setting="preview",
            next_commands=("pairsmith report --data {out}",),
        ),
        "evaluate-demo": Step(DemoSettings, demo, "Measure the demonstration."),
    }

    def invoke(*arguments):
        return CliRunner().invoke(make_app(steps), arguments)

    return invoke


# options from a settings model


def test_a_name_that_is_too_long_for_a_file_is_an_error_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    long, deep = "f" * 300, "d/" * 2200 + "f"
    for command in (["run", long], ["report", "--data", long], ["search", "--corpus", f"{long}.txt", "x"]):
        with pytest.raises(SystemExit, match="2"), errors_as_messages():
            make_app()(args=[*command, "--out", "out"] if command[0] != "search" else command)
    for name in (long, deep):
        capsys.readouterr()
        with pytest.raises(SystemExit, match="2"), errors_as_messages():
            Path(name).stat()
        told = capsys.readouterr().err
        assert told == (
            f"pairsmith: error: {name} is too long; most file systems allow 255 bytes for a name and 4,096 "
            "for a path: give a shorter one\n"
        )


def test_every_setting_is_an_option(invoke, demo, tmp_path):
    result = invoke(
        *("demo", "--source", "x", "--top-p", "0.5", "--limit", "3", "--no-smooth", "--kind", "fancy"),
        *(
            "--names",
            "c",
            "--names",
            "d",
            "--pair",
            "1",
            "--pair",
            "2",
            "--device",
            "cuda",
            "--either",
            "word",
        ),
        *("--out", str(tmp_path / "o"), "--fresh", "--quiet"),
    )
    assert result.exit_code == 0, result.output
    ((settings, run),) = demo.runs
    assert settings == DemoSettings(
        source="x",
        top_p=0.5,
        limit=3,
        smooth=False,
        kind="fancy",
        names=["c", "d"],
        pair=(1, 2),
        device="cuda",
        either="word",
    )
    assert (run.out, run.fresh, type(run.progress)) == (tmp_path / "o", True, Quiet)


def test_what_is_not_given_is_the_models_default(invoke, demo):
    assert invoke("demo", "--source", "x", "--out", "o").exit_code == 0
    ((settings, run),) = demo.runs
    assert settings == DemoSettings(source="x")
    assert (run.out, run.fresh, type(run.progress)) == (Path("o"), False, Progress)


def test_a_step_can_stand_in_a_group(invoke, demo):
    assert invoke("evaluate", "demo", "--source", "x", "--smooth", "--out", "o").exit_code == 0
    assert demo.runs[0][0].smooth


def test_help_gives_description_default_and_choices(invoke):
    text = " ".join(invoke("demo", "--help").output.split())
    assert "Do a demonstration." in text
    assert "What to read. [required]" in text
    assert "Share of probability. [default: 0.9]" in text
    assert "At most so many. --" in text
    assert "--smooth / --no-smooth Smooth the scores. [default: on]" in text
    assert "--kind <plain|fancy> Which kind. [default: plain]" in text
    assert "--limit <whole number>" in text
    assert "--names <text> Names. [default: a, b; may be given several times]" in text
    out = "--out <folder> Folder to write to: a path, or a URL such as s3://BUCKET/FOLDER."
    assert f"{out} [required without --preview]" in text
    assert f"{out} [required]" in " ".join(invoke("evaluate", "demo", "--help").output.split())


def test_without_arguments_the_help_is_shown(invoke):
    assert "Usage: " in invoke().output
    assert "demo" in invoke("evaluate").output


def test_the_help_is_whole_and_says_where_to_start(pairsmith):
    text = pairsmith("--help").output
    assert all(step.help in text for name, step in STEPS.items() if command_of(name) == name)
    assert "..." not in text.replace("[ARGS]...", "")
    assert text.endswith("\n  Start with: pairsmith run quickstart --out runs/quickstart\n")


@pytest.mark.parametrize(
    ("command", "usage", "argument"),
    [
        ("run", "[OPTIONS] RECIPE", "  RECIPE  A YAML file, or"),
        ("search", "[OPTIONS] [QUERY]...", "  QUERY  What to search for."),
        ("tasks show", "[OPTIONS] NAME", "  NAME  Name of a built-in task."),
    ],
)
def test_the_help_names_arguments_without_a_type_of_python(pairsmith, command, usage, argument):
    text = pairsmith(*command.split(), "--help").output
    assert text.splitlines()[0].endswith(f"{command} {usage}")
    assert argument in text
    assert "<str>" not in text


def test_the_help_of_a_group_has_whole_sentences(pairsmith):
    text = " ".join(pairsmith("evaluate", "--help").output.split())
    assert all(step.help in text for name, step in STEPS.items() if name.startswith("evaluate-"))


def test_the_help_of_run_names_every_recipe_that_ships(pairsmith):
    text = pairsmith("run", "--help").output.replace(" ", "").replace("\n", "")  # lines end within names
    for path in recipe_path("quickstart").parent.glob("*.yaml"):
        assert path.stem in text


# faults


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--source x --top-p 1.5", "--top-p: should be less than or equal to 1, not '1.5'"),
        ("--source x --limit 0", "--limit: should be greater than or equal to 1, not '0'"),
        ("--source x --device gpu", "--device: should be cpu or cuda, not 'gpu'"),
        ("--source x --limit many", "--limit: should be a whole number, not 'many'"),
        ("--source x --top-p x", "--top-p: should be a number, not 'x'"),
        ("--source x --kind odd", "--kind: should be 'plain' or 'fancy', not 'odd'"),
        ("--limit 0", "--source is missing; add it\n--limit: should be greater than or equal to 1, not '0'"),
    ],
)
def test_a_fault_names_the_option(invoke, demo, arguments, message):
    result = invoke("demo", *arguments.split(), "--out", "o")
    assert result.exit_code == 2
    assert result.stderr == f"pairsmith: error: {message}\n"
    assert result.stdout == ""
    assert demo.runs == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--source x --topp 1", "--top-p"),
        ("--source x extra", "extra"),
    ],
)
def test_what_the_command_line_cannot_read(invoke, demo, arguments, words):
    result = invoke("demo", *arguments.split(), "--out", "o")
    assert result.exit_code == 2
    assert words in result.stderr
    assert demo.runs == []


def test_out_is_needed_unless_nothing_is_written(invoke, demo):
    result = invoke("demo", "--source", "x")
    assert result.exit_code == 2
    assert result.stderr == "pairsmith: error: --out is missing; give the folder to write to\n"
    assert invoke("demo", "--source", "x", "--preview", "3").exit_code == 0
    assert len(demo.runs) == 1


def test_a_preview_with_a_folder_names_no_command_that_reads_the_folder(invoke, demo):
    written, previewed = (invoke("demo", "--source", "x", "--out", "o", "--preview", n) for n in ("0", "3"))
    assert "next: pairsmith report --data o\n" in written.stderr
    assert previewed.exit_code == 0
    assert "next:" not in previewed.output
    assert len(demo.runs) == 2


def test_an_error_for_people_is_one_line_without_traceback(invoke, demo):
    demo.error = FolderError("o holds something else; give another --out")
    result = invoke("demo", "--source", "x", "--out", "o")
    assert result.exit_code == 2
    assert result.stderr == "pairsmith: error: o holds something else; give another --out\n"


def test_stopping_says_how_to_go_on(invoke, demo):
    demo.error = KeyboardInterrupt()
    result = invoke("demo", "--source", "x", "--out", "o")
    assert result.exit_code == 130
    assert (
        result.stderr
        == "stopped; finished parts are kept, and a part that was begun will be done again; to continue, run the same command again without --fresh\n"
    )


def test_a_model_that_is_not_there_is_told_before_the_data_are_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "unreadable.jsonl").write_text("{")
    command = ["relabel", "--data", "unreadable.jsonl", "--model", "teacher", "--out", "o"]
    result = CliRunner().invoke(make_app(), command)
    assert result.exit_code == 2
    assert "model teacher: there is no such folder here and no bundled or embedded model" in result.stderr
    assert "unset" not in result.stderr


def test_a_bug_keeps_its_traceback(invoke, demo):
    demo.error = ZeroDivisionError("ours")
    assert isinstance(invoke("demo", "--source", "x", "--out", "o").exception, ZeroDivisionError)


def test_a_fault_deep_in_a_value_is_laid_at_its_option():
    with pytest.raises(Exception, match="--pair: should be a whole number, not 'z'"):
        settings_from(DemoSettings, {"source": "x", "pair": ["z"]})


class UnsetSettings(Settings):
    length: int | None = Field(default=9, ge=1, description="At most so long.")
    word: str | None = Field(default=None, description="A word.")


def test_null_unsets_a_default_and_is_a_text_elsewhere():
    settings = settings_from(UnsetSettings, {"length": "null", "word": "null"})
    assert (settings.length, settings.word) == (None, "null")
    assert settings_from(UnsetSettings, {"length": None}).length == 9  # not given
    with pytest.raises(SettingsError, match="--top-p: should be a number, not 'null'"):
        settings_from(DemoSettings, {"source": "x", "top_p": "null"})
    assert default_text(UnsetSettings.model_fields["length"]) == "default: 9; null unsets it"


def test_names_and_defaults_in_words():
    fields = DemoSettings.model_fields
    assert option_name("top_p") == "--top-p"
    assert [
        default_text(fields[name]) for name in ("source", "top_p", "limit", "smooth", "names", "pair")
    ] == [
        "required",
        "default: 0.9",
        "",
        "default: on",
        "default: a, b",
        "",
    ]


class NumberSettings(Settings):
    passes: float = Field(default=1.0, description="Passes.")
    rates: list[float] = Field(default=[2e-5, 20.0], description="Rates.")


def test_defaults_are_numbers_as_people_write_them():
    fields = NumberSettings.model_fields
    assert [default_text(field) for field in fields.values()] == ["default: 1", "default: 2e-05, 20"]


# the commands that there are


@pytest.fixture
def pairsmith():
    return lambda *arguments: CliRunner().invoke(make_app(), arguments)


@pytest.mark.parametrize(
    ("step", "given"),
    [
        ("generate", {"rows": 10**9}),
        ("generate", {"per_input": 10**12}),
        ("generate", {"until": 10**12}),
        ("ask", {"inputs": "a.txt", "model": "cloze", "beams": 10**9}),
        ("rewrite", {"beams": 10**9}),
        ("train-summarizer", {"beams": 10**9}),
        ("evaluate-summaries", {"beams": 10**9}),
    ],
)
def test_counts_for_which_memory_is_set_aside_are_bounded(step, given):
    (name,) = given.keys() - {"inputs", "model"}
    with pytest.raises(
        SettingsError, match=rf"--{name.replace('_', '-')}: should be less than or equal to \d"
    ):
        settings_from(STEPS[step].settings, given)


def test_the_version(pairsmith):
    assert pairsmith("--version").output == f"pairsmith {__version__}\n"


@pytest.mark.parametrize(
    "command",
    [
        ("generate", "--task", "sts", "--model", "pairsmith:tiny", "--inputs"),
        ("train-encoder", "--base", "pairsmith:tiny", "--data"),
        ("mine", "--encoder", "pairsmith:tiny", "--outputs", "/dev/null", "--inputs"),
    ],
)
def test_a_file_that_is_not_there_is_told_before_libraries_are_loaded(command, tmp_path):
    wrong = f"{tmp_path}/sentence.txt"
    (tmp_path / "sentences.txt").write_text("one\n")
    program = (
        "import sys\nfrom pairsmith.cli.app import main\n"
        "try:\n    main(sys.argv[1:])\nfinally:\n    print([name for name in ('torch', 'transformers') if name in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, *command, wrong, "--out", f"{tmp_path}/out"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (2, "[]\n")
    said = f"pairsmith: error: {wrong} does not exist; did you mean"
    assert ran.stderr.startswith(said)
    assert len(ran.stderr.splitlines()) == 1


def test_a_mistake_in_a_task_is_told_before_libraries_are_loaded(tmp_path):
    (tmp_path / "task.yaml").write_text("name: mine\nkind: texts\nlabels: {}\n")
    program = (
        "import sys\nfrom pairsmith.cli.app import main\n"
        "try:\n    main(sys.argv[1:])\nfinally:\n    print([name for name in ('torch', 'pyarrow') if name in sys.modules])"
    )
    command = ["generate", "--task", f"{tmp_path}/task.yaml", "--model", "pairsmith:tiny", "--out", "o"]
    ran = subprocess.run(
        [sys.executable, "-c", program, *command], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout) == (2, "[]\n")
    assert "task.yaml:2: kind: should be 'pair' or 'text', not 'texts'" in ran.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("ask", "--model", "pairsmith:tiny", "--inputs"),
        ("queries", "--model", "pairsmith:tiny", "--chunks"),
    ],
)
def test_a_folder_of_documents_where_rows_are_wanted_leads_to_chunk(pairsmith, command, tmp_path):
    docs = tmp_path / "docs"
    (docs / "manuals").mkdir(parents=True)
    out = ("--out", f"{tmp_path}/out")
    assert "chunk" not in pairsmith(*command, str(docs), *out).stderr  # without any document
    (docs / "README.md").write_text("# Rows\n")
    assert "chunk" not in pairsmith(*command, str(docs), *out).stderr
    (docs / "manuals" / "Lawn.TXT").write_text("Mow it.\n")
    said = pairsmith(*command, str(docs), *out).stderr
    assert "give a file or a dataset folder, or cut its documents into one first" in said
    assert f"pairsmith chunk --documents {docs} --out chunks" in said


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            ("ask", "--inputs", "a.txt", "b.txt"),
            "unexpected arguments: b.txt; give --inputs before each of them",
        ),
        (
            ("ask", "--inputs", *(f"{name}.txt" for name in "abcdefg"), "--out", "x"),
            "unexpected arguments: b.txt, c.txt, d.txt and 3 more; give --inputs before each of them",
        ),
        (("ask", "--model", "m", "n"), "unexpected arguments: n; leave them out"),
        (("report", "pairs", "--out", "p"), "unexpected arguments: pairs; give --data before each of them"),
        (("report", "--data", "pairs", "p"), "unexpected arguments: p; leave them out"),
        (("report", "--data=pairs", "p"), "unexpected arguments: p; leave them out"),
        (
            ("report", "--data", "pairs", "--data=p"),
            "--data is given more than once, and takes one value; give it once",
        ),
        (("mix", "--data", "a", "--data", "b"), "--out is missing"),  # takes several
        (
            ("queries", "--queries", "1", "--queries=2"),
            "--queries is given more than once, and takes one value; give it once",
        ),
        (("queries", "--fresh", "--fresh"), "--fresh is given more than once; give it once"),
        (
            ("train-classifier", "--balanced", "--no-balanced"),
            "--balanced/--no-balanced is given more than once; give it once",
        ),
        (
            ("run", "quickstart", "--out", "a", "--out", "b"),
            "--out is given more than once, and takes one value; give it once",
        ),
        (("push", "--repo", "--data", "--data", "x"), "should be OWNER/NAME"),  # the first --data is a value
        (("chunk", "--colum", "x"), "No such option: --colum (Possible options: --column, --title-column)"),
        (
            ("mine", "--colum", "x"),
            "No such option: --colum (Possible options: --group-column, --input-column,",
        ),
        (("ask", "--wholly-unlike", "x"), "No such option: --wholly-unlike"),
        (
            ("mine", "--kind", "summary"),
            "--kind: should be 'pairs', 'reading' or 'summaries', not 'summary'; did you mean 'summaries'?",
        ),
        (("export", "--form", "json"), "or 'argilla', not 'json'; did you mean 'jsonl'?"),
        (("export", "--form", "0"), "or 'argilla', not '0'"),
        (
            [
                "mine",
                "--kind",
                "summaries",
                "--window",
                "9",
                "--inputs",
                "i",
                "--outputs",
                "o",
                "--encoder",
                "e",
            ],
            "error: --window has no effect with --kind summaries; it is for --kind reading; leave it out",
        ),
        (
            ["export", "--data", "d", "--form", "parquet"],
            "--form: a dataset folder needs no export as Parquet: the files in its data/ are Parquet, and "
            "datasets.load_dataset(FOLDER) opens them",
        ),
        (
            ["classify", "--data", "d", "--model", "m", "--ray-address", "h:1"],
            "error: --ray-address has no effect without --executor ray; leave it out",
        ),
        (
            ["generate", "--executor", "ray", "--ray-address", "http://10.0.0.1:8265", "--out", "o"],
            "error: --ray-address is http://10.0.0.1:8265; give HOST:PORT of the cluster's head, such as",
        ),
        (
            ["generate", "--executor", "ray", "--ray-address", "10.0.0.1", "--out", "o"],
            "error: --ray-address is 10.0.0.1; give HOST:PORT of the cluster's head, such as 10.0.0.1:6379",
        ),
        (
            ["filter", "--pairs", "p", "--model", "m"],
            "error: a filter keeps the best, so say how many: give --best or --share, or a --threshold",
        ),
    ],
)
def test_a_wrong_option_is_told_with_what_to_do(pairsmith, command, said):
    result = pairsmith(*command, "--quiet")
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())


def test_what_a_quiet_step_shows(pairsmith, tmp_path):
    """Where the rows are the result, nothing is shown, as the help says."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"sentence1": "A lute.", "sentence2": "A horn.", "score": 1.0}\n')
    result = pairsmith("mix", "--data", str(rows), "--out", str(tmp_path / "out"), "--quiet")
    assert (result.exit_code, result.output) == (0, "")
    help_text = " ".join(pairsmith("mix", "--help").output.split())
    assert "figures and other results to read; a step that only writes a folder shows nothing" in help_text


def test_columns_that_are_missing_are_named_together(pairsmith, tmp_path):
    graded = tmp_path / "graded.csv"
    graded.write_text("Satz A,Satz B,Note\na,b,1\n")
    given = (
        "evaluate",
        "sts",
        "--model",
        "pairsmith:tiny",
        "--data",
        str(graded),
        "--out",
        f"{tmp_path}/out",
    )
    assert pairsmith(*given).stderr == (
        f"pairsmith: error: {graded} lacks the columns sentence1, sentence2, score; rename those that hold "
        "them to these names; it has: Satz A, Satz B, Note\n"
    )


def test_the_option_that_names_the_texts_is_said(pairsmith, tmp_path):
    inputs = tmp_path / "in.csv"
    inputs.write_text("id,note\n1,a\n")
    given = ("--model", "pairsmith:tiny", "--inputs", str(inputs), "--out", f"{tmp_path}/out")
    for command in (("generate", "--task", "sts"), ("ask",)):
        said = pairsmith(*command, *given).stderr
        assert "name the column with the texts with --column; it has: id, note" in said
    texts, out = tmp_path / "texts.txt", ("--out", f"{tmp_path}/out")
    texts.write_text("a\n")
    for options, named in {
        ("mine", "--inputs", inputs, "--outputs", texts, "--encoder", "pairsmith:tiny"): "input-column",
        ("mine", "--inputs", texts, "--outputs", inputs, "--encoder", "pairsmith:tiny"): "output-column",
        ("chunk", "--documents", inputs): "column",
        ("queries", "--chunks", inputs, "--model", "pairsmith:tiny"): "column",
    }.items():
        said = pairsmith(*map(str, options), *out, "--fresh").stderr
        assert f"name the column with the texts with --{named}; it has: id, note" in said, options


def test_a_pattern_is_told_as_one(pairsmith, tmp_path):
    given = ("ask", "--model", "cloze", "--out", f"{tmp_path}/out", "--inputs")
    for number in range(2):
        (tmp_path / f"p{number}.txt").touch()
    said = pairsmith(*given, f"{tmp_path}/*.txt").stderr
    assert said == (
        f"pairsmith: error: {tmp_path}/*.txt does not exist; it is a pattern, and patterns are not expanded: give each of "
        "the 2 names that it matches, or cut its documents into a dataset folder first: "
        f"pairsmith chunk --documents {tmp_path} --out chunks\n"
    )
    (tmp_path / "in.jsonl").touch()
    said = pairsmith(*given, f"{tmp_path}/[i]n.jsonl").stderr
    assert said.endswith("it is a pattern, and patterns are not expanded: give the name that it matches\n")


def test_the_columns_that_seeds_of_a_kind_need_are_said(pairsmith, tmp_path):
    seeds = tmp_path / "seeds.tsv"
    seeds.write_text("doc\tsummary\nA b.\tA.\n")
    given = (
        "--base",
        "pairsmith:tiny",
        "--seeds",
        str(seeds),
        "--outputs",
        str(seeds),
        "--out",
        f"{tmp_path}/out",
    )
    said = pairsmith("train-biencoder", "--kind", "summaries", *given).stderr
    assert said.endswith(
        "; the kind summaries needs the columns document and summary, so rename those that hold the documents "
        "and their summaries; it has: doc, summary\n"
    )
    seeds.write_text("document\tabstract\nA b.\tA.\n")
    said = pairsmith("train-biencoder", "--kind", "summaries", *given).stderr
    assert said.endswith(
        "seeds.tsv has none of the columns summary, highlights, output; rename the column that holds the "
        "summaries to one of these; it has: document, abstract\n"
    )
    seeds.write_text("document\tsummary\n\tA.\nA b.\t\nA c.\tC.\n")
    said = pairsmith("train-biencoder", "--kind", "summaries", *given).stderr
    assert "seeds.tsv:2: the document is blank or missing; give one, or drop the row" in said
    assert "seeds.tsv:3: the summary is blank or missing; give one, in the column summary, or drop" in said


def test_the_tasks_are_listed(pairsmith):
    lines = pairsmith("tasks").output.splitlines()
    assert [line.split()[0] for line in lines] == list(builtin_tasks())
    assert "sts              pair  Sentence pairs scored by how similar" in "\n".join(lines)


def test_a_task_is_shown_as_it_is(pairsmith):
    assert pairsmith("tasks", "show", "sts").output == builtin_path("sts").read_text()
    result = pairsmith("tasks", "show", "stt")
    assert result.exit_code == 2
    assert "did you mean 'sts'?" in result.stderr


def test_every_step_is_a_command_with_help(pairsmith):
    for name, step in STEPS.items():
        result = pairsmith(*command_of(name).split(), "--help")
        assert result.exit_code == 0
        for field in step.settings.model_fields:
            assert option_name(field) in result.output


def parsed(monkeypatch, *arguments):
    """The settings and the run that the real command line makes of ``arguments``; nothing runs."""
    seen = []
    steps = {
        name: Step(step.settings, lambda *given: seen.append(given), step.help, step.preview_setting)
        for name, step in STEPS.items()
    }
    result = CliRunner().invoke(make_app(steps), arguments)
    assert result.exit_code == 0, result.output
    return seen[0]


def test_the_commands_that_others_rely_on(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("f.txt", "d"):
        (tmp_path / name).touch()
    settings, run = parsed(
        monkeypatch,
        *("generate", "--task", "sts", "--model", "pairsmith:tiny", "--inputs", "f.txt", "--seed", "7"),
        *("--out", "d"),
    )
    assert (settings.task, settings.model, settings.inputs, settings.seed) == (
        "sts",
        "pairsmith:tiny",
        ["f.txt"],
        7,
    )
    assert run.out == Path("d")
    settings, run = parsed(monkeypatch, "evaluate", "sts", "--model", "org/m", "--data", "d", "--out", "o")
    assert (settings.model, settings.data, run.out) == ("org/m", "d", Path("o"))
    settings, _ = parsed(monkeypatch, "ask", "--inputs", "f.txt", "--model", "cloze", "--out", "o")
    assert settings.model == "cloze"


def test_the_options_of_generate(monkeypatch):
    drawing = "--decay 0 --top-p 0.8 --top-k 0 --max-tokens 20 --per-input 1 --tries 2"
    options = ["--limit", "5", "--seed", "3", "--preview", "3", *drawing.split()]
    settings, _ = parsed(monkeypatch, "generate", *options)
    assert (settings.limit, settings.seed, settings.decay, settings.top_p, settings.top_k) == (
        5,
        3,
        0.0,
        0.8,
        0,
    )
    assert (settings.max_tokens, settings.per_input, settings.tries, settings.preview) == (20, 1, 2, 3)


def test_run_prints_the_figures_and_passes_its_options_on(monkeypatch, tmp_path, pairsmith):
    seen = {}

    def load(path, *, seed, overrides):
        seen.update(path=path, seed=seed, overrides=overrides)
        return "plan"

    def run(plan, out, progress, *, fresh, fresh_steps):
        seen.update(plan=plan, out=out, progress=type(progress), fresh=fresh, fresh_steps=fresh_steps)
        return {"spearman": 12.346, "seconds": 1.0}

    monkeypatch.setattr("pairsmith.cli.recipes.load_recipe", load)
    monkeypatch.setattr("pairsmith.cli.running.run_recipe", run)
    options = ("--seed", "3", "--set", "a.b=1", "--set", "c.d=2", "--fresh", "--fresh-step", "a", "--quiet")
    result = pairsmith("run", "x.yaml", "--out", str(tmp_path), *options)
    assert result.output == "spearman  12.35\nseconds    1.00\n"
    assert seen == {
        "path": Path("x.yaml"),
        "seed": 3,
        "overrides": ["a.b=1", "c.d=2"],
        "plan": "plan",
        "out": tmp_path,
        "progress": Quiet,
        "fresh": True,
        "fresh_steps": ["a"],
    }


@pytest.mark.parametrize("options", [[], ["--fresh-step", "a"]])
def test_a_run_that_is_stopped_says_how_to_go_on(monkeypatch, tmp_path, pairsmith, options):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("pairsmith.cli.recipes.load_recipe", lambda *_, **__: "plan")
    monkeypatch.setattr("pairsmith.cli.running.run_recipe", stopped)
    result = pairsmith("run", "x.yaml", "--out", str(tmp_path), *options)
    assert result.exit_code == 130
    end = " or --fresh-step\n" if options else "\n"
    assert result.stderr.endswith(f"run the same command again without --fresh{end}")


def test_run_reports_a_recipe_that_is_not_there(pairsmith):
    result = pairsmith("run", "quikstart", "--out", "o")
    assert result.exit_code == 2
    assert result.stderr == (
        "pairsmith: error: no shipped recipe is called 'quikstart'; "
        "did you mean 'quickstart'? known: classifier, dino-tables, dino-tables-small, dino-x1x2, "
        "dino-x1x2-small, dino-x2, dino-x2-small, mining-ablation-news-small, mining-ablation-small, "
        "mining-news-small, mining-squad, mining-squad-small, mining-xsum, quickstart, quip, "
        "quip-people, quip-small, quip-smollm2, quip-tables, retriever\n"
    )


# the process


def test_main_stopped_before_a_command_began(monkeypatch, capsys):
    def stopped():
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "make_app", stopped)
    monkeypatch.setattr(cli.process, "stop_at_once", lambda: None)  # this process goes on
    with pytest.raises(SystemExit) as caught:
        cli.main([])
    assert caught.value.code == 130
    assert (
        capsys.readouterr().err
        == "stopped; finished parts are kept, and a part that was begun will be done again; to continue, run the same command again without --fresh\n"
    )


def test_a_second_signal_while_python_ends_prints_no_traceback():
    code = (
        "import atexit, os, signal, sys\n"
        "from pairsmith.cli import app\n"
        "again = lambda: os.kill(os.getpid(), signal.SIGTERM)\n"
        "atexit.register(again)\n"
        "app.make_app = again\n"
        "app.main([])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGTERM
    assert done.stderr.startswith("stopped; finished parts are kept")
    assert len(done.stderr.splitlines()) == 1


def test_stopped_while_it_imports_the_command_line(monkeypatch, capsys):
    class Stopped:
        def find_spec(self, name, *_):
            if name == "pairsmith.cli.app":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "pairsmith.cli.app")
    monkeypatch.setattr(sys, "meta_path", [Stopped(), *sys.meta_path])
    with pytest.raises(SystemExit) as caught:
        entry_point(["--help"])
    assert (caught.value.code, capsys.readouterr().err) == (130, "")


def test_help_is_fast_because_nothing_heavy_is_imported():
    code = (
        "import sys\n"
        "from pairsmith.cli.app import main\n"
        "try:\n    main(['--help'])\n"
        "except SystemExit as end:\n    assert end.code == 0\n"
        "heavy = {'torch', 'transformers', 'datasets', 'sentence_transformers', 'numpy', 'pyarrow'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "generate" in done.stdout


@pytest.mark.parametrize("arguments", [("tasks",), ("tasks", "show", "nli")])
def test_the_module_is_the_command_and_a_closed_pipe_is_quiet(arguments):
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "pairsmith", *arguments]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_command_whose_result_nobody_reads_is_quiet():
    code = (
        "from pairsmith.cli import app, recipes, running\n"
        "recipes.load_recipe = lambda *args, **options: None\n"
        "running.run_recipe = lambda *args, **options: {'seconds': 1.0}\n"
        "app.main(['run', 'x.yaml', '--out', 'o'])\n"
    )
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, "-c", code], stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


def run_with_output(to, *arguments, **environment):
    """The command in a shell that sends standard output to ``to``; returns its exit code and errors."""
    command = f'"$0" -m pairsmith "$@" >{to}'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable, *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )
    return done.returncode, done.stderr


def test_a_full_disk_and_a_closed_output_give_no_traceback():
    line = "pairsmith: error: cannot write to standard output: No space left on device\n"
    if Path("/dev/full").exists():
        assert run_with_output("/dev/full", "tasks", PYTHONUNBUFFERED="") == (2, line)
        assert run_with_output("/dev/full", "tasks", PYTHONUNBUFFERED="1") == (2, line)
    assert run_with_output("&-", "tasks") == (0, "")


def test_a_terminal_without_utf_8_gets_what_it_can_show():
    code = "from pairsmith.cli import app\napp.make_app = lambda: lambda **_: print('1 · 2')\napp.main([])"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, check=False)
    assert (done.returncode, done.stdout) == (0, b"1 \\xb7 2\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("chunk", "--documents", "", "--out", "o"), "--documents is empty; give a file or folder"),
        (("generate", "--inputs", "a.txt", "--inputs", "", "--out", "o"), "--inputs is empty; give a file"),
        (("chunk", "--documents", "d.jsonl", "--out", ""), "--out is empty; give a folder"),
        (("ask", "--inputs", "d", "--model", "m", "--reuse", "", "--out", "o"), "--reuse is empty; give a f"),
        (
            ("evaluate", "ner", "--model", "m", "--data", os.devnull, "--questions", "q", "--out", "o"),
            "q does",
        ),
        (
            ("report", "--data", os.devnull, "--against", "q", "--out", "o"),
            "q does not exist; check the path",
        ),
        (("train-encoder", "--base", "", "--data", "d", "--out", "o"), "--base is empty; give a model"),
        (("filter", "--pairs", "d", "--judge", "", "--out", "o"), "--judge: should be 'cross-encoder', "),
        (("run", "quickstart", "--out", ""), "--out is empty; give a folder"),
        (("compare", "compare-sts", "--out", ""), "--out is empty; give a folder"),
        (("search", "--model", "bm25", "--corpus", ""), "--corpus is empty; give a file or folder"),
        (
            ("generate", "--limit", f"{2**63}", "--out", "o"),
            "--limit: should be less than or equal to 9223372",
        ),
        (("plan", "quickstart", "--workers", "0"), "--workers: should be greater than or equal to 1, not 0"),
        (("chunk", "--documents", "-", "--out", "o"), "-: pipes cannot be read, as an input is read more"),
        (("chunk", "--documents", "~nobodyx/d", "--out", "o"), "~nobodyx/d: there is no user nobodyx; write"),
        (("status", "~nobodyx/d"), "~nobodyx/d: there is no user nobodyx; write the path out"),
        (("status", ""), "the name of a file or folder is empty; give one, or . for the current folder"),
        (("status", "s3://"), "s3:// names no bucket; give one, as in s3://BUCKET/FOLDER"),
    ],
)
def test_an_argument_that_names_nothing_is_refused_in_one_line(pairsmith, arguments, message):
    result = pairsmith(*arguments)
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert result.stderr.startswith(f"pairsmith: error: {message}")
