"""What is to be written: for each input and label, the prompts and the number of texts."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pairsmith.records import LabelledPair, LabelledText, ScoredPair, text_id
from pairsmith.tasks import PLACEHOLDER, TaskSpec

Row = ScoredPair | LabelledPair | LabelledText
"""What the route makes."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Texts to be written for one label and, in a pair task, one input.

    Attributes:
        id: names it, and with it its rows and random numbers; from the input's content and the label.
        input: the first text as it was given; None in a text task.
        label: the label as text.
        count: how many texts.
        main: the prompt of the label.
        counters: the prompts of its counter-labels (D2).
    """

    id: str
    input: str | None
    label: str
    count: int
    main: str
    counters: tuple[str, ...]

    def row_id(self, number: int) -> str:
        """The id of the ``number``-th text."""
        return self.id if self.input is None else f"{self.id}-{number}"


def quotable(text: str) -> str:
    """``text`` so that it can stand between quotation marks in a prompt, on one line.

    A straight double quotation mark would end the first text for the model, a line break or tab
    would break the layout of the instruction. The prompt gets ``'`` and single spaces in their
    place; the row keeps the text as it was given.
    """
    return " ".join(text.replace('"', "'").split())


def pairs_wanted(task: TaskSpec, inputs: Iterable[str], per_input: int) -> Iterator[Wanted]:
    """For each input, each label: ``per_input`` second texts (D4)."""
    for text in inputs:
        shown = quotable(text)
        name = text_id(text)
        wording = int(name, 16)  # so that a text has the same wording whatever stands beside it
        prompts = {
            label: task.instruction(label, wording).replace(PLACEHOLDER, shown) for label in task.label_names
        }
        for label in task.written_names:
            counters = tuple(prompts[counter] for counter in task.counters(label))
            yield Wanted(f"{name}-{label}", text, label, per_input, prompts[label], counters)


def texts_wanted(task: TaskSpec, numbers: Iterable[int]) -> Iterator[Wanted]:
    """One text of each label for each number (D5, D14)."""
    for number in numbers:
        for label in task.written_names:
            counters = tuple(task.instruction(counter, number) for counter in task.counters(label))
            yield Wanted(f"{label}-{number:06d}", None, label, 1, task.instruction(label, number), counters)
