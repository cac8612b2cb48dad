import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.folders import write_folder
from typer.testing import CliRunner

from pairsmith.cli.app import make_app
from pairsmith.core.errors import FolderError, InputError, SettingsError, StorageError
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.schemas import (
    LABELLED_PAIR,
    LABELLED_TEXT,
    REJECT,
    SCORED_PAIR,
    LabelledPair,
    LabelledText,
    ScoredPair,
    to_table,
)
from pairsmith.data.tasks import load_task
from pairsmith.data.text.folding import folded
from pairsmith.runs import DatasetFolder, Run
from pairsmith.steps.generate import postprocess as postprocessing
from pairsmith.steps.generate.postprocess import plan_postprocess, postprocess
from pairsmith.steps.generate.settings import PostprocessSettings


def folder(path, rows, schema, task=None, **others):
    settings = {"task": load_task(task).model_dump(mode="json")} if task else {}
    splits = {split: to_table(there, schema) for split, there in {"train": rows, **others}.items()}
    return write_folder(path, splits, settings=settings)


def pairs(*triples):
    return [ScoredPair(f"id{i}", *triple) for i, triple in enumerate(triples)]


def run_on(tmp_path, rows, schema=SCORED_PAIR, task="sts", **settings):
    folder(tmp_path / "in", rows, schema, task)
    return postprocess(
        PostprocessSettings(data=str(tmp_path / "in"), **settings), Run(tmp_path / "out", Silent())
    )


def test_each_filter_names_its_rejects(tmp_path):
    rows = pairs(
        ("a b", "c d", 1.0),
        ("a b", "a b", 1.0),
        ("a b", " A,  b!", 0.5),
        ("a b", "c d", 1.0),
        ("a b", " ", 0.0),
        ("a b", "x\ny z", 0.0),
        ("a b", "one", 0.0),
        ("a b", "e f", 1.0),
        ("a b", "g h", 1.0),
        ("q r", "s t", 0.0),
    )
    out = run_on(tmp_path, rows, min_words=2, augment=0, validation=0, smoothing=0)
    assert [row["id"] for row in out.table().to_pylist()] == ["id0", "id7", "id9"]
    rejects = {r["id"]: (r["filter"], r["reason"]) for r in out.rejects().to_pylist()}
    assert {name: filter_ for name, (filter_, _) in rejects.items()} == {
        "id1": "copy", "id2": "near-copy", "id3": "duplicate", "id4": "empty",
        "id5": "line break", "id6": "too short", "id8": "cap",
    }  # fmt: skip
    assert json.loads(out.rejects().to_pylist()[0]["row"])["sentence2"] == "a b"
    card = (tmp_path / "out" / "README.md").read_text()
    assert "rows left out as near-copies | 1" in card
    for absent in ("Scores are smoothed", "Each first text is also paired", "set aside for validation"):
        assert absent not in card


@pytest.mark.parametrize(("choice", "kept"), [("task", 0), ("drop", 0), ("keep", 1)])
def test_near_copies_can_be_kept(tmp_path, choice, kept):
    out = run_on(tmp_path, pairs(("a b", "A b.", 1.0)), near_copies=choice, augment=0, validation=0)
    assert out.rows == kept


def test_smoothing_uses_the_tasks_labels_even_if_one_has_no_rows(tmp_path):
    rows = pairs(("a b", "c d", 1.0), ("e f", "g h", 1.0))
    out = run_on(tmp_path, rows, augment=0, validation=0)
    assert out.table()["score"].to_pylist() == [0.9, 0.9]


def test_without_a_task_the_labels_are_the_scores_that_occur(tmp_path):
    rows = pairs(("a b", "c d", 4.0), ("e f", "g h", 0.0))
    out = run_on(tmp_path, rows, task=None, augment=0, validation=0, smoothing=0.5)
    assert out.table()["score"].to_pylist() == [3.0, 1.0]


def test_a_first_text_with_quotation_marks_copied_as_the_model_saw_it_is_a_copy(tmp_path):
    out = run_on(tmp_path, pairs(('say "no" now', "say 'no' now", 1.0)), near_copies="keep")
    assert list(out.manifest.counts.rejects_by_reason) == ["copy: the texts are equal"]


def test_what_was_kept_for_validation_does_not_become_training_data(tmp_path, capsys):
    rows = pairs(("a b", "c d", 1.0), ("e f", "g h", 0.0), ("i j", "k l", 1.0))
    folder(tmp_path / "split", rows[:2], SCORED_PAIR, validation=rows[2:])
    for source, kept in ((tmp_path / "split", ["a b", "e f"]), (f"{tmp_path / 'split'}:validation", ["i j"])):
        settings = PostprocessSettings(data=str(source), augment=0, validation=0)
        assert plan_postprocess(settings, {}).rows["train"] == len(kept)
        cleaned = postprocess(settings, Run(tmp_path / f"of {len(kept)}", Progress()))
        assert cleaned.table()["sentence1"].to_pylist() == kept
    assert "split: its split train is cleaned; validation is not" in capsys.readouterr().err


def test_the_rows_are_accounted_for_in_a_line(tmp_path):
    entries = [(f"a{n} b", f"c{n} d", 1.0) for n in range(10)]
    folder(tmp_path / "in", pairs(*entries, entries[0], ("same", "same", 1.0), entries[1]), SCORED_PAIR)
    command = ("postprocess", "--data", f"{tmp_path}/in", "--validation", "0.2", "--augment", "1")
    result = CliRunner().invoke(make_app(), [*command, "--out", f"{tmp_path}/out"])
    out = DatasetFolder.open(tmp_path / "out")
    held = out.table("validation").num_rows
    assert (
        "of 13 rows 3 are dropped (2 duplicate, 1 copy); 10 sampled negatives are added; "
        f"of the resulting rows {held} are held back for validation\n"
    ) in result.stderr
    assert f"wrote {20} rows to {tmp_path}/out (3 not kept" in result.stderr


def test_a_label_with_fewer_rows_than_asked_for_is_told(tmp_path, capsys):
    rows = pairs(("a", "b", 1.0), ("a", "c", 0.5), ("a", "c", 0.5), ("d", "e", 0.5), ("f", "g", 1.0))
    folder(tmp_path / "in", rows, SCORED_PAIR, "sts")
    postprocess(
        PostprocessSettings(data=str(tmp_path / "in"), per_label=2), Run(tmp_path / "exact", Progress())
    )
    assert "--per-label" not in capsys.readouterr().err
    postprocess(
        PostprocessSettings(data=str(tmp_path / "in"), per_label=3), Run(tmp_path / "out", Progress())
    )
    said = capsys.readouterr().err.splitlines()
    assert "label 1 has 2 rows, fewer than --per-label 3" in said
    assert "label 0.5 has 2 rows, fewer than --per-label 3" in said


def test_a_split_without_rows_is_left_out(tmp_path):
    out = run_on(tmp_path, pairs(("a b", "c d", 1.0), ("e f", "g h", 1.0)), augment=0)
    assert out.splits == ("train",)


def test_keeping_near_copies_draws_negatives_as_in_the_paper(tmp_path):
    rows = pairs(("x", "same", 1.0), ("z", "same", 0.0))
    for choice, negatives in (("task", 0), ("keep", 2)):
        out = run_on(tmp_path / choice, rows, near_copies=choice, augment=1, validation=0)
        assert out.rows == 2 + negatives


def test_negatives_are_not_smoothed(tmp_path):
    rows = pairs(*[(f"x {i}", f"y {i}", 1.0) for i in range(20)])
    out = run_on(tmp_path, rows, validation=0)
    scores = out.table()["score"].to_pylist()
    assert (scores.count(0.9), scores.count(0.0)) == (20, 40)


@given(st.text(alphabet=st.characters(categories=["L", "P", "Zs"])))
def test_folding_ignores_case_spaces_and_punctuation(text):
    if any(c.isalpha() for c in folded(text)):
        assert folded(f" {text} , !") == folded(text)
    assert folded(f"  {text}  ") == folded(text)


def test_folding_by_hand():
    assert folded("It's a Dog -- really!") == folded("its a dog really") == "itsadogreally"
    assert folded("Mu\u0308ller \u200fsagt") == folded("Müller sagt")
    assert folded("می\u200cخواهم") == folded("میخواهم")
    assert folded("two dogs") != folded("three dogs")
    assert folded("It costs 1.5 m.") != folded("It costs 15 m.")
    assert folded("???") != folded("!")


def test_named_labels_are_cleaned_and_split_only(tmp_path):
    rows = [LabelledPair(f"i{n}", f"a {n}", f"b {n}", "x" if n % 2 else "y") for n in range(20)]
    out = run_on(tmp_path, [*rows, LabelledPair("c", "same", "same", "x")], LABELLED_PAIR, None)
    assert out.split_rows == {"train": 18, "validation": 2}
    assert sorted(out.table("validation")["label"].to_pylist()) == ["x", "y"]


def test_single_texts_are_cleaned_and_split(tmp_path):
    rows = [LabelledText(f"i{n}", f"text {n // 2}", "good") for n in range(40)]
    out = run_on(tmp_path, rows, LABELLED_TEXT, "movie-reviews")
    assert out.split_rows == {"train": 18, "validation": 2}
    assert out.manifest.counts.rejects_by_reason == {"duplicate: repeats an earlier row": 20}


def test_a_second_run_finds_its_work_done_and_other_settings_are_refused(tmp_path):
    rows = pairs(*[(f"x {i}", f"y {i}", 1.0) for i in range(20)])
    first = run_on(tmp_path, rows)
    before = (tmp_path / "out/data/train-00000.parquet").read_bytes()
    again = PostprocessSettings(data=str(tmp_path / "in"))
    assert postprocess(again, Run(tmp_path / "out", Silent())).rows == first.rows
    with pytest.raises(FolderError, match=r"smoothing: 0.2 there, 0.3 here"):
        postprocess(again.model_copy(update={"smoothing": 0.3}), Run(tmp_path / "out", Silent()))
    assert (tmp_path / "out/data/train-00000.parquet").read_bytes() == before


def test_stopped_behind_its_rows_it_only_finishes(tmp_path, monkeypatch):
    rows = pairs(*[(f"x {i}", f"y {i}", 1.0) for i in range(20)])
    whole = run_on(tmp_path, rows)

    def stopped(*given):
        raise StorageError("no space left")

    settings = PostprocessSettings(data=str(tmp_path / "in"))
    with monkeypatch.context() as patch:
        patch.setattr(postprocessing, "_card", stopped)
        with pytest.raises(StorageError):
            postprocess(settings, Run(tmp_path / "again", Silent()))
    assert postprocess(settings, Run(tmp_path / "again", Silent())).table().equals(whole.table())


def test_rows_of_another_kind_are_refused(tmp_path):
    write_folder(tmp_path / "in", {"train": REJECT.empty_table()}, step="s")
    with pytest.raises(
        InputError, match="has the columns id, filter, reason, row; postprocess needs scored pairs"
    ):
        postprocess(PostprocessSettings(data=str(tmp_path / "in")), Run(tmp_path / "out", Silent()))


def test_the_folder_that_is_read_is_not_written_over(tmp_path):
    source = folder(tmp_path / "in", pairs(("a b", "c d", 1.0)), SCORED_PAIR)
    with pytest.raises(FolderError, match="is what --data reads"):
        postprocess(
            PostprocessSettings(data=str(tmp_path / "in")), Run(tmp_path / "in", Silent(), fresh=True)
        )
    assert source.table().num_rows == 1


def test_rows_of_any_file_are_processed(tmp_path):
    (tmp_path / "pairs.csv").write_text(
        "\ufeffsentence1,sentence2,score\nA dog runs,A hound runs,1\nA dog runs,A dog runs,1\nA cat,A car,0\n"
    )
    settings = PostprocessSettings(data=str(tmp_path / "pairs.csv"), validation=0, augment=1)
    dataset = postprocess(settings, Run(tmp_path / "out", Silent()))
    rows = [(row["sentence1"], row["sentence2"], row["score"]) for row in dataset.table().to_pylist()]
    assert rows == [
        ("A dog runs", "A hound runs", 0.9),
        ("A cat", "A car", 0.1),
        ("A dog runs", "A car", 0.0),
        ("A cat", "A hound runs", 0.0),
    ]
    assert dataset.manifest.counts.rejects_by_reason == {"copy: the texts are equal": 1}
    card = (tmp_path / "out" / "README.md").read_text()
    assert "Labelled rows, without duplicates." in card
    assert "The texts are those that were given; what a program left out, changed or added is said" in card
    assert "The rights in the texts apply." in card
    assert "Scores are smoothed by 0.2 (label smoothing), towards their mean. Each first" in card
    for absent in ("synthetic", "made by a program", "set aside for validation", "language model apply"):
        assert absent not in card


def test_the_card_of_generated_rows_says_that_a_model_wrote_them(tmp_path):
    rows = to_table(pairs(("a b", "c d", 1.0), ("e f", "g h", 0.0)), SCORED_PAIR)
    write_folder(tmp_path / "in", {"train": rows}, models={"model": "sha256:0"})
    postprocess(PostprocessSettings(data=str(tmp_path / "in")), Run(tmp_path / "out", Silent()))
    card = (tmp_path / "out" / "README.md").read_text()
    assert "\n- synthetic\n" in card
    assert "Rows written by a language model from instructions" in card
    assert "The texts were made by a program" in card
    assert "The rights in the inputs, and the terms of the language model, apply to the texts." in card


def test_a_description_without_a_full_stop_is_a_sentence_of_the_card_all_the_same(tmp_path):
    rows = to_table(pairs(("a b", "c d", 1.0), ("e f", "g h", 0.0)), SCORED_PAIR)
    task = load_task("sts").model_dump(mode="json") | {"description": "Pairs of questions"}
    write_folder(tmp_path / "in", {"train": rows}, models={"model": "sha256:0"}, settings={"task": task})
    postprocess(PostprocessSettings(data=str(tmp_path / "in")), Run(tmp_path / "out", Silent()))
    assert "\nPairs of questions. Rows written by" in (tmp_path / "out" / "README.md").read_text()


def test_scores_are_not_smoothed_twice(tmp_path):
    run_on(tmp_path, pairs(("a b", "c d", 1.0), ("e f", "g h", 0.0)), validation=0)
    again = {"data": str(tmp_path / "out"), "validation": 0}
    with pytest.raises(SettingsError, match="has already smoothed these scores; give --smoothing 0"):
        postprocess(PostprocessSettings(**again), Run(tmp_path / "again", Silent()))
    dataset = postprocess(
        PostprocessSettings(**again, smoothing=0, augment=0), Run(tmp_path / "again", Silent())
    )
    assert sorted(set(dataset.table()["score"].to_pylist())) == [0.0, 0.1, 0.9]


def test_texts_with_a_placeholder_are_rejects(tmp_path):
    rows = [
        LabelledText("a", "I love [City Name].", "x"),
        LabelledText("b", "I love Rome [1].", "x"),
        LabelledText("c", "I love Rome.", "y"),
        LabelledText("d", "Я люблю [Город].", "y"),
    ]
    dataset = run_on(tmp_path, rows, LABELLED_TEXT, task="topic", validation=0)
    assert [row["id"] for row in dataset.table().to_pylist()] == ["b", "c"]
    reason = "placeholder: the text holds a placeholder in square brackets"
    assert dataset.manifest.counts.rejects_by_reason == {reason: 2}


def test_texts_without_spaces_have_words_too(tmp_path):
    rows = [LabelledText("a", "東京駅へ行った。", "x"), LabelledText("b", "東京駅。", "x")]
    dataset = run_on(tmp_path, rows, LABELLED_TEXT, task="topic", validation=0, min_words=3)
    assert [row["id"] for row in dataset.table().to_pylist()] == ["a"]
