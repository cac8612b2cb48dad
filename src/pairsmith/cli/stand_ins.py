"""Stand-ins for the results of earlier steps, which do not exist yet when a recipe is planned."""

from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from pairsmith.cli.setting_texts import map_texts, texts_in
from pairsmith.core.errors import FolderError, InputError, PairsmithError, SettingsError
from pairsmith.core.progress import Silent
from pairsmith.core.settings import Settings
from pairsmith.data.schemas import REJECT
from pairsmith.runs import Card, FolderWriter, Run
from pairsmith.runs.estimate import Before, Estimate, peak_memory
from pairsmith.runs.identity import Identity
from pairsmith.steps.step import Step


def plan_step(
    step: Step, settings: Settings, before: Before, bases: Mapping[str, str] | None = None
) -> Estimate:
    """The estimate of a step whose settings may refer to earlier steps as ``@name``.

    A planner needs data and models that exist. So a reference to the rows of an earlier step is replaced by a
    dataset folder with the sample of rows in that step's estimate, and a reference to a trained model by the
    base that the model will be trained from. The planner gets the estimates by the names of these stand-ins.

    Args:
        step: the step.
        settings: its settings.
        before: the estimates of earlier steps, by reference.
        bases: the base models of earlier trainings, by reference.
    """
    for earlier in (before[value] for _, value in settings if isinstance(value, str) and value in before):
        if earlier.sample is not None and not earlier.sample.num_rows:
            # Without sample rows nothing can be tried; the step makes at most as many rows as it reads.
            return Estimate(0.0, memory=peak_memory(), disk=0, rows=earlier.rows, sample=earlier.sample)
    references = {text for _, value in settings for text in texts_in(value) if text in before}
    with TemporaryDirectory(prefix="pairsmith-plan-") as folder:
        stand_ins = {
            reference: stand_in
            for reference in references
            if (stand_in := _stand_in(reference, before[reference], bases or {}, Path(folder)))
        }
        changes = {
            name: map_texts(value, lambda text: stand_ins.get(text, text))
            for name, value in settings
            if not stand_ins.keys().isdisjoint(texts_in(value))
        }
        estimates = {**before, **{name: before[reference] for reference, name in stand_ins.items()}}
        with _errors_of_plan(folder, references - stand_ins.keys()):
            return step.planner()(settings.model_copy(update=changes), estimates)


def _stand_in(reference: str, earlier: Estimate, bases: Mapping[str, str], folder: Path) -> str | None:
    """The model or dataset folder that stands in for an earlier step; None if there is no sample of its rows.

    The sample is written into ``folder``, unless it is there already.
    """
    if reference in bases:
        return bases[reference]
    if earlier.sample is None or not earlier.sample.num_rows:  # an empty one of several sources
        return None
    out = folder / reference.partition(":")[0]
    if not out.exists():
        writer = FolderWriter.start(Run(out, Silent()), Identity.of("sample", {}), earlier.sample.schema)
        writer.commit(0, {"train": earlier.sample}, REJECT.empty_table())
        writer.finish(Card("A sample", "Some of the rows that a step will make."))
    return str(out)


@contextmanager
def _errors_of_plan(folder: str, missing: Set[str]) -> Iterator[None]:
    """Name steps in errors: those ``missing`` a stand-in, and those with one in ``folder``."""
    try:
        yield
    except PairsmithError as error:
        if isinstance(error, InputError | FolderError):
            for reference in missing:
                if reference in str(error):
                    raise SettingsError(
                        f"{reference}: plan cannot estimate a step that reads the output of this step, "
                        "as it has no sample of it"
                    ) from None
        if folder in str(error):
            raise type(error)(str(error).replace(f"{folder}/", "")) from None
        raise
