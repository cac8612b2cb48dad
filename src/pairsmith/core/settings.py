"""The base class of all settings models.

A setting's default, bounds and help text are written once, as a pydantic field; the command
line, the recipe file and the documentation are derived from it.
"""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, JsonValue

BY_CONTENT: dict[str, JsonValue] = {"decides_rows": False}
"""For a field that names data or a model: a run is identified by their content, not by their path or name."""

NO_EFFECT: dict[str, JsonValue] = {"decides_rows": False}
"""For a field that says where the work runs or how fast, and changes nothing that comes of it."""

KEPT: dict[str, JsonValue] = {"decides_rows": False, "kept": True}
"""For a folder in which steps keep work for each other: nothing that comes of a step depends on it."""

MOST_ITEMS = 2**63 - 1
"""The largest number of items that Python can take from a stream; more are refused as a setting."""


class Settings(BaseModel):
    """Base class of settings: frozen, and without unknown keys."""

    # Validators are built at first use, as `pairsmith --help` loads twenty-five models and validates none.
    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), defer_build=True)

    def deciding(self) -> dict[str, Any]:
        """The settings that identify a run, in JSON: all but those marked ``BY_CONTENT`` or ``NO_EFFECT``."""
        return self.model_dump(mode="json", exclude=self._not_deciding())

    def not_deciding(self) -> dict[str, Any]:
        """The other settings."""
        return self.model_dump(mode="json", include=self._not_deciding())

    @classmethod
    def kept_folders(cls) -> set[str]:
        """The names of the settings that are marked ``KEPT``."""
        return cls._marked("kept")

    @classmethod
    def _not_deciding(cls) -> set[str]:
        return cls._marked("decides_rows")

    @classmethod
    def _marked(cls, mark: str) -> set[str]:
        extras = {name: field.json_schema_extra for name, field in cls.model_fields.items()}
        return {name for name, extra in extras.items() if isinstance(extra, dict) and mark in extra}


class NoEffectError(ValueError):
    """A setting that would have no effect; ``name`` is the setting's."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name} has no effect {why}; leave it out")
        self.name = name


def refuse(settings: Settings, names: Sequence[str], why: str) -> None:
    """Refuse settings that would have no effect; for use in a model's validator.

    The fields ``names`` must have their default value, or 0, which turns them off. ``why`` is the end of the
    sentence "``name`` has no effect …".
    """
    fields = type(settings).model_fields
    for name in names:
        if getattr(settings, name) not in (fields[name].default, 0):
            raise NoEffectError(name, why)


def option_name(field: str) -> str:
    """The command-line option of a setting: ``--top-p`` for ``top_p``."""
    return "--" + field.replace("_", "-")


# A key without a value, which YAML reads as null, is an empty mapping.
NothingIsEmpty = BeforeValidator(lambda value: {} if value is None else value)

Listed = BeforeValidator(lambda value: [value] if isinstance(value, str) else value)
"""Accepts a single text in place of a list."""
