"""The plan of a step that reads what earlier steps will make, as `pairsmith plan` makes it."""

from dataclasses import replace

from pairsmith.cli.planning import plan_step
from pairsmith.cli.steps import STEPS


def planned(step, settings, before, base=None):
    """The estimate of a step; all models that the earlier steps train begin with ``base``."""
    if base:
        before = {
            name: replace(estimate, base=base) if estimate.sample is None else estimate
            for name, estimate in before.items()
        }
    return plan_step(STEPS[step], settings, before)
