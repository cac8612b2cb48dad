"""How search queries are written; without the libraries that write them."""

from dataclasses import dataclass
from typing import Literal

KindName = Literal["question", "keywords", "statement"]
AgainstName = Literal["neighbours", "title"]


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """How queries are written.

    ``queries`` are wanted for each chunk, their kinds taking turns, with at most ``tries`` for each. A query
    should fit its chunk better than what it is written ``against``, with a weight of ``decay``; 0 turns that
    off. ``max_length`` tokens of a text are read.
    """

    queries: int = 3
    kinds: tuple[KindName, ...] = ("question", "keywords", "statement")
    against: tuple[AgainstName, ...] = ("neighbours", "title")
    tries: int = 3
    decay: float = 100.0
    top_k: int = 5
    top_p: float = 0.9
    max_tokens: int = 32
    max_length: int = 400
    chat: bool = False
    seed: int = 1
