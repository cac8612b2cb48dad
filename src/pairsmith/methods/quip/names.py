"""Few-shot named entity recognition: a linear layer on token vectors, initialised by questions (Q10).

tags -> a row of the layer for each tag, the vector of a question about its entity type, or at random
a few tagged sentences -> cross-entropy of the words' tags -> encoder and layer -> tags of other sentences
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from transformers import get_linear_schedule_with_warmup

from pairsmith.core.batches import in_batches
from pairsmith.core.errors import InputError, ModelError, SettingsError, known_names_hint
from pairsmith.core.model_files import pick_dtype
from pairsmith.data.tagged import TaggedSentence
from pairsmith.methods.quip.tagger_options import TaggerOptions
from pairsmith.models.encode import moved
from pairsmith.models.span_answers import question_vectors
from pairsmith.models.span_encoder import SpanEncoder
from pairsmith.models.tagger import Words, predicted_tags
from pairsmith.models.token_vectors import TokenEncoder
from pairsmith.runs.seeds import generator
from pairsmith.training.quick import quick_training

TYPE_QUESTIONS: Mapping[str, str] = {
    "O": "What is a generic object ?",
    "person": "Who is a person ?",
    "location": "What is a location ?",
    "organization": "What is an organization ?",
    "miscellaneous": "What is a miscellaneous entity ?",
    "corporation": "What is a corporation ?",
    "product": "What is a product ?",
    "creative_work": "What is a creative work ?",
    "group": "What is a group ?",
}
"""The question for words that are no entity (O), and for each entity type."""

_OTHER_NAMES = {"per": "person", "loc": "location", "org": "organization", "misc": "miscellaneous"}

DROPOUT = 0.1
"""Probability of dropout before the output layer."""
DEVIATION = 0.02
"""Standard deviation of a random output layer, if the encoder's configuration does not give one."""
LARGEST_NORM = 1.0
"""Largest norm of the gradient of all weights together; a longer gradient is scaled down to it."""


def tag_after_training(
    encoder: TokenEncoder | SpanEncoder,
    train: Sequence[TaggedSentence],
    test: Sequence[TaggedSentence],
    questions: Mapping[str, str] | None = None,
    options: TaggerOptions | None = None,
    *,
    seed: int = 0,
    advance: Callable[[int], None] = lambda _: None,
) -> list[list[str]]:
    """Train a tagger on tagged sentences, and predict the BIO tags of others (Q10).

    A word gets the tag O if it has no token of its own, such as a zero-width space, or lies beyond the
    encoder's longest input. Weights are float32 throughout, as 16-bit numbers would lose such small updates.

    Args:
        encoder: an encoder with float32 weights, which is trained in place. With ``questions`` it must have
            heads for questions, as ``load_student`` loads it.
        train: the sentences to train on.
        test: the sentences to tag.
        questions: the question for O and for each entity type of ``train``, as ``questions_for`` returns
            them; their start vectors initialise the linear layer. None: the layer is initialised at random.
        options: options of the training; None: the options of the paper.
        seed: random seed of the order of the sentences, of dropout, and of a random layer.
        advance: called with a number of sentences, each time some were trained on or tagged.

    Returns:
        a list of BIO tags for each of ``test``, one for each of its words.

    Raises:
        ModelError: the encoder has no heads for questions, or the training diverged.
    """
    network = train_on_sentences(encoder, train, questions, options, seed=seed, advance=advance)
    words = [sentence.words for sentence in test]
    return predicted_tags(network.encoder, network.tags, network, words, advance)


def train_on_sentences(
    encoder: TokenEncoder | SpanEncoder,
    sentences: Sequence[TaggedSentence],
    questions: Mapping[str, str] | None,
    options: TaggerOptions | None = None,
    *,
    seed: int = 0,
    advance: Callable[[int], None] = lambda _: None,
) -> "TaggingNetwork":
    """Train an encoder and a linear layer on tagged sentences (Q10); arguments as for ``tag_after_training``.

    The result is in evaluation mode.
    """
    options = options or TaggerOptions()
    tags = tags_of(sentences)
    tokens = encoder.tokens if isinstance(encoder, SpanEncoder) else encoder
    if questions is None:
        rows = random_rows(tokens, len(tags), seed)
    elif isinstance(encoder, SpanEncoder):
        rows = question_rows(encoder, tags, questions)
    else:
        raise ModelError(
            "the encoder has no heads for questions; give one that load_student loads, or no questions"
        )
    in_bfloat16 = pick_dtype(options.dtype, tokens.model.device.type) == "bfloat16"
    network = TaggingNetwork(tokens, tags, rows, in_bfloat16=in_bfloat16)
    train_tagger(network, sentences, options, seed, advance)
    return network


def draw_tagged_sentences(sentences: Sequence[TaggedSentence], shots: int, seed: int) -> list[TaggedSentence]:
    """Draw ``shots`` sentences with each entity type, going through the types in the order of their names.

    A sentence that was drawn for one type is not drawn for another. Raises an ``InputError`` if there are too
    few sentences with a type, or none with any entity.
    """
    order = np.random.default_rng(seed).permutation(len(sentences)).tolist()
    types = [{tag[2:] for tag in sentence.tags if tag != "O"} for sentence in sentences]
    places: list[int] = []
    for name in sorted(set().union(*types)):
        examples = [place for place in order if name in types[place] and place not in places][:shots]
        if len(examples) < shots:
            raise InputError(
                f"there are {len(examples)} sentences with the type {name} that were not drawn for another "
                f"type, but {shots} are needed; give more sentences, or take fewer shots"
            )
        places += examples
    if not places:
        raise InputError("there is no sentence with an entity; give other sentences")
    return [sentences[place] for place in places]


# The initial linear layer


def tags_of(sentences: Sequence[TaggedSentence]) -> list[str]:
    """The BIO tags of the sentences: O, then B- and I- for each entity type, sorted by name."""
    return ["O", *(f"{place}-{name}" for name in types_of(sentences) for place in "BI")]


def types_of(sentences: Sequence[TaggedSentence]) -> list[str]:
    """The entity types of the sentences, sorted."""
    return sorted({tag[2:] for sentence in sentences for tag in sentence.tags if tag != "O"})


def questions_for(types: Sequence[str], own: Mapping[str, str] | None = None) -> dict[str, str]:
    """The question for O and for each of the entity types (Q10).

    A type's question is taken from ``own`` or, if ``own`` lacks the type, from ``TYPE_QUESTIONS``. Types are
    looked up without regard to case, and a hyphen counts as an underscore. Raises a ``SettingsError`` if a
    type has no question, or a question of ``own`` is blank.
    """
    if not all(isinstance(question, str) and question.strip() for question in (own or {}).values()):
        raise SettingsError("expected a question as text for each type, such as PER: Who is it?")
    by_type = {_type(name): question for name, question in [*TYPE_QUESTIONS.items(), *(own or {}).items()]}
    questions = {"O": by_type["o"]}
    for name in types:
        question = by_type.get(_type(name)) or by_type.get(_OTHER_NAMES.get(_type(name), ""))
        if question is None:
            raise SettingsError(
                f"no question for the type {name!r}; {known_names_hint(name, by_type.keys() - {'o'})}"
            )
        questions[name] = question
    return questions


def _type(name: str) -> str:
    """An entity type's name, normalised for look-up."""
    return name.casefold().replace("-", "_")


def random_rows(encoder: TokenEncoder, tags: int, seed: int) -> Tensor:
    """Normally distributed rows, ``(tags, d)`` float32, with mean 0.

    The standard deviation is ``initializer_range`` of the encoder's configuration, or else ``DEVIATION``.
    """
    config = encoder.model.config
    draw = torch.Generator().manual_seed(seed)
    deviation = getattr(config, "initializer_range", None) or DEVIATION
    return deviation * torch.randn(tags, int(config.hidden_size), generator=draw)


def question_rows(encoder: SpanEncoder, tags: Sequence[str], questions: Mapping[str, str]) -> Tensor:
    """The start vector of each tag's question, scaled to length 1: ``(tags, d)`` float32 (Q10)."""
    with torch.inference_mode():
        texts = [questions[tag.partition("-")[2] or "O"] for tag in tags]
        starts, _ = question_vectors(encoder, texts)
        rows = nn.functional.normalize(starts.float(), dim=1)
    return rows.cpu().clone()


# The tagger


class TaggingNetwork(nn.Module):
    """An encoder, dropout, and a linear layer M without bias that has a row for each of ``tags`` (Q10).

    ``rows`` is M, ``(tags, d)`` float32. All weights are float32; with ``in_bfloat16`` matrix products are
    computed in bfloat16.
    """

    def __init__(
        self, encoder: TokenEncoder, tags: Sequence[str], rows: Tensor, *, in_bfloat16: bool = False
    ) -> None:
        super().__init__()
        self._in_bfloat16 = in_bfloat16
        self.encoder = encoder
        self.tags = tags
        self.model = encoder.model
        self.dropout = nn.Dropout(DROPOUT)
        self.rows = nn.Parameter(rows.to(encoder.model.device))

    def forward(self, words: Words) -> Tensor:
        """The logits of each word's tags: ``(words, tags)``, float32 or bfloat16."""
        device = self.model.device
        # Entered anew at each call, as autocast caches converted weights, which are stale after a step.
        with torch.autocast(device.type, torch.bfloat16, enabled=self._in_bfloat16):
            states = self.model(**moved(words.features, device)).last_hidden_state
            of_words = self.dropout(states[words.sentence.to(device), words.token.to(device)])
            scores: Tensor = of_words @ self.rows.T
        return scores


def train_tagger(
    tagger: TaggingNetwork,
    sentences: Sequence[TaggedSentence],
    options: TaggerOptions,
    seed: int,
    advance: Callable[[int], None],
) -> None:
    """Train a tagger in place on the cross-entropy of the words' tags (Q10).

    The defaults are those of Hugging Face's trainer: AdamW with a linearly falling learning rate, and
    gradients clipped to norm 1. The tagger is left in evaluation mode. ``advance`` is called with the number
    of sentences of each step.
    """
    number = {tag: place for place, tag in enumerate(tagger.tags)}
    optimizer = torch.optim.AdamW(tagger.parameters(), lr=options.learning_rate, weight_decay=0.0, fused=True)
    steps = options.epochs * -(-len(sentences) // options.batch_size)
    schedule = get_linear_schedule_with_warmup(optimizer, 0, steps)
    tagger.train()
    with torch.random.fork_rng(), quick_training(tagger, tagger.model.device.type):
        torch.manual_seed(seed)
        for epoch in range(options.epochs):
            order = generator(seed, "order", epoch).permutation(len(sentences))
            for rows in in_batches(order, options.batch_size):
                batch = [sentences[row] for row in rows]
                words = Words.of(tagger.encoder, [sentence.words for sentence in batch])
                places = zip(words.sentence.tolist(), words.word.tolist(), strict=True)
                tags = [number[batch[sentence].tags[word]] for sentence, word in places]
                if tags:  # else no word of the batch has a token
                    scores = tagger(words)
                    gold = torch.tensor(tags, device=scores.device)
                    loss = nn.functional.cross_entropy(scores.float(), gold)
                    if not torch.isfinite(loss):
                        raise ModelError("the training diverged: try a smaller learning rate")
                    optimizer.zero_grad()
                    loss.backward()  # type: ignore[no-untyped-call]  # torch has no type for it
                    nn.utils.clip_grad_norm_(tagger.parameters(), LARGEST_NORM)
                    optimizer.step()
                    schedule.step()
                advance(len(batch))
    tagger.eval()
