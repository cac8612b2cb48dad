"""Estimates what evaluations will cost, by processing a sample and extrapolating.

Most of them read formats of their own, whose rows cannot be cut, and models without heads stand in for those
that an earlier step will train; so they time the work on what their readers yield, not the step on a file.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np
import torch

from pairsmith.core.progress import Silent
from pairsmith.data.chunk_rows import read_query_examples
from pairsmith.data.documents import Document
from pairsmith.data.labelled_texts import read_labelled_texts
from pairsmith.data.paraphrases import paraphrase_pairs, read_paraphrases
from pairsmith.data.readers import read_pairs
from pairsmith.data.sentiment import read_opinions
from pairsmith.data.splits import to_measure_on
from pairsmith.data.squad import Question, read_questions
from pairsmith.data.sts import read_sts
from pairsmith.data.tagged import TaggedSentence
from pairsmith.methods.dino.evaluation import distinct_texts
from pairsmith.methods.quip.names import tag_after_training
from pairsmith.methods.quip.paraphrase import EPOCHS, fine_tune, last_layers, paraphrase_scores
from pairsmith.metrics.bootstrap import spearman_draws
from pairsmith.models.reader import answer, load_reader
from pairsmith.models.span_answers import text_vectors
from pairsmith.models.span_encoder import load_span_encoder
from pairsmith.models.token_vectors import load_token_encoder
from pairsmith.runs.estimate import Before, Estimate, peak_memory
from pairsmith.steps.evaluate.classification_settings import EvaluateClassificationSettings
from pairsmith.steps.evaluate.mteb import load_mteb_encoder, tasks_of, with_mteb
from pairsmith.steps.evaluate.ner import few_and_test, tagger_encoder, tagger_options
from pairsmith.steps.evaluate.qa import answerer
from pairsmith.steps.evaluate.results import with_evaluation_splits
from pairsmith.steps.evaluate.retrieval import retrieval_data
from pairsmith.steps.evaluate.retrieval_settings import EvaluateRetrievalSettings
from pairsmith.steps.evaluate.retrievers import searcher
from pairsmith.steps.evaluate.sentiment import judge, labelled_opinions
from pairsmith.steps.evaluate.settings import (
    EvaluateMtebSettings,
    EvaluateQaSettings,
    EvaluateStsSettings,
    EvaluateSummariesSettings,
)
from pairsmith.steps.evaluate.sts import encoder_of
from pairsmith.steps.evaluate.summaries import labelled_documents, summarizer
from pairsmith.steps.evaluate.training_splits import training_splits
from pairsmith.steps.evaluate.transfer_settings import (
    EvaluateNerSettings,
    EvaluateParaphraseSettings,
    EvaluateSentimentSettings,
)
from pairsmith.steps.planning import (
    counted,
    evenly_spaced,
    first_passages,
    has_no_sample,
    load_text_encoder,
    timed,
)
from pairsmith.steps.shared import load_options

T = TypeVar("T")

CALIBRATION_SENTENCES = 512
CALIBRATION_DRAWS = 20
CALIBRATION_QUESTIONS = 128
CALIBRATION_DOCUMENTS = 8
CALIBRATION_PAIRS = 256


def _estimate(seconds: float, size: int = 0) -> Estimate:
    """The estimate for an evaluation whose predictions take ``size`` bytes."""
    return Estimate(seconds=seconds, memory=peak_memory(), disk=4096 + size, rows={})


def _of_sample(
    load: Callable[[], Callable[[Sequence[T]], object]],
    items: Sequence[T],
    count: int,
    size_of: Callable[[T], int],
    *,
    most: int,
    few: int = 8,
) -> Estimate:
    """The estimate for an evaluation of ``count`` items, of which ``most`` of ``items`` are timed.

    ``load`` and ``few`` are as for ``timed``; ``size_of`` gives the bytes of an item's prediction.
    """
    loading, per_item, _ = timed(load, evenly_spaced(items, most), few)
    return _estimate(loading + per_item * count, sum(map(size_of, items)) * count // max(1, len(items)))


def plan_evaluate_sts(settings: EvaluateStsSettings, before: Before) -> Estimate:
    """Encode a sample of the sentences, and draw some of the resamples."""
    suites = read_sts(settings.data, settings.suites or None)
    texts = distinct_texts(suites)
    load = partial(encoder_of, settings, Silent())
    loading, per_text, _ = timed(load, evenly_spaced(texts, CALIBRATION_SENTENCES), settings.batch_size)
    sizes = [len(pairs) for suite in suites for pairs in suite.subsets.values()]
    drawn = sum(sizes) * (1 if len(sizes) == len(suites) else 2)  # the subsets, and each suite as a whole
    values, rng = np.arange(max(sizes, default=1), dtype=np.float64), np.random.default_rng(0)
    begun = time.monotonic()
    spearman_draws(values, values, draws=CALIBRATION_DRAWS, rng=rng)
    draw = (time.monotonic() - begun) / CALIBRATION_DRAWS / len(values)
    times = 3 if settings.against else 1  # for a comparison also those of both encoders on the same pairs
    seconds = loading + per_text * counted(settings.data, before, len(texts))
    return _estimate(seconds + draw * drawn * settings.bootstrap * times, sum(sizes) * 250)


_STAND_IN = "A text that stands in for those of the folder."


def plan_evaluate_retrieval(settings: EvaluateRetrievalSettings, before: Before) -> Estimate:
    """Rank a sample of the documents for some queries, and extrapolate to the number of texts."""
    texts, count, queries = _texts_of_retrieval(settings, before)

    def load() -> Callable[[Sequence[str]], object]:
        search = searcher(settings, Silent())
        return lambda sample: search(sample, sample[:1], 1)

    loading, per_text, _ = timed(load, evenly_spaced(texts, CALIBRATION_SENTENCES))
    return _estimate(loading + per_text * count, queries * (300 + 30 * settings.keep))


def _texts_of_retrieval(settings: EvaluateRetrievalSettings, before: Before) -> tuple[list[str], int, int]:
    """A sample of the documents and queries, the number of both together, and the number of queries.

    An earlier step that will make a folder in BEIR's layout does not say how many there will be: none count.
    """
    if before.keys().isdisjoint({settings.data, *settings.corpus}):
        data = retrieval_data(settings, Silent())
        texts = [*filter(None, data.documents.values()), *data.queries.values()]
        return texts, len(texts), len(data.queries)
    if not settings.corpus:
        return [_STAND_IN], 0, 0
    texts, text_count = first_passages(settings.corpus, before, CALIBRATION_SENTENCES)
    queries = dict[str, None]()
    if not has_no_sample(settings.data, before):
        examples = read_query_examples(to_measure_on(settings.data, "measured on"))
        queries = dict.fromkeys(example.query for example in examples)
    query_count = counted(settings.data, before, len(queries))
    return [*texts, *queries] or [_STAND_IN], text_count + query_count, query_count


def plan_evaluate_mteb(settings: EvaluateMtebSettings, _before: Before) -> Estimate:
    """Encode some sentences and extrapolate to the number of characters in the tasks; no data are fetched."""
    with_mteb()
    from pairsmith.steps.evaluate.mteb_tasks import characters_of, warnings_passed_to

    # Sentences of the length usual in test sets; their content does not affect the time.
    sample = [
        f"In {year} the old bridge over the river was closed for repairs." for year in range(1800, 2056)
    ]

    def load() -> Callable[[Sequence[str]], object]:
        encoder = load_mteb_encoder(settings, "", Silent()).model
        return partial(encoder.encode, batch_size=settings.batch_size, show_progress_bar=False)

    with warnings_passed_to(Silent().say):
        tasks, _ = tasks_of(settings)
        characters = sum(characters_of(task) for task in tasks)
        loading, per_text, _ = timed(load, sample, few=1)
    size = sum(map(len, sample)) / len(sample)
    return _estimate(loading + per_text / size * characters, 4096 * len(tasks))


def plan_evaluate_qa(settings: EvaluateQaSettings, before: Before) -> Estimate:
    """Answer a sample of the questions."""
    settings = with_evaluation_splits(settings)
    questions = list(read_questions(settings.data))

    def load() -> Callable[[Sequence[Question]], object]:
        answers: Callable[..., object]
        if settings.model in before:  # a student would be quicker than this reader
            reader = load_reader(settings.model, fresh_head=True, **load_options(settings))
            answers = partial(answer, reader, batch_size=settings.batch_size)
        else:
            answers = answerer(settings)
        return lambda sample: answers(
            [question.question for question in sample],
            [question.context for question in sample],
            max_answer_tokens=settings.max_answer_tokens,
        )

    return _of_sample(
        load,
        questions,
        counted(settings.data, before, len(questions)),
        lambda question: len(question.question) + len(question.context) // 8,
        most=CALIBRATION_QUESTIONS,
        few=4,
    )


def plan_evaluate_summaries(settings: EvaluateSummariesSettings, before: Before) -> Estimate:
    """Summarise a sample of the documents."""
    settings = with_evaluation_splits(settings)
    documents = labelled_documents(settings.data, None if settings.data in before else settings.limit)
    count = counted(settings.data, before, len(documents))

    def load() -> Callable[[Sequence[Document]], object]:
        summarize = summarizer(settings, Silent(), fresh_decoder=settings.model in before)
        return lambda sample: summarize([document.document for document in sample])

    return _of_sample(
        load,
        documents[: settings.limit],
        min(count, settings.limit or count),
        lambda document: 2 * len(document.summary) + 100,
        most=CALIBRATION_DOCUMENTS,
        few=1,
    )


def plan_evaluate_paraphrase(settings: EvaluateParaphraseSettings, before: Before) -> Estimate:
    """Score a sample of the pairs, and fine-tune for an epoch, whose time depends on the splits alone."""
    settings = with_evaluation_splits(settings)
    if settings.data in before:  # all pairs of a sample may have the same label
        pairs = list(read_paraphrases(settings.data))
        sides = 1 if any(pair.label is not None for pair in pairs) else 2  # as many negatives are sampled
        count = sides * counted(settings.data, before, len(pairs))
    else:
        pairs, _ = paraphrase_pairs(settings.data, settings.seed)
        count = len(pairs)
    judged = 0
    if judgements := settings.judgements:
        number = 0 if judgements in before else sum(1 for _ in read_pairs(judgements))
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
    rounds = 1.0
    if settings.train and settings.tune:
        few = training_splits(settings).pairs[settings.splits[0]]
        begun = time.monotonic()
        fine_tune(
            encoder, few, layers, seed=settings.splits[0], special_tokens=settings.special_tokens, epochs=1
        )
        seconds += (time.monotonic() - begun) * EPOCHS * len(settings.splits)
        rounds += len(settings.splits)
    warming, per_pair, _ = timed(lambda: score, evenly_spaced(pairs, CALIBRATION_PAIRS))
    seconds += warming + per_pair * (count * rounds + judged)
    size = sum(len(pair.sentence1) + len(pair.sentence2) + 80 for pair in pairs)
    return _estimate(seconds, size * count // len(pairs))


def plan_evaluate_sentiment(settings: EvaluateSentimentSettings, before: Before) -> Estimate:
    """Encode a sample of the texts."""
    settings = with_evaluation_splits(settings)
    # All texts of a sample may have the same label.
    opinions = read_opinions(settings.data) if settings.data in before else labelled_opinions(settings.data)
    texts = [opinion.text for opinion in opinions]
    untrained = settings.model in before

    def load() -> Callable[[Sequence[str]], object]:
        if not untrained and settings.method == "mask":
            return lambda sample: judge(settings, sample, Silent())
        encoder = load_span_encoder(settings.model, fresh_heads=untrained, **load_options(settings))
        return partial(text_vectors, encoder)

    count = counted(settings.data, before, len(texts))
    with torch.inference_mode():
        return _of_sample(load, texts, count, lambda text: len(text) + 120, most=CALIBRATION_PAIRS)


def plan_evaluate_classification(settings: EvaluateClassificationSettings, before: Before) -> Estimate:
    """Encode a sample of the texts."""
    settings = with_evaluation_splits(settings)
    texts = read_labelled_texts(
        settings.data, text_column=settings.text_column, label_column=settings.label_column
    ).texts
    count = counted(settings.data, before, len(texts))
    load = partial(load_text_encoder, settings)
    return _of_sample(load, texts, count, lambda text: len(text) + 80, most=CALIBRATION_SENTENCES)


def plan_evaluate_ner(settings: EvaluateNerSettings, _before: Before) -> Estimate:
    """Train on one split for a few epochs and tag a sample of sentences, with a random initialisation."""
    settings = with_evaluation_splits(settings)
    splits, test = few_and_test(settings)
    sample, few = evenly_spaced(test, CALIBRATION_PAIRS), evenly_spaced(splits[0], CALIBRATION_PAIRS)

    def seconds_of(epochs: int, sentences: Sequence[TaggedSentence]) -> float:
        begun = time.monotonic()
        options = replace(tagger_options(settings), epochs=epochs)
        encoder = tagger_encoder(settings, "random")
        tag_after_training(encoder, few, sentences, None, options, seed=settings.splits[0])
        return time.monotonic() - begun

    first = seconds_of(1, sample[:8])
    short = seconds_of(1, sample[:8])
    epoch = max(0.0, seconds_of(3, sample[:8]) - short) / 2 * len(splits[0]) / len(few)
    tagging = max(0.0, seconds_of(1, sample) - short) * len(test) / len(sample)
    per_training = short + epoch * settings.epochs + tagging
    seconds = first - short + per_training * len(splits) * len(settings.start)
    return _estimate(seconds, sum(30 * len(sentence.words) for sentence in test))
