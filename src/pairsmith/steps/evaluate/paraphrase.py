"""Paraphrase detection: by BERTScore alone, and with a few training examples (Q8, Q9)."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from pairsmith.core.errors import SettingsError
from pairsmith.core.model_names import model_revision
from pairsmith.core.progress import Progress
from pairsmith.data.judgements import read_judgements
from pairsmith.data.paraphrases import labelled_pairs
from pairsmith.metrics.auroc import auroc, auroc_draws
from pairsmith.metrics.bootstrap import interval
from pairsmith.metrics.correlation import pearson
from pairsmith.models.token_vectors import TokenEncoder, load_token_encoder
from pairsmith.runs import Run, hash_source, resolve_dtype
from pairsmith.steps.evaluate.few_shot_paraphrase import few_shot_figures, last_layers, scored
from pairsmith.steps.evaluate.results import Evaluated, at_splits, evaluate_once, rounded, with_interval
from pairsmith.steps.evaluate.training_splits import training_sources, training_splits
from pairsmith.steps.evaluate.transfer_settings import EvaluateParaphraseSettings
from pairsmith.steps.shared import load_options


def evaluate_paraphrase(settings: EvaluateParaphraseSettings, run: Run) -> dict[str, Any]:
    """Score pairs of texts by BERTScore, write results and scores into the run's folder, and show a table.

    ``predictions.jsonl`` has a line for each pair: its texts, label and score; ``results.json``, which is
    returned, ``auroc`` ×100 with its 95 % interval (``auroc_ci``), ``layer``, the ``count`` of pairs and of
    ``positives``, whether the ``negatives`` are from ``people`` or ``sampled``; with training pairs also
    ``few_shot``, see ``few_shot_figures``, and ``negatives learned from``; with human judgements the
    correlation of each layer (``layers``).
    """
    settings = at_splits(resolve_dtype(settings, run), run.progress.say)
    sources = {"data": settings.data, "judgements": settings.judgements, **training_sources(settings)}
    return evaluate_once(
        run,
        "evaluate paraphrase",
        settings,
        inputs={name: hash_source(source) for name, source in sources.items() if source},
        models={"model": model_revision(settings.model)},
        compute=partial(_compute, settings, run.progress),
        table=paraphrase_table,
    )


def _compute(settings: EvaluateParaphraseSettings, progress: Progress) -> Evaluated:
    pairs, negatives = labelled_pairs(settings.data, settings.seed)
    positive = np.array([pair.label for pair in pairs])
    train = training_splits(settings) if settings.train else None
    encoder = load_token_encoder(settings.model, **load_options(settings))
    layer, figures = chosen_layer(encoder, settings, progress)
    last = last_layers(encoder) if train else ()
    every = scored(encoder, pairs, [layer, *last], settings, progress)
    scores = every[:, 0]
    rng = np.random.default_rng(settings.seed)
    draws = auroc_draws(scores, positive, draws=settings.bootstrap, rng=rng)
    figures |= {
        "auroc": round(100 * auroc(scores, positive), 4),
        "auroc_ci": rounded(interval(100 * draws)),
        "layer": layer,
        "count": len(pairs),
        "positives": int(positive.sum()),
        "negatives": negatives,
    }
    if train:
        figures["negatives learned from"] = train.negatives
        figures["few_shot"] = few_shot_figures(encoder, train.pairs, pairs, every[:, 1:], settings, progress)
    rows = zip(pairs, scores.tolist(), strict=True)
    return figures, [
        {"sentence1": pair.sentence1, "sentence2": pair.sentence2, "label": pair.label, "score": score}
        for pair, score in rows
    ]


def chosen_layer(
    encoder: TokenEncoder, settings: EvaluateParaphraseSettings, progress: Progress
) -> tuple[int, dict[str, Any]]:
    """The layer whose vectors are compared, and if judgements choose it, each layer's correlation (Q8).

    That is the mean over the languages that were translated of Pearson's correlation with the judgements.
    """
    if settings.layer is not None and settings.layer > encoder.layers:
        raise SettingsError(f"--layer {settings.layer}: {settings.model} has {encoder.layers} layers")
    if settings.layer is not None or settings.judgements is None:
        return settings.layer if settings.layer is not None else usual_layer(encoder.layers), {}
    layers, of_each = range(1, encoder.layers + 1), []
    for judged in read_judgements(settings.judgements).values():
        scores = scored(encoder, judged, layers, settings, progress)
        gold = np.array([pair.score for pair in judged])
        of_each.append([pearson(scores[:, column], gold) for column in range(len(layers))])
    mean = dict(zip(layers, np.mean(of_each, axis=0).tolist(), strict=True))
    best = max(mean, key=lambda layer: (np.nan_to_num(mean[layer], nan=-1.0), layer))
    figures = {str(n): None if np.isnan(value) else round(100 * value, 2) for n, value in mean.items()}
    return best, {"layers": figures}


def usual_layer(layers: int) -> int:
    """The default layer: five sixths of the way up, as QUIP's layer 20 of 24."""
    return max(1, round(layers * 5 / 6))


def paraphrase_table(results: Mapping[str, Any]) -> str:
    """The figures of ``results.json`` as a plain table."""
    head = f"{'pairs':>9}  {'label 1':>9}  {'layer':>5}  AUROC ×100 (95 %)"
    line = f"{results['count']:>9,}  {results['positives']:>9,}  {results['layer']:>5}  "
    lines = [head, line + with_interval(results, "auroc")]
    if results["negatives"] == "sampled":
        lines.append("the pairs with label 0 were sampled by pairsmith")
    for name, figures in results.get("few_shot", {}).items():
        lines.append(
            f"F1 ×100 of {figures['shots']} a class, {name}: {figures['f1']:.2f} ± {figures['error']:.2f}"
        )
    return "\n".join(lines)
