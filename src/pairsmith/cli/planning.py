"""``pairsmith plan``: estimates what a recipe will make and cost before it runs.

Each step is tried on a part of its work, in a process of its own, so that the measured memory does not
include the memory of earlier steps. What earlier steps will make does not exist yet, so stand-ins take its
place.
"""

import multiprocessing
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from pairsmith.cli.recipe_checks import check_extras
from pairsmith.cli.recipes import RUN_REFERENCE, Recipe
from pairsmith.cli.setting_texts import map_texts, texts_in
from pairsmith.cli.steps import STEPS
from pairsmith.cli.tables import plain_table
from pairsmith.core.errors import (
    FolderError,
    InputError,
    PairsmithError,
    SettingsError,
    WorkerError,
    errors_in_other_words,
    size_text,
)
from pairsmith.core.progress import Progress, Silent, clock
from pairsmith.core.settings import Settings
from pairsmith.data.schemas import REJECT
from pairsmith.runs import Card, FolderWriter, Run
from pairsmith.runs.estimate import Before, Estimate, total
from pairsmith.runs.executors import how_it_ended, ignoring_interrupts
from pairsmith.runs.identity import Identity
from pairsmith.steps.step import Step


def plan_recipe(recipe: Recipe, progress: Progress) -> dict[str, Estimate]:
    """The estimate of each step, by its name; this takes some seconds for each step."""
    check_extras(recipe.extras)
    estimates: dict[str, Estimate] = {}
    for number, planned in enumerate(recipe.steps, start=1):
        progress.say(f"step {number}/{len(recipe.steps)} · {planned.name}: trying a part of the work")
        settings = planned.step.settings.model_validate(planned.values)
        before = {f"@{name}": estimate for name, estimate in estimates.items()}
        kept = planned.step.settings.kept_folders()
        for value in (value for name, value in planned.values.items() if name not in kept):
            for text in texts_in(value):
                folder, _, split = text.partition(":")
                if folder in before:
                    rows = before[folder].rows
                    own = {"train": rows[split]} if split in rows else rows  # a split is read as a folder
                    before[text] = replace(before[folder], rows=own)
                elif text.startswith("@") and text != RUN_REFERENCE:
                    raise SettingsError(
                        f"{planned.name}: {text} is part of a step's folder; plan can only estimate steps "
                        "that refer to whole folders"
                    )
        with errors_in_other_words(planned.keys()):
            begun = time.monotonic()
            estimates[planned.name] = _in_new_process(_estimate, planned.kind, settings, before, begun)
    return estimates


@dataclass(frozen=True, slots=True)
class Prices:
    """What a million tokens of a server cost, in any currency, and how much may be spent."""

    read: float = 0.0  # price of a million input tokens
    written: float = 0.0  # price of a million output tokens
    budget: float | None = None  # largest sum to spend

    @classmethod
    def of(cls, read: float | None, written: float | None, budget: float | None) -> Self | None:
        """The prices that the options of ``plan`` give; None if none of them is given.

        Raises:
            SettingsError: a number is negative or not finite, or one of the two prices is missing.
        """
        figures = [value for value in (read, written, budget) if value is not None]
        if not all(0 <= value < float("inf") for value in figures):
            raise SettingsError("--price-in, --price-out and --budget must be 0 or more, and finite")
        if figures and (read is None or written is None):
            raise SettingsError(
                "give both --price-in and --price-out; 0 if the server charges nothing for one of them"
            )
        return None if read is None or written is None else cls(read, written, budget)

    def lines(self, read: int, written: int) -> Iterator[str]:
        """Sentences on the price of input and output tokens, and whether the budget suffices."""
        price = (read * self.read + written * self.written) / 1e6
        yield (
            f"servers read {read:,} tokens and write {written:,}: {price:,.2f} at {self.read:g} and "
            f"{self.written:g} for a million tokens"
        )
        if self.budget is not None and price > self.budget:
            yield (
                f"the budget of {self.budget:,.2f} pays for {100 * self.budget / price:.0f} % of these "
                "tokens; use fewer inputs (--set STEP.limit=N) or fewer texts for each (--set "
                "STEP.per_input=N)"
            )
        elif self.budget is not None:
            yield f"the budget of {self.budget:,.2f} suffices"


def plan_table(estimates: Mapping[str, Estimate], workers: int, prices: Prices | None = None) -> str:
    """The estimates as a plain table with a total, the time with ``workers`` workers, and servers' prices."""
    overall = total(estimates.values())
    cells = [("step", "rows", "tokens written", "time", "memory", "disk")]
    for name, cost in [*estimates.items(), ("all", overall)]:
        rows = f"{cost.rows_of():,}" if cost.rows else ""
        tokens = f"{cost.tokens:,}" if cost.tokens else ""
        cells.append((name, rows, tokens, clock(cost.seconds), size_text(cost.memory), size_text(cost.disk)))
    lines = [plain_table(cells)]
    starting = max((cost.starting for cost in estimates.values()), default=0.0)
    if starting >= 1:
        lines.append(f"the total time includes {clock(starting)} in which the libraries are loaded")
    if overall.scratch:
        peak = size_text(overall.disk + overall.scratch)
        lines.append(f"peak disk use during the run, with checkpoints: {peak}")
    read, written = overall.bought
    if prices and (read or written):
        lines += prices.lines(read, written)
    elif read or written:
        lines.append(
            f"servers read {read:,} tokens and write {written:,}; give --price-in and --price-out for the "
            "price"
        )
    elif prices:
        lines.append("no price: no step uses a server that says how many tokens it reads and writes")
    if workers > 1:
        saved = sum(cost.seconds - cost.seconds_with(workers) for cost in estimates.values())
        memory = max((cost.worker_memory for cost in estimates.values()), default=0)
        lines.append(
            f"with {workers} workers, each as fast as this machine: {clock(overall.seconds - saved)}; "
            f"each needs {size_text(memory)} of memory"
        )
    return "\n".join(lines)


def _estimate(kind: str, settings: Any, before: Mapping[str, Estimate], begun: float) -> Estimate:
    from pairsmith.runs import resolve_dtype
    from pairsmith.steps.kept_vectors import kept_share

    step, settings = STEPS[kind], resolve_dtype(settings)
    step.planner()  # imports the libraries
    starting = time.monotonic() - begun
    estimate = plan_step(step, settings, before)
    vectors, share = kept_share(settings, before)
    base = getattr(settings, "base", "")
    base = before[base].base if base in before else base
    return replace(estimate.with_kept_vectors(share), starting=starting, vectors=vectors, base=base)


def plan_step(step: Step, settings: Settings, before: Before) -> Estimate:
    """The estimate of a step whose settings may refer to earlier steps as ``@name``.

    A planner needs data and models that exist. So a reference to the rows of an earlier step is replaced by a
    dataset folder with the sample of rows in that step's estimate, and a reference to a trained model by the
    base that the model will be trained from. The planner gets the estimates by the names of these stand-ins.
    ``before`` maps each reference to the estimate of its step.
    """
    for earlier in (before[value] for _, value in settings if isinstance(value, str) and value in before):
        if earlier.sample is not None and not earlier.sample.num_rows:
            # The sample has no rows on which to try the step, which makes at most as many rows as it reads.
            return Estimate(0.0, rows=earlier.rows, sample=earlier.sample)
    references = {text for _, value in settings for text in texts_in(value) if text in before}
    with TemporaryDirectory(prefix="pairsmith-plan-") as folder:
        stand_ins = {
            reference: stand_in
            for number, reference in enumerate(sorted(references))
            if (stand_in := _stand_in(reference, before[reference], Path(folder) / str(number)))
        }
        changes = {
            name: map_texts(value, lambda text: stand_ins.get(text, text))
            for name, value in settings
            if not stand_ins.keys().isdisjoint(texts_in(value))
        }
        estimates = {**before, **{name: before[reference] for reference, name in stand_ins.items()}}
        try:
            return step.planner()(settings.model_copy(update=changes), estimates)
        except PairsmithError as error:
            missing = [name for name in references - stand_ins.keys() if name in str(error)]
            if missing and isinstance(error, InputError | FolderError):
                raise SettingsError(
                    f"{missing[0]}: plan cannot estimate a step that reads the output of this step, of "
                    "which it has no sample"
                ) from None
            if folder in str(error):  # the user knows the name of the step, not the path of its stand-in
                raise type(error)(re.sub(rf"{re.escape(folder)}/\d+/", "", str(error))) from None
            raise


def _stand_in(reference: str, earlier: Estimate, folder: Path) -> str | None:
    """The model or dataset folder that stands in for an earlier step; None if there is no sample of its rows.

    The sample is written into ``folder``, which is created.
    """
    if not earlier.sample:  # the step makes a model, or its sample has no rows
        return earlier.base or None
    out = folder / reference.partition(":")[0]
    writer = FolderWriter.start(Run(out, Silent()), Identity.of("sample", {}), earlier.sample.schema)
    writer.commit(0, {"train": earlier.sample}, REJECT.empty_table())
    writer.finish(Card("A sample", "Some of the rows that a step will make."))
    return str(out)


def _in_new_process(work: Callable[..., Estimate], *arguments: Any) -> Estimate:
    """Call ``work`` in a new process, and return its result."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe()
    process = context.Process(target=_send_result, args=(sender, work, arguments), daemon=True)
    with ignoring_interrupts():
        process.start()
    sender.close()
    try:
        answer = receiver.recv()
    except EOFError:
        ending = how_it_ended(process)
        cause = "" if "memory" in ending else "; what it wrote above says why"
        raise WorkerError(f"the trial ended with {ending}{cause}") from None
    finally:
        receiver.close()
    process.join()
    if isinstance(answer, PairsmithError):
        raise answer
    assert isinstance(answer, Estimate)
    return answer


def _send_result(pipe: Any, work: Callable[..., Estimate], arguments: tuple[Any, ...]) -> None:
    try:
        pipe.send(work(*arguments))
    except PairsmithError as error:
        pipe.send(error)
