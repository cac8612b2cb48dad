"""The step ``filter-queries`` with an encoder whose cosines can be worked out by hand."""

import json

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st
from tests.heard import Heard

from pairsmith.core.errors import InputError, ModelError
from pairsmith.core.progress import Silent
from pairsmith.data.schemas import CHUNK
from pairsmith.models import encode as encoding
from pairsmith.runs import DatasetFolder, Run
from pairsmith.steps.retrieval import generated_queries
from pairsmith.steps.retrieval.filter_queries import filter_queries, plan_filter_queries
from pairsmith.steps.retrieval.settings import FilterQueriesSettings
from pairsmith.steps.retrieval.verdicts import held_back

WORDS = ["apple", "bread", "cheese", "dates", "eggs", "flour", "grapes", "honey"]


@pytest.fixture(scope="session")
def word_counts(tmp_path_factory):
    """An encoder whose vector of a text counts its words: the cosine of two texts is that of these counts."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    folder = tmp_path_factory.mktemp("encoders") / "words"
    tokenizer = Tokenizer(
        models.WordLevel({word: at for at, word in enumerate(["[UNK]", *WORDS])}, unk_token="[UNK]")
    )
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    weights = np.vstack([np.zeros((1, len(WORDS))), np.eye(len(WORDS))]).astype(np.float32)
    module = StaticEmbedding(tokenizer, embedding_weights=weights)
    SentenceTransformer(modules=[module], device="cpu").save(str(folder))
    return str(folder)


CORPUS = [
    {"id": "c1", "title": "Apple", "text": "apple bread"},
    {"id": "c2", "title": "", "text": "cheese dates"},
    {"id": "c3", "title": "", "text": "cheese eggs"},
    {"id": "c4", "title": "", "text": "cheese cheese flour"},
]
QUERIES = [
    ("q1", "apple", "c1"),  # found first
    ("q2", "cheese", "c2"),  # after c4, whose cosine is 2/sqrt(5), and level with c3, which counts as nearer
    ("q3", "Apple?", "c1"),  # a copy of q1
    ("q4", "apple apple bread", "c1"),  # equal to its chunk with the title; cosine 2/sqrt(5) = 0.894 with q1
    ("q5", "honey", "c1"),  # nothing like it
    ("q6", "eggs", "c3"),  # is one of the evaluation
    ("q7", "cheese cheese flour", "c4"),
    ("q8", " ", "c1"),
    ("q9", "apple", "gone"),
    ("q10", "dates", "c2"),
]


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture
def world(tmp_path, word_counts):
    texts = {row["id"]: row["text"] for row in CORPUS}
    queries = [
        {
            "id": name,
            "query": text,
            "positive": texts.get(chunk, "not there"),
            "chunk": chunk,
            "kind": "keywords",
        }
        for name, text, chunk in QUERIES
    ]
    lines(tmp_path / "queries.jsonl", queries)
    lines(tmp_path / "corpus.jsonl", CORPUS)
    (tmp_path / "beir").mkdir()
    lines(
        tmp_path / "beir" / "queries.jsonl",
        [{"_id": "1", "text": "EGGS!"}, {"_id": "2", "text": "dates grapes"}],
    )

    def settings(**changes):
        given = {
            "queries": str(tmp_path / "queries.jsonl"), "corpus": str(tmp_path / "corpus.jsonl"),
            "encoder": word_counts, "dtype": "float32", "device": "cpu", "shard_size": 3,
        }  # fmt: skip
        return FilterQueriesSettings(**{**given, **changes})

    return tmp_path, settings


def run(settings, out, progress=None):
    return filter_queries(settings, Run(out, progress or Silent()))


def kept(folder):
    return {row["id"]: row for row in folder.table().to_pylist()}


def lost(folder):
    return {row["id"]: row for row in folder.rejects().to_pylist()}


def test_queries_that_lead_back_are_kept_once(world):
    tmp_path, settings = world
    folder = run(settings(within=1, duplicates=0.95), tmp_path / "out")
    rows = kept(folder)
    assert list(rows) == ["q1", "q4", "q6", "q7", "q10"]
    assert [row["rank"] for row in rows.values()] == [1] * 5
    # The chunk with its title is apple, apple, bread.
    assert rows["q1"]["similarity"] == pytest.approx(2 / 5**0.5)
    assert rows["q4"]["similarity"] == pytest.approx(1)
    assert rows["q10"]["similarity"] == pytest.approx(0.5**0.5)
    assert {**rows["q1"], "similarity": None} == {
        "id": "q1", "query": "apple", "positive": "apple bread", "chunk": "c1", "kind": "keywords",
        "rank": 1, "similarity": None,
    }  # fmt: skip
    assert {name: (row["filter"], row["reason"]) for name, row in lost(folder).items()} == {
        "q2": ("inconsistent", "its chunk is not among the 1 nearest"),
        "q3": ("duplicate", "copies an earlier query"),
        "q5": ("inconsistent", "its chunk is not among the 1 nearest"),
        "q8": ("no query", "it is blank, or has no vector"),
        "q9": ("no chunk", "its text is not in the corpus, or has no vector"),
    }
    assert json.loads(lost(folder)["q3"]["row"])["like"] == "q1"


def test_rejects_have_ids_of_any_letter_case(world):
    tmp_path, settings = world
    queries = [{"ID": name, "query": text, "positive": "apple bread"} for name, text, _ in QUERIES[:3]]
    lines(tmp_path / "queries.jsonl", queries)
    assert "q3" in lost(run(settings(within=1), tmp_path / "out"))


def test_within_more_chunks_a_query_of_less_rank_is_kept(world):
    tmp_path, settings = world
    rows = kept(run(settings(within=3), tmp_path / "out"))
    assert rows["q2"]["rank"] == 3
    assert rows["q2"]["similarity"] == pytest.approx(0.5**0.5)


def test_near_copies_of_earlier_queries_are_dropped(world):
    tmp_path, settings = world
    folder = run(settings(within=1, duplicates=0.89), tmp_path / "out")
    reject = lost(folder)["q4"]
    assert (reject["filter"], reject["reason"]) == (
        "duplicate",
        "an earlier query has a cosine of 0.89 or more with it",
    )
    assert json.loads(reject["row"])["like"] == "q1"


def test_queries_of_an_evaluation_are_dropped_and_counted(world):
    tmp_path, settings = world
    evaluation = [str(tmp_path / "beir" / "queries.jsonl")]
    folder = run(settings(within=1, evaluation=evaluation, contaminated=0.7), tmp_path / "out")
    reasons = {name: row["reason"] for name, row in lost(folder).items() if row["filter"] == "evaluation"}
    # "dates" has a cosine of 0.707 with "dates grapes".
    assert reasons == {
        "q6": "copies a query of the evaluation",
        "q10": "a query of the evaluation has a cosine of 0.7 or more with it",
    }
    assert folder.manifest.counts.rejects_by_reason["evaluation: copies a query of the evaluation"] == 1
    beir = tmp_path / "beir"
    copies = run(settings(within=1, evaluation=[str(beir)], contaminated=1), beir / "copies")
    assert [name for name, row in lost(copies).items() if row["filter"] == "evaluation"] == ["q6"]


def test_chunks_are_found_by_their_texts_where_no_id_is_given(world):
    tmp_path, settings = world
    rows = [
        {"question": "cheese cheese flour", "context": "cheese cheese flour"},
        {"question": "x", "context": "y"},
    ]
    queries = lines(tmp_path / "asked.jsonl", rows)
    folder = run(settings(queries=queries), tmp_path / "out")
    (row,) = folder.table().to_pylist()
    assert (row["question"], row["rank"]) == ("cheese cheese flour", 1)
    (gone,) = lost(folder).values()
    assert gone["filter"] == "no query"  # a word that the encoder does not know has no vector


def test_a_filter_of_a_filter_has_the_new_ranks(world):
    tmp_path, settings = world
    first = run(settings(within=3), tmp_path / "first")
    again = run(settings(queries=str(first.path), within=1), tmp_path / "again")
    assert again.table().column_names == first.table().column_names
    assert "q2" in kept(first)
    assert "q2" not in kept(again)


def test_an_interrupted_run_ends_with_the_same_bytes(world, monkeypatch):
    tmp_path, settings = world
    whole = run(settings(), tmp_path / "whole")
    encode, calls = encoding.encode_texts, []

    def stopping(*args, **rest):
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return encode(*args, **rest)

    with monkeypatch.context() as patched:
        patched.setattr("pairsmith.steps.corpora.corpus.encode_texts", stopping)
        with pytest.raises(KeyboardInterrupt):
            run(settings(), tmp_path / "out")
        calls.clear()
        patched.setattr(
            "pairsmith.steps.corpora.corpus.encode_texts",
            lambda *args, **rest: calls.append(1) or encode(*args, **rest),
        )
        again = run(settings(), tmp_path / "out")
        assert len(calls) == 3  # of the three parts of the queries and the two of the corpus, two were there
    names = sorted(path.relative_to(whole.path) for path in whole.path.rglob("*.parquet"))
    assert all((whole.path / name).read_bytes() == (again.path / name).read_bytes() for name in names)


def test_queries_for_another_corpus_are_refused(world):
    tmp_path, settings = world
    other = lines(tmp_path / "other.jsonl", [{"id": "z", "text": "grapes"}])
    with pytest.raises(InputError, match="none of the texts that its queries were written for is in"):
        run(settings(corpus=[other]), tmp_path / "out")


def test_files_without_queries_are_refused(world):
    tmp_path, settings = world
    blank = lines(tmp_path / "blank.jsonl", [{"query": " ", "positive": "apple"}])
    with pytest.raises(InputError, match="all of its queries are blank"):
        run(settings(queries=blank), tmp_path / "out")
    nothing = lines(tmp_path / "nothing.jsonl", [{"text": ""}])
    with pytest.raises(InputError, match="holds no queries"):
        run(settings(evaluation=[nothing]), tmp_path / "out")
    with pytest.raises(InputError, match="has none of the columns query, question"):
        run(settings(queries=str(tmp_path / "corpus.jsonl")), tmp_path / "out")


def test_a_corpus_of_chunks_and_a_plan(world, tmp_path):
    from pairsmith.steps.retrieval.chunk import chunk
    from pairsmith.steps.retrieval.settings import ChunkSettings

    _, settings = world
    chunks = chunk(
        ChunkSettings(documents=[str(tmp_path / "corpus.jsonl")]), Run(tmp_path / "chunks", Silent())
    )
    assert chunks.table().schema.names == CHUNK.names
    (first, *_) = chunks.table().to_pylist()
    queries = lines(
        tmp_path / "more.jsonl",
        [{"query": "bread", "positive": first["text"], "title": first["title"], "chunk": first["id"]}],
    )
    given = settings(queries=queries, corpus=[str(chunks.path)], evaluation=[str(tmp_path / "beir")])
    assert DatasetFolder.open(run(given, tmp_path / "out").path).rows == 1
    planned = plan_filter_queries(given, {})
    assert planned.rows == {"train": 1}
    assert planned.seconds > 0
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus.jsonl").rename(tmp_path / "corpus" / "corpus.jsonl")
    in_beir = given.model_copy(update={"corpus": [str(tmp_path / "corpus")]})
    assert plan_filter_queries(in_beir, {}).rows == {"train": 1}


def test_a_plan_needs_texts(world):
    tmp_path, settings = world
    blank = lines(tmp_path / "blank.jsonl", [{"text": " "}])
    with pytest.raises(InputError, match=r"blank\.jsonl: the queries or the corpus have no texts to try"):
        plan_filter_queries(settings(corpus=[blank]), {})


def test_all_queries_of_some_chunks_are_held_back(world):
    tmp_path, settings = world
    whole = run(settings(within=3), tmp_path / "whole")
    heard = Heard()
    halves = run(settings(within=3, held_back=0.5), tmp_path / "halves", heard)
    train, test = (halves.table(split).to_pylist() for split in ("train", "test"))
    assert sorted(row["id"] for row in [*train, *test]) == sorted(whole.table()["id"].to_pylist())
    of_train, of_test = ({row["chunk"] for row in rows} for rows in (train, test))
    assert of_train
    assert of_test
    assert not of_train & of_test
    assert any(f"{len(test)} queries are held back: figures of so few" in line for line in heard.lines)
    planned = plan_filter_queries(settings(held_back=0.2), {})
    count = plan_filter_queries(settings(), {}).rows["train"]
    assert planned.rows == {"train": count - round(count / 5), "test": round(count / 5)}


def test_what_is_held_back_goes_by_the_chunk_and_not_by_the_text_of_the_positive(world):
    tmp_path, settings = world
    rows = [
        {"id": f"{n}-{chunk}", "query": query, "positive": f"other {n}", "chunk": chunk}
        for n, (query, chunk) in enumerate(
            [("apple bread", "c1"), ("apple", "c1"), ("cheese dates", "c2"), ("dates", "c2"), ("eggs", "c3")]
        )
    ]
    given = settings(
        queries=lines(tmp_path / "rows.jsonl", rows), held_back=0.5, duplicates=1, contaminated=1
    )
    folder = run(given, tmp_path / "out")
    of_train, of_test = (
        {row["chunk"] for row in folder.table(split).to_pylist()} for split in ("train", "test")
    )
    assert of_train
    assert of_test
    assert not of_train & of_test


def test_queries_near_to_those_that_are_held_back_are_not_trained_on(world):
    tmp_path, settings = world
    rows = [
        {"id": "1", "query": "cheese dates", "chunk": "c2", "positive": ""},
        {
            "id": "2",
            "query": "cheese dates dates",
            "chunk": "c3",
            "positive": "",
        },  # cosine 3/sqrt(10) = 0.949
    ]
    given = settings(queries=lines(tmp_path / "rows.jsonl", rows), held_back=0.5, within=4)
    heard = Heard()
    folder = run(given, tmp_path / "out", heard)
    assert len(folder.table("test")) == 1
    assert not len(folder.table("train"))
    assert "2 of 2 queries lead back to their chunks" in heard.lines
    (reject,) = folder.rejects().to_pylist()
    assert (reject["filter"], reject["reason"]) == (
        "evaluation",
        "a query that is held back has a cosine of 0.9 or more with it",
    )


@drawn(
    chunks=st.lists(st.integers(0, 9), min_size=1, max_size=30),
    kept=st.lists(st.booleans(), min_size=30, max_size=30),
    share=st.sampled_from([0.001, 0.05, 0.5, 0.999]),
)
def test_of_two_chunks_or_more_one_is_held_back_and_one_is_not(chunks, kept, share):
    keys, left = np.array(chunks, np.uint64), np.array(kept[: len(chunks)])
    held = held_back(keys, left, share)
    test, train = set(keys[left & held].tolist()), set(keys[left & ~held].tolist())
    assert not test & train
    assert test | train == set(keys[left].tolist())
    if len(test | train) > 1:
        assert test
        assert train


def test_saved_vectors_are_not_taken_for_those_of_another_column(world):
    """A run that begins anew in the same folder, with another column of the evaluation, leaves others out."""
    tmp_path, settings = world
    rows = lines(tmp_path / "own.jsonl", [{"query": "grapes", "real": "apple"}])
    first = run(settings(evaluation=[rows], evaluation_column="query"), tmp_path / "out")
    assert "evaluation" not in {row["filter"] for row in first.rejects().to_pylist()}
    place = Run(tmp_path / "out", Silent(), fresh=True)
    again = filter_queries(settings(evaluation=[rows], evaluation_column="real"), place)
    assert lost(again)["q1"]["filter"] == "evaluation"


@pytest.mark.parametrize("together", [1, 10_000])
def test_rows_of_any_program_are_read(world, together, monkeypatch):
    """Ids and further columns of several types, columns that the first row lacks, and a chunk with the id 0."""
    monkeypatch.setattr(generated_queries, "_AT_ONCE", together)
    tmp_path, settings = world
    corpus = lines(tmp_path / "numbers.jsonl", [{"id": 0, "text": "apple"}, {"id": 1, "text": "cheese"}])
    rows = [
        {"id": 1, "query": "apple", "positive": ""},
        {"id": "b", "query": "apple apple bread", "positive": "", "chunk": 0, "more": {"a": 1}},
        {
            "id": 2**70,
            "query": "cheese",
            "positive": "",
            "chunk": 1,
            "more": [],
            "half": "\ud800",
            "none": {},
        },
    ]
    folder = run(settings(queries=lines(tmp_path / "rows.jsonl", rows), corpus=[corpus]), tmp_path / "out")
    by_id = kept(folder)
    assert by_id.keys() == {"b", str(2**70)}
    assert by_id["b"]["more"] == '{"a": 1}'
    assert by_id[str(2**70)]["half"] == '"\\ud800"'
    assert lost(folder)["1"]["filter"] == "no chunk"


@pytest.mark.parametrize("together", [1, 10_000])
def test_a_column_has_one_type_whatever_stands_where(world, together, monkeypatch):
    monkeypatch.setattr(generated_queries, "_AT_ONCE", together)
    tmp_path, settings = world
    rows = [
        {"query": "apple", "positive": "apple bread", "some": 1, "other": None},
        {"query": "apple bread", "positive": "apple bread", "some": 0.5, "other": 2},
        {"query": "bread", "positive": "apple bread", "other": True},
    ]
    source = lines(tmp_path / "rows.jsonl", rows)
    origin = generated_queries.QuerySource.find(source)
    assert {name: str(kind) for name, kind in zip(origin.schema.names, origin.schema.types, strict=True)} == {
        "query": "string", "positive": "string", "some": "double", "other": "string",
    }  # fmt: skip
    table = run(settings(queries=source), tmp_path / "out").table()
    assert table["some"].to_pylist()[:2] == [1.0, 0.5]


def test_a_split_that_is_not_there_is_told(world):
    tmp_path, settings = world
    run(settings(held_back=0.5), tmp_path / "kept")
    with pytest.raises(InputError, match="there is no split 'tset'; did you mean 'test'"):
        generated_queries.QuerySource.find(f"{tmp_path / 'kept'}:tset")


def test_an_id_of_two_chunks_is_refused(world):
    tmp_path, settings = world
    corpus = lines(tmp_path / "twice.jsonl", [{"id": "c1", "text": "apple"}, {"id": "c1", "text": "cheese"}])
    with pytest.raises(InputError, match="twice.jsonl.*has the id 'c1', too"):
        run(settings(corpus=[corpus]), tmp_path / "out")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"contaminated": 0.8}, "contaminated has no effect without evaluation or held_back"),
        ({"evaluation_column": "text"}, "evaluation_column has no effect without evaluation"),
    ],
)
def test_settings_without_effect_are_refused(world, changes, message):
    with pytest.raises(ValueError, match=message):
        world[1](**changes)


# a judge


def judged(model, pairs):
    """What the judge says of queries and texts, computed one by one."""
    from pairsmith.models.language.likelihood import likelihood_ratios, load_likelihood_judge

    judge = load_likelihood_judge(str(model), device="cpu", dtype="float32", max_length=None)
    return [
        float(likelihood_ratios(judge, [text], [query], cue="\n\n")[0])  # the query after the text
        for query, text in pairs
    ]


LED_BACK = {"q1": "Apple\napple bread", "q3": "Apple\napple bread", "q4": "Apple\napple bread",
            "q6": "cheese eggs", "q7": "cheese cheese flour", "q10": "cheese dates"}  # fmt: skip
"""The queries whose chunk is the nearest, and their chunks with titles."""


@pytest.fixture(scope="module")
def scores(tiny_gpt2):
    texts = {name: text for name, text, _ in QUERIES}
    return dict(
        zip(
            LED_BACK,
            judged(tiny_gpt2, [(texts[name], chunk) for name, chunk in LED_BACK.items()]),
            strict=True,
        )
    )


def by_judge(settings, model, **changes):
    given = {"within": 1, "duplicates": 1, "judge": str(model), "judge_kind": "likelihood", "shard_size": 2}
    return settings(**{**given, **changes})


def test_a_judge_scores_queries_that_lead_back_and_those_below_a_threshold_are_left_out(
    world, tiny_gpt2, scores
):
    tmp_path, settings = world
    threshold = sorted(scores.values())[2]
    heard = Heard()
    folder = run(by_judge(settings, tiny_gpt2, threshold=threshold - 1e-4), tmp_path / "out", heard)
    low = {name for name, score in scores.items() if score < threshold}
    assert len(low) == 2
    dropped = lost(folder)
    assert {name for name, row in dropped.items() if row["filter"] == "judge"} == low
    # A copy of an earlier query is left out only if that one is kept.
    copy = {"q3"} if {"q1", "q3"}.isdisjoint(low) else set()
    assert set(kept(folder)) == set(scores) - low - copy
    for name, row in kept(folder).items():
        assert row["judge_score"] == pytest.approx(scores[name], abs=1e-4)
    for name in low:
        assert json.loads(dropped[name]["row"])["judge_score"] == pytest.approx(scores[name], abs=1e-4)
    assert "judge_score" not in json.loads(dropped["q2"]["row"])  # it did not lead back, so it was not judged
    assert any("2 of these 6 are left out because of the judge's scores" in line for line in heard.lines)
    again = run(settings(queries=str(folder.path), within=1), tmp_path / "again")
    assert "judge_score" not in again.table().column_names


@pytest.mark.parametrize(("share", "count"), [(0.5, 3), (1.0, 6), (0.1, 1)])
def test_a_share_of_the_queries_with_the_highest_scores_is_kept(world, tiny_gpt2, scores, share, count):
    tmp_path, settings = world
    folder = run(by_judge(settings, tiny_gpt2, share=share), tmp_path / "out")
    best = sorted(scores, key=lambda name: -scores[name])[:count]
    dropped = {name for name, row in lost(folder).items() if row["filter"] == "judge"}
    assert dropped == set(scores) - set(best)


def test_a_cross_encoder_reads_as_many_tokens_as_its_folder_says(world, tiny_bert):
    """Not as many as --max-length says, which is for the encoder."""
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification, set_seed

    from pairsmith.models.cross_encoder import load_cross_encoder, score_pairs

    tmp_path, settings = world
    set_seed(1)
    config = BertConfig.from_pretrained(tiny_bert, num_labels=1, initializer_range=0.5)
    BertForSequenceClassification(config).save_pretrained(tmp_path / "judge")
    AutoTokenizer.from_pretrained(tiny_bert, model_max_length=8).save_pretrained(tmp_path / "judge")
    given = by_judge(settings, tmp_path / "judge", judge_kind="cross-encoder", share=1)
    rows = kept(run(given, tmp_path / "out"))
    texts = {name: text for name, text, _ in QUERIES}
    scores = {}
    for longest in (8, 64):
        cross = load_cross_encoder(str(tmp_path / "judge"), device="cpu", max_length=longest)
        pairs = [texts[name] for name in rows], [LED_BACK[name] for name in rows]
        scores[longest] = score_pairs(cross, *pairs).tolist()
    assert [row["judge_score"] for row in rows.values()] == pytest.approx(scores[8], abs=1e-5)
    assert scores[8] != pytest.approx(scores[64], abs=1e-3)
    assert given.model_copy(update={"max_length": 9}).judging().max_length is None


def test_of_a_cross_encoder_without_a_head_the_other_judges_are_named(world, tiny_bert):
    tmp_path, settings = world
    with pytest.raises(ModelError, match="has no head for classification") as caught:
        run(by_judge(settings, tiny_bert, judge_kind="cross-encoder", share=1), tmp_path / "out")
    assert str(caught.value).splitlines()[1:] == [
        "other judges, as --judge-kind: likelihood (a causal language model), encoder (a sentence encoder)"
    ]


def test_a_run_that_is_stopped_while_it_judges_ends_with_the_same_bytes(world, tiny_gpt2, monkeypatch):
    from pairsmith.steps import judging

    tmp_path, settings = world
    given = by_judge(settings, tiny_gpt2, share=0.5)
    whole = run(given, tmp_path / "whole")
    load, calls = judging.load_judge, []

    def stopping(*args, **rest):
        judge = load(*args, **rest)

        def score(*rows):
            calls.append(1)
            if len(calls) == 2:
                raise KeyboardInterrupt
            return judge(*rows)

        return score

    monkeypatch.setattr(judging, "load_judge", stopping)
    with pytest.raises(KeyboardInterrupt):
        run(given, tmp_path / "out")
    again = run(given, tmp_path / "out")
    assert len(calls) == 4  # three parts of two queries each; the first was saved
    names = sorted(path.relative_to(whole.path) for path in whole.path.rglob("*.parquet"))
    assert any("scores" in str(name) for name in names)
    assert all((whole.path / name).read_bytes() == (again.path / name).read_bytes() for name in names)


def test_without_a_query_that_leads_back_nothing_is_judged(world, tiny_gpt2):
    tmp_path, settings = world
    queries = lines(tmp_path / "no.jsonl", [{"query": "honey", "positive": "apple bread", "chunk": "c1"}])
    folder = run(by_judge(settings, tiny_gpt2, share=0.5, queries=queries), tmp_path / "out")
    assert folder.rows == 0
    assert not (tmp_path / "out" / "scores").exists()


def test_a_share_of_one_query_is_that_query(world, tiny_gpt2):
    tmp_path, settings = world
    queries = lines(tmp_path / "one.jsonl", [{"query": "apple", "positive": "apple bread", "chunk": "c1"}])
    assert run(by_judge(settings, tiny_gpt2, share=0.1, queries=queries), tmp_path / "out").rows == 1


@pytest.mark.parametrize("stopped", [False, True])
def test_scores_of_other_queries_are_not_used_again(world, tiny_gpt2, monkeypatch, stopped):
    from pairsmith.steps import judging

    tmp_path, settings = world
    wanted = run(by_judge(settings, tiny_gpt2, share=1, within=3), tmp_path / "wanted")
    load, calls = judging.load_judge, []

    def stopping(*args, **rest):
        judge = load(*args, **rest)

        def score(*rows):
            calls.append(1)
            if stopped and len(calls) == 3:
                raise KeyboardInterrupt
            return judge(*rows)

        return score

    with monkeypatch.context() as patched:
        patched.setattr(judging, "load_judge", stopping)
        if stopped:
            with pytest.raises(KeyboardInterrupt):
                run(by_judge(settings, tiny_gpt2, share=1), tmp_path / "out")
        else:
            run(by_judge(settings, tiny_gpt2, share=1), tmp_path / "out")
    given = by_judge(settings, tiny_gpt2, share=1, within=3)
    again = filter_queries(given, Run(tmp_path / "out", Silent(), fresh=True))
    assert again.table().to_pylist() == wanted.table().to_pylist()


def test_copies_in_the_corpus_and_queries_that_are_held_back_are_judged_too(world, tiny_gpt2, scores):
    tmp_path, settings = world
    corpus = lines(tmp_path / "twice.jsonl", [CORPUS[0], *({**row, "id": f"x{row['id']}"} for row in CORPUS),
                                              *CORPUS[1:]])  # fmt: skip
    given = by_judge(settings, tiny_gpt2, share=1, held_back=0.5, corpus=[corpus], contaminated=1)
    folder = run(given, tmp_path / "out")
    rows = [row for split in ("train", "test") for row in folder.table(split).to_pylist()]
    assert len(rows) == 5  # q3 copies q1
    for row in rows:
        assert row["judge_score"] == pytest.approx(scores[row["id"]], abs=1e-4)
    assert folder.table("test").num_rows


def test_a_judge_that_gives_all_the_same_score_is_told_of(world, tiny_gpt2, monkeypatch):
    from pairsmith.steps import judging

    tmp_path, settings = world
    equal = lambda rows, _: np.zeros(rows.num_rows, np.float32)  # noqa: E731
    monkeypatch.setattr(judging, "load_judge", lambda *_, **__: equal)
    heard = Heard()
    folder = run(by_judge(settings, tiny_gpt2, share=0.5), tmp_path / "out", heard)
    assert any("the judge gives all 6 queries the same score" in line for line in heard.lines)
    assert list(kept(folder)) == ["q1", "q4"]  # of the first three, q3 copies q1


def test_another_encoder_is_a_judge_too(world, word_counts):
    tmp_path, settings = world
    given = by_judge(settings, word_counts, judge_kind="encoder", threshold=0.9)
    folder = run(given, tmp_path / "out")
    assert list(kept(folder)) == ["q4", "q7"]  # "apple" has 2/sqrt(5), the others 1/sqrt(2)
    for row in kept(folder).values():
        assert row["judge_score"] == pytest.approx(row["similarity"])
    card = (folder.path / "README.md").read_text()
    assert "the cosine under the encoder words" in card
    assert "synthetic" not in card  # no model wrote the queries
    again = given.model_copy(update={"queries": str(folder.path)})
    assert "synthetic" not in (run(again, tmp_path / "again").path / "README.md").read_text()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"judge": "m"}, "give --threshold or --share"),
        ({"threshold": 0.5}, "threshold has no effect without a judge"),
        ({"threshold": 0.0}, "threshold has no effect without a judge"),
        ({"share": 0.5}, "share has no effect without a judge"),
        ({"judge_kind": "encoder"}, "judge_kind has no effect without a judge"),
    ],
)
def test_a_judge_wants_a_limit_and_a_limit_a_judge(world, changes, message):
    _, settings = world
    with pytest.raises(ValueError, match=message):
        settings(**changes)


def test_a_plan_counts_what_a_judge_takes(world, tiny_gpt2, monkeypatch):
    _, settings = world
    monkeypatch.setattr(
        "pairsmith.steps.retrieval.filter_queries.seconds_to_judge", lambda *_: (0.0, 1_000.0)
    )
    judging = plan_filter_queries(by_judge(settings, tiny_gpt2, share=0.5), {})
    assert judging.shared > 1_000 * len(QUERIES)


def test_a_plan_tries_a_judge_on_what_there_is(world, tiny_gpt2):
    from pairsmith.steps.judging import seconds_to_judge

    how = by_judge(world[1], tiny_gpt2, share=0.5).judging()
    assert seconds_to_judge(how, {}, [], ["a text"]) == seconds_to_judge(how, {}, ["?"], []) == (0, 0)
    assert seconds_to_judge(how, {}, ["which?"], ["a text"])[1] > 0
    # A judge that an earlier step trains is a language model, as the encoder that stands in for others is not.
    assert seconds_to_judge(how, {str(how.model): None}, ["which?"], ["a text"])[1] > 0
