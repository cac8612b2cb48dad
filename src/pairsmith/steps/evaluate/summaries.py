"""Summarisation: ROUGE against human summaries, and how much is copied from the documents (M11)."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from pairsmith.core.errors import InputError
from pairsmith.core.model_names import model_revision
from pairsmith.core.progress import Progress
from pairsmith.data.documents import Document, read_documents
from pairsmith.data.text import split_sentences
from pairsmith.metrics.rouge import RougeScores, abstractiveness, check_rouge, rouge_scores
from pairsmith.runs import Run, settled
from pairsmith.runs.storage import JSON, canonical_json, hash_bytes
from pairsmith.steps.evaluate.lead import lead_count, lead_summaries
from pairsmith.steps.evaluate.results import (
    Figures,
    Predictions,
    at_splits,
    evaluate_once,
    mean_intervals,
    with_interval,
)
from pairsmith.steps.evaluate.settings import EvaluateSummariesSettings

STEP = "evaluate summaries"
# The data are identified by their documents; the other settings change no figure.
_LABELS = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L", "rougeLsum": "ROUGE-Lsum"}


def evaluate_summaries(settings: EvaluateSummariesSettings, run: Run) -> dict[str, Any]:
    """Generate summaries, compare them with the reference summaries, and show a table.

    ``results.json`` and ``predictions.jsonl`` (id, summary, reference, rougeL) are written into the run's
    folder. Existing results of the same settings, model and documents are returned; ``run.fresh`` computes
    them again.

    Returns:
        The content of ``results.json``: see ``summary_figures``, and ``about``.
    """
    settings = at_splits(settled(settings, run), run.progress.say)
    check_rouge()
    documents = labelled_documents(settings.data, settings.limit)

    def compute() -> tuple[Figures, Predictions]:
        written = write_summaries(settings, [each.document for each in documents], run.progress)
        scores = compare(written, documents)
        figures = summary_figures(scores, written, documents, settings.bootstrap, settings.seed)
        return figures, _predictions(documents, written, scores)

    results = evaluate_once(
        run,
        STEP,
        settings,
        inputs={"data": _hash_documents(documents)},
        models={"model": _revision(settings.model)},
        compute=compute,
    )
    run.progress.result(summary_table(results))
    return results


def labelled_documents(source: str, limit: int | None = None) -> list[Document]:
    """The first ``limit`` documents of ``source``, each with a summary."""
    documents = list(islice(read_documents(source), limit))
    for each in documents:
        if not each.summary:
            raise InputError(
                f"{each.where}: the summary is blank or missing; give one to compare with, or drop the row"
            )
    return documents


def write_summaries(
    settings: EvaluateSummariesSettings,
    documents: Sequence[str],
    progress: Progress,
    *,
    fresh_decoder: bool = False,
) -> list[str]:
    """The summary of each document by the model of ``settings``, or its first sentences (``lead:N``).

    With ``fresh_decoder`` a model without a decoder gets an untrained one, to measure the time.
    """
    sentences = lead_count(settings.model)
    if sentences is not None:
        return lead_summaries(documents, sentences)
    from pairsmith.models.summarizer import load_summarizer, summarize

    summarizer = load_summarizer(
        settings.model,
        device=settings.device,
        dtype=settings.dtype,
        max_length=settings.max_length,
        fresh_decoder=fresh_decoder,
    )
    with progress.task("summarize", len(documents), "documents") as bar:
        return summarize(
            summarizer,
            documents,
            beams=settings.beams,
            summary_tokens=settings.summary_tokens,
            batch_size=settings.batch_size,
            advance=bar.advance,
        )


def compare(written: Sequence[str], documents: Sequence[Document]) -> RougeScores:
    """ROUGE F of summaries against the reference summaries, with one sentence a line for ROUGE-Lsum."""
    references = [each.summary for each in documents]
    return rouge_scores(*([_sentence_a_line(text) for text in texts] for texts in (written, references)))


def summary_figures(
    scores: RougeScores,
    written: Sequence[str],
    documents: Sequence[Document],
    bootstrap: int = 1000,
    seed: int = 0,
) -> dict[str, Any]:
    """The figures of ``results.json``: means over the documents ×100 (M11).

    Args:
        scores: the output of ``compare``.
        written: the generated summary of each document.
        documents: one or more documents with their summaries.
        bootstrap: resamples of the documents behind the 95 % intervals; 0 for no intervals.
        seed: seed of the resamples.

    Returns:
        ``rouge1``, ``rouge2``, ``rougeL``, ``rougeLsum``, F, each with its interval (``rouge1_ci``);
        ``count`` of documents; ``settings`` of ROUGE; ``abstractiveness``: ROUGE precision of the
        ``written`` summaries and, for comparison, of the ``gold`` ones against their documents.
    """
    sources = [each.document for each in documents]
    copied = {
        "written": abstractiveness(written, sources),
        "gold": abstractiveness([each.summary for each in documents], sources),
    }
    figures = _with_intervals(scores, bootstrap, seed)
    figures["settings"]["lines"] = "a sentence each"
    return figures | {
        "abstractiveness": {name: _with_intervals(found, bootstrap, seed) for name, found in copied.items()}
    }


def summary_table(results: Mapping[str, Any]) -> str:
    """The figures of ``results.json`` as a plain table, a line for each kind of ROUGE."""
    written, gold = (results["abstractiveness"][name] for name in ("written", "gold"))
    lines = [f"{results['count']:,} documents"]
    lines += [f"{'':<12}{'F ×100 (95 %)':<26}{'share in the document':<26}of human summaries"]
    for name, label in _LABELS.items():
        shares = [with_interval(part, name) if name in part else "" for part in (written, gold)]
        lines.append(f"{label:<12}{with_interval(results, name):<26}{shares[0]:<26}{shares[1]}".rstrip())
    return "\n".join(lines)


def _with_intervals(scores: RougeScores, bootstrap: int, seed: int) -> dict[str, Any]:
    return scores.to_json() | mean_intervals(scores.each, bootstrap=bootstrap, seed=seed)


def _sentence_a_line(text: str) -> str:
    return "\n".join(each.text for each in split_sentences(text))


def _predictions(
    documents: Sequence[Document], written: Sequence[str], scores: RougeScores
) -> list[dict[str, JSON]]:
    """The lines of ``predictions.jsonl``."""
    return [
        {"id": each.id, "summary": summary, "reference": each.summary, "rougeL": round(figure, 4)}
        for each, summary, figure in zip(documents, written, scores.each["rougeL"], strict=True)
    ]


def _revision(model: str) -> str:
    return model if lead_count(model) is not None else model_revision(model)


def _hash_documents(documents: Sequence[Document]) -> str:
    """SHA-256 of the documents, whatever their file format."""
    rows: JSON = [[each.id, each.document, each.summary] for each in documents]
    return hash_bytes(canonical_json(rows).encode())
