"""Summarisation: ROUGE against human summaries, and the share copied from the documents (M11)."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from pairsmith.core.errors import counted, joined_names
from pairsmith.core.model_names import model_revision
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.documents import Document, read_summarised
from pairsmith.data.text import split_sentences
from pairsmith.metrics.bootstrap import mean_intervals
from pairsmith.metrics.rouge import (
    RougeScores,
    RougeWords,
    abstractiveness,
    check_rouge,
    rouge_scores,
    rouge_warning,
)
from pairsmith.runs.estimate import Before, Estimate
from pairsmith.runs.storage import hash_json
from pairsmith.steps.evaluate.evaluation import Evaluation, extrapolated
from pairsmith.steps.evaluate.figures import Resampled, resampled_means, with_interval
from pairsmith.steps.evaluate.paired import Line, Paired
from pairsmith.steps.evaluate.results import Evaluated
from pairsmith.steps.evaluate.settings import EvaluateSummariesSettings, lead_count
from pairsmith.steps.planning import count_in_run
from pairsmith.steps.shared import load_options

_LABELS = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L", "rougeLsum": "ROUGE-Lsum"}


class _Data(NamedTuple):
    documents: list[Document]
    blank: list[str]  # the locations of the rows without a document, which are left out


def _read(settings: EvaluateSummariesSettings) -> _Data:
    check_rouge()
    blank: list[str] = []
    return _Data(list(islice(read_summarised(settings.data, on_blank=blank.append), settings.limit)), blank)


def _hash(_: EvaluateSummariesSettings, read: Callable[[], _Data]) -> dict[str, str]:
    return {"data": hash_json([[one.id, one.text, one.summary] for one in read().documents])}


def _revision(model: str) -> str:
    return model if lead_count(model) is not None else model_revision(model)


def _compute(settings: EvaluateSummariesSettings, data: _Data, progress: Progress) -> Evaluated:
    documents = data.documents
    if data.blank:
        progress.say(f"left out, as the document is blank or missing: {joined_names(data.blank)}")
    warning = rouge_warning([document.summary for document in documents])
    if warning and settings.words == "english":
        progress.say(warning)
    summaries = summarizer(settings, progress)(documents)
    scores = summary_rouge(summaries, documents, settings.words)
    figures = summary_figures(
        scores, summaries, documents, settings.bootstrap, settings.seed, words=settings.words
    )
    return figures, [
        {"id": document.id, "summary": summary, "reference": document.summary, "rougeL": round(rouge, 4)}
        for document, summary, rouge in zip(documents, summaries, scores.per_text["rougeL"], strict=True)
    ]


def summarizer(
    settings: EvaluateSummariesSettings, progress: Progress, *, untrained: bool = False
) -> Callable[[Sequence[Document]], list[str]]:
    """Load the model, and return a function that summarises documents (``lead:N``: by first sentences).

    An ``untrained`` model gets a decoder if it has none, for plans.
    """
    count = lead_count(settings.model)
    if count is not None:
        return lambda documents: lead_summaries([document.text for document in documents], count)
    from pairsmith.models.text_generator import load_text_generator

    model = load_text_generator(settings.model, fresh_decoder=untrained, **load_options(settings))

    def write(documents: Sequence[Document]) -> list[str]:
        with progress.task("summarize", len(documents), "documents") as bar:
            return model.summarize(
                [document.text for document in documents],
                beams=settings.beams,
                summary_tokens=settings.summary_tokens,
                batch_size=settings.batch_size,
                advance=bar.advance,
            )

    return write


def lead_summaries(documents: Sequence[str], count: int | None) -> list[str]:
    """The first ``count`` sentences of each document, or all with None, each sentence on a line."""
    return ["\n".join(sentence.text for sentence in split_sentences(text)[:count]) for text in documents]


def summary_rouge(
    written: Sequence[str], documents: Sequence[Document], words: RougeWords = "english"
) -> RougeScores:
    """ROUGE F of summaries against the references, with a sentence on each line for ROUGE-Lsum."""
    references = [document.summary for document in documents]
    return rouge_scores(lead_summaries(written, None), lead_summaries(references, None), words)


def summary_figures(
    scores: RougeScores,
    written: Sequence[str],
    documents: Sequence[Document],
    bootstrap: int = 1000,
    seed: int = 0,
    *,
    words: RougeWords = "english",
) -> dict[str, Any]:
    """The figures of ``results.json``: means over one or more documents ×100 (M11).

    - ``rouge1``, ``rouge2``, ``rougeL``, ``rougeLsum``: ROUGE F, each with its 95 % interval (``rouge1_ci``)
      from ``bootstrap`` resamples of the documents;
    - ``count``: the number of documents; ``settings``: the settings of ROUGE;
    - ``abstractiveness``: the ROUGE precision against the documents, that is the share that is copied, of the
      ``written`` summaries and, for comparison, of the ``gold`` summaries.

    ``scores`` are those of ``summary_rouge``; ``written`` are the generated summaries.
    """
    sources = [document.text for document in documents]
    copied = {
        "written": abstractiveness(written, sources, words),
        "gold": abstractiveness([document.summary for document in documents], sources, words),
    }
    figures = _with_intervals(scores, bootstrap, seed)
    figures["settings"]["lines"] = "a sentence each"
    return figures | {
        "abstractiveness": {name: _with_intervals(rouge, bootstrap, seed) for name, rouge in copied.items()}
    }


def summary_table(results: Mapping[str, Any]) -> str:
    """The figures of ``results.json`` as a text table with a line for each kind of ROUGE."""
    written, gold = (results["abstractiveness"][name] for name in ("written", "gold"))
    lines = [counted(results["count"], "documents")]
    lines += [f"{'':<12}{'F ×100 (95 %)':<26}{'share in the document':<26}of human summaries"]
    for name, label in _LABELS.items():
        shares = [with_interval(part, name) if name in part else "" for part in (written, gold)]
        lines.append(f"{label:<12}{with_interval(results, name):<26}{shares[0]:<26}{shares[1]}".rstrip())
    return "\n".join(lines)


def _with_intervals(scores: RougeScores, bootstrap: int, seed: int) -> dict[str, Any]:
    return scores.to_json() | mean_intervals(scores.per_text, bootstrap=bootstrap, seed=seed)


def _plan(settings: EvaluateSummariesSettings, before: Before) -> Estimate:
    """Summarise a sample of the documents."""
    documents = _read(settings).documents
    count = count_in_run(len(documents), [settings.data], before)
    return extrapolated(
        partial(summarizer, settings, Silent(), untrained=settings.model in before),
        documents,
        min(count, settings.limit or count),
        lambda document: 2 * len(document.summary) + 100,
        most=8,
    )


def _rows(_: EvaluateSummariesSettings, data: _Data) -> Iterator[dict[str, Any]]:
    for document in data.documents:
        yield {"id": document.id, "reference": document.summary}


def _resampled(settings: EvaluateSummariesSettings, lines: Iterable[Line]) -> dict[str, Resampled]:
    figures = {"rougeL": [line["rougeL"] for line in lines]}
    return resampled_means(figures, bootstrap=settings.bootstrap, seed=settings.seed)


evaluate_summaries = Evaluation(
    "evaluate summaries",
    _read,
    _compute,
    summary_table,
    _plan,
    Paired("documents", _rows, _resampled, same=("words",)),
    _hash,
    _revision,
)
"""Generates summaries and compares them with the reference summaries.

``results.json`` has what ``summary_figures`` returns. ``predictions.jsonl`` has a line for each document: its
id, the generated summary, the reference summary, and their ROUGE-L (``rougeL``), which ``against`` compares.
"""
