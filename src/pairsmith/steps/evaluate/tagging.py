"""A tagger that is trained on a few sentences and tags others (Q10)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import get_linear_schedule_with_warmup

from pairsmith.core.errors import ModelError
from pairsmith.core.model_files import pick_dtype
from pairsmith.data.tagged import TaggedSentence, as_bio
from pairsmith.models.encode import batches_by_length, tokens_at_once
from pairsmith.models.span_encoder import load_span_encoder
from pairsmith.models.span_reader import question_vectors
from pairsmith.models.token_vectors import TokenEncoder, load_token_encoder, start_tokens
from pairsmith.runs.seeds import generator
from pairsmith.steps.evaluate.transfer_settings import EvaluateNerSettings
from pairsmith.training.quick import quick_training

DROPOUT = 0.1
"""Before the output layer."""
DEVIATION = 0.02
"""Standard deviation of an output layer at random, where the encoder does not name its own."""
LARGEST_NORM = 1.0
"""Of the gradients of all weights together; larger ones are scaled down to it."""


def tag_after_training(
    settings: EvaluateNerSettings,
    train: Sequence[TaggedSentence],
    test: Sequence[TaggedSentence],
    questions: Mapping[str, str] | None,
    *,
    seed: int,
    advance: Callable[[int], None] = lambda _: None,
) -> list[list[str]]:
    """Train an encoder and a linear layer on some sentences, and give others BIO tags (Q10).

    Words that have no token of their own, such as a zero-width space, or that are beyond the encoder's
    longest input, get the tag O. Weights are float32 throughout, as such small updates would be lost in
    16-bit numbers.

    Args:
        settings: settings of the training.
        train: the sentences to train on.
        test: the sentences to tag.
        questions: the question for each entity type and for O, whose start vectors initialise the linear
            layer; None: the layer is initialised at random.
        seed: of the order of the sentences, of dropout, and of the random layer.
        advance: called with the number of sentences that were trained on, in each epoch, or tagged.
    """
    types = sorted({tag[2:] for sentence in train for tag in sentence.tags if tag != "O"})
    tags = ["O", *(f"{place}-{name}" for name in types for place in "BI")]
    if questions is None:
        encoder = load_token_encoder(settings.model, device=settings.device, max_length=settings.max_length)
        config = encoder.model.config
        draw = torch.Generator().manual_seed(seed)
        deviation = getattr(config, "initializer_range", None) or DEVIATION
        rows = deviation * torch.randn(len(tags), int(config.hidden_size), generator=draw)
    else:
        encoder, rows = _question_rows(settings, tags, questions)
    in_bfloat16 = pick_dtype(settings.dtype, encoder.model.device.type) == "bfloat16"
    tagger = Tagger(encoder, rows, in_bfloat16=in_bfloat16)
    _train(tagger, train, tags, settings, seed, advance)
    return _tag(tagger, test, tags, advance)


def _question_rows(
    settings: EvaluateNerSettings, tags: Sequence[str], questions: Mapping[str, str]
) -> tuple[TokenEncoder, Tensor]:
    """The encoder, and the start vectors of the tags' questions scaled to length 1."""
    encoder = load_span_encoder(settings.model, device=settings.device, max_length=settings.max_length)
    with torch.inference_mode():
        texts = [questions[tag.partition("-")[2] or "O"] for tag in tags]
        starts, _ = question_vectors(encoder, texts)
        rows = nn.functional.normalize(starts.float(), dim=1)
    return encoder.tokens, rows.cpu().clone()


class Tagger(nn.Module):
    """An encoder, dropout, and a matrix M with a row for each tag, without biases (Q10).

    All is float32; products may be computed in bfloat16.
    """

    def __init__(self, encoder: TokenEncoder, rows: Tensor, *, in_bfloat16: bool = False) -> None:
        super().__init__()
        self._in_bfloat16 = in_bfloat16
        self.encoder = encoder
        self.model = encoder.model
        self.dropout = nn.Dropout(DROPOUT)
        self.rows = nn.Parameter(rows.to(encoder.model.device))

    def forward(self, words: "Words") -> Tensor:
        """How well each tag fits each word: ``(words, tags)``, unnormalised."""
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
            at = start_tokens(tokens.offsets, begins)
            # Where a word has no token of its own, the token found is a later word's and starts after it.
            own = [token >= 0 and tokens.offsets[token, 0] < end for token, end in zip(at, ends, strict=True)]
            read = np.flatnonzero(own)
            parts.append(np.stack([np.full(len(read), number), tokens.numbers[at[read]], read], axis=1))
        table = torch.from_numpy(np.concatenate(parts))
        return cls(encoder.features(texts), table[:, 0], table[:, 1], table[:, 2])


def _before_words(encoder: TokenEncoder) -> str:
    """What stands before a sentence, so that its first word has the tokens that it has in the middle.

    That is a space for byte-level tokens such as RoBERTa's, where a word without one is another token.
    """
    alone, behind = (encoder.tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("a", " a"))
    return " " if alone != behind and len(alone) == len(behind) else ""


def _train(
    tagger: Tagger,
    sentences: Sequence[TaggedSentence],
    tags: Sequence[str],
    settings: EvaluateNerSettings,
    seed: int,
    advance: Callable[[int], None],
) -> None:
    """Train on the cross-entropy of the words' tags, as Hugging Face's trainer does by default (Q10).

    That is AdamW at a learning rate that falls linearly, with the norm of the gradients at most 1.
    """
    number = {tag: place for place, tag in enumerate(tags)}
    optimizer = torch.optim.AdamW(
        tagger.parameters(), lr=settings.learning_rate, weight_decay=0.0, fused=True
    )
    steps = settings.epochs * -(-len(sentences) // settings.batch_size)
    schedule = get_linear_schedule_with_warmup(optimizer, 0, steps)
    tagger.train()
    with torch.random.fork_rng(), quick_training(tagger, tagger.model.device.type):
        torch.manual_seed(seed)
        for epoch in range(settings.epochs):
            order = generator(seed, "order", epoch).permutation(len(sentences))
            for first in range(0, len(order), settings.batch_size):
                batch = [sentences[place] for place in order[first : first + settings.batch_size]]
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


def _tag(
    tagger: Tagger,
    sentences: Sequence[TaggedSentence],
    tags: Sequence[str],
    advance: Callable[[int], None],
) -> list[list[str]]:
    predicted = [["O"] * len(sentence.words) for sentence in sentences]
    lengths = tagger.encoder.token_counts([" ".join(sentence.words) for sentence in sentences])
    with torch.inference_mode():
        for rows in batches_by_length(lengths, len(lengths), tokens_at_once(tagger.model.device)):
            words = Words.of(tagger.encoder, [sentences[row] for row in rows])
            scores = tagger(words)
            if not torch.isfinite(scores).all():
                raise ModelError(
                    "the tagger gives scores that are not finite; its training diverged or the weights are "
                    "damaged: try a smaller --learning-rate"
                )
            best = scores.argmax(dim=1).tolist()
            for sentence, word, tag in zip(words.sentence.tolist(), words.word.tolist(), best, strict=True):
                predicted[rows[sentence]][word] = tags[tag]
            advance(len(rows))
    return [as_bio(sentence_tags) for sentence_tags in predicted]
