"""Every command in the README and in docs/ works as it stands, and so does every piece of Python and YAML.

A page is gone through from top to bottom in a new folder, with ``examples/`` and ``recipes/`` beside it, as a
reader would. A command is run, unless ``documented.why_not_run`` says why not: it names a URL, holds a
placeholder, is a whole recipe, waits for a person, sends something, names a model or data that have to be
fetched, or reads what is not there. Then all is done but the step itself: options, values, settings, the step's own checks, the recipe.
"""

import ast
import importlib
import re
import shutil
import signal
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests import documented
from tests.documented import PAGES, ROOT, SHELLS, Block, Command

from pairsmith.bundled import is_bundled
from pairsmith.compare.file import read_comparison
from pairsmith.compare.route import compare
from pairsmith.progress import Silent
from pairsmith.recipes import load_recipe
from pairsmith.tasks import builtin_tasks, load_task

TEXT = {page: (ROOT / page).read_text(encoding="utf-8") for page in PAGES}
FIRST = "docs/first-hour.md"
WITH_CODE = [page for page in PAGES if documented.blocks(TEXT[page])]


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder in which a reader follows a page: the project's examples and recipes, and graded pairs of their own."""
    for name in ("examples", "recipes"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "examples" / "graded-pairs.tsv", tmp_path / "my-graded-pairs.tsv")
    monkeypatch.chdir(tmp_path)
    stopping = signal.getsignal(signal.SIGTERM)  # the command takes it over
    yield tmp_path
    signal.signal(signal.SIGTERM, stopping)


@pytest.mark.filterwarnings("ignore::DeprecationWarning:(rdflib|mlcroissant)")
@pytest.mark.parametrize("page", [page for page in WITH_CODE if page != FIRST])
def test_a_page_can_be_followed(page: str, reader: Path) -> None:
    follow(page)


def test_the_first_hour_is_run_but_for_what_takes_long(reader: Path) -> None:
    done = follow(FIRST)
    assert len(done["run"]) >= 15
    assert set(done) == {"run", "is a whole recipe", "waits for a person"}
    assert len(done["is a whole recipe"]) == len(done["waits for a person"]) == 1


def follow(page: str) -> dict[str, list[str]]:
    """Go through a page in the current folder; the ``pairsmith`` commands by what was done with them."""
    done: dict[str, list[str]] = defaultdict(list)
    found = documented.blocks(TEXT[page])
    for block in sorted(
        found, key=lambda block: block.language != "yaml"
    ):  # a file may be shown below its use
        try:
            if block.language in SHELLS:
                for command in documented.commands(block):
                    if command.words[0] == "pairsmith":
                        done[ours(command)].append(" ".join(command.words))
                    else:
                        OTHERS[command.words[0]](command)
            elif block.language == "python":
                python(block)
            elif block.language == "yaml":
                save_and_check(block)
        except Exception as fault:
            fault.add_note(f"in {page}, the block at line {block.line}")
            raise
    return done


def ours(command: Command) -> str:
    """Run a command of ours, or check it; why it was not run, or ``run``."""
    found = documented.parsed(command)
    reason = documented.why_not_run(command, found)
    if not reason:
        documented.run(command)
    return reason or "run"


# the other commands


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


OTHERS = {"pip": install, "make": make, "python": script}


# Python and YAML


def python(block: Block) -> None:
    """Run it, unless it opens a folder that is not there; then import what it imports and find what it names."""
    tree = ast.parse(block.text)
    if all(map(is_here, opened(tree))):
        exec(compile(tree, "snippet", "exec"), {})
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            exec(compile(ast.Module([node], []), "snippet", "exec"), {})
        elif isinstance(node, ast.Attribute) and re.fullmatch(
            r"pairsmith(\.\w+)+", name := ast.unparse(node)
        ):
            module, _, attribute = name.rpartition(".")
            assert hasattr(importlib.import_module(module), attribute), name


def opened(tree: ast.AST) -> Iterator[str]:
    """The names that the calls in ``tree`` which load something are given."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = ast.unparse(node.func).rpartition(".")[2]
            if called.startswith("load") or called in ("from_pretrained", "SentenceTransformer"):
                yield node.args[0].value


def is_here(name: str) -> bool:
    return is_bundled(name) or name in builtin_tasks() or Path(name).exists()


def save_and_check(block: Block) -> None:
    """Save a YAML block under the name that its first line gives; a whole task or recipe must be right."""
    named = re.match(r"# (\S+\.yaml)\n", block.text)
    path = Path(named[1] if named else "unnamed.yaml")
    path.write_text(block.text)
    keys = yaml.safe_load(block.text)
    if "name" in keys and "labels" in keys:
        load_task(path)
    elif "ways" in keys:
        for name in ("scored.jsonl", "sentences.txt", "graded.tsv"):
            Path(name).touch()
        compare(read_comparison(path), Path("checked"), Silent(), only_write=True)
    elif "steps" in keys:
        load_recipe(path)
    if not named:
        path.unlink()


# nothing is missed


def test_the_readme_and_the_guides_have_code() -> None:
    assert {"README.md", FIRST, "docs/mining.md", "docs/questions.md", "docs/running.md"} <= {*WITH_CODE}


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
    for words in re.findall(r"`pairsmith\s+([^`]+)`", documented.prose(TEXT[page])):
        assert not documented.unknown_in(words.split()), words
    for name in re.findall(r"`(?:python )?((?:benchmarks|scripts)/\w+\.py)", TEXT[page]):
        assert (ROOT / name).is_file(), name


def test_every_setting_that_takes_any_text_is_of_a_known_kind() -> None:
    known = documented.MODELS | documented.SOURCES | documented.WORDS
    assert documented.free_text_settings() == known


# the helper


def command(line: str) -> Command:
    (found,) = documented.commands(Block("sh", line, 1))
    return found


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("pairsmith generate --inputz f --out d", "--inputs"),
        ("pairsmith generate --top-p 2 --out d", "--top-p"),
        ("pairsmith generate --task stz --out d", "stz"),
        ("pairsmith generate --model nowhere/no/model --out d", "nowhere"),
        ("pairsmith generate", "--out is missing"),
        ("pairsmith mine --out d", "--inputs is missing"),
        ("pairsmith generat --out d", "generat"),
        ("pairsmith run quikstart --out d", "quikstart"),
        ("pairsmith run quickstart --set pairs.topk=1 --out d", "topk"),
    ],
)
def test_a_wrong_command_is_noticed_without_running_it(line: str, words: str, reader: Path) -> None:
    with pytest.raises(AssertionError, match=words):
        documented.parsed(command(line))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("pairsmith generate --inputs examples/sentences.txt --out d", ""),
        (
            "pairsmith evaluate sts --model embedded:all-minilm-l6-v2 --data examples/graded-pairs.tsv --out d",
            "",
        ),
        ("pairsmith ask --model cloze --inputs examples/sentences.txt --out d", ""),
        ("pairsmith tasks", ""),
        ("pairsmith generate --inputs examples/sentences.txt --out s3://bucket/d", "names a URL"),
        ("pairsmith generate --model MODEL --out d", "holds a placeholder"),
        (
            "pairsmith generate --model openai-community/gpt2-xl --out d",
            "names a model that has to be fetched",
        ),
        ("pairsmith postprocess --data d --out e", "reads what is not there"),
        ("pairsmith status d", "reads what is not there"),
        ("pairsmith plan quickstart", "is a whole recipe"),
        ("pairsmith audit --data examples --labels 1 --annotator a --out d", "waits for a person"),
    ],
)
def test_what_is_run_and_what_is_not(line: str, reason: str, reader: Path) -> None:
    wanted = command(line)
    assert documented.why_not_run(wanted, documented.parsed(wanted)) == reason
    assert {path.name for path in reader.iterdir()} == {"examples", "recipes", "my-graded-pairs.tsv"}


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
