import importlib.util
import itertools
import json
import shutil
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tests.planned import planned

from pairsmith.core.errors import InputError, MissingExtra, ModelError, OtherWorkError, SettingsError
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.beir import RetrievalSet
from pairsmith.data.schemas import REJECT
from pairsmith.metrics.ranking import MEASURES
from pairsmith.models.sentence_encoder import load_sentence_encoder
from pairsmith.runs import Card, FolderWriter, Run
from pairsmith.runs.estimate import Estimate
from pairsmith.runs.identity import Identity
from pairsmith.steps.evaluate import evaluation, retrievers
from pairsmith.steps.evaluate.retrieval import evaluate_retrieval, figures_of_queries, retrieval_table
from pairsmith.steps.evaluate.retrieval_settings import EvaluateRetrievalSettings
from pairsmith.steps.evaluate.retrievers import Rankings, by_bm25, by_vectors, retrieve

pytestmark = pytest.mark.slow

WORDS = ("horn", "lute", "bell", "drum", "harp", "onion", "market", "dog", "beach", "horse")


def texts(count, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, 4)) for _ in range(count)]


def write(folder, documents, queries, judged):
    (folder / "qrels").mkdir(parents=True)
    for name, rows in (("corpus", documents), ("queries", queries)):
        lines = (json.dumps({"_id": key, "text": text}) + "\n" for key, text in rows.items())
        (folder / f"{name}.jsonl").write_text("".join(lines))
    table = [
        f"{query}\t{document}\t{grade}\n"
        for query, grades in judged.items()
        for document, grade in grades.items()
    ]
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(table))
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """300 documents, of which many are equal, and 20 queries with documents of several grades."""
    documents = {f"d{number}": text for number, text in enumerate(texts(300))}
    queries = {f"q{number}": text for number, text in enumerate(texts(20, 1))}
    rng = np.random.default_rng(2)
    judged = {
        query: {f"d{n}": int(rng.integers(-1, 3)) for n in rng.choice(300, 12, replace=False)}
        | {f"d{row}": 1}
        for row, query in enumerate(queries)
    }
    return write(tmp_path_factory.mktemp("data") / "set", documents, queries, judged)


def settings(model, data, **more):
    return EvaluateRetrievalSettings(
        model=str(model), data=str(data), device="cpu", **{"bootstrap": 50} | more
    )


def predicted(out):
    return [json.loads(line) for line in (out / "predictions.jsonl").read_text().splitlines()]


def of_trec_eval(out, data, depth):
    """Means ×100 by pytrec_eval, from the documents of ``predictions.jsonl``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pytrec_eval

    judged = {}
    for line in (data / "qrels" / "test.tsv").read_text().splitlines()[1:]:
        query, document, grade = line.split("\t")
        judged.setdefault(query, {})[document] = int(grade)
    run = {row["query"]: row["retrieved"] for row in predicted(out)}
    assert max(map(len, run.values())) <= depth
    by_query = pytrec_eval.RelevanceEvaluator(
        judged, {"ndcg_cut.10", "recall.10,100", "P.10", "map"}
    ).evaluate(run)
    return {
        name: 100 * sum(figures[name] for figures in by_query.values()) / len(by_query)
        for name in next(iter(by_query.values()))
    }


@pytest.mark.parametrize("model", ["bm25", "tiny_bert"])
def test_the_figures_are_those_of_trec_eval(model, data, tmp_path, request):
    model = model if model == "bm25" else request.getfixturevalue(model)
    out = tmp_path / "out"
    results = evaluate_retrieval(settings(model, data, keep=120, depth=120), Run(out, Silent()))
    theirs = of_trec_eval(out, data, 120)
    assert (results["queries"], results["documents"]) == (20, 300)
    for name, other in [("ndcg@10", "ndcg_cut_10"), ("recall@100", "recall_100"), ("recall@10", "recall_10"),
                        ("precision@10", "P_10"), ("map", "map")]:  # fmt: skip
        assert results[name] == pytest.approx(theirs[other], abs=1e-4), name  # four places are written
        low, high = results[f"{name}_ci"]
        assert low <= results[name] <= high
    assert 0 < results["ndcg@10"] < 100


def test_what_is_written_for_each_query(data, tiny_bert, tmp_path, capsys):
    out = tmp_path / "out"
    results = evaluate_retrieval(settings(tiny_bert, data), Run(out, Progress()))
    assert capsys.readouterr().out.splitlines() == retrieval_table(results).splitlines()
    assert retrieval_table(results).splitlines()[:2] == [
        "20 queries, 300 documents",
        "measure         ×100  (95 %)",
    ]
    lines = predicted(out)
    assert [line["query"] for line in lines] == [f"q{number}" for number in range(20)]
    assert all(len(line["retrieved"]) == 10 for line in lines)
    assert all(grade > 0 for line in lines for grade in line["relevant"].values())
    for name in MEASURES:
        assert results[name] == pytest.approx(np.mean([line[name] for line in lines]), abs=2e-4)
    assert json.loads((out / "results.json").read_text()) == results
    evaluate_retrieval(settings(tiny_bert, data), Run(out, Progress()))
    assert "already evaluated" in capsys.readouterr().err


def test_equal_documents_rank_by_their_ids_the_last_first(tiny_bert, monkeypatch):
    monkeypatch.setattr(retrievers, "DOCUMENTS_AT_ONCE", 3)
    documents = dict.fromkeys(("d2", "d10", "d1", "d9"), "A dog runs.") | {"d5": "The market fell."}
    for model in ("bm25", tiny_bert):
        rankings = retrieve(settings(model, "x"), documents, {"q": "A dog runs."}, Silent())
        assert [name for name, _ in rankings.best(0, 4)] == ["d9", "d2", "d10", "d1"]


def numbered(documents):
    """The documents, with ids that rank in their order."""
    return {f"{999 - number}": text for number, text in enumerate(documents)}


def test_the_nearest_are_the_same_however_many_documents_are_held_at_once(tiny_bert, monkeypatch):
    encoder = load_sentence_encoder(str(tiny_bert), device="cpu")
    documents, queries = list(dict.fromkeys(texts(300))), texts(20, 1)
    vectors = [
        encoder.encode(side, normalize_embeddings=True, show_progress_bar=False)
        for side in (queries, documents)
    ]
    expected = -np.sort(-(vectors[0] @ vectors[1].T), axis=1)[:, :100]
    whole = by_vectors(encoder, numbered(documents), queries, 100, batch_size=64, progress=Silent())
    assert whole.scores == pytest.approx(expected, abs=1e-5)
    monkeypatch.setattr(retrievers, "DOCUMENTS_AT_ONCE", 70)
    monkeypatch.setattr(retrievers, "QUERIES_AT_ONCE", 7)
    parts = by_vectors(encoder, numbered(documents), queries, 100, batch_size=64, progress=Silent())
    assert parts.scores == pytest.approx(expected, abs=1e-5)
    assert (parts.places == whole.places).mean() > 0.95  # rounding exchanges some that are as near


def test_the_order_in_which_documents_are_read_has_no_effect(tiny_bert):
    documents = {f"d{number}": text for number, text in enumerate(texts(60))}
    encoder = load_sentence_encoder(str(tiny_bert), device="cpu")
    rankings = [
        by_vectors(encoder, in_order, texts(5, 1), 60, batch_size=1, progress=Silent())
        for in_order in (documents, dict(sorted(documents.items())), dict(reversed(documents.items())))
    ]
    assert rankings[0].documents == sorted(documents, reverse=True)
    for other in rankings[1:]:
        assert (other.places == rankings[0].places).all()
        assert (other.scores == rankings[0].scores).all()


def test_a_stopped_search_goes_on_behind_the_documents_that_were_encoded(
    data, tiny_bert, tmp_path, monkeypatch
):
    monkeypatch.setattr(retrievers, "BLOCK", 90)
    whole = evaluate_retrieval(settings(tiny_bert, data), Run(tmp_path / "whole", Silent()))
    encoded, stop_at = [], 3  # the queries, then 90 documents each time

    def counted(encoder, texts, *args, **kwargs):
        if len(encoded) == stop_at:
            raise KeyboardInterrupt
        encoded.append(len(texts))
        return encode(encoder, texts, *args, **kwargs)

    encode = retrievers.encode_texts
    monkeypatch.setattr(retrievers, "encode_texts", counted)
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        evaluate_retrieval(settings(tiny_bert, data), Run(out, Silent()))
    assert not json.loads((out / "results.json").read_text())["about"]["complete"]
    shutil.copytree(out, tmp_path / "damaged")
    encoded.clear()
    stop_at = 9
    assert evaluate_retrieval(settings(tiny_bert, data), Run(out, Silent())) == whole
    assert encoded == [20, 90, 30]  # the queries again, and the last 120 documents
    for name in ("results.json", "predictions.jsonl"):
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert {file.name for file in out.iterdir()} == {"README.md", "results.json", "predictions.jsonl"}
    monkeypatch.setattr("pairsmith.steps.kept_vectors.pick_device", lambda _: pytest.fail("needs a device"))
    assert evaluate_retrieval(settings(tiny_bert, data), Run(out, Silent())) == whole
    monkeypatch.setattr("pairsmith.steps.kept_vectors.pick_device", str)
    file = next((tmp_path / "damaged" / "vectors-so-far").iterdir())
    file.write_bytes(file.read_bytes()[:100])
    encoded.clear()
    assert evaluate_retrieval(settings(tiny_bert, data), Run(tmp_path / "damaged", Silent())) == whole
    assert encoded == [20, 90, 90, 30]


def _stopped(*_args, **_kwargs):
    raise KeyboardInterrupt


def test_a_stopped_search_goes_on_with_other_settings(data, tiny_bert, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(retrievers, "merged", _stopped)
        patch.setattr(retrievers, "DOCUMENTS_AT_ONCE", 200)
        with pytest.raises(KeyboardInterrupt):
            evaluate_retrieval(settings(tiny_bert, data), Run(tmp_path / "out", Silent()))
    results = evaluate_retrieval(settings(tiny_bert, data, max_length=4), Run(tmp_path / "out", Silent()))
    apart = evaluate_retrieval(settings(tiny_bert, data, max_length=4), Run(tmp_path / "apart", Silent()))
    assert results == apart
    with pytest.raises(OtherWorkError):
        evaluate_retrieval(settings(tiny_bert, data), Run(tmp_path / "out", Silent()))


def test_an_encoder_of_dot_products_is_compared_by_them(tiny_bert, tmp_path):
    encoder = load_sentence_encoder(str(tiny_bert), device="cpu")
    encoder.similarity_fn_name = "dot"
    encoder.save(str(tmp_path / "dot"), create_model_card=False)
    dot = retrievers.retrieval_encoder(settings(tmp_path / "dot", "x"))
    documents, queries = list(dict.fromkeys(texts(50))), texts(5, 1)
    products = encoder.encode(queries) @ encoder.encode(documents).T
    rankings = by_vectors(dot, numbered(documents), queries, 50, batch_size=64, progress=Silent())
    assert (rankings.places[:, 0] == products.argmax(axis=1)).all()
    encoder.similarity_fn_name = "euclidean"
    encoder.save(str(tmp_path / "far"), create_model_card=False)
    with pytest.raises(ModelError, match="its vectors are compared by euclidean; give an encoder whose"):
        retrievers.retrieval_encoder(settings(tmp_path / "far", "x"))


def test_prompts_are_put_before_queries_and_documents(tiny_bert, tmp_path):
    documents, queries = {"d1": "A horn.", "d2": "A lute."}, {"q": "which horn?"}
    encoder = load_sentence_encoder(str(tiny_bert), device="cpu")

    def scores(ask, tell):
        x = encoder.encode([ask + text for text in queries.values()], normalize_embeddings=True)
        y = encoder.encode([tell + text for text in documents.values()], normalize_embeddings=True)
        return sorted((x @ y.T)[0], reverse=True)

    def best_scores(model, **more):
        return [
            score
            for _, score in retrieve(settings(model, "x", **more), documents, queries, Silent()).best(0, 9)
        ]

    given = best_scores(tiny_bert, query_prompt="find: ", document_prompt="text: ")
    assert given == pytest.approx(scores("find: ", "text: "), abs=1e-5)
    assert best_scores(tiny_bert) == pytest.approx(scores("", ""), abs=1e-5)
    encoder.prompts = {"query": "ask: ", "document": "tell: "}
    encoder.save(str(tmp_path / "prompted"), create_model_card=False)
    assert best_scores(tmp_path / "prompted") == pytest.approx(scores("ask: ", "tell: "), abs=1e-5)
    assert best_scores(tmp_path / "prompted", query_prompt="") == pytest.approx(
        scores("", "tell: "), abs=1e-5
    )


def test_fewer_dimensions(tiny_bert):
    documents, queries = {"d1": "A horn.", "d2": "A lute."}, {"q": "which horn?"}
    encoder = load_sentence_encoder(str(tiny_bert), device="cpu")
    x, y = (torch.tensor(encoder.encode(list(side.values())))[:, :4] for side in (queries, documents))
    expected = torch.nn.functional.cosine_similarity(x, y).sort(descending=True).values.tolist()
    rankings = retrieve(settings(tiny_bert, "x", dimensions=4), documents, queries, Silent())
    assert [score for _, score in rankings.best(0, 2)] == pytest.approx(expected, abs=1e-5)
    with pytest.raises(SettingsError, match="--dimensions 400: the model's vectors have only 16"):
        retrieve(settings(tiny_bert, "x", dimensions=400), documents, queries, Silent())


def test_bm25_counts_words_that_are_rare_and_repeated():
    documents = ["a horn and a lute", "horns, horns and a horn", "the market", "a horn"]
    documents = numbered(documents)
    asked = ["the Horn", "of the", "zebra"]
    rankings = by_bm25(documents, asked, 4, language="english", progress=Silent())
    places, scores = rankings.places, rankings.scores
    # By hand: the stem horn is in three of four texts, once in the first of 2 words without stop words, thrice
    # in the second of 3, once in the last of 1; their mean length is 7 / 4.
    idf = np.log(1 + (4 - 3 + 0.5) / (3 + 0.5))
    worth = {
        n: idf * tf / (tf + 0.9 * (0.6 + 0.4 * size / 1.75))
        for n, tf, size in ((0, 1, 2), (1, 3, 3), (3, 1, 1))
    }
    order = sorted(worth, key=lambda n: -worth[n])
    assert places[0].tolist() == [*order, -1]
    assert scores[0, :3] == pytest.approx([worth[n] for n in order], abs=1e-5)
    assert places[1:].tolist() == [[-1] * 4] * 2  # stop words alone, and a word that no document has
    plain = by_bm25(documents, ["the Horn"], 4, language="none", progress=Silent())
    assert set(plain.places[0].tolist()) == {0, 1, 2, 3}
    without_words = by_bm25({"a": "-", "b": "?"}, ["horn"], 2, language="english", progress=Silent())
    assert without_words.places.tolist() == [[-1, -1]]


@pytest.mark.parametrize(
    ("query", "language", "documents", "best"),
    [
        ("東京の天気", "none", ["大阪の話です", "明日の東京は晴れ"], 1),
        ("猫", "none", ["犬と 猫 と", "犬"], 0),
        ("กรุงเทพ", "none", ["เชียงใหม่อยู่เหนือ", "เขาอยู่กรุงเทพมานาน"], 1),
        ("हिन्दी", "none", ["हद नदी", "हिन्दी भाषा"], 1),
        ("Mu\u0308ller", "none", ["ein Bäcker", "ein Müller"], 1),
        ("istanbul", "turkish", ["ANKARA", "İSTANBUL"], 1),
        ("IŞIK", "turkish", ["ışık", "ankara"], 0),
        ("ısparta", "turkish", ["ankara", "ISPARTA"], 1),
    ],
)
def test_bm25_finds_words_in_other_scripts(query, language, documents, best):
    rankings = by_bm25(numbered(documents), [query], 2, language=language, progress=Silent())
    assert rankings.places[0, 0] == best


def test_bm25_warns_of_another_language(capsys):
    german = "die Katze schläft auf dem Sofa und der Hund liegt unter dem Tisch in der Küche"
    english = "the cat sleeps on the sofa and the dog lies under the table in the kitchen"
    texts = {"english": numbered([english] * 5), "german": numbered([german] * 5)}
    for documents, language in itertools.product(texts, [*texts, "none"]):
        by_bm25(texts[documents], ["x"], 1, language=language, progress=Progress())
        warned = "may be in another language" in "".join(capsys.readouterr())
        assert warned == (language not in (documents, "none")), (documents, language)


def test_the_document_of_a_query_is_left_out_of_its_ranking(tiny_bert, tmp_path, capsys):
    documents = {f"d{n}": text for n, text in enumerate(dict.fromkeys(texts(150)))}
    queries = {"d7": documents["d7"], "q": documents["d8"]}
    folder = write(tmp_path / "set", documents, queries, {"d7": {"d7": 1, "d3": 1}, "q": {"d8": 1}})
    for model in ("bm25", tiny_bert):
        rankings = []
        for own in (False, True):
            out = tmp_path / f"{model == 'bm25'}-{own}"
            evaluate_retrieval(
                settings(model, folder, keep=200, depth=100, exclude_own=own), Run(out, Progress())
            )
            rankings.append([list(line["retrieved"]) for line in predicted(out)])
        with_own, without = rankings
        assert with_own[0][0] == "d7"
        assert without[0][:99] == with_own[0][1:100]  # and one more in the place that became free
        assert len(without[0]) == 100 or model == "bm25"
        assert without[1] == with_own[1]
    told = "1 of 2 queries are also documents, with the same id and text (d7); --exclude-own removes"
    assert capsys.readouterr().err.count(told) == 2


def test_what_cannot_be_used_is_told_and_counted(data, tmp_path, capsys):
    folder = tmp_path / "set"
    write(
        folder,
        {"d1": "A horn.", "d2": " "},
        {"q1": "horn", "q2": "lute"},
        {"q1": {"d1": 1, "d9": 1}, "q2": {"d1": 0}},
    )
    results = evaluate_retrieval(settings("bm25", folder), Run(tmp_path / "out", Progress()))
    assert results["faults"] == {
        "queries without a relevant document": 1,
        "relevant documents that are not in the corpus": 1,
        "documents without text": 1,
    }
    assert (results["recall@100"], results["map"]) == (50.0, 50.0)
    said = capsys.readouterr().err
    assert "documents without text: 1 (d2); they are never retrieved" in said
    assert "queries without a relevant document: 1 (q2); they are left out" in said


def test_figures_by_hand():
    data = RetrievalSet(
        "x", {"c": "", "b": "", "a": ""}, {"q": "", "r": ""}, {"q": {"a": 1, "c": 1}, "r": {"b": 2}}
    )
    rankings = Rankings(["c", "b", "a"], np.array([[1, 0], [0, -1]]), np.zeros((2, 2), np.float32))
    figures = figures_of_queries(data, rankings)
    assert figures["recall@10"] == [50.0, 0.0]
    assert figures["mrr@10"] == [50.0, 0.0]
    assert figures["map"] == [25.0, 0.0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"model": "bm25", "query_prompt": "x"},
            "query_prompt has no effect with bm25, which has no vectors",
        ),
        ({"model": "bm25", "dimensions": 4}, "dimensions has no effect with bm25"),
        ({"model": "org/name", "language": "dutch"}, "language has no effect without bm25"),
        ({"model": "bm25", "corpus": ["c"], "exclude_own": True}, "exclude_own has no effect with corpus"),
        ({"model": "org/name", "depth": 50}, "greater than or equal to 100"),
    ],
)
def test_settings_without_effect_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        EvaluateRetrievalSettings(data="x", **given)


def test_models_that_cannot_rank_are_refused(data, tmp_path, monkeypatch):
    with pytest.raises(ModelError, match="does not support GloVe vectors; use evaluate sts"):
        evaluate_retrieval(settings("glove:x", data), Run(tmp_path, Silent()))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "Stemmer" else name)
    with pytest.raises(
        MissingExtra, match=r"the package PyStemmer, which is not installed; .*pairsmith\[eval\]"
    ):
        evaluate_retrieval(settings("bm25", data), Run(tmp_path, Silent()))


@pytest.mark.parametrize("model", ["bm25", "@later", "tiny_bert"])
def test_the_plan(model, data, tiny_bert):
    before = {"@later": Estimate(seconds=1, memory=1, disk=1, rows={})}
    named = str(tiny_bert) if model == "tiny_bert" else model
    estimate = planned("evaluate-retrieval", settings(named, data), before, str(tiny_bert))
    assert 0 < estimate.seconds < 60
    assert estimate.disk > 20 * 300


def jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_the_plan_counts_what_earlier_steps_will_make_and_what_exists(tmp_path, tiny_bert, monkeypatch):
    ranked = []
    monkeypatch.setattr(evaluation, "timed", lambda load, sample: ranked.extend(sample) or (1.0, 1.0, None))
    corpus = jsonl(tmp_path / "corpus.jsonl", [{"id": str(n), "text": f"text {n}"} for n in range(30)])
    queries = jsonl(tmp_path / "queries.jsonl", [{"query": f"query {n}", "chunk": "1"} for n in range(5)])
    samples = {
        "@queries": pa.table({"id": ["q"], "query": ["asked later"], "chunk": ["1"]}),
        "@chunks": pa.table({"id": ["c"], "document": ["a/b.txt"], "text": ["cut later"]}),
    }
    before = {
        name: Estimate(1, 1, 1, rows={"train": 1000}, sample=sample) for name, sample in samples.items()
    }

    def plan_of(data, *corpora):
        ranked.clear()
        of_corpora = settings(tiny_bert, data, corpus=[*corpora], keep=0)
        return planned("evaluate-retrieval", of_corpora, before)

    estimate = plan_of("@queries", corpus)
    assert (estimate.seconds, estimate.disk) == (1 + 30 + 1000, 4096 + 1000 * 300)
    assert {"text 29", "asked later"} <= set(ranked)
    estimate = plan_of(queries, "@chunks")
    assert (estimate.seconds, estimate.disk) == (1 + 1000 + 5, 4096 + 5 * 300)
    assert ranked == ["cut later", *(f"query {n}" for n in range(5))]
    before["@chunks"] = Estimate(1, 1, 1, rows={"train": 1000})  # a step that gives no sample only counts
    assert plan_of(queries, "@chunks").seconds == 1 + 1000 + 5
    before["@queries"] = Estimate(1, 1, 1, rows={"train": 7})
    assert plan_of("@queries", "@chunks").seconds == 1 + 1000 + 7


def test_the_plan_for_a_folder_of_an_earlier_step_loads_the_model(tiny_bert):
    before = {"@export": Estimate(1, 1, 1, rows={})}
    assert planned("evaluate-retrieval", settings(tiny_bert, "@export"), before).seconds > 0


def test_a_query_that_is_a_text_of_the_corpus_is_not_said_to_be_its_own(tmp_path, capsys):
    """The text has no id, so that it gets the one that the query gets, too."""
    pytest.importorskip("bm25s")
    corpus = jsonl(tmp_path / "corpus.jsonl", [{"text": f"word{n} here"} for n in range(5)])
    data = jsonl(tmp_path / "rows.jsonl", [{"query": "word1 here", "positive": "word2 here"}])
    evaluate_retrieval(settings("bm25", data, corpus=[corpus]), Run(tmp_path / "out", Progress()))
    assert "exclude-own" not in capsys.readouterr().err


def test_the_corpus_may_have_its_texts_in_any_column(tmp_path):
    pytest.importorskip("bm25s")
    rows = [{"id": str(n), "words": f"word{n} here", "extra": "word0"} for n in range(5)]
    corpus = jsonl(tmp_path / "corpus.jsonl", rows)
    data = jsonl(tmp_path / "rows.jsonl", [{"query": "word2", "chunk": "2"}])
    with pytest.raises(InputError, match="name the column with the texts with --corpus-column"):
        evaluate_retrieval(settings("bm25", data, corpus=[corpus]), Run(tmp_path / "out", Silent()))
    given = settings("bm25", data, corpus=[corpus], corpus_column="words")
    results = evaluate_retrieval(given, Run(tmp_path / "out", Silent()))
    assert (results["ndcg@10"], results["documents"]) == (100.0, 5)
    with pytest.raises(ValueError, match="corpus_column has no effect without corpus"):
        settings("bm25", data, corpus_column="words")


def test_rows_of_queries_with_their_chunks(tmp_path):
    """The words of each query are those of its chunk, so that BM25 finds all of them first."""
    pytest.importorskip("bm25s")
    chunks = [{"id": str(n), "title": f"word{n}", "text": f"text{n} and more"} for n in range(12)]
    (tmp_path / "chunks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in chunks))
    rows = [{"query": f"word{n} text{n}", "chunk": str(n)} for n in range(12)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = {
        "model": "bm25",
        "data": str(tmp_path / "rows.jsonl"),
        "corpus": [str(tmp_path / "chunks.jsonl")],
    }
    results = evaluate_retrieval(EvaluateRetrievalSettings(**given), Run(tmp_path / "out", Silent()))
    assert results["ndcg@10"] == results["recall@100"] == 100.0
    assert (results["queries"], results["documents"]) == (12, 12)
    with pytest.raises(ValueError, match="split"):
        EvaluateRetrievalSettings(**given, split="test")


def test_of_a_folder_with_several_splits_the_test_is_measured_on(tmp_path, capsys):
    pytest.importorskip("bm25s")
    (tmp_path / "rows" / "data").mkdir(parents=True)
    for split, numbers in (("train", range(8)), ("test", range(8, 12))):
        table = pa.Table.from_pylist([{"query": f"word{n}", "chunk": str(n)} for n in numbers])
        pq.write_table(table, tmp_path / "rows" / "data" / f"{split}-00000.parquet")
    chunks = [{"id": str(n), "text": f"word{n} and more"} for n in range(12)]
    (tmp_path / "chunks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in chunks))
    given = {"model": "bm25", "corpus": [str(tmp_path / "chunks.jsonl")]}

    def measured(data, out):
        settings = EvaluateRetrievalSettings(**given, data=str(tmp_path / data))
        return evaluate_retrieval(settings, Run(tmp_path / out, Progress()))["queries"]

    assert measured("rows", "one") == 4
    assert "its split test is measured on; train is not" in capsys.readouterr().err
    assert measured("rows:train", "other") == 8


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ("queries", "a program wrote these queries; figures on people's queries may differ"),
        ("filter-queries", "a program wrote these queries, and filter-queries kept those"),
    ],
)
def test_of_queries_by_a_program_it_is_said_whether_they_were_filtered(step, told, tmp_path, capsys):
    pytest.importorskip("bm25s")
    rows = pa.table({"id": ["a"], "query": ["word1"], "chunk": ["1"], "kind": ["keywords"]})
    writer = FolderWriter.start(Run(tmp_path / "rows", Silent()), Identity.of(step, {}), rows.schema)
    writer.commit(0, {"train": rows}, REJECT.empty_table())
    writer.finish(Card("Queries", "Some queries."))
    chunks = jsonl(tmp_path / "chunks.jsonl", [{"id": str(n), "text": f"word{n} and more"} for n in range(3)])
    given = settings("bm25", tmp_path / "rows", corpus=[chunks])
    assert evaluate_retrieval(given, Run(tmp_path / "out", Progress()))["by_program"] is True
    assert told in capsys.readouterr().err
