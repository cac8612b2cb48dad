"""How search queries are written; without the libraries that write them."""

from dataclasses import dataclass
from typing import Literal

QueryKind = Literal["question", "keywords", "statement"]
AgainstName = Literal["neighbours", "title"]


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """How queries are written.

    Attributes:
        queries: number of queries of a chunk.
        kinds: kinds of query, which take turns.
        against: texts of the counter-prompts (D3): the chunk's neighbours, its title.
        tries: largest number of tries for each query.
        decay: decay of self-debiasing (D3); 0 turns it off.
        top_k: number of likeliest tokens to draw from; 0 for all (D4).
        top_p: of these, draw from the likeliest that together hold this share (D4).
        max_tokens: longest query in tokens.
        max_length: longest text in tokens that the model is shown; the rest is cut off.
        chat: give the instruction as a user's message in the model's chat format.
        seed: seed of the sampling.
    """

    queries: int = 3
    kinds: tuple[QueryKind, ...] = ("question", "keywords", "statement")
    against: tuple[AgainstName, ...] = ("neighbours", "title")
    tries: int = 3
    decay: float = 100.0
    top_k: int = 5
    top_p: float = 0.9
    max_tokens: int = 32
    max_length: int = 400
    chat: bool = False
    seed: int = 1
