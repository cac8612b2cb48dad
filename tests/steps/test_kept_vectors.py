"""Vectors of a corpus that several steps keep in one folder."""

import errno
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.heard import Heard

from pairsmith.cli import planning
from pairsmith.cli.recipes import find_recipe, load_recipe
from pairsmith.cli.running import run_recipe
from pairsmith.core import model_files
from pairsmith.core.errors import StorageError
from pairsmith.core.paths import place
from pairsmith.data.query_rows import read_corpus
from pairsmith.runs import Run, storage
from pairsmith.runs.estimate import Estimate
from pairsmith.steps import kept_vectors
from pairsmith.steps.corpora import corpus as encoding
from pairsmith.steps.evaluate import retrievers
from pairsmith.steps.evaluate.retrieval import evaluate_retrieval
from pairsmith.steps.evaluate.retrieval_settings import EvaluateRetrievalSettings
from pairsmith.steps.kept_vectors import KeptVectors, VectorOptions
from pairsmith.steps.negatives.route import negatives
from pairsmith.steps.negatives.settings import NegativesSettings
from pairsmith.steps.retrieval.filter_queries import filter_queries
from pairsmith.steps.retrieval.settings import FilterQueriesSettings
from pairsmith.steps.search import route
from pairsmith.steps.search.settings import SearchSettings

WORDS = ("horn", "lute", "bell", "drum", "harp", "onion", "market", "dog", "beach", "horse")

# A folder of vectors


DECIDING = {
    "device": "cpu", "dtype": "float32", "max_length": None, "batch_size": 64,
    "batch_tokens": None, "pooling": "default", "prompt": None, "dimensions": None,
}  # fmt: skip


def lengths(texts, advance):
    """Stands in for an encoder: the vector of a text has its length."""
    advance(len(texts))
    return np.array([[len(text), 1] for text in texts], np.float32)


def vectors(folder, texts, encode=lengths, revision="1", **changes):
    """The vectors, and whether they were encoded."""
    calls, finished = [], []

    def encoded(texts, advance):
        calls.append(texts)
        return encode(texts, advance=advance)

    kept = KeptVectors.of(place(str(folder)), revision, VectorOptions(**DECIDING | changes))
    array = kept.vectors(texts, encoded, finished.append)
    assert sum(finished) == len(texts)
    return array, bool(calls)


def test_a_block_is_encoded_once(tmp_path):
    first, encoded = vectors(tmp_path / "kept", ["a", "bcd"])
    assert (first.tolist(), encoded) == ([[1, 1], [3, 1]], True)
    again, encoded = vectors(tmp_path / "kept", ["a", "bcd"])
    assert (again.tobytes(), again.dtype, encoded) == (first.tobytes(), np.float32, False)


@pytest.mark.parametrize(
    "change",
    [
        {"revision": "2"}, {"device": "cuda:1"}, {"dtype": "bfloat16"}, {"max_length": 256},
        {"batch_size": 32}, {"batch_tokens": 512}, {"pooling": "cls"}, {"prompt": ""}, {"dimensions": 1},
    ],
)  # fmt: skip
def test_all_that_decides_vectors_has_files_of_its_own(change, tmp_path, monkeypatch):
    monkeypatch.setattr(kept_vectors, "pick_device", str)
    monkeypatch.setattr(kept_vectors, "processor_of", str)
    assert vectors(tmp_path, ["a"])[1]
    assert vectors(tmp_path, ["a"], **change)[1]
    assert not vectors(tmp_path, ["a"], **change)[1]
    assert not vectors(tmp_path, ["a"])[1]


@pytest.mark.parametrize("texts", [["b", "a"], ["ab"], ["a"], ["a", "b", "c"], ["a", "1:b"], ["A", "b"]])
def test_other_texts_have_files_of_their_own(texts, tmp_path):
    vectors(tmp_path, ["a", "b"])
    assert vectors(tmp_path, texts)[1]


def test_two_gpus_count_as_one_only_if_they_are_the_same_model(tmp_path, monkeypatch):
    monkeypatch.setattr(kept_vectors, "pick_device", str)
    models = {"cuda:0": "NVIDIA H200", "cuda:1": "NVIDIA H200", "cuda:2": "NVIDIA L4"}
    monkeypatch.setattr(torch.cuda, "get_device_name", models.__getitem__)
    vectors(tmp_path, ["a"], device="cuda:0")
    assert not vectors(tmp_path, ["a"], device="cuda:1")[1]
    assert vectors(tmp_path, ["a"], device="cuda:2")[1]


def test_cpus_with_other_instructions_count_as_others(tmp_path, monkeypatch):
    vectors(tmp_path, ["a"])
    with monkeypatch.context() as patch:
        patch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2000")
        assert vectors(tmp_path, ["a"])[1]
    has = model_files.processor_has
    monkeypatch.setattr(model_files, "processor_has", lambda name: has(name) != (name == "amx_fp16"))
    assert vectors(tmp_path, ["a"])[1]


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda _: b"", lambda data: data[:-1] + b"\1"])
def test_a_damaged_file_is_made_again(damage, tmp_path):
    expected, _ = vectors(tmp_path, ["a", "b"])
    (file,) = tmp_path.iterdir()
    sound = file.read_bytes()
    file.write_bytes(damage(sound))
    again, encoded = vectors(tmp_path, ["a", "b"])
    assert (again.tolist(), encoded, file.read_bytes()) == (expected.tolist(), True, sound)


def test_what_another_process_encodes_meanwhile_does_no_harm(tmp_path):
    def slowly(texts, advance):
        vectors(tmp_path, texts)  # the other one begins later and ends first
        return lengths(texts, advance)

    assert vectors(tmp_path, ["a", "bc"], slowly)[0].tolist() == [[1, 1], [2, 1]]
    assert len(list(tmp_path.iterdir())) == 1
    assert not vectors(tmp_path, ["a", "bc"])[1]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_what_cannot_be_written_is_told_in_a_line(number, tmp_path, monkeypatch):
    def refused(*_):
        raise OSError(number, "refused")

    monkeypatch.setattr(storage, "_write_synced", refused)
    with pytest.raises(StorageError, match="cannot write .*(no space left|permission denied)") as error:
        vectors(tmp_path / "kept", ["a"])
    assert "\n" not in str(error.value)
    assert not any((tmp_path / "kept").iterdir())


# In the steps


@pytest.fixture
def world(tmp_path, tiny_bert, monkeypatch):
    """Functions that run each step with these settings; 40 chunks, encoded in blocks of 15."""
    monkeypatch.setattr(retrievers, "BLOCK", 15)
    monkeypatch.setattr(route, "BLOCK", 15)
    monkeypatch.setattr(retrievers, "DOCUMENTS_AT_ONCE", 30)
    rng = np.random.default_rng(0)
    chunks = [
        {"id": f"c{n * 7 % 40}", "title": "Of horns" if n % 2 else "", "text": " ".join(words)}
        for n, words in enumerate(rng.choice(WORDS, (40, 5)).tolist())
    ]
    queries = [
        {"query": " ".join(row["text"].split()[:3]), "positive": row["text"], "chunk": row["id"]}
        for row in chunks[::4]
    ]
    for name, rows in (("chunks", chunks), ("queries", queries)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    corpus, asked = str(tmp_path / "chunks.jsonl"), str(tmp_path / "queries.jsonl")
    base = {"corpus": corpus, "device": "cpu", "dtype": "float32"}

    def step(function, model, more):
        def run(out, heard=None, **changes):
            run = Run(tmp_path / out, heard or Heard())
            function(model(**base | {"encoder": str(tiny_bert), "shard_size": 15} | more | changes), run)
            return {file.name: file.read_bytes() for file in (tmp_path / out / "data").iterdir()}

        return run

    def evaluation(out, heard=None, **changes):
        given = base | {"model": str(tiny_bert), "data": asked, "bootstrap": 10} | changes
        evaluate_retrieval(EvaluateRetrievalSettings(**given), Run(tmp_path / out, heard or Heard()))
        return (tmp_path / out / "predictions.jsonl").read_bytes()

    def searching(_, heard=None, **changes):
        given = base | {"model": str(tiny_bert), "keep_vectors": "vectors" in changes} | changes
        search = route.DocumentSearch(SearchSettings(**given), read_corpus([corpus]), heard or Heard())
        return [(hit.document.id, hit.score) for hit in next(search.best(["a horn"]))]

    return {
        "filter-queries": step(filter_queries, FilterQueriesSettings, {"queries": asked, "within": 40}),
        "negatives": step(negatives, NegativesSettings, {"pairs": asked, "last_rank": 10}),
        "evaluate retrieval": evaluation,
        "search": searching,
    }


@pytest.fixture
def encoded(monkeypatch):
    """How many documents were encoded in each call."""
    counts = []

    def counting(encode):
        def counted(encoder, texts, *, side=None, **options):
            if side == "document":
                counts.append(len(texts))
            return encode(encoder, texts, side=side, **options)

        return counted

    for module in (encoding, retrievers, route):
        monkeypatch.setattr(module, "encode_texts", counting(module.encode_texts))
    return counts


@pytest.mark.slow
def test_a_corpus_is_encoded_once_for_all_steps(world, encoded, tmp_path):
    kept = str(tmp_path / "kept")
    for number, (name, step) in enumerate(world.items()):
        encoded.clear()
        alone = step(f"alone {name}")
        assert encoded == [15, 15, 10]
        heard = Heard()
        encoded.clear()
        assert step(f"shared {name}", heard, vectors=kept) == alone
        assert encoded == ([] if number else [15, 15, 10])
        said = f"the vectors of 40 of 40 texts are already in {kept}"
        assert (said in heard.lines) == (number > 0)
    assert len(list((tmp_path / "kept").iterdir())) == 3
    assert not (tmp_path / "shared evaluate retrieval" / "vectors-so-far").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["negatives", "evaluate retrieval"])
def test_a_stopped_step_leaves_its_vectors_to_others(name, world, encoded, tmp_path, monkeypatch):
    kept = str(tmp_path / "kept")
    whole = world[name]("whole")
    with monkeypatch.context() as patch:
        done = []

        def write_once(*arguments):
            if done:
                raise KeyboardInterrupt
            done.append(storage.write_atomic(*arguments))

        patch.setattr(kept_vectors, "write_atomic", write_once)
        with pytest.raises(KeyboardInterrupt):
            world["filter-queries"]("stopped", vectors=kept)
    encoded.clear()
    heard = Heard()
    assert world[name]("other", heard, vectors=kept) == whole
    assert encoded == [15, 10]
    assert f"the vectors of 15 of 40 texts are already in {kept}" in heard.lines
    encoded.clear()
    world["filter-queries"]("stopped", vectors=kept)
    assert encoded == []


@pytest.mark.slow
def test_only_texts_that_changed_are_encoded_anew(world, encoded, tmp_path):
    kept = str(tmp_path / "kept")
    world["negatives"]("before", vectors=kept)
    file = tmp_path / "chunks.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    lines[21] = json.dumps({"id": "new", "title": "", "text": "harp and horse"}) + "\n"
    file.write_text("".join(lines))
    encoded.clear()
    changed = world["negatives"]("after", vectors=kept)
    assert encoded == [15]
    assert changed == world["negatives"]("alone")


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [{"max_length": 4}, {"pooling": "mean"}, {"document_prompt": "text: "}, {"dimensions": 4},
     {"batch_size": 5}, {"dtype": "bfloat16"}, {"model": "OTHER"}],
)  # fmt: skip
def test_an_evaluation_with_other_settings_encodes_for_itself(change, world, encoded, tmp_path, quick_bert):
    change = {name: str(quick_bert) if value == "OTHER" else value for name, value in change.items()}
    world["evaluate retrieval"]("first", vectors=str(tmp_path / "kept"))
    encoded.clear()
    other = world["evaluate retrieval"]("other", vectors=str(tmp_path / "kept"), **change)
    assert encoded == [15, 15, 10]
    assert other == world["evaluate retrieval"]("alone", **change)


@pytest.mark.slow
def test_no_encoder_is_loaded_for_a_corpus_whose_vectors_are_kept(world, tmp_path, monkeypatch):
    kept = str(tmp_path / "kept")
    world["filter-queries"]("first", vectors=kept)
    loaded, load = [], encoding._load_encoder

    def counted(side, *arguments):
        with monkeypatch.context() as patch:
            if side == "outputs":
                patch.setattr("pairsmith.models.sentence_encoder.load_sentence_encoder", loaded.append)
            return load(side, *arguments)

    monkeypatch.setattr(encoding, "_load_encoder", counted)
    heard = Heard()
    world["negatives"]("second", heard, vectors=kept)
    assert loaded == []
    assert sum(line.startswith("loading") for line in heard.lines) == 1  # for the queries


def test_a_folder_that_is_a_file_is_told_in_a_line(world, tmp_path):
    (tmp_path / "file").touch()
    for name in ("filter-queries", "evaluate retrieval"):
        with pytest.raises(StorageError, match="is a file, so no folder can be there") as error:
            world[name](name, vectors=str(tmp_path / "file"))
        assert "\n" not in str(error.value)
    heard = Heard()
    assert world["search"]("", heard, vectors=str(tmp_path / "file")) == world["search"]("")
    assert any("give --vectors or PAIRSMITH_CACHE another folder" in line for line in heard.lines)


@pytest.mark.parametrize(
    ("model", "given", "message"),
    [
        (EvaluateRetrievalSettings, {"model": "bm25", "data": "x"}, "vectors has no effect with bm25"),
        (SearchSettings, {"model": "m", "keep_vectors": False}, "vectors has no effect without keep_vectors"),
    ],
)
def test_a_folder_without_effect_is_refused(model, given, message):
    with pytest.raises(ValueError, match=message):
        model(**given, corpus=["c"], vectors="kept")


RECIPE = """
name: small
steps:
  - name: chunks
    step: chunk
    settings: {documents: [./chunks.jsonl]}
  - name: kept
    step: filter-queries
    settings:
      {queries: ./queries.jsonl, corpus: ["@chunks"], encoder: MODEL, within: 40, vectors: "@chunks/vectors"}
"""


@pytest.mark.slow
def test_in_a_recipe_the_folder_is_neither_an_input_nor_something_to_plan(
    world, tiny_bert, tmp_path, monkeypatch
):
    (tmp_path / "small.yaml").write_text(RECIPE.replace("MODEL", str(tiny_bert)))
    recipe = load_recipe(tmp_path / "small.yaml")
    monkeypatch.setattr(planning, "_in_new_process", lambda work, *arguments: work(*arguments))
    assert planning.plan_recipe(recipe, Heard())["kept"].rows
    heard = Heard()
    run_recipe(recipe, tmp_path / "run", heard)
    assert not any(line.endswith("already done") for line in heard.lines)
    assert list((tmp_path / "run" / "chunks" / "vectors").iterdir())
    again = Heard()
    run_recipe(recipe, tmp_path / "run", again)
    assert sum(line.endswith("already done") for line in again.lines) == 2


SHARING = """
  - name: again
    step: filter-queries
    settings:
      {queries: ./queries.jsonl, corpus: ["@chunks"], encoder: MODEL, vectors: "@chunks/vectors", dtype: float32}
  - name: negatives
    step: negatives
    settings:
      {pairs: "@kept", corpus: ["@chunks"], encoder: MODEL, vectors: "@chunks/vectors", dtype: float32}
  - name: evaluation
    step: evaluate-retrieval
    settings: {data: "@kept", corpus: ["@chunks"], model: MODEL, vectors: "@chunks/vectors"}
  - name: shorter
    step: evaluate-retrieval
    settings: {data: "@kept", corpus: ["@chunks"], model: MODEL, vectors: "@chunks/vectors", max_length: 8}
  - name: alone
    step: evaluate-retrieval
    settings: {data: "@kept", corpus: ["@chunks"], model: MODEL}
"""


@pytest.mark.slow
def test_a_plan_counts_an_encoding_that_steps_share_once(world, tiny_bert, tmp_path, monkeypatch):
    recipe = RECIPE.replace("within: 40", "dtype: float32") + SHARING
    (tmp_path / "small.yaml").write_text(recipe.replace("MODEL", str(tiny_bert)))
    monkeypatch.setattr(planning, "_in_new_process", lambda work, *arguments: work(*arguments))
    estimates = planning.plan_recipe(load_recipe(tmp_path / "small.yaml"), Heard())
    encode = {name for name, estimate in estimates.items() if estimate.encoding}
    assert encode == {"kept", "shorter", "alone"}


def test_an_encoding_that_an_earlier_step_keeps_takes_no_time():
    estimate = Estimate(seconds=10.0, memory=1, disk=2, rows={}, shared=8.0, shards=4, encoding=3.0)
    alone = estimate.with_kept_vectors(1.0)
    assert (alone.seconds, alone.shared, alone.encoding) == (7.0, 5.0, 0.0)
    assert replace(estimate, shared=0.0).with_kept_vectors(1.0).shared == 0.0
    third = estimate.with_kept_vectors(1 / 3)
    assert (third.seconds, third.shared, third.encoding) == pytest.approx((9.0, 7.0, 2.0))


ON_DISK = """
name: small
steps:
  - name: negatives
    step: negatives
    settings:
      {pairs: ./queries.jsonl, corpus: [./chunks.jsonl], encoder: MODEL, vectors: ./kept, dtype: float32,
       shard_size: 15}
  - name: shorter
    step: negatives
    settings:
      {pairs: ./queries.jsonl, corpus: [./chunks.jsonl], encoder: MODEL, vectors: ./kept, dtype: float32,
       shard_size: 15, max_length: 8}
"""


@pytest.mark.slow
def test_a_plan_counts_no_encoding_whose_vectors_are_on_the_disk(world, tiny_bert, tmp_path, monkeypatch):
    (tmp_path / "small.yaml").write_text(ON_DISK.replace("MODEL", str(tiny_bert)))
    (tmp_path / "kept").mkdir()
    monkeypatch.setattr(planning, "_in_new_process", lambda work, *arguments: work(*arguments))

    def encode():
        estimates = planning.plan_recipe(load_recipe(tmp_path / "small.yaml"), Heard())
        return {name for name, estimate in estimates.items() if estimate.encoding}

    assert encode() == {"negatives", "shorter"}
    world["filter-queries"]("first", vectors=str(tmp_path / "kept"))
    assert encode() == {"shorter"}


def test_the_retriever_recipe_encodes_its_chunks_once_for_an_encoder(tmp_path):
    recipe = load_recipe(find_recipe("retriever"), overrides=[f"chunks.documents=[{tmp_path}]"])
    vectors = {
        planned.name: kept_vectors.kept_share(planned.step.settings.model_validate(planned.values), {})[0]
        for planned in recipe.steps
    }
    assert vectors["kept"] == vectors["negatives"] == vectors["before"] != ""
    dtypes = {name: json.loads(vectors[name])[-1]["dtype"] for name in ("before", "after")}
    assert dtypes["before"] == dtypes["after"]
