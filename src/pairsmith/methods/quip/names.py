"""Few-shot named entities: a linear layer on token vectors, initialised with questions' vectors (Q10).

a few tagged sentences -> a row for each tag, from its question or at random
-> cross-entropy of the words' tags -> encoder and rows -> the tags of other sentences
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import get_linear_schedule_with_warmup

from pairsmith.core.batches import in_batches
from pairsmith.core.errors import InputError, ModelError, SettingsError, known_names_hint
from pairsmith.core.model_files import pick_dtype
from pairsmith.core.model_names import DtypeName
from pairsmith.data.tagged import TaggedSentence, as_bio
from pairsmith.models.encode import batches_by_length, tokens_at_once
from pairsmith.models.span_answers import question_vectors
from pairsmith.models.span_encoder import SpanEncoder
from pairsmith.models.token_vectors import TokenEncoder, start_tokens
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
"""The question for words that are not names (O), and for each entity type."""

_OTHER_NAMES = {"per": "person", "loc": "location", "org": "organization", "misc": "miscellaneous"}

DROPOUT = 0.1
"""Before the output layer."""
DEVIATION = 0.02
"""Standard deviation of an output layer at random, where the encoder does not name its own."""
LARGEST_NORM = 1.0
"""Of the gradients of all weights together; larger ones are scaled down to it."""


@dataclass(frozen=True, slots=True)
class TaggerOptions:
    """How a tagger is trained.

    Attributes:
        epochs: number of passes over the sentences.
        learning_rate: that of the first step, which falls linearly to 0 after the last.
        batch_size: number of sentences in a step.
        dtype: number format of the products, ``float32`` or ``bfloat16``; ``auto``: bfloat16 if the device
            computes fast with it. Weights are float32 in any case.
    """

    epochs: int = 200
    learning_rate: float = 2e-5
    batch_size: int = 8
    dtype: DtypeName = "float32"


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
    """Train an encoder and a linear layer on some sentences, and give others BIO tags (Q10).

    Words that have no token of their own, such as a zero-width space, or that are beyond the encoder's
    longest input, get the tag O. Weights are float32 throughout, as such small updates would be lost in
    16-bit numbers.

    Args:
        encoder: of float32 weights; it is trained in place. With ``questions`` it has heads for questions, as
            ``load_student`` loads it.
        train: the sentences to train on.
        test: the sentences to tag.
        questions: the question for O and for each entity type of ``train``, as ``questions_for`` gives them,
            whose start vectors initialise the linear layer; None: the layer is initialised at random.
        options: of the training; None: those of the paper.
        seed: of the order of the sentences, of dropout, and of the random layer.
        advance: called with the number of sentences that were trained on, in each epoch, or tagged.

    Raises:
        ModelError: the encoder has no heads for questions, or the training diverged.
    """
    options = options or TaggerOptions()
    tags = tags_of(train)
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
    tagger = Tagger(tokens, rows, in_bfloat16=in_bfloat16)
    train_tagger(tagger, train, tags, options, seed, advance)
    return tag_sentences(tagger, test, tags, advance)


def draw_tagged_sentences(sentences: Sequence[TaggedSentence], shots: int, seed: int) -> list[TaggedSentence]:
    """For each entity type the first ``shots`` shuffled sentences with it that no earlier type has taken.

    Raises an ``InputError`` where a type has fewer, or where no sentence has an entity.
    """
    order = np.random.default_rng(seed).permutation(len(sentences)).tolist()
    types = [{tag[2:] for tag in sentence.tags if tag != "O"} for sentence in sentences]
    places: list[int] = []
    for name in sorted(set().union(*types)):
        examples = [place for place in order if name in types[place] and place not in places][:shots]
        if len(examples) < shots:
            raise InputError(
                f"there are {len(examples)} sentences with the type {name} that no other type has taken, but "
                f"{shots} are needed; give more sentences, or take fewer shots"
            )
        places += examples
    if not places:
        raise InputError("there is no sentence with an entity; give other sentences")
    return [sentences[place] for place in places]


# The beginning of the linear layer


def tags_of(sentences: Sequence[TaggedSentence]) -> list[str]:
    """O, and for each entity type of the sentences, in the order of their names, the B- and the I- tag."""
    return ["O", *(f"{place}-{name}" for name in types_of(sentences) for place in "BI")]


def types_of(sentences: Sequence[TaggedSentence]) -> list[str]:
    """The entity types of the sentences, sorted."""
    return sorted({tag[2:] for sentence in sentences for tag in sentence.tags if tag != "O"})


def questions_for(types: Sequence[str], own: Mapping[str, str] | None = None) -> dict[str, str]:
    """The question for O and for each of the entity types (Q10).

    They are those of ``own``, or else of ``TYPE_QUESTIONS``. Case, and whether a name has a hyphen or an
    underscore, make no difference in looking a type up. Raises a ``SettingsError`` where a type has none.
    """
    by_type = {_type(name): question for name, question in [*TYPE_QUESTIONS.items(), *(own or {}).items()]}
    questions = {"O": by_type["o"]}
    for name in types:
        question = by_type.get(_type(name)) or by_type.get(_OTHER_NAMES.get(_type(name), ""))
        if question is None:
            raise SettingsError(f"no question for the type {name!r}; {known_names_hint(name, by_type)}")
        questions[name] = question
    return questions


def _type(name: str) -> str:
    """An entity type's name, normalised for look-up."""
    return name.casefold().replace("-", "_")


def random_rows(encoder: TokenEncoder, tags: int, seed: int) -> Tensor:
    """Normally distributed rows, ``(tags, d)`` float32, with the standard deviation of the encoder's weights.

    Where the encoder does not name that, it is ``DEVIATION``.
    """
    config = encoder.model.config
    draw = torch.Generator().manual_seed(seed)
    deviation = getattr(config, "initializer_range", None) or DEVIATION
    return deviation * torch.randn(tags, int(config.hidden_size), generator=draw)


def question_rows(encoder: SpanEncoder, tags: Sequence[str], questions: Mapping[str, str]) -> Tensor:
    """f_start of the tags' questions, scaled to length 1, ``(tags, d)`` float32 (Q10)."""
    with torch.inference_mode():
        texts = [questions[tag.partition("-")[2] or "O"] for tag in tags]
        starts, _ = question_vectors(encoder, texts)
        rows = nn.functional.normalize(starts.float(), dim=1)
    return rows.cpu().clone()


# The tagger


class Tagger(nn.Module):
    """An encoder, dropout, and a matrix M with a row for each tag, without biases (Q10).

    ``rows`` are M, ``(tags, d)``. All is float32; products may be computed in bfloat16.
    """

    def __init__(self, encoder: TokenEncoder, rows: Tensor, *, in_bfloat16: bool = False) -> None:
        super().__init__()
        self._in_bfloat16 = in_bfloat16
        self.encoder = encoder
        self.model = encoder.model
        self.dropout = nn.Dropout(DROPOUT)
        self.rows = nn.Parameter(rows.to(encoder.model.device))

    def forward(self, words: "Words") -> Tensor:
        """How well each tag fits each word: ``(words, tags)``, unnormalised, float32 or bfloat16."""
        device = self.model.device
        moved = {name: value.to(device) for name, value in words.features.items()}
        # Entered anew at each call, as autocast caches converted weights, which are stale after a step.
        with torch.autocast(device.type, torch.bfloat16, enabled=self._in_bfloat16):
            states = self.model(**moved).last_hidden_state
            of_words = self.dropout(states[words.sentence.to(device), words.token.to(device)])
            scores: Tensor = of_words @ self.rows.T
        return scores


@dataclass(frozen=True, slots=True, eq=False)
class Words:
    """The words of some sentences, by the positions of their first tokens in the encoder's ``features``.

    ``sentence``, ``(words,)`` int64, is the index of each word's sentence; ``token`` that of its first token;
    ``word`` that of the word in its sentence.
    """

    features: Mapping[str, Any]
    sentence: Tensor
    token: Tensor
    word: Tensor

    @classmethod
    def of(cls, encoder: TokenEncoder, sentences: Sequence[TaggedSentence]) -> "Words":
        """The words of n sentences, which are joined by spaces (and see ``_before_words``)."""
        before = _before_words(encoder)
        texts = [before + " ".join(sentence.words) for sentence in sentences]
        parts: list[NDArray[np.int64]] = []
        for number, (tokens, sentence) in enumerate(zip(encoder.text_tokens(texts), sentences, strict=True)):
            ends = np.cumsum([len(word) + 1 for word in sentence.words]).astype(np.int64) - 1 + len(before)
            begins = ends - np.array([len(word) for word in sentence.words])
            first = start_tokens(tokens.offsets, begins)
            # Where a word has no token of its own, the token found is a later word's and starts after it.
            own = [i >= 0 and tokens.offsets[i, 0] < end for i, end in zip(first, ends, strict=True)]
            words = np.flatnonzero(own)
            parts.append(np.stack([np.full(len(words), number), tokens.numbers[first[words]], words], axis=1))
        table = torch.from_numpy(np.concatenate(parts))
        return cls(encoder.features(texts), table[:, 0], table[:, 1], table[:, 2])


def _before_words(encoder: TokenEncoder) -> str:
    """What stands before a sentence, so that its first word has the tokens that it has in the middle.

    That is a space for byte-level tokens such as RoBERTa's, where a word without one is another token.
    """
    alone, behind = (encoder.tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("a", " a"))
    return " " if alone != behind and len(alone) == len(behind) else ""


def train_tagger(
    tagger: Tagger,
    sentences: Sequence[TaggedSentence],
    tags: Sequence[str],
    options: TaggerOptions,
    seed: int,
    advance: Callable[[int], None],
) -> None:
    """Train on the cross-entropy of the words' tags, as Hugging Face's trainer does by default (Q10).

    That is AdamW at a learning rate that falls linearly, with the norm of the gradients at most 1. The rows
    of ``tagger`` are those of ``tags``; it is trained in place, and left in evaluation mode.
    ``advance`` is called with the number of sentences of each step.
    """
    number = {tag: place for place, tag in enumerate(tags)}
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
                words = Words.of(tagger.encoder, batch)
                places = zip(words.sentence.tolist(), words.word.tolist(), strict=True)
                gold = torch.tensor([number[batch[sentence].tags[word]] for sentence, word in places])
                scores = tagger(words)
                loss = nn.functional.cross_entropy(scores.float(), gold.to(scores.device))
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]  # torch has no type for it
                nn.utils.clip_grad_norm_(tagger.parameters(), LARGEST_NORM)
                optimizer.step()
                schedule.step()
                advance(len(batch))
    tagger.eval()


def tag_sentences(
    tagger: Tagger,
    sentences: Sequence[TaggedSentence],
    tags: Sequence[str],
    advance: Callable[[int], None],
) -> list[list[str]]:
    """The BIO tags of each sentence, one for each word; ``tags`` are those of the tagger's rows.

    ``advance`` is called with the number of sentences that were tagged. Raises a ``ModelError`` where a score
    is not finite.
    """
    predicted = [["O"] * len(sentence.words) for sentence in sentences]
    lengths = tagger.encoder.token_counts([" ".join(sentence.words) for sentence in sentences])
    with torch.inference_mode():
        for rows in batches_by_length(lengths, batch_tokens=tokens_at_once(tagger.model.device)):
            words = Words.of(tagger.encoder, [sentences[row] for row in rows])
            scores = tagger(words)
            if not torch.isfinite(scores).all():
                raise ModelError(
                    "the tagger gives scores that are not finite; its training diverged or the weights are "
                    "damaged: try a smaller learning rate"
                )
            best = scores.argmax(dim=1).tolist()
            for sentence, word, tag in zip(words.sentence.tolist(), words.word.tolist(), best, strict=True):
                predicted[rows[sentence]][word] = tags[tag]
            advance(len(rows))
    return [as_bio(sentence_tags) for sentence_tags in predicted]
