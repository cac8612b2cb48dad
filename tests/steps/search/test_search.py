import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from pairsmith.cli.app import make_app
from pairsmith.data.squad import read_question_rows
from pairsmith.models.sentence_encoder import load_sentence_encoder
from pairsmith.steps import kept_vectors
from pairsmith.steps.evaluate import retrievers
from pairsmith.steps.search import route

pytestmark = pytest.mark.slow

WORDS = ("horn", "lute", "bell", "drum", "harp", "onion", "market", "dog", "beach", "horse")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PAIRSMITH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "search"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Forty documents of four words; those with an even number have a title."""
    rng = np.random.default_rng(0)
    rows = [
        {"id": f"d{n}", "title": f"Of {rng.choice(WORDS)}s" if n % 2 else "", "text": " ".join(words)}
        for n, words in enumerate(rng.choice(WORDS, (40, 4)))
    ]
    file = tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.fixture
def encoded(monkeypatch):
    """The number of texts of each call of the encoder."""
    counts, encode = [], route.encode_texts

    def counted(encoder, texts, **options):
        counts.append(len(texts))
        return encode(encoder, texts, **options)

    monkeypatch.setattr(route, "encode_texts", counted)
    return counts


def search(*arguments, given=None):
    words = [str(argument) for argument in arguments]
    return CliRunner().invoke(make_app(), ["search", *words], input=given, terminal_width=200)


def scores_of(result):
    """The ids and scores of each query, from ``--json``."""
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    return [{document["id"]: document["score"] for document in line["documents"]} for line in lines]


def expected(model, corpus, queries, count, *, ask="", tell=""):
    """The same by one product of matrices."""
    rows = [json.loads(line) for line in corpus.read_text().splitlines()]
    texts = [tell + "\n".join(filter(None, (row["title"], row["text"]))) for row in rows]
    encoder = load_sentence_encoder(str(model), device="cpu")
    x, y = (
        encoder.encode(sentences, normalize_embeddings=True, show_progress_bar=False)
        for sentences in ([ask + query for query in queries], texts)
    )
    order = (-x @ y.T).argsort(axis=1)[:, :count]
    return [
        {rows[place]["id"]: float(x[row] @ y[place]) for place in places} for row, places in enumerate(order)
    ]


def same(one, other):
    """Whether both rank the same documents with the same scores; those that are as near may change places."""
    for scores, theirs in zip(one, other, strict=True):
        assert sorted(scores.values(), reverse=True) == list(scores.values())
        assert list(scores.values()) == pytest.approx(list(theirs.values()), abs=1e-5)
        assert scores == pytest.approx(theirs, abs=1e-5)


@pytest.mark.parametrize("together", [7, 20_000])
def test_the_best_are_those_of_a_product_of_matrices(together, corpus, tiny_bert, monkeypatch):
    monkeypatch.setattr(retrievers, "DOCUMENTS_AT_ONCE", together)
    queries = ["a horn", "onions of the market"]
    given = ("--model", tiny_bert, "--corpus", corpus, "--json", *queries)
    first, again = search(*given), search(*given)
    same(scores_of(first), expected(tiny_bert, corpus, queries, 10))
    assert again.stdout == first.stdout
    prompts = ("--query-prompt", "find: ", "--document-prompt", "text: ", "--best", 40)
    rankings = expected(tiny_bert, corpus, queries, 40, ask="find: ", tell="text: ")
    same(scores_of(search(*given, *prompts)), rankings)
    line = json.loads(first.stdout.splitlines()[1])
    assert line["query"] == queries[1]
    assert [document["rank"] for document in line["documents"]] == list(range(1, 11))
    rows = {row["id"]: row for row in map(json.loads, corpus.read_text().splitlines())}
    assert all(
        (document["title"], document["text"]) == (rows[document["id"]]["title"], rows[document["id"]]["text"])
        for document in line["documents"]
    )


def test_documents_are_encoded_once_for_all_searches(corpus, tiny_bert, cache, encoded, tmp_path):
    given = ("--model", tiny_bert, "--corpus", corpus, "a horn")
    first = search(*given)
    assert first.exit_code == 0, first.output
    assert encoded == [40, 1]
    second = search(*given, "--query-prompt", "find: ")  # of the documents nothing changes
    assert encoded == [40, 1, 1]
    assert f"the vectors of 40 of 40 texts are already in {cache}" in second.stderr
    (file,) = cache.iterdir()
    assert cache.stat().st_mode & 0o777 == 0o700
    others = (("--document-prompt", "text: "), ("--max-length", 8))
    for number, other in enumerate(others, start=2):
        assert search(*given, *other).exit_code == 0
        assert len(list(cache.iterdir())) == number
    encoded.clear()
    changed = tmp_path / "changed.jsonl"
    changed.write_text(corpus.read_text().replace("horn", "hornet", 1))
    assert search(*given[:3], changed, "a horn").exit_code == 0
    assert encoded == [40, 1]
    file.write_bytes(file.read_bytes()[:100])
    encoded.clear()
    assert search(*given).stdout == first.stdout
    assert encoded == [40, 1]


def test_vectors_are_not_kept_where_that_is_not_wanted(corpus, tiny_bert, cache):
    given = ("--model", tiny_bert, "--corpus", corpus, "--json", "a horn")
    kept = search(*given[:2], "--no-keep-vectors", *given[2:])
    assert not cache.exists()
    assert kept.stdout == search(*given).stdout
    assert cache.exists()


def test_a_stopped_search_goes_on_behind_the_vectors_that_are_kept(corpus, tiny_bert, encoded, monkeypatch):
    monkeypatch.setattr(retrievers, "BLOCK", 15)
    given = ("--model", tiny_bert, "--corpus", corpus, "--json", "a horn")
    with monkeypatch.context() as patch:
        patch.setattr(kept_vectors, "write_atomic", _once(kept_vectors.write_atomic))
        stopped = search(*given)
    assert (stopped.exit_code, stopped.stderr.splitlines()[-1]) == (130, "stopped")
    encoded.clear()
    same(scores_of(search(*given)), expected(tiny_bert, corpus, ["a horn"], 10))
    assert len(encoded) == 3  # the two parts that were left, and the query


def _once(write):
    done = []

    def stopping(*arguments):
        if done:
            raise KeyboardInterrupt
        done.append(write(*arguments))

    return stopping


def test_what_is_shown(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    rows = [
        {"id": "1", "title": "Horns \x1b[2Jand more", "text": "A horn is\nblown.", "document": "horns.md"},
        {"id": "2", "text": "A lute is plucked, and rarely does one see it on the market."},
        {"id": "3", "text": "Of onions."},
    ]
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
    shown = search("--model", "bm25", "--corpus", corpus, "lute horn horns", "zebra", "--quiet")
    scores = re.findall(r"\d\.\d{4}", shown.stdout)
    assert shown.stdout.splitlines() == [
        "query: lute horn horns",
        f"1  {scores[0]}  1  Horns  [2Jand more  horns…",
        "   A horn is blown.",
        f"2  {scores[1]}  2",
        "   A lute is plucked, and rarely does o…",
        "query: zebra",
        "no document contains a word of this query",
    ]
    assert scores == sorted(scores, reverse=True)
    assert shown.stderr == ""
    assert search("--model", "bm25", "--corpus", corpus, "zebra", "--json", "--quiet").stdout == (
        '{"query": "zebra", "documents": []}\n'
    )


def test_the_texts_may_be_in_any_column(tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text(
        '{"id": 1, "words": "a horn", "place": "lute"}\n{"id": 2, "words": "a lute", "place": ""}\n'
    )
    given = ("--model", "bm25", "--corpus", corpus, "--corpus-column", "words", "lute", "--json", "--best", 1)
    assert json.loads(search(*given).stdout)["documents"][0]["id"] == "2"


def test_of_several_columns_of_texts_the_one_that_is_searched_is_told(tmp_path):
    faq = tmp_path / "faq.csv"
    faq.write_text("id,title,question,answer,topic\na b,How to,What is a lute?,A horn it is not.,music\n")
    result = search("--model", "bm25", "--corpus", faq, "lute")
    assert (
        f"{faq}: the texts in the column question are read, those in answer are not; name the column with "
        "the texts with --corpus-column\n"
    ) in result.stderr
    assert "A horn" not in result.stdout
    named = search("--model", "bm25", "--corpus", faq, "--corpus-column", "answer", "lute")
    assert "are read" not in named.stderr
    one = tmp_path / "one.jsonl"
    one.write_text(
        '{"text": "a lute", "title": "Of lutes", "document": "a b.md", "topic": "music", "n": 1}\n'
    )
    assert "are read" not in search("--model", "bm25", "--corpus", one, "lute").stderr


def test_json_holds_texts_as_they_are(tmp_path):
    text = 'curl "https://example.org/?token=abc" \\ \u2028 and more'
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text(json.dumps({"id": 7, "text": text}) + "\n")
    (line,) = search("--model", "bm25", "--corpus", corpus, "curl", "--json").stdout.rstrip("\n").split("\n")
    (document,) = json.loads(line)["documents"]
    assert document == {
        "rank": 1, "score": pytest.approx(0.15, abs=0.01), "id": "7", "title": "", "document": "", "text": text,
    }  # fmt: skip


def test_queries_of_files_and_of_standard_input(corpus, tmp_path):
    base = ("--model", "bm25", "--corpus", corpus, "--json", "--quiet", "--best", 2)
    lines = tmp_path / "queries.txt"
    lines.write_text("horn\n\nlute of the market\n")
    rows = tmp_path / "queries.jsonl"
    rows.write_text('{"query": "horn"}\n{"query": "lute of the market"}\n')
    of_lines = search(*base, "--queries", lines)
    assert [json.loads(line)["query"] for line in of_lines.stdout.splitlines()] == [
        "horn",
        "lute of the market",
    ]
    assert search(*base, "--queries", rows).stdout == of_lines.stdout
    assert search(*base, "--queries", "-", given=lines.read_text()).stdout == of_lines.stdout
    assert search(*base, "horn", "lute of the market").stdout == of_lines.stdout


def test_rows_without_a_query_are_told(corpus, tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("nr;Question\n1;horn\n2;\n3;lute\n;\n")
    result = search("--model", "bm25", "--corpus", corpus, "--json", "--best", 2, "--queries", rows)
    assert [json.loads(line)["query"] for line in result.stdout.splitlines()] == ["horn", "lute"]
    assert "left out, as the query is blank: rows.csv:3\n" in result.stderr


def test_other_columns_of_the_queries_are_kept(corpus, tmp_path):
    queries = tmp_path / "queries.jsonl"
    rows = [
        {"ID": 17, "Question": "horn", "team": "A", "urgent": True, "documents": ["x"]},
        {"ID": None, "Question": "lute", "team": None},
    ]
    queries.write_text("".join(json.dumps(row) + "\n" for row in rows))
    base = ("--model", "bm25", "--corpus", corpus, "--json", "--best", 2, "--queries", queries)
    result = search(*base, "harp")
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [{name: value for name, value in line.items() if name != "documents"} for line in lines] == [
        {"query": "harp"},
        {"query": "horn", "id": "17", "team": "A", "urgent": "true", "original_documents": '["x"]'},
        {"query": "lute", "team": None},
    ]
    assert all(len(line["documents"]) == 2 for line in lines)
    found = tmp_path / "found.jsonl"
    found.write_text(result.stdout)
    answered = [(row.id, row.others.get("team")) for row in read_question_rows(str(found))]
    assert answered[2:4] == [("17", "A"), ("17-2", "A")]
    assert [team for _, team in answered] == [None, None, "A", "A", None, None]


def test_only_json_needs_the_other_columns_of_the_queries(corpus, tmp_path):
    queries = tmp_path / "queries.jsonl"
    queries.write_text('{"query": "horn", "note": "half of a character: \\ud83d"}\n')
    base = ("--model", "bm25", "--corpus", corpus, "--queries", queries)
    assert search(*base).exit_code == 0
    result = search(*base, "--json")
    assert (result.exit_code, "note" in result.stderr) == (2, True)


def test_answer_reads_what_a_search_prints(corpus, tmp_path):
    found = tmp_path / "found.jsonl"
    base = ("--model", "bm25", "--corpus", corpus, "--json", "--best", 2)
    found.write_text(search(*base, "horn", "no such word").stdout)
    rows = list(read_question_rows(str(found)))
    assert [(row.question, row.others.get("rank"), row.blank) for row in rows] == [
        ("horn", "1", ""), ("horn", "2", ""), ("no such word", None, "passage"),
    ]  # fmt: skip
    assert all("horn" in row.context for row in rows[:2])


def test_a_folder_of_beir_and_several_files_are_searched(corpus, tmp_path):
    folder = tmp_path / "beir"
    folder.mkdir()
    (folder / "corpus.jsonl").write_text('{"_id": "b", "title": "Zebras", "text": "They run."}\n')
    both = search("--model", "bm25", "--corpus", folder, "--corpus", corpus, "zebras horn", "--json")
    assert next(iter(scores_of(both)[0])) == "b"
    assert len(scores_of(both)[0]) == 10


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--corpus", "CORPUS", " "], "a query is empty; give the words to search for"),
        (["--corpus", "CORPUS"], "no query is given; add one"),
        (["--corpus", "CORPUS", "--queries", "-"], "standard input holds no queries"),
        (["--corpus", "CORPUS", "--queries", "nothing.txt", "x"], "nothing.txt does not exist"),
        (["x"], "--corpus is missing; add it"),
        (["--corpus", "nowhere", "x"], "nowhere does not exist"),
        (["--corpus", "EMPTY", "x"], "EMPTY: holds no documents with text"),
        (["--corpus", "CORPUS", "--best", "41", "x"], "--best 41: the corpus has only 40 documents"),
        (["--corpus", "CORPUS", "--best", "0", "x"], "--best: should be greater than or equal to 1, not '0'"),
        (["--corpus", "CORPUS", "--dimensions", "2", "x"], "dimensions has no effect with bm25"),
        (["--corpus", "CORPUS", "--model", "glove:CORPUS", "x"], "search takes no GloVe vectors"),
        (["--corpus", "CORPUS", "--model", "nowhere/at/all", "x"], "model nowhere/at/all: no such folder"),
        (["--corpus", "CORPUS", "--model", "BROKEN", "x"], "model BROKEN: "),
    ],
)
def test_mistakes_are_told_in_a_line_or_two(arguments, said, corpus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.jsonl").write_text('{"id": "a", "text": " "}\n')
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{}")
    names = {"CORPUS": str(corpus), "EMPTY": "empty.jsonl", "BROKEN": "broken"}
    for name, value in names.items():
        arguments = [argument.replace(name, value) for argument in arguments]
        said = said.replace(name, value)
    model = () if "--model" in arguments else ("--model", "bm25")
    result = search(*model, *arguments)
    assert result.exit_code == 2, result.output
    assert said.casefold() in result.stderr.casefold()
    assert len(result.stderr.splitlines()) <= 2


def test_a_reader_and_a_cross_encoder_are_no_encoders(corpus, tiny_bert, tmp_path):
    from sentence_transformers import CrossEncoder
    from transformers import AutoTokenizer, BertConfig, BertForQuestionAnswering

    sizes = BertConfig.from_pretrained(tiny_bert)
    BertForQuestionAnswering(sizes).save_pretrained(tmp_path / "reader")
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(tmp_path / "reader")
    CrossEncoder(str(tiny_bert), num_labels=1).save(str(tmp_path / "judge"), create_model_card=False)
    for name, kind in (("reader", "BertForQuestionAnswering"), ("judge", "BertForSequenceClassification")):
        result = search("--model", tmp_path / name, "--corpus", corpus, "--quiet", "a horn")
        assert result.exit_code == 2
        assert f"is a {kind}, which predicts scores or answers" in result.stderr
        assert len(result.stderr.splitlines()) == 1


def test_an_unwritable_cache_is_told_and_stops_nothing(corpus, tiny_bert, cache):
    cache.parent.mkdir()
    cache.touch()
    result = search("--model", tiny_bert, "--corpus", corpus, "a horn")
    assert result.exit_code == 0
    assert "give --vectors or PAIRSMITH_CACHE another folder, or give --no-keep-vectors" in result.stderr
    assert "run the same command again" not in result.stderr
    assert len(result.stdout.splitlines()) == 20


def test_an_unreadable_cache_is_told_and_stops_nothing(corpus, tiny_bert, monkeypatch):
    def size_of(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(kept_vectors, "size_of", size_of)
    result = search("--model", tiny_bert, "--corpus", corpus, "a horn")
    assert result.exit_code == 0
    assert "the documents' vectors cannot be kept" in result.stderr
    assert len(result.stdout.splitlines()) == 20


def test_queries_are_asked_for_until_one_is_empty(corpus, tiny_bert, encoded, monkeypatch):
    monkeypatch.setattr(route, "_on_terminal", lambda: True)
    base = ("--model", tiny_bert, "--corpus", corpus, "--best", 2)
    answers = [line for query in ("lute", "horn") for line in search(*base, query).stdout.splitlines()]
    for given in ("lute\nhorn\n\nnot asked\n", "lute\nhorn\n"):  # an empty line, and the end
        result = search(*base, given=given)
        assert result.exit_code == 0, result.output
        assert encoded[-2:] == [1, 1]  # each query by itself
        lines = [line.split("query> ")[-1] for line in result.stdout.splitlines()]
        assert [line for line in lines if line] == answers
        assert "an empty line or Ctrl-D ends" in result.stderr


@pytest.mark.long
@pytest.mark.skipif(os.name == "nt", reason="there are no pseudo-terminals")
def test_queries_are_asked_for_on_a_terminal(corpus):
    import pty

    controller, theirs = pty.openpty()
    command = [sys.executable, "-m", "pairsmith", "search", "--model", "bm25", "--corpus", str(corpus)]
    with subprocess.Popen(
        [*command, "--best", "1"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "dumb"},
    ) as process:
        os.close(theirs)
        os.write(controller, b"lute\nzebra\n\n")  # the terminal keeps them until they are asked for
        shown = b""
        while process.poll() is None:
            try:
                shown += os.read(controller, 4096)
            except OSError:  # the other end is closed
                break
        assert process.wait(timeout=60) == 0
    os.close(controller)
    text = shown.decode().replace("\r", "")
    assert "an empty line or Ctrl-D ends" in text
    assert text.count("query> ") == 3
    assert re.search(r"^1  \d\.\d{4}  d\d+", text, re.MULTILINE)
    assert "no document contains a word of this query" in text
