"""What a card says about the origin of rows or weights, in a machine-readable form.

A ``Provenance`` is stored in ``manifest.json`` and ``training.json`` under ``about``, so that a data set or
model that is made from others can list their sources, too.
"""

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

UNKNOWN = "unknown"
OTHER = "other"
SEVERAL = "several-see-below"
"""The Hub's name of the licence if there are several licences; the card lists them."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Attribution(_Model):
    """The attribution of a model or data set with which rows or weights were made."""

    name: str  # name; for a file or folder only the last part of the path
    role: Literal["model", "data"]  # whether it is a model or a data set
    # The Hub's identifiers of the licences, or names of other licences; empty if they are unknown.
    licences: tuple[str, ...] = ()
    citations: tuple[str, ...] = ()  # works that its own card asks to cite, one line each
    languages: tuple[str, ...] = ()  # language codes of the texts; empty if they are unknown
    hub: str = ""  # Hub id, if it is from the Hub
    look: str = ""  # where to look for the licence, if it is unknown


class Provenance(_Model):
    """The machine-readable content of a folder's card."""

    title: str = ""  # title of the card, and of the data set or model
    description: str = ""  # its description, in Markdown
    columns: dict[str, str] = {}  # the meanings of columns
    citations: tuple[str, ...] = ()  # works to cite, for the methods and for all sources
    credits: tuple[Attribution, ...] = ()  # the models and data sets that were used
    task: str = ""  # the Hub's task category of a data set, if the columns do not determine it


def joint_licences(sources: Sequence[Attribution]) -> tuple[str, ...]:
    """All licences of the sources; empty if the licence of one is unknown, or without sources."""
    if not all(credit.licences for credit in sources):
        return ()
    return tuple(dict.fromkeys(licence for credit in sources for licence in credit.licences))


def hub_licence(sources: Sequence[Attribution]) -> dict[str, str]:
    """``license`` and, if needed, ``license_name`` for a Hub card's metadata; empty without sources.

    The Hub allows the value ``unknown`` and, together with a name, the value ``other``.
    """
    if not sources:
        return {}
    licences = joint_licences(sources)
    if not licences:
        return {"license": UNKNOWN}
    if len(licences) > 1:
        return {"license": OTHER, "license_name": SEVERAL}
    (licence,) = licences
    return {"license": licence} if licence in HUB_LICENCES else {"license": OTHER, "license_name": licence}


def hub_metadata(sources: Sequence[Attribution]) -> dict[str, Any]:
    """``license`` and, if it is known, ``language`` for a Hub card's metadata."""
    languages = joint_languages(sources)
    return {**({"language": list(languages)} if languages else {}), **hub_licence(sources)}


def hub_data(sources: Sequence[Attribution]) -> list[str]:
    """The Hub ids of the data sets among the sources, each once."""
    return list(dict.fromkeys(credit.hub for credit in sources if credit.hub and credit.role == "data"))


def joint_languages(sources: Sequence[Attribution]) -> tuple[str, ...]:
    """The languages of the data sets among the sources; empty if they differ or one of them is unknown."""
    languages = {credit.languages for credit in sources if credit.role == "data"}
    return languages.pop() if len(languages) == 1 else ()


HUB_LICENCES = frozenset(
    """
    apache-2.0 mit openrail bigscience-openrail-m creativeml-openrail-m bigscience-bloom-rail-1.0
    bigcode-openrail-m afl-3.0 artistic-2.0 bsl-1.0 bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear c-uda
    cc cc0-1.0 cc-by-2.0 cc-by-2.5 cc-by-3.0 cc-by-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc-by-nc-2.0 cc-by-nc-3.0
    cc-by-nc-4.0 cc-by-nd-4.0 cc-by-nc-nd-3.0 cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0
    cc-by-nc-sa-4.0 cdla-sharing-1.0 cdla-permissive-1.0 cdla-permissive-2.0 wtfpl ecl-2.0 epl-1.0 epl-2.0
    etalab-2.0 eupl-1.1 eupl-1.2 agpl-3.0 gfdl gpl gpl-2.0 gpl-3.0 lgpl lgpl-2.1 lgpl-3.0 isc h-research
    intel-research lppl-1.3c ms-pl apple-ascl apple-amlr mpl-2.0 odc-by odbl openmdw-1.0 openmdw-1.1
    openrail++ osl-3.0 postgresql ofl-1.1 ncsa unlicense zlib pddl lgpl-lr deepfloyd-if-license
    fair-noncommercial-research-license llama2 llama3 llama3.1 llama3.2 llama3.3 llama4 grok2-community
    gemma
    """.split()  # noqa: SIM905 - 80 names as a list of strings are a page
)
"""The identifiers that the Hub knows (huggingface.co/docs/hub/repositories-licenses)."""
