"""The step ``train-encoder``: a sentence encoder trained on a dataset folder of scored pairs (D10)."""

from collections.abc import Sequence
from functools import partial
from itertools import islice

import pyarrow as pa
from sentence_transformers import SentenceTransformer

from pairsmith.core.errors import InputError, SettingsError
from pairsmith.core.model_files import pick_device
from pairsmith.core.model_names import model_revision
from pairsmith.core.paths import Place
from pairsmith.data.files.folders import own_folder
from pairsmith.data.readers import read_pairs
from pairsmith.data.sources import open_source
from pairsmith.data.splits import split_of, splits_of, to_train_on
from pairsmith.methods.dino.encoder import check_pairs, save_encoder, train_encoder_on
from pairsmith.models.sentence_encoder import load_sentence_encoder
from pairsmith.runs import DatasetFolder, Run, hash_source, refuse_source, resolve_dtype, sources_of
from pairsmith.steps.training.card import encoder_card
from pairsmith.steps.training.encoder_settings import TrainEncoderSettings
from pairsmith.steps.training.step import Save, train_once
from pairsmith.training.best_step import TrainingHistory
from pairsmith.training.folder import ModelFolder
from pairsmith.training.logs import check_tensorboard
from pairsmith.training.processes import Processes

_COLUMNS = ("sentence1", "sentence2", "score")


def train_encoder(settings: TrainEncoderSettings, run: Run) -> Place:
    """Train an encoder on a dataset folder, save it in the run's folder, and return that folder.

    It opens with ``SentenceTransformer(DIR)``; ``training.json`` in it, written last, says how the training
    went. A folder that holds the finished work of the same settings is left as it is.
    """
    processes = Processes.current()
    if processes.size > 1 and settings.objective in ("cosent", "angle"):
        raise SettingsError(
            f"--objective {settings.objective} compares all pairs of a batch, which several processes "
            "would not hold together; run it in one"
        )
    run = processes.quiet_unless_writing(run)
    settings = resolve_dtype(settings, run)
    device = pick_device(settings.device)
    processes.part_of(settings.batch_size)
    if settings.tensorboard:
        check_tensorboard()
    refuse_source(run, data=settings.data, base=settings.base)
    pairs = scored_pairs(settings.data)
    claim = partial(
        ModelFolder.start,
        run,
        step="train-encoder",
        settings=settings.deciding(),
        inputs={"data": hash_source(settings.data)},
        models={"base": model_revision(settings.base)},
        sources=sources_of(models=[settings.base], data=[split_of(settings.data)[0]]),
    )
    processes.join(device)

    def train(folder: ModelFolder) -> tuple[Save, TrainingHistory]:
        encoder = base_encoder(settings)
        history = train_encoder_on(
            encoder,
            pairs["train"],
            pairs.get("validation"),
            settings,
            progress=run.progress,
            checkpoints=folder.checkpoints,
        )
        rows = {split: table.num_rows for split, table in pairs.items()}
        card = encoder_card(settings, rows, history.to_json(), folder.sources)
        return partial(save_encoder, encoder, card=card, pairs=pairs["train"], base=settings.base), history

    return train_once(run, processes, claim, train, settings.base)


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


def scored_pairs(source: str) -> dict[str, pa.Table]:
    """The pairs of the split ``train`` and, if there is one, ``validation``: sentence1, sentence2, score.

    A named split, a file and a Hub data set count as ``train``.
    """
    pairs = {"train": _pairs(to_train_on(source, "learned"))}
    splits = splits_of(source)
    if len(splits) > 1 and "validation" in splits:
        pairs["validation"] = _pairs(splits["validation"])
    return pairs


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
