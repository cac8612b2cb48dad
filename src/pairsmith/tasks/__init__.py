"""Task descriptions: what to write, one instruction per label, from YAML."""

from pairsmith.tasks.loading import builtin_path, builtin_tasks, dump_task, load_task
from pairsmith.tasks.spec import PLACEHOLDER, Decoding, Label, TaskSpec, label_text

__all__ = [
    "PLACEHOLDER",
    "Decoding",
    "Label",
    "TaskSpec",
    "builtin_path",
    "builtin_tasks",
    "dump_task",
    "label_text",
    "load_task",
]
