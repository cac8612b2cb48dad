"""Seeds in the form that the trainings use."""

from dataclasses import replace

from pairsmith.data.examples import Example, answer_in_passage
from pairsmith.data.text import count_words, windows


def in_window(example: Example, words: int) -> Example:
    """Cut a long passage to the window with the answer, as mining does; other examples stay unchanged."""
    if example.context is None or example.answer is None or example.answer_start is None:
        return example
    for window in windows(example.context, words, count_words):
        start = example.answer_start - window.start
        if start >= 0 and window.text.startswith(example.answer, start):
            output = answer_in_passage(example.answer, window.text)
            return replace(example, context=window.text, answer_start=start, output=output)
    return example  # the answer crosses the end of a window
