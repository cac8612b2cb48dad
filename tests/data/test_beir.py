import gzip
import json
import sys
from types import SimpleNamespace

import pytest

from pairsmith.core.errors import InputError
from pairsmith.data.beir import in_beir, read_retrieval

DOCUMENTS = [
    {"_id": "d1", "title": "Horns", "text": "Ann plays the horn."},
    {"_id": "d10", "title": "", "text": "Bob plays the lute."},
    {"_id": "d2", "text": "Cid plays the bell."},
]
QUERIES = [{"_id": "q1", "text": "who plays the horn?"}, {"_id": "q2", "text": "who plays the bell?"}]
QRELS = ["q1\td1\t1", "q2\td2\t2", "q2\td10\t0"]
HEADER = "query-id\tcorpus-id\tscore"


def jsonl(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def put(tmp_path):
    """Writes a data set, with other files in place of some."""

    def write(documents=DOCUMENTS, queries=QUERIES, qrels=QRELS, header=HEADER, split="test"):
        (tmp_path / "set" / "qrels").mkdir(parents=True, exist_ok=True)
        (tmp_path / "set" / "corpus.jsonl").write_text(jsonl(documents))
        (tmp_path / "set" / "queries.jsonl").write_text(jsonl(queries))
        table = "\n".join([*([header] if header else []), *qrels, ""])
        (tmp_path / "set" / "qrels" / f"{split}.tsv").write_text(table)
        return str(tmp_path / "set")

    return write


def told(retrieval_set):
    said = []
    retrieval_set.tell(said.append)
    return [line.partition(": ")[2] for line in said]


def test_documents_with_their_titles_and_what_is_relevant_to_each_query(put):
    retrieval_set = read_retrieval(put())
    assert list(retrieval_set.documents.items()) == [
        ("d1", "Horns\nAnn plays the horn."),
        ("d10", "Bob plays the lute."),
        ("d2", "Cid plays the bell."),
    ]
    assert retrieval_set.queries == {"q1": "who plays the horn?", "q2": "who plays the bell?"}
    assert retrieval_set.relevance == {"q1": {"d1": 1}, "q2": {"d2": 2, "d10": 0}}
    assert told(retrieval_set) == []


def test_titles_are_read_in_any_letter_case(put):
    documents = [{"_id": "d1", "Title": "Horns", "text": "Ann plays the horn."}, *DOCUMENTS[1:]]
    assert read_retrieval(put(documents)).documents["d1"] == "Horns\nAnn plays the horn."


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Using `tqdm.autonotebook`", "ignore::ResourceWarning")
def test_the_package_beir_reads_the_same(put):
    from beir.datasets.data_loader import GenericDataLoader

    retrieval_set = read_retrieval(put())
    corpus, queries, qrels = GenericDataLoader(retrieval_set.name).load("test")
    assert retrieval_set.queries == queries
    assert retrieval_set.relevance == qrels
    assert {
        name: f"{document['title'] or ''}\n{document['text']}".strip() for name, document in corpus.items()
    } == retrieval_set.documents


def test_a_folders_corpus_and_queries_may_be_compressed(put, tmp_path):
    folder = tmp_path / "set"
    assert in_beir(put()) == str(folder / "corpus.jsonl")
    for name in ("corpus.jsonl", "queries.jsonl"):
        (folder / name).rename(folder / f"{name}.gz")
    assert in_beir(str(folder)) == str(folder / "corpus.jsonl.gz")
    assert in_beir(str(folder), "queries.jsonl") == str(folder / "queries.jsonl.gz")
    (folder / "corpus.jsonl.gz").unlink()
    assert in_beir(str(folder)) == str(folder)


def test_files_may_be_compressed_or_begin_with_a_mark(put):
    from pathlib import Path

    folder = Path(put())
    plain = read_retrieval(str(folder))
    for file in (folder / "corpus.jsonl", folder / "qrels" / "test.tsv"):
        file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + file.read_bytes()))
        file.unlink()
    (folder / "queries.jsonl").write_bytes(b"\xef\xbb\xbf" + (folder / "queries.jsonl").read_bytes())
    again = read_retrieval(str(folder))
    assert again == plain
    assert again.digest() == plain.digest()


def test_the_digest_is_that_of_the_content_in_any_order(put):
    first = read_retrieval(put()).digest()
    assert read_retrieval(put(DOCUMENTS[::-1], QUERIES[::-1], QRELS[::-1])).digest() == first
    assert read_retrieval(put([*DOCUMENTS, {"_id": "d3", "text": "More."}])).digest() != first
    assert read_retrieval(put(qrels=["q1\td1\t1", "q2\td2\t1", "q2\td10\t0"])).digest() != first


def test_queries_that_cannot_be_measured_are_left_out_and_counted(put):
    queries = [
        *QUERIES,
        {"_id": "q3", "text": "unjudged"},
        {"_id": "q4", "text": "none"},
        {"_id": "q5", "text": " "},
    ]
    retrieval_set = read_retrieval(
        put(queries=queries, qrels=[*QRELS, "q4\td1\t0", "q4\td2\t-1", "q5\td1\t1", "q9\td1\t1"])
    )
    assert list(retrieval_set.queries) == list(retrieval_set.relevance) == ["q1", "q2"]
    assert told(retrieval_set) == [
        "judged queries that are not among the queries: 1 (q9); they are left out",
        "queries without a relevant document: 1 (q4); they are left out",
        "queries without text: 1 (q5); they are left out",
    ]


def test_documents_that_cannot_be_retrieved_count_all_the_same(put):
    documents = [*DOCUMENTS, {"_id": "d5", "title": " ", "text": None}]
    retrieval_set = read_retrieval(
        put(documents, qrels=[*QRELS, *(f"q1\tx{n}\t1" for n in range(5)), "q1\ty\t0"])
    )
    assert retrieval_set.relevance["q1"] == {"d1": 1, **{f"x{n}": 1 for n in range(5)}, "y": 0}
    assert told(retrieval_set) == [
        "relevant documents that are not in the corpus: 5 (x0, x1, x2, …); they count as not retrieved",
        "documents without text: 1 (d5); they are never retrieved",
    ]


def test_rows_that_repeat_others_count_once(put):
    retrieval_set = read_retrieval(
        put([*DOCUMENTS, DOCUMENTS[0]], [*QUERIES, QUERIES[0]], [*QRELS, QRELS[0]])
    )
    assert told(retrieval_set) == ["rows that repeat an earlier one: 3 (d1, q1, q1 d1); they count once"]
    assert retrieval_set.relevance == read_retrieval(put()).relevance


def test_ids_may_be_numbers(put):
    documents = [{"_id": 1, "text": "One."}, {"id": 2, "_id": 2, "text": "Two."}]
    retrieval_set = read_retrieval(put(documents, [{"_id": 7, "text": "which?"}], ["7\t2\t1"]))
    assert (retrieval_set.documents, retrieval_set.relevance) == ({"1": "One.", "2": "Two."}, {"7": {"2": 1}})


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"documents": []}, "corpus.jsonl holds no documents$"),
        ({"documents": [{"_id": "d1", "text": " "}]}, "corpus.jsonl holds no documents with text"),
        ({"qrels": []}, "test.tsv holds no judgements"),
        (
            {"documents": [*DOCUMENTS, {"_id": "d1", "text": "Other."}]},
            "corpus.jsonl:4: an earlier row has the same id, 'd1', and another text; give each text an id of "
            "its own",
        ),
        (
            {"qrels": [*QRELS, "q1\td1\t2"]},
            "test.tsv:5: an earlier row gives query 'q1' and document 'd1' another relevance; keep one of the "
            "two rows",
        ),
        ({"qrels": ["q1\td1\t0.5"]}, "test.tsv:2: the relevance is 0.5; it has to be a whole number"),
        ({"qrels": ["q1\td1\tyes"]}, "test.tsv:2: the score is 'yes', not a number such as 3.5"),
        ({"qrels": ["q1\t\t1"]}, "test.tsv:2: corpus-id is blank"),
        (
            {"header": ""},
            "test.tsv has the columns q1, d1, 1; expected query-id, corpus-id, score. The first line of a "
            "file has to be this header, separated by tabs",
        ),
        (
            {"qrels": ["q1\tx\t1", "q2\ty\t1"]},
            "none of its 2 relevant documents is in .*corpus.jsonl, the first is 'x'; are these files of the same",
        ),
        (
            {"qrels": ["x\td1\t1"]},
            "none of its 1 queries has a relevant document and a text in .*queries.jsonl; are these",
        ),
        ({"documents": [{"text": "No id."}]}, "corpus.jsonl has none of the columns _id, id"),
        ({"documents": [{"_id": "d1", "body": "x"}]}, "corpus.jsonl has no column 'text'"),
        ({"split": "dev"}, None),
    ],
)
def test_data_that_cannot_be_used_are_refused(put, files, message):
    folder, said = put(**files), []
    if message is None:
        read_retrieval(folder, say=said.append)
        assert said == [f"{folder}: the queries of its only split, dev, are evaluated"]
        with pytest.raises(InputError, match="has no split 'test'; known: dev"):
            read_retrieval(folder, "test")
    else:
        with pytest.raises(InputError, match=message):
            read_retrieval(folder)


def test_what_is_no_such_folder_is_told_with_what_is_expected(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        read_retrieval(str(tmp_path / "nothing"))
    with pytest.raises(InputError, match=r"has no corpus\.jsonl; expected a folder in BEIR's layout: corpus"):
        read_retrieval(str(tmp_path))
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="is a file; expected a folder in BEIR's layout"):
        read_retrieval(str(tmp_path / "file"))
    for name in ("corpus", "queries"):
        (tmp_path / f"{name}.jsonl").write_text("{}\n")
    with pytest.raises(InputError, match=r"has no qrels/\*\.tsv"):
        read_retrieval(str(tmp_path))


def graded(rows):
    return [dict(zip(("query-id", "corpus-id", "score"), row.split("\t"), strict=True)) for row in rows]


@pytest.mark.parametrize(
    "there",
    [
        {("org/set", "corpus", "corpus"), ("org/set", "queries", "queries"), ("org/set", "default", "test")},
        {("org/set", "corpus", "test"), ("org/set", "queries", "test"), ("org/set", "qrels", "test")},
        {("org/set", "corpus", "corpus"), ("org/set", "queries", "queries"), ("org/set-qrels", None, "test")},
    ],
)
def test_a_data_set_of_the_hub_in_the_layouts_of_mteb_and_beir(monkeypatch, put, there):
    def load(name, config=None, *, split, streaming):
        if (name, config, split) not in there:
            raise ValueError(f"no {name} {config} {split}")
        return {"corpus": DOCUMENTS, "queries": QUERIES}.get(config) or graded(QRELS)

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load))
    hub, folder = read_retrieval("org/set"), read_retrieval(put())
    assert (hub.documents, hub.queries) == (folder.documents, folder.queries)
    assert hub.relevance == folder.relevance


def test_what_is_not_on_the_hub_is_told(monkeypatch):
    def load(name, config=None, *, split, streaming):
        if config not in ("corpus", "queries"):
            raise ValueError("no such split")
        return DOCUMENTS

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load))
    with pytest.raises(InputError, match=r"org/set/default:dev: .* could be loaded \(no such split\)"):
        read_retrieval("org/set", "dev")
    with pytest.raises(
        InputError, match="org/set:test: give the name of the data set alone, and the split as"
    ):
        read_retrieval("org/set:test")
