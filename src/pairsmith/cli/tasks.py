"""The commands that list and show the built-in tasks."""

import sys
from typing import Annotated

import typer


def list_tasks(context: typer.Context) -> None:
    """Print the name, the kind and the description of each built-in task, unless a subcommand follows."""
    from pairsmith.data.tasks import builtin_tasks, load_task

    if context.invoked_subcommand is not None:
        return
    names = builtin_tasks()
    wide = max(map(len, names))
    for name in names:
        task = load_task(name)
        print(f"{name:<{wide}}  {task.kind}  {task.description}")


def show_task(name: Annotated[str, typer.Argument(help="Name of a built-in task.", metavar="NAME")]) -> None:
    """Print the YAML file of a built-in task."""
    from pairsmith.data.tasks import builtin_path

    sys.stdout.write(builtin_path(name).read_text(encoding="utf-8"))
