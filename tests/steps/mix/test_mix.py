"""Rows of several data sets become one."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.folders import write_folder
from tests.planned import planned
from tests.tools.report.test_rows import folder

from pairsmith.core.errors import FolderError, InputError, SettingsError, StorageError
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.schemas import (
    MINED_ANSWER,
    MINED_PAIR,
    SCORED_PAIR,
    MinedAnswer,
    MinedPair,
    ScoredPair,
    to_table,
)
from pairsmith.data.squad import read_questions
from pairsmith.runs import DatasetFolder, Run
from pairsmith.runs.estimate import Estimate
from pairsmith.steps.generate.postprocess import postprocess
from pairsmith.steps.generate.settings import PostprocessSettings
from pairsmith.steps.mix import route
from pairsmith.steps.mix.route import mix, mixed_source_names, plan_mix, shares
from pairsmith.steps.mix.settings import MixSettings


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def pairs(path, count, word, score=1.0):
    rows = [
        {"sentence1": f"{word} {i}", "sentence2": f"other {word} {i}", "score": score} for i in range(count)
    ]
    return lines(path, rows)


def mixed(tmp_path, *data, out="out", **settings):
    return mix(MixSettings(data=list(data), **settings), Run(tmp_path / out, Silent()))


def test_all_rows_of_all_sources_run_evenly(tmp_path):
    one, two = pairs(tmp_path / "a.jsonl", 4, "red"), pairs(tmp_path / "b.jsonl", 2, "blue")
    rows = mixed(tmp_path, one, two).table().to_pylist()
    assert [row["source"][0] for row in rows] == list("abaaba")
    assert [row["sentence1"] for row in rows if row["source"] == "a.jsonl"] == [f"red {i}" for i in range(4)]
    assert len({row["id"] for row in rows}) == 6


def test_a_number_after_a_name_is_no_other_source():
    names = mixed_source_names(["/one/rows", "/two/rows (2)", "/three/rows", "/four/rows"])
    assert list(names.values()) == ["rows", "rows (2)", "rows (3)", "rows (4)"]


def test_a_mixture_of_mixtures_says_where_each_row_was_first(tmp_path):
    names = "abc"
    one, two, three = (pairs(tmp_path / f"{name}.jsonl", 2, name) for name in names)
    inner = mixed(tmp_path, one, two, out="ab")
    mixture = mixed(tmp_path, str(inner.path), three, out="abc")
    sources = {row["sentence1"]: row["source"] for row in mixture.table().to_pylist()}
    wanted = {"a": "ab/a.jsonl", "b": "ab/b.jsonl", "c": "c.jsonl"}
    assert sources == {f"{name} {i}": wanted[name] for name in names for i in range(2)}
    again = mixed(tmp_path, str(mixture.path), one, out="again")
    assert {json.loads(row["row"])["source"] for row in again.rejects().to_pylist()} == {"a.jsonl"}
    assert {row["source"].count("/") for row in again.table().to_pylist()} == {1, 2}


def test_the_card_says_what_the_columns_of_the_sources_mean(tmp_path):
    inputs = {"judged": "a cosine", "scored": "a cosine", "counted": "a share of words"}
    for name, meaning in inputs.items():
        table = to_table([ScoredPair("1", f"{name} a", f"{name} b", 1.0)], SCORED_PAIR)
        write_folder(tmp_path / name, {"train": table}, columns={"score": meaning})
    folders = [str(tmp_path / name) for name in inputs]
    columns = mixed(tmp_path, *folders).manifest.about.columns
    assert columns["score"] == "a cosine; or a share of words"
    assert columns["sentence1"] == "the first text"
    table = to_table([MinedPair("1", "who?", "she", 1.0, 0.5)], MINED_PAIR)
    mined = write_folder(
        tmp_path / "mined", {"train": table}, columns={"input": "a query", "score": "a margin"}
    )
    assert mixed(tmp_path, str(mined.path), out="pairs").manifest.about.columns["input"] == "a query"
    scored = mixed(tmp_path, str(mined.path), folders[0], pairs_as=1.0, out="both")
    assert scored.manifest.about.columns["score"] == "a cosine"  # the margin is not the score of the mixture


def test_postprocess_keeps_where_rows_of_a_mixture_are_from(tmp_path):
    one, two = pairs(tmp_path / "a.jsonl", 8, "red", 1.0), pairs(tmp_path / "b.jsonl", 8, "blue", 0.0)
    inner = mixed(tmp_path, one, two, out="in")
    settings = PostprocessSettings(data=str(inner.path), augment=1, validation=0.25)
    dataset = postprocess(settings, Run(tmp_path / "clean", Silent()))
    rows = [row for split in dataset.splits for row in dataset.table(split).to_pylist()]
    colours = {"red": "a.jsonl", "blue": "b.jsonl"}
    wanted = [
        "sampled negatives" if "negative" in row["id"] else colours[row["sentence1"].split()[0]]
        for row in rows
    ]
    assert [row["source"] for row in rows] == wanted
    assert set(wanted) == {"a.jsonl", "b.jsonl", "sampled negatives"}
    assert dataset.splits == ("train", "validation")
    unseen = mixed(tmp_path, f"{dataset.path}:validation", out="unseen").table().to_pylist()
    assert {row["source"] for row in unseen} <= {f"clean:validation/{name}" for name in set(wanted)}


def test_weights_take_the_first_rows(tmp_path):
    one, two = pairs(tmp_path / "a.jsonl", 10, "red"), pairs(tmp_path / "b.jsonl", 10, "blue")
    mixture = mixed(tmp_path, one, two, weight=[3, 1], rows=8)
    rows = mixture.table().to_pylist()
    assert [row["sentence1"] for row in rows if row["source"] == "b.jsonl"] == ["blue 0", "blue 1"]
    assert len(rows) == 8
    assert mixture.manifest.counts.rejects_by_reason == {"share: the source has more rows than its share": 12}


def test_each_source_may_be_picked_from_in_its_own_way(tmp_path):
    ranked, drawn = pairs(tmp_path / "a.jsonl", 30, "red"), pairs(tmp_path / "b.jsonl", 30, "blue")
    mixture = mixed(tmp_path, ranked, drawn, rows=20, weight=[1, 1], pick=["first", "random"])
    texts = [row["sentence1"] for row in mixture.table().to_pylist()]
    reds, blues = ([text for text in texts if text.startswith(word)] for word in ("red", "blue"))
    assert reds == [f"red {i}" for i in range(10)]
    assert len(blues) == 10
    assert blues != [f"blue {i}" for i in range(10)]
    with pytest.raises(ValidationError, match="pick is given 3 times for 2 sources"):
        mixed(tmp_path, ranked, drawn, pick=["first"] * 3)


def test_questions_without_an_answer_are_rejects(tmp_path):
    questions = [
        {
            "context": "A man plays.",
            "question": "Who plays?",
            "answers": {"text": ["A man"], "answer_start": [0]},
        },
        {"context": "A man plays.", "question": "What for?", "answers": {"text": [], "answer_start": []}},
    ]
    mixture = mixed(tmp_path, lines(tmp_path / "asked.jsonl", questions))
    assert [row["question"] for row in mixture.table().to_pylist()] == ["Who plays?"]
    assert mixture.manifest.counts.rejects_by_reason == {"no answer: none occurs in its context": 1}


def test_one_way_to_pick_is_the_same_work_however_it_is_written(tmp_path):
    one, two = pairs(tmp_path / "a.jsonl", 3, "red"), pairs(tmp_path / "b.jsonl", 3, "blue")
    mixture = mixed(tmp_path, one, two, pick="first")
    assert mixture.manifest.settings["pick"] == "first"
    assert mixed(tmp_path, one, two, pick=["first", "first"]).manifest == mixture.manifest


def test_where_the_sources_lie_decides_nothing(tmp_path, monkeypatch):
    source = pairs(tmp_path / "a.jsonl", 3, "red")
    mixture = mixed(tmp_path, source)
    monkeypatch.chdir(tmp_path)
    assert mixed(tmp_path, "a.jsonl").manifest == mixture.manifest


def test_pairs_as_wants_pairs(tmp_path):
    with pytest.raises(SettingsError, match="rows are scored pairs"):
        plan_mix(MixSettings(data=[pairs(tmp_path / "b.jsonl", 3, "red")], pairs_as=1.0), {})
    with pytest.raises(SettingsError, match="for pairs of inputs and outputs, but the rows are scored pairs"):
        mixed(tmp_path, pairs(tmp_path / "a.jsonl", 3, "red"), pairs_as=1.0)


def test_some_are_picked_by_chance_and_follow_the_seed(tmp_path):
    source = pairs(tmp_path / "a.jsonl", 50, "red")

    def ids(out, seed):
        return (
            mixed(tmp_path, source, rows=9, pick="random", seed=seed, out=out)
            .table()
            .column("id")
            .to_pylist()
        )

    assert ids("a", 1) == ids("b", 1) != ids("c", 2)
    assert len(set(ids("a", 1))) == 9


def test_rows_that_stand_in_two_sources_are_kept_once(tmp_path):
    one = lines(
        tmp_path / "a.jsonl",
        [
            {"sentence1": "A dog.", "sentence2": "a cat", "score": 0},
            {"sentence1": "x y", "sentence2": "z", "score": 0.5},
        ],
    )
    two = lines(
        tmp_path / "b.jsonl",
        [
            {"sentence1": "a dog", "sentence2": "A CAT!", "score": 0},
            {"sentence1": "x y", "sentence2": "z", "score": 1},
            {"sentence1": "new", "sentence2": "row", "score": 1},
        ],
    )
    mixture = mixed(tmp_path, one, two)
    assert [row["sentence1"] for row in mixture.table().to_pylist()] == ["A dog.", "new", "x y"]
    reasons = {row["reason"]: json.loads(row["row"])["source"] for row in mixture.rejects().to_pylist()}
    assert reasons == {
        "the same texts occur in a.jsonl": "b.jsonl",
        "the same texts occur in a.jsonl with another score": "b.jsonl",
    }
    assert mixed(tmp_path, one, two, duplicates="keep", out="both").rows == 5


def test_mined_asked_and_labelled_questions_become_one_training_set(tmp_path):
    text = "Paris is the capital of France."
    answers = {"text": ["Paris"], "answer_start": [0]}
    mined = folder(
        tmp_path / "mined",
        [{"train": [MinedAnswer("1", "What is the capital?", "Paris " + text, 1.0, 2.0, text, answers)]}],
        MINED_ANSWER,
    )
    people = lines(
        tmp_path / "people.jsonl",
        [
            {
                "id": "7",
                "context": text,
                "question": "Capital of which country?",
                "answers": {"text": ["France"], "answer_start": [24]},
            }
        ],
    )
    squad = tmp_path / "dev.json"
    paragraph = {
        "context": text,
        "qas": [
            {"id": "q", "question": "What is the capital?", "answers": [{"text": "Paris", "answer_start": 0}]}
        ],
    }
    squad.write_text(json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": [paragraph]}]}))
    mixture = mixed(tmp_path, people, str(mined.path), str(squad))
    questions = list(read_questions(str(mixture.path)))
    assert [question.question for question in questions] == [
        "Capital of which country?",
        "What is the capital?",
    ]
    assert mixture.manifest.counts.rejects == 1


def test_mined_pairs_are_completed_by_pairs_written_for_the_other_labels(tmp_path):
    mined_pairs = [MinedPair(f"r{n}", f"who {n}?", f"{n} who?", 1.2, 0.7) for n in range(3)]
    folder(tmp_path / "mined", [{"train": mined_pairs}], MINED_PAIR)
    written = pairs(tmp_path / "written.jsonl", 3, "red", 0.0)
    mined = str(tmp_path / "mined")
    rows = mixed(tmp_path, mined, written, pairs_as=1.0, weight=[1, 1]).table().to_pylist()
    assert [(row["sentence1"], row["score"]) for row in rows if row["source"] == "mined"] == [
        (f"who {n}?", 1.0) for n in range(3)
    ]
    assert sum(row["score"] for row in rows) == 3
    assert len(rows) == 6
    with pytest.raises(InputError, match=r"has scored pairs, .*mined has pairs of inputs and outputs"):
        mixed(tmp_path, mined, written, out="other")
    settings = MixSettings(data=["@mined", written], pairs_as=1.0)
    before = Estimate(
        seconds=1.0, memory=1, disk=1, rows={"train": 3}, sample=to_table(mined_pairs, MINED_PAIR)
    )
    estimate = planned("mix", settings, {"@mined": before})
    assert estimate.rows == {"train": 6}
    assert estimate.sample["score"].to_pylist() == [1.0, 0.0] * 3


def test_mined_pairs_beside_documents_with_summaries_are_such(tmp_path):
    mined_pairs = [MinedPair(f"r{n}", f"Rain {n}.", f"It rains {n}.", 1.2, 0.7) for n in (1, 2)]
    folder(tmp_path / "mined", [{"train": mined_pairs}], MINED_PAIR)
    people = lines(tmp_path / "people.jsonl", [{"document": "Rain 1.", "summary": "it rains 1"}])
    mixture = mixed(tmp_path, str(tmp_path / "mined"), people)
    assert mixture.schema().names == ["id", "document", "summary", "source"]
    assert [(row["document"], row["summary"], row["source"]) for row in mixture.table().to_pylist()] == [
        ("Rain 1.", "It rains 1.", "mined"),
        ("Rain 2.", "It rains 2.", "mined"),
    ]
    assert mixture.manifest.counts.rejects == 1  # what people wrote differs in case and punctuation only
    settings = MixSettings(data=["@mined", people])
    before = Estimate(
        seconds=1.0, memory=1, disk=1, rows={"train": 2}, sample=to_table(mined_pairs, MINED_PAIR)
    )
    assert planned("mix", settings, {"@mined": before}).rows == {"train": 3}


@pytest.mark.parametrize("mined_first", [True, False])
def test_documents_without_a_summary_are_rejects_beside_mined_pairs(tmp_path, mined_first):
    folder(tmp_path / "mined", [{"train": [MinedPair("r", "Rain.", "It rains.", 1.2, 0.7)]}], MINED_PAIR)
    rows = [{"document": "Snow.", "summary": " "}, {"document": "Fog.", "summary": "It is foggy."}]
    sources = [str(tmp_path / "mined"), lines(tmp_path / "people.jsonl", rows)]
    mixture = mixed(tmp_path, *(sources if mined_first else sources[::-1]))
    assert {row["summary"] for row in mixture.table().to_pylist()} == {"It rains.", "It is foggy."}
    assert mixture.manifest.counts.rejects_by_reason == {"no summary: it is blank": 1}


def test_rows_of_different_kinds_are_refused(tmp_path):
    one = pairs(tmp_path / "a.jsonl", 2, "red")
    two = lines(tmp_path / "b.jsonl", [{"text": "a", "label": "x"}])
    with pytest.raises(
        InputError, match=r"b.jsonl has labelled texts, .*a.jsonl has scored pairs; only rows of one"
    ):
        mixed(tmp_path, one, two)
    with pytest.raises(InputError, match=r"c.jsonl has the columns a; rename them to one of these sets: "):
        mixed(tmp_path, lines(tmp_path / "c.jsonl", [{"a": 1}]))
    with pytest.raises(InputError, match=r"d.jsonl has no rows$"):
        mixed(tmp_path, lines(tmp_path / "d.jsonl", []))


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ({"text": " ", "label": "x"}, "text is blank; fill it in or drop the row"),
        ({"text": "a", "label": None}, "label"),
    ],
)
def test_rows_with_holes_are_named(tmp_path, row, fault):
    with pytest.raises(InputError, match=rf"a.jsonl:2: .*{fault}"):
        mixed(tmp_path, lines(tmp_path / "a.jsonl", [{"text": "a", "label": 3}, row]))


def test_labels_that_are_numbers_are_names(tmp_path):
    source = lines(tmp_path / "a.jsonl", [{"text": f"t {i}", "label": i % 2} for i in range(3)])
    assert mixed(tmp_path, source).table().column("label").to_pylist() == ["0", "1", "0"]


def test_a_source_is_not_written_over(tmp_path):
    folder(tmp_path / "in", [{"train": [ScoredPair("1", "a b", "c", 1.0)]}])
    with pytest.raises(FolderError, match="is what --data reads"):
        mixed(tmp_path, str(tmp_path / "in"), out="in")


def test_stopped_behind_its_rows_it_only_finishes(tmp_path, monkeypatch):
    sources = pairs(tmp_path / "a.jsonl", 4, "red"), pairs(tmp_path / "b.jsonl", 4, "blue")
    whole = mixed(tmp_path, *sources, out="whole")
    with monkeypatch.context() as patch:
        patch.setattr(route, "_card", stopped)
        with pytest.raises(StorageError):
            mixed(tmp_path, *sources)
    assert mixed(tmp_path, *sources).table().equals(whole.table())


def stopped(*given):
    raise StorageError("no space left")


def test_it_is_made_once(tmp_path):
    one = pairs(tmp_path / "a.jsonl", 3, "red")
    first = mixed(tmp_path, one)
    assert mixed(tmp_path, one).manifest == first.manifest
    with pytest.raises(FolderError, match="rows: null there, 2 here"):
        mixed(tmp_path, one, rows=2)
    assert DatasetFolder.open(tmp_path / "out").rows == 3


@pytest.mark.parametrize(
    "settings",
    [{"data": ["a", "b"], "weight": [1]}, {"data": ["a", "a"]}, {"data": ["a"], "weight": [0]}, {"data": []}],
)
def test_settings_that_cannot_do(settings):
    with pytest.raises(ValueError, match=r"weight|twice|at least 1"):
        MixSettings(**settings)


def test_shares_by_hand():
    assert shares([10, 10], [3, 1], 8) == [6, 2]
    assert shares([10, 10], [3, 1], None) == [10, 3]
    assert shares([10, 30], [], None) == [10, 30]
    assert shares([10, 30], [], 4) == [1, 3]
    assert shares([5, 0], [1, 1], None) == [0, 0]
    assert shares([0, 0], [], None) == [0, 0]
    assert shares([100, 100, 100], [1, 1, 1], 100) == [34, 33, 33]


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=5).flatmap(
        lambda there: st.tuples(
            st.just(there),
            st.lists(st.floats(0.01, 9), min_size=len(there), max_size=len(there)),
            st.none() | st.integers(1, 300),
        )
    )
)
def test_shares_are_had_and_in_proportion(given_):
    there, weights, rows = given_
    counts = shares(there, weights, rows)
    assert all(0 <= count <= most for count, most in zip(counts, there, strict=True))
    assert rows is None or sum(counts) <= rows
    whole = sum(counts)
    for count, weight in zip(counts, weights, strict=True):
        assert abs(count - whole * weight / sum(weights)) <= len(there)


def test_its_plan_foretells_the_rows(tmp_path):
    one, two = pairs(tmp_path / "a.jsonl", 10, "red"), pairs(tmp_path / "b.jsonl", 30, "blue")
    settings = MixSettings(data=[one, two], weight=[1, 1])
    estimate = plan_mix(settings, {})
    assert estimate.rows == {"train": mix(settings, Run(tmp_path / "out", Silent())).rows} == {"train": 20}
    assert estimate.sample.num_rows == 20
    later = Estimate(1.0, 1, 1, {"train": 4000}, sample=estimate.sample.drop_columns(["source"]))
    assert planned("mix", MixSettings(data=["@a", two]), {"@a": later}).rows == {"train": 4030}


def test_mined_answers_of_a_step_before_are_planned_as_questions():
    row = {
        "id": "1", "input": "Who?", "output": "x", "margin": 1.0, "score": 1.0, "context": "It was Ann.",
        "answers": {"text": ["Ann"], "answer_start": [7]},
    }  # fmt: skip
    later = Estimate(1.0, 1, 1, {"train": 5}, sample=to_table([MinedAnswer(**row)], MINED_ANSWER))
    estimate = planned("mix", MixSettings(data=["@a"]), {"@a": later})
    assert estimate.sample.column("question").to_pylist() == ["Who?"]


def test_what_was_kept_for_validation_and_tests_stays_there(tmp_path, capsys):
    splits = {"test": ["t0"], "train": ["r0", "r1"], "validation": ["v0"]}
    data = tmp_path / "in" / "data"
    data.mkdir(parents=True)
    for split, texts in splits.items():
        rows = [{"id": text, "text": text, "label": "a"} for text in texts]
        pq.write_table(pa.Table.from_pylist(rows), data / f"{split}-00000-of-00001.parquet")
    settings = MixSettings(data=[str(tmp_path / "in")], weight=[1], rows=1)
    mixture = mix(settings, Run(tmp_path / "out", Progress()))
    assert [row["text"] for row in mixture.table().to_pylist()] == ["r0"]
    assert "in: its split train is mixed; test, validation is not" in capsys.readouterr().err
    assert plan_mix(settings.model_copy(update={"rows": None}), {}).rows == {"train": 2}
    (data / "train-00000-of-00001.parquet").unlink()
    with pytest.raises(InputError, match="has no split train, only test, validation"):
        mix(settings, Run(tmp_path / "other", Silent()))
    assert not (tmp_path / "other").exists()


def test_every_row_has_an_id_of_its_own(tmp_path):
    rows = [
        {"id": name, "text": f"text {n}", "label": "a"} for n, name in enumerate(["a", "a", "a-2", "", "4"])
    ]
    mixed_rows = mixed(tmp_path, lines(tmp_path / "in.jsonl", rows)).table().to_pylist()
    assert [row["id"] for row in mixed_rows] == ["a", "a-3", "a-2", "4", "4-2"]


def test_documents_without_a_summary_are_rejects(tmp_path):
    rows = [{"document": "It rained.", "summary": "Rain."}, {"document": "It snowed.", "summary": " "}]
    mixture = mixed(tmp_path, lines(tmp_path / "in.jsonl", rows))
    assert [row["summary"] for row in mixture.table().to_pylist()] == ["Rain."]
    assert mixture.manifest.counts.rejects_by_reason == {"no summary: it is blank": 1}


@pytest.mark.parametrize(
    "row",
    [{"text": "a", "label": "\ud800"}, {"id": "\ud800", "text": "a", "label": "b"}],
    ids=["label", "id"],
)
def test_half_a_character_is_told_with_its_place(tmp_path, row):
    with pytest.raises(InputError, match=r"in.jsonl:1: column '(label|id)' holds half a character"):
        mixed(tmp_path, lines(tmp_path / "in.jsonl", [row]))


def test_questions_in_the_form_of_mrqa(tmp_path):
    question = {"qid": "q", "question": "Who?", "answers": ["Ann"]}
    question["detected_answers"] = [{"text": "Ann", "char_spans": [[0, 2]], "token_spans": [[0, 0]]}]
    rows = [{"header": {"dataset": "x"}}, {"id": "1", "context": "Ann is here.", "qas": [question]}]
    mixed_rows = mixed(tmp_path, lines(tmp_path / "in.jsonl", rows)).table().to_pylist()
    assert [(row["question"], row["answers"]["text"]) for row in mixed_rows] == [("Who?", ["Ann"])]


def test_many_rows_of_one_id_take_no_longer():
    rows = [{"id": "a"} for _ in range(20_000)]
    route._make_ids_unique(rows)
    assert [row["id"] for row in rows[:3]] == ["a", "a-2", "a-3"]
    assert len({row["id"] for row in rows}) == len(rows)


def test_a_plan_counts_the_rows_for_training_of_a_step_before(tmp_path):
    sample = to_table([ScoredPair("1", "a", "b", 1.0)], SCORED_PAIR)
    earlier = Estimate(seconds=0, memory=0, disk=0, rows={"train": 80, "validation": 20}, sample=sample)
    assert planned("mix", MixSettings(data=["@clean"]), {"@clean": earlier}).rows == {"train": 80}
