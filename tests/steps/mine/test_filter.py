"""The step ``filter``, with a random cross-encoder."""

import json
from collections import Counter
from dataclasses import replace
from typing import get_args

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import fingerprints
from tests.folders import write_folder
from tests.training.few import PEOPLE, PLAYS

from pairsmith.core.errors import FolderError, InputError, ModelError, OtherWorkError, StorageError
from pairsmith.core.fields import JudgeOfQueries
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.readers import text_id
from pairsmith.data.schemas import (
    LABELLED_TEXT,
    MINED_ANSWER,
    MINED_PAIR,
    SCORED_PAIR,
    LabelledText,
    MinedAnswer,
    MinedPair,
    ScoredPair,
    as_columns,
    rows_at,
    to_table,
)
from pairsmith.methods.mining.ranking import balanced_order, chosen_first, standardised, winners
from pairsmith.methods.mining.seed_classifier import SeedClassifier
from pairsmith.models.cross_encoder import load_cross_encoder, score_pairs
from pairsmith.models.language.likelihood import (
    likelihood_ratios,
    load_likelihood_judge,
    question_likelihoods,
)
from pairsmith.models.sentence_encoder import load_sentence_encoder
from pairsmith.runs import DatasetFolder, Run
from pairsmith.runs.card import MEANING
from pairsmith.runs.mapped import row_shards
from pairsmith.steps.corpora import judges
from pairsmith.steps.corpora.judges import cue_for
from pairsmith.steps.generate.postprocess import postprocess
from pairsmith.steps.generate.settings import PostprocessSettings
from pairsmith.steps.judging import JUDGES_OF_PAIRS, SCORE_OF_TEXT
from pairsmith.steps.mine import filter as filtering
from pairsmith.steps.mine.filter import filter_pairs, most_kept, plan_filter_pairs
from pairsmith.steps.mine.settings import FilterSettings

pytestmark = pytest.mark.slow

ROWS = [
    MinedPair(f"r{n}", f"who plays the {PLAYS[n]}?", f"{PEOPLE[n]} does", 2.0 - n / 10, 0.5)
    for n in range(12)
]


def folder_of(path, rows, schema, **others):
    """A dataset folder with the split train, and others by their names."""
    splits = {split: to_table(there, schema) for split, there in {"train": rows, **others}.items()}
    return write_folder(path, splits, step="test")


@pytest.fixture(scope="module")
def judge(tmp_path_factory, tiny_bert):
    """A cross-encoder with a random head."""
    folder = tmp_path_factory.mktemp("judge") / "model"
    cross = load_cross_encoder(str(tiny_bert), device="cpu", fresh_head=True, seed=1)
    cross.model.save_pretrained(folder)
    cross.tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture
def world(tmp_path, judge):
    folder_of(tmp_path / "pairs", ROWS, MINED_PAIR)

    def settings(**changes):
        given = {"pairs": str(tmp_path / "pairs"), "model": judge, "dtype": "float32", "shard_size": 5}
        if not changes.keys() & {"best", "share", "threshold"}:
            given["share"] = 1
        return FilterSettings(**{**given, **changes})

    return tmp_path, settings


@pytest.mark.parametrize(
    ("changes", "of_pairs", "of_scores"),
    [
        (
            {"best": 4},
            "98f686ed14fd842bdbc9f43a1068abf8ce81d88d5ae6406e0ced41370bda44d4",
            "9ca3b5d140a2abf2e5b594cd96554324a390ea189387da7cf5e2133f9ee2e426",
        ),
        (
            {"one_per": "pair"},
            "5818377902951a1236935e2c2fef099bcac19ea66133a714c7dc78f8e9ad55ee",
            "9ca3b5d140a2abf2e5b594cd96554324a390ea189387da7cf5e2133f9ee2e426",
        ),
        (
            {"rank_by": ["margin"]},
            "0b1e5c93d4257c6e6f0aaa4cccc785ee8b8771a320a381b41cafe3d6f0d2e779",
            "9ca3b5d140a2abf2e5b594cd96554324a390ea189387da7cf5e2133f9ee2e426",
        ),
        (
            {"beside": ["margin"], "by": "score", "max_length": 32, "threshold": -1},
            "c2b2fea9eede88d9e25b33d5a86e4f913320f34d51a5ad9d97fd6424723af084",
            "e043474cc5fbcd0988c89e39b0a186661fdc317b585d6581b12d83a4e12583c2",
        ),
        (
            {"judge": "likelihood"},
            "23c7ef11e65ff6fcb88b5e65df134ecf6c2bb1c4f4bf3ba74ada508e8a9e550b",
            "af9ea3aa2e385df3860312f7178431c41c965a69ca597633e20c1cdb7bf32061",
        ),
        (
            {"judge": "margin", "model": None, "dtype": "auto"},
            "65e95ff968f01b31c386cfe5c566b03caac6edb4b2fd6cfe08a9a203b70a80b5",
            None,
        ),
    ],
)
def test_folders_that_are_there_are_recognised(world, tiny_gpt2, changes, of_pairs, of_scores, monkeypatch):
    monkeypatch.setattr(
        "pairsmith.runs.begun.pick_dtype", lambda *_: "float32"
    )  # --dtype auto depends on the machine
    tmp, settings = world
    if changes.get("judge") == "likelihood":
        changes = {**changes, "model": str(tiny_gpt2)}
    filter_pairs(settings(**changes), Run(tmp / "out", Silent()))
    assert fingerprints.of_settings(tmp / "out") == of_pairs
    if of_scores:
        assert fingerprints.of_settings(tmp / "out" / "scores") == of_scores


def test_the_best_are_kept_in_the_order_of_their_scores(world, judge):
    tmp, settings = world
    folder = filter_pairs(settings(best=4), Run(tmp / "out", Silent()))
    cross = load_cross_encoder(judge, device="cpu")
    scores = score_pairs(cross, [row.input for row in ROWS], [row.output for row in ROWS])
    order = np.argsort(-scores, kind="stable")
    rows = folder.table().to_pylist()
    assert [row["id"] for row in rows] == [ROWS[i].id for i in order[:4]]
    assert [row["score"] for row in rows] == pytest.approx(scores[order[:4]].tolist(), abs=1e-5)
    assert [row["margin"] for row in rows] == [ROWS[i].margin for i in order[:4]]
    lost = folder.rejects().to_pylist()
    assert [row["id"] for row in lost] == [ROWS[i].id for i in order[4:]]
    assert {row["filter"] for row in lost} == {"score"}
    assert {row["reason"] for row in lost} == {"not among the best"}
    assert json.loads(lost[0]["row"])["score"] == pytest.approx(scores[order[4]], abs=1e-5)
    assert json.loads(lost[0]["row"])["input"] == ROWS[order[4]].input


def test_many_rows_are_saved_in_parts(world, monkeypatch):
    tmp, settings = world
    whole = filter_pairs(settings(best=7), Run(tmp / "whole", Silent()))
    monkeypatch.setattr(filtering, "SHARD_ROWS", 3)
    monkeypatch.setattr(filtering, "REJECTS_AT_ONCE", 2)
    parts = filter_pairs(settings(best=7), Run(tmp / "parts", Silent()))
    assert parts.shard_rows() == [3, 3, 1]
    assert parts.table().to_pylist() == whole.table().to_pylist()
    assert parts.rejects().to_pylist() == whole.rejects().to_pylist()


def test_texts_of_more_than_two_gigabytes():
    texts = pa.array([f"{'x' * 1_000}{n}" for n in range(100_000)])
    ids = pa.array(range(2_200_000))
    table = pa.table({"id": ids, "output": pa.chunked_array([texts] * 22)})  # 22 times the same memory
    (shard,) = row_shards(table, 2_000, [1_099])
    assert shard.rows["id"].to_pylist() == list(range(2_198_000, 2_200_000))
    assert shard.rows["output"][-1].as_py() == texts[-1].as_py()
    wanted = np.array([2_199_999, 0, 1_100_000])
    assert rows_at(table, wanted).to_pylist() == [
        {"id": int(n), "output": texts[int(n) % 100_000].as_py()} for n in wanted
    ]


CANDIDATES = [
    MinedPair(
        f"{x}-{y}", f"who plays the {PLAYS[x]}?", f"{PEOPLE[y]} does", 1.0, 0.5, input_id=x, output_id=y
    )
    for x, y in ((0, 0), (0, 1), (1, 0), (1, 2), (2, 1), (2, 0))
]


@pytest.mark.parametrize(
    ("one_per", "expected"),
    [
        ("pair", [True] * 6),
        ("input", [True, False, True, False, True, False]),
        ("both", [True, False, False, True, True, False]),
    ],
)
def test_which_candidates_win(one_per, expected):
    table = pa.table({"input_id": list("aabbcc"), "output_id": list("abacba")})
    assert winners(table, np.arange(6), one_per).tolist() == expected
    last_first = winners(table, np.arange(6)[::-1], "input")
    assert last_first.tolist() == [True, False, True, False, True, False]


@given(
    pairs=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=20),
    column=st.sampled_from(["input", "input_id"]),
    seed=st.integers(0, 3),
)
def test_winners_against_plain_loops(pairs, column, seed):
    texts = [text_id(str(number)) if column == "input_id" else f"text {number}" for number in range(6)]
    columns = (pa.array([texts[pair[side]] for pair in pairs], pa.string()) for side in (0, 1))
    table = pa.table(dict(zip((column, column.replace("in", "out")), columns, strict=True)))
    order = np.random.default_rng(seed).permutation(len(pairs))
    inputs: set[int] = set()
    one, both, seen = [], [], set()
    for x, y in (pairs[place] for place in order):
        one.append(x not in inputs)
        inputs.add(x)
        both.append(not {(0, x), (1, y)} & seen)
        seen |= {(0, x), (1, y)} if both[-1] else set()
    assert winners(table, order, "input").tolist() == one
    assert winners(table, order, "both").tolist() == both


def test_candidates_of_an_input_compete_before_the_best_are_kept(world):
    tmp, settings = world
    rows = [replace(row, input_id=str(row.input_id), output_id=str(row.output_id)) for row in CANDIDATES]
    table = to_table(rows, MINED_PAIR)
    write_folder(tmp / "candidates", {"train": table}, step="mine", settings={"retrieval": "candidates"})
    pairs = str(tmp / "candidates")
    every = filter_pairs(settings(pairs=pairs, one_per="pair"), Run(tmp / "every", Silent()))
    best: dict[str, str] = {}
    for row in every.table().to_pylist():
        best.setdefault(row["input"], row["id"])
    folder = filter_pairs(settings(pairs=pairs, best=2), Run(tmp / "out", Silent()))
    assert [row["id"] for row in folder.table().to_pylist()] == list(best.values())[:2]
    reasons = Counter(row["reason"] for row in folder.rejects().to_pylist())
    assert reasons == {"a pair with the same text ranks higher": 3, "not among the best": 1}
    for one_per, rows in (("auto", 3), ("both", 3), ("pair", 6)):
        assert plan_filter_pairs(settings(pairs=pairs, one_per=one_per), {}).rows == {"train": rows}


def test_how_many_are_kept_must_be_said():
    with pytest.raises(
        ValueError, match="give --best or --share, or a --threshold; --share 1 ranks all pairs"
    ):
        FilterSettings(pairs="p", model="m")


def test_a_threshold(world):
    tmp, settings = world
    every = filter_pairs(settings(), Run(tmp / "every", Silent())).table().to_pylist()
    assert len(every) == 12
    border = (every[6]["score"] + every[7]["score"]) / 2
    folder = filter_pairs(settings(threshold=border), Run(tmp / "out", Silent()))
    assert folder.table().to_pylist() == every[:7]
    least = every[6]["score"]
    few = filter_pairs(settings(threshold=least, best=4), Run(tmp / "few", Silent()))
    reasons = Counter(row["reason"] for row in few.rejects().to_pylist())
    assert reasons == {"not among the best": 3, f"below {least}": 5}
    assert filter_pairs(settings(threshold=1e9), Run(tmp / "none", Silent())).rows == 0


def test_stopped_it_goes_on_to_the_same_bytes(world, monkeypatch):
    tmp, settings = world
    filter_pairs(settings(best=4), Run(tmp / "whole", Silent()))
    calls, real = [], judges.score_pairs

    def failing(cross, inputs, outputs, **more):
        calls.append(len(inputs))
        if len(calls) == 2:
            raise StorageError("no space left")
        return real(cross, inputs, outputs, **more)

    monkeypatch.setattr(judges, "score_pairs", failing)
    with pytest.raises(StorageError):
        filter_pairs(settings(best=4), Run(tmp / "out", Silent()))
    folder = filter_pairs(settings(best=4), Run(tmp / "out", Silent()))
    assert calls == [5, 5, 5, 2]
    for path in (tmp / "whole").rglob("*.parquet"):
        assert path.read_bytes() == (tmp / "out" / path.relative_to(tmp / "whole")).read_bytes()
    assert filter_pairs(settings(best=4), Run(tmp / "out", Silent())).rows == folder.rows
    with pytest.raises(FolderError, match="best"):
        filter_pairs(settings(best=5), Run(tmp / "out", Silent()))


def test_stopped_behind_its_rows_it_only_finishes(world, monkeypatch):
    tmp, settings = world
    whole = filter_pairs(settings(best=4), Run(tmp / "whole", Silent()))
    with monkeypatch.context() as patch:
        patch.setattr(filtering, "_card", stopped)
        with pytest.raises(StorageError):
            filter_pairs(settings(best=4), Run(tmp / "out", Silent()))
    assert filter_pairs(settings(best=4), Run(tmp / "out", Silent())).table().equals(whole.table())


def stopped(*given):
    raise StorageError("no space left")


@pytest.mark.long
def test_two_workers_write_the_same_bytes(world):
    tmp, settings = world
    one = filter_pairs(settings(), Run(tmp / "one", Silent()))
    two = filter_pairs(settings(workers=2), Run(tmp / "two", Silent()))
    assert one.table().equals(two.table())


CLAIMED = [ScoredPair(f"r{n}", f"the {PLAYS[n]}", f"a {PLAYS[n]}", [1.0, 0.5, 0.0][n % 3]) for n in range(12)]


def test_by_their_scores_other_pairs_keep_their_labels(world, judge):
    tmp, settings = world
    folder_of(tmp / "scored", CLAIMED, SCORED_PAIR)
    given = settings(pairs=str(tmp / "scored"), best=2, by="score")
    rows = filter_pairs(given, Run(tmp / "out", Progress())).table().to_pylist()
    cross = load_cross_encoder(judge, device="cpu")
    scores = score_pairs(cross, [row.sentence1 for row in CLAIMED], [row.sentence2 for row in CLAIMED])
    best = [CLAIMED[i] for i in np.argsort(-scores, kind="stable")[:2]]
    assert [(row["id"], row["score"]) for row in rows] == [(row.id, row.score) for row in best]
    card = (tmp / "out" / "README.md").read_text(encoding="utf-8")
    assert MEANING["score"] in card
    assert "# The best pairs, chosen by a cross-encoder" in card
    assert "mined" not in card.partition("## ")[0]


def test_pairs_of_people_that_are_filtered_twice_are_not_synthetic(world):
    tmp, settings = world
    folder_of(tmp / "scored", CLAIMED, SCORED_PAIR)
    for source, out in [("scored", "once"), ("once", "twice")]:
        filter_pairs(settings(pairs=str(tmp / source), best=4, by="score"), Run(tmp / out, Silent()))
        assert "synthetic" not in (tmp / out / "README.md").read_text(encoding="utf-8")
    cleaned = postprocess(PostprocessSettings(data=str(tmp / "twice")), Run(tmp / "cleaned", Silent()))
    card = (cleaned.path / "README.md").read_text(encoding="utf-8")
    assert "Labelled rows, without duplicates." in card
    assert "synthetic" not in card


def test_of_pairs_written_for_a_score_those_near_to_it_are_kept(world, monkeypatch):
    tmp, settings = world
    folder_of(tmp / "scored", CLAIMED, SCORED_PAIR)
    judged = [
        0.9,
        0.5,
        0.4,
        0.6,
        0.8,
        0.12,
        0.3,
        0.4,
        0.0001,
        0.2,
        0.95,
        0.3,
    ]  # of the labels 1, 0.5, 0, 1, …
    probabilities = iter(judged)
    monkeypatch.setattr(
        judges,
        "score_pairs",
        lambda cross, inputs, outputs, **more: np.array(
            [np.log(p / (1 - p)) for p in (next(probabilities) for _ in inputs)], np.float32
        ),
    )
    given = settings(pairs=str(tmp / "scored"), best=6)
    folder = filter_pairs(given, Run(tmp / "out", Silent()))
    # 1: r0 0.9, r3 0.6, r6 0.3, r9 0.2; 0.5: r1 1, r7 0.9, r4 0.7, r10 0.55; 0: r8 1, r5 0.88, r11 0.7, r2
    assert [row["id"] for row in folder.table().to_pylist()] == ["r1", "r8", "r0", "r7", "r5", "r3"]
    assert [row["score"] for row in folder.table().to_pylist()] == [0.5, 0.0, 1.0, 0.5, 0.0, 1.0]
    lost = folder.rejects().to_pylist()
    assert {row["filter"] for row in lost} == {"agreement"}
    assert {row["id"]: round(json.loads(row["row"])["agreement"], 5) for row in lost} == pytest.approx(
        {"r6": 0.3, "r9": 0.2, "r4": 0.7, "r10": 0.55, "r11": 0.7, "r2": 0.6}
    )
    assert json.loads(lost[0]["row"])["score"] in (0.0, 0.5, 1.0)
    probabilities = iter(judged)
    near = filter_pairs(
        settings(pairs=str(tmp / "scored"), threshold=0.85, best=4), Run(tmp / "near", Silent())
    )
    assert [row["id"] for row in near.table().to_pylist()] == ["r1", "r8", "r0", "r7"]


def test_an_encoder_keeps_the_pairs_whose_similarity_has_the_rank_that_their_label_says(world, tiny_bert):
    tmp, settings = world
    labels = [1.0, 0.5, 0.0, 1.0, 0.5, 0.0, 1.0, 0.0]
    texts = [("a man plays", "a man plays"), ("rain falls", "snow melts"), ("a dog runs", "stocks fell")] * 3
    rows = [
        ScoredPair(f"r{n}", *two, label) for n, (two, label) in enumerate(zip(texts, labels, strict=False))
    ]
    folder_of(tmp / "scored", rows, SCORED_PAIR)
    given = settings(pairs=str(tmp / "scored"), judge="encoder", model=str(tiny_bert), share=0.5)
    folder = filter_pairs(given, Run(tmp / "out", Silent()))
    encoder = load_sentence_encoder(str(tiny_bert), device="cpu")
    first, second = (encoder.encode([pair[side] for pair in texts[:8]]) for side in (0, 1))
    first, second = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in (first, second))
    cosines = (first * second).sum(axis=1)
    places = [(np.sum(cosines < c - 1e-6) + np.sum(cosines < c + 1e-6) - 1) / 2 / 7 for c in cosines]
    agreed = 1 - np.abs(np.array(places) - labels)
    expected = balanced_order(agreed, np.array(labels))[:4]
    assert [row["id"] for row in folder.table().to_pylist()] == [f"r{n}" for n in expected]
    lost = {row["id"]: json.loads(row["row"])["agreement"] for row in folder.rejects().to_pylist()}
    assert lost == pytest.approx({f"r{n}": agreed[n] for n in range(8) if n not in expected}, abs=1e-5)
    assert plan_filter_pairs(given, {}).rows == {"train": 4}


def test_an_encoder_judges_mined_pairs_by_their_cosine_and_refuses_blank_texts(world, tiny_bert):
    tmp, settings = world
    folder = filter_pairs(settings(judge="encoder", model=str(tiny_bert), best=3), Run(tmp / "out", Silent()))
    scores = [row["score"] for row in folder.table().to_pylist()]
    assert scores == sorted(scores, reverse=True)
    assert all(-1 <= score <= 1 for score in scores)
    folder_of(tmp / "blank", [MinedPair("r", "who?", " ", 1.0, 0.5)], MINED_PAIR)
    given = settings(judge="encoder", model=str(tiny_bert), pairs=str(tmp / "blank"))
    with pytest.raises(InputError, match="1 of 1 rows have a blank output, which has no vector; drop them"):
        filter_pairs(given, Run(tmp / "refused", Silent()))
    assert not (tmp / "refused").exists()


def test_an_encoder_that_knows_queries_and_documents_judges_mined_pairs_as_mine_finds_them(world, tiny_bert):
    tmp, settings = world
    encoder = load_sentence_encoder(str(tiny_bert), device="cpu")
    encoder.prompts = {"query": "who asks: ", "document": "it says: "}
    encoder.save(str(tmp / "prompted"), create_model_card=False)
    folder = filter_pairs(settings(judge="encoder", model=str(tmp / "prompted")), Run(tmp / "out", Silent()))
    scores = {row["id"]: row["score"] for row in folder.table().to_pylist()}
    queries = encoder.encode([row.input for row in ROWS], prompt_name="query")
    said = encoder.encode([row.output for row in ROWS], prompt_name="document")
    cosines = (queries * said).sum(axis=1) / np.linalg.norm(queries, axis=1) / np.linalg.norm(said, axis=1)
    expected = {row.id: cosine for row, cosine in zip(ROWS, cosines, strict=True)}
    assert scores == pytest.approx(expected, abs=1e-5)
    plain = encoder.encode([row.input for row in ROWS])
    assert not np.allclose(plain, queries)  # the prompts do matter


@pytest.mark.parametrize("by", ["score", "agreement"])
def test_an_encoder_with_damaged_weights_is_an_error_and_nothing_is_stored(world, tiny_bert, by):
    tmp, settings = world
    folder_of(tmp / "scored", [ScoredPair("r", "a man", "a dog", 1.0)], SCORED_PAIR)
    encoder = load_sentence_encoder(str(tiny_bert), device="cpu")
    next(encoder.parameters()).data.fill_(float("nan"))
    encoder.save(str(tmp / "damaged"), create_model_card=False)
    given = settings(pairs=str(tmp / "scored"), judge="encoder", model=str(tmp / "damaged"), by=by)
    with pytest.raises(ModelError, match="gives vectors that are not finite; its weights are damaged"):
        filter_pairs(given, Run(tmp / "out", Silent()))
    assert not list((tmp / "out").rglob("*.parquet"))


def test_a_share_of_a_few_pairs_keeps_one(world):
    _, settings = world
    assert most_kept(settings(share=0.01), 8) == 1
    assert most_kept(settings(share=0.5), 8) == 4
    assert most_kept(settings(share=0.5, best=3), 8) == 3
    assert most_kept(settings(share=0.5), 0) == 0
    assert most_kept(settings(best=9), 8) == 8


def test_a_beginning_of_the_order_holds_the_same_part_of_each_label():
    values = np.arange(30.0)
    labels = np.array([0.0] * 20 + [1.0] * 10)
    order = balanced_order(values, labels)
    assert sorted(order.tolist()) == list(range(30))
    for count in (3, 6, 15, 27):
        assert (labels[order[:count]] == 1).sum() == count / 3
    assert balanced_order(np.array([0.2, 0.9, 0.5]), np.array([0.1, 0.2, 0.3])).tolist() == [1, 2, 0]


def test_agreement_wants_scores_between_0_and_1(world):
    tmp, settings = world
    with pytest.raises(InputError, match=r"--by agreement needs the columns .*found id, input"):
        filter_pairs(settings(by="agreement"), Run(tmp / "out", Silent()))
    folder_of(tmp / "scored", [ScoredPair("r", "a", "b", 3.0)], SCORED_PAIR)
    with pytest.raises(InputError, match="lie between 0 and 1; give --by score"):
        filter_pairs(settings(pairs=str(tmp / "scored")), Run(tmp / "out", Silent()))


def test_what_was_kept_for_validation_stays_there(world, capsys):
    tmp, settings = world
    folder_of(tmp / "split", ROWS[:5], MINED_PAIR, validation=ROWS[5:8], test=ROWS[8:])
    folder = filter_pairs(settings(pairs=str(tmp / "split")), Run(tmp / "out", Progress()))
    assert sorted(folder.table()["id"].to_pylist()) == sorted(row.id for row in ROWS[:5])
    assert not folder.rejects().num_rows
    assert "split: its split train is judged; test, validation is not" in capsys.readouterr().err
    given = settings(pairs=str(tmp / "split"), best=2)
    assert plan_filter_pairs(given.model_copy(update={"best": None}), {}).rows == {"train": 5}
    named = filter_pairs(settings(pairs=f"{tmp / 'split'}:validation"), Run(tmp / "named", Silent()))
    assert sorted(named.table()["id"].to_pylist()) == sorted(row.id for row in ROWS[5:8])
    # What is judged counts: other rows for validation are the same work.
    folder_of(tmp / "less", ROWS[:5], MINED_PAIR, validation=ROWS[5:6])
    again = filter_pairs(settings(pairs=str(tmp / "less")), Run(tmp / "out", Silent()))
    assert again.manifest == folder.manifest


def test_a_folder_without_rows_for_training_is_refused(world):
    tmp, settings = world
    folder = folder_of(tmp / "split", [], MINED_PAIR, validation=ROWS[5:8])
    next((folder.path / "data").glob("train-*")).unlink()
    with pytest.raises(InputError, match=r"has no split train, only validation; name one, such as .*:valid"):
        filter_pairs(settings(pairs=str(tmp / "split")), Run(tmp / "out", Silent()))


def test_no_pairs_make_no_rows(world):
    tmp, settings = world
    folder_of(tmp / "empty", [], MINED_PAIR)
    assert filter_pairs(settings(pairs=str(tmp / "empty")), Run(tmp / "out", Silent())).rows == 0


def test_what_cannot_be_filtered_is_said(world, tiny_bert):
    tmp, settings = world
    folder_of(tmp / "texts", [LabelledText("a", "b", "c")], LABELLED_TEXT)
    with pytest.raises(InputError, match="found id, text, label"):
        filter_pairs(settings(pairs=str(tmp / "texts")), Run(tmp / "out", Silent()))
    with pytest.raises(ModelError, match="has no head for classification") as caught:
        filter_pairs(settings(model=str(tiny_bert)), Run(tmp / "other", Silent()))
    others = (
        "other judges, as --judge: encoder (a sentence encoder), likelihood (a causal language model), "
        "likeness (a sentence encoder and --seeds), margin (no model)"
    )
    assert str(caught.value).splitlines()[1:] == [others]
    with pytest.raises(ModelError, match="has no head for classification") as caught:
        plan_filter_pairs(settings(model=str(tiny_bert)), {})
    assert str(caught.value).splitlines()[1:] == [others]


def test_a_judge_that_cannot_be_loaded_leaves_the_folder_to_another(world, tiny_bert, judge):
    tmp, settings = world
    with pytest.raises(ModelError, match="has no head for classification"):
        filter_pairs(settings(model=str(tiny_bert)), Run(tmp / "out", Silent()))
    assert (tmp / "out" / "scores" / "manifest.json").exists()
    assert filter_pairs(settings(), Run(tmp / "out", Silent())).rows == len(ROWS)
    with pytest.raises(OtherWorkError, match="holds a finished run of filter with other settings: the model"):
        filter_pairs(settings(model=str(tiny_bert)), Run(tmp / "out", Silent()))


def test_by_likelihood_the_output_after_the_input(world, tiny_gpt2):
    tmp, settings = world
    folder = filter_pairs(settings(judge="likelihood", model=str(tiny_gpt2)), Run(tmp / "out", Silent()))
    model = load_likelihood_judge(str(tiny_gpt2), device="cpu", dtype="float32")
    ratios = likelihood_ratios(model, [r.input for r in ROWS], [r.output for r in ROWS], cue="\n\n")
    rows = folder.table().to_pylist()
    assert [row["id"] for row in rows] == [ROWS[i].id for i in np.argsort(-ratios, kind="stable")]
    assert [row["score"] for row in rows] == pytest.approx(np.sort(ratios)[::-1].tolist(), abs=1e-3)
    assert "language model" in (tmp / "out" / "README.md").read_text(encoding="utf-8")


def test_by_likelihood_a_question_after_its_passage_and_answer(world, tiny_gpt2):
    tmp, settings = world
    answers = [
        MinedAnswer(
            **as_columns(row), context=f"{row.output}.", answers={"text": ["it"], "answer_start": [0]}
        )
        for row in ROWS
    ]
    folder_of(tmp / "answers", answers, MINED_ANSWER)
    changes = {"pairs": str(tmp / "answers"), "judge": "likelihood", "model": str(tiny_gpt2)}
    folder = filter_pairs(settings(**changes), Run(tmp / "out", Silent()))
    model = load_likelihood_judge(str(tiny_gpt2), device="cpu", dtype="float32")
    questions, passages = [row.input for row in ROWS], [f"{row.output}." for row in ROWS]
    ratios = question_likelihoods(model, questions, ["it"] * len(ROWS), passages)
    expected = dict(zip((row.id for row in ROWS), ratios.tolist(), strict=True))
    for row in folder.table().to_pylist():
        assert row["score"] == pytest.approx(expected[row["id"]], abs=1e-3)
    with pytest.raises(InputError, match="--cue has no effect on questions"):
        filter_pairs(settings(**changes, cue="\n"), Run(tmp / "cued", Silent()))


def test_the_margin_may_count_beside_the_judge(world, judge):
    tmp, settings = world
    rows = filter_pairs(settings(beside=["margin"]), Run(tmp / "out", Silent())).table().to_pylist()
    cross = load_cross_encoder(judge, device="cpu")
    scores = score_pairs(cross, [row.input for row in ROWS], [row.output for row in ROWS]).astype(float)
    margins = np.array([row.margin for row in ROWS])
    both = (scores - scores.mean()) / scores.std() + (margins - margins.mean()) / margins.std()
    assert [row["id"] for row in rows] == [ROWS[i].id for i in np.argsort(-both, kind="stable")]
    assert [row["score"] for row in rows] == pytest.approx(sorted(both, reverse=True), abs=1e-2)


def test_equal_values_beside_the_judge_decide_nothing():
    assert standardised(np.array([2.0, 2.0])).tolist() == [0, 0]
    assert standardised(np.array([1.0, 3.0])).tolist() == [-1, 1]
    assert standardised(np.zeros(0)).tolist() == []


@pytest.mark.parametrize("name", ["nothing", "output"])
def test_only_a_column_of_numbers_counts_beside_the_judge(world, name):
    tmp, settings = world
    with pytest.raises(InputError, match=f"--beside {name} needs a column"):
        filter_pairs(settings(beside=[name]), Run(tmp / "out", Silent()))


def test_beside_an_agreement_nothing_counts(world):
    tmp, settings = world
    folder_of(tmp / "scored", [ScoredPair("a", "one", "two", 1.0)], SCORED_PAIR)
    with pytest.raises(InputError, match="--beside has no effect; give --by score"):
        filter_pairs(settings(pairs=str(tmp / "scored"), beside=["score"]), Run(tmp / "out", Silent()))
    with pytest.raises(ValueError, match="beside"):
        settings(by="agreement", beside=["score"])


def candidates(tmp):
    """Three outputs of each of three inputs; the margins rank the inputs."""
    rows = [
        MinedPair(f"{i}{o}", f"in {i}", f"out {o}", 10.0 * i + o, 0.0, input_id=f"i{i}", output_id=f"o{o}")
        for i in range(3)
        for o in range(3)
    ]
    folder_of(tmp / "candidates", rows, MINED_PAIR)
    return rows


def test_the_judge_chooses_for_each_input_and_columns_rank_the_inputs(world, judge):
    tmp, settings = world
    rows = candidates(tmp)
    options = settings(pairs=str(tmp / "candidates"), rank_by=["margin"])
    folder = filter_pairs(options, Run(tmp / "out", Silent()))
    cross = load_cross_encoder(judge, device="cpu")
    scores = score_pairs(cross, [row.input for row in rows], [row.output for row in rows]).reshape(3, 3)
    best = [3 * i + int(scores[i].argmax()) for i in (2, 1, 0)]
    assert folder.table()["id"].to_pylist() == [rows[i].id for i in best]
    margins = standardised(np.array([row.margin for row in rows]))
    assert folder.table()["score"].to_pylist() == pytest.approx(margins[best].tolist())
    reasons = {row["reason"] for row in folder.rejects().to_pylist()}
    assert reasons == {"the judge chose another pair of its input"}
    card = (tmp / "out" / "README.md").read_text(encoding="utf-8")
    assert (
        "of those that were chosen for their inputs by a cross-encoder (`model`), the best by margin" in card
    )
    assert "the sum of the standardised column margin" in card
    least = float(margins[best[1]])
    some = filter_pairs(
        options.model_copy(update={"threshold": least, "share": None}), Run(tmp / "some", Silent())
    )
    assert some.table()["id"].to_pylist() == [rows[i].id for i in best[:2]]


def test_of_chosen_pairs_with_one_output_the_first_wins():
    pairs = pa.table({"input": ["a", "a", "b", "c"], "output": ["x", "y", "x", "z"]})
    values, ranks = np.array([2.0, 1.0, 5.0, 0.0]), np.array([3.0, 9.0, 2.0, 1.0])
    order, wins, chosen = chosen_first(pairs, values, ranks, "input")
    assert (order.tolist(), wins.tolist(), chosen) == ([0, 2, 3, 1], [True, True, True, False], 3)
    order, wins, chosen = chosen_first(pairs, values, ranks, "both")
    assert (order.tolist(), wins.tolist(), chosen) == ([0, 2, 3, 1], [True, False, True, False], 3)


def test_the_margin_may_choose_and_what_an_earlier_filter_gave_rank(tmp_path):
    rows = [
        replace(row, score=float(score))
        for row, score in zip(candidates(tmp_path), (5, 0, 7, 0, 9, 1, 0, 0, 3), strict=True)
    ]
    folder_of(tmp_path / "scored", rows, MINED_PAIR)
    options = FilterSettings(
        pairs=str(tmp_path / "scored"), judge="margin", rank_by=["score"], best=1, one_per="both"
    )
    folder = filter_pairs(options, Run(tmp_path / "out", Silent()))
    # The largest margins are those of output 2, of which the second pair has the score 1, the first 7.
    scores = standardised(np.array([row.score for row in rows]))
    assert folder.table().select(["id", "score"]).to_pylist() == [
        {"id": "02", "score": pytest.approx(scores[2])}
    ]
    reasons = Counter(row["reason"] for row in folder.rejects().to_pylist())
    assert reasons == {
        "a pair with the same text ranks higher": 2,
        "the judge chose another pair of its input": 6,
    }


def test_what_leaves_nothing_to_choose_is_refused(world):
    tmp, settings = world
    with pytest.raises(ValueError, match="nothing is left for the judge to choose"):
        settings(rank_by=["margin"], one_per="pair")
    with pytest.raises(ValueError, match="rank_by"):
        settings(rank_by=["margin"], by="agreement")
    with pytest.raises(InputError, match="--rank-by nothing needs a column"):
        filter_pairs(settings(rank_by=["nothing"]), Run(tmp / "out", Silent()))
    folder_of(tmp / "scored", [ScoredPair("a", "one", "two", 1.0)], SCORED_PAIR)
    options = settings(pairs=str(tmp / "scored"), rank_by=["score"])
    with pytest.raises(InputError, match="--rank-by has no effect; give --by score"):
        filter_pairs(options, Run(tmp / "out", Silent()))
    with pytest.raises(InputError, match="--rank-by needs pairs with the columns input and output; found id"):
        filter_pairs(options.model_copy(update={"by": "score"}), Run(tmp / "out", Silent()))


def test_the_cue_fits_the_pairs(world, tiny_gpt2):
    tmp, settings = world
    changes = {"judge": "likelihood", "model": str(tiny_gpt2)}
    usual = filter_pairs(settings(**changes), Run(tmp / "usual", Silent()))
    given = filter_pairs(settings(**changes, cue="\n\n"), Run(tmp / "given", Silent()))
    assert usual.table() == given.table()
    other = filter_pairs(settings(**changes, cue="\nTL;DR: "), Run(tmp / "other", Silent()))
    assert other.table()["score"] != usual.table()["score"]
    assert cue_for("summarization") == "\nTL;DR: "
    with pytest.raises(ValueError, match="cue"):
        settings(cue="\n")


def test_cards_have_texts_about_every_judge():
    of_pairs = get_args(FilterSettings.model_fields["judge"].annotation)
    assert JUDGES_OF_PAIRS.keys() == {*of_pairs}, (
        "JUDGES_OF_PAIRS of steps/judging.py: one text for each judge"
    )
    of_texts = get_args(get_args(JudgeOfQueries)[0])
    assert SCORE_OF_TEXT.keys() == {*of_texts}, "SCORE_OF_TEXT of steps/judging.py: one text for each judge"


def test_the_margin_alone_takes_each_text_once(world):
    tmp, settings = world
    rows = [
        replace(
            row, input=ROWS[n // 2].input, input_id=f"i{n // 2}", output_id=f"o{n}", margin=(5 * n % 12) / 12
        )
        for n, row in enumerate(ROWS)
    ]
    folder_of(tmp / "candidates", rows, MINED_PAIR)
    changes = {"pairs": str(tmp / "candidates"), "model": None, "judge": "margin", "one_per": "both"}
    changes["dtype"] = "auto"
    given = settings(**changes, best=3)
    kept = filter_pairs(given, Run(tmp / "out", Silent())).table().to_pylist()
    ranked = sorted(rows, key=lambda row: -row.margin)
    first = {row.input: row for row in reversed(ranked)}
    expected = sorted(first.values(), key=lambda row: -row.margin)[:3]
    assert [row["id"] for row in kept] == [row.id for row in expected]
    assert {row["score"] for row in kept} == {0.5}  # the cosine, as it was
    lost = DatasetFolder.open(tmp / "out").rejects().to_pylist()
    assert {json.loads(row["row"])["score"] for row in lost} == {0.5}
    assert not (tmp / "out" / "scores").exists()
    assert plan_filter_pairs(given, {}).seconds < 5


def test_a_judge_without_its_model_and_a_model_without_use_are_refused(world):
    _, settings = world
    with pytest.raises(ValueError, match="give the model that judges the pairs, or --judge margin"):
        settings(model=None)
    with pytest.raises(ValueError, match="model"):
        settings(judge="margin")


def test_likeness_to_the_seeds_is_learned_from_them_and_from_the_pairs(world, tiny_bert):
    tmp, settings = world
    seeds = [(f"where is the {play} kept?", f"in the house of {PEOPLE[0]}") for play in PLAYS[:6]]

    def write(scores):
        rows = [
            {"sentence1": one, "sentence2": other, "score": score}
            for (one, other), score in zip(seeds, scores, strict=True)
        ]
        (tmp / "seeds.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    write([1, 1, 1, 1, 1, 0.2])  # the last is no positive
    given = settings(judge="likeness", model=str(tiny_bert), seeds=str(tmp / "seeds.jsonl"), best=4)
    table = filter_pairs(given, Run(tmp / "out", Silent())).table()
    encoder = load_sentence_encoder(str(tiny_bert), device="cpu")
    pairs = [(row.input, row.output) for row in ROWS]
    of_seeds, of_pairs = (
        tuple(encoder.encode(list(side)) for side in zip(*some, strict=True)) for some in (seeds[:5], pairs)
    )
    scores = SeedClassifier.learn(of_seeds, of_pairs).log_odds(*of_pairs)
    best = np.argsort(-scores)[:4]
    assert [row["id"] for row in table.to_pylist()] == [ROWS[i].id for i in best]
    assert table["score"].to_pylist() == pytest.approx(scores[best].tolist(), abs=1e-3)

    card = (tmp / "out" / "README.md").read_text(encoding="utf-8")
    assert f"those judged best by their likeness to seeds (`{tiny_bert.name}`)." in card
    assert "| seeds.jsonl | data |" in card

    write([1] * 6)
    with pytest.raises(OtherWorkError, match="seeds"):
        filter_pairs(given, Run(tmp / "out", Silent()))
    write([1, 0, 0, 0, 0, 0])
    with pytest.raises(
        InputError, match=r"least two seeds and two pairs; .* has 1 with a score of 0\.7 or more"
    ):
        filter_pairs(given, Run(tmp / "few", Silent()))
    assert plan_filter_pairs(given, {}).seconds < 20


def test_likeness_compares_windows_of_the_seeds_passages_with_mined_windows(tmp_path):
    window = "It rains in Rome today."
    row = MinedAnswer(
        "1", "where?", f"Rome: {window}", 1.0, 0.5, window, {"text": ["Rome"], "answer_start": [12]}
    )
    short = MinedAnswer(
        "2", "where?", "Rome: Rome today.", 1.0, 0.5, "Rome today.", {"text": ["Rome"], "answer_start": [0]}
    )
    passage = f"Snow fell in Oslo. {window} Nobody saw the sun in Paris."
    seeds = [
        {
            "context": passage,
            "question": f"Where is {answer}?",
            "answers": {"text": [answer], "answer_start": [passage.index(answer)]},
        }
        for answer in ("Oslo", "Rome")
    ]
    (tmp_path / "seeds.jsonl").write_text("".join(json.dumps(seed) + "\n" for seed in seeds))
    pairs = to_table([row, short], MINED_ANSWER)
    of_seeds, mined = judges.judge_examples(pairs, "", str(tmp_path / "seeds.jsonl"), Silent())
    # The longest mined window has five words.
    assert of_seeds["output"].to_pylist() == ["Oslo: Snow fell in Oslo.", f"Rome: {window}"]
    assert mined["output"].to_pylist() == [f"Rome: {window}", "Rome: Rome today."]


def test_likeness_ranks_scored_pairs_too_by_itself(world, tiny_bert, capsys):
    tmp, settings = world
    scored = [
        ScoredPair(f"s{n}", f"where is the {play}?", f"{PEOPLE[0]} has it", n / 11)
        for n, play in enumerate(PLAYS[:12])
    ]
    folder_of(tmp / "scored", scored, SCORED_PAIR)
    (tmp / "seeds.jsonl").write_text("".join(json.dumps(as_columns(row)) + "\n" for row in scored))
    given = {"judge": "likeness", "model": str(tiny_bert), "seeds": str(tmp / "seeds.jsonl"), "best": 4}
    folder = filter_pairs(settings(**given, pairs=str(tmp / "scored")), Run(tmp / "out", Progress()))
    assert {row["filter"] for row in folder.rejects().to_pylist()} == {"score"}
    said = capsys.readouterr().err
    assert "8 of 12 seeds are scored below 0.7, so they are left out" in said
    assert "trained to tell 4 seeds from 12 of the pairs" in said


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"judge": "likeness"}, "seeds is missing"),
        ({"judge": "encoder", "seeds": "s.jsonl"}, "seeds has no effect without --judge likeness"),
        (
            {"judge": "likeness", "seeds": "s.jsonl", "by": "agreement"},
            "no scores from 0 to 1 that could agree",
        ),
    ],
)
def test_likeness_without_seeds_and_seeds_without_it_are_refused(world, changes, message):
    _, settings = world
    with pytest.raises(ValueError, match=message):
        settings(**changes)


def test_a_judge_that_tells_nothing_apart_is_said(world, monkeypatch, capsys):
    tmp, settings = world
    monkeypatch.setattr(
        judges, "score_pairs", lambda cross, inputs, outputs, **more: np.zeros(len(inputs), "f")
    )
    filter_pairs(settings(best=2), Run(tmp / "out", Progress()))
    assert (
        "gives all 12 pairs the same score, so which of them are kept means nothing"
        in capsys.readouterr().err
    )


def test_rows_without_what_a_judge_reads_are_refused(world, tiny_gpt2):
    tmp, settings = world
    rows = [
        {**as_columns(row), "context": "p", "answers": {"text": ["it"], "answer_start": [0]}} for row in ROWS
    ]
    for name, change in {
        "answers": {"answers": None},
        "first answer": {"answers": {"text": [None], "answer_start": [0]}},
        "context": {"context": None},
        "input": {"input": None},
    }.items():
        table = pa.Table.from_pylist([rows[0] | change, *rows[1:]], schema=MINED_ANSWER)
        write_folder(tmp / name, {"train": table}, step="test")
        changes = {"pairs": str(tmp / name), "judge": "likelihood", "model": str(tiny_gpt2)}
        with pytest.raises(InputError, match="1 of 12 rows have no"):
            filter_pairs(settings(**changes), Run(tmp / f"{name}-out", Silent()))


def test_only_mined_pairs_compete_for_their_texts(world):
    tmp, settings = world
    folder_of(tmp / "scored", [ScoredPair("a", "one", "two", 1.0)], SCORED_PAIR)
    changes = {"pairs": str(tmp / "scored"), "one_per": "both", "by": "score"}
    with pytest.raises(InputError, match="--one-per both needs pairs with the columns input and output"):
        filter_pairs(settings(**changes), Run(tmp / "out", Silent()))
