"""How a worker of the step ``generate`` makes a shard: from its inputs to two tables."""

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
from pairsmith.methods.dino.method import rows_needed, write
from pairsmith.methods.dino.request_queue import Hooks
from pairsmith.methods.dino.requests import TextRequest
from pairsmith.models.language.loading import load_model
from pairsmith.models.language.protocols import SteerableModel
from pairsmith.models.language.remote import RemoteModel, is_remote
from pairsmith.models.memory import MOST_ROWS
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
_NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")
"""Parts of torch's messages when memory runs out: on Linux, on Windows, and on other devices."""
_TRY = re.compile(r"(.+)-try-(\d+)")


def load_worker(
    task: TaskSpec, settings: GenerateSettings, revision: str, cache: str | None, worker: int
) -> Work[Shard, RowsAndRejects]:
    """Load the model; what is returned makes the rows and rejects of a shard."""
    model = model_of(task, settings, cache)
    if model.revision != revision:
        raise ModelError(
            f"model {settings.model}: worker {worker} finds different weights under this name than the "
            "process that started it"
        )
    decoding = settings.decoding(task.decoding)
    if decoding.max_tokens >= model.context:
        raise SettingsError(
            f"--max-tokens {decoding.max_tokens} leaves no room for a prompt in the model's {model.context} "
            "tokens"
        )
    budget = settings.rows
    most = MOST_ROWS["cpu" if pick_device(settings.device) == "cpu" else "other"]  # at once, without a budget

    def on_start(rows: int) -> None:
        nonlocal most
        most = rows

    def make(shard: Shard, advance: Advance) -> RowsAndRejects:
        nonlocal budget
        while True:
            ended = 0

            def on_done(_: object) -> None:
                nonlocal ended
                ended += 1
                advance(1)

            hooks = Hooks(on_start=on_start, on_done=on_done)
            requests = list(shard.requests(task, decoding))
            take_up(requests, shard.earlier)
            try:
                written = write(task, model, requests, decoding, settings.seed, budget, hooks)
            except (RuntimeError, MemoryError) as error:
                advance(-ended)
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
    """Connect to the settings' server; ``cache`` is a file that keeps its responses."""
    way = steering_of(task, settings)
    return RemoteModel(
        settings.model, cache, way=way, at_once=settings.concurrency, listed=settings.top_logprobs
    )


def _halved(budget: int, fewest: int, error: RuntimeError | MemoryError) -> int:
    """Half the row budget after memory ran out. In bfloat16 texts may differ from those of larger batches."""
    known = isinstance(error, torch.OutOfMemoryError | MemoryError)
    if not known and not any(words in str(error) for words in _NO_MEMORY):
        raise error
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if budget == fewest:
        raise ModelError(
            f"even {budget} rows at once do not fit in memory; give a smaller model or --dtype bfloat16"
        ) from error
    return max(budget // 2, fewest)


def take_up(requests: Iterable[TextRequest], tables: tuple[pa.Table, pa.Table] | None) -> None:
    """Give requests what an earlier run's rows and rejects say of their tries.

    Rows do not record the number of their try: in order, they take the numbers that no reject has.
    """
    if tables is None:
        return
    rows, not_kept = tables
    rejects: dict[str, dict[int, Reject]] = defaultdict(dict)
    for reject in from_table(not_kept, Reject):
        if match := _TRY.fullmatch(reject.id):
            rejects[match[1]][int(match[2])] = reject
    texts: dict[str, list[str]] = defaultdict(list)
    pairs = "sentence2" in rows.column_names
    written = rows["sentence2" if pairs else "text"].to_pylist()
    for name, text in zip(rows["id"].to_pylist(), written, strict=True):
        texts[name.rpartition("-")[0] if pairs else name].append(text)
    for request in requests:
        lost, kept = rejects[request.id], texts[request.id]
        tries = [number for number in range(len(lost) + len(kept)) if number not in lost]
        request.texts, request.rejects = dict(zip(tries, kept, strict=True)), dict(lost)
