"""The cross-encoder: a model that reads both texts of a pair together to score it (M6).

seeds and the bi-encoder's hard negatives -> binary or list-wise loss -> cross-encoder
pairs that people scored -> binary loss against the scores -> cross-encoder
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pairsmith.core.errors import InputError
from pairsmith.core.model_files import pick_device
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.examples import Example
from pairsmith.data.text import entity_finder
from pairsmith.methods.mining.options import CrossencoderOptions
from pairsmith.methods.mining.sampled_negatives import (
    DrawNegatives,
    answer_negatives,
    draw_without_replacement,
    positive_outputs,
    random_negatives,
)
from pairsmith.metrics.correlation import spearman
from pairsmith.models.cross_encoder import CrossEncoder, load_cross_encoder, score_pairs
from pairsmith.models.encode import batches_by_length, tokens_at_once
from pairsmith.runs.seeds import generator
from pairsmith.training.best_step import ValidationMeasure
from pairsmith.training.checkpoints import Checkpoints
from pairsmith.training.chunks import chunked, compute_chunks, mean_of_losses
from pairsmith.training.fit import TrainedModel, TrainingTask, train_at_each_rate
from pairsmith.training.validation import cannot_choose


def train_crossencoder_on(
    seeds: Sequence[Example],
    validation: Sequence[Example],
    hard_negatives: Sequence[Sequence[str]] | None,
    options: CrossencoderOptions,
    *,
    progress: Progress | None = None,
    checkpoints: Checkpoints | None = None,
) -> TrainedModel[CrossEncoder]:
    """Train a cross-encoder at each learning rate, and keep the best one (M6).

    The accuracy of ranking on ``validation``, or the correlation with human scores, chooses step and
    learning rate; without validation examples the last step at the first rate is kept. ``hard_negatives`` has
    a list of texts for each seed, then one for each validation example.
    """
    if len(seeds) < 2:
        raise InputError(f"expected two or more seeds, as each is compared with others; got {len(seeds)}")
    scored = options.kind == "scored"
    hard = hard_negatives or None
    draw_negatives = negatives_for(seeds, hard and hard[: len(seeds)], options)
    draw_validation_negatives = negatives_for(validation, hard and hard[len(seeds) :], options)
    needed = ""  # what the validation examples lack
    if scored and len({example.score for example in validation}) < 2:
        needed = "Spearman needs two or more with different scores"
    elif not scored and not any(
        draw_validation_negatives(number, generator(0, "validation", number))
        for number in range(len(validation))
    ):
        # Without negatives every input's own output ranks first, so that the first evaluation would be best.
        needed = "none has a negative, so give two or more with different outputs"
    if validation and needed:
        (progress or Silent()).say(cannot_choose(len(validation), needed))
    listwise = options.loss == "listwise" or (options.loss == "auto" and options.kind == "summaries")

    def draw(number: int, _: int, rng: np.random.Generator) -> RankingRow:
        seed = seeds[number]
        return RankingRow(seed.input, [seed.output, *draw_negatives(number, rng)], seed.score)

    def make() -> tuple[CrossEncoderWithLoss, TrainingTask[RankingRow]]:
        cross = load_cross_encoder(
            options.base,
            device=pick_device(options.device),
            fresh_head=True,
            seed=options.seed,
            max_length=options.max_length,
        )
        cross.tokenizer.model_max_length = cross.max_length  # saved: pairs are judged as they were learned
        measure: ValidationMeasure = partial(ranking_accuracy, cross, validation, draw_validation_negatives)
        if scored:
            measure = partial(score_correlation, cross, validation)
        model, metric = CrossEncoderWithLoss(cross, listwise=listwise), "Spearman" if scored else "accuracy"
        return model, TrainingTask(len(seeds), draw, model.batch, None if needed else measure, metric)

    trained = train_at_each_rate(make, options, progress, checkpoints)
    return TrainedModel(trained.model.cross, trained.learning_rate, trained.history)


def negatives_for(
    examples: Sequence[Example], hard_negatives: Sequence[Sequence[str]] | None, options: CrossencoderOptions
) -> DrawNegatives:
    """The function that draws up to ``options.negatives`` negatives for each of these examples.

    For kind ``reading`` they are wrong answers from the right passage, the right answer in wrong passages
    (M7), and hard negatives. Kind ``scored`` has none. For the other kinds they are hard negatives; without
    hard negatives, outputs of other examples.
    """
    if options.kind == "scored":
        return lambda number, rng: []  # noqa: ARG005 - the same for all examples
    outputs, positives = [example.output for example in examples], positive_outputs(examples)
    drawn: DrawNegatives | None = None
    if options.kind == "reading":
        drawn = answer_negatives(examples, (), entity_finder(options.answers), options.negatives)
    elif hard_negatives is None:
        drawn = random_negatives(outputs, options.negatives + 1)

    def draw(number: int, rng: np.random.Generator) -> list[str]:
        pool = drawn(number, rng) if drawn else []
        if hard_negatives:
            pool += draw_without_replacement(hard_negatives[number], options.negatives, rng)
        negatives = [text for text in pool if text not in positives[number]]
        return draw_without_replacement(negatives, options.negatives, rng)

    return draw


@dataclass(frozen=True, slots=True)
class RankingRow:
    """An input with outputs: the first has the target ``score``, 1 for a positive; all others have 0."""

    input: str
    outputs: Sequence[str]
    score: float = 1.0


class CrossEncoderWithLoss(nn.Module):
    """A cross-encoder's model; called with a batch of pairs, it returns the loss."""

    def __init__(self, cross: CrossEncoder, *, listwise: bool) -> None:
        super().__init__()
        self.cross = cross
        self.model: nn.Module = cross.model
        self._listwise = listwise

    def batch(self, rows: Sequence[RankingRow]) -> Mapping[str, Any]:
        """The arguments of ``forward``: chunks of whole rows, whose losses can be added."""
        cross = self.cross
        tokens = [sum(map(len, cross.rows([row.input] * len(row.outputs), row.outputs))) for row in rows]
        batches = batches_by_length(tokens, batch_tokens=tokens_at_once(cross.model.device))
        return {"chunks": [self._chunk([rows[number] for number in numbers]) for numbers in batches]}

    def _chunk(self, rows: Sequence[RankingRow]) -> dict[str, Any]:
        """All pairs of the rows, the row that each belongs to, and its target score."""
        cross = self.cross
        inputs = [row.input for row in rows for _ in row.outputs]
        outputs = [output for row in rows for output in row.outputs]
        packed = cross.rows(inputs, outputs)

        def features(numbers: list[int]) -> dict[str, Any]:
            return cross.row_features([packed[number] for number in numbers], inputs, outputs)

        pairs = chunked(list(map(len, packed)), features, cross.model.device)
        order = [pair for row in pairs["order"].tolist() for pair in packed[row].numbers]
        row_of_pair = [number for number, row in enumerate(rows) for _ in row.outputs]
        targets = [0.0 if place else row.score for row in rows for place in range(len(row.outputs))]
        return {
            "pairs": pairs | {"order": torch.tensor(order)},
            "row": torch.tensor(row_of_pair),
            "targets": torch.tensor(targets),
        }

    def forward(self, chunks: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        """The loss of a batch (M6), ``loss``, ``()`` float32.

        The list-wise loss is the mean over the batch's rows, the binary loss the mean over its pairs.
        ``chunks`` are the chunks that ``batch`` makes. A chunk holds ``pairs``, the features of its pairs;
        ``row``, ``(pairs,)`` int64, the row of each pair; and ``targets``, ``(pairs,)`` float32, in [0, 1].
        """
        count = sum(int(chunk["row"][-1]) + 1 if self._listwise else len(chunk["row"]) for chunk in chunks)
        return mean_of_losses(self._losses, chunks, self, count)

    def _losses(self, chunk: Mapping[str, Any]) -> Tensor:
        scores = compute_chunks(self.cross.scores, chunk["pairs"])
        if self._listwise:
            return listwise_losses(scores, chunk["row"])
        return binary_losses(scores, chunk["targets"])


def binary_losses(scores: Tensor, targets: Tensor) -> Tensor:
    """Binary cross-entropy of each pair, ``(pairs,)`` (M6, reading comprehension).

    ``scores``, unnormalised, and ``targets`` are ``(pairs,)`` float32. Targets lie in [0, 1]: 1 for
    positives, 0 for negatives, or human scores.
    """
    return nn.functional.binary_cross_entropy_with_logits(scores, targets, reduction="none")


def listwise_losses(scores: Tensor, row: Tensor) -> Tensor:
    """Negative log likelihood of the positive among the pairs of its input, ``(rows,)`` (M6, summarisation).

    ``scores`` are ``(pairs,)`` float32, unnormalised; ``row`` is ``(pairs,)`` int64, the input of each pair,
    in order. The first pair of each input is the positive.
    """
    own = row[:, None] == torch.arange(int(row[-1]) + 1, device=row.device)  # (pairs, rows)
    totals = scores[:, None].masked_fill(~own, -torch.inf).logsumexp(dim=0)
    first = torch.cat([row.new_ones(1, dtype=torch.bool), row[1:] != row[:-1]])
    return totals - scores[first]


def ranking_accuracy(
    cross: CrossEncoder, examples: Sequence[Example], draw_negatives: DrawNegatives
) -> float | None:
    """Share, ×100, of the inputs whose own output has a higher score than all of its negatives."""
    rows = [
        [example.output, *draw_negatives(number, generator(0, "validation", number))]
        for number, example in enumerate(examples)
    ]
    inputs = [example.input for example, outputs in zip(examples, rows, strict=True) for _ in outputs]
    scores = iter(score_pairs(cross, inputs, [output for outputs in rows for output in outputs]).tolist())
    best = 0
    for outputs in rows:
        own, *others = (next(scores) for _ in outputs)
        best += all(own > other for other in others)
    return 100.0 * best / len(rows)


def score_correlation(cross: CrossEncoder, examples: Sequence[Example]) -> float | None:
    """Spearman's correlation, ×100, of the model's scores and the human ones; None where it is undefined."""
    scores = score_pairs(
        cross, [example.input for example in examples], [example.output for example in examples]
    )
    correlation = spearman(scores, np.array([example.score for example in examples]))
    return None if np.isnan(correlation) else 100.0 * correlation
