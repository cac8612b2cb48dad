"""``pairsmith plan``: estimates what a recipe will make and cost before it runs.

Each step is tried on a part of its work in a process of its own, so that the memory that is measured does not
include the memory of earlier steps.
"""

import multiprocessing
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from pairsmith.cli.recipe_checks import check_extras
from pairsmith.cli.recipes import RUN_REFERENCE, Recipe
from pairsmith.cli.setting_texts import texts_in
from pairsmith.cli.stand_ins import plan_step
from pairsmith.cli.steps import STEPS
from pairsmith.cli.tables import plain_table
from pairsmith.core.errors import PairsmithError, SettingsError, WorkerError, errors_in_other_words
from pairsmith.core.progress import Progress, clock
from pairsmith.runs.estimate import Estimate, total
from pairsmith.runs.executors import how_it_ended, ignoring_interrupts


def plan_recipe(recipe: Recipe, progress: Progress) -> dict[str, Estimate]:
    """The estimate of each step, by its name; this takes some seconds for each step."""
    check_extras(recipe.extras)
    estimates: dict[str, Estimate] = {}
    bases: dict[str, str] = {}
    for number, planned in enumerate(recipe.steps, start=1):
        progress.say(f"step {number}/{len(recipe.steps)} · {planned.name}: trying a part of the work")
        settings = planned.step.settings.model_validate(planned.values)
        before = {f"@{name}": estimate for name, estimate in estimates.items()}
        if any(value == RUN_REFERENCE for value in planned.values.values()):
            before[RUN_REFERENCE] = _together(estimates)
        kept = planned.step.settings.kept_folders()
        read = (value for name, value in planned.values.items() if name not in kept)
        for text in (text for value in read for text in texts_in(value)):
            folder = text.partition(":")[0]  # a split counts as all rows of its step
            if folder in before:
                before[text] = before[folder]
            elif text.startswith("@"):
                raise SettingsError(
                    f"{planned.name}: {text} is part of a step's folder; plan can only estimate steps that "
                    "refer to whole folders"
                )
        with errors_in_other_words(planned.keys()):
            estimates[planned.name] = _apart(
                _estimate, planned.kind, settings, before, bases, time.monotonic()
            )
        if base := getattr(settings, "base", None):
            bases[f"@{planned.name}"] = bases.get(base, base)
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

    def lines(self, bought: tuple[int, int]) -> Iterator[str]:
        """Sentences on the price of ``bought`` input and output tokens, and whether the budget suffices."""
        price = (bought[0] * self.read + bought[1] * self.written) / 1e6
        yield (
            f"servers read {bought[0]:,} tokens and write {bought[1]:,}: {price:,.2f} at {self.read:g} and "
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


def _together(estimates: Mapping[str, Estimate]) -> Estimate:
    """The earlier steps as one estimate, for a step that reads the folder of the run."""
    rows = sum(sum(estimate.rows.values()) for estimate in estimates.values())
    return Estimate(seconds=0.0, memory=0, disk=total(estimates.values()).disk, rows={"all": rows})


def plan_table(estimates: Mapping[str, Estimate], workers: int, prices: Prices | None = None) -> str:
    """The estimates as a plain table with a total, the time with ``workers`` workers, and servers' prices."""
    cells = [("step", "rows", "tokens written", "time", "memory", "disk")]
    for name, estimate in estimates.items():
        rows = f"{sum(estimate.rows.values()):,}" if estimate.rows else ""
        cells.append((name, rows, *_costs(estimate)))
    recipe_total = total(estimates.values())
    cells.append(("all", "", *_costs(recipe_total)))
    lines = [plain_table(cells)]
    if recipe_total.scratch:
        lines.append(
            "peak disk use during the run, with checkpoints: "
            f"{_bytes(recipe_total.disk + recipe_total.scratch)}"
        )
    if any(recipe_total.bought) and prices is None:
        read, written = recipe_total.bought
        lines.append(
            f"servers read {read:,} tokens and write {written:,}; give --price-in and --price-out for the "
            "price"
        )
    elif prices is not None and any(recipe_total.bought):
        lines += prices.lines(recipe_total.bought)
    elif prices is not None:
        lines.append("no price: no step uses a server that says how many tokens it reads and writes")
    if workers > 1:
        seconds = recipe_total.seconds + sum(
            estimate.seconds_with(workers) - estimate.seconds for estimate in estimates.values()
        )
        memory = max((estimate.worker_memory for estimate in estimates.values()), default=0)
        lines.append(
            f"with {workers} workers, each as fast as this machine: {clock(seconds)}; "
            f"each needs {_bytes(memory)} of memory"
        )
    return "\n".join(lines)


def _costs(cost: Estimate) -> tuple[str, str, str, str]:
    tokens = f"{cost.tokens:,}" if cost.tokens else ""
    return tokens, clock(cost.seconds), _bytes(cost.memory), _bytes(cost.disk)


def _estimate(
    kind: str, settings: Any, before: Mapping[str, Estimate], bases: Mapping[str, str], begun: float
) -> Estimate:
    from pairsmith.runs import resolve_dtype
    from pairsmith.steps.kept_vectors import corpus_vectors, kept_share

    step, settings = STEPS[kind], resolve_dtype(settings)
    step.planner()  # imports the libraries
    starting = time.monotonic() - begun
    estimate, vectors = plan_step(step, settings, before, bases), corpus_vectors(settings)
    if vectors and any(earlier.vectors == vectors for earlier in before.values()):
        estimate = estimate.with_kept_vectors()
    elif vectors:
        estimate = estimate.with_kept_vectors(kept_share(settings, before))
    return replace(estimate, starting=starting, vectors=vectors)


def _apart(work: Callable[..., Estimate], *arguments: Any) -> Estimate:
    """Call ``work`` in a new process, and return its result."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe()
    process = context.Process(target=_answer, args=(sender, work, arguments), daemon=True)
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


def _answer(pipe: Any, work: Callable[..., Estimate], arguments: tuple[Any, ...]) -> None:
    try:
        pipe.send(work(*arguments))
    except PairsmithError as error:
        pipe.send(error)
    except Exception:
        pipe.send(
            WorkerError(f"a step could not be tried; this is a bug in pairsmith:\n{traceback.format_exc()}")
        )


def _bytes(number: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if number >= size:
            return f"{number / size:,.1f} {unit}"
    return f"{number} B"
