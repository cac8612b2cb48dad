"""Batches of rows of similar length, and their results."""

import pytest
import torch

from pairsmith.core.errors import ModelError
from pairsmith.models.encode import batches_by_length, encode_texts, results_by_length
from pairsmith.models.sentence_encoder import load_sentence_encoder
from pairsmith.training.contrastive import side_features, side_vectors

LENGTHS = [3, 9, 1, 9, 4]


@pytest.mark.parametrize(
    ("limits", "batches"),
    [
        ({}, [[1, 3, 4, 0, 2]]),
        ({"batch_size": 2}, [[1, 3], [4, 0], [2]]),
        ({"batch_tokens": 12}, [[1], [3], [4, 0, 2]]),
        ({"batch_size": 2, "batch_tokens": 18}, [[1, 3], [4, 0], [2]]),
        ({"batch_tokens": 1}, [[1], [3], [4], [0], [2]]),
    ],
)
def test_the_longest_rows_come_first_and_a_batch_keeps_to_its_limits(limits, batches):
    assert list(batches_by_length(LENGTHS, **limits)) == batches


def test_each_batch_comes_with_its_result_and_the_threads_are_set_back():
    threads = torch.get_num_threads()
    results = results_by_length(
        LENGTHS,
        lambda rows: [LENGTHS[row] for row in rows],
        lambda lengths: (sum(lengths), torch.get_num_threads()),
        torch.device("cpu"),
        batch_size=2,
    )
    assert list(results) == [([1, 3], (18, 1)), ([4, 0], (7, 1)), ([2], (1, 1))]
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("place", ["features", "compute", "loop"])
def test_an_error_sets_the_threads_back(place):
    def check(name):
        if name == place:
            raise RuntimeError(name)

    def loop():
        for _ in results_by_length(
            LENGTHS, lambda _: check("features"), lambda _: check("compute"), torch.device("cpu")
        ):
            check("loop")

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(RuntimeError, match=place) as caught:
            loop()
        assert caught.tb is not None  # it holds the frame of the loop
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_token_that_the_encoder_has_no_vector_for_is_an_error_of_the_model(tiny_bert):
    encoder = load_sentence_encoder(tiny_bert, device="cpu")
    encoder.tokenizer.add_tokens(["unheard"])
    assert encode_texts(encoder, ["A man"]).shape == (1, 16)
    with pytest.raises(ModelError, match=r"gives the token \d+, but the model has vectors only for tokens"):
        encode_texts(encoder, ["A man unheard"])
    features = side_features(encoder, ["A man unheard"], "query")
    with pytest.raises(ModelError, match=r"gives the token \d+, but the model has vectors only for tokens"):
        side_vectors(encoder, features, "query")
