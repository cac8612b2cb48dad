"""Estimates what evaluations will cost, by processing a sample and extrapolating."""

import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch

from pairsmith.core.model_names import MINILM
from pairsmith.core.progress import Silent
from pairsmith.data.readers import read_pairs
from pairsmith.data.squad import read_questions
from pairsmith.data.sts import read_sts
from pairsmith.data.tagged import TaggedSentence
from pairsmith.metrics.bootstrap import spearman_draws
from pairsmith.models.reader import answer, load_reader
from pairsmith.models.span_encoder import load_span_encoder
from pairsmith.models.span_reader import text_vectors
from pairsmith.models.token_vectors import load_token_encoder
from pairsmith.runs.estimate import Before, Estimate, peak_memory
from pairsmith.steps.evaluate.few_shot_paraphrase import EPOCHS, drawn, last_layers, scored, tune
from pairsmith.steps.evaluate.mteb import load_encoder, tasks_of, with_mteb
from pairsmith.steps.evaluate.ner import few_and_test
from pairsmith.steps.evaluate.paraphrase import labelled_pairs
from pairsmith.steps.evaluate.qa import answerer
from pairsmith.steps.evaluate.results import at_splits
from pairsmith.steps.evaluate.sentiment import judge, labelled_opinions
from pairsmith.steps.evaluate.settings import (
    EvaluateMtebSettings,
    EvaluateNerSettings,
    EvaluateParaphraseSettings,
    EvaluateQaSettings,
    EvaluateSentimentSettings,
    EvaluateStsSettings,
    EvaluateSummariesSettings,
)
from pairsmith.steps.evaluate.sts import encoder_of, texts_of
from pairsmith.steps.evaluate.summaries import labelled_documents, write_summaries
from pairsmith.steps.evaluate.tagging import tag_after_training

CALIBRATION_SENTENCES = 512
CALIBRATION_DRAWS = 20
CALIBRATION_QUESTIONS = 128
CALIBRATION_DOCUMENTS = 8
CALIBRATION_PAIRS = 256


def plan_evaluate_sts(settings: EvaluateStsSettings, before: Before, base: str = MINILM) -> Estimate:
    """Encode a sample of the sentences; ``base`` stands in for a model that an earlier step will train."""
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
    drawn = sum(sizes) * (1 if len(sizes) == len(suites) else 2)  # the subsets, and each suite as a whole
    values, rng = np.arange(max(sizes, default=1), dtype=np.float64), np.random.default_rng(0)
    begun = time.monotonic()
    spearman_draws(values, values, draws=CALIBRATION_DRAWS, rng=rng)
    draw = (time.monotonic() - begun) / CALIBRATION_DRAWS / len(values)
    seconds += draw * drawn * settings.bootstrap
    return Estimate(seconds=seconds, memory=peak_memory(), disk=4096, rows={})


def plan_evaluate_mteb(settings: EvaluateMtebSettings, before: Before, base: str = MINILM) -> Estimate:
    """Encode some sentences and extrapolate to the number of characters in the tasks; no data are fetched."""
    with_mteb()
    from pairsmith.steps.evaluate.mteb_tasks import characters_of, told_in_lines

    with told_in_lines(Silent().say):
        tasks, _ = tasks_of(settings)
        known = settings.model_copy(update={"model": base}) if settings.model in before else settings
        characters = sum(characters_of(task) for task in tasks)
        started = time.monotonic()
        encoder = load_encoder(known, "", Silent()).model
        encoder.encode(_SENTENCES[:1], show_progress_bar=False)
        loading = time.monotonic() - started
        begun = time.monotonic()
        encoder.encode(_SENTENCES, batch_size=settings.batch_size, show_progress_bar=False)
        each = (time.monotonic() - begun) / sum(map(len, _SENTENCES))
    disk = 4096 * (1 + len(tasks))
    return Estimate(seconds=loading + each * characters, memory=peak_memory(), disk=disk, rows={})


_SENTENCES = [
    f"In {year} the old bridge over the river was closed for repairs." for year in range(1800, 2056)
]
"""Sentences of the length usual in test sets; their content does not affect the time."""


def plan_evaluate_qa(settings: EvaluateQaSettings, before: Before, base: str = MINILM) -> Estimate:
    """Answer a sample of the questions; ``base`` stands in for a reader that an earlier step will train."""
    started = time.monotonic()
    settings = at_splits(settings)
    questions = list(read_questions(settings.data))
    answers: Callable[..., object]
    if settings.model in before:  # a bi-encoder would be quicker than this reader
        reader = load_reader(
            base,
            device=settings.device,
            dtype=settings.dtype,
            fresh_head=True,
            max_length=settings.max_length,
        )
        answers = partial(answer, reader, batch_size=settings.batch_size)
    else:
        answers = answerer(settings)
    sample = questions[:: max(1, len(questions) // CALIBRATION_QUESTIONS)]
    asked, texts = [each.question for each in sample], [each.context for each in sample]
    answers(asked[:4], texts[:4])
    loading = time.monotonic() - started
    begun = time.monotonic()
    answers(asked, texts, max_answer_tokens=settings.max_answer_tokens)
    seconds = loading + (time.monotonic() - begun) * len(questions) / len(sample)
    size = sum(len(each.question) + len(each.context) // 8 for each in questions)
    return Estimate(seconds=seconds, memory=peak_memory(), disk=4096 + size, rows={})


def plan_evaluate_summaries(
    settings: EvaluateSummariesSettings, before: Before, base: str = MINILM
) -> Estimate:
    """Summarise a sample of the documents; ``base`` stands in for a model that is still to be trained."""
    started = time.monotonic()
    settings = at_splits(settings)
    documents = labelled_documents(settings.data, settings.limit)
    sample = documents[:: max(1, len(documents) // CALIBRATION_DOCUMENTS)]
    untrained = settings.model in before
    some = settings.model_copy(update={"model": base}) if untrained else settings
    write_summaries(some, [each.document for each in sample[:1]], Silent(), fresh_decoder=untrained)
    loading = time.monotonic() - started
    begun = time.monotonic()
    write_summaries(some, [each.document for each in sample], Silent(), fresh_decoder=untrained)
    each = max(0.0, time.monotonic() - begun - loading) / len(sample)
    size = sum(2 * len(document.summary) + 100 for document in documents)
    return Estimate(seconds=loading + each * len(documents), memory=peak_memory(), disk=4096 + size, rows={})


def plan_evaluate_paraphrase(
    settings: EvaluateParaphraseSettings, before: Before, base: str = MINILM
) -> Estimate:
    """Score a sample of the pairs; ``base`` stands in for an encoder that is still to be trained."""
    started = time.monotonic()
    settings = at_splits(settings)
    pairs, _ = labelled_pairs(settings.data, settings.seed)
    judged = sum(1 for _ in read_pairs(settings.judgements)) if settings.judgements else 0
    encoder = load_token_encoder(
        base if settings.model in before else settings.model,
        device=settings.device,
        dtype=settings.dtype,
        max_length=settings.max_length,
    )
    layers = last_layers(encoder)
    sample = pairs[:: max(1, len(pairs) // CALIBRATION_PAIRS)]
    scored(encoder, sample[:8], layers, settings)
    seconds = time.monotonic() - started
    begun = time.monotonic()
    scored(encoder, sample, layers, settings)
    each = (time.monotonic() - begun) / len(sample)
    rounds = 1.0
    if settings.train and settings.tune:
        some = drawn(labelled_pairs(settings.train, settings.seed)[0], settings.shots, settings.splits[0])
        begun = time.monotonic()
        tune(encoder, some, layers, settings, settings.splits[0], epochs=1)
        seconds += (time.monotonic() - begun) * EPOCHS * len(settings.splits)
        rounds += len(settings.splits)
    seconds += each * (len(pairs) * rounds + judged)
    size = sum(len(pair.sentence1) + len(pair.sentence2) + 80 for pair in pairs)
    return Estimate(seconds=seconds, memory=peak_memory(), disk=4096 + size, rows={})


def plan_evaluate_sentiment(
    settings: EvaluateSentimentSettings, before: Before, base: str = MINILM
) -> Estimate:
    """Encode a sample of the texts; ``base`` stands in for an encoder that is still to be trained."""
    settings = at_splits(settings)
    texts = [each.text for each in labelled_opinions(settings.data)]
    started = time.monotonic()
    read: Callable[[Sequence[str]], object]
    if settings.model in before or settings.method == "questions":
        encoder = load_span_encoder(
            base if settings.model in before else settings.model,
            device=settings.device,
            dtype=settings.dtype,
            max_length=settings.max_length,
            fresh_heads=settings.model in before,
        )
        read = partial(text_vectors, encoder)
    else:
        read = partial(_judged_by_mask, settings)
    sample = texts[:: max(1, len(texts) // CALIBRATION_PAIRS)]
    with torch.inference_mode():
        read(sample[:8])
        loading = time.monotonic() - started
        begun = time.monotonic()
        read(sample)
    seconds = loading + (time.monotonic() - begun) * len(texts) / len(sample)
    size = sum(len(text) + 120 for text in texts)
    return Estimate(seconds=seconds, memory=peak_memory(), disk=4096 + size, rows={})


def _judged_by_mask(settings: EvaluateSentimentSettings, texts: Sequence[str]) -> object:
    return judge(settings, texts, Silent())


def plan_evaluate_ner(settings: EvaluateNerSettings, before: Before, base: str = MINILM) -> Estimate:
    """Train on one split for a few epochs and tag a sample of sentences, with a random initialisation."""
    settings = at_splits(settings)
    splits, test = few_and_test(settings)
    sample = test[:: max(1, len(test) // CALIBRATION_PAIRS)]
    some = settings.model_copy(update={"model": base if settings.model in before else settings.model})

    def timed(epochs: int, sentences: Sequence[TaggedSentence]) -> float:
        begun = time.monotonic()
        tag_after_training(some.model_copy(update={"epochs": epochs}), splits[0], sentences, None)
        return time.monotonic() - begun

    first = timed(1, sample[:8])
    short = timed(1, sample[:8])
    epoch = max(0.0, timed(3, sample[:8]) - short) / 2
    tagging = max(0.0, timed(1, sample) - short) * len(test) / len(sample)
    each = short + epoch * settings.epochs + tagging
    seconds = first - short + each * len(splits) * len(settings.start)
    size = sum(30 * len(sentence.words) for sentence in test)
    return Estimate(seconds=seconds, memory=peak_memory(), disk=4096 + size, rows={})
