"""Pairs of texts that people labelled as paraphrases or not (Q8, Q9).

MRPC as it was released, PAWS, Quora's questions, and any file with two columns of texts and their labels.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from pairsmith.core.errors import InputError
from pairsmith.core.paths import Place, display_name, place
from pairsmith.data.readers import at_least_one, two_texts, with_names
from pairsmith.data.sources import Columns, Source, open_source, open_table

_FIRST = ("sentence1", "question1", "#1 String", "text1")
_SECOND = ("sentence2", "question2", "#2 String", "text2")
_LABELS = ("label", "is_duplicate", "Quality")
_MRPC = "msr_paraphrase_"
_VALUES = {"0": False, "0.0": False, "false": False, "1": True, "1.0": True, "true": True}


@dataclass(frozen=True, slots=True)
class Paraphrase:
    """Two texts; ``label`` says whether they are paraphrases, None without a label."""

    sentence1: str
    sentence2: str
    label: bool | None


def read_paraphrases(source: str | Place) -> Iterator[Paraphrase]:
    """Read pairs of texts with labels: 0 or 1, true or false; a file without labels has only paraphrases.

    ``source`` is as for ``read_texts``; the texts are called sentence1 and sentence2, or question1 and
    question2, and the label label or is_duplicate. Also MRPC's ``msr_paraphrase_test.txt``. The pairs come in
    the order of the source, all with a label or all without.
    """
    path = place(source)
    name = display_name(path)
    table = name.startswith(_MRPC) and name.removesuffix(".gz").endswith(".txt")
    opened = open_table(path) if table else open_source(source)
    return at_least_one(_paraphrases(opened), f"{opened.name} holds no pairs of texts")


def _paraphrases(source: Source) -> Iterator[Paraphrase]:
    label: str | None = None
    for number, (where, row, names) in enumerate(with_names(source, _FIRST, _SECOND)):
        if not number:
            label = _label_column(row)
        texts = two_texts(row, names, where)
        yield Paraphrase(*texts, None if label is None else _label(row, label, where))


def _label_column(row: Columns) -> str | None:
    folded = {name.casefold(): name for name in row}
    return next((folded[name.casefold()] for name in _LABELS if name.casefold() in folded), None)


def _label(row: Columns, name: str, where: str) -> bool:
    value = row.get(name)
    found = _VALUES.get(str(value).strip().casefold())
    if found is None:
        raise InputError(f"{where}: {name} is {str(value)[:40]!r}; expected 1 (a paraphrase) or 0")
    return found
