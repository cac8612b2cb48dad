"""The interface to the package ``mteb``: tasks by name, the user's own pairs as a task, and their figures.

Importing this module imports mteb, which takes some seconds.
"""

import logging
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

import mteb
import numpy as np
from datasets import Dataset, DatasetDict
from mteb.abstasks.aggregated_task import AbsTaskAggregate
from mteb.abstasks.sts import AbsTaskSTS
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.filter_tasks import filter_tasks
from mteb.get_tasks import TASK_LIST
from mteb.models.sentence_transformer_wrapper import SentenceTransformerEncoderWrapper
from mteb.results import TaskResult
from scipy.stats import ConstantInputWarning  # type: ignore[import-untyped]  # it has no types
from sentence_transformers import SentenceTransformer

from pairsmith.core.errors import InputError, ModelError, SettingsError, first_line
from pairsmith.core.model_files import without_log_messages
from pairsmith.core.progress import Progress
from pairsmith.data.sts import StsSuite

MtebTask = Any
"""A task of mteb, whose classes have no types."""

VERSION: str = mteb.__version__
SPLIT = "test"
"""The split of a task that is made of the user's own pairs."""
_METRIC = "cosine_spearman"
# Python warnings that mteb also logs; only the log is shown.
_REPEATED_WARNINGS = ("is superseded by", "is currently in beta", "has been renamed", "prompts")


def named_tasks(names: Sequence[str], benchmark: str | None) -> list[MtebTask]:
    """The tasks with these names and the tasks of the benchmark, without duplicates."""
    tasks: dict[str, MtebTask] = {}
    # Only the classes: creating objects of all two thousand tasks takes seconds.
    classes = filter_tasks(TASK_LIST, exclude_superseded=False, exclude_private=False, exclude_beta=True)
    task_names = {task.metadata.name for task in classes}
    for name in names:
        if name not in task_names:
            raise SettingsError(f"mteb {VERSION} has no task {name!r}{_nearest(name, task_names)}")
        tasks[name] = mteb.get_task(name)
    if benchmark is not None:
        benchmarks = {candidate.name: candidate for candidate in mteb.get_benchmarks()}
        aliases = {alias: candidate for candidate in benchmarks.values() for alias in candidate.aliases or ()}
        if benchmark not in benchmarks | aliases:
            raise SettingsError(
                f"mteb {VERSION} has no benchmark {benchmark!r}{_nearest(benchmark, benchmarks | aliases)}"
            )
        for task in (benchmarks | aliases)[benchmark].tasks:
            tasks[task.metadata.name] = task  # limited to the subsets that the benchmark averages over
    for name, task in tasks.items():
        if set(task.metadata.modalities) != {"text"}:
            kinds = ", ".join(sorted(task.metadata.modalities))
            raise SettingsError(f"mteb's task {name} is for {kinds}; a sentence encoder reads only text")
    return list(tasks.values())


def local_task(suite: StsSuite) -> MtebTask:
    """The pairs of all subsets of ``suite`` as one task of mteb."""
    pairs = suite.pairs
    scores = [pair.score for pair in pairs]
    if len(set(scores)) < 2:
        raise InputError(f"{suite.name}: needs at least two pairs with different scores to rank")

    class LocalPairs(AbsTaskSTS):
        """The user's own graded pairs."""

        min_score, max_score = min(scores), max(scores)
        metadata = TaskMetadata(
            name=suite.name,
            description="Graded pairs from a file.",
            dataset={"path": "local", "revision": "local"},
            type="STS",
            category="t2t",
            eval_splits=[SPLIT],
            eval_langs=["eng-Latn"],
            main_score=_METRIC,
        )

    task = LocalPairs()
    columns = {
        "sentence1": [pair.sentence1 for pair in pairs],
        "sentence2": [pair.sentence2 for pair in pairs],
        "score": scores,
    }
    task.dataset = DatasetDict({SPLIT: Dataset.from_dict(columns)})
    task.data_loaded = True
    return task


def revisions(task: MtebTask) -> str:
    """The data that a task uses, as text: data set, revision, subsets and splits, of each subtask."""
    if isinstance(task, AbsTaskAggregate):
        return " ".join(f"{subtask.metadata.name}={revisions(subtask)}" for subtask in task.tasks)
    dataset = task.metadata.dataset
    parts = [*sorted(task.hf_subsets or ()), *sorted(task.eval_splits or ())]
    return " ".join([f"{dataset['path']}@{dataset.get('revision')}", *parts])


def load_data(task: MtebTask) -> None:
    """Load a task's data from the Hub or its local cache."""
    if isinstance(task, AbsTaskAggregate):
        for subtask in task.tasks:
            load_data(subtask)
        return
    if task.data_loaded:
        return
    try:
        with (
            _quiet_bars(),
            without_log_messages("huggingface_hub.utils._http", "thrown while requesting", "Retrying in"),
        ):
            task.load_data()
    except Exception as error:  # network, Hub and data set errors have no common base class
        raise InputError(
            f"task {task.metadata.name}: its data ({task.metadata.dataset['path']}) cannot be loaded from "
            f"the Hugging Face Hub ({first_line(error)}); to use graded pairs of your own, give --data"
        ) from error


def run_task(task: MtebTask, encoder: "Encoder", batch_size: int) -> TaskResult:
    """Evaluate ``encoder`` on a task whose data are loaded; the data are unloaded afterwards."""
    name = task.metadata.name
    try:
        with warnings.catch_warnings(), _quiet_bars():
            warnings.simplefilter("ignore", ConstantInputWarning)  # reported as a ModelError below
            results = mteb.evaluate(
                encoder,
                task,
                co2_tracker=False,
                cache=None,
                encode_kwargs={"batch_size": batch_size, "show_progress_bar": False},
                show_progress_bar=False,
            )
    except ImportError as error:
        raise InputError(f"task {name}: {first_line(error)}") from error
    except ValueError as error:
        if "NaN" not in str(error) and "infinity" not in str(error):
            raise
        raise ModelError(f"task {name}: the model's vectors are not finite; try dtype float32") from error
    for part in task.tasks if isinstance(task, AbsTaskAggregate) else [task]:
        part.unload_data()
    result = results.task_results[0]
    if not math.isfinite(result.get_score()):
        raise ModelError(
            f"task {name}: the score is undefined; does the model give every text the same vector?"
        )
    return result


def figures_of(task: MtebTask, result: TaskResult) -> dict[str, Any]:
    """A task's figures in ``results.json``: the main score ×100, in all and for each split and subset."""
    parts = {
        split: {subset["hf_subset"]: _percent(subset["main_score"]) for subset in subsets}
        for split, subsets in result.scores.items()
    }
    return {"main": _percent(result.get_score()), "metric": task.metadata.main_score, "splits": parts}


def characters_of(task: MtebTask) -> int:
    """The number of characters in a task's texts, from mteb's statistics; 0 if there are none."""
    if isinstance(task, AbsTaskAggregate):
        return sum(characters_of(subtask) for subtask in task.tasks)
    if task.data_loaded:
        rows = task.dataset[SPLIT]
        return sum(len(text) for name in ("sentence1", "sentence2") for text in rows[name])
    stats = task.metadata.descriptive_stats or {}
    return sum(int(stats.get(split, {}).get("number_of_characters") or 0) for split in task.eval_splits)


class Encoder(SentenceTransformerEncoderWrapper):
    """mteb's own wrapper of a sentence-transformers model, with a progress bar."""

    mteb_model_meta: Any

    def __init__(self, model: SentenceTransformer, revision: str, progress: Progress) -> None:
        with warnings.catch_warnings():
            # Both warnings are about calls in mteb's own code.
            warnings.filterwarnings("ignore", "The fill_missing parameter", DeprecationWarning)
            warnings.filterwarnings("ignore", "The `get_sentence_embedding_dimension` method", FutureWarning)
            super().__init__(model)
        # With a fixed name, mteb looks up nothing on the Hub, and the results contain no path.
        identity = {"name": "pairsmith/encoder", "revision": revision}
        self.mteb_model_meta = self.mteb_model_meta.model_copy(update=identity)
        self._progress = progress

    def encode(self, inputs: Any, **rest: Any) -> Any:
        """Encode the n texts in a ``DataLoader`` of mteb into vectors of shape (n, d)."""
        with self._progress.task("encode", len(inputs.dataset), "texts") as bar:

            def count(module: Any, features: Any, output: Any) -> None:  # noqa: ARG001 - as torch calls it
                bar.advance(len(output["sentence_embedding"]))

            hook = self.model[-1].register_forward_hook(count)
            try:
                return super().encode(inputs, **rest)
            finally:
                hook.remove()


@contextmanager
def warnings_passed_to(say: Callable[[str], None]) -> Iterator[None]:
    """Pass the warnings that mteb logs to ``say``, each once; hide Python warnings that repeat them."""
    logger = logging.getLogger("mteb")
    handler = _WarningHandler(say)
    propagated, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        with warnings.catch_warnings():
            for words in _REPEATED_WARNINGS:
                warnings.filterwarnings("ignore", f"(?s).*{words}", UserWarning)
            yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagated


class _WarningHandler(logging.Handler):
    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._say = say
        self._said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage().strip().splitlines()[0]
        if text not in self._said:
            self._said.add(text)
            self._say(f"mteb: {text}")


@contextmanager
def _quiet_bars() -> Iterator[None]:
    """Hide the progress bars of the library ``datasets`` inside the context."""
    from datasets.utils import logging as bars

    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            bars.enable_progress_bar()


def _percent(score: float) -> float:
    return round(100.0 * float(np.float64(score)), 4)


def _nearest(name: str, names: Iterable[str]) -> str:
    """The end of an error message on an unknown name: the most similar name, and where all are listed."""
    by_lower = {candidate.lower(): candidate for candidate in names}
    matches = get_close_matches(name.lower(), by_lower, n=1)
    hint = f"; did you mean {by_lower[matches[0]]!r}?" if matches else ""
    return f"{hint or ';'} all are listed at https://github.com/embeddings-benchmark/mteb"
