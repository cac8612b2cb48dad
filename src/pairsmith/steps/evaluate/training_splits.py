"""The training pairs of few-shot paraphrase detection, for each of several splits (Q9).

A split is a file of its own; or the rows of one file whose ids are in a list; or drawn from one file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pairsmith.core.errors import InputError, SettingsError
from pairsmith.core.paths import is_folder, place, reaching
from pairsmith.data.lines import read_lines
from pairsmith.data.paraphrases import Paraphrase, paraphrase_pairs
from pairsmith.data.sources import plain_or_gzip
from pairsmith.methods.quip.paraphrase import draw_paraphrases
from pairsmith.steps.evaluate.transfer_settings import EvaluateParaphraseSettings
from pairsmith.steps.shared import errors_about


@dataclass(frozen=True, slots=True)
class TrainingSplits:
    """The pairs of each split by its number, and the origin of the negatives: ``people`` or ``sampled``."""

    pairs: Mapping[int, Sequence[Paraphrase]]
    negatives: str


def training_sources(settings: EvaluateParaphraseSettings) -> dict[str, str]:
    """The files that have the splits, by names such as ``train`` and ``ids, 13``."""
    if settings.train is None:
        return {}
    if _has_splits(settings.train):
        if settings.ids:
            raise SettingsError("--ids has no effect with a folder of splits as --train; leave it out")
        return {f"train, {n}": _file(settings.train, settings, n, "train.tsv") for n in settings.splits}
    ids = settings.ids
    lists = {f"ids, {n}": _file(ids, settings, n, "train_ids.tsv") for n in settings.splits} if ids else {}
    return {"train": settings.train, **lists}


def training_splits(settings: EvaluateParaphraseSettings) -> TrainingSplits:
    """Read or draw the pairs of the splits; there are no splits without the setting ``train``."""
    if settings.train is None:
        return TrainingSplits({}, "people")
    sources = training_sources(settings)
    if _has_splits(settings.train):
        files = {n: paraphrase_pairs(sources[f"train, {n}"], settings.seed) for n in settings.splits}
        sampled = any(negatives == "sampled" for _, negatives in files.values())
        splits = {n: pairs for n, (pairs, _) in files.items()}
        return TrainingSplits(splits, "sampled" if sampled else "people")
    pairs, negatives = paraphrase_pairs(settings.train, settings.seed)
    if not settings.ids:
        with errors_about(f"--train {settings.train}", InputError):
            splits = {n: draw_paraphrases(pairs, settings.shots, n) for n in settings.splits}
        return TrainingSplits(splits, negatives)
    if negatives == "sampled":
        raise InputError(
            f"{settings.train}: has no labels, which --ids needs; give labelled pairs, or leave --ids out"
        )
    pair_of_id = {pair.id: pair for pair in pairs if pair.id}
    return TrainingSplits(
        {n: _listed_pairs(sources[f"ids, {n}"], pair_of_id, settings.train) for n in settings.splits},
        negatives,
    )


def _listed_pairs(source: str, pair_of_id: Mapping[str, Paraphrase], train: str) -> list[Paraphrase]:
    """The pairs whose ids are in the file ``source``, one on each line; ``train`` names the pairs."""
    ids = [row_id for _, line in read_lines(place(source)) if (row_id := line.strip())]
    if not ids:
        raise InputError(f"{source}: has no ids; list one id on each line")
    if missing := [row_id for row_id in ids if row_id not in pair_of_id]:
        raise InputError(
            f"{source}: {train} has no row with the id {missing[0]!r}; it needs a column id with the ids in "
            "this list"
        )
    pairs = [pair_of_id[row_id] for row_id in ids]
    if len({pair.label for pair in pairs}) < 2:
        raise InputError(
            f"{source}: all rows with these ids have label {int(bool(pairs[0].label))}; both are needed"
        )
    return pairs


def _has_splits(train: str) -> bool:
    """Whether ``train`` is a folder of splits, not a dataset folder, which has a folder ``data``."""
    folder = place(train)
    return is_folder(folder) and not is_folder(folder / "data")


def _file(folder: str, settings: EvaluateParaphraseSettings, split: int, name: str) -> str:
    """The file ``name`` of a split, such as ``16-13/train.tsv``, which may be compressed (``.gz``)."""
    parent = place(folder) / f"{settings.shots}-{split}"
    with reaching(parent, InputError):
        path = plain_or_gzip(parent, name)
    if path is None:
        raise InputError(
            f"{parent / name} does not exist; expected a file {settings.shots}-N/{name} for each of "
            "--splits N"
        )
    return str(path)
