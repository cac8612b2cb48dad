"""What ``pairsmith status`` says, and the log that it reads."""

import gc
import json
import shutil
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from tests.folders import write_folder

from pairsmith.core.errors import FolderError, redacted
from pairsmith.data.schemas import MINED_PAIR
from pairsmith.runs import Card, Growth, ShardSpec, lock
from pairsmith.runs import log as logs
from pairsmith.runs.journal import Journal
from pairsmith.runs.log import log, recent_events, working_seconds
from pairsmith.runs.manifest import ShardEntry
from pairsmith.runs.status import status_lines, status_of


def events(folder, *lines):
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def at(second, event, **facts):
    return {"time": f"2026-01-01T00:00:{second:02d}.000+00:00", "event": event, **facts}


def test_a_run_that_goes_on(work, out):
    writer = work.start(out, planned=4)
    work.commit(writer, 0, 1)
    events(out, at(0, "shard", rows=99), at(1, "start"), at(3, "shard", rows=6), at(5, "shard", rows=6))
    status = status_of(out)
    assert (status.step, status.complete, status.running) == ("generate", False, True)
    assert (status.shards, status.planned, status.rows) == (2, 4, 6)
    assert (status.rate, status.left) == (3.0, 4.0)
    assert status_lines(out) == [
        f"{out}: generate, running · 2 of 4 shards, 6 rows · 3.0 rows/s · 4 s left",
        "  2 rejects",
        "            2 copy: equal",
    ]


def test_shards_that_a_grown_run_is_still_to_extend_do_not_count(work, out):
    growth = Growth(frozenset({"decay"}), lambda _: True)
    grown = {**work.settings, "decay": 200.0}
    writer = work.start(out, planned=3, asked="1 text", growth=growth)
    writer.commit(0, {"train": work.pairs(0)}, work.rejects(0), ShardSpec(1, "c", "1 text"))
    writer = work.start(out, planned=3, asked="2 texts", growth=growth, settings=grown)
    assert (status_of(out).shards, status_of(out).planned, status_of(out).rows) == (0, 3, 2)
    writer.commit(0, {"train": work.pairs(0)}, work.rejects(0), ShardSpec(1, "c", "2 texts"))
    assert status_of(out).shards == 1


def test_clocks_that_jump_do_no_harm(work, out):
    """The log's times may go backwards; then nothing is said of the pace, and nothing else changes."""
    work.commit(work.start(out, planned=4), 0, 1)
    events(out, at(9, "start"), at(3, "shard", rows=6), at(1, "shard", rows=6))
    status = status_of(out)
    assert (status.rate, status.left, status.shards) == (None, None, 2)
    events(out, at(1, "start"), {"time": "yesterday", "event": "shard"}, at(3, "shard", rows=6))
    assert status_of(out).rate == 3.0


def test_a_run_that_was_stopped(work, out):
    from pairsmith.runs import lock

    work.commit(work.start(out), 0)
    lock.release(out)
    with (out / "journal/00000.jsonl").open("a") as file:
        file.write('{"shard": 1, "fil')
    status = status_of(out)
    assert (status.running, status.shards, status.planned, status.left) == (False, 1, None, None)
    assert status_lines(out)[0].startswith(f"{out}: generate, stopped · 1 shard, 3 rows")


def test_the_last_time_of_each_rank_is_added_to_the_time_of_the_job(tmp_path):
    shares = [("x", 5.0), ("x", 7.5), ("y", 1)]  # a rank that was continued, and one of a later job
    shared = [at(1, "share", rank="rank-0-of-2", begun=begun, seconds=time) for begun, time in shares]
    events(tmp_path, *shared, at(4, "start"), at(6, "shard"))
    assert working_seconds(tmp_path, "2026-01-01T00:00:00+00:00") == 7.5 + 1 + 2


def test_a_finished_one(done):
    status = status_of(done)
    assert (status.complete, status.running, status.shards, status.rows) == (True, False, 2, 6)
    assert status_lines(done)[0] == f"{done}: generate, finished · 2 shards, 6 rows"
    assert [event["event"] for event in recent_events(done)] == ["start", "shard", "shard", "finish"]


def test_a_recipe(tmp_path, work):
    work.commit(work.start(tmp_path / "pairs"), 0)
    (tmp_path / "encoder").mkdir()
    (tmp_path / "encoder/training.json").write_text('{"step": "train-encoder", "complete": true}')
    record = {"recipe": "r", "planned": ["pairs", "encoder", "after"], "steps": {"encoder": {}}}
    (tmp_path / "run.json").write_text(json.dumps(record))
    lines = status_lines(tmp_path)
    assert lines[0] == f"{tmp_path}: recipe r, 1 of 3 steps finished"
    assert lines[1].startswith("pairs: generate, running · 1 shard, 3 rows")
    assert lines[-2:] == ["encoder: train-encoder, finished", "after: not started"]


@pytest.mark.parametrize("rates", [[1e-5], [5e-6, 1e-5]])
def test_a_training_without_a_checkpoint(tmp_path, rates):
    record = {"step": "train-reader", "complete": False, "settings": {"learning_rate": rates}}
    (tmp_path / "training.json").write_text(json.dumps(record))
    assert status_lines(tmp_path) == [f"{tmp_path}: train-reader, stopped"]


def test_a_training_says_what_is_saved(tmp_path):
    (tmp_path / "training.json").write_text('{"step": "train-encoder", "complete": false}')
    assert status_lines(tmp_path) == [f"{tmp_path}: train-encoder, stopped"]
    checkpoints = tmp_path / ".pairsmith-checkpoints.tmp"
    for name, complete in (("checkpoint-900", True), ("checkpoint-1200", True), ("checkpoint-1500", False)):
        (checkpoints / name).mkdir(parents=True)
        if complete:
            (checkpoints / name / "pairsmith.json").write_text("{}")
    assert status_lines(tmp_path) == [f"{tmp_path}: train-encoder, stopped · saved at step 1,200"]
    rates = checkpoints.rename(tmp_path / "rates")
    checkpoints.mkdir()
    for number in (0, 1):
        shutil.copytree(rates, checkpoints / f"rate-{number}")
    shutil.rmtree(checkpoints / "rate-1/checkpoint-1200")
    record = {"step": "train-reader", "complete": False, "settings": {"learning_rate": [5e-6, 1e-5, 2e-5]}}
    (tmp_path / "training.json").write_text(json.dumps(record))
    saved = "saved: learning rate 5e-06 at step 1,200, learning rate 1e-05 at step 900"
    assert status_lines(tmp_path) == [f"{tmp_path}: train-reader, stopped · {saved}"]
    (tmp_path / "training.json").write_text(json.dumps({**record, "settings": {"learning_rate": [1e-5]}}))
    assert status_lines(tmp_path) == [f"{tmp_path}: train-reader, stopped · saved at step 1,200"]
    (checkpoints / "rate-0").rename(checkpoints / "rate-9")  # of no rate in the record
    (tmp_path / "training.json").write_text(json.dumps(record))
    assert status_lines(tmp_path) == [f"{tmp_path}: train-reader, stopped · saved at step 1,200"]
    (tmp_path / "training.json").write_text(json.dumps({**record, "complete": True}))  # killed at the end
    assert status_lines(tmp_path) == [f"{tmp_path}: train-reader, finished"]


def test_a_training_says_which_step_it_has_reached_and_when(tmp_path):
    """Of several learning rates, the last one that wrote a step counts."""
    record = {"step": "train-reader", "complete": False, "settings": {"learning_rate": [5e-6, 1e-5]}}
    (tmp_path / "training.json").write_text(json.dumps(record))

    def reach(folder, step, seconds):
        when = datetime.now(UTC) - timedelta(seconds=seconds)
        (tmp_path / ".pairsmith-checkpoints.tmp" / folder).mkdir(parents=True, exist_ok=True)
        note = {"step": step, "of": 3000, "time": when.isoformat(timespec="seconds")}
        (tmp_path / ".pairsmith-checkpoints.tmp" / folder / "step.json").write_text(json.dumps(note))

    reach("rate-0", 3000, 9000)
    reach("rate-1", 1200, 3 * 3600 + 5 * 60 + 10)
    stopped = f"{tmp_path}: train-reader, stopped"
    assert status_lines(tmp_path) == [
        f"{stopped} · step 3,000 of 3,000 at learning rate 5e-06, 2 h 30 min ago"
    ]
    reach("rate-1", 1200, -3600)  # the clock of another machine
    assert status_lines(tmp_path) == [f"{stopped} · step 1,200 of 3,000 at learning rate 1e-05, 0 s ago"]
    for damaged in ("{", "3", '{"step": "x", "of": 3, "time": "2026-01-01"}'):
        (tmp_path / ".pairsmith-checkpoints.tmp/rate-0/step.json").write_text(damaged)
        assert "step 1,200 of 3,000" in status_lines(tmp_path)[0]


def test_a_rank_that_has_written_nothing_yet_is_running(tmp_path):
    (tmp_path / "rank-1-of-3").mkdir()
    lock.acquire(tmp_path / "rank-1-of-3")
    try:
        lines = status_lines(tmp_path)
    finally:
        lock.release(tmp_path / "rank-1-of-3")
    assert lines == [
        f"{tmp_path}: an array job, 0 of 3 ranks finished",
        "rank-1-of-3: running",
        "not started: 0, 2",
    ]


def test_a_step_that_has_written_nothing_yet_is_running(tmp_path):
    """An evaluation writes its first file when it is finished."""
    after = tmp_path / "after"
    after.mkdir()
    (tmp_path / "run.json").write_text(json.dumps({"recipe": "r", "planned": ["after"], "steps": {}}))
    lock.acquire(after)
    try:
        assert status_lines(after) == [f"{after}: running; nothing is written yet"]
        assert status_lines(tmp_path)[1:] == ["after: running"]
    finally:
        lock.release(after)
    assert status_lines(tmp_path)[1:] == ["after: not started"]


def test_a_comparison_has_the_runs_of_its_seeds(tmp_path, work):
    names = ["once", *(f"seed-{seed}" for seed in range(6))]
    for name in ["notes", *names[3:], *names[:3]]:  # the first is no run's
        (tmp_path / name).mkdir()
        (tmp_path / name / "recipe.yaml").write_text("name: r\n")
    first, *others = (tmp_path / name / "run" for name in names)
    work.commit(work.start(first / "pairs"), 0)
    (first / "run.json").write_text(json.dumps({"recipe": "r", "planned": ["pairs", "b"], "steps": {}}))
    lines = status_lines(tmp_path)
    assert lines[0] == f"{first}: recipe r, 0 of 2 steps finished"
    assert lines[1].startswith("pairs: generate, running · 1 shard, 3 rows")
    assert lines[-7:] == ["b: not started", *(f"{run}: not started" for run in others)]


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(FolderError, match="there is no folder"):
        status_lines(tmp_path / "none")
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderError, match="file is a file; give the folder of a step"):
        status_lines(tmp_path / "file")
    with pytest.raises(FolderError, match="holds neither a step's work nor a recipe's run"):
        status_lines(tmp_path)
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "recipe.yaml").write_text("name: r\n")  # a project's folder is no comparison
    with pytest.raises(FolderError, match="holds neither a step's work nor a recipe's run"):
        status_lines(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FolderError, match="empty is empty: no step has finished any work in it"):
        status_lines(tmp_path / "empty")
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(FolderError, match=r"manifest\.json cannot be read"):
        status_lines(tmp_path)


@pytest.mark.parametrize(
    "damage",
    [
        {"planned": "many"},
        {"shards": 3},
        {"shards": [{"files": 3}]},
        {"shards": [{"files": [{"rows": 3, "split": "train"}]}]},
        {"shards": [{"files": [], "reasons": {"copy: equal": "many"}}]},
    ],
)
def test_a_manifest_with_values_of_other_types_is_damaged(done, damage):
    manifest = done / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | damage))
    with pytest.raises(FolderError, match=r"manifest\.json is damaged or was not written by pairsmith \("):
        status_lines(done)


def test_a_line_with_values_of_other_types_does_not_count(work, out):
    """A run that goes on makes this shard again."""
    work.commit(work.start(out), 0, 1)
    journal = out / "journal/00000.jsonl"
    first, second = journal.read_text().splitlines()
    journal.write_text(json.dumps(json.loads(first) | {"files": 3}) + f"\n{second}\n")
    assert (status_of(out).shards, status_of(out).rows) == (1, 3)


def test_a_log_that_cannot_be_written_ends_nothing(tmp_path):
    (tmp_path / "log.jsonl").mkdir()
    log(tmp_path, "start")
    assert list(recent_events(tmp_path)) == []


def test_only_the_end_of_a_long_log_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "_TAIL", 100)
    events(tmp_path, *(at(i, "shard", rows=i) for i in range(20)))
    assert [event["rows"] for event in recent_events(tmp_path)] == [19]


LETTERS = "AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGh"
"""As many as a token of the Hub has."""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://user:pa55@bucket/x", "s3://***@bucket/x"),
        ("s3://user:p@ss/word@bucket/x", "s3://***@bucket/x"),
        (f"one\nhf_{LETTERS}", "one\n***"),
        ('say "x?token=abc" twice', 'say "x?token=***" twice'),
        ("https://h/x?a=1&access_token=abc&b=2", "https://h/x?a=1&access_token=***&b=2"),
        ("https://h/x?X-Amz-Signature=abc", "https://h/x?X-Amz-Signature=***"),
        (f"token hf_{LETTERS} is wrong", "token *** is wrong"),
        ("a risk-averse key=value mail@home.org", "a risk-averse key=value mail@home.org"),
    ],
)
def test_secrets_are_no_part_of_what_is_written(tmp_path, text, shown):
    assert redacted(text) == shown
    log(tmp_path, "note", text=text)
    assert next(recent_events(tmp_path))["text"] == shown


def test_secrets_are_in_no_file_and_still_tell_runs_apart(work, out):
    writer = work.start(out, settings={"model": "https://me:word@host/m", "column": "hf_sentence1"})
    work.commit(writer, 0)
    with pytest.raises(FolderError, match="with other settings"):
        work.start(out, settings={"model": "https://me:word@host/m", "column": "hf_sentence2"})
    writer.finish(Card("by https://me:word@host/m", "Rows."))
    files = [path for path in out.rglob("*") if path.is_file()]
    assert len(files) > 3
    assert not [path for path in files if b"word@" in path.read_bytes()]


def test_a_finished_run_has_its_rows_by_label(work, out):
    writer = work.start(out, planned=2)
    work.commit(writer, 0, 1)
    writer.finish(Card(title="t", description="d", licence="l"))
    assert status_lines(out)[1:3] == ["            4 of label 0", "            2 of label 0.5"]


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (lambda first, _: first.unlink(), "train-00000.parquet is missing"),
        (
            lambda *files: [file.unlink() for file in files],
            "train-00000.parquet is missing; 1 more file is missing or damaged",
        ),
        (
            lambda _, second: second.write_bytes(b"PAR1"),
            "train-00001.parquet is damaged (it has another size)",
        ),
    ],
)
def test_a_data_file_that_is_missing_or_damaged(done, damage, fault):
    """A rerun makes it again; the number of rows is still shown."""
    damage(done / "data/train-00000.parquet", done / "data/train-00001.parquet")
    heading, advice, *_ = status_lines(done)
    assert heading == f"{done}: generate, damaged · 2 shards, 6 rows"
    assert advice == f"  {done}/data/{fault}; run the command that wrote it again"


def test_a_data_file_with_other_content_of_the_same_size(done):
    file = done / "data/train-00000.parquet"
    file.write_bytes(bytes(file.stat().st_size))
    heading, advice, *_ = status_lines(done)
    assert heading == f"{done}: generate, damaged · 2 shards, 6 rows"
    assert advice.startswith(f"  {file} is damaged (")


def test_a_folder_that_lost_its_manifest(work, done):
    """The journal says what was done, and a rerun restores the manifest from it."""
    before = work.contents(done)
    (done / "manifest.json").unlink()
    heading, advice, *_ = status_lines(done)
    assert heading == f"{done}: generate, damaged · 2 shards, 6 rows"
    assert advice == (
        "  manifest.json is missing; run the command again, which restores it from journal/ and keeps all "
        "shards whose files are unchanged"
    )
    writer = work.start(done)
    assert list(writer.done) == [0, 1]
    writer.finish(work.card)
    assert status_lines(done)[0] == f"{done}: generate, finished · 2 shards, 6 rows"
    assert work.contents(done) == before
    (done / "manifest.json").unlink()
    (done / "journal/run.json").unlink()
    with pytest.raises(
        FolderError, match=r"holds files of a step, but no manifest\.json, which lists them; "
    ):
        status_lines(done)
    for part in (done / "journal").iterdir():
        part.unlink()
    with pytest.raises(
        FolderError, match=r"holds files of a step, but no manifest\.json, which lists them; "
    ):
        status_lines(done)


def test_an_unfinished_step_names_its_parts(work, out):
    work.start(out, planned=4)
    work.commit(work.start(out / "inputs", planned=2), 0)
    assert status_lines(out)[1].startswith("  inputs: generate, running · 1 of 2 shards, ")


def test_rows_without_a_score_and_labels_with_odd_letters_are_counted(out):
    schema = pa.schema([("id", pa.string()), ("label", pa.string())])
    rows = pa.table({"id": list("abcd"), "label": ["x\x1b[31mred", "x\x1b[31mred", None, "y"]}, schema=schema)
    write_folder(out, {"train": rows}, step="mix")
    assert status_lines(out)[1:] == ["            2 of label x [31mred", "            1 of label y"]


def test_measured_scores_are_no_labels(out):
    rows = pa.table([["1"], ["a"], ["b"], [1.2], [0.5], ["1"], ["1"]], schema=MINED_PAIR)
    write_folder(out, {"train": rows}, step="mine")
    assert not [line for line in status_lines(out) if "of label" in line]


def test_the_entries_of_many_shards_are_read_without_searches_for_garbage(tmp_path):
    Journal(tmp_path).add([ShardEntry(shard=number, files=()) for number in range(10_000)])
    searches = []
    gc.collect()
    gc.callbacks.append(lambda phase, _: searches.append(phase))
    try:
        journal = Journal.read(tmp_path)
    finally:
        gc.callbacks.pop()
    assert len(journal.entries) == 10_000
    assert searches.count("start") <= 2  # before and after the entries are read
    assert gc.isenabled()


def test_a_file_is_told_from_a_folder_that_does_not_exist(tmp_path):
    (tmp_path / "rows.csv").write_text("text\n")
    with pytest.raises(
        FolderError, match=r"rows\.csv is a file; give the folder of a step or of a recipe's run"
    ):
        status_lines(tmp_path / "rows.csv")
    with pytest.raises(FolderError, match="there is no folder .*none; give the folder of a step"):
        status_lines(tmp_path / "none")
