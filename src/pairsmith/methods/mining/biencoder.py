"""The bi-encoder, which is trained on about a hundred seed pairs to find similar pairs (M2, M4, M7, M8).

seeds and corpora -> negatives for each seed -> contrastive loss, style classifier's loss -> encoder
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router
from torch import Tensor, nn

from pairsmith.core.errors import InputError
from pairsmith.core.model_files import pick_device
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.examples import Example
from pairsmith.data.text import entity_finder
from pairsmith.methods.mining.options import BiencoderOptions
from pairsmith.methods.mining.sampled_negatives import (
    DrawNegatives,
    answer_negatives,
    in_window,
    positive_outputs,
    random_negatives,
)
from pairsmith.methods.mining.style import StyleClassifier
from pairsmith.models.encode import Side, encode_texts
from pairsmith.models.sentence_encoder import load_sentence_encoder
from pairsmith.runs.seeds import generator
from pairsmith.training.checkpoints import Checkpoints
from pairsmith.training.contrastive import contrastive_loss, side_features, side_vectors
from pairsmith.training.fit import MakeRow, TrainedModel, TrainingTask, train_at_each_rate
from pairsmith.training.validation import cannot_choose

STYLE_SCALE = 100.0
"""Factor on the style classifier's weights: without it, they hardly change at an encoder's learning rate."""


@dataclass(frozen=True, slots=True)
class CorpusSample:
    """Texts sampled from the corpora that will be mined.

    Attributes:
        other_style: texts that are probably not in the style of the seeds: the negatives of the style
            classifier (M4).
        outputs: texts from which negatives of the bi-encoder are drawn: passages (kind ``reading``),
            sentences (``summaries``) or whole texts (``pairs``).
    """

    other_style: Sequence[str] = ()
    outputs: Sequence[str] = ()


def train_biencoder_on(
    seeds: Sequence[Example],
    validation: Sequence[Example],
    corpus: CorpusSample,
    options: BiencoderOptions,
    *,
    progress: Progress | None = None,
    checkpoints: Checkpoints | None = None,
) -> TrainedModel["BiEncoder"]:
    """Train a bi-encoder on seed pairs at each learning rate, and keep the best one (M2).

    The retrieval accuracy on ``validation`` chooses step and learning rate; if ``validation`` has fewer than
    two examples, or none with a negative, the last step at the first rate is kept.
    """
    if len(seeds) < 2:
        raise InputError(f"expected two or more seeds, as each is compared with others; got {len(seeds)}")
    seeds = [in_window(example, options.window) for example in seeds]
    validation = [in_window(example, options.window) for example in validation]
    style: Side | None = None
    if options.kind != "pairs" and options.style_weight > 0 and len(corpus.other_style) > 0:
        style = "query" if options.kind == "reading" else "document"

    draw_negatives, draw_validation_negatives = (
        negatives_of(examples, corpus, options) for examples in (seeds, validation)
    )
    draw = contrastive_row_maker(seeds, draw_negatives, corpus.other_style if style else ())
    choosable = len(validation) > 1 and _has_negatives(validation, draw_validation_negatives)
    if validation and not choosable:
        needed = "two or more with different outputs are needed"
        (progress or Silent()).say(cannot_choose(len(validation), needed))

    def make() -> tuple[BiEncoder, TrainingTask[ContrastiveRow]]:
        torch.manual_seed(options.seed)
        encoder = load_biencoder(options)
        model = BiEncoder(encoder, scale=options.scale, style=style, style_weight=options.style_weight)
        measure = None
        if choosable:
            measure = partial(retrieval_accuracy, encoder, validation, draw_validation_negatives)
        return model, TrainingTask(len(seeds), draw, model.batch, measure, "accuracy")

    return train_at_each_rate(make, options, progress, checkpoints)


def _has_negatives(examples: Sequence[Example], draw_negatives: DrawNegatives) -> bool:
    """Whether an example has a negative; else the retrieval accuracy is always 100 and chooses no step."""
    outputs = {example.output for example in examples}
    return any(
        (outputs | set(draw_negatives(i, generator(0, "validation", i)))) - positives
        for i, positives in enumerate(positive_outputs(examples))
    )


def load_biencoder(options: BiencoderOptions) -> SentenceTransformer:
    """Load the base: one encoder for inputs and outputs, or one for each."""
    device = pick_device(options.device)

    def load() -> SentenceTransformer:
        return load_sentence_encoder(
            options.base, pooling=options.pooling, device=device, max_length=options.max_length
        )

    if options.towers == "one":
        return load()
    router = Router.for_query_document(query_modules=list(load()), document_modules=list(load()))
    return SentenceTransformer(modules=[router], device=device)


def negatives_of(
    examples: Sequence[Example], corpus: CorpusSample, options: BiencoderOptions
) -> DrawNegatives:
    """The function that draws the negatives of these examples, in addition to the in-batch negatives."""
    if options.kind == "reading":
        return answer_negatives(examples, corpus.outputs, entity_finder(options.answers), options.negatives)
    return random_negatives(corpus.outputs, options.negatives)


@dataclass(frozen=True, slots=True)
class ContrastiveRow:
    """The training row of a seed pair: the pair, all positives of its input, and its sampled texts.

    ``positives`` are never used as negatives of the input. ``other_style`` is a corpus text for the style
    classifier, None without one.
    """

    input: str
    output: str
    positives: frozenset[str]
    negatives: Sequence[str]
    other_style: str | None


def contrastive_row_maker(
    examples: Sequence[Example], draw_negatives: DrawNegatives, other_style: Sequence[str]
) -> MakeRow[ContrastiveRow]:
    """The function that makes an example's row and draws its negatives and its text of another style."""
    positives = positive_outputs(examples)

    def make_row(number: int, _: int, rng: np.random.Generator) -> ContrastiveRow:
        example, negatives = examples[number], draw_negatives(number, rng)
        other = other_style[int(rng.integers(len(other_style)))] if len(other_style) else None
        return ContrastiveRow(example.input, example.output, positives[number], negatives, other)

    return make_row


class BiEncoder(nn.Module):
    """A sentence encoder of one tower or two, with a style classifier; a call returns the loss of a batch.

    ``style`` is the side whose texts the style classifier judges; None for no style classifier.
    """

    def __init__(
        self, encoder: SentenceTransformer, *, scale: float, style: Side | None, style_weight: float
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.side = style
        self.style = nn.Linear(encoder.get_embedding_dimension(), 1) if style else None
        if self.style is not None:
            nn.init.zeros_(self.style.weight)
            nn.init.zeros_(self.style.bias)
        self._scale = scale
        self._style_weight = style_weight

    def batch(self, rows: Sequence[ContrastiveRow]) -> Mapping[str, Any]:
        """The arguments of ``forward``; the outputs of the rows come first, then their negatives."""
        outputs = [row.output for row in rows] + [text for row in rows for text in row.negatives]
        arguments: dict[str, Any] = {
            "inputs": side_features(self.encoder, [row.input for row in rows], "query"),
            "outputs": side_features(self.encoder, outputs, "document"),
            "same": torch.tensor([[text in row.positives for text in outputs] for row in rows]),
        }
        other_style = [row.other_style for row in rows if row.other_style is not None]
        if other_style and self.side:
            arguments["other_style"] = side_features(self.encoder, other_style, self.side)
        return arguments

    def forward(
        self,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        same: Tensor,
        other_style: Mapping[str, Any] | None = None,
    ) -> dict[str, Tensor]:
        """The loss of a batch, ``loss``, ``()`` float32: contrastive (M2) plus that of the classifier (M4).

        Args:
            inputs: features of n inputs.
            outputs: features of m >= n outputs: output i of input i first, for i < n, then the negatives.
            same: ``(n, m)`` bool, whether output j is a positive of input i.
            other_style: features of corpus texts that are not in the style of the seeds; None if there is no
                style classifier or no such text.
        """
        x = side_vectors(self.encoder, inputs, "query")
        y = side_vectors(self.encoder, outputs, "document")
        loss = contrastive_loss(x, y, same, self._scale)
        if self.side and other_style is not None:
            seeds = x if self.side == "query" else y[: len(x)]
            others = side_vectors(self.encoder, other_style, self.side)
            loss = loss + self._style_weight * self._style_loss(seeds, others)
        return {"loss": loss}

    def _style_loss(self, seeds: Tensor, others: Tensor) -> Tensor:
        """Binary cross-entropy of the style classifier, ``()`` float32 (M4).

        ``seeds``, ``(n, d)``, are the vectors of seed texts; ``others``, ``(m, d)``, are the vectors of texts
        of another style. The result is the mean of the two sets' mean losses.
        """
        assert self.style is not None
        losses = []
        for vectors, target in ((seeds, 1.0), (others, 0.0)):
            unit = nn.functional.normalize(vectors, dim=1)
            logits = (STYLE_SCALE * self.style(unit)).float().squeeze(1)
            targets = torch.full_like(logits, target)
            losses.append(nn.functional.binary_cross_entropy_with_logits(logits, targets))
        return (losses[0] + losses[1]) / 2

    def style_classifier(self) -> StyleClassifier | None:
        """The style classifier with its current weights; None if there is none."""
        if self.style is None:
            return None
        weight = STYLE_SCALE * self.style.weight.detach().float().cpu().squeeze(0)
        return StyleClassifier(weight.numpy(), STYLE_SCALE * float(self.style.bias.detach()))


def retrieval_accuracy(
    encoder: SentenceTransformer, examples: Sequence[Example], draw_negatives: DrawNegatives
) -> float | None:
    """Share, ×100, of the inputs whose own output is nearer than all outputs that are no positives.

    These other outputs are the outputs of other examples and the sampled negatives. The result is None if a
    vector is not finite.
    """
    negatives = [draw_negatives(i, generator(0, "validation", i)) for i in range(len(examples))]
    outputs = [example.output for example in examples] + list(chain.from_iterable(negatives))
    x = encode_texts(encoder, [example.input for example in examples], side="query")
    y = encode_texts(encoder, outputs, side="document")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        return None
    x, y = (vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12) for vectors in (x, y))
    cosines = x @ y.T
    text_ids = {text: number for number, text in enumerate(outputs)}
    output_ids = np.array([text_ids[text] for text in outputs])
    positive_ids = ([text_ids[text] for text in texts] for texts in positive_outputs(examples))
    is_positive = np.stack([np.isin(output_ids, ids) for ids in positive_ids])
    own_cosines = cosines.diagonal()[:, None]
    has_nearer_negative = (np.where(is_positive, -np.inf, cosines) >= own_cosines).any(axis=1)
    return 100.0 * float(1 - has_nearer_negative.mean())
