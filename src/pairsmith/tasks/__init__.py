"""Task descriptions in YAML: what to generate, with one instruction per label."""

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
