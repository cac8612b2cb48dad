"""Chats as tokens: the markers of a chat template are special tokens, and no text in the chat is one.

Otherwise a text that contains a marker, such as ``<|im_end|>``, would end its own message.
"""

from collections.abc import Callable
from typing import Protocol

_MARK = "\ufdd0"
"""Stands around texts in a rendered template; Unicode reserves it, so that it is no character of a text."""


class Tokenize(Protocol):
    """Splits a text into tokens, without the special tokens that a model expects before a text."""

    def __call__(self, text: str, *, parse_special: bool) -> list[int]:
        """The tokens of a text; names of special tokens become these tokens only with ``parse_special``."""


def chat_tokens(tokenize: Tokenize, render: Callable[[str], str], message: str, answer: str) -> list[int]:
    """The tokens of a chat: a user's message in a template, and the beginning of the model's answer.

    If ``message`` and ``answer`` contain no names of special tokens, the rendered chat is tokenized as one
    text. Else they and the parts of the template are tokenized one by one.

    Args:
        tokenize: the model's tokenizer.
        render: returns the chat in the model's template, from the user's message to the answer's place.
        message: the user's message.
        answer: the beginning of the answer.
    """
    texts = message + answer
    if tokenize(texts, parse_special=True) == tokenize(texts, parse_special=False):
        return tokenize(render(message) + answer, parse_special=True)
    message, answer = message.replace(_MARK, ""), answer.replace(_MARK, "")
    body = message.strip()  # many templates strip messages, so that white space stays outside of the marks
    chat = render(message.replace(body, f"{_MARK}{body}{_MARK}", 1)) + _MARK + answer
    return [
        token
        for place, part in enumerate(chat.split(_MARK))  # the template's and the texts' by turns
        for token in tokenize(part, parse_special=place % 2 == 0)
    ]
