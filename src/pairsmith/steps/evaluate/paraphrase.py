"""Paraphrase detection: by BERTScore alone, and with a few training examples (Q8, Q9)."""

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
from pairsmith.models.token_vectors import load_token_encoder
from pairsmith.runs import hash_source
from pairsmith.runs.estimate import Before, Estimate
from pairsmith.steps.evaluate.evaluation import Evaluation, extrapolated
from pairsmith.steps.evaluate.results import (
    Evaluated,
    learned_line,
    learned_texts,
    over_splits,
    with_error,
    with_interval,
)
from pairsmith.steps.evaluate.training_splits import training_sources, training_splits
from pairsmith.steps.evaluate.transfer_settings import EvaluateParaphraseSettings
from pairsmith.steps.planning import counted, has_no_sample
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
        progress.say(_unlabelled(settings.data))
    train = training_splits(settings) if settings.train else None
    if train and train.negatives == "sampled":
        progress.say(_unlabelled(settings.train or ""))
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
        learned = chain.from_iterable(train.pairs.values())
        figures["trained_on"] = learned_texts(map(texts_of, learned), map(texts_of, pairs))
        figures["few_shot"] = {
            way: over_splits({n: 100 * f1 for n, f1 in by_split.items()}) | {"shots": settings.shots}
            for way, by_split in detected.few_shot.items()
        }
    rows = [
        {"sentence1": pair.sentence1, "sentence2": pair.sentence2, "label": pair.label, "score": score}
        for pair, score in zip(pairs, detected.scores.tolist(), strict=True)
    ]
    for way, by_split in detected.predictions.items():
        for place, row in enumerate(rows):
            row[way] = {str(split): bool(predicted[place]) for split, predicted in by_split.items()}
    return figures, rows


def _unlabelled(source: str) -> str:
    """What is made of pairs without labels, for somebody whose labels are in a column of another name."""
    return (
        f"{source}: no column is called {', '.join(LABELS)}, so all its pairs count as paraphrases, and "
        "pairs that are none are sampled"
    )


def texts_of(pair: Paraphrase) -> tuple[str, str]:
    """The two texts of a pair."""
    return pair.sentence1, pair.sentence2


def paraphrase_table(results: Mapping[str, Any]) -> str:
    """The figures of ``results.json`` as a plain table."""
    head = f"{'pairs':>9}  {'label 1':>9}  {'layer':>5}  AUROC ×100 (95 %)"
    line = f"{results['count']:>9,}  {results['positives']:>9,}  {results['layer']:>5}  "
    lines = [head, line + with_interval(results, "auroc")]
    if results["negatives"] == "sampled":
        lines.append("the pairs with label 0 were sampled by pairsmith")
    for name, figures in results.get("few_shot", {}).items():
        lines.append(
            f"F1 ×100 of {figures['shots']} a class, {name}: {with_error(figures['f1'], figures['error'])}"
        )
    lines += learned_line(results, "pairs")
    return "\n".join(lines)


def _plan(settings: EvaluateParaphraseSettings, before: Before) -> Estimate:
    """Score a sample of the pairs, and fine-tune for an epoch, whose time depends on the splits alone."""
    if settings.data in before:  # all pairs of a sample may have the same label
        pairs = list(read_paraphrases(settings.data))
        sides = 1 if any(pair.label is not None for pair in pairs) else 2  # as many negatives are sampled
        count = sides * counted(settings.data, before, len(pairs))
    else:
        pairs, _ = paraphrase_pairs(settings.data, settings.seed)
        count = len(pairs)
    judged = 0
    if judgements := settings.judgements:
        number = 0 if has_no_sample(judgements, before) else sum(1 for _ in read_pairs(judgements))
        judged = counted(judgements, before, number)
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
        few = training_splits(settings).pairs[settings.splits[0]]
        begun = time.monotonic()
        fine_tune(
            encoder, few, layers, seed=settings.splits[0], special_tokens=settings.special_tokens, epochs=1
        )
        seconds += (time.monotonic() - begun) * EPOCHS * len(settings.splits)
        rounds += len(settings.splits)
    ways = (1 + settings.tune) if settings.train else 0
    each_row = 80 + ways * (12 + 14 * len(settings.splits))
    size = sum(len(pair.sentence1) + len(pair.sentence2) + each_row for pair in pairs) * count // len(pairs)
    return extrapolated(lambda: score, pairs, count * rounds + judged, size, seconds=seconds, most=256)


evaluate_paraphrase = Evaluation("evaluate paraphrase", _read, _compute, paraphrase_table, _plan, _hashes)
"""Scores pairs of texts by BERTScore.

``predictions.jsonl`` has a line for each pair: its texts, label and score, and with training pairs what
``frozen`` and ``tuned`` predict after each split; ``results.json`` ``auroc`` ×100
with its 95 % interval (``auroc_ci``), ``layer``, the ``count`` of pairs and of ``positives``, whether the
``negatives`` are from ``people`` or ``sampled``; with training pairs also ``few_shot``, for ``frozen`` and
``tuned`` the F1 ×100 (see ``over_splits``) and the ``shots``, ``negatives learned from``, and how many pairs
were ``trained_on`` by a split; with human judgements the correlation ×100 of each layer (``layers``).
"""
