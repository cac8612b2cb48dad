"""Semantic textual similarity: does the cosine of sentence vectors rank pairs as people do (D11, D12)?

This step is no ``Evaluation``: its data are several test sets in their released form, not a split of a
dataset folder.
"""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairsmith.core.errors import FolderError, InputError, SettingsError
from pairsmith.core.model_names import GLOVE, glove_path, model_revision
from pairsmith.core.paths import Place
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.sts import StsSuite, read_sts
from pairsmith.methods.dino.evaluation import (
    CosinesOfSuites,
    Encode,
    distinct_texts,
    score_differences,
    scores_of_cosines,
    sts_cosines,
)
from pairsmith.metrics.bootstrap import spearman_draws
from pairsmith.models.trained_on import fingerprint_of, read_trained_on
from pairsmith.runs import Run, resolve_dtype
from pairsmith.runs.estimate import Before, Estimate
from pairsmith.runs.identity import Identity
from pairsmith.runs.storage import hash_json
from pairsmith.steps.evaluate.evaluation import extrapolated
from pairsmith.steps.evaluate.figures import with_interval
from pairsmith.steps.evaluate.paired import EarlierEvaluation, Predictions, paired_table, with_verdict
from pairsmith.steps.evaluate.results import AGAINST, FEW_PAIRS, Evaluated, evaluate_once
from pairsmith.steps.evaluate.settings import EvaluateStsSettings
from pairsmith.steps.planning import count_in_run
from pairsmith.steps.shared import load_options, refuse_sources

_DRAWS = 20
"""Number of resamples that a plan draws."""
_WIDEST_INTERVAL_OF_CORRELATIONS = (-200.0, 200.0)
"""All possible differences of two correlations ×100: the interval if no resample has a correlation."""


def evaluate_sts(settings: EvaluateStsSettings, run: Run) -> dict[str, Any]:
    """Evaluate an encoder, write ``results.json`` into the run's folder, and show a table.

    Existing results of the same settings, model and pairs are returned; ``run.fresh`` computes them again.
    They have the scores of each suite under its name (see ``SuiteScores``), and ``about``. For an encoder
    that ``train-encoder`` wrote, ``trained_on`` is the number of the suite's pairs that it was trained on.
    With ``against``, the results have under this name the differences of ``all`` and ``mean`` of each suite
    from the earlier ones. ``predictions.jsonl`` has the cosine of each pair.
    """
    settings = resolve_dtype(settings, run)
    suites = suites_of(settings)
    digest = hash_pairs(suites)
    name_is_reserved = any(suite.name == AGAINST for suite in suites)
    refuse_sources(run, against=settings.against)
    earlier = earlier_sts(settings, suites, digest)
    for suite in suites:
        if len(suite.pairs) < FEW_PAIRS:
            run.progress.say(
                f"{suite.name}: {len(suite.pairs)} pairs are few: two models may differ by some points by "
                "chance alone"
            )
    models = {"model": model_revision(settings.model)}
    return evaluate_once(
        run,
        Identity.of("evaluate sts", settings.deciding(), {"data": digest}, models),
        settings,
        partial(_compute, settings, suites, run.progress),
        table=lambda results: _table(results, suites),
        compare=None if name_is_reserved else partial(_compared_with, earlier, settings, suites, run),
    )


def suites_of(settings: EvaluateStsSettings) -> list[StsSuite]:
    """Read the test sets that the settings name.

    Raises:
        InputError: a test set is named ``about``, as another entry of ``results.json`` is.
    """
    suites = read_sts(settings.data, settings.suites or None)
    if any(suite.name == "about" for suite in suites):
        raise InputError(f'{settings.data}: a test set cannot be named "about"; rename its file')
    return suites


def check_evaluate_sts(settings: EvaluateStsSettings, _labels: Collection[str]) -> None:
    """Read the pairs, and raise an error if they or ``against`` have a fault."""
    suites = suites_of(settings)
    earlier_sts(settings, suites, hash_pairs(suites))


def _table(results: Mapping[str, Any], suites: Sequence[StsSuite]) -> str:
    table = sts_table({suite.name: results[suite.name] for suite in suites})
    against = results.get(AGAINST, {})
    if "suites" not in against:  # there is no comparison; a test set may have its name
        return table
    differences = {
        suite if name == "all" else f"{suite}, mean of subsets": difference
        for suite, by_figure in against["suites"].items()
        for name, difference in by_figure.items()
    }
    return f"{table}\n{paired_table(against, 'pairs', differences)}"


def _compute(settings: EvaluateStsSettings, suites: Sequence[StsSuite], progress: Progress) -> Evaluated:
    cosines = sts_cosines(encoder_of(settings, progress), suites)
    scores = scores_of_cosines(suites, cosines, bootstrap=settings.bootstrap, seed=settings.seed)
    figures = {name: score.to_json() for name, score in scores.items()}
    trained_on = frozenset() if settings.model.startswith(GLOVE) else read_trained_on(settings.model)
    for suite in suites if trained_on else ():
        learned = sum(fingerprint_of(pair.sentence1, pair.sentence2) in trained_on for pair in suite.pairs)
        figures[suite.name]["trained_on"] = learned
        if learned:
            progress.say(
                f"{suite.name}: {learned:,} of {len(suite.pairs):,} pairs are among those that the encoder "
                "was trained on; its figure is better than it would be on other pairs"
            )
    return figures, predictions(suites, cosines)


def predictions(suites: Sequence[StsSuite], cosines: CosinesOfSuites) -> Iterator[dict[str, Any]]:
    """The rows of ``predictions.jsonl``: each pair with its human score and its cosine."""
    for suite in suites:
        for name, pairs in suite.subsets.items():
            for pair, cosine in zip(pairs, cosines[suite.name][name].tolist(), strict=True):
                yield {
                    "suite": suite.name,
                    "subset": name,
                    "sentence1": pair.sentence1,
                    "sentence2": pair.sentence2,
                    "score": pair.score,
                    "cosine": cosine,
                }


def sts_table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """The scores of suites, as ``SuiteScores.to_json`` returns them, as a text table with a line for each."""
    lines = [f"{'suite':<12}{'pairs':>7}  {'Spearman ×100, all (95 %)':<28}{'mean of subsets (95 %)'}"]
    for name, score in results.items():
        mean = with_interval(score, "mean") if "mean" in score else ""
        lines.append(f"{name:<12}{score['pairs']:>7}  {with_interval(score, 'all'):<28}{mean}".rstrip())
    return "\n".join(lines)


def encoder_of(settings: EvaluateStsSettings, progress: Progress) -> Encode:
    """Load the model of ``settings``, and return a function that encodes n texts into vectors ``(n, d)``."""
    if settings.model.startswith(GLOVE):
        from pairsmith.models.glove import encode_with_glove

        path = glove_path(settings.model)
        return lambda texts: encode_with_glove(path, texts)
    from pairsmith.models.encode import encode_texts
    from pairsmith.models.sentence_encoder import load_sentence_encoder

    encoder = load_sentence_encoder(
        settings.model, pooling=settings.pooling, layers=settings.layers, **load_options(settings)
    )

    def encode(texts: Sequence[str]) -> NDArray[np.floating]:
        with progress.task("encode", len(texts), "sentences") as bar:
            return encode_texts(encoder, texts, batch_size=settings.batch_size, advance=bar.advance)

    return encode


def hash_pairs(suites: Sequence[StsSuite]) -> str:
    """SHA-256 of the pairs with their scores; it does not depend on other files in the folder."""
    return hash_json(
        [
            [suite.name, subset, pair.sentence1, pair.sentence2, pair.score]
            for suite in suites
            for subset, pairs in suite.subsets.items()
            for pair in pairs
        ]
    )


def plan_evaluate_sts(settings: EvaluateStsSettings, before: Before) -> Estimate:
    """Encode a sample of the sentences, and draw some of the resamples."""
    suites = suites_of(settings)
    texts = distinct_texts(suites)
    sizes = [len(pairs) for suite in suites for pairs in suite.subsets.values()]
    # A resample draws the pairs of each subset and, for suites with subsets, all pairs of the suite.
    pairs_per_resample = sum(sizes) * (1 if len(sizes) == len(suites) else 2)
    values, rng = np.arange(max(sizes, default=1), dtype=np.float64), np.random.default_rng(0)
    begun = time.monotonic()
    spearman_draws(values, values, draws=_DRAWS, rng=rng)
    seconds_per_pair = (time.monotonic() - begun) / _DRAWS / len(values)
    # A comparison draws resamples again, and computes the correlations of both encoders.
    factor = 3 if settings.against else 1
    return extrapolated(
        partial(encoder_of, settings, Silent()),
        texts,
        count_in_run(len(texts), [settings.data], before),
        sum(sizes) * 250,
        seconds=seconds_per_pair * pairs_per_resample * settings.bootstrap * factor,
    )


# The comparison with an earlier evaluation, over the same pairs (D11)


def earlier_sts(
    settings: EvaluateStsSettings, suites: Sequence[StsSuite], digest: str
) -> tuple[EarlierEvaluation, CosinesOfSuites] | None:
    """The evaluation that ``against`` names, with its cosines; None if unset.

    ``digest`` is the hash of the pairs of ``suites``.

    Raises:
        FolderError: it was evaluated on other pairs.
        SettingsError: a suite has the name under which ``results.json`` has the comparison.
    """
    if settings.against is None:
        return None
    if any(suite.name == AGAINST for suite in suites):
        raise SettingsError(f"--against does not support a test set that is named {AGAINST}; rename its file")
    earlier = EarlierEvaluation.open(settings.against, "evaluate sts")
    if earlier.record.inputs.get("data") != digest:
        earlier_counts = {
            name: figures["pairs"]
            for name, figures in earlier.results.items()
            if isinstance(figures, Mapping) and isinstance(figures.get("pairs"), int)
        }
        counts = {suite.name: len(suite.pairs) for suite in suites}
        raise FolderError(
            f"{earlier.option}: measured on other pairs (there {_listed(earlier_counts)}; here "
            f"{_listed(counts)}); give a result on the same file or test sets, or first evaluate its model "
            "on these pairs"
        )
    return earlier, cosines_in(earlier.folder, suites)


def _listed(pairs: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} pairs of {name}" for name, count in pairs.items())


def cosines_in(folder: Place, suites: Sequence[StsSuite]) -> CosinesOfSuites:
    """The cosines of the pairs of ``suites``, from the predictions in the folder of an evaluation."""
    cosines = (row["cosine"] for row in Predictions(folder))
    return {
        suite.name: {
            name: np.array([next(cosines) for _ in pairs], np.float64)
            for name, pairs in suite.subsets.items()
        }
        for suite in suites
    }


def _compared_with(
    opened: tuple[EarlierEvaluation, CosinesOfSuites] | None,
    settings: EvaluateStsSettings,
    suites: Sequence[StsSuite],
    run: Run,
) -> dict[str, Any] | None:
    """The figures minus those of the earlier evaluation: ``all`` and ``mean`` of each suite."""
    if opened is None:
        return None
    earlier, earlier_cosines = opened
    differences = score_differences(
        suites,
        cosines_in(run.out, suites),
        earlier_cosines,
        bootstrap=settings.bootstrap,
        seed=settings.seed,
    )
    by_suite = {
        suite: {
            name: with_verdict(figure.value, figure.interval or _WIDEST_INTERVAL_OF_CORRELATIONS)
            for name, figure in (("all", of_suite.all), ("mean", of_suite.mean))
            if figure is not None
        }
        for suite, of_suite in differences.items()
    }
    return {**earlier.to_json(), "suites": by_suite}
