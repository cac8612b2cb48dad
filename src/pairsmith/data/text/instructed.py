"""The prompt for a causal language model to ask about a passage, and the form of its output (Q2)."""

from collections.abc import Sequence
from dataclasses import dataclass

INSTRUCTION = (
    "Text: {passage}\nTask: Take an answer from the text, and write the question to which it is the answer."
)
"""The default instruction, with which ``train-asker`` trains question generators."""

ANSWER_CUE = 'Answer: "'
"""The beginning of the model's output."""

QUESTION_CUE = '"\nQuestion: "'
"""The text between answer and question."""

CLOSING_QUOTE = '"'
"""The end of an answer, and of a question."""


@dataclass(frozen=True, slots=True)
class QuestionExample:
    """A passage with an answer that stands in it, and the question to this answer, as an example."""

    passage: str
    answer: str
    question: str


def instructed_prompt(passage: str, begun: str, instruction: str = INSTRUCTION) -> str:
    """The prompt: the instruction with a passage, and the beginning of the model's output."""
    return f"{instruction.replace('{passage}', passage)}\n{begun}"


def prompt_of_examples(examples: Sequence[QuestionExample], instruction: str = INSTRUCTION) -> str:
    """What stands before a prompt: the examples, each as a prompt with the whole output."""
    parts = (
        instructed_prompt(
            example.passage,
            f"{ANSWER_CUE}{example.answer}{QUESTION_CUE}{example.question}{CLOSING_QUOTE}",
            instruction,
        )
        for example in examples
    )
    return "".join(f"{part}\n\n" for part in parts)


def room_for_passage(context: int, around: int, written: int, instruction: str = INSTRUCTION) -> int:
    """The longest passage in tokens; less than 1 where there is no room for one.

    A model's ``context`` in tokens has to hold the ``around`` tokens of the instruction without a passage and
    of the beginning of the output, at most ``written`` tokens of an answer, a question and the text between
    them, and the passage as often as the instruction has it.
    """
    return (context - around - written) // instruction.count("{passage}")


def quotable(text: str) -> str:
    """A text that can stand between quotation marks in a prompt, on one line.

    A straight double quotation mark would end the text for the model, a line break or tab would break the
    layout of the instruction. The prompt gets ``'`` and single spaces instead; rows keep the text as it is.
    """
    return " ".join(text.replace('"', "'").split())
