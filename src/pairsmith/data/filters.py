"""Names of the reject filters that several steps share.

A reject says which filter left its row out (``Reject.filter``) and why (``reason``). A filter that only one
step has is named there.
"""

DUPLICATE = "duplicate"
"""Repeats an earlier text, question, query, pair or row."""

COPY = "copy"
"""Repeats the text that it was written for."""

EMPTY = "empty"
"""Nothing but white space: a text that was given, or one that a model wrote."""

NO_END = "no end"
"""A text that a model had not ended when it stopped, or stopped without the mark that ends it."""

LINE_BREAK = "line break"
"""A text of more than one line."""

BAD_CHARACTER = "bad character"
"""A text with a control character, or with bytes that are no text."""

TOO_SHORT = "too short"
"""Fewer words or sentences than are asked for."""

TOO_LONG = "too long"
"""More than a model reads, or than is asked for."""

NO_ANSWER = "no answer"
"""A passage without anything that could be an answer, or without the answer of its question."""

ZERO_VECTOR = "zero vector"
"""A text whose vector has no direction."""

UNCERTAIN = "uncertain"
"""A model's confidence in its label or answer is too low."""

AGREEMENT = "agreement"
"""People, or a teacher and the written answer, do not agree."""
