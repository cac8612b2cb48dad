"""The model card: what an encoder was trained on and how, for a reader who has never heard of pairsmith."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from pairsmith.bundled import is_bundled
from pairsmith.citations import CITATION
from pairsmith.modelnames import EMBEDDED, is_hub_id
from pairsmith.runs import DatasetFolder
from pairsmith.training.settings import FitSettings, TrainEncoderSettings
from pairsmith.training.watch import Training

_USE = """```python
from sentence_transformers import SentenceTransformer

encoder = SentenceTransformer("path/to/this/folder")
vectors = encoder.encode(["A man plays a guitar.", "Someone makes music."])
print(encoder.similarity(vectors, vectors))
```"""


def encoder_card(settings: TrainEncoderSettings, data: DatasetFolder, training: Mapping[str, Any]) -> str:
    """README.md of a trained encoder: metadata for the Hub, then the text.

    Args:
        settings: what it was trained with.
        data: what it was trained on.
        training: how it went (``Training.to_json``).
    """
    base = _base_name(settings.base)
    sections = [
        f"---\n{_metadata(settings)}---\n\n# Sentence encoder trained by pairsmith",
        f"A sentence encoder that started from `{base}` and was trained so that the cosine similarity of "
        "two sentences' vectors comes close to the score of the pair.",
        _USE,
        _data(data),
        _training(settings, training),
        f"## Please cite\n\n- {CITATION}",
    ]
    return "\n\n".join(sections) + "\n"


def _metadata(settings: TrainEncoderSettings) -> str:
    values: dict[str, Any] = {
        "library_name": "sentence-transformers",
        "pipeline_tag": "sentence-similarity",
        "tags": ["pairsmith", "sentence-transformers", "sentence-similarity", "feature-extraction"],
    }
    if is_hub_id(settings.base):
        values["base_model"] = settings.base
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=10_000)


def _data(data: DatasetFolder) -> str:
    manifest = data.manifest
    rows = "\n".join(f"| {split} | {count:,} |" for split, count in data.split_rows.items())
    models = "".join(f"\n- {name}: `{revision}`" for name, revision in manifest.models.items())
    return (
        f"## Training data\n\nThe dataset folder `{data.path.resolve().name}`, last step `{manifest.step}`, "
        f"fingerprint `{manifest.fingerprint[:16]}`.{models}\n\n| split | pairs |\n|---|---|\n{rows}"
    )


def _training(settings: TrainEncoderSettings, training: Mapping[str, Any]) -> str:
    curve = training["validation"]
    text = (
        f"## Training\n\n{training['steps']:,} steps of {settings.batch_size} pairs, learning rate "
        f"{settings.learning_rate:g} with a linear warm-up over {settings.warmup:.0%} of the steps, "
        f"weight decay {settings.weight_decay:g}, seed {settings.seed}. "
    )
    if not curve:
        return text + "There were no validation pairs to choose a step by; the weights are those of the last."
    text += (
        f"The weights are those of step {training['best_step']:,}, chosen by Spearman's correlation (×100) "
        "on the validation pairs, whose scores come from the training data's maker and not from people:"
    )
    rows = "\n".join(f"| {point['step']:,} | {_figure(point['spearman'])} |" for point in curve)
    return f"{text}\n\n| step | validation |\n|---|---|\n{rows}"


def _figure(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.2f}"


def _base_name(base: str) -> str:
    """What to call the base: a Hub id or one of our names as it is, a folder by its last name."""
    if is_hub_id(base) or is_bundled(base) or base.startswith(EMBEDDED):
        return base
    return Path(base).expanduser().resolve().name


def few_shot_card(
    title: str, use: str, settings: FitSettings, facts: Mapping[str, object], training: Training
) -> str:
    """README.md of a model that was trained on seeds.

    Args:
        title: what it is.
        use: how to use it, in Markdown.
        settings: what it was trained with.
        facts: what a reader should know of the data, by name.
        training: how it went.
    """
    metadata: dict[str, Any] = {"tags": ["pairsmith"]}
    if is_hub_id(settings.base):
        metadata["base_model"] = settings.base
    lines = "\n".join(f"| {name} | {value} |" for name, value in facts.items())
    text = (
        f"---\n{yaml.safe_dump(metadata, sort_keys=False)}---\n\n# {title}\n\n"
        f"It started from `{_base_name(settings.base)}` and was trained by pairsmith on what the table below "
        f"says; seeds are labelled by people.\n\n{use}\n\n## Training\n\n| | |\n|---|---|\n{lines}\n\n"
        f"{training.steps:,} steps of {settings.batch_size} examples, seed {settings.seed}. "
    )
    if not training.validation:
        return (
            text
            + "There were no validation examples to choose a step by; the weights are those of the last.\n"
        )
    rows = "\n".join(f"| {step:,} | {_figure(figure)} |" for step, figure in training.validation.items())
    return (
        f"{text}The weights are those of step {training.best_step:,}, chosen by the {training.metric} (×100) "
        f"on the validation examples:\n\n| step | {training.metric} |\n|---|---|\n{rows}\n"
    )
