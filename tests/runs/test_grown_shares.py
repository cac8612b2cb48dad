"""Ranks of an array job that add to earlier work: what they made is taken over, and never made again."""

import os
import shutil

import pytest
from tests.heard import Heard

from pairsmith.core.errors import BusyError, FolderError, OtherWorkError
from pairsmith.core.fields import WorkerSettings
from pairsmith.core.paths import place, size_of
from pairsmith.core.progress import Silent
from pairsmith.data.schemas import SCORED_PAIR
from pairsmith.runs import (
    DatasetFolder,
    FolderWriter,
    Growth,
    Identity,
    Run,
    ShardSpec,
    existing,
    lock,
    writer,
)
from pairsmith.runs.array_job import run_rank
from pairsmith.runs.manifest import read_manifest
from pairsmith.runs.ranks import Rank
from pairsmith.steps.reuse import is_complete

GROWTH = Growth(frozenset({"tries"}), lambda _: True)


@pytest.fixture
def job(work, tmp_path):
    """``start`` begins work in the job's folder or that of a rank, and ``make`` makes some of its shards."""

    class Job:
        out = tmp_path / "out"

        def start(self, tries, rank=None, progress=None, run=None, **settings):
            folder = self.out / rank.name if rank else self.out
            run = run or Run(folder, progress or Silent(), rank=rank)
            identity = Identity.of("generate", {"tries": tries, **settings})
            return FolderWriter.start(run, identity, SCORED_PAIR, growth=GROWTH, asked=f"{tries} tries")

        def spec(self, tries, items):
            return ShardSpec(items, "", f"{tries} tries")

        def make(self, tries, shards, rank=None, items=4):
            writer = self.start(tries, rank)
            for shard in shards:
                table = {"train": work.pairs(shard, tries)}
                writer.commit(shard, table, work.rejects(shard), self.spec(tries, items))
            lock.release(writer.run.out)

    return Job()


FIRST, SECOND = Rank(0, 2), Rank(1, 2)


def test_shards_that_a_rank_extended_replace_the_earlier_ones(job):
    job.make(1, [0, 1])
    job.make(3, [1], SECOND)
    heard = Heard()
    writer = job.start(3, progress=heard)
    assert f"copied 1 shard from {job.out / SECOND.name}" in heard.lines
    assert [writer.is_done(shard, job.spec(3, 4)) for shard in (0, 1)] == [False, True]
    assert writer.tables(1)[0]["train"].num_rows == 3
    assert (writer.counts.rows, writer.counts.rejects) == (1 + 3, 2)
    lock.release(job.out)
    assert job.start(3).counts == writer.counts  # the same from the journal


def test_a_shard_with_more_inputs_replaces_one_with_fewer(job):
    job.make(1, [0], items=4)
    job.make(1, [0], FIRST, items=6)
    assert job.start(1).is_done(0, job.spec(1, 6))


def test_a_rank_extends_what_the_jobs_folder_has(job):
    """So its finished texts are not generated again."""
    job.make(2, [0, 1])
    writer = job.start(3, SECOND)
    assert writer.tables(1)[0]["train"].num_rows == 2
    assert writer.tables(3) is None


def test_a_share_that_was_not_extended_replaces_nothing(job):
    """Shares are copied in the order of the numbers of ranks: that of 3 ranks comes last."""
    job.make(3, [0, 2], FIRST)
    job.make(1, [0], Rank(0, 3))
    writer = job.start(3)
    assert writer.is_done(0, job.spec(3, 4))
    assert writer.tables(0)[0]["train"].num_rows == 3


def test_a_damaged_shard_of_a_rank_leaves_the_one_that_it_extends(job):
    """All its files are checked before the first of them replaces one of the job's folder."""
    job.make(1, [1])
    job.make(3, [1], SECOND)
    damaged = job.out / SECOND.name / "rejects/part-00001.parquet"
    damaged.write_bytes(b"")
    heard = Heard()
    writer = job.start(3, progress=heard)
    assert f"{damaged} has changed; shard 1 is made again" in heard.lines
    assert writer.tables(1)[0]["train"].num_rows == writer.counts.rows == 1
    lock.release(job.out)
    heard = Heard()
    assert job.start(3, progress=heard).done == (1,)
    assert heard.lines == []


def test_shares_of_less_are_taken_over_by_a_run_that_asks_for_more(job):
    job.make(1, [0, 2], FIRST)
    writer = job.start(3)
    assert writer.done == (0, 2)
    assert writer.tables(2)[0]["train"].num_rows == 1


def test_a_run_that_ends_does_not_remove_the_shares_of_ranks_that_add_to_it(job, work):
    """They were started while it was still going on."""
    writer = job.start(1)
    job.make(3, [0], FIRST)
    writer.commit(0, {"train": work.pairs(0, 1)}, work.rejects(0), job.spec(1, 4))
    writer.finish(work.card)
    assert (job.out / FIRST.name / "data/train-00000.parquet").exists()
    assert job.start(3).is_done(0, job.spec(3, 4))
    lock.release(job.out)


def test_shares_of_other_work_are_still_refused(job):
    job.make(1, [0], FIRST)
    with pytest.raises(OtherWorkError, match="seed: absent there, 5 here"):
        job.start(3, seed=5)


def test_a_rank_makes_a_damaged_shard_of_its_share_again_even_if_the_job_was_finished(job, work):
    job.make(1, range(4))
    job.start(1).finish(work.card)
    assert job.start(1, FIRST).finished
    (job.out / "data/train-00002.parquet").write_bytes(b"")
    heard = Heard()
    writer = job.start(1, FIRST, progress=heard)
    assert not writer.finished
    assert [writer.is_done(shard) for shard in (0, 2)] == [True, False]
    changed = f"{job.out / 'data/train-00002.parquet'} has changed since it was written"
    assert heard.lines == [f"{changed}; shard 2 is made again"]
    assert job.start(1, SECOND).finished  # its own share has not changed


@pytest.fixture
def run(job, work):
    """Runs a rank of a job with four shards; returns the shards that it made, and the lines that it said."""

    def run(number, tries, size=2):
        def step(_, run):
            writer = job.start(tries, run=run)
            if writer.finished:
                return
            for shard in range(4):
                if not writer.is_done(shard, job.spec(tries, 4)):
                    rejects = work.rejects(shard)
                    writer.commit(shard, {"train": work.pairs(shard, tries)}, rejects, job.spec(tries, 4))
                    made.append(shard)
            writer.finish(work.card)

        heard, made = Heard(), []
        run_rank(step, WorkerSettings(), Rank(number, size), Run(job.out, heard))
        return made, heard.lines

    return run


def test_ranks_that_finished_earlier_work_are_waited_for(job, run):
    """Else the rank that is the first to make more would make the shares of all others, too."""
    assert [run(number, 1, size=3)[0] for number in (0, 1)] == [[0, 3], [1]]
    made, lines = run(2, 3, size=3)
    assert made == [2]
    assert lines[-1] == (
        "rank 2 of 3 has made its share; not finished yet: 0, 1 "
        "(other inputs or settings: 0, 1; start them again with these)"
    )
    assert [run(number, 3, size=3)[0] for number in (1, 0)] == [[1], [0, 3]]
    folder = DatasetFolder.open(job.out)
    assert folder.rows == 4 * 3


def test_a_rank_that_repairs_a_finished_job_joins_its_share_at_once(job, run):
    """The other ranks make no share, as theirs are in the job's folder."""
    for number in (0, 1):
        run(number, 1)
    file = job.out / "data/train-00002.parquet"
    before = file.read_bytes()
    file.write_bytes(b"")
    assert run(1, 1) == ([], [])
    assert run(0, 1)[0] == [2]
    assert file.read_bytes() == before
    assert DatasetFolder.open(job.out).rows == 4
    assert not list(job.out.glob("rank-*"))


def test_ranks_keep_the_shards_of_a_finished_job_whose_manifest_is_damaged(job, run):
    for number in (0, 1):
        run(number, 1)
    (job.out / "manifest.json").write_text("{")
    made, lines = run(0, 1)
    assert made == []
    assert any("restored from the journal" in line for line in lines)
    assert run(1, 1)[0] == []
    assert DatasetFolder.open(job.out).rows == 4


def test_the_share_that_another_rank_joined_while_this_one_was_started_is_not_made_again(
    job, run, monkeypatch
):
    run(0, 1)
    claim, joined = writer.claim, []

    def claim_late(this, *args):
        if this.rank == FIRST and not joined:
            joined.append(run(1, 1)[0])
        return claim(this, *args)

    monkeypatch.setattr(writer, "claim", claim_late)
    assert run(0, 1)[0] == []
    assert joined == [[1, 3]]
    assert DatasetFolder.open(job.out).rows == 4
    assert not list(job.out.glob("rank-*"))


def test_a_mark_of_an_earlier_version_counts_for_the_work_in_its_folder(job, run):
    run(0, 1)
    (job.out / FIRST.name / "rank.json").write_text('{"complete": true}')
    run(1, 1)
    assert DatasetFolder.open(job.out).rows == 4


def test_what_is_no_json_object_is_no_mark(job, run):
    run(0, 1)
    (job.out / FIRST.name / "rank.json").write_text("[]")
    assert run(1, 1)[1][-1] == "rank 1 of 2 has made its share; not finished yet: 0"


def test_a_rank_says_what_to_do_if_another_process_writes_to_the_folder_of_the_job(job, run):
    fcntl = pytest.importorskip("fcntl")
    job.make(1, [0, 1])
    other = os.open(job.out, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    run(0, 3)
    said = f"another process writes to {job.out}; when it has ended, start a rank again"
    assert run(1, 3)[1][-1] == said
    manifest = read_manifest(job.out / FIRST.name)  # the process that puts the shares together wrote this
    (job.out / "manifest.json").write_text(manifest.model_dump_json())
    assert run(1, 3)[1][-1] == f"another process is putting the shares in {job.out} together"
    os.close(other)


def test_a_shard_with_fewer_inputs_replaces_none_with_more(job):
    job.make(1, [0], items=6)
    job.make(3, [0], FIRST, items=4)
    assert job.start(3).is_done(0, job.spec(1, 6))


def test_a_shard_that_was_extended_in_part_replaces_one_that_was_not(job):
    """So only the rest is generated."""
    job.make(1, [0])
    job.make(2, [0], FIRST)
    assert job.start(3).tables(0)[0]["train"].num_rows == 2


def test_a_rank_of_a_finished_job_needs_no_earlier_run(job, run):
    for number in (0, 1):
        run(number, 1)
    rank = Run(job.out / FIRST.name, Silent(), rank=FIRST)
    assert is_complete(rank, Identity.of("generate", {"tries": 1}))
    assert not is_complete(rank, Identity.of("generate", {"tries": 2}))


def test_a_run_that_is_refused_because_of_shares_leaves_a_finished_folder_finished(job, work):
    job.make(1, [0, 1])
    job.start(1).finish(work.card)
    job.make(3, [0], FIRST)
    before = work.contents(job.out)
    with pytest.raises(OtherWorkError, match=f"{FIRST.name} holds the share of an array job with other"):
        job.start(2)
    lock.acquire(job.out / FIRST.name)
    for fresh in (False, True):
        with pytest.raises(BusyError, match=f"{FIRST.name} is being written by a rank"):
            job.start(3, run=Run(job.out, Silent(), fresh=fresh))
    lock.release(job.out / FIRST.name)
    assert work.contents(job.out) == before
    assert DatasetFolder.open(job.out).rows == 2
    assert job.start(3).is_done(0, job.spec(3, 4))


@pytest.mark.parametrize("fault", ["damaged", "unreachable"])
def test_the_share_of_a_rank_whose_manifest_cannot_be_read_is_kept(job, work, monkeypatch, fault):
    writer = job.start(1)
    job.make(3, [0], FIRST)
    folder = job.out / FIRST.name
    writer.commit(0, {"train": work.pairs(0, 1)}, work.rejects(0), job.spec(1, 4))
    with monkeypatch.context() as patch:
        if fault == "damaged":
            (folder / "manifest.json").write_text("{")
        else:

            def read(place):
                if place == folder:
                    raise FolderError(f"{place} cannot be reached: 503")
                return read_manifest(place)

            patch.setattr(existing, "read_manifest", read)
        writer.finish(work.card)
    assert job.start(3).is_done(0, job.spec(3, 4))


def test_a_share_of_less_that_was_taken_over_is_removed_when_the_run_ends(job, work):
    job.make(1, [0], FIRST)
    writer = job.start(3)
    writer.commit(0, {"train": work.pairs(0, 3)}, work.rejects(0), job.spec(3, 4))
    writer.finish(work.card)
    assert not (job.out / FIRST.name).exists()


@pytest.mark.parametrize("where", ["disk", "store"])
def test_ranks_go_on_in_a_folder_whose_removal_was_interrupted(job, where, monkeypatch):
    monkeypatch.setattr("pairsmith.runs.lease._SETTLE_SECONDS", 0.0)
    if where == "store":
        job.out = place(f"memory://removed-{os.urandom(4).hex()}/out")
    job.make(1, [0], FIRST)
    folder, removed = job.out / FIRST.name, []

    def interrupted(real):
        def remove(files, *args, **options):
            if len(removed) == 1:
                raise KeyboardInterrupt
            removed.append(files)
            return real(files, *args, **options)

        return remove

    with monkeypatch.context() as patch:
        # The folders of a folder on the disk, then the folder itself; in a store all files but the last.
        patch.setattr(shutil, "rmtree", interrupted(shutil.rmtree))
        patch.setattr(existing, "remove_files", interrupted(existing.remove_files))
        with pytest.raises(KeyboardInterrupt):
            existing.remove_rank_folder(folder)
    assert size_of(folder / "manifest.json") is not None
    job.make(1, [0], FIRST)


def test_no_share_of_other_work_is_left_if_a_fresh_run_is_killed_at_its_start(job, monkeypatch):
    job.make(1, [0], FIRST)

    def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(FolderWriter, "_record", killed)
        with pytest.raises(KeyboardInterrupt):
            job.start(1, run=Run(job.out, Silent(), fresh=True), seed=5)
    lock.release(job.out)
    assert job.start(1, seed=5).done == ()
