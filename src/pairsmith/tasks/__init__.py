"""Task descriptions: what to write, one instruction per label, from YAML."""

from pairsmith.tasks.loading import builtin_path, builtin_tasks, load_task
from pairsmith.tasks.spec import PLACEHOLDER, Decoding, TaskSpec, label_text

__all__ = [
    "PLACEHOLDER",
    "Decoding",
    "TaskSpec",
    "builtin_path",
    "builtin_tasks",
    "label_text",
    "load_task",
]
