"""The files of neighbours that ``negatives`` maps: what was read or written in parts leaves the memory."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import torch
from tests.memory import kilobytes_in_memory, tells_what_is_in_memory

from pairsmith.search.exact import Neighbours
from pairsmith.steps import search_parts
from pairsmith.steps.negatives import choosing
from pairsmith.steps.negatives.candidates import ToJudge
from pairsmith.steps.negatives.choosing import choose_negatives, shard_of_rows
from pairsmith.steps.negatives.settings import NegativesSettings
from pairsmith.steps.search_parts import NeighbourFile

QUERIES, RANKS = 1000, 100


@pytest.fixture
def candidates(tmp_path, monkeypatch):
    """Candidates of 1,000 queries in a file of 800 kB: text r of query q has the cosine 1 - r / 100."""
    monkeypatch.setattr(search_parts, "PAIRS_AT_ONCE", 1000)
    monkeypatch.setattr(choosing, "PAIRS_AT_ONCE", 10)
    file = NeighbourFile.empty(QUERIES, RANKS, tmp_path / "near")
    cosines = (1 - torch.arange(RANKS) / RANKS).expand(QUERIES, -1)
    file.write(0, Neighbours(torch.arange(RANKS).expand(QUERIES, -1), cosines))
    return file


def one_pair_of_each_query():
    queries, no_fault = np.arange(QUERIES), np.zeros(QUERIES, np.uint8)
    texts = pa.array([f"text {number}" for number in queries])
    table = pa.table({"query": texts, "positive": texts, "query_id": texts})
    return SimpleNamespace(fault=no_fault, good=queries, query=queries, first=queries, table=table)


class Passages:
    def rows(self, numbers):
        return [{"id": str(number), "text": f"passage {number}"} for number in numbers]


@tells_what_is_in_memory
def test_choosing_leaves_no_candidates_in_memory(candidates, tmp_path):
    settings = NegativesSettings(
        pairs="x", corpus=["y"], encoder="e", negatives=100, positive_share=0.5, last_rank=100
    )
    pairs, scores = one_pair_of_each_query(), np.ones(QUERIES, np.float32)
    chosen = choose_negatives(pairs, candidates, scores, settings, tmp_path / "chosen")
    assert kilobytes_in_memory(tmp_path / "near") < 100
    assert kilobytes_in_memory(tmp_path / "chosen") < 100
    assert set(chosen.counts()) == {50}  # cosines 0.50 to 0.01, of the limit 0.5
    positives = SimpleNamespace(pairs=pairs, passages=Passages(), texts=lambda rows: ["positive"] * len(rows))
    rows, rejects = shard_of_rows(slice(0, QUERIES), positives, chosen, scores, settings)
    assert (rows["train"].num_rows, rejects.num_rows) == (QUERIES, 0)
    assert kilobytes_in_memory(tmp_path / "chosen") < 100


@tells_what_is_in_memory
def test_a_judge_leaves_no_candidates_in_memory(candidates, tmp_path):
    pairs = one_pair_of_each_query()
    positives = SimpleNamespace(pairs=pairs, passages=Passages(), texts=lambda rows: ["positive"] * len(rows))
    todo = ToJudge.of(positives, candidates)
    assert todo.rows(0, QUERIES).num_rows == QUERIES * RANKS + QUERIES
    assert kilobytes_in_memory(tmp_path / "near") < 100
    scores = pa.table({"score": np.arange(100 * (RANKS + 1), dtype=np.float32)})
    of_positives = np.zeros(QUERIES, np.float32)
    folder = SimpleNamespace(shards=lambda split: [scores] * (QUERIES // 100))
    todo.unpack(folder, 100, of_positives)
    assert kilobytes_in_memory(tmp_path / "near") < 100
    assert candidates.similarities[[0, 99, 100, 999], [0, 99, 0, 99]].tolist() == [0, 9999, 0, 9999]
    assert of_positives[[0, 99, 100]].tolist() == [10000, 10099, 10000]
