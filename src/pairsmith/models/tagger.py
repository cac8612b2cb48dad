"""Taggers: models of transformers with a head for token classification, which find named entities (Q10).

The tag of a word is that of its first token. A text is split into sentences, and a sentence into words; the
model reads the words of a sentence with spaces between them, as it did in training.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pairsmith.core.arguments import checked_folder, checked_texts, checked_whole_number, model_name
from pairsmith.core.errors import InputError, ModelError, joined_names
from pairsmith.core.model_files import META, quiet_loading
from pairsmith.data.tagged import BIO_TAG, OUTSIDE, as_bio
from pairsmith.data.text.windows import passage_limit, split_sentences
from pairsmith.data.text.words import word_spans
from pairsmith.models.encode import batches_by_length, moved, tokens_at_once
from pairsmith.models.heads import Loading, load_with_head
from pairsmith.models.span_encoder import SpanEncoder
from pairsmith.models.token_vectors import TokenEncoder, start_tokens

Span = tuple[int, int]
"""The start and end of a word in a text, in characters."""
_SHORTEST = 8
"""The smallest ``max_length``: with fewer tokens there is no room for a long word beside special tokens."""


@dataclass(frozen=True, slots=True)
class NamedEntity:
    """A named entity in a text: ``text[start:end]``, in characters, and its type, such as PER."""

    text: str
    type: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TaggedText:
    """A text as words, in order: ``spans`` has the start and end of each word, ``tags`` its BIO tag."""

    text: str
    spans: tuple[Span, ...]
    tags: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        """The words of the text."""
        return [self.text[start:end] for start, end in self.spans]

    @property
    def entities(self) -> list[NamedEntity]:
        """The named entities, each of which begins at a tag B- and goes on over the tags I- after it."""
        found: list[NamedEntity] = []
        for (start, end), tag in zip(self.spans, as_bio(self.tags), strict=True):
            if tag.startswith("I-"):
                start = found.pop().start
            if tag != OUTSIDE:
                found.append(NamedEntity(self.text[start:end], tag[2:], start, end))
        return found


class Tagger(TokenEncoder):
    """A model of transformers whose head gives each token a score for each of k BIO tags."""

    @property
    def tags(self) -> list[str]:
        """The k tags: O, and B- and I- of each type of entity."""
        return list_of_tags(self.model.config)

    def tag_words(self, sentences: Sequence[Sequence[str]]) -> list[list[str]]:
        """The BIO tags of n sentences, which are given as words: n lists with a tag for each word (Q10).

        A word gets the tag O if it has no token of its own, such as a zero-width space, or lies beyond
        ``max_length`` tokens.

        Raises:
            InputError: a sentence is no list of texts.
            ModelError: a score is not finite.
        """
        for number, words in enumerate(sentences):
            if isinstance(words, str) or not all(isinstance(word, str) for word in words):
                raise InputError(f"sentences[{number}] must be a list of words, each of them a text")

        def scores(words: Words) -> Tensor:
            logits: Tensor = self.model(**moved(words.features, self.model.device)).logits
            return logits[words.sentence.to(logits.device), words.token.to(logits.device)]

        return predicted_tags(self, self.tags, scores, sentences)

    def tag_texts(self, texts: Iterable[str]) -> list[TaggedText]:
        """The words and BIO tags of n texts, in their order; a text may be blank."""
        texts = checked_texts(texts, "texts")
        sentences = [self._sentences(text) for text in texts]
        words = [
            [text[start:end] for start, end in spans]
            for text, parts in zip(texts, sentences, strict=True)
            for spans in parts
        ]
        tags = iter(self.tag_words(words))
        return [
            TaggedText(text, tuple(chain(*parts)), tuple(chain(*islice(tags, len(parts)))))
            for text, parts in zip(texts, sentences, strict=True)
        ]

    def find_entities(self, texts: Iterable[str]) -> list[list[NamedEntity]]:
        """The named entities of n texts: n lists, each in the order of the text."""
        return [tagged.entities for tagged in self.tag_texts(texts)]

    def save(self, folder: str | Path) -> None:
        """Save the model for ``load_tagger``; ``AutoModelForTokenClassification`` opens it, too."""
        folder = checked_folder(folder, "folder")  # save_pretrained only logs that a folder is a file
        # The head reads the vectors of tokens, so that nothing uses the pooler of a text's first vector.
        kept = {name: x for name, x in self.model.state_dict().items() if ".pooler." not in name}
        with quiet_loading():
            self.model.save_pretrained(str(folder), state_dict=kept)
            self.tokenizer.save_pretrained(str(folder))

    def _sentences(self, text: str) -> list[list[Span]]:
        """The start and end of each word of each sentence; those that are too long are cut."""
        sentences: list[list[Span]] = []
        for sentence in split_sentences(text):
            spans = [
                (sentence.start + start, sentence.start + end) for start, end in word_spans(sentence.text)
            ]
            sentences += self._parts(text, spans) if spans else []
        return sentences

    def _parts(self, text: str, spans: list[Span]) -> list[list[Span]]:
        """The words of a sentence in as few parts as the model can read at once."""
        limit = passage_limit(self.tokenizer, self.max_length, self.max_length)
        words = [text[start:end] for start, end in spans]
        # A word has no more tokens than bytes, and one for the space before it.
        if sum(len(word.encode()) + 1 for word in words) <= limit:
            return [spans]
        tokens = self.tokenizer([f" {word}" for word in words], add_special_tokens=False)["input_ids"]
        parts: list[list[Span]] = []
        room = 0
        for span, count in zip(spans, map(len, tokens), strict=True):
            if count > room or not parts:
                parts.append([])
                room = limit
            parts[-1].append(span)
            room -= count
        return parts


@dataclass(frozen=True, slots=True, eq=False)
class Words:
    """The words of a batch of sentences, and where the first token of each is in the encoder's ``features``.

    ``sentence``, ``token`` and ``word`` are ``(words,)`` int64: the index of a word's sentence, the index of
    the word's first token in the features of that sentence, and the index of the word in the sentence.
    """

    features: Mapping[str, Any]
    sentence: Tensor
    token: Tensor
    word: Tensor

    @classmethod
    def of(cls, encoder: TokenEncoder, sentences: Sequence[Sequence[str]]) -> "Words":
        """The words of n sentences, each of which is one text of its words and spaces (``_before_words``)."""
        before = _before_words(encoder)
        texts = [before + " ".join(sentence) for sentence in sentences]
        parts: list[NDArray[np.int64]] = []
        for number, (tokens, sentence) in enumerate(zip(encoder.text_tokens(texts), sentences, strict=True)):
            ends = np.cumsum([len(word) + 1 for word in sentence]).astype(np.int64) - 1 + len(before)
            begins = ends - np.array([len(word) for word in sentence])
            first = start_tokens(tokens.offsets, begins)
            # Where a word has no token of its own, the token found is a later word's and starts after it.
            own = [i >= 0 and tokens.offsets[i, 0] < end for i, end in zip(first, ends, strict=True)]
            words = np.flatnonzero(own)
            parts.append(np.stack([np.full(len(words), number), tokens.numbers[first[words]], words], axis=1))
        table = torch.from_numpy(np.concatenate(parts))
        return cls(encoder.features(texts), table[:, 0], table[:, 1], table[:, 2])


def _before_words(encoder: TokenEncoder) -> str:
    """The text before a sentence that gives its first word the tokens of a word in the middle.

    It is a space for byte-level tokenizers such as RoBERTa's, where the space before a word is part of the
    word's first token; else empty.
    """
    alone, spaced = (encoder.tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("a", " a"))
    return " " if alone != spaced and len(alone) == len(spaced) else ""


def predicted_tags(
    encoder: TokenEncoder,
    tags: Sequence[str],
    scores_of: Callable[[Words], Tensor],
    sentences: Sequence[Sequence[str]],
    advance: Callable[[int], None] = lambda _: None,
) -> list[list[str]]:
    """The likeliest BIO tags of the words of each sentence (Q10).

    Args:
        encoder: splits sentences into tokens.
        tags: the names of the k tags.
        scores_of: returns the scores of the tags of n words, ``(n, k)``.
        sentences: each sentence as words.
        advance: is called with the number of sentences that were tagged.

    Raises:
        ModelError: a score is not finite.
    """
    predicted = [[OUTSIDE] * len(sentence) for sentence in sentences]
    lengths = encoder.token_counts([" ".join(sentence) for sentence in sentences]) if sentences else []
    with torch.inference_mode():
        for rows in batches_by_length(lengths, batch_tokens=tokens_at_once(encoder.model.device)):
            words = Words.of(encoder, [sentences[row] for row in rows])
            scores = scores_of(words)
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


def check_for_tagger(encoder: TokenEncoder | SpanEncoder) -> None:
    """Raise a ``ModelError`` if no tagger can be made of this encoder; called before it is trained.

    Its weights must be float32, and transformers must be able to open the tagger.
    """
    tokens = encoder.tokens if isinstance(encoder, SpanEncoder) else encoder
    if tokens.model.dtype != torch.float32:
        raise ModelError(f"a tagger is trained in float32; load the model so, not in {tokens.model.dtype}")
    _without_weights(tokens, [OUTSIDE])


def tagger_of(encoder: TokenEncoder, tags: Sequence[str], rows: Tensor) -> Tagger:
    """A tagger of an encoder and the rows of a linear layer without bias, ``(k, d)``, one for each tag.

    The tagger shares the encoder's weights. Raises a ``ModelError`` as ``check_for_tagger`` does.
    """
    network, head = _without_weights(encoder, tags)
    setattr(network, network.base_model_prefix, encoder.model)
    linear = nn.Linear(rows.shape[1], len(tags), device=rows.device)
    with torch.no_grad():
        linear.weight.copy_(rows)
        linear.bias.zero_()
    setattr(network, head, linear)
    encoder.tokenizer.model_max_length = encoder.max_length  # saved with it, for the texts to tag
    return Tagger(network.eval(), encoder.tokenizer, encoder.max_length)


def _without_weights(encoder: TokenEncoder, tags: Sequence[str]) -> tuple[Any, str]:
    """The model of transformers for token classification with such an encoder, and the name of its head.

    Its weights are on the device ``meta``. It must have the encoder and a linear layer, and nothing between.
    """
    from transformers import MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING, AutoModelForTokenClassification

    config = deepcopy(encoder.model.config)
    config.id2label, config.label2id = dict(enumerate(tags)), {tag: at for at, tag in enumerate(tags)}
    if type(config) in MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING:
        with torch.device(META):
            network = AutoModelForTokenClassification.from_config(config)
        body = network.base_model_prefix
        heads = [name for name, part in network.named_children() if name != body and list(part.parameters())]
        if len(heads) == 1 and isinstance(getattr(network, heads[0]), nn.Linear):
            names = (
                {name for name in part.state_dict() if not name.startswith("pooler.")}
                for part in (getattr(network, body), encoder.model)
            )
            if next(names) == next(names):
                return network, heads[0]
    raise ModelError(
        f"no tagger of a model of type {config.model_type} can be saved for transformers, which would have "
        "other layers than the encoder and a linear layer; give BERT, RoBERTa or the like"
    )


def load_tagger(model: str | Path, **how: Unpack[Loading]) -> Tagger:
    """Load a tagger, which finds named entities (Q10).

    Args:
        model: a folder that ``train-tagger`` or a tagger's ``save`` wrote, or a folder or Hub id of a token
            classification model of transformers whose labels are BIO tags.
        how: ``device`` and ``dtype`` as for ``load_encoder``; ``max_length``, the longest sentence in tokens,
            at least 8, including special tokens. Longer sentences of a text are cut into several.

    Returns:
        The tagger. For n texts, ``find_entities`` returns n lists of named entities, and ``tag_texts`` the
        words of each text and their BIO tags; ``tag_words`` takes sentences that are lists of words.

    Raises:
        ModelError: the model cannot be loaded, has no such head, or its labels are no BIO tags.
        SettingsError: an argument has an invalid value, or there is no such device.
    """
    model = model_name(model)
    if (max_length := how.get("max_length")) is not None:
        checked_whole_number(max_length, "max_length", _SHORTEST)
    network, tokenizer, longest = load_with_head(model, "token classification", **how)
    tags = list_of_tags(network.config)
    if OUTSIDE not in tags or not all(map(BIO_TAG.fullmatch, tags)):
        raise ModelError(
            f"model {model}: its labels are {joined_names(tags)}, but BIO tags are needed, such as O, B-PER "
            "and I-PER; give a folder that train-tagger wrote, or another model with such labels"
        )
    return Tagger(network, tokenizer, longest)


def list_of_tags(config: Any) -> list[str]:
    """The labels of a model with this configuration, in the order of their numbers."""
    return [str(config.id2label.get(number)) for number in range(config.num_labels)]
