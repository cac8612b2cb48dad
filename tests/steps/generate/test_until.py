"""``generate --until N``: rounds until each label has N rows, and what stops them."""

import pytest
from tests.heard import Heard

from pairsmith.core.errors import SettingsError
from pairsmith.core.progress import Silent
from pairsmith.runs import Run
from pairsmith.runs.status import label_counts
from pairsmith.steps.generate.route import generate, least_work
from pairsmith.steps.generate.settings import GenerateSettings, PostprocessSettings

pytestmark = pytest.mark.slow


@pytest.fixture
def texts(tmp_path):
    """Settings of the task of topics, whose texts need their quotation mark within few tokens: many have none."""
    return lambda **given: GenerateSettings(
        **{"task": "topic", "until": 6, "tries": 1, "max_tokens": 14, "shard_size": 4} | given
    )


def test_each_label_gets_its_rows_and_a_stopped_run_the_same_bytes(texts, tmp_path, monkeypatch):
    monkeypatch.setattr("pairsmith.steps.generate.route.remarks", lambda task: ["a remark"])
    heard = Heard()
    dataset = generate(texts(), Run(tmp_path / "whole", heard))
    assert min(label_counts(dataset).values()) >= 6
    assert (
        sum("another round follows" in line for line in heard.lines) >= 1
    )  # six texts of each label were not enough
    assert heard.lines.count("a remark") == 1  # not in every round
    stopped = Heard()

    def stop(line):
        stopped.lines.append(line)
        if "another round follows" in line:
            raise KeyboardInterrupt

    stopped.say = stop
    with pytest.raises(KeyboardInterrupt):
        generate(texts(), Run(tmp_path / "cut", stopped))
    again = generate(texts(), Run(tmp_path / "cut", Silent()))
    assert again.table().equals(dataset.table())
    assert generate(texts(), Run(tmp_path / "cut", Silent())).table().equals(dataset.table())


def test_it_ends_within_bounds(texts, tmp_path):
    heard = Heard()
    dataset = generate(texts(max_tokens=1), Run(tmp_path / "out", heard))
    assert dataset.rows == 0
    assert dataset.manifest.counts.rejects == 5 * 6 * 5  # five labels, five times six texts
    assert "has 0 of 6 rows after 30 texts, the most that --until may use" in heard.lines[-1]


def test_a_pair_task_takes_more_inputs(tmp_path):
    (tmp_path / "in.txt").write_text("".join(f"A man carries {number} boxes home.\n" for number in range(12)))
    given = {"task": "sts", "inputs": [str(tmp_path / "in.txt")], "per_input": 1, "tries": 1, "labels": ["1"]}
    settings = GenerateSettings(**given, until=3, max_tokens=12, shard_size=2)
    heard = Heard()
    dataset = generate(settings, Run(tmp_path / "out", heard))
    rows = dataset.table().num_rows
    assert rows >= 3 or "after 12 inputs, the most that --until may use" in heard.lines[-1]
    assert {row["score"] for row in dataset.table().to_pylist()} == {1.0}


def test_a_plan_counts_the_least_work(texts):
    assert least_work(texts()).per_input == 6
    pairs = GenerateSettings(task="sts", inputs=["in.txt"], per_input=2, until=9)
    assert least_work(pairs).limit == 5  # five inputs with two texts each
    assert least_work(pairs.model_copy(update={"limit": 3})).limit == 3
    assert least_work(texts(until=None)) == texts(until=None)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"per_input": 3}, "leave --per-input out"),
        ({"executor": "array", "rank": 0, "world_size": 2}, "array jobs do not support it"),
    ],
)
def test_what_does_not_go_with_it(texts, tmp_path, given, message):
    with pytest.raises(SettingsError, match=message):
        generate(texts(**given), Run(tmp_path / "out", Silent()))


def test_postprocess_keeps_as_many_of_each_label(texts, tmp_path):
    from pairsmith.steps.generate.postprocess import postprocess

    generate(texts(), Run(tmp_path / "out", Silent()))
    settings = PostprocessSettings(data=str(tmp_path / "out"), per_label=4, validation=0)
    kept = postprocess(settings, Run(tmp_path / "clean", Silent()))
    assert set(label_counts(kept).values()) == {4}
