"""The summariser: trained on a hundred summaries and on mined ones, which are marked (M9).

documents with summaries -> a special token before mined documents -> sequence-to-sequence loss -> summariser
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from pairsmith.core.errors import InputError, ModelError
from pairsmith.core.progress import Progress
from pairsmith.data.examples import Example
from pairsmith.metrics.rouge import rouge_scores
from pairsmith.models.encode import padded
from pairsmith.models.summarizer import (
    Summarizer,
    add_marker,
    document_features,
    encode_documents,
    encode_summaries,
    load_summarizer,
    search_settings,
    shortest_of,
    summarize,
)
from pairsmith.training.best_step import TrainingHistory
from pairsmith.training.checkpoints import Checkpoints
from pairsmith.training.chunks import chunked
from pairsmith.training.fit import TrainingTask, fit_each_rate
from pairsmith.training.settings import TrainSummarizerSettings
from pairsmith.training.target_tokens import IGNORED, Writer, chunks_of


def turned(example: Example, kind: str) -> Example:
    """The example with the text to write as output, which for kind ``reading`` is the question."""
    return Example(example.output, example.input) if kind == "reading" else example


@dataclass(frozen=True, slots=True)
class Figure:
    """A metric, ×100, that is computed on batches of validation examples, and its name."""

    name: str
    measure: "Callable[[WithLoss, Sequence[Mapping[str, Tensor]]], float]"


@dataclass(frozen=True, slots=True)
class Row:
    """The tokens of a document, and those of its summary."""

    document: Sequence[int]
    summary: Sequence[int]


def train_summarizer_on(
    seeds: Sequence[Example],
    added: Sequence[Example],
    validation: Sequence[Example],
    settings: TrainSummarizerSettings,
    device: str,
    *,
    written_marker: str = "",
    figure: Figure | None = None,
    progress: Progress | None = None,
    checkpoints: Checkpoints | None = None,
) -> tuple[Summarizer, float, TrainingHistory]:
    """Train a summariser at each learning rate, and keep the best.

    Args:
        seeds: documents with their summaries.
        added: mined documents with summaries, which get the marker; may be empty.
        validation: documents by whose ROUGE-L the best step and rate are chosen; may be empty.
        settings: of its paths only ``base`` is read here.
        device: ``cpu``, ``cuda`` or ``mps``.
        written_marker: a special token that occurs in the target texts.
        figure: a metric to choose by instead of ROUGE-L.
        progress: where progress is shown.
        checkpoints: where checkpoints are kept.
    """
    if not seeds and not added:
        raise InputError("there are no documents with summaries to learn from; give one or more")
    marker = settings.marker if added else ""
    if marker:
        _refuse_marked([*seeds, *added, *validation], marker)

    def make() -> WithLoss:
        summarizer = load_summarizer(
            settings.base,
            device=device,
            max_length=settings.max_length,
            fresh_decoder=True,
            seed=settings.seed,
        )
        if marker:
            add_marker(summarizer, marker)
        if written_marker:
            add_marker(summarizer, written_marker, written=True)
        return WithLoss(summarizer, settings.label_smoothing)

    def lesson(model: WithLoss) -> TrainingTask[Row]:
        summarizer = model.summarizer
        rows = rows_of(summarizer, seeds, added, marker, settings.summary_tokens)

        def draw(number: int, _: int, __: np.random.Generator) -> Row:
            return rows[number]

        measure = None
        if validation and figure:
            unseen = rows_of(summarizer, validation, [], "", settings.summary_tokens)
            measure = partial(figure.measure, model, chunks_of(unseen, partial(_batch, summarizer)))
        elif validation:
            measure = partial(rouge_l, summarizer, validation, settings)
        return TrainingTask(len(rows), draw, partial(_batch, summarizer), measure)

    model, rate, training = fit_each_rate(
        make,
        lesson,
        settings,
        metric=figure.name if figure else "rougeL",
        device=device,
        progress=progress,
        checkpoints=checkpoints,
    )
    best = model.summarizer
    best.model.generation_config = search_settings(
        best, settings.beams, settings.summary_tokens, shortest_of(settings.kind)
    )
    return best, rate, training


def _refuse_marked(examples: Sequence[Example], marker: str) -> None:
    for example in examples:
        if marker in example.input or marker in example.output:
            raise InputError(
                f"the marker {marker!r} occurs in the document that begins {example.input[:60]!r} or in its "
                "summary; choose a --marker that occurs in none"
            )


def rows_of(
    summarizer: Summarizer, seeds: Sequence[Example], added: Sequence[Example], marker: str, tokens: int
) -> list[Row]:
    """The seeds, then the added pairs with the marker before their documents (M9)."""
    examples = [*seeds, *added]
    texts = [example.input for example in seeds] + [marker + example.input for example in added]
    summaries = encode_summaries(summarizer, [example.output for example in examples], tokens)
    return [Row(*row) for row in zip(encode_documents(summarizer, texts), summaries, strict=True)]


def _batch(summarizer: Summarizer, rows: Sequence[Row]) -> Mapping[str, Any]:
    """Documents with the labels of their summaries, in chunks of documents of similar length."""

    def features(numbers: list[int]) -> dict[str, Tensor]:
        some = [rows[number] for number in numbers]
        labels = padded([row.summary for row in some], IGNORED)
        return {**document_features(summarizer, [row.document for row in some]), "labels": labels}

    lengths = [len(row.document) for row in rows]
    return {"pairs": chunked(lengths, features, summarizer.model.device).as_inputs()}


class WithLoss(Writer):
    """A summariser's model; called with a batch of documents and summaries, it returns the loss."""

    def __init__(self, summarizer: Summarizer, label_smoothing: float) -> None:
        super().__init__(summarizer.model, label_smoothing)
        self.summarizer = summarizer
        if not hasattr(self.model, "prepare_decoder_input_ids_from_labels"):
            raise ModelError(
                f"models of type {self.model.config.model_type} cannot be trained as summarisers here; give "
                "BART, T5 or the like as --base"
            )

    def logits(self, chunk: Mapping[str, Tensor]) -> Tensor:
        """The logits for each token of the summaries, given those before it: ``(n, tokens, vocabulary)``."""
        found: Tensor = self.model(
            input_ids=chunk["input_ids"],
            attention_mask=chunk["attention_mask"],
            decoder_input_ids=self.model.prepare_decoder_input_ids_from_labels(chunk["labels"]),
            use_cache=False,
        ).logits
        return found


def rouge_l(summarizer: Summarizer, examples: Sequence[Example], settings: TrainSummarizerSettings) -> float:
    """ROUGE-L F, ×100, of the summaries that the model generates for the examples' documents (M9)."""
    written = summarize(
        summarizer,
        [example.input for example in examples],
        beams=settings.beams,
        summary_tokens=settings.summary_tokens,
        shortest=shortest_of(settings.kind),
    )
    return rouge_scores(written, [example.output for example in examples]).rouge_l
