"""What a model is asked to write: for each input and label, the prompts and the number of texts (D1, D2)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pairsmith.data.readers import text_id
from pairsmith.data.tasks import PLACEHOLDER, TaskSpec
from pairsmith.models.language.protocols import Prompt, SteerableModel
from pairsmith.models.language.remote import RemoteModel


@dataclass(frozen=True, slots=True)
class TextRequest:
    """``count`` texts to be written for one label and, in a pair task, one input.

    The ``id``, made of the input's content and the label, names the rows and their random numbers. ``input``
    is the first text as it was given, None in a text task. The prompts are the label's instruction with the
    input filled in, and those of its counter-labels (D2).
    """

    id: str
    input: str | None
    label: str
    count: int
    prompt: str
    counter_prompts: tuple[str, ...]

    def row_id(self, number: int) -> str:
        """The id of the ``number``-th text."""
        return self.id if self.input is None else f"{self.id}-{number}"


def pair_requests(task: TaskSpec, inputs: Iterable[str], per_input: int) -> Iterator[TextRequest]:
    """For each input and each label: ``per_input`` second texts (D4)."""
    for text in inputs:
        quoted = quotable(text)
        name = text_id(text)
        number = int(name, 16)  # so that a text has the same wording whatever stands beside it
        for label in task.written_names:
            main, *counters = (each.replace(PLACEHOLDER, quoted) for each in _wordings(task, label, number))
            yield TextRequest(f"{name}-{label}", text, label, per_input, main, tuple(counters))


def text_requests(task: TaskSpec, numbers: Iterable[int]) -> Iterator[TextRequest]:
    """One text of each label for each number (D5, D14)."""
    for number in numbers:
        for label in task.written_names:
            main, *counters = _wordings(task, label, number)
            yield TextRequest(f"{label}-{number:06d}", None, label, 1, main, tuple(counters))


def _wordings(task: TaskSpec, label: str, number: int) -> Iterator[str]:
    """An instruction of the label, then for each counter-label the one at the same place in its list."""
    place = number % len(task.label(label).wordings)
    yield task.instruction(label, place)
    for counter in task.counters(label):
        yield task.instruction(counter, place)


def quotable(text: str) -> str:
    """``text`` so that it can stand between quotation marks in a prompt, on one line.

    A straight double quotation mark would end the first text for the model, a line break or tab would break
    the layout of the instruction. The prompt gets ``'`` and single spaces instead; the row keeps the given
    text.
    """
    return " ".join(text.replace('"', "'").split())


def encoded(task: TaskSpec, model: SteerableModel | RemoteModel, prompt: str) -> Prompt:
    """The tokens of a prompt, as plain text or in the model's chat format, which not all models have."""
    if task.format == "plain":
        return tuple(model.encode(prompt))
    message, _, answer = prompt.rpartition("\n")
    return tuple(model.encode_chat(message, answer))
