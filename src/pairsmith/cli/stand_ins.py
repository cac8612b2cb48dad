"""Stand-ins for the results of earlier steps, which do not exist yet when a recipe is planned."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

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
    references = {text for _, value in settings for text in texts_in(value) if text in before}
    for _, value in settings:
        if isinstance(value, str) and value in references:
            rows, sample = before[value].rows, before[value].sample
            if sample is not None and not sample.num_rows:
                # Without sample rows nothing can be tried; the step makes at most as many rows as it reads.
                return Estimate(seconds=0.0, memory=peak_memory(), disk=0, rows=rows, sample=sample)
    with TemporaryDirectory(prefix="pairsmith-plan-") as folder:
        stand_ins = {}
        for reference in references:
            sample = before[reference].sample
            if bases and reference in bases:
                stand_ins[reference] = bases[reference]
            elif sample is not None and sample.num_rows:  # an empty one of several sources has no stand-in
                stand_ins[reference] = _write(sample, Path(folder) / reference.partition(":")[0])
        changes = {
            name: map_texts(value, lambda text: stand_ins.get(text, text))
            for name, value in settings
            if not stand_ins.keys().isdisjoint(texts_in(value))
        }
        estimates = {**before, **{name: before[reference] for reference, name in stand_ins.items()}}
        try:
            return step.planner()(settings.model_copy(update=changes), estimates)
        except PairsmithError as error:
            if isinstance(error, InputError | FolderError):
                for reference in references - stand_ins.keys():
                    if reference in str(error):
                        raise SettingsError(
                            f"{reference}: plan cannot estimate a step that reads the output of this step, "
                            "as it has no sample of it"
                        ) from None
            if folder in str(error):
                raise type(error)(str(error).replace(f"{folder}/", "")) from None
            raise


def _write(sample: pa.Table, out: Path) -> str:
    """Write a dataset folder with the rows of a sample, unless it exists; returns its path."""
    if not out.exists():
        writer = FolderWriter.start(Run(out, Silent()), Identity.of("sample", {}), sample.schema)
        writer.commit(0, {"train": sample}, REJECT.empty_table())
        writer.finish(Card("A sample", "Some of the rows that a step will make."))
    return str(out)
