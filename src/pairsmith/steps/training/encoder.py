"""The step ``train-encoder``: a sentence encoder trained on scored pairs (D10)."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from sentence_transformers import SentenceTransformer

from pairsmith.core.citations import CITATION
from pairsmith.core.errors import InputError, SettingsError, redacted
from pairsmith.core.paths import display_name, place
from pairsmith.data.files.folders import own_folder
from pairsmith.data.readers import read_pairs
from pairsmith.data.sources import open_source
from pairsmith.data.splits import split_of, splits_of, to_train_on
from pairsmith.methods.dino.encoder import check_pairs, save_encoder, train_encoder_on
from pairsmith.models.sentence_encoder import load_sentence_encoder
from pairsmith.runs import DatasetFolder
from pairsmith.runs.manifest import read_manifest
from pairsmith.steps.planning import evenly_spaced
from pairsmith.steps.training.card import SENTENCE_ENCODER
from pairsmith.steps.training.plan import TRIED_STEPS
from pairsmith.steps.training.reading import TrainingData
from pairsmith.steps.training.settings import TrainEncoderSettings
from pairsmith.steps.training.step import Trained, TrainingContext, TrainingStep
from pairsmith.training.processes import Processes

_USE = """The cosine similarity of two sentences' vectors was trained to come close to the score of the pair.

```python
from sentence_transformers import SentenceTransformer

encoder = SentenceTransformer("path/to/this/folder")
vectors = encoder.encode(["A man plays a guitar.", "Someone makes music."])
print(encoder.similarity(vectors, vectors))
```"""

_COLUMNS = ("sentence1", "sentence2", "score")
_SCORES = " of the same data, whose scores are by a program if those of the training pairs are"


def _read(settings: TrainEncoderSettings, most: int | None) -> TrainingData[pa.Table]:
    """Read the pairs of the split ``train`` and, if there is one, of the split ``validation``.

    A split that ``data`` names, a file or a Hub data set is the training split. A plan gives ``most``, and
    gets a sample with pairs of all lengths, except for the objective ``contrastive``, which needs all pairs
    of a text.
    """
    if Processes.current().size > 1 and settings.objective in ("cosent", "angle"):
        raise SettingsError(
            f"--objective {settings.objective} compares all pairs of a batch with each other, which several "
            "processes cannot do; run it in one process"
        )
    pairs = _pairs(to_train_on(settings.data, "learned"))
    splits = splits_of(settings.data)
    has_validation = len(splits) > 1 and "validation" in splits
    validation = _pairs(splits["validation"]).to_pylist() if has_validation else []
    training = pairs
    if most is not None and settings.objective != "contrastive":
        lengths = pc.add(pc.utf8_length(pairs["sentence1"]), pc.utf8_length(pairs["sentence2"]))
        longest_first = pc.sort_indices(pc.negate(lengths)).to_pylist()
        training = pairs.take(sorted(evenly_spaced(longest_first, TRIED_STEPS * settings.batch_size)))
    return TrainingData(training, training.num_rows, pairs.num_rows - training.num_rows, validation)


def _train(data: TrainingData[pa.Table], settings: TrainEncoderSettings, context: TrainingContext) -> Trained:
    encoder = base_encoder(settings)
    validation = pa.Table.from_pylist(data.validation) if data.validation else None
    history = train_encoder_on(encoder, data.training, validation, settings, **context)
    facts = {
        **_origin(settings.data),
        "training pairs": data.examples,
        "validation examples": f"{len(data.validation)}{_SCORES}" if data.validation else 0,
        "objective": settings.objective,
        "learning rate": settings.learning_rate,
        "warm-up": f"{settings.warmup:.0%} of the steps",
        "weight decay": settings.weight_decay,
    }

    def save(card: str, out: Path) -> None:
        save_encoder(encoder, out, card, data.training, settings.base)

    return Trained("A sentence encoder", _USE, SENTENCE_ENCODER, (encoder,), save, facts, history)


train_encoder = TrainingStep("train-encoder", ("data",), _read, _train, CITATION)
"""Trains an encoder on pairs with scores. ``SentenceTransformer`` opens the folder."""


def base_encoder(settings: TrainEncoderSettings) -> SentenceTransformer:
    """Load the base model with the number of layers and the kind of attention in the settings."""
    return load_sentence_encoder(
        settings.base,
        pooling=settings.pooling,
        device=settings.device,
        max_length=settings.max_length,
        layers=settings.layers,
        bidirectional=settings.attention == "bidirectional",
    )


def _origin(source: str) -> dict[str, object]:
    """Facts about the training data for the card; for a dataset folder also the step that wrote it."""
    folder = own_folder(source)
    if folder is None:
        return {"data": f"`{redacted(display_name(place(source)))}`"}
    manifest = read_manifest(folder)
    provenance = f"last step `{manifest.step}`, fingerprint `{manifest.fingerprint[:16]}`"
    models = {
        f"version of the {name} that made the data": f"`{revision}`"
        for name, revision in manifest.models.items()
    }
    return {"data": f"the dataset folder `{folder.resolve().name}` ({provenance})", **models}


def _pairs(source: str) -> pa.Table:
    """The pairs of a source as a table with the columns sentence1, sentence2 and score."""
    if own := own_folder(source):
        folder = DatasetFolder.open(own)
        _check_columns(source, folder.schema().names)
        pairs = folder.table(split_of(source)[1] or folder.splits[0], list(_COLUMNS))
    else:
        data = open_source(source)
        for _, row in islice(data.rows(), 1):
            _check_columns(data.name, list(row))
        rows = [(pair.sentence1, pair.sentence2, pair.score) for pair in read_pairs(source)]
        pairs = pa.table(dict(zip(_COLUMNS, zip(*rows, strict=True), strict=True)))
    check_pairs(pairs, source)
    return pairs


def _check_columns(where: str, names: Sequence[str]) -> None:
    if not set(_COLUMNS) <= set(names):
        hint = "; labels have to be numbers, in a column score" if "label" in names else ""
        raise InputError(
            f"{where}: training an encoder needs the columns sentence1, sentence2, score; "
            f"found {', '.join(names)}{hint}"
        )
