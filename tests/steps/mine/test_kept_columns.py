"""Mined pairs that keep columns of the records that their texts are from."""

import json
from pathlib import Path

import pytest
from tests.tiny_bart import make_bart
from tests.training.few import PLAYS, document, passage, write

from pairsmith.core.errors import FolderError, InputError
from pairsmith.core.progress import Silent
from pairsmith.runs import Run
from pairsmith.steps.mine import route
from pairsmith.steps.mine.filter import filter_pairs
from pairsmith.steps.mine.plan import plan_mine
from pairsmith.steps.mine.rewrite import rewrite
from pairsmith.steps.mine.route import mine
from pairsmith.steps.mine.settings import FilterSettings, MineSettings, RewriteSettings

pytestmark = pytest.mark.slow

KEPT = {"keep_input_column": ["url", "id"], "keep_output_column": ["URL", "n"]}
NAMES = ["input_url", "original_input_id", "output_URL", "output_n"]


@pytest.fixture
def world(tmp_path, tiny_bert):
    """Two corpora of each kind, whose records have addresses; some texts occur twice."""

    def record(number, text, corpus):
        url = {} if number == 5 else {"url": f"{corpus}/{number}"}  # one record lacks it
        return {"id": 100 + number, "text": text, "day": f"2020-01-0{1 + number % 3}", "n": number, **url}

    def corpus(name, texts):
        return write(
            tmp_path / f"{name}.jsonl", [record(number, text, name) for number, text in enumerate(texts)]
        )

    asked = [f"who plays the {play}?" for play in PLAYS]
    sources = {
        "pairs": (corpus("asked", [*asked, asked[2], asked[3]]), corpus("told", map(passage, range(12)))),
        "reading": (
            corpus("questions", asked),
            corpus("passages", [*(f"{passage(n)} {passage((n + 1) % 12)}" for n in range(12)), passage(3)]),
        ),
        "summaries": (
            corpus("long", map(document, range(12))),
            corpus("others", [*map(document, range(12)), document(2)]),
        ),
    }

    def settings(kind, **changes):
        inputs, outputs = sources[kind]
        given = {"inputs": inputs, "outputs": outputs, "encoder": str(tiny_bert), "k": 3, "shard_size": 5}
        given |= {"summaries": {"group_column": "day"}, "reading": {"window": 12}}.get(kind, {})
        return MineSettings(kind=kind, **{**given, **changes})

    return tmp_path, settings


def records(file):
    return [json.loads(line) for line in Path(file).read_text().splitlines()]


@pytest.mark.parametrize("kind", ["pairs", "reading", "summaries"])
def test_columns_are_those_of_the_first_record_with_the_text(world, kind):
    tmp, settings = world
    plain = mine(settings(kind, retrieval="candidates"), Run(tmp / "plain", Silent()))
    given = settings(kind, retrieval="candidates", **KEPT)
    folder = mine(given, Run(tmp / "kept", Silent()))
    assert folder.table().drop_columns(NAMES) == plain.table()
    assert folder.schema().names == [*plain.schema().names, *NAMES]
    assert plan_mine(given, {}).sample.schema == folder.schema()
    inputs, outputs = records(given.inputs[0]), records(given.outputs[0])
    assert folder.table().num_rows
    for row in folder.table().to_pylist():
        first = next(record for record in inputs if record["text"] == row["input"])
        assert (row["original_input_id"], row["input_url"]) == (str(first["id"]), first.get("url"))
        text = row.get("context") or row["output"]
        first = next(record for record in outputs if text in record["text"])
        assert (row["output_n"], row["output_URL"]) == (str(first["n"]), first.get("url"))


def test_nothing_is_encoded_again_for_them_and_a_stopped_run_gives_the_same_bytes(world, monkeypatch):
    tmp, settings = world
    mine(settings("pairs"), Run(tmp / "out", Silent()))
    encoded = (tmp / "out" / "inputs" / "manifest.json").read_bytes()
    with pytest.raises(FolderError, match="keep_input_column"):
        mine(settings("pairs", **KEPT), Run(tmp / "out", Silent()))
    with monkeypatch.context() as patched:
        patched.setattr(route, "_commit", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            mine(settings("pairs", **KEPT), Run(tmp / "out", Silent(), fresh=True))
    stopped = mine(settings("pairs", **KEPT), Run(tmp / "out", Silent()))
    assert (tmp / "out" / "inputs" / "manifest.json").read_bytes() == encoded
    at_once = mine(settings("pairs", **KEPT), Run(tmp / "once", Silent()))
    files = [
        [file.read_bytes() for file in sorted((one.path / "data").iterdir())] for one in (stopped, at_once)
    ]
    assert files[0] == files[1]


def test_a_corpus_that_changes_before_it_is_read_again_is_told(world, monkeypatch):
    tmp, settings = world
    encode_corpus = route.encode_corpus

    def then_changed(corpus, *others):
        folder, source = encode_corpus(corpus, *others), Path(corpus.sources[0])
        source.write_text(source.read_text().replace("guitar", "sitar"))
        return folder

    monkeypatch.setattr(route, "encode_corpus", then_changed)
    with pytest.raises(
        InputError, match=r"asked\.jsonl has changed while it was read; finished work is kept"
    ):
        mine(settings("pairs", **KEPT), Run(tmp / "out", Silent()))


def test_pairs_below_the_threshold_and_filtered_ones_keep_them_and_the_card_names_them(world):
    tmp, settings = world
    folder = mine(settings("pairs", threshold=1.0, **KEPT), Run(tmp / "out", Silent()))
    below = [
        json.loads(reject["row"]) for reject in folder.rejects().to_pylist() if reject["filter"] == "margin"
    ]
    assert below
    assert all(set(NAMES) <= set(row) for row in below)
    assert "the column URL of the outputs" in (tmp / "out" / "README.md").read_text()
    best = filter_pairs(
        FilterSettings(pairs=str(tmp / "out"), judge="margin", best=2), Run(tmp / "f", Silent())
    )
    assert best.table().select(NAMES).to_pylist() == folder.table().select(NAMES).to_pylist()[:2]


def test_of_a_side_that_is_written_anew_none_is_kept(world):
    tmp, settings = world
    mined = mine(settings("summaries", best=3, **KEPT), Run(tmp / "mined", Silent()))
    bart = make_bart(tmp / "bart")
    again = rewrite(
        RewriteSettings(kind="summaries", pairs=str(mined.path), model=str(bart), beams=1, device="cpu"),
        Run(tmp / "again", Silent()),
    )
    assert again.schema().names == ["id", "input", "output", "input_url", "original_input_id"]


def test_all_missing_columns_are_named_before_anything_is_encoded(world, monkeypatch):
    tmp, settings = world
    monkeypatch.setattr(route, "encode_corpus", lambda *_: pytest.fail("encoded"))
    wrong = settings("pairs", keep_input_column=["ulr", "n", "by"], keep_output_column=["author"])
    with pytest.raises(InputError) as told:
        mine(wrong, Run(tmp / "out", Silent()))
    first, second = str(told.value).splitlines()
    assert first.startswith(
        f"--keep-input-column: {tmp}/asked.jsonl has no column 'ulr', 'by'; did you mean 'url'?"
    )
    assert second.endswith("told.jsonl has no column 'author'; it has: id, text, day, n, url")
