"""The work of a worker of ``generate``: from the inputs of a shard to a table of rows and one of rejects."""

import re
from collections import defaultdict
from collections.abc import Iterable

import pyarrow as pa
import torch

from pairsmith.core.errors import ModelError, SettingsError
from pairsmith.core.model_files import pick_device
from pairsmith.data.schemas import (
    LABELLED_PAIR,
    LABELLED_TEXT,
    REJECT,
    SCORED_PAIR,
    Reject,
    from_table,
    to_table,
)
from pairsmith.data.tasks import TaskSpec
from pairsmith.methods.dino.method import Hooks, rows_needed, write
from pairsmith.methods.dino.requests import TextRequest
from pairsmith.models.language.loading import load_model
from pairsmith.models.language.protocols import SteerableModel
from pairsmith.models.language.remote import RemoteModel, is_remote
from pairsmith.models.memory import MOST_ROWS, is_out_of_memory
from pairsmith.runs.mapped import RowsAndRejects
from pairsmith.runs.work import Advance, Work
from pairsmith.steps.generate.checks import steering_of
from pairsmith.steps.generate.settings import GenerateSettings
from pairsmith.steps.generate.shards import Shard

SCHEMAS: dict[str, pa.Schema] = {
    "scored_pair": SCORED_PAIR,
    "labelled_pair": LABELLED_PAIR,
    "labelled_text": LABELLED_TEXT,
}
_TRY = re.compile(r"(.+)-try-(\d+)")
"""The id of a reject: the id of its request, and the number of the try."""


def load_worker(
    task: TaskSpec, settings: GenerateSettings, revision: str, cache: str | None, worker: int
) -> Work[Shard, RowsAndRejects]:
    """Load the model, and return the function that makes the rows and rejects of a shard."""
    model = model_of(task, settings, cache)
    if model.revision != revision:
        raise ModelError(
            f"model {settings.model}: worker {worker} loaded other weights under this name than the process "
            "that started it; make sure that all workers read the same files"
        )
    if task.decoding.max_tokens >= model.context:
        raise SettingsError(
            f"--max-tokens {task.decoding.max_tokens} leaves no room for a prompt in the model's context of "
            f"{model.context} tokens; give a smaller number"
        )
    budget = settings.rows
    # Number of rows at once if the settings give no budget.
    most = MOST_ROWS["cpu" if pick_device(settings.device) == "cpu" else "other"]

    def on_start(rows: int) -> None:
        nonlocal most
        most = rows

    def make(shard: Shard, advance: Advance) -> RowsAndRejects:
        nonlocal budget
        while True:
            done = 0

            def on_done(_: object) -> None:
                nonlocal done
                done += 1
                advance(1)

            hooks = Hooks(on_start=on_start, on_done=on_done)
            requests = list(shard.requests(task))
            restore_tries(requests, shard.earlier)
            try:
                written = write(task, model, requests, task.decoding, settings.seed, budget, hooks)
            except (RuntimeError, MemoryError) as error:
                advance(-done)
                budget = _halved(budget or most, rows_needed(task), error)
                continue
            rejects = [*written.rejects, *shard.duplicates]
            return to_table(written.rows, SCHEMAS[task.schema_kind]), to_table(rejects, REJECT)

    return make


def model_of(
    task: TaskSpec, settings: GenerateSettings, cache: str | None = None
) -> SteerableModel | RemoteModel:
    """Load the model of the settings, or connect to its server."""
    if is_remote(settings.model):
        return remote_model(task, settings, cache)
    return load_model(settings.model, device=settings.device, dtype=settings.dtype)


def remote_model(task: TaskSpec, settings: GenerateSettings, cache: str | None = None) -> RemoteModel:
    """Connect to the server that the settings name; ``cache`` is the file that keeps its responses."""
    way = steering_of(task, settings)
    return RemoteModel(
        settings.model, cache, way=way, at_once=settings.concurrency, listed=settings.top_logprobs
    )


def _halved(budget: int, fewest: int, error: RuntimeError | MemoryError) -> int:
    """Half of the row budget, after memory ran out; any other error is raised again.

    In bfloat16, a smaller batch may give other texts.
    """
    if not is_out_of_memory(error):
        raise error
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if budget == fewest:
        raise ModelError(
            f"even {budget} rows at once do not fit in memory; give a smaller model or --dtype bfloat16"
        ) from error
    return max(budget // 2, fewest)


def restore_tries(requests: Iterable[TextRequest], tables: tuple[pa.Table, pa.Table] | None) -> None:
    """Set the texts and rejects of the tries that an earlier run made for these requests.

    ``tables`` are the rows and the rejects of that run. Rows do not record the number of their try: in their
    order, they get the numbers that no reject has.
    """
    if tables is None:
        return
    rows, reject_rows = tables
    rejects: dict[str, dict[int, Reject]] = defaultdict(dict)
    for reject in from_table(reject_rows, Reject):
        if match := _TRY.fullmatch(reject.id):
            rejects[match[1]][int(match[2])] = reject
    texts: dict[str, list[str]] = defaultdict(list)
    pairs = "sentence2" in rows.column_names
    written = rows["sentence2" if pairs else "text"].to_pylist()
    for row_id, text in zip(rows["id"].to_pylist(), written, strict=True):
        texts[row_id.rpartition("-")[0] if pairs else row_id].append(text)
    for request in requests:
        rejected, accepted = rejects[request.id], texts[request.id]
        tries = [number for number in range(len(rejected) + len(accepted)) if number not in rejected]
        request.texts, request.rejects = dict(zip(tries, accepted, strict=True)), dict(rejected)
