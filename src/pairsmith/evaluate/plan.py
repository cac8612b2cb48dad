"""What ``evaluate sts`` will cost: some sentences encoded and some resamples drawn, carried over to all."""

import time

import numpy as np

from pairsmith.evaluate.bootstrap import spearman_draws
from pairsmith.evaluate.settings import EvaluateStsSettings
from pairsmith.evaluate.sts import encoder_of, texts_of
from pairsmith.modelnames import MINILM
from pairsmith.progress import Silent
from pairsmith.records.sts import read_sts
from pairsmith.runs.estimate import Before, Estimate, peak_memory

CALIBRATION_SENTENCES = 512
CALIBRATION_DRAWS = 20


def plan_evaluate_sts(settings: EvaluateStsSettings, before: Before, base: str = MINILM) -> Estimate:
    """Encode some of the sentences; a model that an earlier step will train is stood for by its ``base``.

    Raises:
        UserError: as for ``evaluate_sts``.
    """
    suites = read_sts(settings.data, settings.suites or None)
    known = settings.model_copy(update={"model": base}) if settings.model in before else settings
    texts = sorted({text for suite in suites for pairs in suite.subsets.values() for text in texts_of(pairs)})
    step = max(1, len(texts) // CALIBRATION_SENTENCES)
    sample = texts[::step]
    started = time.monotonic()
    encode = encoder_of(known, Silent())
    encode(sample[: settings.batch_size])
    loading = time.monotonic() - started
    begun = time.monotonic()
    encode(sample)
    seconds = loading + (time.monotonic() - begun) * len(texts) / len(sample)
    sizes = [len(pairs) for suite in suites for pairs in suite.subsets.values()]
    drawn = sum(sizes) * (1 if len(sizes) == len(suites) else 2)  # subsets, and all of a suite together
    values, rng = np.arange(max(sizes, default=1), dtype=np.float64), np.random.default_rng(0)
    begun = time.monotonic()
    spearman_draws(values, values, draws=CALIBRATION_DRAWS, rng=rng)
    draw = (time.monotonic() - begun) / CALIBRATION_DRAWS / len(values)
    seconds += draw * drawn * settings.bootstrap
    return Estimate(seconds=seconds, memory=peak_memory(), disk=4096, rows={})
