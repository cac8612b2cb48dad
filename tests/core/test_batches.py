"""Batches of rows, whatever holds them."""

import numpy as np
import pytest
import torch

from pairsmith.core.batches import in_batches


@pytest.mark.parametrize("rows", [[1, 2, 3, 4, 5], "abcde", range(5), np.arange(5), torch.arange(5)])
def test_the_last_batch_may_be_smaller(rows):
    batches = list(in_batches(rows, 2))
    assert [len(batch) for batch in batches] == [2, 2, 1]
    assert {type(batch) for batch in batches} == {type(rows)}
    assert [row for batch in batches for row in batch] == list(rows)


def test_without_rows_there_is_no_batch():
    assert list(in_batches([], 2)) == []


def test_batches_of_a_range_say_where_they_begin_and_end():
    assert [(batch.start, batch.stop) for batch in in_batches(range(5), 3)] == [(0, 3), (3, 5)]
