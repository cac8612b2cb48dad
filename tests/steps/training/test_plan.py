"""How many checkpoints a plan expects."""

import pytest

from pairsmith.steps.training.plan import saved_checkpoints


@pytest.mark.parametrize(
    ("steps", "between", "seconds", "expected"),
    [
        (100, 100, 60, 0),  # none at the last step
        (101, 100, 60, 1),
        (200, 100, 2_600, 4),  # every ten minutes
        (1, 100, 1_200, 0),
    ],
)
def test_checkpoints_are_saved_by_steps_and_by_the_clock(steps, between, seconds, expected):
    assert saved_checkpoints(steps, between, seconds) == expected
