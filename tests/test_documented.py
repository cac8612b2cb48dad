"""Every command in the README and in docs/ works as it stands, and so does every piece of Python and YAML.

A page is gone through from top to bottom in a new folder, as a reader would who has what the page speaks of
(``tests/reader.py``): small files and models under those names, and folders that other pages make. Every
``pairsmith`` command is run, also those in sentences. Long ones are cut short (``CUT``); people, the Hub, buckets,
mteb's data and a Ray cluster have stand-ins. Of other commands it is looked whether there is what they name.
"""

import json
import re
import shutil
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests import documented
from tests.documented import PAGES, ROOT, SHELLS, Block, Command
from tests.reader import (
    CUT,
    CUT_FILES,
    EARLIER,
    READ,
    TINY_QUICKSTART,
    few_pairs,
    furnish,
    label_all,
    make_earlier,
    make_models,
    ray_here,
    shortened,
)
from tests.tools.push.hub import logged_in

from pairsmith.cli import planning
from pairsmith.core.paths import MANIFEST
from pairsmith.data.tasks import load_task
from pairsmith.runs import DatasetFolder, ray_executor
from pairsmith.runs.card import MEANING

pytestmark = pytest.mark.slow

TEXT = {page: (ROOT / page).read_text(encoding="utf-8") for page in PAGES}
TODO = {
    page: [
        *documented.blocks(TEXT[page]),
        *(block for block in documented.in_sentences(TEXT[page]) if documented.is_whole(block.text)),
    ]
    for page in PAGES
}


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What stands in for each model that a page names."""
    return make_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def earlier(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the folders lie that other pages make."""
    return make_earlier(tmp_path_factory.mktemp("earlier"), models)


@pytest.fixture
def reader(models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which a reader follows a page; people label at once, plans are quick, Ray's work is done here."""
    furnish(tmp_path, models)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "1")
    monkeypatch.setattr("pairsmith.tools.audit.app.serve", label_all)
    monkeypatch.setattr(ray_executor, "run_ray", ray_here)
    monkeypatch.setattr(ray_executor, "check_cluster", lambda _: None)  # nothing answers at its address here
    monkeypatch.setattr(planning, "_in_new_process", lambda work, *given: work(*given))
    monkeypatch.setattr("pairsmith.steps.generate.plan.CALIBRATION_SECONDS", 0.5)
    return tmp_path


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A Hub on this machine in place of the usual one."""
    with logged_in(monkeypatch) as hub:
        hub.private = True
        yield


@pytest.fixture
def buckets(reader: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A store on this machine with the buckets that are named."""
    from tests.runs.buckets import connected, serving

    with serving() as address, connected(address, monkeypatch) as store:
        store.mkdir("corpora")
        store.mkdir("my-bucket")
        store.put_file("sentences.txt", "corpora/sentences.txt")
        yield


@pytest.fixture
def mteb(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of mteb's tasks two of similarities, each with a few pairs."""
    from mteb.abstasks.sts import AbsTaskSTS

    from pairsmith.steps.evaluate import mteb_tasks

    real = mteb_tasks.named_tasks

    def named_tasks(*given: Any) -> list[Any]:
        tasks = [task for task in real(*given) if isinstance(task, AbsTaskSTS)]
        return [task for task in tasks if not task.metadata.is_multilingual][:2]

    monkeypatch.setattr(mteb_tasks, "named_tasks", named_tasks)
    monkeypatch.setattr(mteb_tasks, "load_data", few_pairs)


MACHINES = {"docs/measuring.md": ("mteb",), "docs/running.md": ("buckets",), "docs/sharing.md": ("hub",)}
"""The fixtures that a page needs besides."""

LONG = {
    f"docs/{name}.md"
    for name in (
        *("classifier", "comparing", "first-hour", "measuring", "mining", "mixing", "models", "python"),
        *("questions", "recipes", "retriever", "running", "sharing", "tasks"),
    )
}
"""Pages that take long to follow."""


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning:(rdflib|mlcroissant)",
    # The S3 client and its server leave sockets to the garbage collector.
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.long if page in LONG else ()) for page in PAGES if TODO[page]],
)
def test_a_page_can_be_followed(
    page: str,
    reader: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in READ.get(page, ()):
        shutil.copytree(request.getfixturevalue("earlier") / name, reader / name)
    for name in MACHINES.get(page, ()):
        request.getfixturevalue(name)
    if page != "README.md":
        monkeypatch.setitem(CUT, "run quickstart", CUT["run quickstart"] + TINY_QUICKSTART)
    names: dict[str, Any] = {}  # a page's Python goes on from block to block, as in a reader's session
    # A file may be shown below its use.
    for block in sorted(TODO[page], key=lambda block: (block.language != "yaml", block.line)):
        try:
            follow(block, names)
        except Exception as fault:
            fault.add_note(
                f"in {page}, line {block.line}; tests/reader.py has what a page reads and does not make"
            )
            raise
    assert columns_without_meaning(reader) == {}


def columns_without_meaning(folder: Path) -> dict[str, set[str]]:
    """By finished dataset folder in ``folder``, the columns of its rows that its card does not explain, if any."""
    columns = {}
    for path in folder.rglob(MANIFEST):
        if not json.loads(path.read_text())["complete"]:
            continue  # the share of an array job's rank, which never has a card
        opened = DatasetFolder.open(path.parent)
        columns[str(path.parent)] = set(opened.schema().names) - {*MEANING, *opened.manifest.about.columns}
    return {name: missing for name, missing in columns.items() if missing}


def test_columns_of_the_folders_that_pages_read_have_meanings(earlier: Path) -> None:
    assert len(list(earlier.rglob(MANIFEST))) > 5
    assert columns_without_meaning(earlier) == {}


def follow(block: Block, names: dict[str, Any]) -> None:
    """Do in the current folder what a block says; Python with the ``names`` of the blocks before it."""
    if block.language in SHELLS:
        for command in documented.commands(block):
            DO[command.words[0]](command)
    elif block.language == "python":
        exec(compile(block.text, "snippet", "exec"), names)
    elif block.language == "yaml":
        save(block)


def run_pairsmith(command: Command) -> None:
    """``pairsmith``: it is run."""
    documented.run(shortened(command))


def save(block: Block) -> None:
    """Save a YAML block under the name that its first line gives, if it does; a whole task has to be right."""
    named = re.match(r"# (\S+\.yaml)\n", block.text)
    path = Path(named[1] if named else "unnamed.yaml")
    text = block.text
    for old, new in CUT_FILES.get(path.name, {}).items():
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    if {"name", "labels"} <= set(yaml.safe_load(text)):
        load_task(path)


# other commands


def install(command: Command) -> None:
    """``pip install``: the extras that it names are there."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert command.words[1] == "install"
    for wanted in re.findall(r"\[(.*?)\]", " ".join(command.words)):
        assert set(wanted.split(",")) <= set(extras), wanted


def make(command: Command) -> None:
    """``make``: the target is there."""
    (target,) = command.words[1:]
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), target


def script(command: Command) -> None:
    """``python FILE``: the file is there and knows the options."""
    source = (ROOT / command.words[1]).read_text()
    for option in command.words[2:]:
        assert not option.startswith("-") or f'"{option}"' in source, option


def launch(command: Command) -> None:
    """``torchrun -m pairsmith``: it is run, in one process; ``tests/training/test_processes.py`` starts two."""
    assert command.words[:5] == ("torchrun", "--nproc-per-node", "2", "-m", "pairsmith")
    run_pairsmith(Command(command.words[4:], command.into))


DO: dict[str, Callable[[Command], None]] = {
    "pairsmith": run_pairsmith,
    "pip": install,
    "make": make,
    "python": script,
    "torchrun": launch,
}


# nothing is missed


def given() -> list[str]:
    """All commands of ours on all pages, without ``pairsmith``."""
    return [
        " ".join(command.words[1:])
        for page in PAGES
        for block in TODO[page]
        if block.language in SHELLS
        for command in documented.commands(block)
        if command.words[0] == "pairsmith"
    ]


def test_there_are_many_commands() -> None:
    assert len(given()) >= 70


def test_forms_are_few() -> None:
    """Sentences that show what a command looks like; these alone are not run."""
    shown = {
        block.text for page in PAGES for block in documented.in_sentences(TEXT[page]) if "--" in block.text
    }
    assert {text for text in shown if not documented.is_whole(text)} == {
        "pairsmith mine --inputs FILE --outputs FILE --encoder MODEL --out DIR",
        "pairsmith run OUT/once/recipe.yaml --out OUT/once/run",
        "pairsmith compare compare-sts.yaml --out DIR",
        "pairsmith compare compare-reading.yaml --out DIR",
        "pairsmith report --data RUN --out DIR",
        "pairsmith evaluate sts --model embedded:all-minilm-l6-v2 --data DATA --out DIR",
    }


@pytest.mark.parametrize("begin", CUT)
def test_what_is_cut_short_is_there_and_says_nothing_else(begin: str) -> None:
    begun = [words.split() for words in given() if words.startswith(begin)]
    assert begun
    options = {word for word in CUT[begin].split() if word.startswith("--")} - {"--set"}
    assert not any(options & set(words) for words in begun)


def test_what_a_page_takes_for_granted_is_made_by_another() -> None:
    assert {name for names in READ.values() for name in names} <= set(EARLIER)
    for page, names in READ.items():
        for name in names:
            assert f"--out {name}\n" not in TEXT[page], f"{page} makes {name} itself"
            assert any(words.endswith(f"--out {name}") for words in given()), name


def test_the_readme_and_the_guides_have_code() -> None:
    assert all(
        TODO[f"{name}.md"]
        for name in ("README", "docs/first-hour", "docs/mining", "docs/questions", "docs/running")
    )


@pytest.mark.parametrize("page", PAGES)
def test_no_command_stands_where_it_would_be_missed(page: str) -> None:
    for block in documented.blocks(TEXT[page]):
        assert block.language or "pairsmith " not in block.text, f"line {block.line}: say sh or console"
        if block.language not in (*SHELLS, "python", "yaml"):
            assert not re.search(r"^\$? *(pairsmith|make|python|pip) ", block.text, re.MULTILINE), block.line
    rest = documented.prose(TEXT[page])
    assert "```" not in rest
    assert not re.search(r"^( {4,}|\t)\$? *(pairsmith|pip|python) ", rest, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_sentences_exist(page: str) -> None:
    for block in documented.in_sentences(TEXT[page]):
        assert not documented.unknown_in(block.text.split()[1:]), block.text
    for name in re.findall(r"`(?:python )?((?:benchmarks|scripts)/\w+\.py)", TEXT[page]):
        assert (ROOT / name).is_file(), name


# the helper


def command(line: str) -> Command:
    (parsed_command,) = documented.commands(Block("sh", line, 1))
    return parsed_command


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("pairsmith generate --inputz f --out d", "--inputz"),
        ("pairsmith generate --top-p 2 --out d", "--top-p"),
        ("pairsmith generate --task stz --out d", "stz"),
        ("pairsmith generate --task sts --inputs nowhere.txt --out d", "nowhere"),
        ("pairsmith mine --out d", "--inputs is missing"),
        ("pairsmith run quickstart --set pairs.topk=1 --out d", "topk"),
    ],
)
def test_a_wrong_command_is_noticed(line: str, words: str, reader: Path) -> None:
    (wrong,) = documented.commands(Block("sh", line, 1))
    with pytest.raises(AssertionError, match=f"ends with 2: (.|\n)*{words}"):
        documented.run(wrong)


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("pairsmith plan pairs.yaml --workers 4", True),
        ("pairsmith --help", True),
        ("pairsmith evaluate sts", False),
        ("pairsmith status DIR", False),
        ("pairsmith run quickstart --seed N --out runs", False),
    ],
)
def test_which_commands_in_sentences_can_be_given(text: str, whole: bool) -> None:
    assert documented.is_whole(text) == whole


def test_commands_in_sentences_are_found_where_lines_break() -> None:
    text = "One\n```sh\npairsmith tasks\n```\nuse `pairsmith\ntasks show sts` or `mine`.\n"
    assert documented.in_sentences(text) == [Block("sh", "pairsmith tasks show sts", 5)]


def test_commands_of_a_console_and_of_several_lines() -> None:
    block = Block(
        "console", "$ pairsmith tasks show sts > a.yaml  # copy\nsomething else\n$ a 'b c' \\\n    d\n", 1
    )
    assert list(documented.commands(block)) == [
        Command(("pairsmith", "tasks", "show", "sts"), "a.yaml"),
        Command(("a", "b c", "d")),
    ]


@pytest.mark.parametrize(
    ("words", "unknown"),
    [
        ("generate --decay 0", ""),
        ("evaluate sts", ""),
        ("generate --decy 0", "--decy"),
        ("evaluate stz", "stz"),
    ],
)
def test_what_is_unknown_of_a_command_in_a_sentence(words: str, unknown: str) -> None:
    assert documented.unknown_in(words.split()) == unknown
