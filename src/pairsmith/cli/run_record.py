"""The record of a recipe's run, ``run.json``: which steps are finished, and which are to be started over."""

from collections.abc import Sequence

from pydantic import Field, ValidationError

from pairsmith.cli.recipes import Recipe
from pairsmith.core.errors import FolderError, SettingsError, known_names_hint
from pairsmith.core.paths import Place, inside, reaching, size_of
from pairsmith.core.settings import Settings

RUN_RECORD = "run.json"


class FinishedStep(Settings):
    """A finished step in ``run.json``.

    Attributes:
        fingerprint: hash of the step's settings and of the content of its inputs.
        own: hash of the settings alone.
        content: hash of the files that the step wrote; None if they could not be hashed.
    """

    fingerprint: str
    own: str = ""
    content: str | None


class RunRecord(Settings):
    """The content of ``run.json``.

    Attributes:
        recipe: the recipe's name.
        description: the recipe's description.
        planned: the names of all steps.
        afresh: the names of the steps that ``--fresh`` or ``--fresh-step`` selected, and that have not been
            started over yet.
        spent: by step, the seconds that all calls have worked on the step, except calls that were killed.
        steps: the finished steps by name.
    """

    recipe: str
    description: str = ""
    planned: tuple[str, ...] = ()
    afresh: set[str] = Field(default_factory=set)
    spent: dict[str, float] = Field(default_factory=dict)
    steps: dict[str, FinishedStep]


def record_of(recipe: Recipe, out: Place, fresh: bool, fresh_steps: Sequence[str]) -> RunRecord:
    """The record at the start of a call: the record of earlier calls in ``out``, if there is one.

    Steps that are to be started over are not among its finished steps.
    """
    from pairsmith.runs.lease import LEASE
    from pairsmith.runs.storage import is_temporary

    names = tuple(planned.name for planned in recipe.steps)
    for name in fresh_steps:
        if name not in names:
            raise SettingsError(
                f"--fresh-step {name}: the recipe has no such step; {known_names_hint(name, names)}"
            )
    file = out / RUN_RECORD
    with reaching(out, FolderError):
        text = None if size_of(file) is None else file.read_bytes()
        if text is None and (
            size_of(out) is not None
            or any(
                not is_temporary(other) and other.name not in (".DS_Store", LEASE) for other in inside(out)
            )
        ):
            raise FolderError(f"{out} holds something other than a recipe's run; give another --out")
    record = RunRecord(recipe=recipe.name, description=recipe.description, planned=names, steps={})
    if fresh or text is None:
        record.afresh.update(names if fresh else ())
        return record
    try:
        before = RunRecord.model_validate_json(text)
    except ValidationError:
        raise FolderError(
            f"{file} is not a valid record of a run; give --fresh to start over, or another --out"
        ) from None
    record.afresh.update(before.afresh, fresh_steps)
    record.spent.update({name: before.spent[name] for name in names if name in before.spent})
    record.steps.update({name: done for name, done in before.steps.items() if name not in record.afresh})
    return record
