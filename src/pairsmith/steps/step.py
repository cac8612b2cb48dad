"""The description of a step: its settings, and its functions by their names.

The functions are imported when they are called, so that ``pairsmith --help`` does not wait for torch.
"""

import re
import shlex
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pairsmith.core.errors import StorageError
from pairsmith.core.fields import WorkerSettings
from pairsmith.core.model_names import check_name
from pairsmith.core.paths import MANIFEST, Place, reaching, size_of
from pairsmith.core.settings import Settings, option_name

if TYPE_CHECKING:
    from pairsmith.runs import Run
    from pairsmith.runs.estimate import Estimate

_OPTIONAL = re.compile(r" \[(?P<option>--[a-z-]+ \{(?P<name>[a-z_]+)\})\]")
"""An option in brackets in a command that may follow a step."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step: its settings, the function that does the work, and the function that estimates its cost.

    Functions are named as ``package.module:function``, and imported when they are needed.
    """

    settings: type[Settings]
    work: "str | Callable[[Any, Run], object]"  # called with settings and a ``Run``
    help: str  # one line of help
    preview_setting: str = ""  # if this setting is set, the step writes nothing and needs no folder
    folder_setting: str = ""  # unless this setting is set, the step needs no folder
    # For a setting, a function that raises a ``UserError`` for values that cannot be used. By default,
    # ``base`` and ``model`` are checked as names of models.
    checks: Mapping[str, Callable[[str], object]] = field(default_factory=dict)
    # The function that returns an ``Estimate``. It is called with settings that name existing sources, and
    # with the estimates of earlier steps, by the names of the sources that stand in for their results
    # (``plan_step``). By default, it is the method ``plan`` of ``work``, or ``plan_NAME`` beside it.
    plan: str = ""
    # Used in place of such a function: the name of the setting with the step's rows, on some of which a plan
    # runs the step.
    planned_rows_setting: str = ""
    # The function that raises a ``UserError`` if the data of an evaluation have a fault. It is called with
    # settings, and with the labels that the model will know, if they are known before it is trained. By
    # default, it is the method ``check_data`` of ``work``.
    data_check: str = ""
    # Commands that users may run next, or a function that returns them for the step's settings. {out} and
    # {names of settings} are replaced by the step's values. An option in brackets, as in
    # "[--corpus-column {column}]", is left out if its setting has its default value.
    next_commands: tuple[str, ...] | Callable[[Any], tuple[str, ...]] = ()
    # The figures in the ``results.json`` of an evaluation, as keys joined by dots; a key in capitals stands
    # for a name from the data or the settings. Empty: the step's figures are not listed.
    figures: tuple[str, ...] = ()
    of_runs: bool = False  # whether the step can read the folder of a recipe's run

    def function(self) -> Any:
        """The function that does the work, imported if it is given by its name."""
        return imported(self.work) if isinstance(self.work, str) else self.work

    def run(self, settings: Settings, run: "Run") -> object:
        """Do the work, or this rank's share of it in an array job."""
        from pairsmith.runs.attribution import displayed_options

        work, run = self.function(), replace(run, options=displayed_options(settings))
        if run.kept and isinstance(settings, WorkerSettings):
            from pairsmith.runs.array_job import rank_of, run_rank

            if settings.executor == "ray" and not _is_begun(run.out):
                from pairsmith.runs.ray_executor import check_cluster

                check_cluster(settings.ray_address)  # so that a wrong address leaves no begun folder
            if rank := rank_of(settings):
                run_rank(work, settings, rank, run)
                return None
        return work(settings, run)

    def commands_after(self, settings: Settings, out: str) -> list[str]:
        """``next_commands`` with the step's settings filled in; a setting without a value is in capitals."""
        commands = self.next_commands(settings) if callable(self.next_commands) else self.next_commands
        fields = self.settings.model_fields

        def optional(match: re.Match[str]) -> str:
            default = fields[match["name"]].get_default(call_default_factory=True)
            return "" if getattr(settings, match["name"]) == default else f" {match['option']}"

        replacements = {"out": shlex.quote(out.rstrip("/") or out)}
        for name in fields:
            value = getattr(settings, name)
            values = value if isinstance(value, list) else [] if value is None else [value]
            texts = (shlex.quote(str(value)) for value in values)
            replacements[name] = f" {option_name(name)} ".join(texts) or name.upper()
        return [_OPTIONAL.sub(optional, command).format_map(replacements) for command in commands]

    def planner(self) -> "Callable[..., Estimate]":
        """The function that estimates the cost of the step."""
        planner: Callable[..., Estimate]
        if self.planned_rows_setting:
            plan_by_slice = imported("pairsmith.steps.planning:plan_by_slice")
            planner = partial(plan_by_slice, self.run, self.planned_rows_setting)
        elif self.plan:
            planner = imported(self.plan)
        else:
            beside = str(self.work).replace(":", ":plan_")
            planner = getattr(self.function(), "plan", None) or imported(beside)
        return planner

    def data_checker(self) -> "Callable[[Any, Collection[str]], object] | None":
        """The function of ``data_check``; None for steps other than evaluations."""
        check: Callable[[Any, Collection[str]], object] | None
        check = imported(self.data_check) if self.data_check else getattr(self.function(), "check_data", None)
        return check

    def all_checks(self) -> Mapping[str, Callable[[str], object]]:
        """``checks``, and the default checks of ``base`` and ``model``."""
        fields = self.settings.model_fields.keys()
        names = ({"base", "model"} & fields) - self.checks.keys()
        return {**self.checks, **dict.fromkeys(sorted(names), check_name)}

    def previews(self, settings: Settings) -> bool:
        """Whether the step, with these settings, shows a preview and writes nothing."""
        return bool(self.preview_setting and getattr(settings, self.preview_setting))

    def needs_folder(self, settings: Settings) -> bool:
        """Whether the step, with these settings, needs a folder to write to."""
        if self.previews(settings):
            return False
        return not self.folder_setting or bool(getattr(settings, self.folder_setting))


def _is_begun(folder: Place) -> bool:
    with reaching(folder, StorageError):
        return size_of(folder / MANIFEST) is not None


def imported(name: str) -> Any:
    """Import the function with this name, ``package.module:function``."""
    module, _, function = name.partition(":")
    return getattr(import_module(module), function)


def command_of(name: str) -> str:
    """The command of a step, such as ``evaluate sts`` for the step ``evaluate-sts``."""
    return name.replace("evaluate-", "evaluate ")


StepTable = Mapping[str, Step]
"""The steps by their names."""
