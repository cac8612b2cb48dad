"""What there is to do with the package ``mteb``: its tasks by name, our pairs as a task, and their figures.

Importing this imports mteb, which takes some seconds.
"""

import json
import logging
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

import mteb
import numpy as np
from datasets import Dataset, DatasetDict
from mteb.abstasks.aggregated_task import AbsTaskAggregate
from mteb.abstasks.sts import AbsTaskSTS
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.models.sentence_transformer_wrapper import SentenceTransformerEncoderWrapper
from mteb.results import TaskResult
from scipy.stats import ConstantInputWarning  # type: ignore[import-untyped]  # it has no types
from sentence_transformers import SentenceTransformer

from pairsmith.errors import InputError, ModelError, SettingsError, first_line
from pairsmith.modelfiles import unsaid
from pairsmith.progress import Progress
from pairsmith.records.sts import StsSuite

Task = Any
"""A task of mteb; the library's classes are not looked at by the type checker."""

VERSION: str = mteb.__version__
SPLIT = "test"
_METRIC = "cosine_spearman"
# mteb tells these through its log too, from where they are shown in a line.
_TOLD_TWICE = ("is superseded by", "is currently in beta", "has been renamed", "prompts")


def named_tasks(names: Sequence[str], benchmark: str | None) -> list[Task]:
    """The tasks of these names and of the benchmark, each once.

    Raises:
        SettingsError: mteb knows no such task or benchmark, or a task is not one of texts.
    """
    found: dict[str, Task] = {}
    known = {task.metadata.name for task in mteb.get_tasks(exclude_superseded=False, exclude_private=False)}
    for name in names:
        if name not in known:
            raise SettingsError(f"mteb {VERSION} has no task {name!r}{_nearest(name, known)}")
        found[name] = mteb.get_task(name)
    if benchmark is not None:
        benchmarks = {each.name: each for each in mteb.get_benchmarks()}
        aliases = {alias: each for each in benchmarks.values() for alias in each.aliases or ()}
        if benchmark not in benchmarks | aliases:
            raise SettingsError(
                f"mteb {VERSION} has no benchmark {benchmark!r}{_nearest(benchmark, benchmarks | aliases)}"
            )
        for task in (benchmarks | aliases)[benchmark].tasks:
            found[task.metadata.name] = task  # with the subsets of which the benchmark's mean is made
    for name, task in found.items():
        if set(task.metadata.modalities) != {"text"}:
            kinds = ", ".join(sorted(task.metadata.modalities))
            raise SettingsError(f"mteb's task {name} is one of {kinds}; a sentence encoder reads only text")
    return list(found.values())


def local_task(suite: StsSuite) -> Task:
    """A task of mteb that holds the pairs of ``suite``, those of all its subsets together.

    Raises:
        InputError: the scores are all equal, so there is no order to compare with.
    """
    pairs = suite.pairs
    scores = [pair.score for pair in pairs]
    if len(set(scores)) < 2:
        raise InputError(
            f"{suite.name}: needs at least two pairs with different scores, so that there is an order"
        )

    class LocalPairs(AbsTaskSTS):
        """Graded pairs of the user's own."""

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


def revisions(task: Task) -> str:
    """Which data a task is made of: data set, revision, subsets and splits, or those of its tasks."""
    if isinstance(task, AbsTaskAggregate):
        return " ".join(f"{each.metadata.name}={revisions(each)}" for each in task.tasks)
    about = task.metadata.dataset
    parts = [*sorted(task.hf_subsets or ()), *sorted(task.eval_splits or ())]
    return " ".join([f"{about['path']}@{about.get('revision')}", *parts])


def load_data(task: Task) -> None:
    """Load a task's data, from the Hub or the local cache of it.

    Raises:
        InputError: they are not to be had.
    """
    if isinstance(task, AbsTaskAggregate):
        for each in task.tasks:
            load_data(each)
        return
    if task.data_loaded:
        return
    try:
        with _quiet_bars(), unsaid("huggingface_hub.utils._http", "thrown while requesting", "Retrying in"):
            task.load_data()
    except Exception as error:  # of the network, the Hub, the data set's form: they have no common base
        raise InputError(
            f"task {task.metadata.name}: its data ({task.metadata.dataset['path']}) cannot be had from the "
            f"Hugging Face Hub ({first_line(error)}); graded pairs of your own go in by --data"
        ) from error


def run_task(task: Task, encoder: "Encoder", batch_size: int) -> TaskResult:
    """What mteb finds of ``encoder`` in a task whose data are loaded; they are dropped afterwards.

    Raises:
        ModelError: the main score is undefined: the vectors order nothing, or are not finite.
        InputError: mteb lacks a package that this task wants.
    """
    name = task.metadata.name
    try:
        with warnings.catch_warnings(), _quiet_bars():
            warnings.simplefilter("ignore", ConstantInputWarning)  # an error of ours says it
            found = mteb.evaluate(
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
    for each in task.tasks if isinstance(task, AbsTaskAggregate) else [task]:
        each.unload_data()
    result = found.task_results[0]
    if not math.isfinite(result.get_score()):
        raise ModelError(f"task {name}: the score is undefined; the model gives every text the same vector?")
    return result


def figures_of(task: Task, result: TaskResult) -> dict[str, Any]:
    """A task's part of ``results.json``: the main score ×100, and that of each split and subset."""
    parts = {
        split: {each["hf_subset"]: _percent(each["main_score"]) for each in found}
        for split, found in result.scores.items()
    }
    return {"main": _percent(result.get_score()), "metric": task.metadata.main_score, "splits": parts}


def result_to_json(result: TaskResult) -> bytes:
    """mteb's own file of results, as its program writes it but for the rounding."""
    return (json.dumps(result.model_dump(mode="json"), indent=2) + "\n").encode()


def result_from_json(data: bytes) -> TaskResult:
    """What ``result_to_json`` wrote.

    Raises:
        ValueError: it is something else.
    """
    return TaskResult.model_validate_json(data)


def characters_of(task: Task) -> int:
    """How many characters a task's texts have, as mteb's package says; 0 where it does not."""
    if isinstance(task, AbsTaskAggregate):
        return sum(characters_of(each) for each in task.tasks)
    if task.data_loaded:
        rows = task.dataset[SPLIT]
        return sum(len(text) for name in ("sentence1", "sentence2") for text in rows[name])
    stats = task.metadata.descriptive_stats or {}
    return sum(int(stats.get(split, {}).get("number_of_characters") or 0) for split in task.eval_splits)


class Encoder(SentenceTransformerEncoderWrapper):
    """mteb's own way to encode with a model of sentence-transformers; how far it is shows in a bar."""

    mteb_model_meta: Any

    def __init__(self, model: SentenceTransformer, revision: str, progress: Progress) -> None:
        with warnings.catch_warnings():
            # Both are about calls of mteb's own.
            warnings.filterwarnings("ignore", "The fill_missing parameter", DeprecationWarning)
            warnings.filterwarnings("ignore", "The `get_sentence_embedding_dimension` method", FutureWarning)
            super().__init__(model)
        # No name is asked for on the Hub, and no path gets into the results.
        about = {"name": "pairsmith/encoder", "revision": revision}
        self.mteb_model_meta = self.mteb_model_meta.model_copy(update=about)
        self._progress = progress

    def encode(self, inputs: Any, **rest: Any) -> Any:
        """Vectors of shape (n, d) of the n texts in a ``DataLoader`` of mteb's."""
        with self._progress.task("encode", len(inputs.dataset), "texts") as bar:

            def count(module: Any, features: Any, made: Any) -> None:  # noqa: ARG001 - as torch calls it
                bar.advance(len(made["sentence_embedding"]))

            hook = self.model[-1].register_forward_hook(count)
            try:
                return super().encode(inputs, **rest)
            finally:
                hook.remove()


@contextmanager
def told_in_lines(say: Callable[[str], None]) -> Iterator[None]:
    """Show what mteb warns of as lines of ours meanwhile, each once, and not as Python's warnings."""
    logger = logging.getLogger("mteb")
    teller = _Teller(say)
    passed_on, logger.propagate = logger.propagate, False
    logger.addHandler(teller)
    try:
        with warnings.catch_warnings():
            for words in _TOLD_TWICE:
                warnings.filterwarnings("ignore", f"(?s).*{words}", UserWarning)
            yield
    finally:
        logger.removeHandler(teller)
        logger.propagate = passed_on


class _Teller(logging.Handler):
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
    """Hide the bars of the library ``datasets`` meanwhile."""
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


def _nearest(name: str, known: Any) -> str:
    """The tail of an "unknown name" message; there are too many names to list them all."""
    by_lower = {each.lower(): each for each in known}
    near = get_close_matches(name.lower(), by_lower, n=1)
    hint = f"; did you mean {by_lower[near[0]]!r}?" if near else ""
    return f"{hint or ';'} all are listed at https://github.com/embeddings-benchmark/mteb"
