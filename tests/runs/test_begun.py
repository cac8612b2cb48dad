"""The number of items that are saved together where none is given, and folders that were begun with another."""

import json
import shutil

import pytest
from tests.heard import Heard
from tests.runs.test_array_job import files, one_rank

from pairsmith.core.errors import OtherWorkError
from pairsmith.core.fields import ShardBounds
from pairsmith.core.progress import Silent
from pairsmith.runs import DatasetFolder, Run, model_display_name
from pairsmith.runs.status import status_of
from pairsmith.steps.generate import plan as generate_plan
from pairsmith.steps.generate.plan import plan_generate
from pairsmith.steps.generate.route import generate
from pairsmith.steps.generate.settings import GenerateSettings
from pairsmith.steps.questions.ask import ask
from pairsmith.steps.questions.settings import AskSettings

pytestmark = pytest.mark.slow


def numbered(path, count):
    path.write_text("".join(f"text number {number}\n" for number in range(count)))


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    for settings in (GenerateSettings, AskSettings):
        monkeypatch.setattr(settings, "shard_bounds", ShardBounds(least=8, most=200))


@pytest.fixture
def world(tmp_path, tiny_gpt2):
    numbered(tmp_path / "in.txt", 22)

    def settings(**changes):
        given = {"model": str(tiny_gpt2), "inputs": [str(tmp_path / "in.txt")], "per_input": 1, "tries": 1}
        return GenerateSettings(**{**given, "max_tokens": 8, **changes})

    return tmp_path, settings


@pytest.mark.parametrize(
    ("count", "size"),
    [(0, 8), (1, 8), (80, 8), (81, 9), (1_234, 124), (2_000, 200), (2_001, 200), (10**7, 200)],
)
def test_a_shard_is_a_tenth_of_the_items_within_bounds(count, size):
    assert ShardBounds(least=8, most=200).pick(count) == size


def test_a_small_run_is_saved_in_parts_with_the_rows_of_a_single_one(world):
    tmp, settings = world
    (tmp / "in.txt").write_text((tmp / "in.txt").read_text() + "text number 3\n")
    parts = generate(settings(), Run(tmp / "parts", Silent()))
    whole = generate(settings(shard_size=200), Run(tmp / "whole", Silent()))
    assert parts.manifest.settings["shard_size"] == 8
    assert [entry.items for entry in parts.manifest.shards] == [8, 8, 7]
    assert status_of(tmp / "parts").planned == 3
    assert parts.table() == whole.table()
    assert parts.rejects().sort_by("id") == whole.rejects().sort_by("id")


def test_a_folder_that_was_begun_keeps_its_number_unless_it_starts_over(world):
    tmp, settings = world
    out = tmp / "out"
    generate(settings(shard_size=200, limit=10), Run(out, Silent()))
    before = files(out)
    heard = Heard()
    generate(settings(limit=10), Run(out, heard))
    assert "finished already" in "\n".join(heard.lines)
    assert files(out) == before
    (out / "manifest.json").unlink()  # which is mended from the journal
    generate(settings(limit=10), Run(out, Silent()))
    assert files(out) == before
    with pytest.raises(OtherWorkError, match="shard_size: 200 there, 9 here"):
        generate(settings(limit=10, shard_size=9), Run(out, Silent()))
    again = generate(settings(limit=10), Run(out, Silent(), fresh=True))
    assert len(again.manifest.shards) == 2


def test_a_run_that_grows_keeps_its_number_and_its_rows(world):
    tmp, settings = world
    generate(settings(), Run(tmp / "out", Silent()))
    first = DatasetFolder.open(tmp / "out").manifest.shards
    numbered(tmp / "in.txt", 130)  # of which a shard would be 13
    grown = generate(settings(), Run(tmp / "out", Silent()))
    assert grown.manifest.shards[:2] == first[:2]
    assert len(grown.manifest.shards) == 17
    generate(settings(shard_size=8), Run(tmp / "once", Silent()))
    assert files(tmp / "out") == files(tmp / "once")


def test_texts_of_a_text_task_count_as_items(world):
    tmp, settings = world
    given = {"task": "movie-reviews", "inputs": [], "per_input": 17, "labels": ["good"]}
    folder = generate(settings(**given), Run(tmp / "out", Silent()))
    assert [entry.items for entry in folder.manifest.shards] == [8, 8, 1]


def test_ranks_agree_and_keep_the_number_that_one_of_them_began_with(world):
    tmp, settings = world
    for name, begun in {"new": None, "old": 4}.items():
        out = tmp / name
        one_rank(settings(shard_size=begun), out, 1, 3)
        for number in (0, 2):
            one_rank(settings(), out, number, 3)
        generate(settings(shard_size=begun), Run(tmp / f"{name}-once", Silent()))
        assert files(out) == files(tmp / f"{name}-once")
    numbered(tmp / "in.txt", 130)
    for number in range(2):  # a grown array job
        one_rank(settings(), tmp / "old", number, 2)
    assert len(DatasetFolder.open(tmp / "old").manifest.shards) == 33


def test_one_process_takes_over_the_shares_of_ranks_with_their_number(world):
    tmp, settings = world
    one_rank(settings(shard_size=4), tmp / "out", 1, 3)
    heard = Heard()
    generate(settings(), Run(tmp / "out", heard))
    assert "copied 2 shards from" in "\n".join(heard.lines)
    generate(settings(shard_size=4), Run(tmp / "once", Silent()))
    assert files(tmp / "out") == files(tmp / "once")


def test_a_plan_counts_the_shards_of_the_run(world):
    tmp, settings = world
    assert plan_generate(settings(), {}).shards == 3
    assert plan_generate(settings(shard_size=200), {}).shards == 1
    assert not (tmp / "out").exists()


def test_a_plan_times_shards_as_large_as_those_of_the_run(world, monkeypatch):
    _, settings = world
    begun, real = [], generate_plan.write

    def write(*arguments):
        written = real(*arguments)
        begun.append(written.requests)
        return written

    monkeypatch.setattr(generate_plan, "write", write)
    labels = 3
    estimate = plan_generate(settings(), {})
    assert begun == [labels, 8 * labels, 8 * labels, 6 * labels]  # the first warm up the libraries
    assert estimate.sample.num_rows == sum(estimate.rows.values())
    monkeypatch.setattr(generate_plan, "CALIBRATION_SECONDS", 0.0)
    begun.clear()
    plan_generate(settings(), {})
    assert begun == [labels, labels]


def test_ask_is_saved_in_parts_too_and_goes_on_with_old_folders(tmp_path):
    (tmp_path / "in.txt").write_text("".join(f"In {1900 + n} Ann {n} saw Rome.\n" for n in range(30)))
    given = {"inputs": [str(tmp_path / "in.txt")], "model": "cloze", "questions": 2}
    parts = ask(AskSettings(**given), Run(tmp_path / "parts", Silent()))
    assert len(parts.manifest.shards) == 4
    whole = ask(AskSettings(**given, shard_size=200), Run(tmp_path / "whole", Silent()))
    assert parts.table() == whole.table()
    record = json.loads((tmp_path / "whole/manifest.json").read_text())
    (tmp_path / "whole/manifest.json").write_text(json.dumps({**record, "complete": False}))
    shutil.rmtree(tmp_path / "whole/data")  # of which everything is made again
    assert ask(AskSettings(**given), Run(tmp_path / "whole", Silent())).table() == parts.table()
    assert len(DatasetFolder.open(tmp_path / "whole").manifest.shards) == 1


def test_a_model_is_named_before_it_is_loaded_and_not_for_finished_work(world):
    tmp, settings = world
    heard = Heard()
    generate(settings(limit=1), Run(tmp / "out", heard))
    (named,) = [line for line in heard.lines if line.startswith("loading ")]
    assert named == f"loading {model_display_name(settings().model)}"
    again = Heard()
    generate(settings(limit=1), Run(tmp / "out", again))
    assert not any("loading" in line for line in again.lines)
