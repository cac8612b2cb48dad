"""Trainings that end in their midst."""

from pairsmith.training.best_step import BestStepCallback


class Stopped(Exception):  # noqa: N818 - it is no error
    pass


def stopped_at(monkeypatch, step, nth=1):
    """End the nth training at this step."""
    real, trainings = BestStepCallback.on_step_end, []

    def stopping(self, args, state, control, **kwargs):
        if state.global_step == 1:
            trainings.append(self)
        if state.global_step == step and len(trainings) == nth:
            raise Stopped
        real(self, args, state, control, **kwargs)

    monkeypatch.setattr(BestStepCallback, "on_step_end", stopping)
