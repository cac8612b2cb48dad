"""Rows with certain texts or ids are removed from a data set, and all others stay as they are."""

import json

import pyarrow as pa
import pytest
from pydantic import ValidationError
from tests.folders import write_folder
from tests.heard import Heard

from pairsmith.cli.steps import STEPS
from pairsmith.core.errors import FolderError, InputError, OtherWorkError, SettingsError
from pairsmith.core.progress import Silent
from pairsmith.data.schemas import MINED_PAIR, REJECT, SCORED_PAIR, Reject, to_table
from pairsmith.runs import DatasetFolder, Run, hash_source
from pairsmith.runs.estimate import Estimate
from pairsmith.steps.evaluate.evaluation import written_by_program
from pairsmith.steps.generate.postprocess import postprocess
from pairsmith.steps.generate.settings import PostprocessSettings
from pairsmith.steps.mine.filter import filter_pairs
from pairsmith.steps.mine.settings import FilterSettings
from pairsmith.tools.meanings import label_meanings
from pairsmith.tools.remove import plan_remove, remove
from pairsmith.tools.settings import RemoveSettings

ROWS = [
    {"id": "a", "sentence1": "Anna Kowalski runs a bakery.", "sentence2": "She bakes.", "score": 1.0},
    {"id": "b", "sentence1": "A dog runs.", "sentence2": "The baker is anna  kowalski!", "score": 0.5},
    {"id": "c", "sentence1": "Hanna Kowalski sings.", "sentence2": "A cat sleeps.", "score": 0.0},
    {"id": "d", "sentence1": "A dog runs.", "sentence2": "A dog sleeps.", "score": 0.0},
]
TASK = {"name": "sts"}


@pytest.fixture
def folder(tmp_path):
    table = pa.Table.from_pylist(ROWS, SCORED_PAIR)
    rejects = to_table([Reject.of("e", "copy", "a copy", {"text": "Anna Kowalski"})], REJECT)
    shards = ({"train": table[:2]}, {"train": table[2:3], "validation": table[3:]})
    return write_folder(tmp_path / "rows", *shards, settings={"task": TASK}, rejects=rejects)


def listed(tmp_path, *lines, name="listed.txt"):
    (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    return str(tmp_path / name)


def removed(tmp_path, out="out", progress=None, **settings):
    return remove(
        RemoveSettings(data=str(tmp_path / "rows"), **settings), Run(tmp_path / out, progress or Silent())
    )


def all_rows(folder):
    return {split: folder.table(split).to_pylist() for split in folder.splits}


def test_rows_with_a_listed_text_are_removed_and_all_others_stay(tmp_path, folder):
    new = removed(tmp_path, texts=listed(tmp_path, "Anna KOWALSKI"))
    assert all_rows(new) == {"train": [ROWS[2]], "validation": [ROWS[3]]}
    assert new.manifest.settings["task"] == TASK


def test_scores_that_are_smoothed_keep_their_meaning_and_are_not_smoothed_again(tmp_path):
    table = pa.Table.from_pylist(ROWS, SCORED_PAIR)
    task = {"labels": [{"name": score, "instruction": f"Write {score}.", "kind": "x"} for score in (0, 1)]}
    settings = {"task": task, "smoothing": 0.2, "augment": 1, "other": 3}
    write_folder(tmp_path / "rows", {"train": table}, step="postprocess", settings=settings)
    new = removed(tmp_path, ids=listed(tmp_path, "a"))
    assert label_meanings(new.manifest.settings) == label_meanings(settings)
    assert "other" not in new.manifest.settings
    with pytest.raises(SettingsError, match="has already smoothed these scores"):
        postprocess(PostprocessSettings(data=str(new.path)), Run(tmp_path / "again", Silent()))


def test_the_rows_count_as_those_of_the_step_that_made_them(tmp_path):
    columns = {"margin": 1.1, "score": 0.9, "input_id": "i"}
    rows = [{"id": n, "input": n, "output": n, "output_id": n, **columns} for n in "abc"]
    table = pa.Table.from_pylist(rows, MINED_PAIR)
    write_folder(tmp_path / "rows", {"train": table}, step="mine", settings={"retrieval": "candidates"})
    once = removed(tmp_path, ids=listed(tmp_path, "a"))
    options = RemoveSettings(data=str(once.path), ids=listed(tmp_path, "b"))
    twice = remove(options, Run(tmp_path / "twice", Silent()))
    assert (twice.manifest.step, twice.manifest.rows_of) == ("remove", "mine")
    chosen = FilterSettings(pairs=str(twice.path), judge="margin", best=1)
    kept = filter_pairs(chosen, Run(tmp_path / "kept", Silent()))
    assert kept.manifest.settings["one_per"] == "input"
    assert written_by_program(str(twice.path), "mine")
    assert not written_by_program(str(twice.path), "remove")


def test_nothing_of_the_removed_rows_is_in_the_new_folder(tmp_path, folder):
    new = removed(tmp_path, texts=listed(tmp_path, "anna kowalski"))
    assert new.rejects().num_rows == 0
    texts = [path.read_bytes().lower() for path in new.path.rglob("*") if path.is_file()]
    assert not any(b"anna kowalski" in text.replace(b"hanna kowalski", b"") for text in texts)


def test_neither_the_lists_nor_their_names_can_be_guessed_from_the_new_folder(tmp_path, folder):
    lists = {
        "texts": listed(tmp_path, "anna kowalski", name="anna.txt"),
        "ids": listed(tmp_path, "d", name="ids-of-anna.txt"),
    }
    settings = RemoveSettings(data=str(tmp_path / "rows"), **lists)
    STEPS["remove"].run(settings, Run(tmp_path / "out", Silent()))
    secrets = [*map(hash_source, lists.values()), "anna.txt", "ids-of-anna.txt"]
    for path in (path for path in (tmp_path / "out").rglob("*") if path.is_file()):
        assert not any(secret.encode() in path.read_bytes() for secret in secrets), path


def test_other_lists_are_other_work_if_they_remove_other_rows(tmp_path, folder):
    first = removed(tmp_path, texts=listed(tmp_path, "Anna Kowalski"))
    heard = Heard()
    assert removed(tmp_path, progress=heard, ids=listed(tmp_path, "a", "b")).rows == first.rows
    assert heard.lines == [f"{tmp_path / 'out'} is finished already; nothing to do"]
    with pytest.raises(OtherWorkError, match="input removed rows is another, or has changed"):
        removed(tmp_path, ids=listed(tmp_path, "a"))


def test_underscores_are_punctuation(tmp_path):
    rows = [{**ROWS[3], "sentence1": "She is _Anna Kowalski_."}]
    write_folder(tmp_path / "rows", {"train": pa.Table.from_pylist(rows, SCORED_PAIR)})
    assert removed(tmp_path, texts=listed(tmp_path, "anna kowalski")).rows == 0


@pytest.mark.parametrize("name", ["ids.txt", "ids.jsonl"])
def test_rows_are_removed_by_their_ids(tmp_path, folder, name):
    ids = ["b", "d"] if name == "ids.txt" else [json.dumps({"text": "x", "id": row_id}) for row_id in "bd"]
    new = removed(tmp_path, ids=listed(tmp_path, *ids, name=name))
    # An empty split would not open in other tools.
    assert all_rows(new) == {"train": [ROWS[0], ROWS[2]]}


def test_texts_in_lists_and_in_scripts_without_spaces_are_noticed(tmp_path):
    schema = pa.schema([("id", pa.string()), ("negatives", pa.list_(pa.string()))])
    rows = [{"id": "a", "negatives": ["b", "王小明很高兴。"]}, {"id": "b", "negatives": ["b", None]}]
    write_folder(tmp_path / "rows", {"train": pa.Table.from_pylist(rows, schema)})
    assert all_rows(removed(tmp_path, texts=listed(tmp_path, "王小明"))) == {"train": rows[1:]}


def test_what_occurs_in_no_row_is_named(tmp_path, folder):
    heard = Heard()
    texts = listed(tmp_path, "A dog", "Nobody", "No one", "None", "Neither")
    removed(tmp_path, progress=heard, texts=texts)
    assert heard.lines[:2] == [
        "4 of 5 texts are in no row: nobody, no one, none and 1 more",
        "of 4 rows 2 are removed",
    ]


@pytest.mark.parametrize(
    ("option", "line", "message"),
    [("texts", "…!", "listed.txt:1: …! has no letters or digits; remove it"), ("ids", " ", "holds no ids")],
)
def test_a_list_without_words_or_ids_is_refused(tmp_path, folder, option, line, message):
    with pytest.raises(InputError, match=message):
        removed(tmp_path, **{option: listed(tmp_path, line)})
    with pytest.raises(ValidationError, match="give texts or ids"):
        removed(tmp_path)


def test_the_folder_itself_cannot_be_written_to(tmp_path, folder):
    with pytest.raises(FolderError, match="is what --data reads"):
        removed(tmp_path, out="rows", ids=listed(tmp_path, "a"))
    assert DatasetFolder.open(tmp_path / "rows").rows == 4


def test_a_plan_passes_the_rows_on(tmp_path, folder):
    settings = RemoveSettings(data=str(tmp_path / "rows"), ids="ids.txt")
    estimate = plan_remove(settings, {})
    assert estimate.rows == {"train": 3, "validation": 1}
    assert estimate.sample.to_pylist() == [*ROWS[:2], ROWS[3]]
    before = {settings.data: Estimate(1.0, rows={"train": 90}, sample=estimate.sample)}
    assert plan_remove(settings, before).rows == {"train": 90}
