"""The prompt for a causal language model to write a question on a passage, and its output's form (Q2)."""

from collections.abc import Sequence
from dataclasses import dataclass

INSTRUCTION = (
    "Text: {passage}\nTask: Take an answer from the text, and write the question to which it is the answer."
)
"""The default instruction; ``train-asker`` trains question generators with it."""

ANSWER_CUE = 'Answer: "'
"""The beginning of the output, before the answer."""

QUESTION_CUE = '"\nQuestion: "'
"""The text between the answer and the question."""

CLOSING_QUOTE = '"'
"""The text after an answer and after a question."""


@dataclass(frozen=True, slots=True)
class QuestionExample:
    """An example for a prompt: a passage, an answer that occurs in it, and the question to this answer."""

    passage: str
    answer: str
    question: str


def instructed_prompt(passage: str, begun: str, instruction: str = INSTRUCTION) -> str:
    """The prompt: the instruction with a passage filled in, followed by ``begun``, the output so far."""
    return f"{instruction.replace('{passage}', passage)}\n{begun}"


def prompt_of_examples(examples: Sequence[QuestionExample], instruction: str = INSTRUCTION) -> str:
    """The text before a few-shot prompt: each example as a prompt with its complete output."""
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
    """The length in tokens of the longest passage that fits into a model's context; below 1 if none does.

    Args:
        context: the number of tokens of the model's context.
        around: the number of tokens of the instruction without a passage and of the output's beginning.
        written: the largest number of tokens of the rest of the output.
        instruction: the instruction; it may contain the passage several times.
    """
    return (context - around - written) // instruction.count("{passage}")


def quotable(text: str) -> str:
    """The text in a form that can be put between quotation marks in a prompt, on one line.

    A straight double quotation mark would end the quotation, and a line break or tab would change the layout
    of the instruction. They are replaced by ``'`` and by single spaces. Only prompts contain this form; rows
    have the original text.
    """
    return " ".join(text.replace('"', "'").split())
