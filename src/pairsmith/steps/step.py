"""What a step of pairsmith is: its settings and its functions, by their names.

The functions are imported when they are called, so that ``pairsmith --help`` does not wait for torch.
"""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pairsmith.core.fields import WorkerSettings
from pairsmith.core.model_names import check_name
from pairsmith.core.settings import Settings, option_name

if TYPE_CHECKING:
    from pairsmith.runs import Run
    from pairsmith.runs.estimate import Estimate


@dataclass(frozen=True, slots=True)
class Step:
    """A step: its settings, the function that does the work, and the function that says what it will cost.

    Functions are named as ``package.module:function``, and imported when they are needed.
    """

    settings: type[Settings]
    work: "str | Callable[[Any, Run], object]"  # takes settings and a ``Run``; writes into the run's folder
    help: str  # one line for people
    preview_setting: str = ""  # the setting with which the step writes nothing and needs no folder
    folder_setting: str = ""  # the setting without which the step needs no folder
    # By setting, a function that raises a ``UserError`` for values that cannot be used. Without one, ``base``
    # and ``model`` are checked as names of models.
    checks: Mapping[str, Callable[[str], object]] = field(default_factory=dict)
    # Takes settings that name what exists, and the estimates of what stands in for the results of earlier
    # steps (``stand_ins``); gives an ``Estimate``. Empty for a training, which plans itself, and where
    # ``planned_rows_setting`` is given.
    plan: str = ""
    # The setting that names the rows; a plan runs the step on some of them and extrapolates.
    planned_rows_setting: str = ""
    # Commands that may follow, for people; {out} and the names of settings stand for what the step was given.
    next_commands: tuple[str, ...] = ()
    of_runs: bool = False  # whether the step can read the folder of a recipe's run

    def run(self, settings: Settings, run: "Run") -> object:
        """Do the work; for a rank of an array job, its share."""
        work = imported(self.work) if isinstance(self.work, str) else self.work
        if run.kept and isinstance(settings, WorkerSettings):
            from pairsmith.runs.array_job import rank_of, run_rank

            if rank := rank_of(settings):
                run_rank(work, settings, rank, run)
                return None
        return work(settings, run)

    def commands_after(self, settings: Settings, out: str) -> list[str]:
        """``next_commands`` with the step's settings filled in; a setting without a value is in capitals."""
        given = {"out": shlex.quote(out)}
        for name in self.settings.model_fields:
            values = getattr(settings, name)
            texts = [str(value) for value in (values if isinstance(values, list) else [values]) if value]
            given[name] = f" {option_name(name)} ".join(map(shlex.quote, texts)) or name.upper()
        return [command.format_map(given) for command in self.next_commands]

    def planner(self) -> "Callable[..., Estimate]":
        """The function that says what the step will cost."""
        planner: Callable[..., Estimate]
        if self.planned_rows_setting:
            planner = partial(imported("pairsmith.steps.slice_plan:plan_by_slice"), self)
        else:
            planner = imported(self.plan) if self.plan else imported(str(self.work)).plan
        return planner

    def all_checks(self) -> Mapping[str, Callable[[str], object]]:
        """``checks``, and those of the settings that name models."""
        fields = self.settings.model_fields.keys()
        names = ({"base", "model"} & fields) - self.checks.keys()
        return {**self.checks, **dict.fromkeys(sorted(names), check_name)}

    def needs_folder(self, settings: Settings) -> bool:
        """Whether the step needs a folder to write to."""
        if self.preview_setting and getattr(settings, self.preview_setting):
            return False
        return not self.folder_setting or bool(getattr(settings, self.folder_setting))


def imported(name: str) -> Any:
    """The function that is named as ``package.module:function``."""
    module, _, function = name.partition(":")
    return getattr(import_module(module), function)


def command_of(name: str) -> str:
    """A step's name on the command line: that of ``evaluate-sts`` is ``evaluate sts``."""
    return name.replace("evaluate-", "evaluate ")


StepTable = Mapping[str, Step]
