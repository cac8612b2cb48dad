"""The four operations that make a training set (D6-D9), on rows alone; ``test_postprocess.py`` has the step."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pairsmith.data.schemas import LabelledText, ScoredPair
from pairsmith.data.tasks import load_task
from pairsmith.methods.dino.options import TrainingSetOptions
from pairsmith.methods.dino.training_set import clean, make_training_set, sampled_negatives, smooth, split


def pairs(*triples):
    return [ScoredPair(f"id{i}", *triple) for i, triple in enumerate(triples)]


def test_a_training_set_by_hand():
    """Smoothing changes generated scores alone, and the sampled negatives are split with the others."""
    options = TrainingSetOptions(
        per_input=1,
        per_label=None,
        min_words=2,
        near_copies="task",
        smoothing=0.2,
        augment=1,
        validation=0.5,
        seed=1,
    )
    rows = pairs(
        ("a b", "c d", 1.0),
        ("a b", "e f", 1.0),
        ("a b", "one", 0.5),
        ("g h", "i j", 1.0),
        ("k l", "K, l.", 0.0),
    )
    training_set = make_training_set(rows, load_task("sts"), options)
    assert [(reject.id, reject.filter) for reject in training_set.rejects] == [
        ("id1", "cap"),
        ("id2", "too short"),
        ("id4", "near-copy"),
    ]
    assert training_set.negatives == 2
    train, validation = (
        sorted((row.score, row.sentence1, row.sentence2) for row in rows)
        for rows in (training_set.train, training_set.validation)
    )
    assert sorted(train + validation) == [
        (0.0, "a b", "i j"),
        (0.0, "g h", "c d"),
        (0.9, "a b", "c d"),
        (0.9, "g h", "i j"),
    ]
    assert [score for score, *_ in train] == [score for score, *_ in validation] == [0.0, 0.9]
    # Single texts have no scores to smooth, and no second texts to draw.
    texts = [LabelledText(f"t{i}", f"a text {i}", "good") for i in range(4)]
    single = make_training_set(texts, None, options)
    assert (len(single.train), len(single.validation), single.negatives, single.rejects) == (2, 2, 0, [])


def test_smoothing_by_hand():
    assert [smooth(y, [0, 0.5, 1], 0.2) for y in (0, 0.5, 1)] == [0.1, 0.5, 0.9]
    # five labels 1..5, mean 3: 0.9 * 1 + 0.1 * 3
    assert smooth(1, [1, 2, 3, 4, 5], 0.1) == 1.2
    assert smooth(0.3, [0, 1], 0.0) == 0.3


def test_negatives_come_from_other_entries():
    rows = pairs(*[(f"x{i // 3}", f"y{i}", i % 3 / 2) for i in range(30)])
    negatives = sampled_negatives(rows, 2, seed=5)
    assert len(negatives) == 20
    assert len({row.id for row in negatives}) == 20
    own = {(row.sentence1, row.sentence2) for row in rows}
    assert not own & {(row.sentence1, row.sentence2) for row in negatives}
    assert len({(row.sentence1, row.sentence2) for row in negatives}) == 20
    assert {row.score for row in negatives} == {0.0}
    assert negatives == sampled_negatives(rows, 2, seed=5) != sampled_negatives(rows, 2, seed=6)


def test_a_negative_never_contradicts_a_row():
    """The texts of x0 were also written for x1, and one is a near-copy of x2: what is left is drawn."""
    rows = pairs(("x0", "shared", 1.0), ("x1", "Shared!", 0.5), ("x2", "own", 1.0), ("x3", "X2.", 1.0))
    drawn = {(row.sentence1, row.sentence2) for row in sampled_negatives(rows, 4, seed=3)}
    for first, second in [("x0", "Shared!"), ("x1", "shared"), ("x2", "X2.")]:
        assert (first, second) not in drawn
    assert {("x0", "own"), ("x2", "shared"), ("x3", "own")} <= drawn


def test_as_in_the_paper_any_text_of_another_entry_may_be_drawn():
    # The only other entry's text was written for "x" too: ours draws none, the paper's program draws it.
    rows = pairs(("x", "same", 1.0), ("z", "same", 0.0))
    assert sampled_negatives(rows, 1, seed=1) == []
    drawn = sampled_negatives(rows, 1, seed=1, any_text=True)
    assert [(row.sentence1, row.sentence2, row.score) for row in drawn] == [
        ("x", "same", 0.0),
        ("z", "same", 0.0),
    ]
    assert sampled_negatives(pairs(("x", "a", 1.0), ("x", "b", 0.0)), 1, seed=1, any_text=True) == []


def test_a_data_set_without_other_entries_has_no_negatives():
    assert sampled_negatives(pairs(("x", "y", 1.0), ("x", "z", 0.0)), 2, seed=1) == []


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0]), max_size=60), st.floats(0, 0.99), st.integers(0, 9))
def test_a_split_takes_its_share_of_each_label(scores, share, seed):
    rows = pairs(*[(f"a{i}", f"b{i}", score) for i, score in enumerate(scores)])
    train, validation = split(rows, share, seed)
    assert sorted(r.id for r in [*train, *validation]) == sorted(r.id for r in rows)
    for score in set(scores):
        members = sum(row.score == score for row in validation)
        assert members == round(share * scores.count(score))
    order = {row.id: i for i, row in enumerate(rows)}
    assert [order[r.id] for r in train] == sorted(order[r.id] for r in train)


def test_a_split_does_not_depend_on_the_other_rows_order():
    rows = pairs(*[(f"a{i}", "b", 1.0) for i in range(50)])
    chosen = {row.id for row in split(rows, 0.2, 3)[1]}
    assert chosen == {row.id for row in split(rows[::-1], 0.2, 3)[1]}
    assert chosen != {row.id for row in split(rows, 0.2, 4)[1]}


def test_the_cap_counts_each_first_text_and_label_apart():
    rows = pairs(*[("x", f"y{i}", i % 2 / 1) for i in range(6)], ("z", "y", 1.0))
    kept, rejects = clean(rows, {}, per_input=2)
    assert [row.id for row in kept] == ["id0", "id1", "id2", "id3", "id6"]
    assert [r.filter for r in rejects] == ["cap", "cap"]


def test_negatives_are_spread_over_the_pool():
    rows = pairs(*[(f"x{i}", f"y{i}", 1.0) for i in range(200)])
    used = [int(row.sentence2[1:]) for row in sampled_negatives(rows, 2, seed=0)]
    assert abs(np.mean(used) - 99.5) < 12
