"""The model card: what a model was trained on and how, for readers who do not know pairsmith."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from pairsmith import __version__
from pairsmith.core.bundled import is_bundled
from pairsmith.core.errors import counted
from pairsmith.core.gguf import SMOLLM2, hub_repository, is_gguf
from pairsmith.core.model_names import EMBEDDED, MINILM, is_hub_id
from pairsmith.core.paths import place
from pairsmith.runs import Sources, model_display_name
from pairsmith.runs.attribution import card_of, displayed_options
from pairsmith.runs.card import cite, licences, limits, repeat
from pairsmith.runs.provenance import hub_data, hub_metadata
from pairsmith.steps.training.settings import TrainClassifierSettings, TrainingSettings
from pairsmith.training.folder import ModelFolder

if TYPE_CHECKING:
    from pairsmith.steps.training.step import Trained


class HubModel(NamedTuple):
    """What the Hub is told about a trained model: the library that opens it, its task, and tags."""

    library: str
    task: str
    tags: tuple[str, ...] = ()


SENTENCE_ENCODER = HubModel(
    "sentence-transformers",
    "sentence-similarity",
    ("sentence-transformers", "sentence-similarity", "feature-extraction"),
)
# AutoModel opens such an encoder; a question-answering pipeline would not find the heads beside it.
ANSWERING_ENCODER = HubModel("transformers", "feature-extraction", ("question-answering",))
TAGGER = HubModel("transformers", "token-classification", ("token-classification",))
_CLASSIFIER = HubModel(
    "sentence-transformers", "text-classification", ("sentence-transformers", "text-classification")
)

_EMBEDDED = {
    MINILM: "sentence-transformers/all-MiniLM-L6-v2",
    SMOLLM2: "HuggingFaceTB/SmolLM2-135M-Instruct",
}
"""The Hub ids of the embedded models."""

_MEASURES = {"spearman": "Spearman correlation", "rougeL": "ROUGE-L", "ndcg@10": "nDCG@10"}
"""The usual names of validation measures that the training's record abbreviates."""


def _metadata(hub: HubModel, base: str, sources: Sources) -> str:
    """The Hub metadata as YAML."""
    bases, data = _bases(base), hub_data(sources.credits)
    values: dict[str, Any] = {
        **hub_metadata(sources.credits),
        "library_name": hub.library,
        "pipeline_tag": hub.task,
        "tags": ["pairsmith", *hub.tags],
        **({"base_model": bases[0] if len(bases) == 1 else bases} if bases else {}),
        **({"datasets": data} if data else {}),
    }
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=10_000)


def _bases(base: str) -> list[str]:
    """The Hub ids of the base model: its own id, or those that the card in its folder names."""
    if is_bundled(base) or base.startswith(EMBEDDED):
        return [_EMBEDDED[base]] if base in _EMBEDDED else []
    if is_gguf(base):
        return [*filter(None, [hub_repository(base)])]  # a file may not say where it is from
    if is_hub_id(base):
        return [base]
    named = card_of(place(base)).get("base_model")
    return [name for name in (named if isinstance(named, list) else [named]) if isinstance(name, str)]


def _data(sources: Sources) -> str:
    """The end of a sentence that names the data for training and validation, or the sources of these."""
    names = [f"`{credit.name}`" for credit in sources.credits if credit.role == "data"]
    return f" with data from {', '.join(names)}" if names else ""


def _repeat(step: str, settings: TrainingSettings | TrainClassifierSettings) -> str:
    return repeat(step, __version__, displayed_options(settings))


def _rights(sources: Sources) -> list[str]:
    """The sections on limits, citation and licences."""
    text = "No figure of this card was measured on a test set: evaluate the model on data of your own."
    parts = [limits(text, sources.credits), cite(sources.citations), licences("", sources.credits)]
    return [*filter(None, parts)]


def _curve(name: str, figures: Mapping[int, float | None]) -> str:
    """A Markdown table of the validation figures by step; ``name`` is their measure."""
    cells = {step: "undefined" if figure is None else f"{figure:.2f}" for step, figure in figures.items()}
    rows = "\n".join(f"| {step:,} | {figure} |" for step, figure in cells.items())
    return f"| step | {name} |\n|---|---|\n{rows}"


def training_card(trained: "Trained", settings: TrainingSettings, folder: ModelFolder) -> str:
    """README.md of a model that a ``TrainingStep`` trained."""
    training = trained.history
    metadata = _metadata(trained.hub, settings.base, folder.sources)
    rights = "\n\n".join(_rights(folder.sources)) + "\n"
    lines = "\n".join(f"| {name} | {value} |" for name, value in trained.facts.items())
    text = (
        f"---\n{metadata}---\n\n# {trained.title}\n\n"
        f"It is `{model_display_name(settings.base)}`, trained further{_data(folder.sources)}"
        f"{'. Seeds are examples that people labelled' if hasattr(settings, 'seeds') else ''}."
        f"\n\n## How to use it\n\n{trained.use}\n\n{_repeat(folder.step, settings)}\n\n"
        f"## Training\n\n| what | value |\n|---|---|\n{lines}\n\n"
        f"Steps: {training.steps:,}, each of {counted(settings.batch_size, 'examples')}; "
        f"seed {settings.seed}. "
    )
    measure = _MEASURES.get(training.metric, training.metric)
    if not training.validation:
        return (
            text + "No validation examples chose a step; the weights are those of the last one.\n\n" + rights
        )
    return (
        f"{text}The weights are those of step {training.best_step:,}, chosen by the {measure} (×100) "
        f"on the validation examples:\n\n{_curve(measure, training.validation)}\n\n{rights}"
    )


_CLASSIFY = """```python
import json
from pathlib import Path

from safetensors.numpy import load_file
from sentence_transformers import SentenceTransformer

folder = "path/to/this/folder"
labels = json.loads(Path(folder, "classifier.json").read_text(encoding="utf-8"))["labels"]
head = load_file(f"{folder}/classifier.safetensors")
vectors = SentenceTransformer(folder).encode(["A film to fall in love with."], normalize_embeddings=True)
scores = vectors @ head["weight"].T + head["bias"]
print([labels[best] for best in scores.argmax(axis=1)])
```

`pairsmith.load_classifier("path/to/this/folder").predict(texts)` does the same."""


def classifier_card(
    settings: TrainClassifierSettings, training: Mapping[str, Any], folder: ModelFolder
) -> str:
    """README.md of a text classifier; ``training`` is the result of ``ClassifierTraining.to_json``."""
    metadata = _metadata(_CLASSIFIER, settings.base, folder.sources)
    labels = "\n".join(f"| {label} | {count:,} |" for label, count in training["texts"].items())
    choices = "\n".join(
        f"| {choice['c']:g} | {choice['log_loss']:.4f} | {choice['accuracy']:.2f} |"
        for choice in training["choices"]
    )
    chosen = f"The inverse of the regularisation strength, C, is {training['c']:g}."
    if choices:
        chosen += (
            f" Each C that was tried, measured on {training['measured_on']} (if a program wrote these "
            "texts, the figures say how well its labels can be told apart, not how often they are right):\n\n"
            f"| C | log loss | accuracy ×100 |\n|---|---|---|\n{choices}"
        )
    sections = [
        f"---\n{metadata}---\n\n# A text classifier",
        "It gives a text one of the labels in the table below, by a logistic regression on the text's vector "
        f"by `{model_display_name(settings.base)}`, of length 1. The encoder itself was not trained.",
        f"## How to use it\n\n{_CLASSIFY}",
        _repeat(folder.step, settings),
        f"## Training\n\n| label | training texts |\n|---|---|\n{labels}\n\n`trained-on.txt` has a hash of "
        "each training text, by which an evaluation counts the texts that it has in common with these.",
        chosen,
        *_rights(folder.sources),
    ]
    return "\n\n".join(sections) + "\n"
