"""The plan of a step that reads what earlier steps will make, as `pairsmith plan` makes it."""

from pairsmith.cli.stand_ins import plan_step
from pairsmith.cli.steps import STEPS


def planned(step, settings, before, base=None):
    """The estimate of a step; all models that the earlier steps train begin with ``base``."""
    bases = {name: base for name, estimate in before.items() if base and estimate.sample is None}
    return plan_step(STEPS[step], settings, before, bases)
