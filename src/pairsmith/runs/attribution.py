"""The licences and citations of the models and data that a step uses, as far as they are known locally.

The record of a model or data set that pairsmith made lists its sources. The licence and citations of other
models and data sets are read from their cards (README.md, in the Hub's format): for a file, from the card in
its folder; for a Hub id, from the card in the local cache. Nothing is downloaded.
"""

import json
import re
import shlex
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import ValidationError

from pairsmith.core.bundled import is_bundled
from pairsmith.core.errors import PairsmithError, SettingsError
from pairsmith.core.folder_kinds import json_object
from pairsmith.core.gguf import SMOLLM2, hub_repository
from pairsmith.core.model_names import EMBEDDED, is_hub_id
from pairsmith.core.paths import (
    MANIFEST,
    Place,
    exists,
    expanded_path,
    is_folder,
    place,
    printable_name,
    size_of,
)
from pairsmith.core.settings import Settings, option_name
from pairsmith.data.sources import hub_name, is_hub_data
from pairsmith.data.splits import split_of
from pairsmith.runs.provenance import OTHER, SEVERAL, UNKNOWN, Attribution, Provenance, joint_licences

Role = Literal["model", "data"]

SYNTHETIC = "synthetic"
"""The Hub's tag of data sets with texts that a model wrote."""
_RECORDS = (MANIFEST, "training.json")
_FRONT = re.compile(r"\A---\s*\n(.*?)\n---\s*(?:\n|\Z)", re.DOTALL)
_BIBTEX = re.compile(r"```[a-z]*\s*\n(\s*@\w+\s*\{.*?)```", re.DOTALL)
_CITED = re.compile(r"^#+[^\n]*\bcit[^\n]*\n(.*?)(?=^#|\Z)", re.DOTALL | re.MULTILINE | re.IGNORECASE)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
_LONGEST = 2000
"""Largest length of a citation in characters; longer citations are ignored."""
_MOST = 5
"""Largest number of citations that are read from one card."""

_SENTENCE_BERT = (
    "Reimers and Gurevych (2019): Sentence-BERT: Sentence Embeddings using Siamese BERT-Networks. "
    "EMNLP 2019, arXiv:1908.10084."
)
_SMOLLM2_PAPER = (
    "Ben Allal et al. (2025): SmolLM2: When Smol Goes Big - Data-Centric Training of a Small Language Model. "
    "arXiv:2502.02737."
)


@dataclass(frozen=True, slots=True)
class Sources:
    """The models and data that rows or weights were made with, and the works to cite for these."""

    credits: tuple[Attribution, ...] = ()
    citations: tuple[str, ...] = ()


def sources_of(
    *, models: Iterable[str] = (), data: Iterable[str | Place] = (), papers: Iterable[str] = ()
) -> Sources:
    """The models and data that a step uses; any of them that pairsmith made is replaced by its own sources.

    ``models`` and ``data`` are names, paths or URLs; ``papers`` are further works to cite, which come first.
    Each source and each citation is listed once.
    """
    sources = [*(_source(name, "model") for name in models), *(_source(name, "data") for name in data)]
    made_with = dict.fromkeys(credit for source in sources for credit in source.credits)
    citations = [*papers, *(line for source in sources for line in source.citations)]
    citations += [line for credit in made_with for line in credit.citations]
    return Sources(tuple(made_with), tuple(dict.fromkeys(citations)))


def written_by_model(data: str | Place) -> bool:
    """Whether a model may have written texts of a data set, as far as this is known locally.

    The card of a folder that pairsmith wrote decides: whether it has the tag ``synthetic``. Its models do not
    decide, as they may only have chosen the rows, or labelled them. If the folder has no card of pairsmith,
    it is assumed that a model that its record names, or that is among its sources, wrote texts.
    """
    record: dict[str, Any] = {}
    with suppress(OSError, PairsmithError):  # else the folder cannot be reached now
        path = place(split_of(data)[0] if isinstance(data, str) else data)
        tags = _listed(card_of(path).get("tags"))
        if "pairsmith" in tags or SYNTHETIC in tags:
            return SYNTHETIC in tags
        record = json_object(path / MANIFEST)
    sources = sources_of(data=[data])
    return bool(record.get("models")) or any(credit.role == "model" for credit in sources.credits)


def synthetic_tag(*data: str | Place) -> tuple[str, ...]:
    """The tags of a card whose rows have their texts from ``data``: ``synthetic``, if a model wrote some."""
    return (SYNTHETIC,) if any(map(written_by_model, data)) else ()


def model_display_name(name: str | Place) -> str:
    """The name of a model or source in a card: the last part of a path or URL, other names unchanged."""
    text = str(name)
    if is_bundled(text) or text.startswith(EMBEDDED) or is_hub_id(text) or is_hub_data(text):
        return text
    if hub_repository(text) is not None:  # org/name:FILE.gguf
        return text
    if text.startswith(("http://", "https://")):
        return text.rpartition("#")[2].partition("?")[0].rstrip("/").rpartition("/")[2]
    last = text.rstrip("/").replace("\\", "/").rpartition("/")[2].partition("?")[0]
    return printable_name(last if last not in ("", ".", "..", "~") else expanded_path(text).resolve().name)


def displayed_options(settings: Settings) -> str:
    """The options of the command that repeats a step, as its card shows them: required ones first.

    Files, folders and servers have their display names.
    """
    fields, words = type(settings).model_fields, list[str]()
    for name, value in sorted(
        settings.not_default().items(), key=lambda item: not fields[item[0]].is_required()
    ):
        option = option_name(name)
        if value is None:  # in place of a default
            words += [option, "null"]
            continue
        if isinstance(value, bool):
            words.append(option if value else f"--no-{option[2:]}")
            continue
        for item in value if isinstance(value, list | tuple) else [value]:
            text = str(item)
            is_place = name in type(settings).in_command() or _is_place(text)
            words += [option, shlex.quote(model_display_name(text) if is_place else text)]
    return " ".join(words)


def _is_place(text: str) -> bool:
    """Whether a text is a URL, or the path of a file or folder that exists, possibly with a split."""
    if text in ("", ".", "..", "~"):
        return False
    if _URL.fullmatch(text):
        return True
    try:
        return exists(expanded_path(split_of(text)[0]))
    except SettingsError:  # there is no user of the name after ``~``, so it is a text like any other
        return False


def card_facts(text: str) -> tuple[dict[str, Any], str]:
    """A card's metadata, empty if missing or unreadable, and its text."""
    front_matter = _FRONT.match(text)
    if front_matter is None:
        return {}, text
    try:
        values = yaml.safe_load(front_matter[1])
    except Exception:  # besides YAMLError: ValueError for an impossible date, RecursionError for a deep list
        values = None
    return values if isinstance(values, dict) else {}, text[front_matter.end() :]


def card_of(folder: Place) -> dict[str, Any]:
    """The metadata of the card in a folder; empty if there is no card."""
    return card_facts(_text(folder / "README.md"))[0]


def _source(name: str | Place, role: Role) -> Sources:
    text = str(name)
    if is_bundled(text):
        return Sources((Attribution(name=text, role=role, licences=("apache-2.0",), languages=("en",)),))
    if text.startswith(EMBEDDED):
        paper = _SMOLLM2_PAPER if text == SMOLLM2 else _SENTENCE_BERT
        return Sources((Attribution(name=text, role=role, licences=("apache-2.0",), citations=(paper,)),))
    if role == "model" and (repository := hub_repository(text)) is not None:
        return _of_hub(repository, role)
    if text.startswith(("http://", "https://")) and role == "model":
        look = "the terms of whoever runs the server, and the card of the model there"
        return Sources((Attribution(name=model_display_name(text), role=role, look=look),))
    try:
        path = place(split_of(name)[0] if isinstance(name, str) and role == "data" else name)
        if is_folder(path):
            return _folder(path, role, model_display_name(path))
        if size_of(path) is not None:
            return _file(path, role)
    except PairsmithError:  # the path cannot be reached now; its rows were read earlier
        return _without_card(name, role)
    if is_hub_id(text) if role == "model" else is_hub_data(text):
        return _of_hub(text, role)
    return _without_card(name, role)


def _file(path: Place, role: Role) -> Sources:
    """The sources of a file: those of its folder, or of the folder above if its folder is called ``data``.

    A card without a licence and a language does not count, as it may be the README.md of something else. Web
    servers are not searched for cards.
    """
    if not str(path).startswith(("http://", "https://")):
        for folder in (path.parent, path.parent.parent)[: 2 if path.parent.name == "data" else 1]:
            sources = _folder(folder, role, model_display_name(path))
            if any(credit.licences or credit.languages for credit in sources.credits):
                return sources
    return _without_card(path, role)


def _without_card(name: str | Place, role: Role) -> Sources:
    look = "the place where it is from; the file does not say"
    return Sources((Attribution(name=model_display_name(name), role=role, look=look),))


def _folder(path: Place, role: Role, name: str) -> Sources:
    """The sources of a folder that pairsmith made; also ``name`` itself if its card has another licence.

    ``name`` is the name of the folder, or of a file in it, in a card.
    """
    about = next((provenance for name in _RECORDS if (provenance := _about(path / name))), None)
    credit = _of_card(_text(path / "README.md"), name, role)
    if about is None or not about.credits:
        return Sources((credit,), about.citations if about else ())
    if not credit.licences or set(credit.licences) <= {*joint_licences(about.credits), SEVERAL}:
        return Sources(about.credits, about.citations)
    return Sources((credit.model_copy(update={"citations": ()}), *about.credits), about.citations)


def _of_hub(name: str, role: Role) -> Sources:
    from huggingface_hub import try_to_load_from_cache

    repo = hub_name(name) if role == "data" else name
    kind = "dataset" if role == "data" else "model"
    try:
        cached = try_to_load_from_cache(repo, "README.md", repo_type=kind)
    except ValueError:  # a name that the Hub does not allow
        cached = None
    text = _text(Path(cached)) if isinstance(cached, str) else ""
    where = f"https://huggingface.co/{'datasets/' if role == 'data' else ''}{repo}"
    credit = _of_card(text, name, role)
    look = "" if credit.licences else where
    return Sources((credit.model_copy(update={"hub": repo, "look": look}),))


def _of_card(text: str, name: str, role: Role) -> Attribution:
    values, body = card_facts(text)
    look = "its card, README.md, which names none" if text else "the place where it is from; it has no card"
    licences = _licences(values)
    return Attribution(
        name=name,
        role=role,
        licences=licences,
        citations=_citations(body),
        languages=tuple(language for language in _listed(values.get("language")) if language != UNKNOWN),
        look="" if licences else look,
    )


def _licences(values: dict[str, Any]) -> tuple[str, ...]:
    licences = _listed(values.get("license"))
    named = _listed(values.get("license_name"))
    return tuple(
        name
        for licence in licences
        if licence != UNKNOWN
        for name in (named if licence == OTHER and named else [licence])
    )


def _citations(body: str) -> tuple[str, ...]:
    """BibTeX entries anywhere, else the items of a list under a heading about citing."""
    citations = _BIBTEX.findall(body)
    if not citations:
        parts = _CITED.findall(body)
        citations = [
            line[2:] for part in parts for line in part.splitlines() if line.startswith(("- ", "* "))
        ]
    lines = (" ".join(citation.split()) for citation in citations)
    return tuple(dict.fromkeys(line for line in lines if 0 < len(line) <= _LONGEST))[:_MOST]


def _listed(value: Any) -> Sequence[str]:
    values = value if isinstance(value, list) else [value]
    return [entry.strip().lower() for entry in values if isinstance(entry, str) and entry.strip()]


def _about(record: Place) -> Provenance | None:
    try:
        values = json.loads(_text(record) or "{}")
        return Provenance.model_validate(values["about"]) if values.get("about") else None
    except (ValueError, AttributeError, RecursionError, ValidationError):
        return None


def _text(file: Place) -> str:
    """The text of a file; "" if it is missing or unreadable, as a faulty card must not stop a run."""
    try:
        return file.read_text(encoding="utf-8") if size_of(file) is not None else ""
    except (OSError, ValueError, PairsmithError):
        return ""
