"""Loads tasks by name or from a file. All faults of a file are reported in one error, with their lines."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from pairsmith.core.bundled import is_path
from pairsmith.core.errors import TaskError, known_names_hint
from pairsmith.core.validation import KeyPath, ValidationFault, dotted, errors_of
from pairsmith.data.tasks.spec import TaskSpec, faults, label_key

if TYPE_CHECKING:
    from pairsmith.core.yamlfile import YamlFile

_BUILTIN = Path(__file__).parent / "builtin"


def builtin_tasks() -> tuple[str, ...]:
    """The sorted names of the tasks that are part of pairsmith."""
    return tuple(sorted(path.stem for path in _BUILTIN.glob("*.yaml")))


def builtin_path(name: str) -> Path:
    """The YAML file of the built-in task ``name``."""
    if name not in builtin_tasks():
        raise TaskError(
            f"no built-in task is called {name!r}; {known_names_hint(name, builtin_tasks())}. "
            "To use a task of your own, give the path of its YAML file."
        )
    return _BUILTIN / f"{name}.yaml"


def load_task(name_or_path: str | Path | Mapping[str, Any]) -> TaskSpec:
    """The built-in task with this name, the task in the YAML file at this path, or the task in a mapping.

    For texts that are not the name of a built-in task, ``is_path`` decides whether they are paths. A mapping
    has the keys and values that a YAML file would have.

    Returns:
        the task: its ``kind``, ``pair`` or ``text``, its ``labels`` with their instructions, and
        ``decoding``, how texts are drawn unless ``generate_pairs`` gets another ``decoding``.

    Raises:
        TaskError: there is no such task or file, or a mistake in it.
    """
    if isinstance(name_or_path, Mapping):
        return _task_in(name_or_path)
    if not isinstance(name_or_path, str | Path):
        raise TaskError(
            "a task is given by its name, by the path of its YAML file, or as a mapping, not as an object of "
            f"the type {type(name_or_path).__name__}"
        )
    name = str(name_or_path)
    return read_task(Path(name) if is_path(name) and name not in builtin_tasks() else builtin_path(name))


def _task_in(mapping: Mapping[str, Any]) -> TaskSpec:
    try:
        return TaskSpec.model_validate(dict(mapping))
    except ValidationError as error:
        lines = []
        for fault in errors_of(error, TaskSpec):
            place = dotted(_with_label_key(fault.where, mapping.get("labels")))
            lines.append(f"{place}: {fault.text}" if place else fault.text)
        raise TaskError("\n".join(lines)) from error


def read_task(path: Path) -> TaskSpec:
    """The task in the YAML file at ``path``."""
    from pairsmith.core.yamlfile import read_yaml  # so that `pairsmith --help` need not import PyYAML

    file = read_yaml(path, TaskError)
    task_faults = _faults_between(file)
    try:
        spec = TaskSpec.model_validate(file.data)
    except ValidationError as error:
        task_faults += [
            ValidationFault(_with_label_key(fault.where, file.data.get("labels")), fault.text)
            for fault in errors_of(error, TaskSpec)
            if fault.where  # a fault without a location is between several values, see ``_faults_between``
        ]
    if task_faults or file.duplicates:
        raise TaskError(file.report(task_faults))
    return spec


def _faults_between(file: "YamlFile") -> list[ValidationFault]:
    """The faults between several values of the file, among the values that are valid by themselves."""
    labels = file.data.get("labels")
    if isinstance(labels, list):
        return [
            ValidationFault(("labels",), "should be a mapping from each label to its instruction, not a list")
        ]
    if not isinstance(labels, Mapping):
        return []
    text = "unknown key; the key above it is already the label's name"
    named = [key for key, body in labels.items() if isinstance(body, Mapping) and "name" in body]
    return [
        *(ValidationFault(("labels", label_key(key), "name"), text) for key in named),
        *faults(file.data.get("kind"), labels.items(), chat=file.data.get("format") == "chat"),
    ]


def _with_label_key(where: KeyPath, labels: object) -> KeyPath:
    """``where`` with a label's index, as pydantic reports it, replaced by the label's key in the file."""
    if len(where) < 2 or not isinstance(where[1], int) or not isinstance(labels, Mapping):
        return where
    return ("labels", label_key(list(labels)[where[1]]), *where[2:])
