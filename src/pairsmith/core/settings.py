"""The base class of all settings models.

The default, bounds and help text of a setting are written once, as a pydantic field. The command line, the
format of recipes and the documentation are derived from it.
"""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, JsonValue

BY_CONTENT: dict[str, JsonValue] = {"decides_rows": False, "in_command": True}
"""Mark of a field that names data or a model: their content identifies a run, not their path or name."""

NO_EFFECT: dict[str, JsonValue] = {"decides_rows": False}
"""Mark of a field that decides where or how fast the work runs, and does not change its result."""

KEPT: dict[str, JsonValue] = {"decides_rows": False, "kept": True}
"""Mark of a field that names a folder in which steps store results for each other; no row depends on it."""

MOST_ITEMS = 2**63 - 1
"""Largest value of settings that are numbers of items: Python can take no more items from an iterator."""

MOST_ROWS_AT_ONCE = 65_536
"""Largest number of rows that a language model computes at once: memory is set aside for all of them."""

MOST_TEXTS = 10_000_000
"""Largest number of texts that a label gets for each input, or in all: their ids are kept in memory."""

MOST_BEAMS = 1_000
"""Largest number of beams of a search: memory is set aside for all of them."""


class Settings(BaseModel):
    """Base class of settings models: frozen, and without unknown keys."""

    # Validators are built at first use: `pairsmith --help` loads all settings models and uses no validator.
    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), defer_build=True)

    def deciding(self) -> dict[str, Any]:
        """The settings that identify a run, as JSON: those not marked ``BY_CONTENT`` or ``NO_EFFECT``."""
        return self.model_dump(mode="json", exclude=self._marked("decides_rows"))

    def not_deciding(self) -> dict[str, Any]:
        """The settings that do not identify a run, as JSON: those marked ``BY_CONTENT`` or ``NO_EFFECT``."""
        return self.model_dump(mode="json", include=self._marked("decides_rows"))

    def not_default(self) -> dict[str, Any]:
        """The settings that decide the result, by name, except settings with their default values.

        ``model`` and the settings of ``in_command`` are included unless they are empty.
        """
        fields, hidden = type(self).model_fields, self._marked("decides_rows") - self.in_command()
        values = {name: value for name, value in self if name not in hidden}
        defaults = {name: fields[name].get_default(call_default_factory=True) for name in values}
        named = {"model", *self.in_command()}
        return {
            name: value
            for name, value in values.items()
            if value != defaults[name] or (value and name in named)
        }

    @classmethod
    def in_command(cls) -> set[str]:
        """The names of the settings that do not identify a run, but that a command to repeat it needs."""
        return cls._marked("in_command")

    @classmethod
    def kept_folders(cls) -> set[str]:
        """The names of the settings that are marked ``KEPT``."""
        return cls._marked("kept")

    @classmethod
    def _marked(cls, mark: str) -> set[str]:
        extras = {name: field.json_schema_extra for name, field in cls.model_fields.items()}
        return {name for name, extra in extras.items() if isinstance(extra, dict) and mark in extra}


class NoEffectError(ValueError):
    """The setting ``name`` would have no effect; ``why`` is the end of this sentence in the message."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name} has no effect {why}; leave it out")
        self.name = name


def refuse(settings: Settings, names: Sequence[str], why: str) -> None:
    """Raise a ``NoEffectError`` if a given setting would have no effect; for use in a model's validator.

    The fields ``names`` must have their default value, or 0, which turns them off. ``why`` is the end of the
    sentence "NAME has no effect …".
    """
    fields = type(settings).model_fields
    for name in names:
        if getattr(settings, name) not in (fields[name].default, 0):
            raise NoEffectError(name, why)


def option_name(field: str) -> str:
    """The command-line option of a setting: ``--top-p`` for ``top_p``."""
    return "--" + field.replace("_", "-")


NothingIsEmpty = BeforeValidator(lambda value: {} if value is None else value)
"""Accepts a key without a value, which YAML reads as null, as an empty mapping."""

Listed = BeforeValidator(lambda value: [value] if isinstance(value, str) else value)
"""Accepts a single text as a list of one text."""
