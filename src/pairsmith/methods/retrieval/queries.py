"""Search queries for chunks of documents, written by a causal language model.

chunk and kind of query -> prompt; neighbouring chunks, and the title alone -> counter-prompts
-> self-debiased tokens (D3) -> queries, of which faulty ones are rejected and tried again
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pairsmith.core.errors import ModelError
from pairsmith.data.chunk_rows import ChunkRow, QueryExample
from pairsmith.data.filters import COPY, DUPLICATE, TOO_SHORT
from pairsmith.data.schemas import Reject
from pairsmith.data.text.instructed import quotable
from pairsmith.data.text.words import WORD, count_words
from pairsmith.methods.retrieval.query_options import QueryKind, QueryOptions
from pairsmith.models.language.combine import self_debias
from pairsmith.models.language.decoder import Group, MultiPromptDecoder
from pairsmith.models.language.faults import TextFault, fault_of_text
from pairsmith.models.language.protocols import Prompt, SteerableModel
from pairsmith.models.language.sampling import Sampling
from pairsmith.runs.seeds import stream_key
from pairsmith.runs.work import Advance


@dataclass(frozen=True, slots=True)
class QueryTemplate:
    """The instruction for a kind of query, the beginning of the model's output, and examples of queries."""

    task: str
    label: str
    examples: tuple[str, ...]


QUERY_TEMPLATES: Mapping[QueryKind, QueryTemplate] = {
    "question": QueryTemplate(
        "Write a question that the text answers.",
        "Question",
        ("What keeps the leaves of green tea from turning brown?", "How wide is the old bridge at Orvel?"),
    ),
    "keywords": QueryTemplate(
        "Write the words that someone types into a search engine to find the text.",
        "Search",
        ("green tea leaves heated after picking", "orvel old bridge width"),
    ),
    "statement": QueryTemplate(
        "Write a short claim that the text supports.",
        "Claim",
        ("Heat keeps the leaves of green tea from turning brown.", "Orvel's bridge is too narrow for carts."),
    ),
}
EXAMPLE_TEXTS = (
    "Tea: The leaves of green tea are heated soon after they are picked. The heat ends what would turn them "
    "brown. Those of black tea are left to lie for hours first.",
    "Orvel: Two bridges cross the river here. The old one is two metres wide, so that no cart could "
    "ever pass it. The other was built for the railway.",
)
"""Invented texts for the example queries of each kind, which are shown unless the user gives examples."""

FLOOR = 0.01
"""Smallest factor of a token's probability in self-debiasing (D3)."""
COPY_WORDS = 8
"""A query of at least this many words that the text contains verbatim is a copy."""
MIN_TEXT_TOKENS = 16
"""Smallest number of tokens of a text that must fit into the model's context with instruction and query."""


@dataclass(frozen=True, slots=True)
class WrittenQuery:
    """A query with the chunk that it was written for; the ``id`` is the chunk's id with a number."""

    id: str
    query: str
    kind: QueryKind
    chunk: ChunkRow

    def columns(self) -> dict[str, str]:
        """The row as it is stored."""
        chunk = self.chunk
        row = {"id": self.id, "query": self.query, "positive": chunk.text}
        return row | {"title": chunk.title, "chunk": chunk.id, "kind": self.kind}


@dataclass(frozen=True, slots=True, eq=False)
class QueryRequest:
    """A request for a query of one kind for a chunk; ``number`` counts the queries of the chunk."""

    chunk: ChunkRow
    kind: QueryKind
    number: int

    def stream(self, number: int) -> int:
        """The key of the random stream of the try with this number."""
        return stream_key(self.chunk.id, self.chunk.text, self.number, number)

    def written(self, text: str) -> WrittenQuery:
        """The query with the text that the model wrote."""
        return WrittenQuery(f"{self.chunk.id}-{self.number}", text.strip(), self.kind, self.chunk)


class QueryWriter:
    """Writes queries for chunks; the queries of a chunk do not depend on the other chunks in the batch.

    Args:
        model: a causal language model.
        options: how queries are written, see ``QueryOptions``.
        examples: the user's own queries, which the prompt shows; an example with a text is shown with it.
    """

    def __init__(
        self, model: SteerableModel, options: QueryOptions, examples: Sequence[QueryExample] = ()
    ) -> None:
        """Raises: ModelError: the instruction and the examples leave no room for a text."""
        self._model = model
        self._options = options
        self._examples = tuple(examples)
        self._special = len(model.encode(""))
        self._shows_invented_examples = not self._examples
        around, room = self._token_budget()
        # In a short context the examples would take the room of the text.
        if self._shows_invented_examples and room < options.max_length:
            self._shows_invented_examples = False
            around, room = self._token_budget()
        if room < MIN_TEXT_TOKENS:
            raise ModelError(
                f"model {model.name}: reads {model.context} tokens, of which the instruction and examples "
                f"take {around} and a query {options.max_tokens}; give fewer or shorter examples"
            )
        self._room = min(room, options.max_length)

    def write(
        self, chunks: Sequence[ChunkRow], advance: Advance = lambda _: None
    ) -> tuple[list[WrittenQuery], list[Reject]]:
        """The queries of the chunks, chunk by chunk, and rejects for the tries that were not kept.

        ``advance`` is called with numbers of tries that are done or no longer needed, in all ``tries`` for
        each query.
        """
        requests = [
            [QueryRequest(chunk, kind, number) for number, kind in enumerate(self._turns(chunk))]
            for chunk in chunks
        ]
        kept: list[dict[int, WrittenQuery]] = [{} for _ in chunks]
        drawn: dict[QueryRequest, list[Group]] = {request: [] for some in requests for request in some}
        rejects: list[Reject] = []
        for number in range(self._options.tries):
            missing = [
                (request, queries)
                for some, queries in zip(requests, kept, strict=True)
                for request in some
                if request.number not in queries
            ]
            undrawn = [request for request, _ in missing if len(drawn[request]) == number]
            for request, groups in zip(undrawn, self._draw(undrawn, number, advance), strict=True):
                drawn[request] += groups
            for request, queries in missing:
                group = drawn[request][number]
                query = request.written(group.text)
                if fault := self._fault(group, query, queries.values()):
                    rejects.append(Reject.of(f"{query.id}-try-{number}", *fault, query.columns()))
                else:
                    queries[request.number] = query
                    advance(self._options.tries - number - 1)
        return [queries[number] for queries in kept for number in sorted(queries)], rejects

    def _turns(self, chunk: ChunkRow) -> list[QueryKind]:
        """The kind of each query of a chunk; with few queries, chunks begin with different kinds."""
        kinds, wanted = self._options.kinds, self._options.queries
        first = stream_key("kinds", chunk.id) % len(kinds) if wanted < len(kinds) else 0
        return [kinds[(first + number) % len(kinds)] for number in range(wanted)]

    def _token_budget(self) -> tuple[int, int]:
        """The length in tokens of the longest instruction with its examples, and the room left for a text."""
        around = max(len(self._prompt("", kind)) for kind in self._options.kinds)
        return around, self._model.context - around - self._options.max_tokens

    def _examples_for(self, kind: QueryKind) -> Sequence[QueryExample]:
        """The examples that the model sees for a kind of query."""
        if not self._shows_invented_examples:
            return self._examples
        return [
            QueryExample(query, text)
            for query, text in zip(QUERY_TEMPLATES[kind].examples, EXAMPLE_TEXTS, strict=True)
        ]

    def _draw(self, requests: Sequence[QueryRequest], number: int, advance: Advance) -> list[list[Group]]:
        """The tries of each request from ``number`` on, up to the first try that has no fault by itself.

        A retry begins at once, as the decoder still holds the keys and values of its prompts. Whether a query
        repeats another query of its chunk is checked later, when all queries of the chunk are written.
        """
        options = self._options
        groups = [[self._group(request, number)] for request in requests]
        decoder = MultiPromptDecoder(
            self._model,
            partial(self_debias, decay=options.decay, floor=FLOOR),
            Sampling(options.top_k, options.top_p, options.max_tokens, may_end=True),
            options.seed,
            [prompt for (group,) in groups for prompt in group.prompts],
        )
        of_group: dict[Group, tuple[QueryRequest, list[Group]]] = {}
        for request, tries in zip(requests, groups, strict=True):
            of_group[tries[0]] = request, tries
            decoder.add(tries[0])
        for group in decoder.finished():
            advance(1)
            request, tries = of_group[group]
            after = number + len(tries)
            if after < options.tries and self._fault(group, request.written(group.text)):
                again = Group(group.main, group.counters, request.stream(after))
                of_group[again] = request, tries
                tries.append(again)
                decoder.add(again, soon=True)
        return groups

    def _group(self, request: QueryRequest, number: int) -> Group:
        """A try of a request: its chunk's prompt, steered away from those of its neighbours and its title."""
        chunk, kind, against = request.chunk, request.kind, self._options.against
        own = self._text_prompt(chunk.title, chunk.text, kind)
        others: list[Prompt] = []
        if self._options.decay:
            neighbours = chunk.neighbours if "neighbours" in against else ()
            others = [self._text_prompt(chunk.title, text, kind) for text in neighbours]
            if "title" in against and chunk.title:
                others.append(self._text_prompt("", chunk.title, kind))
        counters = tuple(prompt for prompt in dict.fromkeys(others) if prompt != own)
        return Group(own, counters, request.stream(number))

    def _fault(
        self, group: Group, query: WrittenQuery, others: Iterable[WrittenQuery] = ()
    ) -> TextFault | None:
        """The fault of a query by ``_fault_of``; a query about the invented examples has a fault, too.

        The user's own examples are not checked, as they are often about the same subject as the chunk.
        """
        return _fault_of(
            group, query, others, self._examples_for(query.kind) if self._shows_invented_examples else ()
        )

    def _text_prompt(self, title: str, text: str, kind: QueryKind) -> Prompt:
        """The prompt for a text below its title; the text is cut to the room that is left."""
        shown = quotable(f"{title}: {text}" if title else text)
        tokens = self._model.encode(shown)
        if len(tokens) - self._special > self._room:
            shown = self._model.decode(tokens[: self._room])
        prompt = self._prompt(shown, kind)
        while len(prompt) > self._model.context - self._options.max_tokens:  # cut text may encode longer
            shown = shown[: len(shown) * 9 // 10]
            prompt = self._prompt(shown, kind)
        return prompt

    def _prompt(self, text: str, kind: QueryKind) -> Prompt:
        """The tokens of the instruction with a text, and of the beginning of the model's output."""
        task, label = QUERY_TEMPLATES[kind].task, QUERY_TEMPLATES[kind].label
        alone = [f'"{quotable(example.query)}"' for example in self._examples if not example.text]
        shown = f"Queries are such as {', '.join(alone)}.\n" if alone else ""
        for example in self._examples_for(kind):
            if example.text:
                shown += f'Text: "{quotable(example.text)}"\nTask: {task}\n'
                shown += f'{label}: "{quotable(example.query)}"\n\n'
        message = f'{shown}Text: "{text}"\nTask: {task}'
        if self._options.chat:
            return tuple(self._model.encode_chat(message, f'{label}: "'))
        return tuple(self._model.encode(f'{message}\n{label}: "'))


def _fault_of(
    group: Group, query: WrittenQuery, others: Iterable[WrittenQuery], examples: Iterable[QueryExample]
) -> TextFault | None:
    """The name of the filter that rejects a query, and its reason; None if the query is kept.

    ``others`` are the chunk's kept queries, ``examples`` the examples that the query must not be about.
    """
    if fault := fault_of_text(group.text, group.ending):
        return fault
    text = query.query
    words, count = text.casefold().split(), count_words(text)
    known = {" ".join(other.query.casefold().split()) for other in others}
    if count < 2:
        return TOO_SHORT, "fewer than two words"
    if " ".join(words) in known:
        return DUPLICATE, "the chunk already has this query"
    if count >= COPY_WORDS and " ".join(words) in " ".join(query.chunk.text.casefold().split()):
        return COPY, f"{COPY_WORDS} words or more that stand in the text word for word"
    own = _content_words(f"{query.chunk.title} {query.chunk.text}")
    if any(
        len((_content_words(text) & _content_words(f"{example.text} {example.query}")) - own) >= 2
        for example in examples
    ):
        return "example", "two telling words or more of an example that are not in the text"
    return None


def _content_words(text: str) -> set[str]:
    """The words of a text that say what it is about: those of five letters or more, and numbers."""
    return {word for word in re.findall(WORD, text.casefold()) if len(word) > 4 or word.isdecimal()}
