"""The step ``train-crossencoder``: a model that reads both texts of a pair together to score it (M6)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from pairsmith.core.errors import ModelError
from pairsmith.core.model_names import model_revision
from pairsmith.core.progress import Progress
from pairsmith.data.examples import Example, read_examples
from pairsmith.data.text import finder_revision
from pairsmith.methods.mining.crossencoder import train_crossencoder_on
from pairsmith.methods.mining.sampled_negatives import in_window
from pairsmith.models.sentence_encoder import load_sentence_encoder
from pairsmith.runs import DatasetFolder, hash_source
from pairsmith.steps.training.reading import Seeds, read_seeds
from pairsmith.steps.training.retrieved import retrieved
from pairsmith.steps.training.step import Identity, Trained, TrainingStep
from pairsmith.training.checkpoints import Checkpoints
from pairsmith.training.folder import save_transformer
from pairsmith.training.settings import TrainCrossencoderSettings

_USE = """```python
from sentence_transformers import CrossEncoder

model = CrossEncoder("path/to/this/folder", activation_fn=None)
print(model.predict([("Who wrote Hamlet?", "Shakespeare: Hamlet is a play by Shakespeare.")]))
```"""


@dataclass(frozen=True, slots=True)
class _Data:
    seeds: Seeds[Example]
    validation: Sequence[Example]
    mined: DatasetFolder | None
    """The mined outputs with their vectors, among which hard negatives are looked for."""

    @property
    def examples(self) -> int:
        return len(self.seeds.each)

    rows = examples
    unread = 0


def _read(settings: TrainCrossencoderSettings, _: int | None) -> _Data:
    seeds = read_seeds(settings.seeds, settings.kind)
    cut = [in_window(each, settings.window) for each in seeds.each]
    validation = read_examples(settings.validation, settings.kind) if settings.validation else []
    mined = DatasetFolder.open(_outputs_of(settings.mined)) if settings.mined else None
    if mined and settings.encoder:
        _check_encoder(settings.encoder, mined)
    return _Data(Seeds(cut, seeds.repeated), [in_window(each, settings.window) for each in validation], mined)


def _train(
    data: _Data,
    settings: TrainCrossencoderSettings,
    device: str,
    progress: Progress,
    checkpoints: Checkpoints | None,
) -> Trained:
    data.seeds.tell(progress)
    every = [*data.seeds.each, *data.validation]
    near = hard_negatives_of(every, data.mined, settings, device, progress) if data.mined else None
    cross, rate, history = train_crossencoder_on(
        data.seeds.each, data.validation, near, settings, device, progress=progress, checkpoints=checkpoints
    )
    return Trained(
        "A cross-encoder that scores pairs",
        _USE,
        (cross.model,),
        partial(save_transformer, cross.model, cross.tokenizer),
        {**data.seeds.facts(), "validation": len(data.validation), "learning rate": rate},
        history,
    )


def _identity(settings: TrainCrossencoderSettings) -> Identity:
    mined, encoder = settings.mined, settings.encoder
    return Identity(
        inputs={"mined outputs": hash_source(DatasetFolder.open(_outputs_of(mined)).path)} if mined else {},
        models=({"encoder": model_revision(encoder)} if encoder else {})
        | (finder_revision(settings.answers) if settings.kind == "reading" else {}),
        made_with=(mined,) if mined else (),
    )


train_crossencoder = TrainingStep(
    "train-crossencoder",
    TrainCrossencoderSettings,
    ("seeds", "validation"),
    _read,
    _train,
    _identity,
)
"""Trains a cross-encoder on seeds. The folder opens with ``AutoModelForSequenceClassification``."""


def _check_encoder(encoder: str, found: DatasetFolder) -> None:
    if found.manifest.models.get("encoder") != model_revision(encoder):
        raise ModelError(
            f"model {encoder}: {found.path} was encoded by another model, or by other weights of this "
            "one; give the same --encoder as to mine"
        )


def _outputs_of(mined: str) -> str:
    """The folder with the vectors of a mined folder's outputs."""
    return f"{mined.rstrip('/')}/outputs"


def hard_negatives_of(
    examples: Sequence[Example],
    found: DatasetFolder,
    settings: TrainCrossencoderSettings,
    device: str,
    progress: Progress,
) -> list[list[str]]:
    """The hard negatives of each example: outputs near its input, by the bi-encoder, that are not its own."""
    assert settings.encoder is not None  # it is given whenever ``mined`` is
    read = found.manifest.settings["max_length"]  # as for the outputs; the encoder may allow more
    encoder = load_sentence_encoder(
        settings.encoder, device=device, max_length=read if isinstance(read, int) else None
    )
    with progress.task("find negatives", len(examples), "inputs") as bar:
        return retrieved(examples, found, encoder, settings.retrieved, bar.advance)
