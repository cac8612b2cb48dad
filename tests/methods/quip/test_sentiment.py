import shutil

import numpy as np
import pytest
import torch
from tests.without_float64 import WithoutFloat64

import pairsmith
from pairsmith.core.errors import ModelError
from pairsmith.methods.quip.sentiment import (
    NEUTRAL,
    RATIONALES,
    Judged,
    judge_by_questions,
    questions_about,
    rationale_questions,
    scores_of,
)
from pairsmith.models.span_answers import TextVectors
from pairsmith.models.span_heads import SpanHeads, save_heads


def test_the_questions_and_the_neutral_words_are_the_papers():
    """Table 11, and Appendix A.4."""
    assert questions_about("movie") == [
        "Why is it bad?", "Why is it good?",
        "Why is this movie bad?", "Why is this movie good?",
        "Why is it terrible?", "Why is it great?",
        "What makes this movie bad?", "What makes this movie good?",
        "What is the reason this movie is bad?", "What is the reason this movie is good?",
        "What is the reason this movie is terrible?", "What is the reason this movie is great?",
    ]  # fmt: skip
    assert NEUTRAL == ("the", "be", "to", "of", "and", "a", "in", "that", "have", "I")


def test_a_rationale_answers_the_question_of_the_prompt_that_is_best_on_sst_2():
    # Only the fifth prompt counts: it takes the first text for positive, and after calibration the second not.
    scores = np.zeros((6, 2, 2))
    scores[4] = [[1.0, 3.0], [1.0, 1.5]]
    scores[[0, 1, 2, 3, 5], :, 0] = 9.0
    neutral = np.zeros((6, 2))
    neutral[4] = [0.0, 1.0]
    questions = [questions_about("movie")[number] for number in rationale_questions(scores, neutral)]
    assert questions == ["What is the reason this movie is good?", "What is the reason this movie is bad?"]


def test_the_score_of_a_text_by_hand():
    special = torch.tensor([[0.0, 0.0], [1.0, 1.0]])  # products 0, 2 and 0, 3; 0, -1 and 0, 1
    text = TextVectors(torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([[0, 1], [2, 3]]), special)
    starts = torch.tensor([[1.0, 1.0], [3.0, 0.0]])  # products 1, 2 and 3, 0
    ends = torch.tensor([[-1.0, 0.0], [0.0, 1.0]])  # products -1, 0 and 0, 2
    assert scores_of([text], starts, ends).tolist() == [[[2.0 + 0.0, 3.0 + 2.0]]]
    # A device may have no float64.
    vectors, special = (side.as_subclass(WithoutFloat64) for side in (text.vectors, text.special))
    moved = TextVectors(vectors, text.offsets, special)
    assert np.array_equal(scores_of([moved], starts, ends), scores_of([text], starts, ends))


def test_the_first_token_counts_where_its_products_are_the_largest():
    """Eq. 4 is over all tokens, special ones included."""
    text = TextVectors(
        torch.tensor([[1.0, 0.0]]), torch.tensor([[0, 1]]), torch.tensor([[9.0, 0.0], [0.0, 4.0]])
    )
    starts, ends = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    assert scores_of([text], starts, ends).tolist() == [[[9.0 + 4.0, 4.0 + 18.0]]]
    nothing = TextVectors(torch.zeros(0, 2), torch.zeros(0, 2, dtype=torch.int64), text.special)
    assert scores_of([nothing], starts, ends).tolist() == [[[13.0, 22.0]]]


def test_calibration_takes_off_what_a_question_gets_for_nothing():
    scores = np.array([[[1.0, 2.0], [1.5, 1.8]]])
    judged = Judged(scores, np.array([[0.5, 1.0]]), ["", ""])
    assert judged.positive("plain").tolist() == [[True, True]]
    assert judged.positive("calibrated").tolist() == [[True, False]]


def test_a_text_that_answers_both_questions_alike_is_negative_and_so_is_its_rationale():
    scores = np.tile([[[1.0, 1.5]]], (RATIONALES + 1, 1, 1))
    neutral = np.tile([[0.5, 1.0]], (RATIONALES + 1, 1))
    assert not Judged(scores, neutral, [""]).positive("calibrated").any()
    assert rationale_questions(scores, neutral) == [2 * RATIONALES]


def test_centred_scores_are_compared_with_those_of_all_texts():
    leads = [[1.0, 2.0, 6.0], [-3.0, -1.0, -2.9]]  # means 3 and -2.3
    scores = np.stack([np.zeros((2, 3)), np.array(leads)], axis=2) + 0.25
    judged = Judged(scores, np.array([[0.0, 9.0], [0.0, 9.0]]), [""] * 3)
    assert judged.leads().tolist() == leads
    assert judged.positive("centred").tolist() == [[False, False, True], [False, True, False]]


@pytest.mark.slow
def test_texts_are_judged_without_files_or_settings(tiny_bert, tmp_path):
    student = str(shutil.copytree(tiny_bert, tmp_path / "student"))
    save_heads(SpanHeads(16, "questions", seed=4), tmp_path / "student")
    encoder, texts = pairsmith.load_student(student, device="cpu"), ["A man is playing.", "It is cold."]
    judged = judge_by_questions(encoder, texts, item="product")
    assert (judged.scores.shape, judged.neutral.shape) == ((6, 2, 2), (6, 2))
    other = judge_by_questions(encoder, texts)
    of_movies = judge_by_questions(encoder, texts, item="movie")
    assert np.array_equal(other.scores, of_movies.scores)
    # Two of the prompts do not name what the texts are about.
    assert [np.array_equal(*both) for both in zip(judged.scores, other.scores, strict=True)] == [
        True, False, True, False, False, False,
    ]  # fmt: skip
    with torch.no_grad():
        encoder.heads.start[0].weight.fill_(torch.nan)
    with pytest.raises(ModelError, match="the model gives scores that are not finite"):
        judge_by_questions(encoder, texts)
