import json
from collections import Counter

import pytest
from tests.conftest import make_llama
from tests.heard import Heard

from pairsmith.__main__ import main
from pairsmith.core.errors import InputError, SettingsError
from pairsmith.core.progress import Silent
from pairsmith.data.chunk_rows import QueryExample, read_chunks, read_query_examples
from pairsmith.runs import DatasetFolder, Run
from pairsmith.steps.retrieval.queries import chosen_chunks, hardly_known, write_queries
from pairsmith.steps.retrieval.settings import QueriesSettings


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(make_llama(tmp_path_factory.mktemp("llama"), max_position_embeddings=512))


@pytest.fixture
def chunks(tmp_path):
    rows = [
        {"id": f"{name}-{place}", "title": name, "text": f"The {name} has part {place}.", "document": name}
        for name in ("boat", "house")
        for place in range(3)
    ]
    return lines(tmp_path / "chunks.jsonl", rows)


def test_neighbours_are_the_chunks_beside_one_of_the_same_document(chunks):
    read = {chunk.id: chunk for chunk in read_chunks(chunks)}
    assert read["boat-0"].neighbours == ("The boat has part 1.",)
    assert read["boat-1"].neighbours == ("The boat has part 0.", "The boat has part 2.")
    assert read["boat-2"].neighbours == ("The boat has part 1.",)
    assert read["house-0"].title == "house"


def test_a_corpus_without_documents_has_no_neighbours(tmp_path):
    rows = [{"_id": number, "title": "", "text": f"Text {number}."} for number in range(3)]
    read = list(read_chunks(lines(tmp_path / "corpus.jsonl", [*rows, {"_id": 3, "title": "", "text": " "}])))
    assert [(chunk.id, chunk.neighbours) for chunk in read] == [("0", ()), ("1", ()), ("2", ())]


def test_examples_with_and_without_texts(tmp_path):
    with_text = lines(tmp_path / "a.jsonl", [{"query": "who", "positive": "Ann."}, {"query": " "}])
    assert read_query_examples(with_text) == [QueryExample("who", "Ann.")]
    alone = tmp_path / "b.txt"
    alone.write_text("who is it\n")
    assert read_query_examples(str(alone)) == [QueryExample("who is it", "")]
    with pytest.raises(InputError, match="holds no queries"):
        read_query_examples(lines(tmp_path / "c.jsonl", [{"query": ""}]))


def settings(model, chunks, **more):
    given = {"chunks": chunks, "model": model, "device": "cpu", "dtype": "float32", "queries": 2, "top_k": 50}
    return QueriesSettings(**{**given, "top_p": 1.0, "shard_size": 4, "tries": 4, "max_length": 60, **more})


@pytest.mark.long
def test_rows_and_rejects_are_the_same_whatever_the_shards_and_workers(model, chunks, tmp_path):
    one = write_queries(settings(model, chunks), Run(tmp_path / "one", Silent()))
    other = write_queries(settings(model, chunks, shard_size=1, workers=2), Run(tmp_path / "two", Silent()))
    table = one.table()
    assert table.equals(other.table())
    assert one.rejects().sort_by("id").equals(other.rejects().sort_by("id"))
    assert table.num_rows + one.rejects().num_rows >= 12
    texts = {chunk.id: chunk.text for chunk in read_chunks(chunks)}
    for row in table.to_pylist():
        assert row["positive"] == texts[row["chunk"]]
        assert row["query"].strip()


def test_the_command_and_its_errors(model, chunks, tmp_path, capsys):
    out = tmp_path / "out"
    command = [
        "queries",
        "--chunks",
        chunks,
        "--model",
        model,
        "--device",
        "cpu",
        "--out",
        str(out),
        "--quiet",
    ]
    with pytest.raises(SystemExit, match="0"):
        main([*command, "--queries", "1", "--kinds", "keywords", "--max-length", "40"])
    assert {row["kind"] for row in DatasetFolder.open(out).table().to_pylist()} <= {"keywords"}
    with pytest.raises(SystemExit, match="2"):
        main([*command, "--kinds", "poem"])
    assert "poem" in capsys.readouterr().err
    with pytest.raises(SettingsError, match="it can load"):
        write_queries(settings("http://localhost:1/v1#m", chunks), Run(tmp_path / "no", Silent()))
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    with pytest.raises(InputError):
        write_queries(settings(model, str(empty)), Run(tmp_path / "no", Silent()))
    assert not (tmp_path / "no" / "data").exists()


def test_chunks_that_have_fewer_queries_than_wanted_are_counted(model, chunks, tmp_path):
    heard = Heard()
    written = write_queries(settings(model, chunks, tries=1), Run(tmp_path / "out", heard))
    counts = Counter(row["chunk"] for row in written.table().to_pylist())
    whole = sum(count == 2 for count in counts.values())
    assert whole < 6  # the model writes badly
    assert (
        f"{6 - whole} of 6 chunks have fewer than 2 queries, {6 - len(counts)} of them none; a larger --tries "
        "gives more"
    ) in heard.lines
    assert f"| chunks without a query | {6 - len(counts)} |" in (tmp_path / "out" / "README.md").read_text()


ENGLISH = "The museum opens every day except on Mondays, and children under twelve do not pay."
GERMAN = "Der Antrag muss schriftlich bei der zuständigen Behörde eingereicht werden."
GREEK = "Το μουσείο είναι ανοιχτό κάθε μέρα εκτός από τη Δευτέρα."


@pytest.mark.parametrize(("texts", "dense"), [([ENGLISH] * 3, 0), ([ENGLISH] * 3 + [GERMAN, GREEK], 2)])
def test_a_language_that_the_model_hardly_knows_is_told(tmp_path, texts, dense):
    rows = [{"id": str(number), "text": f"{text} {number}"} for number, text in enumerate(texts)]
    warning = hardly_known("pairsmith:tiny", read_chunks(lines(tmp_path / "chunks.jsonl", rows)))
    assert (
        warning.startswith(f"{dense} of the first 5 chunks have fewer than 3 bytes") if dense else not warning
    )


def test_a_limit_draws_chunks_from_the_whole_corpus_in_its_order(tmp_path):
    names = [f"large-{place}" for place in range(200)]
    names += [f"small {number}-{place}" for number in range(20) for place in range(10)]
    rows = [{"id": name, "text": f"{name}.", "document": name.partition("-")[0]} for name in names]
    corpus = lines(tmp_path / "corpus.jsonl", [*rows, rows[0]])  # one is there twice

    def drawn(limit, **more):
        given = settings("pairsmith:tiny", corpus, limit=limit, **more)
        return [chunk.id for chunk in chosen_chunks(given)()]

    forty = drawn(40)
    assert forty == [name for name in names if name in set(forty)]
    assert len(forty) == 40
    # Half of the corpus are small documents: 20 of 40 on average, with a standard deviation of 3.
    assert 10 <= sum(name.startswith("small") for name in forty) <= 30
    assert set(drawn(20)) < set(forty) < set(drawn(41))
    assert len(set(drawn(40, seed=2)) & set(forty)) < 20  # 4 on average
    assert drawn(400) == drawn(1_000) == drawn(None) == names


def test_queries_are_written_for_the_chunks_that_a_limit_draws(model, chunks, tmp_path):
    heard = Heard()
    given = settings(model, chunks, limit=2, shard_size=25)
    folder = write_queries(given, Run(tmp_path / "some", heard))
    of = {row_id.rsplit("-", 3)[0] for row_id in folder.rejects()["id"].to_pylist()}  # CHUNK-QUERY-try-TRY
    drawn = {chunk.id: chunk for chunk in chosen_chunks(given)()}
    assert of | set(folder.table()["chunk"].to_pylist()) == set(drawn)
    assert len(drawn) == 2
    assert all(chunk.neighbours for chunk in drawn.values())  # those in the corpus, drawn or not
    assert not any("repeated" in line for line in heard.lines)


def test_a_chunk_is_written_for_once_and_ids_have_to_differ(model, tmp_path):
    rows = [{"text": "One boat."}, {"text": "Two boats."}, {"text": "One boat."}]
    again = settings(model, lines(tmp_path / "again.jsonl", rows))
    assert [chunk.text for chunk in chosen_chunks(again)()] == ["One boat.", "Two boats."]
    other = settings(model, lines(tmp_path / "other.jsonl", [{"id": 1, "text": "a"}, {"id": 1, "text": "b"}]))
    with pytest.raises(InputError, match="two chunks with different texts have the id '1'"):
        list(chosen_chunks(other)())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"shown": 2}, "shown has no effect without examples"),
        ({"decay": 0.0, "against": ["title"]}, "against has no effect with a decay of 0"),
    ],
)
def test_settings_without_effect_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        QueriesSettings(chunks="x", **given)
