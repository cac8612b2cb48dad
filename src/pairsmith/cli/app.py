"""The command line: a command for every step, derived from its settings model, and commands for recipes."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from pairsmith import __version__
from pairsmith.cli import process
from pairsmith.cli.commands import HelpCommand, StepCommand
from pairsmith.cli.options import settings_from, with_options
from pairsmith.cli.setting_texts import free_texts, texts_in
from pairsmith.cli.steps import SOURCE_SETTINGS, STEPS
from pairsmith.cli.tasks import list_tasks, show_task
from pairsmith.core.bundled import bundled_names
from pairsmith.core.errors import SettingsError, redacted
from pairsmith.core.model_names import CLOZE, check_model, check_name
from pairsmith.core.paths import place
from pairsmith.core.progress import Progress, Quiet
from pairsmith.core.settings import Settings, option_name
from pairsmith.steps.evaluate.retrieval_settings import check_retriever_name
from pairsmith.steps.search.settings import SearchSettings
from pairsmith.steps.step import Step, StepTable, command_of

_HELP = "Labelled training data where there are few labels, and small models trained on it."
_OUT = "Folder to write to: a path, or a URL such as s3://BUCKET/FOLDER"
_START = "Start with: pairsmith run quickstart --out runs/quickstart"

_SECTIONS = {
    "From one instruction per label": (
        "generate", "postprocess", "train-encoder", "train-classifier", "classify",
    ),
    "From a hundred pairs and two raw corpora": (
        "train-biencoder", "mine", "train-crossencoder", "filter", "rewrite", "train-reader",
        "train-summarizer", "summarize",
    ),
    "From passages and questions": (
        "train-asker", "ask", "train-teacher", "relabel", "infuse", "answer", "train-tagger", "tag",
    ),
    "From documents to a retriever": (
        "chunk", "queries", "filter-queries", "negatives", "train-retriever", "search",
    ),
    "Measure": ("evaluate", "compare"),
    "Look at data, mix and share it": ("report", "audit", "mix", "remove", "export", "push", "tasks"),
    "Whole runs": ("run", "plan", "status", "doctor"),
}  # fmt: skip
"""The commands in the order of the help text, grouped by what they start from or are for."""


_MODELS = {"model", "base", "encoder", "judge"}
_PLACES = _MODELS | SOURCE_SETTINGS | {"out"}
"""Options that name a model, file or folder, so that an empty text is a mistake."""


def _option(flag: str, values: str, help_text: str) -> Any:
    """An option with one value; ``values`` says what it may be, such as ``number``."""
    return typer.Option(flag, help=help_text, metavar=f"<{values}>", show_default=False)


def _argument(name: str, help_text: str) -> Any:
    return typer.Argument(help=help_text, metavar=name, show_default=False)


Fresh = Annotated[
    bool, typer.Option("--fresh", help="Start over: replace what an earlier run left in the folder.")
]
Overrides = Annotated[
    list[str] | None,
    _option(
        "--set",
        "step.setting=value",
        "A value that replaces a setting of one of the recipe's steps, or with * in place of the step, of "
        "all steps that have the setting. [may be given several times]",
    ),
]
FreshSteps = Annotated[
    list[str] | None,
    _option(
        "--fresh-step",
        "step",
        "A step to start over in its folder; the steps that read its result are made anew if the result "
        "changes. [may be given several times]",
    ),
]
QuietFlag = Annotated[
    bool,
    typer.Option(
        "--quiet",
        help="Show only figures and other results to read; a step that only writes a folder shows nothing.",
    ),
]


class _Group(TyperGroup):
    """A group of commands, whose help shows the first line of each command's help in full."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands in sections; commands that are in no section come last."""
        commands = {name: self.commands[name] for name in self.list_commands(ctx)}
        sections = {title: [name for name in names if name in commands] for title, names in _SECTIONS.items()}
        named = {name for names in sections.values() for name in names}
        sections["Commands"] = [name for name in commands if name not in named]
        width = max(map(len, commands), default=0)
        for title, names in sections.items():
            if names:
                with formatter.section(title):
                    formatter.write_dl(
                        [(name.ljust(width), commands[name].get_short_help_str(100)) for name in names]
                    )


class _Commands(_Group):
    """The group of all commands; pairsmith's errors are printed here, before typer could print them."""

    def invoke(self, ctx: Any) -> Any:
        with process.errors_as_messages():
            return super().invoke(ctx)


def make_app(steps: StepTable = STEPS) -> typer.Typer:
    """The command line for ``steps``."""
    app = _group(_HELP, epilog=_START, cls=_Commands, add_completion=True)
    app.callback()(_version_option)
    evaluate = _group("Evaluate a model on test data.", cls=_Group)
    app.add_typer(evaluate, name="evaluate")
    for name, step in steps.items():
        *above, last = command_of(name).split()
        (evaluate if above else app).command(last, help=step.help, cls=StepCommand)(step_command(step))
    app.command("search", help="Search documents with a retriever or BM25.", cls=HelpCommand)(
        _search_command()
    )
    app.command("run", help="Run a recipe: steps in order, from a YAML file.", cls=HelpCommand)(_run)
    app.command("compare", help="Compare ways of making rows by models trained on them.", cls=HelpCommand)(
        _compare
    )
    app.command("plan", help="Estimate what a recipe makes and costs, before it runs.", cls=HelpCommand)(
        _plan
    )
    app.command("status", help="Show how far a run is, and what remains to be done.", cls=HelpCommand)(
        _status
    )
    app.command("doctor", help="Show this machine's hardware and installed models.", cls=HelpCommand)(_doctor)
    tasks = _group("List the built-in tasks, or show one.", no_args_is_help=False)
    tasks.callback(invoke_without_command=True)(list_tasks)
    tasks.command("show", help="Print a built-in task's YAML, to copy and change.", cls=HelpCommand)(
        show_task
    )
    app.add_typer(tasks, name="tasks")
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """The ``pairsmith`` command.

    The exit code is 0 after success, 2 for a mistake in the input, 1 if a worker or a server failed, 130
    after Ctrl-C, 143 after SIGTERM, and 141 if standard output was closed.
    """
    process.prepare_output()
    process.stop_on_sigterm()
    try:
        with process.errors_as_messages():
            try:
                make_app()(args=arguments, prog_name="pairsmith")
            finally:
                sys.stdout.flush()  # flushed here, as a closed pipe would cause a traceback when Python ends
    except SystemExit as end:
        if end.code in (130, 143):
            process.stop_at_once()
        raise


def step_command(step: Step) -> Callable[..., None]:
    """The command of a step, with an option for every setting and the options of all steps."""

    def body(out: str | None, fresh: bool, quiet: bool, **values: Any) -> None:
        if "base" not in step.settings.model_fields:  # it is no training
            workers = " and give it --workers" if "workers" in step.settings.model_fields else ""
            process.refuse_several(f"start it without{workers}")
        _refuse_empty({"out": out, **values}, step.settings)
        settings = settings_from(step.settings, values)
        if out is None and step.needs_folder(settings):
            raise SettingsError("--out is missing; give the folder to write to")
        from pairsmith.data.sources import check_exists

        for name in SOURCE_SETTINGS & free_texts(step.settings):
            for source in texts_in(getattr(settings, name)):
                check_exists(source)
        for name, check in step.all_checks().items():
            value = getattr(settings, name)
            if isinstance(value, str) and value != CLOZE:
                (check_model if check is check_name else check)(value)
        # These import torch, so they come after the checks: mistakes show at once.
        from pairsmith.runs import DatasetFolder, Run

        progress = _progress(quiet)
        result = step.run(settings, Run(place(out or "."), progress, fresh, kept=out is not None))
        without_rows = isinstance(result, DatasetFolder) and not result.manifest.counts.rows
        unfinished = getattr(settings, "world_size", None) or step.previews(settings)
        if out is not None and not without_rows and not unfinished:
            for number, command in enumerate(step.commands_after(settings, out)):
                progress.say(f"{'or:  ' if number else 'next:'} {command}")

    required = "required"
    if flag := step.preview_setting or step.folder_setting:
        required += f" {'without' if step.preview_setting else 'with'} {option_name(flag)}"
    out = Annotated[str | None, _option("--out", "folder", f"{_OUT}. [{required}]")]
    common = {"out": (out, None), "fresh": (Fresh, False), "quiet": (QuietFlag, False)}
    return with_options(body, step.help, step.settings, common)


def _search_command() -> Callable[..., None]:
    """The command ``search``, with an option for each of its settings."""

    def body(query: list[str] | None, as_json: bool, quiet: bool, **values: Any) -> None:
        _refuse_empty(values, SearchSettings)
        settings = settings_from(SearchSettings, values)
        check_retriever_name(settings.model)
        from pairsmith.data.sources import check_exists

        for source in (*settings.corpus, settings.queries):
            if source not in (None, "-"):
                check_exists(source)
        from pairsmith.steps.search.route import search_documents

        with process.errors_as_messages("stopped"):
            search_documents(settings, query or [], _progress(quiet), as_json=as_json)

    query = _argument(
        "QUERY", "What to search for. Without a query and without --queries, you are asked for queries."
    )
    as_json = typer.Option(
        "--json", help="Print each query's results and other columns as a line of JSON, which answer reads."
    )
    common = {
        "query": (Annotated[list[str] | None, query], None),
        "as_json": (Annotated[bool, as_json], False),
        "quiet": (QuietFlag, False),
    }
    return with_options(body, "Search documents with a retriever or BM25.", SearchSettings, common)


def _refuse_empty(values: Mapping[str, Any], settings: type[Settings] | None = None) -> None:
    """Refuse empty options that name a file, folder or model; often a shell variable is not set."""
    texts = {"out"} | (free_texts(settings) if settings else set())
    for name in _PLACES & values.keys() & texts:
        if "" in texts_in(values[name]):
            what = "a model" if name in _MODELS else "a folder" if name == "out" else "a file or folder"
            raise SettingsError(f"{option_name(name)} is empty; give {what}")


def _group(help_text: str, **options: Any) -> typer.Typer:
    return typer.Typer(
        help=help_text,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        **{"no_args_is_help": True, "add_completion": False, **options},
    )


def _progress(quiet: bool) -> Progress:
    return Progress() if process.is_first() and not quiet else Quiet()


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"pairsmith {__version__}")
        raise typer.Exit


def _version_option(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


def _run(
    recipe: Annotated[
        str,
        _argument(
            "RECIPE", f"A YAML file, or the name of a built-in recipe: {', '.join(bundled_names('recipe'))}."
        ),
    ],
    *,
    out: Annotated[str, _option("--out", "folder", f"{_OUT}.")],
    seed: Annotated[
        int | None, _option("--seed", "whole number", "A seed that replaces the recipe's seed.")
    ] = None,
    overrides: Overrides = None,
    fresh: Fresh = False,
    fresh_steps: FreshSteps = None,
    quiet: QuietFlag = False,
) -> None:
    from pairsmith.cli.recipes import find_recipe, load_recipe
    from pairsmith.cli.running import closing_lines, run_recipe
    from pairsmith.cli.tables import results_table

    process.refuse_several("start the recipe without, or run its trainings as single commands")
    _refuse_empty({"out": out})
    plan = load_recipe(find_recipe(recipe), seed=seed, overrides=overrides or ())
    progress = _progress(quiet)
    with process.errors_as_messages(process.STOPPED + (" or --fresh-step" if fresh_steps else "")):
        figures = run_recipe(plan, place(out), progress, fresh=fresh, fresh_steps=fresh_steps or ())
    progress.result(results_table(figures))
    for line in closing_lines(plan, place(out)):
        progress.say(line)


def _compare(
    file: Annotated[
        str,
        _argument(
            "FILE",
            f"A YAML file, or the name of a built-in comparison: {', '.join(bundled_names('comparison'))}.",
        ),
    ],
    *,
    out: Annotated[str, _option("--out", "folder", "Folder on this machine to write to.")],
    only_write: Annotated[
        bool, typer.Option("--only-write", help="Only write the recipe of each seed; run nothing.")
    ] = False,
    fresh: Fresh = False,
    fresh_steps: FreshSteps = None,
    quiet: QuietFlag = False,
) -> None:
    from pairsmith.cli.compare.file import find_comparison, read_comparison
    from pairsmith.cli.compare.outcome import table
    from pairsmith.cli.compare.route import run_comparison

    process.refuse_several("start it without")
    _refuse_empty({"out": out})
    if only_write and fresh_steps:
        raise SettingsError("--fresh-step has no effect with --only-write, which runs nothing; leave it out")
    comparison, progress = read_comparison(find_comparison(file)), _progress(quiet)
    scores, costs = run_comparison(
        comparison, place(out), progress, fresh=fresh, fresh_steps=fresh_steps or (), only_write=only_write
    )
    if scores:
        progress.result(table(scores, costs))


def _plan(
    recipe: Annotated[
        str,
        _argument(
            "RECIPE", "A YAML file, or the name of a built-in recipe, which `pairsmith run --help` lists."
        ),
    ],
    *,
    workers: Annotated[
        int,
        _option(
            "--workers",
            "whole number",
            "Number of workers; with more than 1, the time with so many workers is estimated, too. "
            "[default: 1]",
        ),
    ] = 1,
    price_in: Annotated[
        float | None,
        _option(
            "--price-in",
            "number",
            "Price of a million input tokens (prompts) of a server, in any currency.",
        ),
    ] = None,
    price_out: Annotated[
        float | None,
        _option("--price-out", "number", "Price of a million output tokens (generated texts) of a server."),
    ] = None,
    budget: Annotated[
        float | None,
        _option("--budget", "number", "Largest sum to spend on a server; the plan says whether it suffices."),
    ] = None,
    overrides: Overrides = None,
    quiet: QuietFlag = False,
) -> None:
    from pairsmith.cli.planning import Prices, plan_recipe, plan_table
    from pairsmith.cli.recipes import find_recipe, load_recipe

    if workers < 1:
        raise SettingsError(f"--workers: should be greater than or equal to 1, not {workers}")
    plan = load_recipe(find_recipe(recipe), overrides=overrides or ())
    progress = _progress(quiet)
    prices = Prices.of(price_in, price_out, budget)
    with process.errors_as_messages("stopped; nothing of a plan is saved, so it starts over next time"):
        progress.result(plan_table(plan_recipe(plan, progress), workers, prices))


def _status(
    folder: Annotated[
        str, _argument("FOLDER", "The folder of a step, of a recipe's run, or of a comparison.")
    ],
) -> None:
    from pairsmith.runs.status import status_lines

    print(redacted("\n".join(status_lines(place(folder)))))


def _doctor() -> None:
    from pairsmith.cli.doctor import doctor_lines

    for line in doctor_lines():
        typer.echo(line)
