"""The step ``generate``: DINO from instructions to a dataset folder.

inputs -> prompts (D1, D2) -> tries (D4) of the steered decoder (D3) -> rows and rejects, shard by shard
"""

from functools import partial
from typing import Any

from pairsmith.citations import CITATION
from pairsmith.errors import SettingsError, WorkerError
from pairsmith.generate.pieces import Piece, first_items, growth, pieces_of
from pairsmith.generate.preview import preview
from pairsmith.generate.settings import GenerateSettings
from pairsmith.generate.shard import SCHEMAS, ShardLoader, Todo
from pairsmith.generate.writing import rows_needed
from pairsmith.lm.loading import load_model
from pairsmith.modelnames import model_revision
from pairsmith.runs import Card, DatasetFolder, FolderWriter, Run, hash_source, refuse_source, summary
from pairsmith.runs.executors import Lost, Where, execute
from pairsmith.tasks import Decoding, TaskSpec, load_task


def generate(settings: GenerateSettings, run: Run) -> DatasetFolder | None:
    """Write a data set from a task's instructions; see ``GenerateSettings`` for what can be set.

    Returns:
        The finished folder, or None after ``--preview``.

    Raises:
        UserError: the task, the inputs, the model or the folder is not usable; nothing is spent before.
        StorageError: the disk failed; finished shards are kept, and the same command continues.
        WorkerError: a worker failed; finished shards are kept.
    """
    task = load_task(settings.task)
    decoding = settings.decoding(task.decoding)
    _check(task, settings)
    for source in settings.inputs:
        refuse_source(run, model=settings.model, inputs=source)
    pieces = pieces_of(settings, decoding)
    if settings.preview:
        model = load_model(settings.model, device=settings.device, dtype=settings.dtype)
        examples = first_items(pieces, settings.preview)
        run.progress.result(preview(task, model, examples, decoding, settings.seed))
        return None
    writer = FolderWriter.start(
        run,
        step="generate",
        schema=SCHEMAS[task.schema_kind],
        settings=_row_settings(task, decoding, settings),
        inputs={f"inputs {i}": hash_source(source) for i, source in enumerate(settings.inputs, start=1)},
        models={"model": model_revision(settings.model)},
        growth=growth(pieces),
        planned=len(pieces),
    )
    if writer.finished:
        run.progress.say(f"{run.out} is finished already; nothing to do")
        return writer.folder()

    labels = len(task.labels)
    items = sum(len(piece.items) for piece in pieces)
    todo = [_todo(piece, writer) for piece in pieces if not writer.is_done(piece.number, piece.share)]
    lost: list[Lost[Todo]] = []
    where = Where(settings.executor, settings.workers, settings.ray_address)
    with run.progress.task("generate", items * labels, "prompts") as bar:
        bar.skip((items - sum(len(each.piece.items) for each in todo)) * labels)
        load, say = ShardLoader(task, settings, decoding), partial(run.tell, "worker")
        for outcome in execute(load, todo, bar.advance, where, say):
            if isinstance(outcome, Lost):
                lost.append(outcome)
                continue
            piece, tables = outcome.item.piece, outcome.result
            writer.commit(piece.number, {"train": tables.rows}, tables.rejects, piece.share)
            counts = writer.counts
            bar.note = f"{counts.rows:,} texts, {counts.rejects:,} rejects saved"
    if lost:
        raise WorkerError(_lost(lost, run))
    folder = writer.finish(_card(task, settings, decoding, items))
    run.progress.say(summary(folder))
    return folder


def _todo(piece: Piece, writer: FolderWriter) -> Todo:
    """The piece, with what an earlier run made for a part of it."""
    made = writer.made(piece.number)
    return Todo(piece) if made is None else Todo(piece, made[0]["train"], made[1])


def _lost(lost: list[Lost[Todo]], run: Run) -> str:
    names = ", ".join(str(each.item.piece.number) for each in lost)
    which = f"shard {names} was" if len(lost) == 1 else f"shards {names} were"
    return (
        f"{which} given up: each ended its worker three times ({lost[0].how}); the others are saved in "
        f"{run.out}\nrun the same command again to try once more, with fewer --workers or --rows if memory "
        "ran out"
    )


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
