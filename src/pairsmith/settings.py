"""The base of every settings model.

A setting's default, bounds and help text are written once, as a pydantic field; the command
line, the recipe file and the documentation are derived from it.
"""

from collections.abc import Sequence

from pydantic import BaseModel, BeforeValidator, ConfigDict


class Settings(BaseModel):
    """Frozen, and unknown keys are refused."""

    # Validators are built at first use: `pairsmith --help` has twenty-five models and uses none.
    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), defer_build=True)


def refuse(settings: Settings, names: Sequence[str], why: str) -> None:
    """Refuse settings that would do nothing, for a model's validator.

    Args:
        settings: of which none of ``names`` may have another value than its default, or 0, which turns
            it off.
        names: of fields.
        why: what the sentence "``name`` does nothing" ends with.

    Raises:
        ValueError: one has.
    """
    fields = type(settings).model_fields
    for name in names:
        if getattr(settings, name) not in (fields[name].default, 0):
            raise ValueError(f"{name} does nothing {why}; leave it out")


def option_name(field: str) -> str:
    """What the command line calls a setting: ``top_p`` is ``--top-p``."""
    return "--" + field.replace("_", "-")


# A key with nothing behind it, which YAML reads as null, is a mapping without entries.
NothingIsEmpty = BeforeValidator(lambda value: {} if value is None else value)

Listed = BeforeValidator(lambda value: [value] if isinstance(value, str) else value)
"""One source may be given without a list around it."""
