"""Estimates what evaluations will cost, by processing a sample and extrapolating."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from pairsmith.core.model_names import MINILM
from pairsmith.core.progress import Silent
from pairsmith.data.chunk_rows import read_query_examples
from pairsmith.data.labelled_texts import read_labelled_texts
from pairsmith.data.paraphrases import Paraphrase, labelled_pairs
from pairsmith.data.query_columns import QUERIES_ALONE
from pairsmith.data.readers import TEXT_COLUMNS, read_pairs, two_texts, with_names
from pairsmith.data.sources import Source
from pairsmith.data.splits import to_measure_on
from pairsmith.data.squad import Question, read_questions
from pairsmith.data.sts import read_sts
from pairsmith.data.tagged import TaggedSentence
from pairsmith.methods.dino.evaluation import distinct_texts
from pairsmith.methods.quip.names import tag_after_training
from pairsmith.methods.quip.paraphrase import EPOCHS, fine_tune, last_layers, paraphrase_scores
from pairsmith.metrics.bootstrap import spearman_draws
from pairsmith.models.encode import encode_texts
from pairsmith.models.reader import answer, load_reader
from pairsmith.models.sentence_encoder import load_sentence_encoder
from pairsmith.models.span_encoder import load_span_encoder
from pairsmith.models.span_reader import text_vectors
from pairsmith.models.token_vectors import load_token_encoder
from pairsmith.runs.estimate import Before, Estimate, peak_memory
from pairsmith.steps.evaluate.classification_settings import EvaluateClassificationSettings
from pairsmith.steps.evaluate.mteb import load_encoder, tasks_of, with_mteb
from pairsmith.steps.evaluate.ner import few_and_test, tagger_encoder, tagger_options
from pairsmith.steps.evaluate.qa import answerer
from pairsmith.steps.evaluate.results import at_splits
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
from pairsmith.steps.planning import counted, no_sample, readable, sample_texts, some_passages, spread, timed
from pairsmith.steps.shared import load_options

CALIBRATION_SENTENCES = 512
CALIBRATION_DRAWS = 20
CALIBRATION_QUESTIONS = 128
CALIBRATION_DOCUMENTS = 8
CALIBRATION_PAIRS = 256


def _estimate(seconds: float, size: int = 0) -> Estimate:
    """The estimate for an evaluation whose predictions take ``size`` bytes."""
    return Estimate(seconds=seconds, memory=peak_memory(), disk=4096 + size, rows={})


def plan_evaluate_sts(settings: EvaluateStsSettings, before: Before, base: str = MINILM) -> Estimate:
    """Encode a sample of the sentences; ``base`` stands in for a model that an earlier step will train."""
    suites = read_sts(settings.data, settings.suites or None)
    texts = distinct_texts(suites)
    known = settings.model_copy(update={"model": base}) if settings.model in before else settings
    sample = spread(texts, CALIBRATION_SENTENCES)
    loading, per_text, _ = timed(partial(encoder_of, known, Silent()), sample, settings.batch_size)
    sizes = [len(pairs) for suite in suites for pairs in suite.subsets.values()]
    drawn = sum(sizes) * (1 if len(sizes) == len(suites) else 2)  # the subsets, and each suite as a whole
    values, rng = np.arange(max(sizes, default=1), dtype=np.float64), np.random.default_rng(0)
    begun = time.monotonic()
    spearman_draws(values, values, draws=CALIBRATION_DRAWS, rng=rng)
    draw = (time.monotonic() - begun) / CALIBRATION_DRAWS / len(values)
    times = 3 if settings.against else 1  # for a comparison also those of both encoders on the same pairs
    seconds = loading + per_text * len(texts) + draw * drawn * settings.bootstrap * times
    return _estimate(seconds, sum(sizes) * 250)


def plan_evaluate_retrieval(
    settings: EvaluateRetrievalSettings, before: Before, base: str = MINILM
) -> Estimate:
    """Rank a sample of the documents for some queries, and extrapolate to the number of texts.

    ``base`` stands in for a model that an earlier step will train.
    """
    known = settings.model_copy(update={"model": base}) if settings.model in before else settings
    texts, count, queries = _texts_of_retrieval(settings, before)

    def load() -> Callable[[Sequence[str]], object]:
        search = searcher(known, Silent())
        return lambda some: search(some, some[:1], 1)

    loading, per_text, _ = timed(load, spread(texts, CALIBRATION_SENTENCES))
    return _estimate(loading + per_text * count, queries * (300 + 30 * settings.keep))


_STAND_IN = "A text that stands in for those of the folder."


def _texts_of_retrieval(settings: EvaluateRetrievalSettings, before: Before) -> tuple[list[str], int, int]:
    """A sample of the documents and queries, the number of both together, and the number of queries.

    An earlier step that will make a folder in BEIR's layout does not say how many there will be: none count.
    """
    if not {settings.data, *settings.corpus} & before.keys():
        data = retrieval_data(settings, Silent())
        texts = [*filter(None, data.documents.values()), *data.queries.values()]
        return texts, len(texts), len(data.queries)
    if not settings.corpus:
        return [_STAND_IN], 0, 0
    texts, text_count = some_passages(settings.corpus, before, CALIBRATION_SENTENCES)
    if settings.data in before and before[settings.data].sample is None:
        queries, query_count = list[str](), counted(settings.data, before, 0)
    else:
        queries, query_count = _texts(settings.data, before, lambda: _queries(settings.data), QUERIES_ALONE)
    return [*texts, *queries] or [_STAND_IN], text_count + query_count, query_count


def _queries(source: str) -> list[str]:
    """The distinct queries of a source that exists."""
    examples = read_query_examples(to_measure_on(source, "measured on"))
    return list(dict.fromkeys(example.query for example in examples))


def _texts(
    source: str, before: Before, read: Callable[[], list[str]], names: Sequence[str]
) -> tuple[list[str], int]:
    """The texts that ``read`` returns for a source that exists, or those of an earlier step's sample.

    Those of a sample are in the first of the columns ``names`` that it has. The number of all texts comes
    with them.
    """
    if source not in before:
        texts = read()
        return texts, len(texts)
    sample = before[source].sample
    if sample is None:
        raise no_sample(source)
    return sample_texts(sample, names, source), counted(source, before, 0)


def plan_evaluate_mteb(settings: EvaluateMtebSettings, before: Before, base: str = MINILM) -> Estimate:
    """Encode some sentences and extrapolate to the number of characters in the tasks; no data are fetched."""
    with_mteb()
    from pairsmith.steps.evaluate.mteb_tasks import characters_of, told_in_lines

    known = settings.model_copy(update={"model": base}) if settings.model in before else settings
    # Sentences of the length usual in test sets; their content does not affect the time.
    sample = [
        f"In {year} the old bridge over the river was closed for repairs." for year in range(1800, 2056)
    ]

    def load() -> Callable[[Sequence[str]], object]:
        encoder = load_encoder(known, "", Silent()).model
        return partial(encoder.encode, batch_size=settings.batch_size, show_progress_bar=False)

    with told_in_lines(Silent().say):
        tasks, _ = tasks_of(settings)
        characters = sum(characters_of(task) for task in tasks)
        loading, per_text, _ = timed(load, sample, few=1)
    size = sum(map(len, sample)) / len(sample)
    return _estimate(loading + per_text / size * characters, 4096 * len(tasks))


def plan_evaluate_qa(settings: EvaluateQaSettings, before: Before, base: str = MINILM) -> Estimate:
    """Answer a sample of the questions; ``base`` stands in for a reader that an earlier step will train."""
    settings = at_splits(settings)
    questions = list(read_questions(readable(settings.data, before)))
    count = counted(settings.data, before, len(questions))

    def load() -> Callable[[Sequence[Question]], object]:
        answers: Callable[..., object]
        if settings.model in before:  # a bi-encoder would be quicker than this reader
            reader = load_reader(base, fresh_head=True, **load_options(settings))
            answers = partial(answer, reader, batch_size=settings.batch_size)
        else:
            answers = answerer(settings)
        return lambda some: answers(
            [question.question for question in some],
            [question.context for question in some],
            max_answer_tokens=settings.max_answer_tokens,
        )

    loading, per_question, _ = timed(load, spread(questions, CALIBRATION_QUESTIONS), few=4)
    size = sum(len(question.question) + len(question.context) // 8 for question in questions)
    return _estimate(loading + per_question * count, size * count // len(questions))


def plan_evaluate_summaries(
    settings: EvaluateSummariesSettings, before: Before, base: str = MINILM
) -> Estimate:
    """Summarise a sample of the documents; ``base`` stands in for a model that is still to be trained."""
    settings = at_splits(settings)
    documents = labelled_documents(readable(settings.data, before), settings.limit)
    count = counted(settings.data, before, len(documents))
    count = min(count, settings.limit or count)
    untrained = settings.model in before
    known = settings.model_copy(update={"model": base}) if untrained else settings
    load = partial(summarizer, known, Silent(), fresh_decoder=untrained)
    sample = [document.document for document in spread(documents, CALIBRATION_DOCUMENTS)]
    loading, per_document, _ = timed(load, sample, few=1)
    size = sum(2 * len(document.summary) + 100 for document in documents)
    return _estimate(loading + per_document * count, size * count // len(documents))


def plan_evaluate_paraphrase(
    settings: EvaluateParaphraseSettings, before: Before, base: str = MINILM
) -> Estimate:
    """Score a sample of the pairs; ``base`` stands in for an encoder that is still to be trained."""
    settings = at_splits(settings)
    pairs, count = _some_pairs(settings, before)
    if settings.train and settings.train in before:
        raise no_sample(settings.train)
    judged = 0
    if given := settings.judgements:
        judged = counted(given, before, 0) if given in before else sum(1 for _ in read_pairs(given))
    begun = time.monotonic()
    model = base if settings.model in before else settings.model
    encoder = load_token_encoder(model, **load_options(settings))
    seconds = time.monotonic() - begun
    layers = last_layers(encoder)
    score = partial(
        paraphrase_scores,
        encoder,
        layers=layers,
        special_tokens=settings.special_tokens,
        batch_tokens=settings.batch_tokens,
    )
    warming, per_pair, _ = timed(lambda: score, spread(pairs, CALIBRATION_PAIRS))
    rounds = 1.0
    if settings.train and settings.tune:
        some = training_splits(settings).pairs[settings.splits[0]]
        begun = time.monotonic()
        fine_tune(
            encoder, some, layers, seed=settings.splits[0], special_tokens=settings.special_tokens, epochs=1
        )
        seconds += (time.monotonic() - begun) * EPOCHS * len(settings.splits)
        rounds += len(settings.splits)
    seconds += warming + per_pair * (count * rounds + judged)
    size = sum(len(pair.sentence1) + len(pair.sentence2) + 80 for pair in pairs)
    return _estimate(seconds, size * count // max(1, len(pairs)))


def _some_pairs(settings: EvaluateParaphraseSettings, before: Before) -> tuple[list[Paraphrase], int]:
    """The pairs of existing data, or those of an earlier step's sample, and the number of all."""
    given = readable(settings.data, before)
    if not isinstance(given, Source):
        pairs, _ = labelled_pairs(given, settings.seed)
        return pairs, len(pairs)
    rows = list(with_names(given, ["sentence1"], ["sentence2"]))
    pairs = [Paraphrase(*two_texts(row, names, where), None) for where, row, names in rows]
    count = counted(settings.data, before, len(pairs))
    # Pairs without labels get as many negatives.
    return pairs, count if any("label" in row for _, row, _ in rows) else 2 * count


def plan_evaluate_sentiment(
    settings: EvaluateSentimentSettings, before: Before, base: str = MINILM
) -> Estimate:
    """Encode a sample of the texts; ``base`` stands in for an encoder that is still to be trained."""
    settings = at_splits(settings)
    texts, count = _texts(
        settings.data,
        before,
        lambda: [opinion.text for opinion in labelled_opinions(settings.data)],
        TEXT_COLUMNS,
    )
    untrained = settings.model in before

    def load() -> Callable[[Sequence[str]], object]:
        if not untrained and settings.method == "mask":
            return lambda some: judge(settings, some, Silent())
        model = base if untrained else settings.model
        return partial(
            text_vectors, load_span_encoder(model, fresh_heads=untrained, **load_options(settings))
        )

    with torch.inference_mode():
        loading, per_text, _ = timed(load, spread(texts, CALIBRATION_PAIRS))
    size = sum(len(text) + 120 for text in texts) * count // max(1, len(texts))
    return _estimate(loading + per_text * count, size)


def plan_evaluate_classification(
    settings: EvaluateClassificationSettings, before: Before, base: str = MINILM
) -> Estimate:
    """Encode a sample of the texts, which an earlier step may make; ``base`` stands in for a classifier's."""
    settings = at_splits(settings)
    columns = {"text_column": settings.text_column, "label_column": settings.label_column}
    texts, count = _texts(
        settings.data,
        before,
        lambda: read_labelled_texts(settings.data, **columns).texts,
        [settings.text_column] if settings.text_column else TEXT_COLUMNS,
    )
    model = base if settings.model in before else settings.model

    def load() -> Callable[[Sequence[str]], object]:
        encoder = load_sentence_encoder(model, **load_options(settings))
        return partial(encode_texts, encoder, batch_size=settings.batch_size)

    loading, per_text, _ = timed(load, spread(texts, CALIBRATION_SENTENCES))
    size = sum(len(text) + 80 for text in texts) * count // max(1, len(texts))
    return _estimate(loading + per_text * count, size)


def plan_evaluate_ner(settings: EvaluateNerSettings, before: Before, base: str = MINILM) -> Estimate:
    """Train on one split for a few epochs and tag a sample of sentences, with a random initialisation."""
    settings = at_splits(settings)
    splits, test = few_and_test(settings)
    sample, few = spread(test, CALIBRATION_PAIRS), spread(splits[0], CALIBRATION_PAIRS)
    some = settings.model_copy(update={"model": base}) if settings.model in before else settings

    def seconds_of(epochs: int, sentences: Sequence[TaggedSentence]) -> float:
        begun = time.monotonic()
        options = replace(tagger_options(settings), epochs=epochs)
        encoder = tagger_encoder(some, "random")
        tag_after_training(encoder, few, sentences, None, options, seed=settings.splits[0])
        return time.monotonic() - begun

    first = seconds_of(1, sample[:8])
    short = seconds_of(1, sample[:8])
    epoch = max(0.0, seconds_of(3, sample[:8]) - short) / 2 * len(splits[0]) / len(few)
    tagging = max(0.0, seconds_of(1, sample) - short) * len(test) / len(sample)
    per_training = short + epoch * settings.epochs + tagging
    seconds = first - short + per_training * len(splits) * len(settings.start)
    return _estimate(seconds, sum(30 * len(sentence.words) for sentence in test))
