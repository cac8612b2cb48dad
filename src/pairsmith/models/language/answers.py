"""Validation of a server's answers, before an answer is kept or used."""

import json
import sys
from typing import Any


class InvalidAnswer(Exception):  # noqa: N818 - named for what it is, not for a failure of this program
    """An answer lacks something that the request asked for; the message says what.

    Such a request is sent again. ``advice`` is set for what some servers never send: if no answer to a
    request of this kind was valid before, the advice is shown after ``tries`` invalid answers.
    """

    def __init__(self, lacking: str, advice: str = "", tries: int = 3) -> None:
        super().__init__(lacking)
        self.advice, self.tries = advice, tries


def parsed(text: str) -> dict[str, Any]:
    """Parse a response, whose text must be a JSON object."""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidAnswer("no JSON") from None
    if not isinstance(answer, dict):
        raise InvalidAnswer("no JSON object")
    return answer


def string(holder: dict[str, Any], key: str) -> str:
    """The text under a key."""
    if not isinstance(value := holder.get(key), str):
        raise InvalidAnswer(f"no {key}")
    return value


def number(value: Any) -> float:
    """A log-probability, which must be a finite number."""
    # Any comparison with NaN is false, and JSON's whole numbers may be too large for a float.
    if type(value) not in (int, float) or not abs(value) <= sys.float_info.max:
        raise InvalidAnswer(f"no number as a log-probability but {json.dumps(value)[:40]}")
    return float(value)


def token_ids(answer: dict[str, Any]) -> list[int]:
    """The token ids in a server's answer to a request to tokenize a text."""
    tokens = answer.get("tokens")
    if not isinstance(tokens, list) or any(type(token) is not int for token in tokens):
        raise InvalidAnswer("no list of tokens")
    return tokens


def choices(answer: dict[str, Any], prompts: int) -> list[dict[str, Any]]:
    """The completion ("choice") of each prompt, in the order of the prompts."""
    listed = answer.get("choices")
    if not isinstance(listed, list) or not listed:
        raise InvalidAnswer("no choices")
    if len(listed) != prompts:
        raise InvalidAnswer(f"no choice for each of {prompts} prompts but {len(listed)} choices")
    if not all(isinstance(choice, dict) for choice in listed):
        raise InvalidAnswer("no objects as choices")
    places = [choice.get("index") for choice in listed]
    if missing := [place for place in range(prompts) if place not in places]:
        raise InvalidAnswer(f"no choice with index {missing[0]}")
    for choice in listed:
        string(choice, "text")
    return [listed[places.index(place)] for place in range(prompts)]
