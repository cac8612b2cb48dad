"""How a causal language model is told to ask about a passage, and in what form it answers (Q2)."""

INSTRUCTION = (
    "Text: {passage}\nTask: Take an answer from the text, and write the question to which it is the answer."
)
"""What it is told where nothing else is said; an asker that train-asker makes has learned this one."""

ANSWER = 'Answer: "'
"""What its text begins with."""

QUESTION = '"\nQuestion: "'
"""What stands between answer and question."""

END = '"'
"""What an answer, and a question, ends with."""


def told(passage: str, begun: str, instruction: str = INSTRUCTION) -> str:
    """The instruction with a passage, and what the model's text begins with."""
    return f"{instruction.replace('{passage}', passage)}\n{begun}"


def room_for_passage(context: int, around: int, written: int, instruction: str = INSTRUCTION) -> int:
    """Tokens of a passage at most; less than 1 where there is no room for any.

    Args:
        context: tokens that the model reads.
        around: tokens of the instruction without a passage, and of what stands before answer and question.
        written: tokens of an answer and a question at most.
        instruction: which may hold the passage more than once.
    """
    return (context - around - written) // instruction.count("{passage}")
