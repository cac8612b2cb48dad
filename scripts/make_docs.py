"""Write docs/commands.md from the settings models: ``python scripts/make_docs.py``.

A test compares the file with what this script makes, so that the page cannot fall behind.
"""

from pathlib import Path
from typing import Any

from pairsmith.options import default_text, option_kind
from pairsmith.settings import option_name
from pairsmith.steps import STEPS, Step

PAGE = Path(__file__).parent.parent / "docs" / "commands.md"

_HEAD = """\
# Commands

<!-- Written by scripts/make_docs.py; change the settings models, not this page. -->

Every step is a command, `pairsmith STEP …`, and can stand in a recipe under the name in brackets, with the
same settings (`--top-k 5` is `top_k: 5`). Besides the options below, every step has:

| option | |
|---|---|
| `--out DIR` | Folder to write to, a path or a URL such as s3://BUCKET/FOLDER. Required (1). |
| `--fresh` | Start over what an earlier run left in the folder; without it, that is kept and continued. |
| `--quiet` | Show no progress; results are printed all the same. |

(1) But not for `generate --preview`, and for `push` only with `--dry-run`.

A fault of the input ends the command with exit code 2 and a line that says what to do; Ctrl-C ends it with
130, and the same command continues.
"""

_TAIL = """\
## pairsmith run RECIPE

Run a recipe: steps in order, from a YAML file, or one that ships with pairsmith (`quickstart`, `dino`).

| option | |
|---|---|
| `--out DIR` | Folder to write to: a folder for each step, and `results.json`. Required. |
| `--seed N` | Takes the place of the recipe's seed. |
| `--set STEP.SETTING=VALUE` | Takes the place of what the recipe says; may be given several times. |
| `--fresh`, `--quiet` | As above. |

How a recipe is written: [recipes.md](recipes.md).

## pairsmith plan RECIPE

Say what a recipe will make and cost before it runs: rows, tokens written, time, memory and disk of each
step. Some seconds of each step's real work are done and carried over to all of it; nothing is written.

| option | |
|---|---|
| `--workers N` | Say what so many workers would take, too. |
| `--set STEP.SETTING=VALUE`, `--quiet` | As above. |

## pairsmith status DIR

Say of a step's folder, or of a recipe's, what is done and what is left, how fast it goes, how long it will
take, and why rows were not kept. It may be asked at any time and only reads. More: [running.md](running.md).

## pairsmith tasks

List the built-in tasks. `pairsmith tasks show NAME` prints one as YAML, to copy and change.
How a task is written: [tasks.md](tasks.md).

## pairsmith --version

Print the version.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *(section(name, step) for name, step in STEPS.items()), _TAIL])


def section(name: str, step: Step[Any]) -> str:
    """One step: its line of help and a table of its options."""
    lines = [f"## pairsmith {step.command or name} [{name}]", "", step.help, ""]
    lines += ["| option | values | default | |", "|---|---|---|---|"]
    for setting, field in step.settings.model_fields.items():
        kind, values = option_kind(field.annotation)
        values = values.replace("|", ", ") + (", several times" if kind == list[str] else "")
        flag = f"`{option_name(setting)}`" + (f", `--no-{option_name(setting)[2:]}`" if kind is bool else "")
        default = default_text(field).removeprefix("default: ")
        cells = [flag, values, default, field.description or ""]
        lines.append("| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")
