"""Zero-shot sentiment: does a text answer why something is good, or why it is bad (Q11)?"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairsmith.core.errors import InputError
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
from pairsmith.metrics.auroc import auroc
from pairsmith.metrics.bootstrap import mean_and_error
from pairsmith.models.heads import TextModel, load_with_head
from pairsmith.models.reader import load_reader
from pairsmith.models.span_encoder import load_span_encoder
from pairsmith.runs.estimate import Before, Estimate
from pairsmith.steps.evaluate.evaluation import Evaluation, extrapolated
from pairsmith.steps.evaluate.results import Evaluated, mean_line
from pairsmith.steps.evaluate.transfer_settings import EvaluateSentimentSettings
from pairsmith.steps.planning import counted
from pairsmith.steps.shared import load_options, named


def _read(settings: EvaluateSentimentSettings) -> list[Opinion]:
    opinions = list(read_opinions(settings.data))
    if len({opinion.positive for opinion in opinions}) < 2:
        raise InputError(
            f"{settings.data}: all {len(opinions):,} texts have the same label; give texts of both labels"
        )
    return opinions


def _compute(
    settings: EvaluateSentimentSettings, opinions: Sequence[Opinion], progress: Progress
) -> Evaluated:
    judged = judge(settings, progress)([opinion.text for opinion in opinions])
    gold = np.array([opinion.positive for opinion in opinions])
    predicted = {name: judged.positive(name) for name in CALIBRATIONS}
    figures: dict[str, Any] = {name: accuracies(positive, gold) for name, positive in predicted.items()}
    figures["ranking"] = of_prompts("auroc", [100 * auroc(leads, gold) for leads in judged.leads()])
    scores = judged.scores.swapaxes(0, 1).tolist()
    rows = zip(opinions, scores, predicted["calibrated"].T.tolist(), judged.rationales, strict=True)
    return figures | {"count": len(opinions)}, [
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
        encoder = load_span_encoder(settings.model, fresh_heads=untrained, **load_options(settings))
        score = partial(judge_by_questions, encoder, item=settings.item, **options)
    return named(settings.model)(score)


def accuracies(predicted: NDArray[np.bool_], gold: NDArray[np.bool_]) -> dict[str, Any]:
    """The accuracy ×100 of each prompt, their mean, and its standard error.

    ``predicted`` is ``(p, n)``, the predictions of p prompts for n texts; ``gold`` is ``(n,)``; True means
    positive. ``best_prompt`` is the accuracy of the prompt ``RATIONALES``, the paper's best on SST-2.
    """
    figures = of_prompts("accuracy", (100.0 * (predicted == gold).mean(axis=1)).tolist())
    return figures | ({"best_prompt": figures["prompts"][RATIONALES]} if len(predicted) > RATIONALES else {})


def of_prompts(name: str, values: Sequence[float]) -> dict[str, Any]:
    """A figure for ``results.json``: its mean over the prompts, the standard error, and each prompt's value.

    With a single prompt, the error is None.
    """
    mean, error = mean_and_error(values)
    return {name: mean, "error": error, "prompts": [round(value, 4) for value in values]}


def sentiment_table(results: Mapping[str, Any]) -> str:
    """The figures of ``results.json`` as a text table."""
    lines = [f"{results['count']:,} texts", f"{'':<12}{'accuracy ×100':<18}of each prompt"]
    rows = [(name, name, "accuracy") for name in CALIBRATIONS] + [("ranking", "AUROC", "auroc")]
    for name, label, key in rows:
        figures = results[name]
        lines.append(mean_line(label, figures[key], figures["error"], figures["prompts"]))
    return "\n".join(lines)


def _plan(settings: EvaluateSentimentSettings, before: Before) -> Estimate:
    """Score a sample of the texts."""
    # In the sample of an earlier step, all texts may have the same label.
    opinions = list(read_opinions(settings.data)) if settings.data in before else _read(settings)
    texts = [opinion.text for opinion in opinions]
    load = partial(judge, settings, Silent(), untrained=settings.model in before)
    count = counted(settings.data, before, len(texts))
    return extrapolated(load, texts, count, lambda text: len(text) + 400, most=256)


evaluate_sentiment = Evaluation("evaluate sentiment", _read, _compute, sentiment_table, _plan)
"""Classifies texts as positive or negative.

``predictions.jsonl`` has a line for each text: its label; the ``scores`` of the negative and the positive
question of each prompt, without calibration; the calibrated prediction of each prompt; the rationale; and the
class that it supports, which is the prediction of the prompt ``RATIONALES``. ``results.json`` has

- for ``calibrated``, ``centred`` and ``plain`` scores (see ``Judged.positive``): the ``accuracy`` ×100, the
  mean over the prompts, its standard ``error``, the accuracy of each prompt (``prompts``), and
  ``best_prompt``;
- for ``ranking``: the mean AUROC ×100 (``auroc``), which does not depend on the calibration, with ``error``
  and ``prompts``;
- ``count``: the number of texts.
"""
