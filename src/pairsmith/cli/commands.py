"""Command classes whose messages on unknown options and surplus arguments say what to do."""

from collections.abc import Sequence
from typing import Any

from typer.core import TyperCommand

from pairsmith.core.errors import near_names, one_line

_MOST_NAMED = 3
"""How many unexpected arguments a message names; a pattern such as ``*.txt`` may stand for thousands."""


class StepCommand(TyperCommand):
    """A command that takes options only, apart from the arguments that it declares."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options; what is left over is told with the option that it stands behind."""
        given = list(args)
        ctx.allow_extra_args = True  # told below
        try:
            left = super().parse_args(ctx, args)
        except Exception as error:
            if hasattr(error, "possibilities"):  # an unknown option
                error.possibilities = self._near(str(getattr(error, "option_name", "")))
            raise
        if left and not ctx.resilient_parsing:
            ctx.fail(_unexpected(left, self._option_before(given, left[0])))
        return left

    def _options(self) -> dict[str, Any]:
        """The options by their names on the command line."""
        named = ((name, option) for option in self.params for name in (*option.opts, *option.secondary_opts))
        return {name: option for name, option in named if name.startswith("--")}

    def _near(self, unknown: str) -> list[str]:
        """The options that an unknown one may stand for; the dashes, which all begin with, do not count."""
        return [
            f"--{name}" for name in near_names(unknown.lstrip("-"), [name[2:] for name in self._options()])
        ]

    def _option_before(self, given: Sequence[str], argument: str) -> str:
        """The option behind which ``argument`` stands if it can be given several times; else empty."""
        options, before = self._options(), given[: given.index(argument)] if argument in given else ()
        name = next((word for word in reversed(before) if word.startswith("--")), "")
        return name if getattr(options.get(name), "multiple", False) else ""


def _unexpected(arguments: Sequence[str], option: str) -> str:
    """The message on arguments that belong to no option."""
    names = ", ".join(one_line(argument) for argument in arguments[:_MOST_NAMED])
    more = f" and {len(arguments) - _MOST_NAMED:,} more" if len(arguments) > _MOST_NAMED else ""
    return f"unexpected: {names}{more}; " + (f"give {option} before each" if option else "leave them out")
