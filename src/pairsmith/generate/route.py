"""The step ``generate``: DINO from instructions to a dataset folder.

inputs -> prompts (D1, D2) -> tries (D4) of the steered decoder (D3) -> rows and rejects, shard by shard
"""

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

import pyarrow as pa
from torch import OutOfMemoryError

from pairsmith.citations import CITATION
from pairsmith.errors import ModelError, SettingsError
from pairsmith.generate.preview import preview
from pairsmith.generate.settings import GenerateSettings
from pairsmith.generate.wanted import Wanted, input_id, pairs_wanted, texts_wanted
from pairsmith.generate.writing import rows_needed, write
from pairsmith.lm.loading import load_model
from pairsmith.modelnames import model_revision
from pairsmith.records import LABELLED_PAIR, LABELLED_TEXT, REJECT, SCORED_PAIR, Reject, read_texts, to_table
from pairsmith.runs import Card, DatasetFolder, FolderWriter, Run, hash_source, refuse_source, summary
from pairsmith.tasks import Decoding, TaskSpec, load_task

SCHEMAS: dict[str, pa.Schema] = {
    "scored_pair": SCORED_PAIR,
    "labelled_pair": LABELLED_PAIR,
    "labelled_text": LABELLED_TEXT,
}
Items = list[str] | range
"""The inputs of a pair task, or the numbers of the texts of a text task."""


def generate(settings: GenerateSettings, run: Run) -> DatasetFolder | None:
    """Write a data set from a task's instructions; see ``GenerateSettings`` for what can be set.

    Returns:
        The finished folder, or None after ``--preview``.

    Raises:
        UserError: the task, the inputs, the model or the folder is not usable; nothing is spent before.
        StorageError: the disk failed; finished shards are kept, and the same command continues.
    """
    task = load_task(settings.task)
    decoding = settings.decoding(task.decoding)
    _check(task, settings)
    for source in settings.inputs:
        refuse_source(run, model=settings.model, inputs=source)
    items, duplicates = _items(settings, decoding)
    if settings.preview:
        model = load_model(settings.model, device=settings.device, dtype=settings.dtype)
        run.progress.result(preview(task, model, items[: settings.preview], decoding, settings.seed))
        return None
    writer = FolderWriter.start(
        run,
        step="generate",
        schema=SCHEMAS[task.schema_kind],
        settings=_row_settings(task, decoding, settings),
        inputs={f"inputs {i}": hash_source(source) for i, source in enumerate(settings.inputs, start=1)},
        models={"model": model_revision(settings.model)},
    )
    if writer.finished:
        run.progress.say(f"{run.out} is finished already; nothing to do")
        return writer.folder()

    model = load_model(settings.model, device=settings.device, dtype=settings.dtype)
    if decoding.max_tokens >= model.context:
        raise SettingsError(
            f"--max-tokens {decoding.max_tokens} leaves no room for a prompt in the model's {model.context}"
        )
    pieces = [
        items[start : start + settings.shard_size] for start in range(0, len(items), settings.shard_size)
    ]
    labels = len(task.labels)
    with run.progress.task("generate", len(items) * labels, "prompts") as bar:
        for number, piece in enumerate(pieces):
            if writer.is_done(number):
                bar.skip(len(piece) * labels)
                continue
            wanted = _wanted(task, piece, decoding)
            try:
                written = write(
                    task, model, wanted, decoding, settings.seed, settings.rows, lambda _: bar.advance()
                )
            except OutOfMemoryError as error:
                raise ModelError(
                    f"{settings.rows} rows do not fit the device's memory; run the same command with a lower "
                    "--rows, finished shards are kept and the rows come out the same"
                ) from error
            rejects = [*written.rejects, *(duplicates if number == 0 else ())]
            rows = to_table(written.rows, SCHEMAS[task.schema_kind])
            writer.commit(number, {"train": rows}, to_table(rejects, REJECT))
            bar.note = f"{writer.counts.rows:,} texts, {writer.counts.rejects:,} rejects saved"
    folder = writer.finish(_card(task, settings, decoding, len(items)))
    run.progress.say(summary(folder))
    return folder


def _check(task: TaskSpec, settings: GenerateSettings) -> None:
    """Refuse settings that do not go with the task, before anything is spent."""
    if settings.rows < rows_needed(task):
        raise SettingsError(
            f"--rows {settings.rows} is too few: the task {task.name} needs at least {rows_needed(task)}"
        )
    decoding = settings.decoding(task.decoding)
    if task.kind == "pair" and decoding.tries < decoding.per_input:
        raise SettingsError(
            f"{decoding.tries} tries cannot give {decoding.per_input} texts per input; "
            f"give --tries {decoding.per_input + 3} or more"
        )
    if task.kind == "pair" and not settings.inputs:
        raise SettingsError(f"the task {task.name} writes second texts for given ones; give --inputs FILE")
    if task.kind == "text":
        for name in ("inputs", "column", "limit"):
            if getattr(settings, name):
                raise SettingsError(
                    f"the task {task.name} writes single texts and takes no --{name}; "
                    "--per-input says how many texts each label gets"
                )


def _items(settings: GenerateSettings, decoding: Decoding) -> tuple[Items, list[Reject]]:
    """The distinct inputs of a pair task and rejects for the others; the numbers of a text task's texts."""
    if not settings.inputs:
        return range(decoding.per_input), []
    texts: dict[str, str] = {}
    duplicates: list[Reject] = []
    sources = (read_texts(source, column=settings.column) for source in settings.inputs)
    for record in islice(chain.from_iterable(sources), settings.limit):
        name = input_id(record.text)
        if name in texts:
            row = {"sentence1": record.text, "where": record.where}
            duplicates.append(Reject.of(name, "duplicate input", "the input was there before", row))
        texts.setdefault(name, record.text)
    return list(texts.values()), duplicates


def _wanted(task: TaskSpec, piece: Items, decoding: Decoding) -> Iterator[Wanted]:
    if isinstance(piece, range):
        return texts_wanted(task, piece)
    return pairs_wanted(task, piece, decoding.per_input)


def _row_settings(task: TaskSpec, decoding: Decoding, settings: GenerateSettings) -> dict[str, Any]:
    """Every setting that changes rows, for the folder's fingerprint."""
    return {
        "task": task.model_dump(mode="json", exclude={"decoding"}),
        **decoding.model_dump(mode="json"),
        **settings.model_dump(mode="json", include={"column", "limit", "seed", "dtype", "shard_size"}),
    }


def _card(task: TaskSpec, settings: GenerateSettings, decoding: Decoding, items: int) -> Card:
    instructions = "\n\n".join(f"[{label}]\n{task.instruction(label)}" for label in task.label_names)
    what = "pairs" if task.kind == "pair" else "texts"
    steered = decoding.decay > 0 and any(task.counters(label) for label in task.label_names)
    return Card(
        title=f"{task.name}: {what} written by {settings.model}",
        description=" ".join(
            [
                task.description,
                f"The {what} were written by the language model {settings.model}, which followed one "
                "instruction per label.",
                "Self-debiasing kept it from writing texts that fit a label's counter-labels better (DINO)."
                if steered
                else "",
                "Nobody has checked the rows: treat the labels as noisy.",
            ]
        ),
        task_description=instructions,
        counts={"inputs": items} if task.kind == "pair" else {"texts asked per label": items},
        citations=(CITATION,),
        licence="The rights in the inputs, and the terms of the language model, apply to the texts.",
    )
