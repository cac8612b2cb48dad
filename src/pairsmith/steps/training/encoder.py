"""The step ``train-encoder``: a sentence encoder trained on a dataset folder of scored pairs (D10)."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from sentence_transformers import SentenceTransformer

from pairsmith.core.errors import InputError, SettingsError, redacted
from pairsmith.core.paths import display_name, place
from pairsmith.data.files.folders import own_folder
from pairsmith.data.readers import read_pairs
from pairsmith.data.sources import open_source
from pairsmith.data.splits import split_of, splits_of, to_train_on
from pairsmith.methods.dino.encoder import check_pairs, save_encoder, train_encoder_on
from pairsmith.models.sentence_encoder import load_sentence_encoder
from pairsmith.runs import DatasetFolder
from pairsmith.runs.folder import read_manifest
from pairsmith.steps.planning import evenly_spaced
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
_SCORES = ", a split of the same data: where a program scored the pairs, these scores are not people's either"


def _read(settings: TrainEncoderSettings, most: int | None) -> TrainingData[pa.Table]:
    """The pairs of the split ``train`` and, if there is one, ``validation``: sentence1, sentence2, score.

    A named split, a file and a Hub data set count as ``train``. For a plan, which gives ``most``, a sample of
    all lengths is enough, except for the objective that looks for the other pairs of a text.
    """
    if Processes.current().size > 1 and settings.objective in ("cosent", "angle"):
        raise SettingsError(
            f"--objective {settings.objective} compares all pairs of a batch, which several processes "
            "would not hold together; run it in one"
        )
    pairs = _pairs(to_train_on(settings.data, "learned"))
    splits = splits_of(settings.data)
    validates = len(splits) > 1 and "validation" in splits
    validation = _pairs(splits["validation"]).to_pylist() if validates else []
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
        "pairs": data.examples,
        "validation": f"{len(data.validation)}{_SCORES}" if data.validation else 0,
        "objective": settings.objective,
        "learning rate": settings.learning_rate,
        "warm-up": f"{settings.warmup:.0%} of the steps",
        "weight decay": settings.weight_decay,
    }

    def save(card: str, out: Path) -> None:
        save_encoder(encoder, out, card, data.training, settings.base)

    return Trained("A sentence encoder", _USE, (encoder,), save, facts, history)


train_encoder = TrainingStep("train-encoder", TrainEncoderSettings, ("data",), _read, _train)
"""Trains an encoder on pairs with scores. The folder opens with ``SentenceTransformer``."""


def base_encoder(settings: TrainEncoderSettings) -> SentenceTransformer:
    """Load the base with the layers and the attention that the settings ask for."""
    return load_sentence_encoder(
        settings.base,
        pooling=settings.pooling,
        device=settings.device,
        max_length=settings.max_length,
        layers=settings.layers,
        bidirectional=settings.attention == "bidirectional",
    )


def _origin(source: str) -> dict[str, object]:
    """What was trained on, for the card; for a folder of pairsmith also how it was made."""
    folder = own_folder(source)
    if folder is None:
        return {"data": f"`{redacted(display_name(place(source)))}`"}
    manifest = read_manifest(folder)
    made = f"last step `{manifest.step}`, fingerprint `{manifest.fingerprint[:16]}`"
    models = {f"its {name}": f"`{revision}`" for name, revision in manifest.models.items()}
    return {"data": f"the dataset folder `{folder.resolve().name}`, {made}", **models}


def _pairs(source: str) -> pa.Table:
    if own := own_folder(source):
        opened = DatasetFolder.open(own)
        _check_columns(source, opened.schema().names)
        pairs = opened.table(split_of(source)[1] or opened.splits[0], list(_COLUMNS))
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
        hint = "; labels must be numbers to train on" if "label" in names else ""
        raise InputError(
            f"{where}: training an encoder needs the columns sentence1, sentence2, score; "
            f"found {', '.join(names)}{hint}"
        )
