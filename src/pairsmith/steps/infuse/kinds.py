"""The kinds of question generators, and the settings that each of them uses (Q2, Q6)."""

from pairsmith.core.errors import SettingsError
from pairsmith.core.settings import option_name
from pairsmith.methods.quip.generators import Kind, generator_kind
from pairsmith.steps.infuse.settings import AskSettings

_NAMES = {
    "encoder-decoder": "a model with an encoder and a decoder",
    "causal": "a causal language model",
    "cloze": "--model cloze",
}
_UNUSED = {
    "encoder-decoder": {"instruction", "chat", "answers"},
    "causal": {"separator", "answers", "decoding", "beams"},
    "cloze": {"instruction", "chat", "separator", "decoding", "top_p", "beams", "dtype"},
}
_OF_EVERY_STEP = {"seed", "dtype"}
"""Settings that a recipe may give to all its steps, whether they need them or not."""


def asker_kind(settings: AskSettings) -> Kind:
    """The kind of question generator that ``settings.model`` is."""
    kind = generator_kind(settings.model)
    for name in sorted(unused(settings, kind) - _OF_EVERY_STEP):
        if getattr(settings, name) != AskSettings.model_fields[name].default:
            way = f" and --decoding {settings.decoding}" if kind == "encoder-decoder" else ""
            raise SettingsError(f"{option_name(name)} does nothing with {_NAMES[kind]}{way}; leave it out")
    return kind


def unused(settings: AskSettings, kind: Kind) -> set[str]:
    """The settings that have no effect with a kind of question generator."""
    if kind != "encoder-decoder":
        return _UNUSED[kind]
    return _UNUSED[kind] | ({"top_p", "seed", "tries"} if settings.decoding == "beams" else {"beams"})
