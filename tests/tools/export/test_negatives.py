"""Queries with negatives, in the forms of the tools that train on them."""

import json

import datasets
import pytest
from tests.steps.mix.test_mix import lines
from tests.tools.export.test_export import exported, rows_of

from pairsmith.core.errors import InputError, SettingsError
from pairsmith.core.progress import Progress
from pairsmith.runs import Run
from pairsmith.tools.export.route import export
from pairsmith.tools.settings import ExportSettings

pytestmark = pytest.mark.slow


def row(number, query, positive, negatives, scores):
    ids = [text.upper() for text in negatives]
    score, *others = scores
    return {
        "id": str(number), "query": query, "positive": positive, "negatives": negatives, "score": score,
        "scores": others, "query_id": query.upper(), "positive_id": positive.upper(), "negative_ids": ids,
    }  # fmt: skip


ROWS = [
    row(1, "who sings?", "ann sings", ["bob runs", "ann reads"], [0.9, 0.7, 0.5]),
    row(2, "who sings?", "so does eve", ["ann reads", "it rains"], [0.8, 0.5, 0.25]),
    row(3, "who “runs”?", "bob runs", ["ann sings"], [1.0, 0.5]),
]


@pytest.fixture
def source(tmp_path):
    return lines(tmp_path / "rows.jsonl", ROWS)


def test_triplets_have_a_row_for_each_negative(tmp_path, source):
    rows = rows_of(exported(tmp_path, source, "triplets")["train.jsonl"])
    assert [tuple(triplet.values()) for triplet in rows] == [
        ("who sings?", "ann sings", "bob runs"),
        ("who sings?", "ann sings", "ann reads"),
        ("who sings?", "so does eve", "ann reads"),
        ("who sings?", "so does eve", "it rains"),
        ("who “runs”?", "bob runs", "ann sings"),
    ]
    assert list(rows[0]) == ["anchor", "positive", "negative"]


def test_rows_without_a_negative_make_no_triplet_and_are_told(tmp_path, capsys):
    source = lines(tmp_path / "rows.jsonl", [*ROWS, row(4, "who hums?", "bees hum", [], [1.0])])
    export(ExportSettings(data=source, form="triplets"), Run(tmp_path / "out", Progress()))
    assert "left out 1 row without negatives" in capsys.readouterr().err
    assert len(rows_of((tmp_path / "out" / "train.jsonl").read_text())) == 5


@pytest.mark.parametrize("form", ["beir", "tevatron", "flag-embedding"])
def test_two_queries_with_one_id_are_refused(tmp_path, form):
    other = row(4, "who hums?", "bees hum", ["ann sings"], [1.0, 0.5]) | {"query_id": "WHO SINGS?"}
    source = lines(tmp_path / "rows.jsonl", [*ROWS, other])
    with pytest.raises(InputError) as caught:
        exported(tmp_path, source, form)
    assert str(caught.value) == (
        "row 4: another query has the query_id 'WHO SINGS?', too; give each query an id of its own"
    )


def test_tuples_leave_out_rows_with_fewer_and_say_so(tmp_path, source, capsys):
    export(ExportSettings(data=source, form="sentence-transformers"), Run(tmp_path / "out", Progress()))
    assert "left out 1 row with fewer than 2 negatives; --form triplets" in capsys.readouterr().err
    rows = rows_of((tmp_path / "out" / "train.jsonl").read_text())
    assert list(rows[0]) == ["anchor", "positive", "negative_1", "negative_2"]
    assert [example["negative_2"] for example in rows] == ["ann reads", "it rains"]
    scored = rows_of(exported(tmp_path, source, "scored-tuples", "scored")["train.jsonl"])
    assert [example.pop("label") for example in scored] == [[0.9, 0.7, 0.5], [0.8, 0.5, 0.25]]
    assert scored == rows


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(
    ("form", "losses"),
    [
        ("triplets", ["TripletLoss", "MultipleNegativesRankingLoss"]),
        ("sentence-transformers", ["MultipleNegativesRankingLoss", "CachedMultipleNegativesRankingLoss"]),
        ("scored-tuples", ["MarginMSELoss", "DistillKLDivLoss"]),
    ],
)
def test_losses_of_sentence_transformers_take_them(tmp_path, source, tiny_bert, form, losses):
    import torch
    from sentence_transformers.sentence_transformer import losses as library
    from sentence_transformers.sentence_transformer.data_collator import SentenceTransformerDataCollator

    from pairsmith.models.sentence_encoder import load_sentence_encoder

    exported(tmp_path, source, form)
    opened = datasets.load_dataset(
        "json", data_files=str(tmp_path / "out" / "train.jsonl"), cache_dir=str(tmp_path / "cache")
    )["train"]
    encoder = load_sentence_encoder(str(tiny_bert), device="cpu")
    collator = SentenceTransformerDataCollator(preprocess_fn=encoder.preprocess)
    batch = collator([opened[i] for i in range(len(opened))])
    labels = batch.pop("label", None)
    columns = [name for name in opened.column_names if name != "label"]
    features = [
        {key.removeprefix(f"{name}_"): value for key, value in batch.items() if key.startswith(f"{name}_")}
        for name in columns
    ]
    for name in losses:
        loss = getattr(library, name)(encoder)([dict(feature) for feature in features], labels)
        assert torch.isfinite(loss).all(), name


def test_tevatron_has_a_line_for_each_query_with_its_passages(tmp_path, source):
    one, other = rows_of(exported(tmp_path, source, "tevatron")["train.jsonl"])
    assert list(one) == ["query_id", "query", "positive_passages", "negative_passages"]
    assert (one["query_id"], one["query"]) == ("WHO SINGS?", "who sings?")
    assert one["positive_passages"] == [
        {"docid": "ANN SINGS", "title": "", "text": "ann sings"},
        {"docid": "SO DOES EVE", "title": "", "text": "so does eve"},
    ]
    assert [passage["text"] for passage in one["negative_passages"]] == ["bob runs", "ann reads", "it rains"]
    assert other["query"] == "who “runs”?"


def test_flag_embedding_has_scores_where_there_are_some(tmp_path, source):
    one, other = rows_of(exported(tmp_path, source, "flag-embedding")["train.jsonl"])
    assert one == {
        "query": "who sings?", "pos": ["ann sings", "so does eve"], "neg": ["bob runs", "ann reads", "it rains"],
        "pos_scores": [0.9, 0.8], "neg_scores": [0.7, 0.5, 0.25],
    }  # fmt: skip
    assert len(other["neg"]) == len(other["neg_scores"]) == 1
    plain = [{name: fields[name] for name in ("query", "positive", "negatives")} for fields in ROWS]
    bare = exported(tmp_path, lines(tmp_path / "plain.jsonl", plain), "flag-embedding", "bare")
    assert list(rows_of(bare["train.jsonl"])[0]) == ["query", "pos", "neg"]


@pytest.mark.filterwarnings("ignore:Using `tqdm.autonotebook`", "ignore::ResourceWarning")
def test_the_package_beir_opens_positives_and_negatives(tmp_path, source):
    from beir.datasets.data_loader import GenericDataLoader

    exported(tmp_path, source, "beir")
    corpus, queries, judged = GenericDataLoader(data_folder=str(tmp_path / "out")).load(split="train")
    assert {document["text"] for document in corpus.values()} == {
        "ann sings", "so does eve", "bob runs", "ann reads", "it rains",
    }  # fmt: skip
    assert set(queries.values()) == {"who sings?", "who “runs”?"}
    assert judged == {"WHO SINGS?": {"ANN SINGS": 1, "SO DOES EVE": 1}, "WHO “RUNS”?": {"BOB RUNS": 1}}


@pytest.mark.parametrize(
    ("changed", "form", "error", "message"),
    [
        (
            {"scores": None},
            "scored-tuples",
            SettingsError,
            "needs the columns score and scores, which row 1 lacks",
        ),
        ({"negatives": "text"}, "triplets", InputError, "negatives has to be a list of texts"),
        ({"scores": [1.0]}, "triplets", InputError, "scores has to be a list with an item for each of the 2"),
        ({"query": " "}, "triplets", InputError, "query is blank"),
    ],
)
def test_rows_that_do_not_fit_are_told(tmp_path, changed, form, error, message):
    with pytest.raises(error, match=message):
        exported(tmp_path, lines(tmp_path / "bad.jsonl", [{**ROWS[0], **changed}]), form)


def test_forms_of_negatives_are_for_negatives(tmp_path):
    other = lines(tmp_path / "a.jsonl", [{"input": "a", "output": "b"}])
    with pytest.raises(
        SettingsError, match="--form triplets is for queries with negatives; these rows are pairs of"
    ):
        exported(tmp_path, other, "triplets")
    with pytest.raises(
        SettingsError, match="--form squad is for questions with answers; these rows are queries with"
    ):
        exported(tmp_path, lines(tmp_path / "b.jsonl", ROWS), "squad")


def test_json_lines_keep_all_columns(tmp_path, source):
    text = exported(tmp_path, source, "jsonl")["train.jsonl"]
    assert list(map(json.loads, text.splitlines())) == ROWS
