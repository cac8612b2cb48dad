"""Names of the reject filters that several steps share.

A reject names the filter that left its row out (``Reject.filter``) and the reason (``Reject.reason``). A
filter that only one step has is named in that step's module.
"""

DUPLICATE = "duplicate"
"""The text, question, query, pair or row repeats an earlier one."""

COPY = "copy"
"""The generated text repeats the text that it was written for."""

EMPTY = "empty"
"""The text, from a file or from a model, is blank."""

NO_END = "no end"
"""The model stopped before it had ended its text, or without the mark that ends a text."""

LINE_BREAK = "line break"
"""The text has more than one line."""

BAD_CHARACTER = "bad character"
"""The text has a control character, or bytes that cannot be decoded."""

TOO_SHORT = "too short"
"""The text has fewer words or sentences than the settings require."""

TOO_LONG = "too long"
"""The text is longer than the model's context, or than the settings allow."""

NO_ANSWER = "no answer"
"""The passage has no candidate answer, or does not contain the answer to its question."""

ZERO_VECTOR = "zero vector"
"""The vector of the text is zero, so that it has no cosine similarity."""

UNCERTAIN = "uncertain"
"""The model's confidence in its label or answer is too low."""

AGREEMENT = "agreement"
"""The human annotators do not agree, or the teacher does not agree with the generated answer."""
