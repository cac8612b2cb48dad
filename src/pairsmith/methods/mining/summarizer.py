"""Training a summariser on about a hundred summaries, and on mined ones, whose documents are marked (M9).

documents with summaries -> a special token before mined documents -> sequence-to-sequence loss -> summariser;
a decoder-only model reads document, cue and summary in one sequence, with the loss on the summary alone
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pairsmith.core.errors import InputError
from pairsmith.core.model_files import pick_device
from pairsmith.core.progress import Progress
from pairsmith.data.examples import Example
from pairsmith.methods.mining.options import SummarizerOptions
from pairsmith.metrics.rouge import RougeWords, rouge_scores, rouge_warning
from pairsmith.models.added_tokens import add_marker
from pairsmith.models.text_generator import (
    TextGenerator,
    generate_outputs,
    load_text_generator,
    longest_input,
    search_settings,
    shortest_of,
)
from pairsmith.training.checkpoints import Checkpoints
from pairsmith.training.fit import TrainedModel, TrainingTask, same_rows, train_at_each_rate
from pairsmith.training.generators import (
    CausalGeneratorWithLoss,
    EncoderDecoderWithLoss,
    GeneratorRow,
    PromptAndTarget,
    generator_rows,
    refuse_bidirectional_decoder,
)


def generation_example(example: Example, kind: str) -> Example:
    """An example as a generator learns it: for ``reading`` it reads the passage and writes the question."""
    return Example(example.output, example.input) if kind == "reading" else example


def train_summarizer_on(
    seeds: Sequence[Example],
    added: Sequence[Example],
    validation: Sequence[Example],
    options: SummarizerOptions,
    *,
    progress: Progress | None = None,
    checkpoints: Checkpoints | None = None,
) -> TrainedModel[TextGenerator]:
    """Train a summariser at each learning rate, and keep the best one (M9).

    The marker is put before the documents of ``added``, which may be empty. ROUGE-L on ``validation`` chooses
    step and learning rate; without validation examples the last step at the first rate is kept.
    """
    refuse_bidirectional_decoder(options.base)
    if not seeds and not added:
        raise InputError("there are no documents with summaries to learn from; give one or more")
    marker = options.marker if added else ""
    for example in [*seeds, *added, *validation] if marker else ():
        if marker in example.input or marker in example.output:
            raise InputError(
                f"the marker {marker!r} occurs in the document that begins {example.input[:60]!r} or in its "
                "summary; choose a marker that occurs in no text"
            )

    def make() -> tuple[EncoderDecoderWithLoss | DecoderOnlyWithLoss, TrainingTask[GeneratorRow]]:
        generator = load_text_generator(
            options.base,
            options.kind,
            device=pick_device(options.device),
            max_length=options.max_length,
            fresh_decoder=True,
            seed=options.seed,
        )
        if marker:
            add_marker(generator, marker)
        kind = EncoderDecoderWithLoss if generator.cue is None else DecoderOnlyWithLoss
        model = kind(generator, options.label_smoothing)
        rows = generator_rows(generator, seeds, added, marker, options.summary_tokens)
        measure = partial(rouge_l, generator, validation, options) if validation else None
        return model, TrainingTask(len(rows), same_rows(rows), model.batch, measure, "rougeL")

    trained = train_at_each_rate(make, options, progress, checkpoints)
    best = trained.model.generator
    # Saved with the model, so that documents are later cut as in training.
    best.tokenizer.model_max_length = longest_input(best, options.summary_tokens)
    best.model.generation_config = search_settings(
        best, options.beams, options.summary_tokens, shortest_of(options.kind)
    )
    return TrainedModel(best, trained.learning_rate, trained.history)


class DecoderOnlyWithLoss(CausalGeneratorWithLoss):
    """A decoder-only model; called with a batch of rows, it returns the loss on the target texts."""

    def __init__(self, generator: TextGenerator, label_smoothing: float) -> None:
        super().__init__(generator.model, label_smoothing)
        self.generator = generator

    def batch(self, rows: Sequence[GeneratorRow]) -> Mapping[str, Any]:
        """Inputs and target texts in one sequence each, in chunks of sequences of similar length."""
        return self.continuations(
            [PromptAndTarget([*row.input, *row.target], len(row.input)) for row in rows]
        )


def rouge_l(generator: TextGenerator, examples: Sequence[Example], options: SummarizerOptions) -> float:
    """ROUGE-L F, ×100, of the summaries that the model generates for the examples' documents (M9).

    ROUGE counts words of any script if many letters of the examples' summaries are not English.
    """
    written = generate_outputs(
        generator,
        [example.input for example in examples],
        beams=options.beams,
        output_tokens=options.summary_tokens,
        shortest=shortest_of(options.kind),
    )
    references = [example.output for example in examples]
    # Where ROUGE does not see the letters, the figures would all be near 0, and any step as good as another.
    words: RougeWords = "any" if rouge_warning(references) else "english"
    return rouge_scores(written, references, words).mean("rougeL")
