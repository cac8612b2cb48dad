"""The distinct texts of an encoded corpus, by hand."""

import numpy as np
import pyarrow as pa
import pytest
from tests.folders import write_folder

from pairsmith.steps.corpora import encoded
from pairsmith.steps.corpora.encoded import Encoded, encoded_schema

# Number of the text, its id and its group; rows 2, 4 and 6 repeat a text and a group.
ROWS = [(0, "a", "mon"), (1, "b", "tue"), (None, "a", "mon"), (2, "a", "tue"), (None, "b", "tue"),
        (3, "c", "mon"), (None, "a", "tue"), (4, "b", "mon")]  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    tables = []
    for shard, rows in enumerate((ROWS[:3], ROWS[3:5], ROWS[5:])):
        columns = {
            "id": [row[1] for row in rows],
            "text": [f"text {row[1]}" for row in rows],
            "group": [row[2] for row in rows],
            "vector": [[float(3 * shard + place), 0.5] for place in range(len(rows))],
        } | {name: [None] * len(rows) for name in ("context", "answer", "answer_start")}
        tables.append({"train": pa.table(columns, schema=encoded_schema("float32"))})
    return write_folder(tmp_path / "x", *tables, step="encode")


@pytest.mark.parametrize("at_once", [2, 2**22])
def test_the_first_of_each_text_and_group(folder, tmp_path, at_once, monkeypatch):
    monkeypatch.setattr(encoded, "ROWS_AT_ONCE", at_once)
    corpus = Encoded.of(folder, tmp_path / "file")
    assert len(corpus) == 5
    assert np.flatnonzero(corpus.distinct).tolist() == [0, 1, 3, 5, 7]
    groups = {name: numbers.tolist() for name, numbers in corpus.groups().items()}
    assert groups == {"mon": [0, 3, 4], "tue": [1, 2]}
    assert list(groups) == ["mon", "tue"]
    assert corpus.firsts().tolist() == [0, 1, 0, 3, 1]
    assert corpus.vectors.select(np.arange(5))[:, 0].tolist() == [0.0, 1.0, 3.0, 6.0, 8.0]
    assert corpus.vectors.select(np.array([1, 4]))[:, 0].tolist() == [1.0, 8.0]
    assert corpus.copy_count == 3
    for first, stop in ((0, 9), (0, 3), (0, 1), (1, 3), (2, 9), (3, 9)):
        assert corpus.copies("inputs", first, stop)["id"].to_pylist() == ["a", "b", "a"][first:stop]
    assert [row for table in corpus.texts() for row in table["id"].to_pylist()] == ["a", "b", "a", "c", "b"]
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["file"]
