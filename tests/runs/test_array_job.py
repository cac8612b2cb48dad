"""Array jobs: ranks that share a folder and nothing else make the bytes of one process, whatever is killed."""

import json
import multiprocessing
import os
import random
import signal

import pytest
from tests.heard import Heard

from pairsmith.cli.app import main
from pairsmith.cli.recipes import load_recipe
from pairsmith.cli.running import run_recipe
from pairsmith.cli.steps import STEPS
from pairsmith.core.errors import BusyError, FolderError, OtherWorkError, SettingsError
from pairsmith.core.paths import place
from pairsmith.core.progress import Silent
from pairsmith.data.schemas import SCORED_PAIR
from pairsmith.runs import DatasetFolder, FolderWriter, Identity, Run, lock
from pairsmith.runs.log import recent_events, working_seconds
from pairsmith.runs.manifest import read_manifest
from pairsmith.runs.ranks import Rank, few_numbers, rank_folders
from pairsmith.runs.status import status_lines
from pairsmith.steps.generate.settings import GenerateSettings
from pairsmith.steps.mine.settings import FilterSettings, MineSettings
from pairsmith.steps.retrieval.settings import ChunkSettings

pytestmark = pytest.mark.slow


@pytest.fixture
def world(tmp_path, tiny_gpt2):
    (tmp_path / "in.txt").write_text("".join(f"text number {i}\n" for i in range(22)))

    def settings(**changes):
        given = {"model": str(tiny_gpt2), "inputs": [str(tmp_path / "in.txt")]}
        return GenerateSettings(**{**given, "shard_size": 2, "max_tokens": 12, "tries": 2, **changes})

    return tmp_path, settings


def one_rank(settings, out, number, size, step="generate", progress=None):
    given = settings.model_copy(update={"executor": "array", "rank": number, "world_size": size})
    STEPS[step].run(given, Run(out, progress or Silent()))


def plainly(settings, out, step="generate", progress=None):
    STEPS[step].run(settings, Run(out, progress or Silent()))


def files(folder, parts=("data", "rejects")):
    return {
        f"{part}/{path.name}": path.read_bytes()
        for part in parts
        for path in sorted((folder / part).iterdir())
    }


@pytest.mark.parametrize("size", [*(pytest.param(size, marks=pytest.mark.long) for size in (1, 2, 30)), 5])
def test_ranks_make_the_bytes_of_one_process(world, size):
    tmp, settings = world
    plainly(settings(), tmp / "one")
    numbers = list(range(size))
    random.Random(size).shuffle(numbers)
    for number in numbers:
        assert not (tmp / "many/manifest.json").exists()
        one_rank(settings(), tmp / "many", number, size)
    assert files(tmp / "many") == files(tmp / "one")
    assert DatasetFolder.open(tmp / "many").manifest.counts == DatasetFolder.open(tmp / "one").manifest.counts
    assert not list((tmp / "many").glob("rank-*"))


def test_the_times_of_the_ranks_are_in_the_log_of_the_job(world):
    tmp, settings = world
    for number in range(2):
        one_rank(settings(), tmp / "out", number, 2)
    shares = [event for event in recent_events(tmp / "out") if event["event"] == "share"]
    assert sorted(share["rank"] for share in shares) == ["rank-0-of-2", "rank-1-of-2"]
    assert all(share["seconds"] > 0 for share in shares)
    created = read_manifest(tmp / "out").created
    assert working_seconds(tmp / "out", created) == sum(share["seconds"] for share in shares)


def test_each_rank_makes_only_its_share(world):
    tmp, settings = world
    one_rank(settings(), tmp / "out", 1, 3)
    names = sorted(path.name for path in (tmp / "out/rank-1-of-3/data").iterdir())
    assert names == [f"train-{number:05d}.parquet" for number in (1, 4, 7, 10)]
    lines = status_lines(tmp / "out")
    assert lines[0] == f"{tmp / 'out'}: an array job, 1 of 3 ranks finished"
    assert lines[1].startswith("rank-1-of-3: generate, finished · 4 of 4 shards")
    assert lines[-1] == "not started: 0, 2"


def test_the_bar_of_a_rank_counts_its_share(world):
    """22 inputs in shards of 2, 3 labels: rank 1 of 3 has the shards 1, 4, 7 and 10."""
    tmp, settings = world
    heard = Heard()
    one_rank(settings(), tmp / "out", 1, 3, progress=heard)
    assert any(line.startswith("generate: 24/24 prompts") for line in heard.lines)


def test_the_last_rank_says_what_is_there_and_the_others_what_is_missing(world):
    tmp, settings = world
    first, second = Heard(), Heard()
    one_rank(settings(), tmp / "out", 1, 2, progress=first)
    one_rank(settings(), tmp / "out", 0, 2, progress=second)
    assert first.lines[-1] == "rank 1 of 2 has made its share; not finished yet: 0"
    assert any(line.startswith("copied 6 shards") for line in second.lines)
    assert any(f"rows to {tmp / 'out'} (" in line for line in second.lines)


def test_the_plain_command_takes_over_what_ranks_made_and_makes_the_rest(world):
    tmp, settings = world
    plainly(settings(), tmp / "one")
    one_rank(settings(), tmp / "out", 0, 2)
    heard = Heard()
    plainly(settings(), tmp / "out", progress=heard)
    assert f"copied 6 shards from {tmp / 'out/rank-0-of-2'}" in heard.lines
    assert files(tmp / "out") == files(tmp / "one")


def test_ranks_share_what_is_added_to_a_finished_folder(world):
    tmp, settings = world
    plainly(settings(), tmp / "one")
    plainly(settings(limit=4), tmp / "out")
    begun = DatasetFolder.open(tmp / "out")
    one_rank(settings(), tmp / "out", 0, 2)
    assert DatasetFolder.open(tmp / "out").rows == begun.rows  # until all shares are made
    heard = Heard()
    one_rank(settings(), tmp / "out", 1, 2, progress=heard)
    assert any(line.startswith("copied 5 shards from") for line in heard.lines)
    assert files(tmp / "out") == files(tmp / "one")


def test_status_of_a_finished_folder_leaves_out_ranks_whose_shares_were_joined(chunks):
    """The manifest of a rank's folder is removed last, so a kill may leave it."""
    tmp, settings = chunks
    out, rank = tmp / "out", tmp / "out/rank-0-of-2"
    one_rank(settings(), out, 0, 2, "chunk")
    manifest = (rank / "manifest.json").read_bytes()
    one_rank(settings(), out, 1, 2, "chunk")
    finished = status_lines(out)
    rank.mkdir()
    (tmp / "out/rank-1-of-2").mkdir()
    (rank / "manifest.json").write_bytes(manifest)
    assert status_lines(out) == finished
    lock.acquire(rank)
    try:
        assert f"{out}: an array job, 0 of 2 ranks finished" in status_lines(out)
    finally:
        lock.release(rank)


def test_status_of_a_finished_folder_has_the_ranks_that_add_to_it(world):
    tmp, settings = world
    out, mark = tmp / "out", tmp / "out/rank-0-of-2/rank.json"
    plainly(settings(limit=2), out)
    finished = status_lines(out)
    one_rank(settings(limit=4), out, 0, 2)
    assert f"{out}: an array job, 1 of 2 ranks finished" in status_lines(out)
    assert status_lines(out)[: len(finished)] == finished
    mark.write_text('{"fingerprint": "of earlier work"}')  # the rank was killed before it removed the mark
    assert f"{out}: an array job, 0 of 2 ranks finished" in status_lines(out)


def test_ranks_extend_the_shards_of_a_finished_folder(world):
    tmp, settings = world
    plainly(settings(limit=3), tmp / "out")
    for number in (1, 0):
        one_rank(settings(limit=6, tries=3), tmp / "out", number, 2)
    plainly(settings(limit=6, tries=3), tmp / "one")
    assert files(tmp / "out") == files(tmp / "one")
    assert not list((tmp / "out").glob("rank-*"))


def test_a_finished_job_that_is_started_again_leaves_its_folder_as_it_is(chunks):
    tmp, settings = chunks
    plainly(settings(), tmp / "out", "chunk")
    before = {path: path.stat().st_mtime_ns for path in (tmp / "out").rglob("*")}
    for number in (0, 1):
        heard = Heard()
        one_rank(settings(), tmp / "out", number, 2, "chunk", progress=heard)
        assert heard.lines[-1] == f"{tmp / 'out'} is finished already; nothing to do"
    assert {path: path.stat().st_mtime_ns for path in (tmp / "out").rglob("*")} == before
    with pytest.raises(OtherWorkError, match="holds a finished run of chunk with other settings: words"):
        one_rank(settings(words=99), tmp / "out", 1, 2, "chunk")


def test_a_rank_makes_only_what_the_jobs_folder_lacks_of_work_that_grew(world):
    tmp, settings = world
    plainly(settings(limit=4), tmp / "out")
    unfinished = read_manifest(tmp / "out").model_copy(update={"complete": False})
    (tmp / "out/manifest.json").write_text(unfinished.model_dump_json())  # as if it had been stopped
    for _ in range(2):  # the second time it has a manifest of the grown work
        one_rank(settings(), tmp / "out", 1, 2)
        made = sorted(path.name for path in (tmp / "out/rank-1-of-2/data").iterdir())
        assert made == [f"train-{number:05d}.parquet" for number in (3, 5, 7, 9)]


def test_a_rank_of_other_settings_is_refused_with_what_to_do(world):
    tmp, settings = world
    one_rank(settings(), tmp / "out", 0, 2)
    before = sorted(tmp.rglob("*"))
    for number, holds in ((1, "the share of an array job with"), (0, "an unfinished run of generate with")):
        with pytest.raises(OtherWorkError) as told:
            one_rank(settings(seed=5), tmp / "out", number, 2)
        first, remedy = str(told.value).splitlines()
        assert first.startswith(f"{tmp / 'out/rank-0-of-2'} holds {holds} other settings")
        assert first.endswith("seed: 1 there, 5 here")
        assert f"or remove {tmp / 'out'} to start over" in remedy  # --fresh is refused here
    assert sorted(tmp.rglob("*")) == before  # rank 1 made nothing that could not be joined
    with pytest.raises(OtherWorkError, match="of that job, or --fresh to start over without it"):
        plainly(settings(seed=5), tmp / "out")
    STEPS["generate"].run(settings(seed=5), Run(tmp / "out", Silent(), fresh=True))
    assert not list((tmp / "out").glob("rank-*"))


def test_ranks_go_on_one_after_the_other_when_lines_were_added(world):
    tmp, settings = world
    for number in (0, 1):
        one_rank(settings(limit=6), tmp / "out", number, 3)
    for number in range(3):
        one_rank(settings(), tmp / "out", number, 3)
    plainly(settings(), tmp / "one")
    assert files(tmp / "out") == files(tmp / "one")


def test_a_rank_that_still_runs_is_not_disturbed(world):
    tmp, settings = world
    one_rank(settings(), tmp / "out", 0, 2)
    lock.acquire(tmp / "out/rank-0-of-2")
    try:
        with pytest.raises(BusyError, match="is being written by a rank"):
            plainly(settings(), tmp / "out")
    finally:
        lock.release(tmp / "out/rank-0-of-2")


def test_a_damaged_shard_of_a_rank_is_made_again(world):
    tmp, settings = world
    plainly(settings(), tmp / "one")
    one_rank(settings(), tmp / "out", 0, 2)
    (tmp / "out/rank-0-of-2/data/train-00004.parquet").write_bytes(b"cut")
    one_rank(settings(), tmp / "out", 1, 2)
    assert files(tmp / "out") == files(tmp / "one")


@pytest.mark.long
def test_in_a_store(world, monkeypatch):
    tmp, settings = world
    monkeypatch.setattr("pairsmith.runs.lease._SETTLE_SECONDS", 0.0)
    plainly(settings(), tmp / "one")
    out = place(f"memory://array-{tmp.name}/out")
    for number in (0, 1):
        one_rank(settings(), out, number, 2)
    assert files(out) == files(tmp / "one")


@pytest.mark.long
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kills")
def test_ranks_killed_in_the_middle(world, monkeypatch):
    tmp, settings = world
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    plainly(settings(), tmp / "one")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pairsmith.steps.generate.route"])

    def start(number):
        process = context.Process(target=one_rank, args=(settings(), tmp / "out", number, 3))
        process.start()
        return process

    for number in range(3):
        process = start(number)
        while process.is_alive() and not list((tmp / "out").glob(f"rank-{number}-of-3/data/*.parquet")):
            process.join(0.005)
        os.kill(process.pid, signal.SIGKILL)  # in the middle: it has three or four shards to make
        process.join()
        assert process.exitcode == -signal.SIGKILL
    ends = [start(number) for number in range(3)]  # all at once: each may be the last
    for process in ends:
        process.join()
    assert [process.exitcode for process in ends] == [0, 0, 0]
    if not (tmp / "out/README.md").exists():  # none of the three saw the other two end
        one_rank(settings(), tmp / "out", 0, 3)
    assert files(tmp / "out") == files(tmp / "one")


def test_mining_shares_the_encoding(tmp_path, tiny_bert):
    things = ("guitar", "drum", "flute", "harp", "horn", "lute", "bell", "viol", "gong")
    (tmp_path / "in.txt").write_text("".join(f"who plays the {thing}?\n" for thing in things))
    (tmp_path / "out.txt").write_text("".join(f"a man plays the {thing} today\n" for thing in things))
    settings = MineSettings(
        inputs=[str(tmp_path / "in.txt")],
        outputs=[str(tmp_path / "out.txt")],
        encoder=str(tiny_bert),
        k=3,
        shard_size=2,
        dtype="float32",
    )
    parts = ("data", "rejects", "inputs/data", "outputs/data", "search/data")
    plainly(settings, tmp_path / "one", "mine")
    one_rank(settings, tmp_path / "many", 0, 2, "mine")
    assert len(list((tmp_path / "many/rank-0-of-2/inputs/data").iterdir())) == 3
    assert not (tmp_path / "many/inputs").exists()
    one_rank(settings, tmp_path / "many", 1, 2, "mine")
    assert files(tmp_path / "many", parts) == files(tmp_path / "one", parts)

    judge = FilterSettings(
        pairs=str(tmp_path / "one"),
        model=str(tiny_bert),
        judge="encoder",
        dtype="float32",
        shard_size=1,
        best=2,
    )
    plainly(judge, tmp_path / "judged", "filter")
    for number in (1, 0):
        one_rank(judge, tmp_path / "shared", number, 2, "filter")
    assert files(tmp_path / "shared") == files(tmp_path / "judged")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--executor", "array"], "--executor array needs --rank, from 0, and --world-size"),
        (["--executor", "array", "--rank", "2", "--world-size", "2"], "it must be from 0 to 1"),
        (["--rank", "0"], "--rank and --world-size need --executor array"),
        (["--executor", "array", "--rank", "0", "--world-size", "2", "--fresh"], "--fresh does not go with"),
    ],
)
def test_faults_are_told_in_a_line(world, options, words, capsys):
    tmp, settings = world
    given = ["--model", settings().model, "--inputs", settings().inputs[0], "--out", str(tmp / "out")]
    with pytest.raises(SystemExit) as end:
        main(["generate", *given, *options])
    assert end.value.code == 2
    assert words in capsys.readouterr().err


def test_a_recipe_does_not_take_it(world):
    tmp, settings = world
    (tmp / "recipe.yaml").write_text(
        "name: shared\nsteps:\n  - name: pairs\n    step: generate\n    settings:\n      executor: array\n"
        f"      rank: 0\n      world_size: 2\n      model: {settings().model}\n"
        f"      inputs: {settings().inputs[0]}\n"
    )
    with pytest.raises(SettingsError, match="executor array works only for single commands"):
        run_recipe(load_recipe(tmp / "recipe.yaml"), tmp / "out", Silent())


def test_shares_cover_every_shard_once():
    for size in (1, 2, 3, 7):
        ranks = [Rank(number, size) for number in range(size)]
        assert all(sum(rank.has(shard) for rank in ranks) == 1 for shard in range(20))
        assert [rank.share_of(20) for rank in ranks] == [sum(map(rank.has, range(20))) for rank in ranks]


@pytest.fixture
def chunks(tmp_path):
    """A folder, and settings of ``chunk``, a step without a model, for eight documents in shards of one."""
    rows = [{"id": f"d{n}", "text": f"The guitar of document {n} is old. It is red."} for n in range(8)]
    (tmp_path / "docs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def settings(**changes):
        return ChunkSettings(**{"documents": [str(tmp_path / "docs.jsonl")], "shard_size": 1, **changes})

    return tmp_path, settings


def test_a_rank_is_refused_before_it_works_if_its_share_could_not_be_put_into_the_folder(chunks):
    tmp, settings = chunks
    out = tmp / "out"
    plainly(settings(), out, "chunk")
    manifest = json.loads((out / "manifest.json").read_text())
    (out / "manifest.json").write_text(json.dumps(manifest | {"complete": False}))
    before = sorted(tmp.rglob("*"))
    with pytest.raises(OtherWorkError) as told:
        one_rank(settings(words=99), out, 1, 2, "chunk")
    first, remedy = str(told.value).splitlines()
    assert first.startswith(f"{out} holds an unfinished run of chunk with other settings: words: ")
    assert remedy == f"give another folder as --out, or remove {out} to start over in this one"
    assert sorted(tmp.rglob("*")) == before
    one_rank(settings(), out, 1, 2, "chunk")  # with the same settings it continues


def test_a_rank_writes_into_no_folder_with_other_files(chunks):
    tmp, settings = chunks
    with pytest.raises(FolderError, match=r"holds something else \(docs.jsonl\)"):
        one_rank(settings(), tmp, 0, 2, "chunk")
    assert [path.name for path in tmp.iterdir()] == ["docs.jsonl"]


@pytest.mark.parametrize("damaged", ["rank-0-of-3/manifest.json", "manifest.json"])
def test_a_damaged_manifest_stops_no_other_rank(chunks, damaged):
    """Whoever owns it restores it."""
    tmp, settings = chunks
    plainly(settings(), tmp / "out", "chunk")
    manifest = json.loads((tmp / "out/manifest.json").read_text())
    (tmp / "out/manifest.json").write_text(json.dumps(manifest | {"complete": False}))
    one_rank(settings(), tmp / "out", 0, 3, "chunk")
    (tmp / "out" / damaged).write_text("{")
    heard = Heard()
    one_rank(settings(), tmp / "out", 1, 3, "chunk", progress=heard)
    assert heard.lines[-1] == "rank 1 of 3 has made its share; not finished yet: 2"
    one_rank(settings(), tmp / "out", 2, 3, "chunk")
    plainly(settings(), tmp / "one", "chunk")
    assert files(tmp / "out") == files(tmp / "one")
    assert not list((tmp / "out").glob("rank-*"))


def test_a_share_is_begun_again_until_it_is_finished(chunks, monkeypatch):
    """Else the last rank would put the shares together while one still grows."""
    tmp, settings = chunks
    done = tmp / "out/rank-0-of-2/rank.json"
    one_rank(settings(), tmp / "out", 0, 2, "chunk")
    assert done.exists()

    def stopped(*_):
        assert not done.exists()
        raise KeyboardInterrupt

    monkeypatch.setattr("pairsmith.steps.retrieval.chunk._cut", stopped)
    with pytest.raises(KeyboardInterrupt):
        one_rank(settings(), tmp / "out", 0, 2, "chunk")
    assert not done.exists()
    assert not lock.is_held(tmp / "out/rank-0-of-2")


def test_a_finished_rank_that_is_started_while_its_share_is_copied_ends_well(chunks, monkeypatch):
    tmp, settings = chunks
    fcntl = pytest.importorskip("fcntl")
    one_rank(settings(), tmp / "out", 0, 2, "chunk")
    other = os.open(tmp / "out/rank-0-of-2", os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    heard = Heard()
    one_rank(settings(), tmp / "out", 0, 2, "chunk", progress=heard)
    assert heard.lines[-1] == "rank 0 of 2 has made its share; not finished yet: 1"
    (tmp / "out/rank-0-of-2/rank.json").unlink()  # it is being made by another process
    with pytest.raises(BusyError, match="another run is writing to"):
        one_rank(settings(), tmp / "out", 0, 2, "chunk")
    os.close(other)


def test_what_a_rank_made_of_a_part_with_other_settings_is_left_alone(work, tmp_path):
    folder, run = tmp_path / "rank-0-of-2" / "part", Run(tmp_path / "part", Silent(), within=("part",))
    work.commit(work.start(folder), 0)
    lock.release(folder)
    assert FolderWriter.start(run, Identity.of("generate", {"seed": 8}), SCORED_PAIR).done == ()
    assert (folder / "data/train-00000.parquet").exists()


def test_ranks_share_a_folder_in_which_a_run_with_other_settings_finished_nothing(work, tmp_path):
    """Otherwise the first rank would work, and the second one would fear that this work would be lost."""
    FolderWriter.start(Run(tmp_path, Silent()), Identity.of("generate", {"seed": 8}), SCORED_PAIR)
    lock.release(tmp_path)
    identity = Identity.of("generate", {"seed": 7})
    for number in range(2):
        run = Run(tmp_path / f"rank-{number}-of-2", Silent(), rank=Rank(number, 2))
        work.commit(FolderWriter.start(run, identity, SCORED_PAIR), number)
        lock.release(run.out)
    assert FolderWriter.start(Run(tmp_path, Silent()), identity, SCORED_PAIR).done == (0, 1)


def test_a_share_that_was_copied_is_not_taken_for_damaged(work, tmp_path):
    folder, heard = tmp_path / "out/rank-0-of-2", Heard()
    work.commit(work.start(folder), 0)
    lock.release(folder)
    assert work.start(tmp_path / "out").done == (0,)
    assert work.start(folder, progress=heard).done == ()
    assert heard.lines == []


def test_ranks_are_in_the_order_of_their_numbers(tmp_path):
    names = ["rank-1-of-2", "rank-0-of-12", "rank-2-of-12", "rank-10-of-12"]
    for name in sorted(names):
        (tmp_path / name).mkdir()
    assert [folder.name for folder in rank_folders(tmp_path)] == names
    assert few_numbers(range(8)) == "0, 1, 2, 3, 4, 5, 6, 7"
    assert few_numbers(range(9)) == "0, 1, 2, 3, 4, 5, 6, 7, …"


@pytest.mark.parametrize("within", [(), ("inputs",)])
def test_the_folders_of_a_job_or_of_a_part_of_it(tmp_path, within):
    ranks = [tmp_path.joinpath(f"rank-{number}-of-2", *within) for number in range(2)]
    for folder in ranks:
        folder.mkdir(parents=True)
    job = tmp_path.joinpath(*within)
    joining = Run(job, Silent(), within=within)
    assert (joining.job_folder, joining.rank_folders()) == (job, ranks)
    assert joining.folders_of_job() == [job, *ranks]
    rank = Run(ranks[1], Silent(), within=within, rank=Rank(1, 2))
    assert (rank.job_folder, rank.rank_folders()) == (job, [])
    assert rank.folders_of_job() == [ranks[1], job, ranks[0]]
