"""Paraphrase detection: by BERTScore without training, and with a few training examples (Q8, Q9)."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from pairsmith.core.progress import Progress
from pairsmith.data.judgements import read_judgements
from pairsmith.data.paraphrases import LABELS, Paraphrase, paraphrase_pairs, read_paraphrases
from pairsmith.data.readers import read_pairs
from pairsmith.methods.quip.paraphrase import (
    EPOCHS,
    Bools,
    best_layer,
    detect_paraphrases,
    fine_tune,
    labels_of,
    last_layers,
    layer_correlations,
    usual_layer,
)
from pairsmith.metrics.bertscore import BertScorer
from pairsmith.metrics.bootstrap import interval, rounded_interval
from pairsmith.metrics.classification import binary_counts
from pairsmith.models.token_vectors import load_token_encoder
from pairsmith.runs import hash_source
from pairsmith.runs.estimate import Before, Estimate
from pairsmith.steps.evaluate.evaluation import Evaluation, extrapolated
from pairsmith.steps.evaluate.figures import (
    Resampled,
    count_trained_on,
    over_splits,
    resampled_auroc,
    resampled_f1,
    trained_on_line,
    uncertainty_line,
    with_error,
    with_interval,
)
from pairsmith.steps.evaluate.paired import Line, Paired
from pairsmith.steps.evaluate.results import Evaluated
from pairsmith.steps.evaluate.training_splits import TrainingSplits, training_sources, training_splits
from pairsmith.steps.evaluate.transfer_settings import EvaluateParaphraseSettings
from pairsmith.steps.planning import count_in_run, read_first
from pairsmith.steps.shared import load_options, named


class _Data(NamedTuple):
    pairs: list[Paraphrase]
    negatives: str  # where the negatives come from: people or sampled


def _read(settings: EvaluateParaphraseSettings) -> _Data:
    return _Data(*paraphrase_pairs(settings.data, settings.seed))


def _hashes(settings: EvaluateParaphraseSettings, _: object) -> dict[str, str]:
    sources = {"data": settings.data, "judgements": settings.judgements, **training_sources(settings)}
    return {name: hash_source(source) for name, source in sources.items() if source}


def load_scorer(settings: EvaluateParaphraseSettings) -> BertScorer:
    """Load the encoder, and return what scores pairs with it."""
    encoder = load_token_encoder(settings.model, **load_options(settings))
    return BertScorer(encoder, settings.special_tokens, settings.batch_tokens)


def _compute(settings: EvaluateParaphraseSettings, data: _Data, progress: Progress) -> Evaluated:
    pairs, negatives = data
    training = training_splits(settings)
    for source, origin in ((settings.data, negatives), (settings.train, training.negatives)):
        if origin == "sampled":
            progress.say(
                f"{source}: has no column {' or '.join(LABELS)}, so all pairs count as paraphrases, and "
                "negatives are sampled; rename the column of the labels if there is one"
            )
    judgements = read_judgements(settings.judgements) if settings.judgements else {}
    scorer = load_scorer(settings)
    layer = usual_layer(scorer.encoder.layers) if settings.layer is None else settings.layer
    figures: dict[str, Any] = {}
    with named(settings.model):
        if judgements:
            correlations = layer_correlations(scorer, judgements, progress)
            layer = best_layer(correlations)
            figures["layers"] = {
                str(number): None if np.isnan(value) else round(100 * value, 2)
                for number, value in correlations.items()
            }
            figures["correlation"] = figures["layers"][str(layer)]
        scores, predictions = detect_paraphrases(
            scorer, pairs, layer, training.pairs, tune=settings.tune, progress=progress
        )
    positive = labels_of(pairs)
    area = resampled_auroc([scores], positive, bootstrap=settings.bootstrap, seed=settings.seed)
    figures |= {
        "auroc": round(area.value, 4),
        "auroc_ci": rounded_interval(interval(area.draws)),
        "layer": layer,
        "count": len(pairs),
        "positives": int(positive.sum()),
        "negatives": negatives,
    }
    if settings.train:
        figures |= few_shot_figures(settings, training, pairs, predictions)
    return figures, [
        {"sentence1": pair.sentence1, "sentence2": pair.sentence2, "label": pair.label, "score": score}
        | {
            encoder_kind: {str(split): bool(predicted[index]) for split, predicted in by_split.items()}
            for encoder_kind, by_split in predictions.items()
        }
        for index, (pair, score) in enumerate(zip(pairs, scores.tolist(), strict=True))
    ]


def few_shot_figures(
    settings: EvaluateParaphraseSettings,
    training: TrainingSplits,
    pairs: Sequence[Paraphrase],
    predictions: Mapping[str, Mapping[int, Bools]],
) -> dict[str, Any]:
    """What ``results.json`` has of few-shot training; ``predictions`` as from ``detect_paraphrases`` (Q9)."""
    positive = labels_of(pairs)
    training_pairs = chain.from_iterable(training.pairs.values())
    return {
        "negatives learned from": training.negatives,
        "trained_on": count_trained_on(map(texts_of, training_pairs), map(texts_of, pairs)),
        "few_shot": {
            encoder_kind: over_splits(
                {split: binary_counts(predicted, positive) for split, predicted in by_split.items()},
                bootstrap=settings.bootstrap,
                seed=settings.seed,
            )
            | {"shots": settings.shots}
            for encoder_kind, by_split in predictions.items()
        },
    }


def texts_of(pair: Paraphrase) -> tuple[str, str]:
    """The two texts of a pair."""
    return pair.sentence1, pair.sentence2


def paraphrase_table(results: Mapping[str, Any]) -> str:
    """The figures of ``results.json`` as a text table."""
    head = f"{'pairs':>9}  {'label 1':>9}  {'layer':>5}  AUROC ×100 (95 %)"
    line = f"{results['count']:>9,}  {results['positives']:>9,}  {results['layer']:>5}  "
    lines = [head, line + with_interval(results, "auroc")]
    if results["negatives"] == "sampled":
        lines.append("the pairs with label 0 were sampled by pairsmith")
    if (correlation := results.get("correlation")) is not None:
        lines.append(
            f"correlation of layer {results['layer']} with the human scores, ×100: {correlation:.2f}"
        )
    few_shot = results.get("few_shot", {})
    for name, figures in few_shot.items():
        lines.append(f"F1 ×100 with {figures['shots']} pairs per class, {name}: {with_error(figures, 'f1')}")
    if few_shot:
        lines += uncertainty_line(few_shot["frozen"], "f1", "splits", "pairs")
    lines += trained_on_line(results, "pairs")
    return "\n".join(lines)


def _plan(settings: EvaluateParaphraseSettings, before: Before) -> Estimate:
    """Score a sample of the pairs, and fine-tune on one split for one epoch."""
    if settings.data in before:  # in a sample, all pairs may have the same label
        pairs = list(read_paraphrases(settings.data))
        # Without labels, as many negatives are sampled.
        factor = 1 if any(pair.label is not None for pair in pairs) else 2
        count = factor * count_in_run(len(pairs), [settings.data], before)
    else:
        pairs, _ = paraphrase_pairs(settings.data, settings.seed)
        count = len(pairs)
    _, judged_count = read_first(filter(None, [settings.judgements]), read_pairs, before, 0)
    begun = time.monotonic()
    scorer = load_scorer(settings)
    seconds = time.monotonic() - begun
    layers = last_layers(scorer.encoder)
    rounds = 1
    if settings.tune:
        split = settings.splits[0]
        training = training_splits(settings).pairs[split]
        begun = time.monotonic()
        fine_tune(scorer, training, layers, seed=split, epochs=1)
        seconds += (time.monotonic() - begun) * EPOCHS * len(settings.splits)
        rounds += len(settings.splits)
    encoder_kinds = (1 + settings.tune) if settings.train else 0
    row_bytes = 80 + encoder_kinds * (12 + 14 * len(settings.splits))
    size = sum(len(pair.sentence1) + len(pair.sentence2) + row_bytes for pair in pairs) * count // len(pairs)
    return extrapolated(
        lambda: partial(scorer.scores, layers=layers),
        pairs,
        count * rounds + judged_count,
        size,
        seconds=seconds,
        most=256,
    )


def _rows(_: EvaluateParaphraseSettings, data: _Data) -> Iterator[dict[str, Any]]:
    for pair in data.pairs:
        yield {"sentence1": pair.sentence1, "sentence2": pair.sentence2, "label": pair.label}


def _resampled(settings: EvaluateParaphraseSettings, lines: Iterable[Line]) -> dict[str, Resampled]:
    positive = np.array([line["label"] for line in lines])
    scores = np.array([line["score"] for line in lines], np.float64)
    figures = {"auroc": resampled_auroc([scores], positive, bootstrap=settings.bootstrap, seed=settings.seed)}
    first = next(iter(lines))
    for encoder_kind in ("frozen", "tuned"):
        if encoder_kind in first:
            counts = [
                binary_counts(np.array([line[encoder_kind][split] for line in lines]), positive)
                for split in first[encoder_kind]
            ]
            figures[f"{encoder_kind}_f1"] = resampled_f1(
                counts, bootstrap=settings.bootstrap, seed=settings.seed
            )
    return figures


evaluate_paraphrase = Evaluation(
    "evaluate paraphrase",
    _read,
    _compute,
    paraphrase_table,
    _plan,
    Paired("pairs", _rows, _resampled, same_if_trained=("shots", "splits")),
    _hashes,
)
"""Scores pairs of texts by BERTScore.

``predictions.jsonl`` has a line for each pair: its texts, label and score and, with training pairs, the
predictions with ``frozen`` and ``tuned`` encoders for each split. ``results.json`` has

- ``auroc`` ×100 with its 95 % interval (``auroc_ci``), and the ``layer`` whose vectors were compared;
- ``count``, the number of pairs, and ``positives``, the number of paraphrases among them;
- ``negatives``: ``people`` if the data have labels, ``sampled`` if the negatives were sampled;
- with training pairs: ``few_shot``, for ``frozen`` and ``tuned`` encoders the F1 ×100 with its uncertainty
  over splits and over pairs (see ``over_splits``) and the ``shots``; ``negatives learned from``, the origin
  of the training pairs' negatives; ``trained_on``, the number of pairs that are also training pairs of a
  split;
- with human judgements: ``layers``, the correlation ×100 of each layer with them (Pearson's, the mean over
  the language pairs), and ``correlation``, that of the ``layer``;
- with ``against``: the differences of ``auroc`` and, if both results have them, of the mean F1 over the
  splits (``frozen_f1``, ``tuned_f1``) from the earlier ones.
"""
