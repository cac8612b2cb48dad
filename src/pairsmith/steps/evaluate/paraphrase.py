"""Paraphrase detection: by BERTScore alone, and with a few training examples (Q8, Q9)."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from pairsmith.core.errors import InputError, SettingsError
from pairsmith.core.model_names import model_revision
from pairsmith.core.progress import Progress
from pairsmith.data.paraphrases import Paraphrase, read_paraphrases
from pairsmith.data.readers import read_pairs
from pairsmith.metrics.auroc import auroc, auroc_draws
from pairsmith.metrics.bootstrap import interval
from pairsmith.metrics.correlation import pearson
from pairsmith.models.token_vectors import TokenEncoder, load_token_encoder
from pairsmith.runs import Run, hash_source, settled
from pairsmith.steps.evaluate.few_shot_paraphrase import drawn, few_shot_figures, last_layers, scored
from pairsmith.steps.evaluate.results import Evaluated, at_splits, evaluate_once, rounded, with_interval
from pairsmith.steps.evaluate.settings import EvaluateParaphraseSettings
from pairsmith.steps.shared import load_options

NEAR = 50
"""Number of most similar texts from which a negative is drawn."""
_AT_ONCE = 100


def evaluate_paraphrase(settings: EvaluateParaphraseSettings, run: Run) -> dict[str, Any]:
    """Score pairs of texts by BERTScore, write results and scores into the run's folder, and show a table.

    ``predictions.jsonl`` has a line for each pair: its texts, label and score; ``results.json``, which is
    returned, ``auroc`` ×100 with its 95 % interval (``auroc_ci``), ``layer``, the ``count`` of pairs and of
    ``positives``, whether the ``negatives`` are from ``people`` or ``sampled``; with training pairs also
    ``few_shot``, see ``few_shot_figures``, and ``negatives learned from``; with human judgements the
    correlation of each layer (``layers``).
    """
    settings = at_splits(settled(settings, run), run.progress.say)
    sources = {"data": settings.data, "train": settings.train, "judgements": settings.judgements}
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
    train, sampled = labelled_pairs(settings.train, settings.seed) if settings.train else ([], "")
    if settings.train:  # so that too few pairs are reported before anything is scored
        for split in settings.splits:
            drawn(train, settings.shots, split)
    encoder = load_token_encoder(settings.model, **load_options(settings))
    layer, figures = chosen_layer(encoder, settings, progress)
    last = last_layers(encoder) if settings.train else ()
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
    if settings.train:
        figures["negatives learned from"] = sampled
        figures["few_shot"] = few_shot_figures(encoder, train, pairs, every[:, 1:], settings, progress)
    rows = zip(pairs, scores.tolist(), strict=True)
    return figures, [
        {"sentence1": pair.sentence1, "sentence2": pair.sentence2, "label": pair.label, "score": score}
        for pair, score in rows
    ]


def labelled_pairs(source: str, seed: int) -> tuple[list[Paraphrase], str]:
    """The pairs of ``source``, and the origin of its negatives: ``people`` or ``sampled``."""
    pairs = list(read_paraphrases(source))
    if pairs[0].label is None:
        return with_negatives(pairs, seed), "sampled"
    labels = {pair.label for pair in pairs}
    if len(labels) < 2:
        raise InputError(
            f"{source}: all {len(pairs):,} pairs have the label {int(bool(pairs[0].label))}; both labels "
            "are needed"
        )
    return pairs, "people"


def with_negatives(pairs: Sequence[Paraphrase], seed: int) -> list[Paraphrase]:
    """The pairs labelled as paraphrases, with as many sampled negatives.

    Each first text is paired with another pair's second text, drawn from the ``NEAR`` ones with the largest
    tf-idf cosine, so that not every negative is easy. Some may be paraphrases that nobody has labelled, so
    figures on them must be reported as figures on sampled negatives. There must be 2 distinct pairs or more.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    firsts, seconds = [pair.sentence1 for pair in pairs], [pair.sentence2 for pair in pairs]
    vectors = TfidfVectorizer(token_pattern=r"\w+").fit([*firsts, *seconds])
    a, b = vectors.transform(firsts), vectors.transform(seconds)
    rng = np.random.default_rng(seed)
    same: dict[str, set[str]] = {}
    for pair in pairs:
        same.setdefault(pair.sentence1, {pair.sentence1}).add(pair.sentence2)
    found = []
    for top in range(0, len(pairs), _AT_ONCE):
        near = np.argsort(-(a[top : top + _AT_ONCE] @ b.T).toarray(), axis=1, kind="stable")
        for first, order in zip(firsts[top : top + _AT_ONCE], near[:, : 2 * NEAR], strict=True):
            others = [seconds[each] for each in order if seconds[each] not in same[first]][:NEAR]
            if not others:
                raise InputError(
                    f"there are too few texts to find one that is not a paraphrase of {first[:60]!r}; "
                    "give more pairs, or labels"
                )
            found.append(Paraphrase(first, others[int(rng.integers(len(others)))], label=False))
    return [Paraphrase(pair.sentence1, pair.sentence2, label=True) for pair in pairs] + found


def chosen_layer(
    encoder: TokenEncoder, settings: EvaluateParaphraseSettings, progress: Progress
) -> tuple[int, dict[str, Any]]:
    """The layer whose vectors are compared, and if judgements choose it, each layer's correlation (Q8)."""
    if settings.layer is not None and settings.layer > encoder.layers:
        raise SettingsError(f"--layer {settings.layer}: {settings.model} has {encoder.layers} layers")
    if settings.layer is not None or settings.judgements is None:
        return settings.layer if settings.layer is not None else usual_layer(encoder.layers), {}
    judged = list(read_pairs(settings.judgements))
    gold = np.array([pair.score for pair in judged])
    if np.ptp(gold) == 0:
        raise InputError(f"{settings.judgements}: all scores are equal, so they cannot choose a layer")
    scores = scored(encoder, judged, range(1, encoder.layers + 1), settings, progress)
    found = {layer: pearson(scores[:, layer - 1], gold) for layer in range(1, encoder.layers + 1)}
    best = max(found, key=lambda layer: (np.nan_to_num(found[layer], nan=-1.0), layer))
    figures = {str(n): None if np.isnan(value) else round(100 * value, 2) for n, value in found.items()}
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
    for name, found in results.get("few_shot", {}).items():
        lines.append(f"F1 ×100 of {found['shots']} a class, {name}: {found['f1']:.2f} ± {found['error']:.2f}")
    return "\n".join(lines)
