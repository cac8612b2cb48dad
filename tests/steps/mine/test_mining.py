"""The step ``mine``, on a random encoder."""

import json
from collections import Counter

import numpy as np
import pytest
import torch
from datasets import load_dataset

from pairsmith.core.errors import FolderError, InputError, ModelError, SettingsError, StorageError
from pairsmith.core.progress import Silent
from pairsmith.methods.mining.candidates import unpairable
from pairsmith.models.encode import encode_texts
from pairsmith.models.sentence_encoder import load_sentence_encoder
from pairsmith.runs import Run
from pairsmith.runs.mapped import record_shards
from pairsmith.steps.corpora import corpus as corpora
from pairsmith.steps.corpora import search
from pairsmith.steps.corpora.corpus import Unit, encoded_rows
from pairsmith.steps.mine import route
from pairsmith.steps.mine.route import mine
from pairsmith.steps.mine.settings import MineSettings
from pairsmith.steps.search_parts import check_index

pytestmark = pytest.mark.slow

INPUTS = [f"who plays the {thing}?" for thing in ("guitar", "drum", "flute", "harp", "horn", "lute", "bell")]
OUTPUTS = [f"a man plays the {thing} today" for thing in ("drum", "harp", "bell", "viol", "pipe", "gong")]


@pytest.fixture
def world(tmp_path, tiny_bert):
    (tmp_path / "in.txt").write_text("\n".join([*INPUTS, INPUTS[0]]) + "\n")
    (tmp_path / "out.txt").write_text("\ufeff" + "\n\n".join(OUTPUTS) + "\n")

    def settings(**changes):
        given = {"inputs": str(tmp_path / "in.txt"), "outputs": str(tmp_path / "out.txt")}
        return MineSettings(
            **{**given, "encoder": str(tiny_bert), "k": 3, "shard_size": 3, "dtype": "float32", **changes}
        )

    return tmp_path, settings


def files(folder):
    return {
        f"{part}/{path.name}": path.read_bytes()
        for part in ("data", "rejects", "inputs/data", "outputs/data", "search/data")
        for path in (folder / part).iterdir()
    }


def test_pairs_margins_and_scores(world, tiny_bert):
    tmp, settings = world
    folder = mine(settings(retrieval="forward"), Run(tmp / "out", Silent()))
    encoder = load_sentence_encoder(str(tiny_bert), device="cpu")
    x, y = (torch.nn.functional.normalize(torch.tensor(encode_texts(encoder, t))) for t in (INPUTS, OUTPUTS))
    cosines = x @ y.T
    usual = (cosines.topk(3, dim=1).values.mean(1)[:, None] + cosines.topk(3, dim=0).values.mean(0)) / 2
    margins = cosines / usual
    near = cosines.topk(3, dim=1).indices
    rows = folder.table().to_pylist()
    assert sorted(row["input"] for row in rows) == sorted(INPUTS)
    assert [row["margin"] for row in rows] == sorted((row["margin"] for row in rows), reverse=True)
    for row in rows:  # a random encoder's cosines are all alike: which of two is taken hangs on rounding
        i, j = INPUTS.index(row["input"]), OUTPUTS.index(row["output"])
        assert row["margin"] == pytest.approx(float(margins[i, j]), abs=1e-5)
        assert row["margin"] == pytest.approx(float(margins[i, near[i]].max()), abs=1e-5)
        assert row["score"] == pytest.approx(float(cosines[i, j]), abs=1e-5)


def test_the_folder(world):
    tmp, settings = world
    folder = mine(settings(), Run(tmp / "out", Silent()))
    names = ["id", "input", "output", "margin", "score", "input_id", "output_id"]
    assert folder.table().column_names == names
    rows = folder.table().to_pylist()
    assert all(row["id"] == f"{row['input_id']}-{row['output_id']}" for row in rows)
    assert len({row["input"] for row in rows}) == len({row["output"] for row in rows}) == len(rows) >= 2
    assert [r["filter"] for r in folder.rejects().to_pylist()] == ["duplicate"]
    assert set(folder.manifest.inputs) == {"inputs 1", "outputs 1"}
    card = (tmp / "out/README.md").read_text()
    assert "put together by a program" in card
    assert "- synthetic" not in card
    assert load_dataset(str(tmp / "out"), cache_dir=str(tmp / "cache"))["train"].num_rows == folder.rows
    assert not list((tmp / "out").glob(".pairsmith-*"))


def test_the_best_and_those_above_a_threshold(world):
    tmp, settings = world
    every = mine(settings(), Run(tmp / "every", Silent())).table().to_pylist()
    best = mine(settings(best=2), Run(tmp / "best", Silent()))
    assert best.table().to_pylist() == every[:2]
    border = (every[0]["margin"] + every[1]["margin"]) / 2
    above = mine(settings(threshold=border), Run(tmp / "above", Silent()))
    assert above.table().to_pylist() == every[:1]
    assert sum(r["filter"] == "margin" for r in above.rejects().to_pylist()) == len(every) - 1


def test_many_copies_are_saved_in_parts(world, monkeypatch):
    tmp, settings = world
    (tmp / "in.txt").write_text("\n".join([*INPUTS, *INPUTS[:5]]) + "\n")
    (tmp / "out.txt").write_text("\n".join([*OUTPUTS, *OUTPUTS[:4]]) + "\n")
    whole = mine(settings(best=1), Run(tmp / "whole", Silent()))
    monkeypatch.setattr(route, "SHARD_ROWS", 2)
    parts = mine(settings(best=1), Run(tmp / "parts", Silent()))
    assert parts.shard_rows() == [1, 0, 0, 0, 0]
    assert len(whole.rejects()) == 9
    ids = parts.rejects()["id"].to_pylist()
    assert sorted(ids) == sorted(whole.rejects()["id"].to_pylist())
    assert parts.table().equals(whole.table())


def test_all_candidates_input_by_input(world):
    tmp, settings = world
    rows = mine(settings(retrieval="candidates", k=2), Run(tmp / "out", Silent())).table().to_pylist()
    of_input = Counter(row["input"] for row in rows)
    assert set(of_input) == set(INPUTS)
    assert min(of_input.values()) >= 2
    assert min(Counter(row["output"] for row in rows).values()) >= 2
    assert len({row["id"] for row in rows}) == len(rows)
    order = [(INPUTS.index(row["input"]), -row["margin"]) for row in rows]
    assert order == sorted(order)
    some = (
        mine(settings(retrieval="candidates", k=2, best=3), Run(tmp / "some", Silent())).table().to_pylist()
    )
    for name in ("out", "some"):
        assert "| inputs without a candidate | 0 |" in (tmp / name / "README.md").read_text()
    largest = sorted(rows, key=lambda row: -row["margin"])[:3]
    assert some == [row for row in rows if row in largest]


def test_verbatim_pairs_are_no_pairs():
    assert "output occurs" in unpairable("where is Rome, Italy?", "Italy", None)
    assert "input occurs" in unpairable("Italy", "Italy is a country", None)
    assert unpairable("Italy", "Rome", None) == ""
    assert "answer occurs" in unpairable("where is ROME, Italy?", "Rome: Rome is in Italy", "Rome")
    assert unpairable("where is Rome?", "Italy: where is Rome?", "Italy") == ""
    assert unpairable("what is a complexity class?", "P: P is a class", "P") == ""
    assert unpairable("the cat sat", "at", None) == ""


def test_stopped_while_encoding_it_goes_on_to_the_same_bytes(world, monkeypatch):
    tmp, settings = world
    mine(settings(), Run(tmp / "whole", Silent()))
    calls, real = [], corpora.encode_texts

    def failing(encoder, texts, **more):
        calls.append(len(texts))
        if len(calls) == 4:
            raise StorageError("no space left")
        return real(encoder, texts, **more)

    monkeypatch.setattr(corpora, "encode_texts", failing)
    with pytest.raises(StorageError):
        mine(settings(), Run(tmp / "out", Silent()))
    assert calls == [3, 3, 2, 3]  # the inputs are done
    mine(settings(), Run(tmp / "out", Silent()))
    assert calls[4:] == [3, 3]
    assert files(tmp / "out") == files(tmp / "whole")


def test_other_settings_of_the_search_keep_the_vectors(world, monkeypatch):
    tmp, settings = world
    mine(settings(), Run(tmp / "out", Silent()))
    monkeypatch.setattr(corpora, "encode_texts", None)
    mine(settings(), Run(tmp / "out", Silent()))  # nothing to do
    with pytest.raises(FolderError, match="margin"):
        mine(settings(margin="distance"), Run(tmp / "out", Silent()))
    folder = mine(settings(margin="distance"), Run(tmp / "out", Silent(), fresh=True))
    assert all(row["margin"] < 1 for row in folder.table().to_pylist())


@pytest.mark.long
def test_two_workers_write_the_same_bytes(world):
    tmp, settings = world
    mine(settings(), Run(tmp / "one", Silent()))
    mine(settings(workers=2), Run(tmp / "two", Silent()))
    assert files(tmp / "one") == files(tmp / "two")


def test_k_may_be_larger_than_the_corpora(world):
    tmp, settings = world
    assert mine(settings(k=50), Run(tmp / "out", Silent())).rows


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("same\n" * 5, r"1 of 5 texts can be paired \(left out: 4 copies\); a search"),
        ("one\n", "1 of 1 text can be paired; a search"),
        ("\n\n", "holds no documents"),
    ],
)
def test_corpora_without_two_texts_are_refused(world, text, message):
    tmp, settings = world
    (tmp / "out.txt").write_text(text)
    with pytest.raises(InputError, match=message):
        mine(settings(), Run(tmp / "out", Silent()))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"index": "IVF4096,Falt"}, "IVF4096,Falt"),
        ({"index": "IVF1,Flat"}, "fewer than 2 lists"),
        ({"kind": "reading", "answers": "rul"}, "no answer finder is called 'rul'"),
    ],
)
def test_what_cannot_be_done_is_told_before_anything_is_encoded(world, given, message, monkeypatch):
    tmp, settings = world
    monkeypatch.setattr(route, "encode_corpus", lambda *_: pytest.fail("encoded"))
    with pytest.raises(SettingsError, match=message):
        mine(settings(**given), Run(tmp / "out", Silent()))
    monkeypatch.undo()
    assert mine(settings(), Run(tmp / "out", Silent())).rows  # nothing that was done stands in the way


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"output_column": "body"}, "outputs.jsonl has no column 'body'"),
        ({"group_column": "day"}, "outputs.jsonl has no column 'day'"),
        ({"output_column": "text"}, "outputs.jsonl:2: column 'text' holds a number, not text"),
    ],
)
def test_a_fault_of_the_outputs_is_told_before_the_inputs_are_encoded(world, given, message, monkeypatch):
    tmp, settings = world
    rows = [{"text": text, "day": "2020-01-01"} for text in INPUTS]
    (tmp / "inputs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp / "outputs.jsonl").write_text('{"text": "One."}\n{"text": 2}\n')
    files = {"inputs": str(tmp / "inputs.jsonl"), "outputs": str(tmp / "outputs.jsonl")}
    monkeypatch.setattr(route, "encode_corpus", lambda *_: pytest.fail("encoded"))
    with pytest.raises(InputError, match=message):
        mine(settings(**files, **given), Run(tmp / "out", Silent()))
    monkeypatch.undo()
    mended = settings(inputs=files["inputs"])  # the folder, in which nothing was made, takes other settings
    assert mine(mended, Run(tmp / "out", Silent())).rows


@pytest.mark.parametrize(
    ("given", "remedy"), [({}, "larger --search-rows"), ({"index": "Flat"}, "leave out")]
)
def test_a_search_of_too_many_parts_says_what_makes_fewer(world, given, remedy, monkeypatch):
    tmp, settings = world
    monkeypatch.setattr(search, "MOST_SHARDS", 1)
    with pytest.raises(SettingsError, match=rf"the search has \d+ parts, more than 1; .*{remedy}"):
        mine(settings(search_rows=1, **given), Run(tmp / "out", Silent()))


@pytest.mark.parametrize(
    "index", ["Flat", "IVF64,PQ100x4fs", "OPQ48_192,IVF16,PQ48x4fs", "HNSW16", "PCA64,SQ8"]
)
def test_an_index_of_any_width_is_let_through(index):
    check_index(index)


def test_the_reason_is_named_where_nothing_is_left_of_a_corpus(world):
    tmp, settings = world
    with pytest.raises(InputError, match=r"0 of \d+ texts can be paired \(left out: \d+ too short: "):
        mine(settings(kind="summaries", min_sentences=9), Run(tmp / "out", Silent()))


def test_a_shard_of_more_numbers_than_arrow_counts_is_refused_with_what_to_do(world, monkeypatch):
    tmp, settings = world
    monkeypatch.setattr(corpora, "_MOST_NUMBERS", 40)
    with pytest.raises(SettingsError, match=r"vectors of 16 numbers are more than a shard can hold \(2\)"):
        mine(settings(), Run(tmp / "out", Silent()))


def test_vectors_without_direction_and_numbers():
    units = [Unit("a", "f:1"), Unit("b", "f:2")]
    options = MineSettings(inputs="a", outputs="b", encoder="m").encoding()
    rows, rejects = encoded_rows(units, np.array([[0, 0], [3, 4]], np.float32), options)
    assert rows["vector"].to_pylist() == [pytest.approx([0.6, 0.8])]
    assert rejects["filter"].to_pylist() == ["zero vector"]
    assert json.loads(rejects["row"][0].as_py()) == {"text": "a", "where": "f:1"}
    with pytest.raises(ModelError, match="the text in f:2 is not finite"):
        encoded_rows(units, np.array([[1, 0], [np.nan, 4]], np.float32), options)


def test_shards_are_read_in_order_and_finished_ones_skipped(world):
    _, settings = world
    records = route.corpora(settings())[0].records
    every = [*INPUTS, INPUTS[0]]
    for numbers in ([0, 1, 2], [1, 2], [0, 2], [2], []):
        shards = list(record_shards(records, 3, numbers))
        assert [shard.number for shard in shards] == numbers
        for shard in shards:
            texts = [record.text for record in shard.records]
            assert texts == every[3 * shard.number : 3 * shard.number + 3]
