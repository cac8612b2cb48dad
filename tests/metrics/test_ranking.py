import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairsmith.metrics.ranking import MEASURES, average_precision, ndcg, precision, recall, reciprocal_rank


def grades(*values):
    return np.array(values, np.int64)


def test_gains_are_divided_by_the_logarithm_of_the_rank_and_by_those_of_the_best_ranking():
    # Ranks 2 and 4 hold grades 1 and 3: 1 / log2(3) + 3 / log2(5), of at best 3 / log2(2) + 1 / log2(3).
    got = 1 / math.log2(3) + 3 / math.log2(5)
    best = 3 + 1 / math.log2(3)
    assert ndcg(grades(0, 1, 0, 3), grades(1, 3, 0), 10) == pytest.approx(got / best, abs=1e-12)
    assert ndcg(grades(0, 1, 0, 3), grades(1, 3, 0), 2) == pytest.approx((1 / math.log2(3)) / best, abs=1e-12)
    assert ndcg(grades(3, 1), grades(1, 3), 10) == 1.0
    assert ndcg(grades(0, 0, 1), grades(1), 2) == 0.0


def test_a_document_of_negative_relevance_is_like_one_that_was_not_judged():
    with_it, without = grades(-2, 1, -1), grades(0, 1, 0)
    for name, measure in MEASURES.items():
        assert measure(with_it, grades(-2, 1, -1)) == measure(without, grades(1)), name


def test_shares_of_the_first_places_and_of_the_relevant_documents():
    ranked, judged = grades(0, 1, 2, 0, 1), grades(1, 2, 1, 1, 0)
    assert [recall(ranked, judged, k) for k in (1, 2, 3, 5, 100)] == [0, 0.25, 0.5, 0.75, 0.75]
    assert [precision(ranked, judged, k) for k in (1, 2, 5, 10)] == [0, 0.5, 0.6, 0.3]
    assert [reciprocal_rank(ranked, judged, k) for k in (1, 2, 10)] == [0, 0.5, 0.5]
    # Relevant ones at ranks 2, 3 and 5, and a fourth that was not retrieved.
    assert average_precision(ranked, judged) == pytest.approx((1 / 2 + 2 / 3 + 3 / 5) / 4)


def test_nothing_retrieved_is_worth_nothing():
    assert {measure(grades(), grades(1)) for measure in MEASURES.values()} == {0.0}


@pytest.mark.parametrize("name", sorted(set(MEASURES) - {"precision@10", "mrr@10"}))
def test_a_query_without_a_relevant_document_has_no_figure(name):
    with pytest.raises(ValueError, match="without a relevant document"):
        MEASURES[name](grades(0, 0), grades(0, -1))


THEIRS = {"ndcg@10": "ndcg_cut_10", "recall@100": "recall_100", "recall@10": "recall_10", "precision@10": "P_10",
          "map": "map"}  # fmt: skip


@given(
    st.lists(st.integers(-2, 4), min_size=1, max_size=150).filter(lambda judged: max(judged) > 0),
    st.integers(0, 150),
    st.randoms(use_true_random=False),
)
def test_the_figures_are_those_of_trec_eval(judged, unjudged, random):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pytrec_eval

    relevance = {f"d{number:03}": grade for number, grade in enumerate(judged)}
    documents = [*relevance, *(f"u{number:03}" for number in range(unjudged))]
    retrieved = random.sample(documents, random.randint(1, len(documents)))
    scores = {name: float(random.randint(0, 5)) for name in retrieved}  # many are equal
    order = sorted(sorted(retrieved, reverse=True), key=lambda name: -scores[name])
    ranked = grades(*(relevance.get(name, 0) for name in order))
    evaluator = pytrec_eval.RelevanceEvaluator(
        {"q": relevance}, {"ndcg_cut.10", "recall.10,100", "P.10", "map", "recip_rank"}
    )
    theirs = evaluator.evaluate({"q": scores})["q"]
    for name, other in THEIRS.items():
        assert MEASURES[name](ranked, grades(*judged)) == pytest.approx(theirs[other], abs=1e-9), name
    assert reciprocal_rank(ranked, grades(*judged), len(ranked)) == pytest.approx(
        theirs["recip_rank"], abs=1e-9
    )
