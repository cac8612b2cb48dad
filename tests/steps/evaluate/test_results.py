"""The folder of an evaluation that is moved, or taken over by another run, while the figures are computed."""

import json
from datetime import UTC, datetime

import pytest

from pairsmith.core.errors import FolderError
from pairsmith.core.progress import Silent
from pairsmith.core.settings import Settings
from pairsmith.runs import Run, lock
from pairsmith.runs.identity import Identity
from pairsmith.runs.lease import LEASE
from pairsmith.steps.evaluate.results import CARD, PREDICTIONS, RESULTS, evaluate_once


def evaluate(out, compute):
    return evaluate_once(Run(out, Silent()), Identity.of("evaluate test", {}), Settings(), compute)


def test_results_are_not_written_to_a_new_folder_of_the_old_name(tmp_path):
    out = tmp_path / "out"

    def compute():
        out.rename(tmp_path / "moved")
        return {"f1": 1.0}, None

    with pytest.raises(FolderError, match="/out was moved or removed while this run wrote to it"):
        evaluate(out, compute)
    assert not out.exists()
    assert evaluate(tmp_path / "moved", lambda: ({"f1": 1.0}, None))["f1"] == 1.0


def test_results_of_a_run_that_took_over_stay_as_they_are(tmp_path, monkeypatch):
    out = tmp_path / "out"
    if not (kind := lock.file_system(tmp_path)):
        pytest.skip("needs Linux's list of mounts")
    monkeypatch.setattr(lock, "NETWORK", {kind})

    def compute():
        other = {"owner": "o", "host": "far", "time": datetime.now(UTC).isoformat()}
        (out / LEASE).write_text(json.dumps(other))
        for name in (RESULTS, PREDICTIONS, CARD):
            (out / name).write_text("of the other run")
        return {"f1": 1.0}, [{"id": "a"}]

    with pytest.raises(FolderError, match="another run has taken over"):
        evaluate(out, compute)
    assert {(out / name).read_text() for name in (RESULTS, PREDICTIONS, CARD)} == {"of the other run"}
