"""The labelled pairs that few-shot paraphrase detection learns from, for each of several splits (Q9).

They are in files, one for each split; or the rows of one file that lists of ids name; or drawn from one file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pairsmith.core.errors import InputError, SettingsError
from pairsmith.core.paths import is_folder, place, reaching
from pairsmith.data.paraphrases import Paraphrase, paraphrase_pairs
from pairsmith.data.sources import plain_or_gzip, read_lines
from pairsmith.methods.quip.paraphrase import draw_paraphrases
from pairsmith.steps.evaluate.transfer_settings import EvaluateParaphraseSettings
from pairsmith.steps.shared import errors_about


@dataclass(frozen=True, slots=True)
class TrainingSplits:
    """The pairs of each split by its number, and the origin of their negatives: ``people`` or ``sampled``."""

    pairs: Mapping[int, Sequence[Paraphrase]]
    negatives: str


def training_sources(settings: EvaluateParaphraseSettings) -> dict[str, str]:
    """All that is read to make the splits, by a name for each."""
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
    """Read the pairs of the splits; ``train`` is set."""
    assert settings.train is not None
    sources = training_sources(settings)
    if _has_splits(settings.train):
        read = [paraphrase_pairs(source, settings.seed) for source in sources.values()]
        origins = {negatives for _, negatives in read}
        splits = {n: pairs for n, (pairs, _) in zip(settings.splits, read, strict=True)}
        return TrainingSplits(splits, "sampled" if "sampled" in origins else "people")
    pairs, negatives = paraphrase_pairs(settings.train, settings.seed)
    if not settings.ids:
        with errors_about(f"--train {settings.train}", InputError):
            splits = {n: draw_paraphrases(pairs, settings.shots, n) for n in settings.splits}
        return TrainingSplits(splits, negatives)
    if negatives == "sampled":
        raise InputError(f"{settings.train} has no labels, so --ids cannot choose among its rows")
    known = {pair.id: pair for pair in pairs if pair.id}
    lists = {n: _ids(sources[f"ids, {n}"]) for n in settings.splits}
    for number, ids in lists.items():
        if lacking := [row_id for row_id in ids if row_id not in known]:
            raise InputError(
                f"{sources[f'ids, {number}']}: {settings.train} has no row with the id {lacking[0]!r}; it "
                "needs a column id with these ids"
            )
    splits = {n: [known[row_id] for row_id in ids] for n, ids in lists.items()}
    for number, examples in splits.items():
        if len({pair.label for pair in examples}) < 2:
            label = int(bool(examples[0].label))
            raise InputError(
                f"{sources[f'ids, {number}']}: all rows with these ids have label {label}; both are needed"
            )
    return TrainingSplits(splits, negatives)


def _has_splits(train: str) -> bool:
    """Whether a source is a folder of splits: no dataset folder, whose rows are in its folder ``data``."""
    folder = place(train)
    return is_folder(folder) and not is_folder(folder / "data")


def _file(folder: str, settings: EvaluateParaphraseSettings, split: int, name: str) -> str:
    """The file of one split, e.g. ``16-13/train.tsv``, also ``.gz``."""
    parent = place(folder) / f"{settings.shots}-{split}"
    with reaching(parent, InputError):
        path = plain_or_gzip(parent, name)
    if path is None:
        raise InputError(
            f"{parent / name} does not exist; expected a file {settings.shots}-N/{name} for each of "
            "--splits N"
        )
    return str(path)


def _ids(source: str) -> list[str]:
    """The ids in a file, one on each line."""
    ids = [name for _, line in read_lines(place(source)) if (name := line.strip())]
    if not ids:
        raise InputError(f"{source} holds no ids")
    return ids
