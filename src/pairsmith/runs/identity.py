"""The identity of a run, which is what decides its rows; its fingerprint, and how two identities differ."""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from pairsmith import __version__
from pairsmith.core.errors import redacted, redacted_values
from pairsmith.runs.manifest import FORMAT, Manifest
from pairsmith.runs.source_hashes import SOURCE_NAMES
from pairsmith.runs.storage import JSON, canonical_json, hash_json

_ABSENT = object()


@dataclass(frozen=True)
class Identity:
    """What decides the rows of a run: two runs with equal identities make equal rows.

    Attributes:
        step: name of the step.
        settings: the settings that change rows.
        inputs: by the name of an input, the hash of its content.
        models: by the name of a model's setting, the model's revision or hash.
    """

    step: str
    settings: Mapping[str, Any]
    inputs: Mapping[str, str]
    models: Mapping[str, str]

    @classmethod
    def of(
        cls,
        step: str,
        settings: Mapping[str, JSON],
        inputs: Mapping[str, str] = {},
        models: Mapping[str, str] = {},
    ) -> Self:
        """The identity with its values converted to JSON and back: a tuple then equals the stored list."""
        parts = {"settings": settings, "inputs": inputs, "models": models}
        plain = json.loads(json.dumps(parts, allow_nan=False))
        return cls(step, plain["settings"], plain["inputs"], plain["models"])

    def as_dict(self) -> dict[str, Any]:
        """The identity and the folder format as one dictionary; it may contain passwords."""
        return {
            "format": FORMAT,
            "step": self.step,
            "settings": dict(self.settings),
            "inputs": dict(self.inputs),
            "models": dict(self.models),
        }

    def as_record(self) -> dict[str, Any]:
        """The fields of a new ``Manifest``: ``as_dict`` without passwords, plus the fingerprint."""
        shown: dict[str, Any] = redacted_values(self.as_dict())
        return shown | {"fingerprint": self.fingerprint, "pairsmith": __version__}

    def base(self, growing: Collection[str]) -> str:
        """SHA-256 of all that stays the same when work only grows: all but inputs and ``growing`` settings.

        The result is the fingerprint if ``growing`` is empty, as such work cannot grow.
        """
        if not growing:
            return self.fingerprint
        fixed = {key: value for key, value in self.settings.items() if key not in growing}
        return hash_json([FORMAT, self.step, fixed, dict(self.models)])

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the canonical JSON of ``as_dict``; the order of keys has no effect."""
        return hash_json(self.as_dict())


def differences(earlier: Manifest, identity: Identity) -> list[str]:
    """How an earlier run and this one differ, such as ``decay: 100.0 there, 0.0 here``; empty if equal.

    "there" is the value in the folder's manifest ``earlier``, "here" the value in ``identity``.
    """
    if earlier.fingerprint == identity.fingerprint:
        return []
    changes = [f"step: {earlier.step} there, {identity.step} here"] if earlier.step != identity.step else []
    stored = {"settings": earlier.settings, "inputs": earlier.inputs, "models": earlier.models}
    current = redacted_values(
        {"settings": identity.settings, "inputs": identity.inputs, "models": identity.models}
    )
    before, after = dict(_leaves(stored)), dict(_leaves(current))
    for key in sorted(before.keys() | after.keys()):
        one, other = before.get(key, _ABSENT), after.get(key, _ABSENT)
        if one is _ABSENT or other is _ABSENT or canonical_json(one) != canonical_json(other):
            what = f"{_label(key)}{_source(other)}"
            if key[0] == "models" and _ABSENT not in (one, other):
                what += " is another, or was trained again"
            if key[0] == "inputs" and _ABSENT not in (one, other):
                what += " is another, or has changed"
            changes.append("{}: {} there, {} here".format(what, *_excerpts(_show(one), _show(other))))
    return changes or ["fingerprint: a password or token differs, or the manifest was changed by hand"]


def only_adds(earlier: Manifest, identity: Identity, growing: Collection[str]) -> bool:
    """Whether ``identity`` may include all the work of the earlier run, and more.

    The result is True if the two differ only in the inputs and in ``growing`` settings that have increased
    (None stands for no limit). The step has to check whether the inputs have only grown.
    """
    if earlier.base != identity.base(growing):
        return False
    changed = [
        (earlier.settings.get(key), identity.settings[key]) for key in growing if key in identity.settings
    ]
    return all(old == new or (old is not None and (new is None or new > old)) for old, new in changed)


def _leaves(value: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, inner in value.items():
        if isinstance(inner, Mapping) and (inner or not path):
            yield from _leaves(inner, (*path, key))
        else:
            yield (*path, key), inner


def _label(key: tuple[str, ...]) -> str:
    section, rest = key[0], ".".join(key[1:])
    if section == "models":
        return "the model" if rest == "model" else f"model {rest}"
    return f"input {rest}" if section == "inputs" else rest


def _source(value: Any) -> str:
    """The name of the source whose content has the hash ``value``, in brackets; "" for any other value."""
    name = SOURCE_NAMES.get(value) if isinstance(value, str) else None
    return f" ({redacted(name)})" if name else ""


def _show(value: Any) -> str:
    if value is _ABSENT:
        return "absent"
    if isinstance(value, str) and len(value) == 64 and all(digit in "0123456789abcdef" for digit in value):
        return f"{value[:12]}…"
    text = value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
    return " ".join(text.split())


def _excerpts(one: str, other: str) -> tuple[str, str]:
    """At most 60 characters of each of two different texts, with the first place where they differ."""
    same = next(
        (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    start = same - 20 if max(len(one), len(other)) > 60 and same > 50 else 0
    first, second = (f"…{text[start:]}" if start else text for text in (one, other))
    return _cut(first), _cut(second)


def _cut(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:59]}…"
