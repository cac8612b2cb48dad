"""Command classes whose messages on unknown options and surplus arguments say what to do."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from typer.core import TyperCommand

from pairsmith.core.errors import one_line, similar_names

_MOST_NAMED = 3
"""Largest number of unexpected arguments in a message; a pattern such as ``*.txt`` may give thousands."""


class HelpCommand(TyperCommand):
    """A command that refuses an option that is given twice, unless the option may be repeated.

    Its help names arguments as ``RECIPE``, without a Python type such as ``<str>``.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options; a repeated option is refused, as only its last value would be used."""
        if not ctx.resilient_parsing:
            _, _, order = self.make_parser(ctx).parse_args(list(args))
            asks_for_help = any(param.is_eager for param in order)
            for param, count in Counter(order).items():
                if count > 1 and not param.multiple and not asks_for_help:
                    name = "/".join(param.opts + param.secondary_opts)
                    why = "" if getattr(param, "is_flag", False) else ", and takes one value"
                    ctx.fail(f"{name} is given more than once{why}; give it once")
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The parts of the line ``Usage``, without braces."""
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and the options, each with its help."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for param in self.get_params(ctx):
            if (record := param.get_help_record(ctx)) is None:
                continue
            if param.param_type_name == "argument":
                sections["Arguments"].append((str(param.metavar), record[1]))
            else:
                sections["Options"].append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class StepCommand(HelpCommand):
    """A command that takes options only, apart from the arguments that it declares."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options; an error about surplus arguments names the option before them."""
        original = list(args)
        ctx.allow_extra_args = True  # they are refused below, with a clearer message
        try:
            surplus = super().parse_args(ctx, args)
        except Exception as error:
            if hasattr(error, "possibilities"):  # an unknown option
                unknown = str(getattr(error, "option_name", "")).lstrip("-")
                error.possibilities = [
                    f"--{name}" for name in similar_names(unknown, [option[2:] for option in self._options()])
                ]
            raise
        if surplus and not ctx.resilient_parsing:
            ctx.fail(_unexpected(surplus, self._option_before(original, surplus[0])))
        return surplus

    def _options(self) -> dict[str, Any]:
        """The options by their names on the command line."""
        named = ((name, option) for option in self.params for name in (*option.opts, *option.secondary_opts))
        return {name: option for name, option in named if name.startswith("--")}

    def _option_before(self, words: Sequence[str], argument: str) -> str:
        """The option that ``argument`` needs: one that may be repeated, or ``--data``; else empty."""
        options, before = self._options(), words[: words.index(argument)] if argument in words else ()
        name = next((word for word in reversed(before) if word.startswith("--")), "")
        if getattr(options.get(name), "multiple", False):
            return name
        is_given = any(word == "--data" or word.startswith("--data=") for word in words)
        return "--data" if "--data" in options and not is_given else ""


def _unexpected(arguments: Sequence[str], option: str) -> str:
    """The message on arguments that belong to no option; ``option`` is the option that they follow."""
    names = ", ".join(one_line(argument) for argument in arguments[:_MOST_NAMED])
    more = f" and {len(arguments) - _MOST_NAMED:,} more" if len(arguments) > _MOST_NAMED else ""
    remedy = f"give {option} before each of them" if option else "leave them out"
    return f"unexpected arguments: {names}{more}; {remedy}"
