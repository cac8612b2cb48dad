"""Retrieval: does a model rank the documents that are relevant to a query above all other documents?

This step is no ``Evaluation``: a run that was stopped goes on from the document vectors that it saved.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from pairsmith.core.errors import FolderError, ModelError, counted
from pairsmith.core.model_names import GLOVE, model_revision
from pairsmith.core.paths import Place, place
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.beir import RetrievalSet, read_retrieval
from pairsmith.data.chunk_rows import read_query_examples
from pairsmith.data.query_rows import read_query_rows
from pairsmith.data.splits import to_measure_on
from pairsmith.metrics.ranking import MEASURES
from pairsmith.runs import Run, resolve_dtype
from pairsmith.runs.estimate import Before, Estimate
from pairsmith.runs.identity import Identity
from pairsmith.search.bm25 import bm25_revision
from pairsmith.steps.evaluate.evaluation import CALIBRATION_ITEMS, extrapolated, written_by_program
from pairsmith.steps.evaluate.figures import means_and_intervals, resampled_means, with_interval
from pairsmith.steps.evaluate.paired import (
    EarlierEvaluation,
    Predictions,
    paired_differences,
    paired_table,
    warn_of_few,
)
from pairsmith.steps.evaluate.results import Evaluated, evaluate_once
from pairsmith.steps.evaluate.retrieval_settings import BM25, EvaluateRetrievalSettings
from pairsmith.steps.evaluate.retrievers import Rankings, kept_vectors, ranked_grades, retrieve, searcher
from pairsmith.steps.kept_vectors import remove_vectors
from pairsmith.steps.planning import read_first, read_first_passages
from pairsmith.steps.shared import naming_texts, refuse_sources

FiguresOfQueries = Mapping[str, Sequence[float]]
"""For each of ``MEASURES``, the figures of n queries, ×100, in the order of the queries."""

OWN_VECTORS = "vectors-so-far"
"""Folder with the documents' vectors inside the run's folder, until the evaluation is finished."""


def evaluate_retrieval(settings: EvaluateRetrievalSettings, run: Run) -> dict[str, Any]:
    """Rank the documents for each query, write the results into the run's folder, and show a table.

    ``results.json``, whose content is returned, has

    - for each of ``MEASURES``, such as ``ndcg@10``, the mean over the queries ×100 and its 95 % interval
      (``ndcg@10_ci``);
    - the numbers of ``queries`` and ``documents``, and whether a program wrote the queries (``by_program``);
    - ``faults``: the number of queries that could not be used, by reason;
    - with ``against``, under this name: for each measure the difference from the earlier results
      (``paired_differences``).

    ``predictions.jsonl`` has a line for each query, with its figures ×100 and the first documents that were
    retrieved. The documents' vectors are kept in the folder ``vectors`` of the settings or, without it, in
    ``OWN_VECTORS`` until the evaluation is finished.
    """
    settings = resolve_dtype(settings, run)
    if settings.model.startswith(GLOVE):
        raise ModelError(
            f"model {settings.model}: evaluate retrieval does not support GloVe vectors; use evaluate sts"
        )
    revision = bm25_revision() if settings.model == BM25 else model_revision(settings.model)
    data = retrieval_data(settings, run.progress)
    data.tell(run.progress.say)
    if not settings.exclude_own and not settings.corpus:  # with a corpus, queries have no ids of documents
        report_queries_in_corpus(data, run.progress)
    digest = data.digest()
    refuse_sources(run, against=settings.against)
    earlier = earlier_retrieval(settings, data, digest)
    results = evaluate_once(
        run,
        Identity.of("evaluate retrieval", settings.deciding(), {"data": digest}, {"model": revision}),
        settings,
        partial(_compute, settings, data, run, revision),
        table=retrieval_table,
        resumable=settings.model != BM25,
        compare=partial(_compared_with, earlier, settings, data, run),
    )
    remove_vectors(run.out / OWN_VECTORS)
    return results


def check_evaluate_retrieval(settings: EvaluateRetrievalSettings, _labels: Collection[str]) -> None:
    """Read documents, queries and relevance, and raise an error if they or ``against`` have a fault."""
    data = retrieval_data(settings, Silent())
    earlier_retrieval(settings, data, data.digest())


def retrieval_data(settings: EvaluateRetrievalSettings, progress: Progress) -> RetrievalSet:
    """The documents, queries and relevance that the settings name."""
    if settings.corpus:
        data = to_measure_on(settings.data, "measured on", progress.say)
        return read_query_rows(data, settings.corpus, settings.corpus_column, naming_texts("corpus_column"))
    return read_retrieval(settings.data, settings.split, progress.say)


def _compute(settings: EvaluateRetrievalSettings, data: RetrievalSet, run: Run, revision: str) -> Evaluated:
    folder = place(settings.vectors) if settings.vectors else run.out / OWN_VECTORS
    vectors = None if settings.model == BM25 else kept_vectors(settings, folder, revision)
    rankings = retrieve(settings, data.documents, data.queries, run.progress, vectors)
    by_measure = figures_of_queries(data, rankings)
    means = means_and_intervals(by_measure, bootstrap=settings.bootstrap, seed=settings.seed)
    by_program = written_by_program(settings.data, "filter-queries", "queries")
    if by_program and written_by_program(settings.data, "queries"):
        run.progress.say(
            f"{settings.data}: a program wrote these queries; figures on people's queries may differ"
        )
    elif by_program:
        run.progress.say(
            f"{settings.data}: a program wrote these queries, and filter-queries kept those for which its "
            "encoder retrieves the right chunk; similar encoders, but not BM25, have better figures on them "
            "than on people's queries"
        )
    counts = {"queries": len(data.queries), "documents": len(data.documents), "by_program": by_program}
    faults = {fault: len(ids) for fault, ids in data.faults.items()}
    lines = (
        {
            "query": query,
            "text": text,
            **{name: round(figures[row], 4) for name, figures in by_measure.items()},
            "relevant": {name: grade for name, grade in data.relevance[query].items() if grade > 0},
            # With nine digits, any two float32 numbers differ.
            "retrieved": {name: float(f"{score:.9g}") for name, score in rankings.best(row, settings.keep)},
        }
        for row, (query, text) in enumerate(data.queries.items())
    )
    return {**means, **counts, "faults": faults}, lines


def earlier_retrieval(
    settings: EvaluateRetrievalSettings, data: RetrievalSet, digest: str
) -> tuple[EarlierEvaluation, FiguresOfQueries] | None:
    """The evaluation that ``against`` names, with its figures; None if unset.

    ``digest`` is the hash of ``data``.

    Raises:
        FolderError: it was evaluated on other data, or with another ``depth`` or ``exclude_own``.
    """
    if settings.against is None:
        return None
    earlier = EarlierEvaluation.open(settings.against, "evaluate retrieval")
    if earlier.record.inputs.get("data") != digest:
        raise FolderError(
            f"{earlier.option}: measured on other queries, documents or relevance (there "
            f"{earlier.results['queries']:,} queries, {earlier.results['documents']:,} documents; "
            f"here {len(data.queries):,} queries, {len(data.documents):,} documents); give a result on "
            "the same data, or first evaluate its model on these data"
        )
    earlier.check_settings(settings, ("depth", "exclude_own"))
    return earlier, figures_in(earlier.folder, list(data.queries))


def figures_in(folder: Place, queries: Sequence[str]) -> FiguresOfQueries:
    """The figures of ``queries``, in this order, from the predictions in the folder of an evaluation."""
    rows = {row["query"]: [float(row[name]) for name in MEASURES] for row in Predictions(folder)}
    return {name: [rows[query][column] for query in queries] for column, name in enumerate(MEASURES)}


def _compared_with(
    opened: tuple[EarlierEvaluation, FiguresOfQueries] | None,
    settings: EvaluateRetrievalSettings,
    data: RetrievalSet,
    run: Run,
) -> dict[str, Any] | None:
    """The comparison with the earlier evaluation; None if there is none."""
    if opened is None:
        return None
    earlier, earlier_figures = opened
    warn_of_few(len(data.queries), "queries", run)
    own, others = (
        resampled_means(figures, bootstrap=settings.bootstrap, seed=settings.seed)
        for figures in (figures_in(run.out, list(data.queries)), earlier_figures)
    )
    return earlier.to_json() | paired_differences(own, others)


def figures_of_queries(data: RetrievalSet, rankings: Rankings) -> dict[str, list[float]]:
    """For each of ``MEASURES``, the figures of all queries, ×100."""
    relevance = list(data.relevance.values())
    judged = [np.array(list(grades.values()), np.int64) for grades in relevance]
    grades_of_queries = list(zip(ranked_grades(rankings, relevance), judged, strict=True))
    return {
        name: [100.0 * measure(ranked, grades) for ranked, grades in grades_of_queries]
        for name, measure in MEASURES.items()
    }


def report_queries_in_corpus(data: RetrievalSet, progress: Progress) -> None:
    """Report the number of queries that are also documents, which any search ranks first."""
    in_corpus = [
        query for query, text in data.queries.items() if data.documents.get(query, "").endswith(text)
    ]
    if in_corpus:
        progress.say(
            f"{data.name}: {len(in_corpus):,} of {len(data.queries):,} queries are also documents, with the "
            f"same id and text ({in_corpus[0]}); --exclude-own removes them from their queries' rankings"
        )


def retrieval_table(results: Mapping[str, Any]) -> str:
    """The figures of ``results.json`` as a text table with a line for each measure."""
    head = f"{counted(results['queries'], 'queries')}, {counted(results['documents'], 'documents')}"
    lines = [f"{name:<14}{with_interval(results, name)}" for name in MEASURES]
    comparison = []
    if against := results.get("against"):
        comparison = [paired_table(against, "queries")]
    return "\n".join([head, f"{'measure':<14}{'×100':>6}  (95 %)", *lines, *comparison])


def plan_evaluate_retrieval(settings: EvaluateRetrievalSettings, before: Before) -> Estimate:
    """Rank a sample of the documents for some queries, and extrapolate to the number of texts."""

    def read(source: str) -> Iterable[str]:
        examples = read_query_examples(to_measure_on(source, "measured on"))
        return dict.fromkeys(example.query for example in examples)

    def load() -> Callable[[Sequence[str]], object]:
        search = searcher(settings, Silent())
        return lambda sample: search(
            dict(zip(map(str, range(len(sample))), sample, strict=True)), sample[:1], 1
        )

    if before.keys().isdisjoint({settings.data, *settings.corpus}):
        data = retrieval_data(settings, Silent())
        documents, queries = [*filter(None, data.documents.values())], [*data.queries.values()]
        document_count, query_count = len(documents), len(queries)
    elif settings.corpus:
        documents, document_count = read_first_passages(
            settings.corpus, before, CALIBRATION_ITEMS, settings.corpus_column
        )
        queries, query_count = read_first([settings.data], read, before, CALIBRATION_ITEMS)
    else:  # an earlier step will make a folder in BEIR's layout, with an unknown number of texts
        documents, document_count, queries, query_count = [], 0, [], 0
    return extrapolated(
        load,
        [*documents, *queries] or ["A text that stands in for those of an earlier step."],
        document_count + query_count,
        query_count * (300 + 30 * settings.keep),
        documents=document_count,
    )
