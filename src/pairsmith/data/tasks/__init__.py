"""Task descriptions in YAML: what to generate, with one instruction per label."""

from pairsmith.data.tasks.loading import builtin_path, builtin_tasks, load_task
from pairsmith.data.tasks.spec import PLACEHOLDER, Decoding, TaskSpec, label_text

__all__ = ["PLACEHOLDER", "Decoding", "TaskSpec", "builtin_path", "builtin_tasks", "label_text", "load_task"]
