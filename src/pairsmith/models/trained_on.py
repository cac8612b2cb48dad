"""Fingerprints, in a model's folder, of the rows that the model was trained on.

With them an evaluation counts its rows that are among the training rows of the model.
"""

from collections.abc import Iterable
from pathlib import Path

from pairsmith.core.errors import ModelError, first_line
from pairsmith.core.model_names import resolve_model
from pairsmith.data.readers import text_id
from pairsmith.data.text.folding import folded

TRAINED_ON = "trained-on.txt"


def fingerprint_of(*texts: str) -> str:
    """The fingerprint of a text, or of a pair of texts in either order: 16 hexadecimal digits.

    Texts that differ only in case, spaces and punctuation have the same fingerprint.
    """
    return text_id("\n".join(sorted(map(folded, texts))))


def write_trained_on(folder: Path, fingerprints: Iterable[str]) -> None:
    """Write the fingerprints of the training rows into a model's folder."""
    lines = "".join(f"{fingerprint}\n" for fingerprint in sorted(set(fingerprints)))
    (folder / TRAINED_ON).write_text(lines, encoding="utf-8")


def read_trained_on(model: str) -> frozenset[str]:
    """The fingerprints of the rows that a model was trained on; empty if its folder does not have them."""
    file = Path(resolve_model(model)) / TRAINED_ON
    try:
        return frozenset(file.read_text(encoding="utf-8").split()) if file.is_file() else frozenset()
    except (OSError, ValueError) as error:
        raise ModelError(f"{model}: {TRAINED_ON} cannot be read ({first_line(error)})") from error
