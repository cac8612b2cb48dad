"""The specification of a task: its labels, an instruction for each label, and how texts are sampled.

The fields of ``TaskSpec`` validate single values; ``faults`` validates combinations of values. The two are
separate so that the reader of task files can report both kinds of faults in one error.
"""

import math
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from numbers import Integral
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BeforeValidator, ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from pairsmith.core.errors import TaskError, known_names_hint
from pairsmith.core.settings import MOST_TEXTS, NothingIsEmpty, Settings
from pairsmith.core.validation import ValidationFault, shown_value

PLACEHOLDER = "<X1>"
QUOTE = '"'

TaskKind = Literal["pair", "text"]
Format = Literal["plain", "chat"]
RuleName = Literal["self-debiasing", "guidance", "contrast"]
SchemaKind = Literal["scored_pair", "labelled_pair", "labelled_text"]
T = TypeVar("T")


def label_text(name: object) -> str:
    """A label's name as text: 1.0 becomes ``1``, 0.5 becomes ``0.5``, and names are unchanged."""
    return repr(name).removesuffix(".0") if isinstance(name, float) else str(name)


def parse_label(value: object) -> str | float:
    """Parse a label of a task file: a finite number or a name; raises ``ValueError`` for anything else."""
    if isinstance(value, bool) or value is None:
        word = {True: "true", False: "false", None: "null"}[value]
        raise ValueError(
            f"YAML reads this label as {word} (like yes, no, on, off and ~); put quotation marks round it"
        )
    if isinstance(value, Integral):  # also NumPy's, as in a mapping that a program makes
        value = int(value)
    if isinstance(value, int | float):
        number = float(value) if abs(value) < 1e15 else math.inf
        if not math.isfinite(number):
            raise ValueError(
                f"a label that is a number must be finite and below 1e15, not {shown_value(value)}"
            )
        return number + 0.0  # -0.0 becomes 0.0
    if not isinstance(value, str):
        raise ValueError(
            f"a label is a number or a name, not {shown_value(value)}; put quotation marks round a name"
        )
    if not value or value != value.strip() or not value.isprintable() or len(value) > 100:
        raise ValueError(
            f"a label's name is 1 to 100 printable characters without outer spaces, not {shown_value(value)}"
        )
    return value


def parse_counter_labels(value: object) -> tuple[str | float, ...] | Literal["higher", "others"]:
    """Parse the counter-labels of a task file: a list, `higher` or `others`; else raises ``ValueError``."""
    if value == "higher":
        return "higher"
    if value == "others":
        return "others"
    if isinstance(value, list | tuple):
        return tuple(parse_label(name) for name in value)
    raise ValueError(f"should be a list of labels, `higher` or `others`, not {shown_value(value)}")


LabelName = Annotated[float | str, BeforeValidator(parse_label)]
CounterLabels = Annotated[
    tuple[LabelName, ...] | Literal["higher", "others"], BeforeValidator(parse_counter_labels)
]


class Label(Settings):
    """One label: its name, and the instruction that makes a model write texts for it."""

    name: LabelName = Field(
        description="A number (a similarity score) or a name (a class).",
        json_schema_extra={"from_key": True},  # in a file it is the key of the mapping
    )
    instruction: str = Field(
        description="What the model continues; it ends with an opening quotation mark, and in a pair task "
        f"holds {PLACEHOLDER} once, where the first text goes."
    )
    more_instructions: tuple[str, ...] = Field(
        default=(),
        description="Other wordings of the instruction. Each first text (in a text task: each text to be "
        "written) is given one of all the wordings; its counter-labels are given the wording at the same "
        "place in their lists.",
    )
    counter_labels: CounterLabels = Field(
        default=(),
        description="Labels whose texts this one must not resemble: a list, `higher` (every larger number) "
        "or `others` (every other label).",
    )
    near_copies: Literal["drop", "keep"] = Field(
        default="drop",
        description="Pair tasks: what becomes of a second text that equals the first but for case, spaces "
        "and punctuation.",
    )

    @property
    def wordings(self) -> tuple[str, ...]:
        """All wordings of the instruction: ``instruction``, then ``more_instructions``."""
        return (self.instruction, *self.more_instructions)


class Decoding(Settings):
    """How texts are sampled from the model (docs/methods.md, D3 and D4); defaults are the paper's."""

    model_config = ConfigDict(strict=True)

    top_k: int = Field(default=5, ge=0, description="Draw from the k likeliest tokens; 0 draws from all.")
    top_p: float = Field(
        default=0.9, gt=0, le=1, description="Draw from the likeliest tokens with this total probability."
    )
    max_tokens: int = Field(
        default=40, ge=1, description="Tokens within which the closing quotation mark must come."
    )
    per_input: int = Field(
        default=2, ge=1, le=MOST_TEXTS, description="Texts per input and label, or per label in a text task."
    )
    tries: int = Field(
        default=5,
        ge=1,
        description="Maximum number of attempts for each input and label; in a text task, for each text.",
    )
    rule: RuleName = Field(
        default="self-debiasing",
        description="How a label's prompt is combined with those of its counter-labels: the paper's "
        "self-debiasing, classifier-free guidance, or contrastive decoding.",
    )
    scale: float = Field(
        default=1.5,
        ge=0,
        allow_inf_nan=False,
        description="Strength of guidance; 1 leaves probabilities as they are.",
    )
    strength: float = Field(
        default=0.5, ge=0, allow_inf_nan=False, description="Strength of the contrast; 0 turns it off."
    )
    plausible: float = Field(
        default=0.1,
        gt=0,
        le=1,
        description="For contrast: the least probability of a token, as a share of the likeliest token's.",
    )
    decay: float = Field(
        default=100.0,
        ge=0,
        allow_inf_nan=False,
        description="Strength of self-debiasing against the counter-labels; 0 turns it off.",
    )
    floor: float = Field(
        default=0.01,
        ge=0,
        le=1,
        description="Smallest factor by which self-debiasing multiplies a probability.",
    )

    @property
    def steering(self) -> str:
        """The rule and its strength, such as ``self-debiasing with decay 100``, for messages and cards."""
        name = {"self-debiasing": "decay", "guidance": "scale", "contrast": "strength"}[self.rule]
        return f"{self.rule} with {name} {getattr(self, name):g}"

    @property
    def steers(self) -> bool:
        """Whether the rule can change a token distribution: False only for self-debiasing with decay 0."""
        return self.rule != "self-debiasing" or self.decay > 0


class TaskSpec(Settings):
    """A task: the description of a labelled data set that a language model can generate."""

    name: str = Field(description="A short name: letters of any script, digits, dots, hyphens, underscores.")
    description: str = Field(
        default="", description="One sentence for people; it goes into the data set's card."
    )
    kind: TaskKind = Field(
        description="`pair`: a first text is given, the second is written. `text`: one text is written."
    )
    format: Format = Field(
        default="plain",
        description="`plain`: the model continues the instruction. `chat`: for instruct models, all lines of "
        "the instruction but the last are the user's message, and the last begins the model's answer.",
    )
    labels: tuple[Label, ...] = Field(min_length=1, description="The labels, each with its instruction.")
    decoding: Annotated[Decoding, NothingIsEmpty] = Field(
        default=Decoding(), description="How texts are drawn."
    )
    written: tuple[str, ...] = Field(
        default=(),
        description="Labels for which texts are written, e.g. those that are rare elsewhere; the others keep "
        "texts from fitting them all the same. Left out: all.",
    )

    @field_validator("written", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return tuple(label_text(parse_label(label)) for label in value)
        return value

    @field_validator("name")
    @classmethod
    def _short_name(cls, value: str) -> str:
        kinds = ["M" if sign in "._-" else unicodedata.category(sign)[0] for sign in value]
        if not 0 < len(value) <= 64 or kinds[0] == "M" or not {*kinds} <= {*"LMN"}:  # M: marks on letters
            raise ValueError(
                "a name is 1 to 64 letters of any script, digits, dots, hyphens or underscores and starts "
                f"with a letter or digit, not {shown_value(value)}"
            )
        return value

    @field_validator("labels", mode="before")
    @classmethod
    def _labels_by_name(cls, value: Any) -> Any:
        """Accept a mapping by name, as in files, or a list, as from ``model_dump``."""
        if isinstance(value, Mapping):
            return [
                {**body, "name": name} if isinstance(body, Mapping) else body for name, body in value.items()
            ]
        if isinstance(value, list | tuple):
            return value
        raise ValueError(f"should be a mapping from each label to its instruction, not {shown_value(value)}")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        labels = [(label.name, label.model_dump()) for label in self.labels]
        between = faults(self.kind, labels, chat=self.format == "chat")
        messages = [f"{'.'.join(map(label_text, fault.where))}: {fault.text}" for fault in between]
        names = self.label_names
        messages += [
            f"written: no label {name}; {known_names_hint(name, names)}"
            for name in self.written
            if name not in names
        ]
        if messages:
            raise PydanticCustomError("task_faults", "{faults}", {"faults": "\n".join(messages)})
        return self

    def __repr_args__(self) -> list[tuple[str, Any]]:  # a task is shown without its instructions
        return [("name", self.name), ("kind", self.kind), ("labels", self.label_names)]

    @property
    def numeric(self) -> bool:
        """Whether the labels are numbers."""
        return all(isinstance(label.name, float) for label in self.labels)

    @property
    def label_names(self) -> tuple[str, ...]:
        """The labels as text, in the order of the file: ``("1", "0.5", "0")``."""
        return tuple(label_text(label.name) for label in self.labels)

    @property
    def written_names(self) -> tuple[str, ...]:
        """The labels for which texts are generated, as text, in the order of the file."""
        return tuple(name for name in self.label_names if name in (self.written or self.label_names))

    def writing(self, names: Sequence[str]) -> Self:
        """The task with ``written`` set to ``names``; unchanged if these are no labels or all labels."""
        chosen = {label_text(self.label(name).name) for name in names}
        written = tuple(name for name in self.label_names if name in chosen)
        return self.model_copy(update={"written": written}) if 0 < len(written) < len(self.labels) else self

    @property
    def schema_kind(self) -> SchemaKind:
        """The kind of rows that the task makes: scored pairs, labelled pairs or labelled texts."""
        if self.kind == "text":
            return "labelled_text"
        return "scored_pair" if self.numeric else "labelled_pair"

    def label(self, name: str) -> Label:
        """The label whose name as text is ``name``."""
        for label in self.labels:
            if label_text(label.name) == name:
                return label
        raise TaskError(
            f"the task {self.name} has no label {name!r}; {known_names_hint(name, self.label_names)}"
        )

    def instruction(self, name: str, number: int = 0) -> str:
        """Wording ``number``, modulo their number, of the label ``name``; the placeholder is not replaced."""
        wordings = self.label(name).wordings
        return wordings[number % len(wordings)]

    def counters(self, name: str) -> tuple[str, ...]:
        """The counter-labels CL(y) (D2) of ``name``, `higher` and `others` resolved, in the task's order."""
        label = self.label(name)
        if label.counter_labels == "others":
            return tuple(other for other in self.label_names if other != name)
        if label.counter_labels == "higher":
            assert isinstance(label.name, float)  # `faults` refuses `higher` on names
            return tuple(
                label_text(other.name)
                for other in self.labels
                if isinstance(other.name, float) and other.name > label.name
            )
        listed = {label_text(counter) for counter in label.counter_labels}
        return tuple(other for other in self.label_names if other in listed)


def faults(kind: object, labels: Iterable[tuple[object, object]], *, chat: bool) -> Iterator[ValidationFault]:
    """The faults between several values of a task, among the values that are valid by themselves.

    ``labels`` has, for each label, its key in the file and its other values. The location of a fault is a
    path of keys such as ``("labels", key, "instruction")``.
    """
    drafts = [
        (label_key(key), _valid(parse_label, key), body if isinstance(body, Mapping) else {})
        for key, body in labels
    ]
    label_names = [name for _, name, _ in drafts if name is not None]
    names = [label_text(name) for name in label_names]
    numeric = all(isinstance(name, float) for name in label_names)
    if not numeric and any(isinstance(name, float) for name in label_names):
        yield ValidationFault(
            ("labels",), f"labels are all numbers or all names, not both; given: {', '.join(names)}"
        )
    seen: set[str] = set()
    for key, label, body in drafts:
        where, name = ("labels", key), None if label is None else label_text(label)
        if name is not None:
            if name in seen:
                yield ValidationFault(where, f"the label {name} is given twice; remove or rename one of them")
            seen.add(name)
        more = body.get("more_instructions")
        wordings = {("instruction",): body.get("instruction")} | {
            ("more_instructions", number): text
            for number, text in enumerate(more if isinstance(more, list | tuple) else ())
        }
        for keys, text in wordings.items():
            for fault in _instruction_faults(kind, text, chat) if isinstance(text, str) else ():
                yield ValidationFault((*where, *keys), fault)
        counters = _valid(parse_counter_labels, body.get("counter_labels", ()))
        for fault in _counter_faults(name, counters, names, numeric):
            yield ValidationFault((*where, "counter_labels"), fault)
        if kind == "text" and body.get("near_copies") == "keep":
            yield ValidationFault(
                (*where, "near_copies"), "only pair tasks have near-copies; remove this key"
            )


def label_key(key: object) -> str | int | float:
    """A label's key in a file, as a part of the path of a fault."""
    return key if isinstance(key, str | int | float) else str(key)


def _valid(parse: Callable[[object], T], value: object) -> T | None:
    """The parsed value, or None if it is invalid, which pydantic reports separately."""
    try:
        return parse(value)
    except ValueError:
        return None


def _instruction_faults(kind: object, instruction: str, chat: bool) -> Iterator[str]:
    count = instruction.count(PLACEHOLDER)
    if kind == "pair" and count != 1:
        yield (
            f"a pair task's instruction must hold {PLACEHOLDER} once, for the first text; here: {count} times"
        )
    if kind == "text" and count:
        yield f"a text task has no first text, so its instruction cannot hold {PLACEHOLDER}; remove it"
    if not instruction.endswith(QUOTE):
        end = instruction if len(instruction) <= 12 else f"…{instruction[-12:]}"
        yield (
            f"must end with an opening quotation mark ({QUOTE}), not {shown_value(end)}; "
            "a block begun with |- has no line break at its end"
        )
    elif instruction.count(QUOTE) % 2 == 0:
        yield f"the {QUOTE} at its end closes an earlier one; end with one that opens the model's text"
    message, _, answer = instruction.rpartition("\n")
    if chat and not message.strip():
        yield "a chat needs two lines: the user's message, and the beginning of the model's answer"
    elif chat and PLACEHOLDER in answer:
        yield (
            f"{PLACEHOLDER} is in the last line, which begins the model's answer; put it into an earlier line"
        )


def _counter_faults(
    name: str | None, declared: tuple[str | float, ...] | str | None, names: Sequence[str], numeric: bool
) -> Iterator[str]:
    if declared == "higher" and not numeric:
        yield "`higher` needs labels that are numbers; use `others` or a list"
    if declared is None or isinstance(declared, str):
        return
    counters = [label_text(counter) for counter in declared]
    for counter in dict.fromkeys(counters):
        if counter == name:
            yield f"the label {counter} cannot be a counter-label of itself; remove it"
        elif counter not in names:
            hint = f"known: {', '.join(sorted(set(names)))}" if numeric else known_names_hint(counter, names)
            yield f"unknown counter-label {counter}; {hint}"
        if counters.count(counter) > 1:
            yield f"the counter-label {counter} is listed twice; keep one"
