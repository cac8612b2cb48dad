"""Files that are part of pairsmith: the small test model, the recipes and the comparisons.

In an installed package they are in its folder. In a checkout the recipes are in the root folder, where people
look for them.
"""

from pathlib import Path
from typing import Literal

from pairsmith.core.errors import ModelError, SettingsError, known_names_hint

TINY = "pairsmith:tiny"

_RENAMED = {"dino": "dino-x2"}
"""The current names of renamed recipes, by their former names."""

_PACKAGE = Path(__file__).parent.parent
_CHECKOUT = _PACKAGE.parent.parent


def model_path(name: str) -> Path:
    """The folder of the bundled model ``name``; the only one is ``pairsmith:tiny``."""
    if name != TINY:
        raise ModelError(f"no bundled model is called {name!r}; {known_names_hint(name, [TINY])}")
    return _PACKAGE / "models" / "tiny"


def is_bundled(name: str) -> bool:
    """Whether ``name`` has the form of the name of a bundled model, ``pairsmith:…``."""
    return name.startswith("pairsmith:")


def is_path(name_or_path: str) -> bool:
    """Whether the argument is the path of a YAML file, and not the name of a recipe or task of pairsmith."""
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml") or len(path.parts) > 1 or "/" in name_or_path:
        return True
    try:
        return path.is_file()
    except OSError:  # a text that is too long for a path
        return False


def recipe_path(name: str) -> Path:
    """The file of pairsmith's recipe ``name``, e.g. ``quickstart``."""
    return _path(_RENAMED.get(name, name), "recipe")


def comparison_path(name: str) -> Path:
    """The file of pairsmith's comparison ``name``, e.g. ``compare-sts``."""
    return _path(name, "comparison")


def bundled_names(kind: Literal["recipe", "comparison"]) -> list[str]:
    """The names of pairsmith's recipes or comparisons, sorted."""
    return sorted(_files(kind))


def _files(kind: str) -> dict[str, Path]:
    """The files of pairsmith's recipes or comparisons, by their names."""
    folder = _PACKAGE / "recipes"
    if not folder.is_dir():
        folder = _CHECKOUT / "recipes"
    if kind == "comparison":
        folder /= "comparisons"
    return {file.stem: file for file in folder.glob("*.yaml")}


def _path(name: str, kind: str) -> Path:
    files = _files(kind)
    if name not in files:
        raise SettingsError(f"no shipped {kind} is called {name!r}; {known_names_hint(name, files)}")
    return files[name]
