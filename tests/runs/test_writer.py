import json
import os

import pyarrow as pa
import pytest
from tests.heard import Heard

from pairsmith import __version__
from pairsmith.core.errors import FolderError
from pairsmith.core.progress import Progress
from pairsmith.data.schemas import SCORED_PAIR
from pairsmith.runs import Card, DatasetFolder, Growth, Identity, Run, hash_file, lock
from pairsmith.runs import writer as writer_module
from pairsmith.runs.identity import _excerpts
from pairsmith.runs.manifest import FORMAT
from pairsmith.tools.record import recorded


class TestWhatIsWritten:
    def test_files_and_their_names(self, work, done):
        assert sorted(work.contents(done)) == [
            "README.md",
            *[f"data/{split}-0000{shard}.parquet" for split in ("train", "validation") for shard in (0, 1)],
            "rejects/part-00000.parquet",
            "rejects/part-00001.parquet",
        ]

    def test_the_manifest(self, done):
        manifest = json.loads((done / "manifest.json").read_text())
        assert list(manifest) == [
            *("format", "step", "settings", "seed", "inputs", "models", "fingerprint", "base"),
            *("complete", "planned", "asked", "shards", "counts", "about", "pairsmith", "created"),
        ]
        assert manifest["format"] == FORMAT
        assert manifest["seed"] == 7
        assert manifest["complete"] is True
        assert manifest["counts"] == {"rows": 6, "rejects": 2, "rejects_by_reason": {"copy: equal": 2}}
        assert [shard["shard"] for shard in manifest["shards"]] == [0, 1]
        train = manifest["shards"][0]["files"][0]
        path = done / "data" / "train-00000.parquet"
        assert train == {
            "path": "data/train-00000.parquet",
            "split": "train",
            "rows": 2,
            "sha256": hash_file(path),
            "bytes": path.stat().st_size,
        }

    def test_the_folder_that_comes_back(self, done):
        folder = DatasetFolder.open(done)
        assert folder.splits == ("train", "validation")
        assert folder.rows == 6
        assert folder.split_rows == {"train": 4, "validation": 2}
        assert folder.table().column("id").to_pylist() == ["0-0", "0-1", "1-0", "1-1"]
        assert folder.table("validation").num_rows == 2
        assert folder.rejects().column("id").to_pylist() == ["0-r0", "1-r0"]
        assert folder.manifest.step == "generate"

    def test_shards_in_any_order_give_the_same_folder(self, work, done, tmp_path):
        writer = work.start(tmp_path / "other")
        work.commit(writer, 1, 0)
        folder = writer.finish(work.card)
        assert work.contents(done) == work.contents(tmp_path / "other")
        assert folder.table().equals(DatasetFolder.open(done).table())

    def test_a_folder_without_rows(self, work, out):
        writer = work.start(out)
        writer.commit(0, {"train": SCORED_PAIR.empty_table()}, work.rejects(0, 0))
        folder = writer.finish(work.card)
        assert folder.splits == ("train",)
        assert folder.table().schema.equals(SCORED_PAIR)
        assert folder.rows == folder.rejects().num_rows == 0

    def test_a_folder_without_any_table_is_refused(self, work, out):
        writer = work.start(out)
        writer.commit(0, {}, work.rejects(0))
        with pytest.raises(ValueError, match="a data set needs at least one table"):
            writer.finish(work.card)

    def test_an_empty_folder_that_is_there_is_used(self, work, out):
        out.mkdir(parents=True)
        (out / ".DS_Store").write_text("")
        (out / ".nfs0000000000f3a1b200000001").write_text("a removed file that is still open")
        assert work.start(out).done == ()

    def test_no_seed_among_the_settings(self, work, out):
        writer = work.start(out, settings={})
        work.commit(writer, 0)
        assert writer.finish(work.card).manifest.seed is None


class TestContinuing:
    def test_done_shards_are_kept(self, work, out):
        work.commit(work.start(out), 0, 2)
        writer = work.start(out)
        assert writer.done == (0, 2)
        assert [writer.is_done(shard) for shard in range(3)] == [True, False, True]
        assert writer.counts.rows == 6
        assert not writer.finished

    def test_the_user_is_told_if_another_version_began_the_run(self, work, out):
        work.commit(work.start(out), 0)
        lock.release(out)
        path, heard = out / "manifest.json", Heard()
        record = json.loads(path.read_text())
        path.write_text(json.dumps({**record, "pairsmith": "0.0.9"}))
        writer = work.start(out, progress=heard)
        assert writer.done == (0,)
        assert heard.lines == [
            f"{out} was begun by pairsmith 0.0.9, and this is {__version__}: finished parts are kept, and the "
            "others may differ from what that version would have made"
        ]

    def test_the_user_is_told_if_another_version_wrote_the_folder_that_grows(self, work, out):
        growth, heard = Growth(frozenset({"decay"}), lambda _: True), Heard()
        writer = work.start(out, growth=growth)
        work.commit(writer, 0)
        writer.finish(Card("Rows", "Rows."))
        path = out / "manifest.json"
        record = json.loads(path.read_text())
        path.write_text(json.dumps({**record, "pairsmith": "0.0.9"}))
        work.start(out, growth=growth, progress=heard)
        assert heard.lines == []  # nothing is written
        work.start(out, growth=growth, progress=heard, settings={**work.settings, "decay": 200.0})
        assert f"{out} was begun by pairsmith 0.0.9" in heard.lines[0]

    def test_a_tool_whose_results_have_no_parts_says_nothing_of_versions(self, out):
        identity, heard = Identity.of("report", {}), Heard()
        for _ in range(2):
            with recorded(Run(out, heard), identity, "report.json", any_work=True) as save:
                save(pairsmith="0.0.9")
        assert heard.lines == []

    def test_a_finished_folder_stays_as_it_is(self, work, done):
        before = (done / "manifest.json").read_bytes()
        writer = work.start(done)
        assert writer.finished
        assert writer.finish(work.card).rows == writer.folder().rows == 6
        assert (done / "manifest.json").read_bytes() == before
        with pytest.raises(ValueError, match="is finished; nothing can be added"):
            writer.commit(5, {}, work.rejects(5))

    @pytest.mark.parametrize("file", ["data/train-00001.parquet", "rejects/part-00001.parquet"])
    @pytest.mark.parametrize("harm", ["alter", "truncate", "remove"])
    def test_a_harmed_shard_is_made_again(self, work, done, file, harm, capsys):
        whole, path = work.contents(done), done / file
        if harm == "alter":
            path.write_bytes(path.read_bytes()[:-9] + b"x" + path.read_bytes()[-8:])
        elif harm == "truncate":
            path.write_bytes(path.read_bytes()[:100])
        else:
            path.unlink()
        writer = work.start(done, progress=Progress())
        assert f"{path} has changed since it was written; shard 1 is made again" in capsys.readouterr().err
        assert not writer.finished
        assert writer.done == (0,)
        assert writer.counts.model_dump() == {
            "rows": 3,
            "rejects": 1,
            "rejects_by_reason": {"copy: equal": 1},
        }
        with pytest.raises(
            FolderError, match=r"is unfinished; rerun the command that writes it \(generate\)"
        ):
            DatasetFolder.open(done)
        work.commit(writer, 0, 1)
        writer.finish(work.card)
        assert work.contents(done) == whole

    def test_a_lost_card_is_written_again(self, work, done):
        whole = work.contents(done)
        (done / "README.md").unlink()
        writer = work.start(done)
        assert not writer.finished
        assert writer.done == (0, 1)
        writer.finish(work.card)
        assert work.contents(done) == whole

    def test_shards_are_listed_in_the_journal_before_the_manifest_lists_none(self, work, done, monkeypatch):
        """The manifest of a finished folder lists them; that of a continued run does not."""
        (done / "journal/00000.jsonl").unlink()
        (done / "README.md").unlink()
        write = writer_module.write_json

        def write_and_die(path, value):
            write(path, value)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(writer_module, "write_json", write_and_die)
            with pytest.raises(KeyboardInterrupt):
                work.start(done)
        assert work.start(done).done == (0, 1)

    def test_a_line_of_another_run_does_not_count_even_if_its_files_are_intact(self, work, out):
        work.commit(work.start(out), 0, 1)
        journal = out / "journal/00000.jsonl"
        first, second = map(json.loads, journal.read_text().splitlines())
        journal.write_text(f"{json.dumps(first)}\n{json.dumps(second | {'run': 'another'})}\n")
        assert work.start(out).done == (0,)

    def test_strays_are_removed_and_other_files_left(self, work, out):
        work.commit(work.start(out), 0)
        for name in (
            "data/train-00003.parquet",
            "rejects/part-00003.parquet",
            ".pairsmith-9-manifest.json.tmp",
        ):
            (out / name).write_text("half")
        for name in ("data/mine.parquet", "notes.txt", "data/.pairsmith-note"):
            (out / name).write_text("mine")
        work.start(out)
        assert {"data/mine.parquet", "notes.txt", "data/.pairsmith-note"} <= work.contents(out).keys()
        assert not {name for name in work.contents(out) if "00003" in name or name.endswith(".tmp")}

    def test_only_leftovers_of_a_run_killed_at_its_start(self, work, out):
        out.mkdir(parents=True)
        (out / ".pairsmith-9-manifest.json.tmp").write_text("half")
        work.commit(work.start(out), 0)
        assert not list(out.glob(".*"))


class TestRefusing:
    @pytest.fixture
    def refusal(self, work):
        def call(out, **changes):
            with pytest.raises(FolderError) as caught:
                work.start(out, **changes)
            assert str(caught.value).count("\n") <= 1
            return str(caught.value)

        return call

    def test_other_settings_are_shown(self, refusal, done):
        settings = {"decay": 0.0, "seed": 7, "decoding": {"top_k": 5, "stop": ["a", "c"]}, "limit": 3}
        message = refusal(done, settings=settings)
        assert message == (
            f"{done} holds a finished run of generate with other settings: decay: 100.0 there, 0.0 here; "
            'decoding.stop: ["a", "b"] there, ["a", "c"] here; limit: absent there, 3 here\n'
            "give another folder as --out, or --fresh to start over in this one"
        )

    def test_parts_that_a_fresh_run_uses_again_are_named(self, refusal, work, done):
        for part in ("outputs", "inputs"):
            work.start(done / part, settings={"part": part})
        assert refusal(done, settings={}).endswith(
            "or --fresh to start over in this one; what is unchanged in its folders inputs, outputs is used again"
        )

    def test_a_part_that_depends_on_all_that_the_step_does_is_not_named(self, refusal, work, done):
        work.start(done / "cut")
        assert refusal(done, inputs={"sentences.txt": "a" * 64}).endswith(
            "or --fresh to start over in this one"
        )

    def test_other_inputs_and_models(self, refusal, work, out):
        work.commit(work.start(out), 0)
        message = refusal(out, inputs={"sentences.txt": "a" * 64}, models={"gpt2-xl": "main"})
        assert "holds an unfinished run of generate" in message
        assert (
            "input sentences.txt is another, or has changed: 000000000000… there, aaaaaaaaaaaa… here"
            in message
        )
        assert (
            "model gpt2-xl: absent there, main here; model pairsmith:tiny: 111111111111… there, absent here"
            in message
        )

    def test_rows_of_another_model_are_not_continued_where_work_may_grow(self, refusal, work, out):
        growth = Growth(frozenset({"decay"}), lambda _: True)
        work.commit(work.start(out, growth=growth), 0)
        message = refusal(out, growth=growth, models={"pairsmith:tiny": "2" * 64})
        assert "is another, or was trained again" in message
        assert work.start(out, growth=growth, settings={**work.settings, "decay": 200.0}).done == (0,)

    def test_another_step(self, refusal, done):
        assert refusal(done, step="postprocess", settings={"augment": 2}) == (
            f"{done} holds a finished run of generate, not of postprocess; give another folder as --out"
        )

    def test_long_values_and_long_lists_are_cut(self, refusal, work, out):
        work.commit(work.start(out, settings={f"k{n}": "word " * 50 for n in range(10)}), 0)
        message = refusal(out, settings={})
        assert f"k0: {('word ' * 50)[:59]}… there, absent here; " in message
        assert "; and 2 more\n" in message

    def test_a_manifest_changed_by_hand(self, refusal, done):
        path = done / "manifest.json"
        path.write_text(path.read_text().replace('"fingerprint": "', '"fingerprint": "0'))
        assert "or the manifest was changed by hand" in refusal(done)

    def test_numbers_of_another_kind_are_a_difference(self, refusal, work, done):
        message = refusal(done, settings={**work.settings, "seed": 7.0})
        assert "seed: 7 there, 7.0 here" in message

    def test_something_else_in_the_folder(self, refusal, work, out):
        out.mkdir(parents=True)
        for name in "dcba":
            (out / name).write_text("")
        expected = (
            f"{out} holds something else (a, b, c, …) and no manifest.json of pairsmith; give a new or empty"
        )
        assert expected in refusal(out)
        assert sorted(path.name for path in out.iterdir()) == ["a", "b", "c", "d"]
        with pytest.raises(FolderError, match="holds something else"):
            work.start(out, fresh=True)

    def test_a_model_in_the_folder(self, refusal, out):
        out.mkdir(parents=True)
        (out / "training.json").write_text('{"step": "train-reader", "complete": true}')
        assert f"{out} holds a model that train-reader trained; give a new or empty folder" in refusal(out)

    def test_a_file(self, refusal, tmp_path):
        (tmp_path / "out").write_text("")
        assert "out is a file; --out needs a new or empty folder" in refusal(tmp_path / "out")

    @pytest.mark.parametrize("manifest", ["{", '{"name": "an app"}', '{"format": 1}'])
    @pytest.mark.parametrize("fresh", [False, True])
    def test_a_manifest_of_another_program(self, refusal, out, manifest, fresh):
        out.mkdir(parents=True)
        (out / "manifest.json").write_text(manifest)
        message = refusal(out, fresh=fresh)
        assert "is damaged or was not written by pairsmith (" in message
        assert message.endswith("give another folder as --out")

    def test_another_format(self, refusal, done):
        path = done / "manifest.json"
        path.write_text(path.read_text().replace(f'"format": {FORMAT}', '"format": 1'))
        message = refusal(done)
        assert "has format 1, but this pairsmith reads format 2; run its step (generate) again" in message
        assert message.endswith("again; give another folder as --out")

    def test_a_later_format(self, refusal, done):
        path = done / "manifest.json"
        path.write_text(path.read_text().replace(f'"format": {FORMAT}', '"format": 99'))
        wrote = f"pairsmith {__version__} wrote it; install that version or a later one"
        assert f"has format 99, but this pairsmith reads format 2; {wrote}" in refusal(done)

    def test_a_refusal_leaves_the_folder_free(self, refusal, done):
        refusal(done, step="postprocess")
        lock.acquire(done)
        lock.release(done)
        assert done.resolve() not in lock._held

    # Python 3.12 and later warn of it.
    @pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
    @pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
    def test_a_forked_process_does_not_keep_the_folder(self, done):
        lock.acquire(done)
        (go, went), (there, come) = os.pipe(), os.pipe()
        child = os.fork()
        if not child:
            os.write(come, b".")
            os.read(go, 1)  # until the parent has looked
            os._exit(0)
        os.read(there, 1)
        lock.release(done)
        free = not lock.is_held(done)
        os.write(went, b".")
        os.waitpid(child, 0)
        for pipe in (go, went, there, come):
            os.close(pipe)
        assert free


def test_two_long_values_are_shown_where_they_differ():
    one, other = (
        f"Task: Write a sentence about {what}, and more. {'word ' * 9}" for what in ("food", "a dog")
    )
    long = "The same beginning of both instructions, as people write them. "
    assert _excerpts(long + one, long + other) == (
        "…te a sentence about food, and more. word word word word wo…",
        "…te a sentence about a dog, and more. word word word word w…",
    )
    assert _excerpts("5", "7" * 70) == ("5", "7" * 59 + "…")


class TestFreshAndForeign:
    def test_fresh_does_not_take_another_steps_folder(self, work, done):
        before = work.contents(done)
        with pytest.raises(FolderError, match="holds the work of generate, not of postprocess"):
            work.start(done, fresh=True, step="postprocess")
        assert work.contents(done) == before

    def test_a_run_without_a_finished_shard_is_taken_over_by_other_settings(self, work, out):
        work.start(out)
        writer = work.start(out, settings={"decay": 0.0})
        assert json.loads((out / "manifest.json").read_text())["settings"] == {"decay": 0.0}
        assert writer.done == ()


class TestFresh:
    def test_it_starts_over_and_leaves_other_files(self, work, done):
        (done / "notes.txt").write_text("mine")
        writer = work.start(done, fresh=True, settings={"decay": 0.0})
        assert writer.done == ()
        assert sorted(work.contents(done)) == ["notes.txt"]

    def test_it_makes_a_new_folder(self, work, out):
        assert work.start(out, fresh=True).done == ()

    def test_killed_right_after_its_manifest_nothing_old_is_taken(self, work, done, monkeypatch):
        monkeypatch.setattr("pairsmith.runs.writer.remove_unlisted_files", lambda *_: None)
        work.start(done, fresh=True, settings={"decay": 0.0})
        monkeypatch.undo()
        assert work.start(done, settings={"decay": 0.0}).done == ()
        assert not list(done.rglob("*.parquet"))


class TestCommit:
    def test_another_schema_is_refused(self, work, out):
        writer = work.start(out)
        with pytest.raises(TypeError, match="the table for train has the columns"):
            writer.commit(0, {"train": work.pairs(0).drop_columns("score")}, work.rejects(0))
        with pytest.raises(TypeError, match="the table for rejects has the columns"):
            writer.commit(0, {"train": work.pairs(0)}, work.pairs(0))
        assert not list(out.rglob("*.parquet"))

    @pytest.mark.parametrize("shard", [-1, 100_000, 0])
    def test_a_shard_out_of_range_or_done(self, work, out, shard):
        writer = work.start(out)
        work.commit(writer, 0)
        with pytest.raises(ValueError, match=f"shard {shard} is done already, or not in 0..99999"):
            writer.commit(shard, {}, work.rejects(0))

    @pytest.mark.parametrize("split", ["rejects", "../x", "", "a-b"])
    def test_a_bad_name_of_a_split(self, work, out, split):
        with pytest.raises(ValueError, match="a split cannot be called"):
            work.start(out).commit(0, {split: work.pairs(0)}, work.rejects(0))

    def test_metadata_and_chunks_leave_no_trace(self, work, out, tmp_path):
        table = work.pairs(0, 9)
        cut = pa.concat_tables([table.slice(0, 4), table.slice(4)]).replace_schema_metadata({"pandas": "x"})
        work.start(out).commit(0, {"train": cut}, work.rejects(0))
        work.start(tmp_path / "b").commit(0, {"train": table}, work.rejects(0))
        assert work.contents(out) == work.contents(tmp_path / "b")
