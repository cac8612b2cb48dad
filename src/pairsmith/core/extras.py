"""The extras of pairsmith: groups of optional packages, by the names with which pip installs them."""

import re
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement

_EXTRA = re.compile(r'extra == "([\w-]+)"')


def missing_packages_by_extra() -> dict[str, list[str]]:
    """For each extra, the packages that it requires and that are not installed in a suitable version.

    The result is empty if pairsmith itself is not installed, but run from its source.
    """
    try:
        needs = [Requirement(text) for text in requires("pairsmith") or ()]
    except PackageNotFoundError:
        return {}
    by_extra: dict[str, list[str]] = {}
    for need in needs:
        for extra in sorted(set(_EXTRA.findall(str(need.marker)))):  # its marker is extra == "NAME"
            missing = by_extra.setdefault(extra, [])
            if not _installed(need):
                missing.append(need.name)
    return by_extra


def _installed(need: Requirement) -> bool:
    try:
        return need.specifier.contains(version(need.name), prereleases=True)
    except PackageNotFoundError:
        return False
