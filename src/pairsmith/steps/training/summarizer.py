"""The step ``train-summarizer``: a summariser trained on a hundred seeds and on mined pairs (M9)."""

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from pairsmith.core.citations import MINING
from pairsmith.data.examples import Example, example_of, summary_examples
from pairsmith.methods.mining.summarizer import generation_example, train_summarizer_on
from pairsmith.metrics.rouge import check_rouge
from pairsmith.steps.training.card import HubModel
from pairsmith.steps.training.reading import (
    AnsweredQuestions,
    SeedData,
    read_seeds,
    read_validation,
    without_repeats,
)
from pairsmith.steps.training.settings import TrainSummarizerSettings
from pairsmith.steps.training.step import Trained, TrainingContext, TrainingStep
from pairsmith.training.generators import refuse_both_ways

_TITLES = {
    "summaries": "A model that writes summaries of documents",
    "reading": "A model that writes questions to answers in passages",
}

_USE = """```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

model = AutoModelForSeq2SeqLM.from_pretrained("path/to/this/folder")
tokenizer = AutoTokenizer.from_pretrained("path/to/this/folder")
inputs = tokenizer("{text}", truncation=True, return_tensors="pt")
print(tokenizer.decode(model.generate(**inputs)[0], skip_special_tokens=True))
```"""
_CONTINUE = """```python
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("path/to/this/folder")
tokenizer = AutoTokenizer.from_pretrained("path/to/this/folder")
read = tokenizer("{text}", truncation=True)["input_ids"]
read += tokenizer({cue}, add_special_tokens=False)["input_ids"]
ids = torch.tensor([read])
written = model.generate(ids, attention_mask=torch.ones_like(ids))[0, len(read) :]
print(tokenizer.decode(written, skip_special_tokens=True).strip())
```"""
_READ = {"summaries": "A long document …", "reading": "the answer: The passage that contains the answer."}


def _read(settings: TrainSummarizerSettings, _: int | None) -> SeedData[Example]:
    if settings.validation:
        check_rouge()
    refuse_both_ways(settings.base)
    seeds = read_seeds(settings.seeds, settings.kind)
    seed_examples = [generation_example(example, settings.kind) for example in seeds.examples]
    seeds = replace(seeds, examples=seed_examples)
    examples, left_out = read_validation(settings.validation, settings.kind)
    validation = [generation_example(example, settings.kind) for example in examples]
    added = added_examples(settings, [*seeds.examples, *validation])
    return SeedData(seeds, validation, added.examples, left_out, added.repeats, added.unanswered, added.blank)


def _train(data: SeedData[Example], settings: TrainSummarizerSettings, context: TrainingContext) -> Trained:
    what = "questions" if settings.kind == "reading" else "documents"
    data.report(context["progress"], settings.extra, what)
    trained = train_summarizer_on(data.seeds.examples, data.added, data.validation, settings, **context)
    has_marker = data.added and settings.marker
    facts = {
        **data.seeds.facts(),
        **data.added_facts("examples"),
        "marker before added inputs": f"`{settings.marker}`" if has_marker else "none",
        "validation examples": len(data.validation),
    }
    cue = trained.model.cue
    use = (_USE if cue is None else _CONTINUE).format(text=_READ[settings.kind], cue=json.dumps(cue))
    hub = HubModel("transformers", "summarization" if settings.kind == "summaries" else "text-generation")
    return Trained.transformer(_TITLES[settings.kind], use, hub, trained, facts)


train_summarizer = TrainingStep("train-summarizer", ("seeds", "validation", "added"), _read, _train, MINING)
"""Trains a summariser on seeds and added documents. ``AutoModelForSeq2SeqLM`` opens the folder, or
``AutoModelForCausalLM`` for a decoder-only base; it contains the settings for generating summaries."""


class AddedExamples(NamedTuple):
    """Examples that are added to the seeds, and the numbers of those that were left out."""

    examples: list[Example]
    repeats: int  # documents that are used already
    unanswered: int  # questions without an answer
    blank: int  # documents that are blank or missing, or whose summaries are


def added_examples(settings: TrainSummarizerSettings, excluded: Sequence[Example]) -> AddedExamples:
    """The first ``extra`` examples of the sources in ``added``, in order; all if ``extra`` is None.

    A document is used once, and not at all if an example in ``excluded`` has it: seeds have better summaries,
    and validation documents must not be trained on. Questions without an answer, and documents that are blank
    or have no summary, are left out, too.
    """
    answered, blank = AnsweredQuestions(), list[str]()
    originals = chain.from_iterable(
        map(example_of, answered.read(source))
        if settings.kind == "reading"
        else summary_examples(source, blank.append)
        for source in settings.added
    )
    examples = (generation_example(original, settings.kind) for original in originals)
    added, repeats = without_repeats(examples, lambda one: one.input, excluded, settings.extra, once=True)
    return AddedExamples(added, repeats, answered.unanswered, len(blank))
