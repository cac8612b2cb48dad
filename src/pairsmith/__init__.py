"""Labelled training data from instructions, seed pairs or questions, and the small models trained on it.

Everything in ``__all__`` can be imported from here; it is loaded when it is first asked for.
"""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False  # importing typing takes a moment, in which Ctrl-C would print a traceback
if TYPE_CHECKING:
    from typing import Any

    from pairsmith.api import (
        evaluate_classification,
        evaluate_sts,
        make_training_set,
        open_dataset,
        run_recipe,
        train_classifier,
        train_encoder,
        train_tagger,
    )
    from pairsmith.data.tasks.loading import load_task
    from pairsmith.methods.dino.method import generate_pairs, generate_texts
    from pairsmith.methods.mining.method import mine_pairs
    from pairsmith.methods.quip.generators import load_question_generator
    from pairsmith.methods.quip.method import (
        answer_with_student,
        distil,
        generate_questions,
        label_questions,
    )
    from pairsmith.methods.retrieval.negatives import find_hard_negatives
    from pairsmith.models.classifier import load_classifier
    from pairsmith.models.language.loading import load_model as load_language_model
    from pairsmith.models.reader import load_reader
    from pairsmith.models.sentence_encoder import load_sentence_encoder as load_encoder
    from pairsmith.models.span_encoder import load_span_encoder as load_student
    from pairsmith.models.summarizer import load_summarizer
    from pairsmith.models.tagger import load_tagger

__version__ = "0.1.0"

__all__ = [
    "__version__",
    "answer_with_student",
    "distil",
    "evaluate_classification",
    "evaluate_sts",
    "find_hard_negatives",
    "generate_pairs",
    "generate_questions",
    "generate_texts",
    "label_questions",
    "load_classifier",
    "load_encoder",
    "load_language_model",
    "load_question_generator",
    "load_reader",
    "load_student",
    "load_summarizer",
    "load_tagger",
    "load_task",
    "make_training_set",
    "mine_pairs",
    "open_dataset",
    "run_recipe",
    "train_classifier",
    "train_encoder",
    "train_tagger",
]

# Where each is defined: the module, and the name there.
_HOMES = {
    "answer_with_student": ("pairsmith.methods.quip.method", "answer_with_student"),
    "distil": ("pairsmith.methods.quip.method", "distil"),
    "evaluate_classification": ("pairsmith.api", "evaluate_classification"),
    "evaluate_sts": ("pairsmith.api", "evaluate_sts"),
    "find_hard_negatives": ("pairsmith.methods.retrieval.negatives", "find_hard_negatives"),
    "generate_pairs": ("pairsmith.methods.dino.method", "generate_pairs"),
    "generate_questions": ("pairsmith.methods.quip.method", "generate_questions"),
    "generate_texts": ("pairsmith.methods.dino.method", "generate_texts"),
    "label_questions": ("pairsmith.methods.quip.method", "label_questions"),
    "load_classifier": ("pairsmith.models.classifier", "load_classifier"),
    "load_encoder": ("pairsmith.models.sentence_encoder", "load_sentence_encoder"),
    "load_language_model": ("pairsmith.models.language.loading", "load_model"),
    "load_question_generator": ("pairsmith.methods.quip.generators", "load_question_generator"),
    "load_reader": ("pairsmith.models.reader", "load_reader"),
    "load_student": ("pairsmith.models.span_encoder", "load_span_encoder"),
    "load_summarizer": ("pairsmith.models.summarizer", "load_summarizer"),
    "load_tagger": ("pairsmith.models.tagger", "load_tagger"),
    "load_task": ("pairsmith.data.tasks.loading", "load_task"),
    "make_training_set": ("pairsmith.api", "make_training_set"),
    "mine_pairs": ("pairsmith.methods.mining.method", "mine_pairs"),
    "open_dataset": ("pairsmith.api", "open_dataset"),
    "run_recipe": ("pairsmith.api", "run_recipe"),
    "train_classifier": ("pairsmith.api", "train_classifier"),
    "train_encoder": ("pairsmith.api", "train_encoder"),
    "train_tagger": ("pairsmith.api", "train_tagger"),
}


# The modules that functions import when they are called, and that take seconds to import.
_IMPORTED_WHEN_CALLED = {
    "distil": "pairsmith.methods.quip.student",
    "load_language_model": "transformers.modeling_utils",
    "load_reader": "transformers.modeling_utils",
    "load_student": "transformers.modeling_utils",
    "load_summarizer": "transformers.modeling_utils",
    "load_tagger": "transformers.modeling_utils",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is asked for: the libraries behind it take seconds (``import_whole``)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'pairsmith' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    needed = {module, _IMPORTED_WHEN_CALLED.get(name, module)}
    if not needed <= sys.modules.keys():
        from pairsmith.core.stop_signals import import_whole

        import_whole(*needed)
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
