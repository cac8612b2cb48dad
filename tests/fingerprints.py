"""Fingerprints of folders, by which tests see whether folders that are there are recognised.

A new setting changes them: see "add an option to a method" in CONTRIBUTING.md.
"""

from pairsmith.runs import DatasetFolder
from pairsmith.runs.identity import Identity


def of_settings(path):
    """The fingerprint of a folder's work as if it read nothing: inputs and models differ by machine."""
    manifest = DatasetFolder.open(path).manifest
    return Identity.of(manifest.step, manifest.settings, {}, {}).fingerprint
