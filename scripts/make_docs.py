"""Write docs/commands/ from the settings models, a page a command: ``python scripts/make_docs.py``.

The list of these pages in mkdocs.yml is written too, docs/code.md from the docstrings, which cite the
numbers of docs/methods.md, and the table of layers in ARCHITECTURE.md. A test compares all of it with what
this script makes, so that the pages cannot fall behind.
"""

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from pairsmith.cli.options import default_text, in_help_order, option_kind
from pairsmith.cli.steps import STEPS
from pairsmith.core.settings import Settings, option_name
from pairsmith.steps.search.settings import SearchSettings
from pairsmith.steps.step import Step, command_of

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "commands"
CODE = ROOT / "docs" / "code.md"
METHODS = ROOT / "docs" / "methods.md"
SOURCE = ROOT / "src" / "pairsmith"
SITE = ROOT / "mkdocs.yml"
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
PROJECT = ROOT / "pyproject.toml"

NUMBER = re.compile(r"\b[DMQ][1-9]\d?\b")
ENTRY = re.compile(r"^- \*\*([DMQ]\d+), (.+?)\.\*\*", re.MULTILINE)

_WRITTEN = "<!-- Written by scripts/make_docs.py; change the settings models, not this page. -->"
_BEGIN = "      # The rest of this list is written by scripts/make_docs.py.\n"
_END = "      # Here it ends.\n"

_HEAD = f"""\
# All commands

{_WRITTEN}

Every step is a command, and can be a step of a [recipe](../recipes.md), under the name in the last column
and with the same settings (`--top-k 5` is `top_k: 5`). Besides the options on its own page, every step has:

| option | |
|---|---|
| `--out DIR` | Folder to write to, a path or a URL such as s3://BUCKET/FOLDER. Required (1). |
| `--fresh` | Start over: replace what an earlier run left in the folder, which is otherwise continued. |
| `--quiet` | Show only figures and other results to read; a step that only writes a folder shows nothing. |

(1) `generate --preview` needs no `--out`, and `push` needs it only with `--dry-run`.

A mistake in the input ends the command with exit code 2 and a line that says what to do. Ctrl-C ends the
command with exit code 130, and the same command continues. `pairsmith --version` prints the version.

| command | | in a recipe |
|---|---|---|
"""

_SEARCH = """\
The best documents for each query are printed: rank, score, id, title and document, and below them the text,
cut to the width of the terminal. Without a query, you are asked for queries, until one is empty. More:
[a retriever for your documents](../retriever.md#searching).

{options}

| option | |
|---|---|
| `--json` | Print each query's results and other columns as a line of JSON, which `answer` reads. |
| `--quiet` | Show only the results of the search, no progress and messages. |
"""

_OTHERS = {
    "search": ("search QUERY …", "Search documents with a retriever or BM25.", _SEARCH),
    "run": (
        "run RECIPE",
        "Run a recipe: steps in order.",
        """\
The recipe is a YAML file, or the name of a built-in recipe (`quickstart`, `dino-x2`, …;
`pairsmith run --help` lists all).

| option | |
|---|---|
| `--out DIR` | Folder to write to: a folder for each step, and `results.json`. Required. |
| `--seed N` | A seed that replaces the recipe's seed. |
| `--set STEP.SETTING=VALUE` | A value that replaces a setting of one of the recipe's steps, or with `*` in \
place of the step, of all steps that have the setting. May be given several times. |
| `--fresh-step STEP` | A step to start over in its folder. What its new settings do not change, such as \
vectors, is used again. The steps that read its result are made anew if the result changes. May be given \
several times. |
| `--fresh`, `--quiet` | As for [every step](index.md). |

[Recipes](../recipes.md) says how a recipe is written.
""",
    ),
    "compare": (
        "compare FILE",
        "Compare ways of making rows by models trained on them, with several seeds.",
        """\
The file is a YAML file, or the name of a built-in comparison (`compare-sts`, `compare-reading`).
[Comparing](../comparing.md) says how such a file is written.

| option | |
|---|---|
| `--out DIR` | Folder on this machine to write to. Required. |
| `--only-write` | Only write the recipe of each seed; run nothing. |
| `--fresh-step STEP` | A step to start over in its folder, with every seed. What its new settings do \
not change, such as vectors, is used again. The steps that read its result are made anew if the result \
changes. May be given several times. |
| `--fresh`, `--quiet` | As for [every step](index.md). |
""",
    ),
    "plan": (
        "plan RECIPE",
        "Estimate what a recipe makes and costs, before it runs.",
        """\
The command prints the rows, generated tokens, time, memory and disk space of each step. It runs each step for
some seconds on a part of the step's data, and scales the result up to all data; nothing is written.

| option | |
|---|---|
| `--workers N` | Number of workers; with more than 1, the time with so many workers is estimated, too. |
| `--price-in X` | Price of a million input tokens (prompts) of a server, in any currency. |
| `--price-out X` | Price of a million output tokens (generated texts) of a server. |
| `--budget X` | Largest sum to spend on a server; the plan says whether it suffices. |
| `--set STEP.SETTING=VALUE` | As for [`run`](run.md). |
| `--quiet` | Show only the table, no progress and messages. |

The plan of a step that trains or loads a large model takes up to a minute, so a run of a few minutes needs no
plan.
""",
    ),
    "status": (
        "status DIR",
        "Show how far a run is, and what remains to be done.",
        """\
For the folder of a step or of a recipe's run, the command prints the finished and the planned shards, the
rows per second, the remaining time, and why rows were rejected. It only reads, so you can run it at any time.
More: [running](../running.md).
""",
    ),
    "doctor": (
        "doctor",
        "Show this machine's hardware and installed models.",
        """\
The command prints the versions of pairsmith and its main packages, the processor, the memory and the GPUs,
which models and extras are installed, and what each route needs. More:
[a first hour](../first-hour.md#install).
""",
    ),
    "tasks": (
        "tasks",
        "List the built-in tasks, or show one.",
        """\
`pairsmith tasks` lists the built-in tasks. `pairsmith tasks show NAME` prints one as YAML, to copy and
change. [Tasks](../tasks.md) says how a task is written.
""",
    ),
}
"""The commands that are no steps: how each is called, a line about it, and the rest of its page."""

_GUIDES = {
    "generate": "tasks.md",
    "postprocess": "methods.md#from-rows-to-a-training-set",
    "train-encoder": "methods.md#training-and-measuring",
    "train-classifier": "classifier.md",
    "classify": "classifier.md#how-do-i-label-my-texts",
    "train-biencoder": "mining.md#the-bi-encoder",
    "train-retriever": "retrieval.md",
    "mine": "mining.md#the-search",
    "negatives": "negatives.md",
    "train-crossencoder": "mining.md#the-cross-encoder",
    "filter": "mining.md#the-filter",
    "rewrite": "mining.md#texts-written-by-a-model",
    "train-reader": "mining.md#models-trained-on-mined-pairs",
    "train-summarizer": "mining.md#models-trained-on-mined-pairs",
    "summarize": "mining.md#answers-and-summaries-from-your-own-texts",
    "train-asker": "questions.md#asking",
    "ask": "questions.md#asking",
    "chunk": "retriever.md#documents-in",
    "filter-queries": "retriever.md#queries",
    "train-teacher": "questions.md#answering",
    "relabel": "questions.md#answering",
    "infuse": "questions.md#the-student",
    "answer": "questions.md#answers-to-questions",
    "train-tagger": "questions.md#a-tagger-of-names",
    "tag": "questions.md#a-tagger-of-names",
    "queries": "retriever.md#queries",
    "evaluate-sts": "methods.md#training-and-measuring",
    "evaluate-labels": "measuring.md#are-the-labels-apart",
    "evaluate-classification": "classifier.md#how-good-is-it",
    "evaluate-qa": "mining.md#how-good-they-are",
    "evaluate-summaries": "mining.md#how-good-they-are",
    "evaluate-paraphrase": "questions.md#what-the-vectors-are-good-for",
    "evaluate-ner": "questions.md#what-the-vectors-are-good-for",
    "evaluate-sentiment": "questions.md#what-the-vectors-are-good-for",
    "evaluate-retrieval": "measuring.md#retrieval",
    "evaluate-mteb": "measuring.md",
    "mix": "mixing.md",
    "remove": "sharing.md#removing-rows",
    "push": "sharing.md",
    "export": "mixing.md#the-forms-of-other-tools",
    "report": "report.md",
    "audit": "audit.md",
}
"""Where more is said about each step. A step of another package has a page without that line."""


def pages() -> dict[str, str]:
    """The text of every page, by its file's name in ``FOLDER``."""
    pages_by_name = {"index.md": index()}
    pages_by_name |= {f"{name}.md": step_page(name, step) for name, step in STEPS.items()}
    for name, (call, line, rest) in _OTHERS.items():
        rest = rest.replace("{options}", "\n".join(options(SearchSettings)))
        pages_by_name[f"{name}.md"] = f"# pairsmith {call}\n\n{_WRITTEN}\n\n{line}\n\n{rest}"
    return pages_by_name


def index() -> str:
    """The page that leads to all others."""
    rows = [
        f"| [`pairsmith {command_of(name)}`]({name}.md) | {step.help} | `{name}` |"
        for name, step in STEPS.items()
    ]
    rows += [f"| [`pairsmith {call}`]({name}.md) | {line} | |" for name, (call, line, _) in _OTHERS.items()]
    return _HEAD + "\n".join(rows) + "\n"


def step_page(name: str, step: Step) -> str:
    """One step: its line of help and a table of its options."""
    lines = [f"# pairsmith {command_of(name)}", "", _WRITTEN, "", step.help]
    if name in _GUIDES:
        lines += ["", f"More about it: [{_GUIDES[name].partition('.')[0]}](../{_GUIDES[name]})."]
    lines += ["", *options(step.settings)]
    lines += [
        "",
        f"Also `--out`, `--fresh` and `--quiet`, as [every step](index.md); in a recipe `step: {name}`.",
    ]
    return "\n".join([*lines, ""])


def options(settings: type[Settings]) -> list[str]:
    """The lines of a table of the options that a settings model makes."""
    lines = ["| option | values | default | |", "|---|---|---|---|"]
    for setting, field in in_help_order(settings).items():
        kind, values = option_kind(field.annotation)
        values = values.replace("|", ", ") + (", several times" if kind == list[str] else "")
        flag = f"`{option_name(setting)}`" + (f", `--no-{option_name(setting)[2:]}`" if kind is bool else "")
        default = default_text(field).removeprefix("default: ")
        cells = [flag, values, default, field.description or ""]
        lines.append("| " + " | ".join(map(_cell, cells)) + " |")
    return lines


def cited() -> dict[str, dict[str, list[str]]]:
    """For each number of docs/methods.md that a docstring cites: by file, the names of what cites it.

    A file whose own docstring alone cites a number has no names.
    """
    citations: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted(SOURCE.rglob("*.py")):
        file = path.relative_to(SOURCE).as_posix()
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for name, node in _documented(tree):
            for number in dict.fromkeys(NUMBER.findall(ast.get_docstring(node) or "")):
                names = citations[number][file]  # the file is noted, whatever cites it
                if name and not any(part.startswith("_") for part in name.split(".")):
                    names.append(name)
    return citations


def _documented(
    node: ast.Module | ast.FunctionDef | ast.ClassDef, name: str = ""
) -> Iterator[tuple[str, ast.Module | ast.FunctionDef | ast.ClassDef]]:
    """What may have a docstring: the file, whose name is empty, functions, classes and ``Class.method``s."""
    yield name, node
    for part in node.body:
        if isinstance(part, ast.FunctionDef | ast.ClassDef):
            yield from _documented(part, f"{name}.{part.name}" if name else part.name)


def code_page() -> str:
    """Where each entry of docs/methods.md stands in the code."""
    places = cited()
    lines = [
        "# Where each equation is in the code",
        "",
        _WRITTEN.replace("settings models", "docstrings"),
        "",
    ]
    lines += ["The numbers are those of [the equations](methods.md); docstrings cite them."]
    lines += ["Files lie in `src/pairsmith/`.", ""]
    lines += ["| | | where |", "|---|---|---|"]
    for number, title in ENTRY.findall(METHODS.read_text(encoding="utf-8")):
        files = [
            f"`{file}`" + (f" ({', '.join(f'`{name}`' for name in names)})" if names else "")
            for file, names in places.get(number, {}).items()
        ]
        lines.append(f"| {number} | {title} | {', '.join(files) or 'the settings of the recipes'} |")
    return "\n".join([*lines, ""])


def layers(text: str) -> str:
    """The text of ARCHITECTURE.md with the layers of the import contract, the highest first."""
    before, begin, rest = text.partition("<!-- layers -->\n")
    _, end, after = rest.partition("<!-- end of layers -->")
    (contract,) = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    rows = ["| | | what is there |", "|---|---|---|"]
    for number, names in zip(range(len(contract["layers"]), 0, -1), contract["layers"], strict=True):
        for name in re.split(r" [:|] ", names):
            file = name.removeprefix("pairsmith.").replace(".", "/")
            path = SOURCE / file / "__init__.py" if (SOURCE / file).is_dir() else SOURCE / f"{file}.py"
            doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            shown = f"{file}/" if path.name == "__init__.py" else path.name
            rows.append(f"| {number} | `{shown}` | {_cell(doc.splitlines()[0])} |")
    return before + begin + "".join(f"{row}\n" for row in rows) + end + after


def _cell(text: str) -> str:
    """``text`` in one line of a table, where no mark of it is taken for markup."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def site(text: str) -> str:
    """The text of mkdocs.yml with the list of the pages as it is now."""
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    listed = [f"      - {command_of(name)}: commands/{name}.md\n" for name, step in STEPS.items()]
    listed += [f"      - {name}: commands/{name}.md\n" for name in _OTHERS]
    return before + _BEGIN + "".join(listed) + _END + after


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    pages_by_name = pages()
    for path in FOLDER.glob("*.md"):
        if path.name not in pages_by_name:  # of a step that is no more
            path.unlink()
    for name, text in pages_by_name.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    CODE.write_text(code_page(), encoding="utf-8")
    ARCHITECTURE.write_text(layers(ARCHITECTURE.read_text(encoding="utf-8")), encoding="utf-8")
    SITE.write_text(site(SITE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"wrote {len(pages_by_name)} pages to {FOLDER}")


if __name__ == "__main__":
    main()
