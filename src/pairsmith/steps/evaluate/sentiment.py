"""Zero-shot sentiment: does a text answer why something is good, or why it is bad (Q11)?"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairsmith.core.errors import InputError, ModelError, counted
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.sentiment import Opinion, read_opinions
from pairsmith.methods.quip.sentiment import (
    CALIBRATIONS,
    RATIONALES,
    Judged,
    judge_by_mask,
    judge_by_questions,
    judge_by_reader,
)
from pairsmith.metrics.auroc import auroc, auroc_draws
from pairsmith.models.heads import TextModel, load_with_head
from pairsmith.models.reader import load_reader
from pairsmith.models.span_encoder import load_span_encoder, require_question_heads
from pairsmith.runs.estimate import Before, Estimate
from pairsmith.steps.evaluate.evaluation import Evaluation, extrapolated
from pairsmith.steps.evaluate.figures import (
    Resampled,
    mean_line,
    over_repetitions,
    resampled_auroc,
    resampled_means,
    uncertainty_line,
)
from pairsmith.steps.evaluate.paired import Line, Paired
from pairsmith.steps.evaluate.results import Evaluated
from pairsmith.steps.evaluate.transfer_settings import EvaluateSentimentSettings
from pairsmith.steps.planning import count_in_run
from pairsmith.steps.shared import load_options, named


class _Data(NamedTuple):
    opinions: list[Opinion]
    blank: int  # the number of rows that are left out because their text is blank


def _read(settings: EvaluateSentimentSettings) -> _Data:
    blank: list[str] = []
    opinions = list(read_opinions(settings.data, blank.append))
    if len({opinion.positive for opinion in opinions}) < 2:
        raise InputError(
            f"{settings.data}: all {len(opinions):,} texts have the same label; give texts of both labels"
        )
    return _Data(opinions, len(blank))


def _compute(settings: EvaluateSentimentSettings, data: _Data, progress: Progress) -> Evaluated:
    opinions, blank = data
    if blank:
        progress.say(f"{counted(blank, 'rows are')} left out: the text is blank")
    judged = judge(settings, progress)([opinion.text for opinion in opinions])
    gold = np.array([opinion.positive for opinion in opinions])
    figures = sentiment_figures(judged, gold, bootstrap=settings.bootstrap, seed=settings.seed)
    scores = judged.scores.swapaxes(0, 1).tolist()
    predicted = judged.positive("calibrated").T.tolist()
    rows = zip(opinions, scores, predicted, judged.rationales, strict=True)
    return figures | {"blank": blank}, [
        {
            "text": opinion.text,
            "positive": opinion.positive,
            "scores": by_prompt,
            "taken_for_positive": predictions,
            "rationale": rationale,
            "rationale_side": ("positive" if predictions[RATIONALES] else "negative") if rationale else "",
        }
        for opinion, by_prompt, predictions, rationale in rows
    ]


def judge(
    settings: EvaluateSentimentSettings, progress: Progress, *, untrained: bool = False
) -> Callable[[Sequence[str]], Judged]:
    """Load the model, and return a function that scores texts with every prompt of the method (Q11).

    An ``untrained`` model gets the heads that it lacks, for plans.
    """
    options: dict[str, Any] = {"batch_tokens": settings.batch_tokens, "progress": progress}
    if settings.method == "mask":
        network, tokenizer, limit = load_with_head(
            settings.model, "masked language modelling", device=settings.device, dtype=settings.dtype
        )
        model = TextModel(network, tokenizer, min(settings.max_length or limit, limit))
        score = partial(judge_by_mask, model, **options)
    elif settings.method == "reader":
        reader = load_reader(settings.model, fresh_head=untrained, **load_options(settings))
        score = partial(judge_by_reader, reader, item=settings.item, **options)
    else:
        if not untrained:
            try:
                require_question_heads(settings.model)
            except ModelError as error:
                raise ModelError(f"{error}, or choose --method reader or mask") from error
        encoder = load_span_encoder(settings.model, fresh_heads=untrained, **load_options(settings))
        score = partial(judge_by_questions, encoder, item=settings.item, **options)
    return named(settings.model)(score)


def sentiment_figures(
    judged: Judged, gold: NDArray[np.bool_], *, bootstrap: int, seed: int = 0
) -> dict[str, Any]:
    """The figures of ``results.json``: accuracy and AUROC ×100 of the p prompts, and the number of texts.

    ``gold`` is ``(n,)``, whether each text is positive; both classes occur. Each of the ``bootstrap``
    resamples draws n texts with replacement; ``seed`` alone decides which, so that all figures are computed
    over the same resamples. ``fifth_prompt`` is the accuracy of the prompt ``RATIONALES``, if there is one.
    """
    figures: dict[str, Any] = {}
    for name in CALIBRATIONS:
        values = 100.0 * (judged.positive(name) == gold).mean(axis=1)
        draws = judged.accuracy_draws(gold, name, draws=bootstrap, rng=np.random.default_rng(seed))
        accuracy = over_repetitions("accuracy", "prompts", values.tolist(), 100.0 * draws)
        if len(values) > RATIONALES:
            accuracy["fifth_prompt"] = accuracy["prompts"][RATIONALES]
            accuracy["fifth_prompt_ci"] = accuracy["prompts_ci"][RATIONALES]
        figures[name] = accuracy
    leads = judged.leads()
    by_prompt = [auroc_draws(lead, gold, draws=bootstrap, rng=np.random.default_rng(seed)) for lead in leads]
    areas = [100.0 * auroc(lead, gold) for lead in leads]
    figures["ranking"] = over_repetitions("auroc", "prompts", areas, 100.0 * np.stack(by_prompt, axis=1))
    return figures | {"count": len(gold)}


def sentiment_table(results: Mapping[str, Any]) -> str:
    """The figures of ``results.json`` as a text table."""
    lines = [counted(results["count"], "texts"), f"{'':<12}{'accuracy ×100':<36}of each prompt"]
    rows = [(name, name, "accuracy") for name in CALIBRATIONS] + [("ranking", "AUROC", "auroc")]
    for name, label, key in rows:
        lines.append(mean_line(label, results[name], key, results[name]["prompts"]))
    lines += uncertainty_line(results["ranking"], "auroc", "prompts", "texts")
    return "\n".join(lines)


def _plan(settings: EvaluateSentimentSettings, before: Before) -> Estimate:
    """Score a sample of the texts."""
    # In the sample of an earlier step, all texts may have the same label.
    opinions = list(read_opinions(settings.data)) if settings.data in before else _read(settings).opinions
    texts = [opinion.text for opinion in opinions]
    load = partial(judge, settings, Silent(), untrained=settings.model in before)
    count = count_in_run(len(texts), [settings.data], before)
    return extrapolated(load, texts, count, lambda text: len(text) + 400, most=256)


def _rows(_: EvaluateSentimentSettings, data: _Data) -> Iterator[dict[str, Any]]:
    for opinion in data.opinions:
        yield {"text": opinion.text, "positive": opinion.positive}


def _resampled(settings: EvaluateSentimentSettings, lines: Iterable[Line]) -> dict[str, Resampled]:
    gold = np.array([line["positive"] for line in lines])
    predicted = np.array([line["taken_for_positive"] for line in lines])  # (n, prompts)
    scores = np.array([line["scores"] for line in lines], np.float64)  # (n, prompts, 2)
    correct = 100.0 * (predicted == gold[:, np.newaxis]).mean(axis=1)
    leads = scores[:, :, 1] - scores[:, :, 0]
    return resampled_means(
        {"accuracy": correct.tolist()}, bootstrap=settings.bootstrap, seed=settings.seed
    ) | {"auroc": resampled_auroc([*leads.T], gold, bootstrap=settings.bootstrap, seed=settings.seed)}


evaluate_sentiment = Evaluation(
    "evaluate sentiment",
    _read,
    _compute,
    sentiment_table,
    _plan,
    Paired("texts", _rows, _resampled),
)
"""Classifies texts as positive or negative.

``predictions.jsonl`` has a line for each text: its label; the ``scores`` of the negative and the positive
question of each prompt, without calibration; the calibrated prediction of each prompt; the rationale; and the
class that it supports, which is the prediction of the prompt ``RATIONALES``. ``results.json`` has

- for ``calibrated``, ``centred`` and ``plain`` scores (see ``Judged.positive``): the ``accuracy`` ×100, the
  mean over the prompts, with its 95 % interval over the texts (``accuracy_ci``) and its standard ``error``
  over the prompts, the accuracy of each prompt (``prompts``, ``prompts_ci``), and ``fifth_prompt`` with
  ``fifth_prompt_ci``;
- for ``ranking``: the mean AUROC ×100 (``auroc``), which does not depend on the calibration, with
  ``auroc_ci``, ``error``, ``prompts`` and ``prompts_ci``;
- ``count``: the number of texts; ``blank``: the number of rows left out because their text is blank;
- with ``against``: the differences of the calibrated ``accuracy`` and of the AUROC (``auroc``), both means
  over the prompts, from the earlier ones.
"""
