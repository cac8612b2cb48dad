"""Semantic textual similarity: does the cosine of sentence vectors rank pairs as people do (D11, D12)?"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairsmith.core.errors import InputError, ModelError
from pairsmith.core.model_names import GLOVE, glove_path, model_revision
from pairsmith.core.progress import Progress
from pairsmith.data.sts import StsSuite, read_sts
from pairsmith.metrics.bootstrap import interval, mean_draws, spearman_draws
from pairsmith.metrics.correlation import spearman
from pairsmith.metrics.similarity import cosine_similarity_rows
from pairsmith.models.trained_on import fingerprint_of, read_trained_on
from pairsmith.runs import Run, resolve_dtype
from pairsmith.steps.evaluate.results import Evaluated, evaluate_once, hash_rows, rounded, with_interval
from pairsmith.steps.evaluate.settings import EvaluateStsSettings
from pairsmith.steps.shared import load_options

Encode = Callable[[Sequence[str]], NDArray[np.floating]]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Figure:
    """A correlation ×100 and its 95 % interval, or None if none was asked for or it is undefined."""

    value: float
    interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class SuiteScores:
    """The scores of an encoder on a suite (D11).

    Attributes:
        pairs: number of pairs.
        all: one correlation over the pairs of all subsets together.
        mean: the average of one correlation per subset; None where there is one subset.
        subsets: each subset's own correlation ×100.
    """

    pairs: int
    all: Figure
    mean: Figure | None
    subsets: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        """The suite's part of ``results.json``, figures rounded to four places."""
        figures: dict[str, Any] = {"all": round(self.all.value, 4), "all_ci": rounded(self.all.interval)}
        if self.mean is not None:
            figures["mean"] = round(self.mean.value, 4)
            figures["mean_ci"] = rounded(self.mean.interval)
            figures["subsets"] = {name: round(value, 4) for name, value in self.subsets.items()}
        return figures | {"pairs": self.pairs}


def evaluate_sts(settings: EvaluateStsSettings, run: Run) -> dict[str, Any]:
    """Evaluate an encoder, write ``results.json`` into the run's folder, and show a table.

    Existing results of the same settings, model and pairs are returned; ``run.fresh`` computes them again.
    They have a key per suite (see ``SuiteScores``), and ``about``. Of an encoder that ``train-encoder`` wrote
    a suite has ``trained_on``, too: how many of its pairs were learned.
    """
    settings = resolve_dtype(settings, run)
    suites = read_sts(settings.data, settings.suites or None)
    return evaluate_once(
        run,
        "evaluate sts",
        settings,
        inputs={"data": hash_pairs(suites)},
        models={"model": model_revision(settings.model)},
        compute=partial(_compute, settings, suites, run.progress),
        table=lambda results: sts_table({suite.name: results[suite.name] for suite in suites}),
    )


def _compute(settings: EvaluateStsSettings, suites: Sequence[StsSuite], progress: Progress) -> Evaluated:
    encode = encoder_of(settings, progress)
    scores = sts_scores(encode, suites, bootstrap=settings.bootstrap, seed=settings.seed)
    figures = {name: score.to_json() for name, score in scores.items()}
    trained_on = frozenset() if settings.model.startswith(GLOVE) else read_trained_on(settings.model)
    for suite in suites if trained_on else ():
        known = sum(fingerprint_of(pair.sentence1, pair.sentence2) in trained_on for pair in suite.pairs)
        figures[suite.name]["trained_on"] = known
        if known:
            progress.say(
                f"{suite.name}: {known:,} of {len(suite.pairs):,} pairs are among those that the encoder was "
                "trained on; its figure is better than it would be on others"
            )
    return figures, None


def sts_scores(
    encode: Encode, suites: Sequence[StsSuite], *, bootstrap: int = 1000, seed: int = 0
) -> dict[str, SuiteScores]:
    """Score ``encode`` on ``suites`` with both aggregations of D11.

    ``encode`` maps n texts to vectors of shape (n, d), and is called once, with every distinct text;
    ``bootstrap`` is the number of resamples behind each interval, 0 for no interval. A suite's interval does
    not depend on which other suites are scored.
    """
    texts = distinct_texts(suites)
    vectors = np.asarray(encode(texts))
    faulty = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if faulty.size:
        raise ModelError(
            f"the model's vectors of {faulty.size} of {len(texts)} sentences are not finite, "
            f"the first that of {texts[faulty[0]][:80]!r}; try dtype float32, or another model"
        )
    rows = {text: row for row, text in enumerate(texts)}
    return {suite.name: _score_suite(suite, vectors, rows, bootstrap, seed) for suite in suites}


def sts_table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """The suites' scores, as ``SuiteScores.to_json`` gives them, as a plain table, a line per suite."""
    lines = [f"{'suite':<12}{'pairs':>7}  {'Spearman ×100, all (95 %)':<28}{'mean of subsets (95 %)'}"]
    for name, score in results.items():
        mean = with_interval(score, "mean") if "mean" in score else ""
        lines.append(f"{name:<12}{score['pairs']:>7}  {with_interval(score, 'all'):<28}{mean}".rstrip())
    return "\n".join(lines)


def _score_suite(
    suite: StsSuite, vectors: NDArray[np.floating], rows: Mapping[str, int], bootstrap: int, seed: int
) -> SuiteScores:
    cosines, gold = dict[str, Floats](), dict[str, Floats]()
    for name, pairs in suite.subsets.items():
        first = vectors[[rows[pair.sentence1] for pair in pairs]]
        cosines[name] = cosine_similarity_rows(first, vectors[[rows[pair.sentence2] for pair in pairs]])
        gold[name] = np.array([pair.score for pair in pairs])
    subsets = {name: _correlation(cosines[name], gold[name], f"{suite.name} {name}") for name in cosines}
    every_cosine, every_gold = np.concatenate(list(cosines.values())), np.concatenate(list(gold.values()))
    whole = _correlation(every_cosine, every_gold, suite.name)
    rng = np.random.default_rng([seed, *suite.name.encode()])
    spread = spearman_draws(every_cosine, every_gold, draws=bootstrap, rng=rng)
    mean = None
    if len(subsets) > 1:
        parts = [spearman_draws(cosines[name], gold[name], draws=bootstrap, rng=rng) for name in subsets]
        mean = Figure(float(np.mean(list(subsets.values()))), _interval(mean_draws(parts)))
    return SuiteScores(len(every_gold), Figure(whole, _interval(spread)), mean, subsets)


def _correlation(cosines: Floats, gold: Floats, where: str) -> float:
    """Spearman's correlation ×100; if undefined, an error on the data or on the model."""
    if len(gold) < 2 or np.ptp(gold) == 0:
        raise InputError(f"{where}: needs at least two pairs with different scores to rank")
    correlation = spearman(cosines, gold)
    if np.isnan(correlation):
        raise ModelError(f"{where}: the model gives every pair the same similarity, so it orders nothing")
    return 100.0 * correlation


def encoder_of(settings: EvaluateStsSettings, progress: Progress) -> Encode:
    """A function that encodes n texts into vectors of shape (n, d) with the model of ``settings``."""
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


def distinct_texts(suites: Sequence[StsSuite]) -> list[str]:
    """The texts of all pairs, sorted."""
    return sorted(
        {text for suite in suites for pair in suite.pairs for text in (pair.sentence1, pair.sentence2)}
    )


def _interval(draws: Floats) -> tuple[float, float] | None:
    """The 95 % interval ×100 of bootstrap correlations of shape (draws,)."""
    limits = interval(draws)
    return None if limits is None else (100.0 * limits[0], 100.0 * limits[1])


def hash_pairs(suites: Sequence[StsSuite]) -> str:
    """SHA-256 of the pairs; other files beside the test sets do not count."""
    return hash_rows(
        [
            [suite.name, subset, pair.sentence1, pair.sentence2, pair.score]
            for suite in suites
            for subset, pairs in suite.subsets.items()
            for pair in pairs
        ]
    )
