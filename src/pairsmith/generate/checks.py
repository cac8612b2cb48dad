"""What settings of ``generate`` must be to each other and to the task."""

from pairsmith.errors import SettingsError
from pairsmith.generate.settings import GenerateSettings
from pairsmith.generate.writing import rows_needed
from pairsmith.tasks import TaskSpec


def check(task: TaskSpec, settings: GenerateSettings) -> None:
    """Refuse settings that do not go with the task, before anything is spent.

    Raises:
        SettingsError: the first thing that does not go.
    """
    if settings.rows < rows_needed(task):
        raise SettingsError(
            f"--rows {settings.rows} is too few: the task {task.name} needs at least {rows_needed(task)}"
        )
    if settings.ray_address and settings.executor != "ray":
        raise SettingsError("--ray-address needs --executor ray")
    decoding = settings.decoding(task.decoding)
    if task.kind == "pair" and decoding.tries < decoding.per_input:
        raise SettingsError(
            f"{decoding.tries} tries cannot give {decoding.per_input} texts per input; "
            f"give --tries {decoding.per_input + 3} or more"
        )
    if task.kind == "pair" and not settings.inputs:
        raise SettingsError(f"the task {task.name} writes second texts for given ones; give --inputs FILE")
    if task.kind == "text":
        for name in ("inputs", "column", "limit"):
            if getattr(settings, name):
                raise SettingsError(
                    f"the task {task.name} writes single texts and takes no --{name}; "
                    "--per-input says how many texts each label gets"
                )
