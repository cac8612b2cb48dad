"""Paraphrase detection: by BERTScore without training, and with a few training examples (Q8, Q9)."""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from pairsmith.core.progress import Progress
from pairsmith.data.judgements import read_judgements
from pairsmith.data.paraphrases import LABELS, Paraphrase, paraphrase_pairs, read_paraphrases
from pairsmith.data.readers import read_pairs
from pairsmith.methods.quip.paraphrase import (
    EPOCHS,
    detect_paraphrases,
    fine_tune,
    labels_of,
    last_layers,
    paraphrase_scores,
)
from pairsmith.metrics.auroc import auroc_draws
from pairsmith.metrics.bootstrap import interval, rounded_interval
from pairsmith.metrics.classification import binary_counts
from pairsmith.models.token_vectors import load_token_encoder
from pairsmith.runs import hash_source
from pairsmith.runs.estimate import Before, Estimate
from pairsmith.steps.evaluate.evaluation import Evaluation, extrapolated
from pairsmith.steps.evaluate.results import (
    Evaluated,
    count_trained_on,
    over_splits,
    trained_on_line,
    uncertainty_line,
    with_error,
    with_interval,
)
from pairsmith.steps.evaluate.training_splits import training_sources, training_splits
from pairsmith.steps.evaluate.transfer_settings import EvaluateParaphraseSettings
from pairsmith.steps.planning import count_in_run, read_first
from pairsmith.steps.shared import load_options, named


def _read(settings: EvaluateParaphraseSettings) -> tuple[list[Paraphrase], str]:
    return paraphrase_pairs(settings.data, settings.seed)


def _hashes(settings: EvaluateParaphraseSettings, _: object) -> dict[str, str]:
    sources = {"data": settings.data, "judgements": settings.judgements, **training_sources(settings)}
    return {name: hash_source(source) for name, source in sources.items() if source}


def _compute(
    settings: EvaluateParaphraseSettings, data: tuple[Sequence[Paraphrase], str], progress: Progress
) -> Evaluated:
    pairs, negatives = data
    if negatives == "sampled":
        progress.say(_sampling_message(settings.data))
    train = training_splits(settings) if settings.train else None
    if train and train.negatives == "sampled":
        progress.say(_sampling_message(settings.train or ""))
    judgements = read_judgements(settings.judgements) if settings.judgements else None
    encoder = load_token_encoder(settings.model, **load_options(settings))
    with named(settings.model):
        detected = detect_paraphrases(
            encoder,
            pairs,
            layer=settings.layer,
            judgements=judgements,
            train=train.pairs if train else None,
            tune=settings.tune,
            special_tokens=settings.special_tokens,
            batch_tokens=settings.batch_tokens,
            progress=progress,
        )
    positive, rng = labels_of(pairs), np.random.default_rng(settings.seed)
    draws = auroc_draws(detected.scores, positive, draws=settings.bootstrap, rng=rng)
    figures: dict[str, Any] = {}
    if judgements:
        figures["layers"] = {
            str(layer): None if np.isnan(value) else round(100 * value, 2)
            for layer, value in detected.correlations.items()
        }
        figures["correlation"] = figures["layers"][str(detected.layer)]
    figures |= {
        "auroc": round(100 * detected.auroc, 4),
        "auroc_ci": rounded_interval(interval(100 * draws)),
        "layer": detected.layer,
        "count": len(pairs),
        "positives": int(positive.sum()),
        "negatives": negatives,
    }
    if train:
        figures["negatives learned from"] = train.negatives
        training = chain.from_iterable(train.pairs.values())
        figures["trained_on"] = count_trained_on(map(texts_of, training), map(texts_of, pairs))
        figures["few_shot"] = {
            encoder_kind: over_splits(
                {split: binary_counts(predicted, positive) for split, predicted in by_split.items()},
                bootstrap=settings.bootstrap,
                seed=settings.seed,
            )
            | {"shots": settings.shots}
            for encoder_kind, by_split in detected.predictions.items()
        }
    rows = [
        {"sentence1": pair.sentence1, "sentence2": pair.sentence2, "label": pair.label, "score": score}
        for pair, score in zip(pairs, detected.scores.tolist(), strict=True)
    ]
    for encoder_kind, by_split in detected.predictions.items():
        for index, row in enumerate(rows):
            row[encoder_kind] = {str(split): bool(predicted[index]) for split, predicted in by_split.items()}
    return figures, rows


def _sampling_message(source: str) -> str:
    """How pairs without labels are used; the labels may be in a column with another name."""
    return (
        f"{source}: has no column {' or '.join(LABELS)}, so all pairs count as paraphrases, and negatives "
        "are sampled; rename the column of the labels if there is one"
    )


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
    encoder = load_token_encoder(settings.model, **load_options(settings))
    seconds = time.monotonic() - begun
    layers = last_layers(encoder)
    score = partial(
        paraphrase_scores,
        encoder,
        layers=layers,
        special_tokens=settings.special_tokens,
        batch_tokens=settings.batch_tokens,
    )
    rounds = 1
    if settings.train and settings.tune:
        training = training_splits(settings).pairs[settings.splits[0]]
        begun = time.monotonic()
        fine_tune(
            encoder,
            training,
            layers,
            seed=settings.splits[0],
            special_tokens=settings.special_tokens,
            epochs=1,
        )
        seconds += (time.monotonic() - begun) * EPOCHS * len(settings.splits)
        rounds += len(settings.splits)
    encoder_kinds = (1 + settings.tune) if settings.train else 0
    row_bytes = 80 + encoder_kinds * (12 + 14 * len(settings.splits))
    size = sum(len(pair.sentence1) + len(pair.sentence2) + row_bytes for pair in pairs) * count // len(pairs)
    return extrapolated(lambda: score, pairs, count * rounds + judged_count, size, seconds=seconds, most=256)


evaluate_paraphrase = Evaluation("evaluate paraphrase", _read, _compute, paraphrase_table, _plan, _hashes)
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
  the language pairs), and ``correlation``, that of the ``layer``.
"""
