"""The step ``negatives``: against the definition, against sentence-transformers, killed, and on bad input."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pytest
from datasets import Dataset, load_dataset
from tests import fingerprints
from tests.folders import write_folder
from tests.planned import planned
from tests.steps.negatives.conftest import lines, texts

from pairsmith import open_dataset
from pairsmith.cli.recipes import load_recipe
from pairsmith.cli.steps import STEPS
from pairsmith.core.errors import FolderError, InputError, SettingsError
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.text.folding import folded
from pairsmith.models.encode import encode_texts
from pairsmith.models.sentence_encoder import load_sentence_encoder
from pairsmith.runs import Run, written_by_model
from pairsmith.runs.estimate import Estimate
from pairsmith.runs.writer import FolderWriter
from pairsmith.steps.negatives import candidates, choosing, false_negatives, route
from pairsmith.steps.negatives.route import negatives, plan_negatives
from pairsmith.steps.negatives.settings import NegativesSettings

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def encoder(words_encoder):
    return load_sentence_encoder(str(words_encoder), device="cpu")


def dataset(tmp, settings, out="out", **how):
    return negatives(settings, Run(tmp / out, Silent(), **how))


def rows_of(folder):
    return folder.table().to_pylist()


def files(folder):
    parts = ("data", "rejects", "queries/data", "corpus/data", "search/data", "scores/data", "positives/data")
    return {
        f"{part}/{path.name}": path.read_bytes()
        for part in parts
        if (folder / part).is_dir()
        for path in sorted((folder / part).iterdir())
    }


def cosines(encoder, queries, corpus):
    x, y = (encode_texts(encoder, side).astype(np.float64) for side in (queries, corpus))
    return (x / np.linalg.norm(x, axis=1)[:, None]) @ (y / np.linalg.norm(y, axis=1)[:, None]).T


def defined(encoder, pairs, corpus, *, count, ranks, share, compare="lowest"):
    """The negatives of each pair, by computing everything."""
    by_pair = {}
    for pair in pairs:
        own = [other["positive"] for other in pairs if other["query"] == pair["query"]]
        (scores,) = cosines(encoder, [pair["query"]], corpus)
        limits = [scores[corpus.index(text)] for text in own]
        mine = scores[corpus.index(pair["positive"])]
        limit = min(limits) if compare == "lowest" else mine
        ranked = [i for i in np.argsort(-scores) if corpus[i] not in own][ranks[0] - 1 : ranks[1]]
        kept = [i for i in ranked if scores[i] <= limit - (1 - share) * abs(limit)][:count]
        by_pair[pair["query"], pair["positive"]] = [corpus[i] for i in kept], mine, scores[kept]
    return {key: value for key, value in by_pair.items() if value[0]}


@pytest.mark.parametrize("compare", ["lowest", "own"])
@pytest.mark.parametrize(
    ("count", "ranks", "share"), [(3, (1, 10), 1.0), (2, (3, 8), 0.9), (5, (1, 40), 0.5)]
)
def test_negatives_are_those_of_the_definition(world, encoder, compare, count, ranks, share):
    tmp, settings, pairs, corpus = world
    given = settings(
        negatives=count, first_rank=ranks[0], last_rank=ranks[1], positive_share=share, compare=compare
    )
    folder = dataset(tmp, given)
    expected = defined(encoder, pairs, corpus, count=count, ranks=ranks, share=share, compare=compare)
    rows = rows_of(folder)
    assert [(row["query"], row["positive"]) for row in rows] == list(expected)
    for row in rows:
        texts_there, score, scores = expected[row["query"], row["positive"]]
        assert row["negatives"] == texts_there
        assert row["score"] == pytest.approx(score, abs=1e-5)
        assert row["scores"] == pytest.approx(scores, abs=1e-5)
        assert row["id"] == f"{row['query_id']}-{row['positive_id']}"
    assert folder.manifest.counts.rejects == len(pairs) - len(rows)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(
    ("options", "theirs"),
    [
        ({}, {}),
        ({"first_rank": 3}, {"range_min": 2}),
        ({"positive_share": 0.8}, {"relative_margin": 0.2}),
        ({"margin": 0.1}, {"absolute_margin": 0.1}),
        ({"highest": 0.3, "lowest": -0.2}, {"max_score": 0.3, "min_score": -0.2}),
        ({"positive_share": 0.9, "margin": 0.05}, {"relative_margin": 0.1, "absolute_margin": 0.05}),
    ],
)
def test_the_same_negatives_as_sentence_transformers(world, encoder, options, theirs):
    from sentence_transformers.util import mine_hard_negatives

    tmp, settings, pairs, corpus = world
    by_pair = {
        (row["query"], row["positive"]): row
        for row in rows_of(dataset(tmp, settings(last_rank=40, **options)))
    }
    expected = mine_hard_negatives(
        Dataset.from_list(pairs),
        encoder,
        anchor_column_name="query",
        positive_column_name="positive",
        corpus=corpus,
        range_max=40,
        num_negatives=3,
        output_format="labeled-list",
        output_scores=True,
        verbose=False,
        **theirs,
    )
    there = {(row["query"], row["positive"][0]): row for row in expected}
    assert by_pair.keys() == there.keys()
    for key, row in by_pair.items():
        assert row["negatives"] == there[key]["positive"][1:]
        assert [row["score"], *row["scores"]] == pytest.approx(there[key]["scores"], abs=1e-5)


def test_copies_titles_and_the_query_itself_are_no_negatives(tmp_path, words_encoder, world):
    _, settings, *_ = world
    corpus = [
        {"_id": "1", "title": "Bal  Bam", "text": "del dem den"},
        {"_id": "2", "title": "", "text": "Del, dem den!"},
        {"_id": "3", "title": "", "text": "BAL bam"},  # the query
        {"_id": "4", "title": "", "text": "bal bam fil"},
        {"_id": "5", "title": "gor", "text": "bal bam fil"},
        {"_id": "6", "title": "", "text": "Bal bam, fil."},
        {"_id": "7", "title": "", "text": "gol gom"},
    ]
    (tmp_path / "beir").mkdir()
    lines(tmp_path / "beir" / "corpus.jsonl", corpus)
    lines(tmp_path / "p.jsonl", [{"query": "bal bam", "positive": "del dem den"}])
    given = settings(pairs=str(tmp_path / "p.jsonl"), corpus=str(tmp_path / "beir"), positive_share=0)
    (row,) = rows_of(dataset(tmp_path, given, "beir/out"))  # of the folder only corpus.jsonl is read
    # The positive has its title as the negatives have theirs; of copies the nearest counts.
    assert row["positive"] == "Del, dem den!"
    assert [folded(text) for text in row["negatives"]] == ["balbamfil", "gorbalbamfil", "golgom"]


def test_a_positive_is_written_with_the_title_that_it_has_in_the_corpus(tmp_path, world):
    _, settings, *_ = world
    lines(
        tmp_path / "c.jsonl", [{"title": "Bal Bam", "text": "del dem den"}, {"title": "gom", "text": "fil"}]
    )
    lines(tmp_path / "p.jsonl", [{"query": "bal", "positive": "del  dem den."}])
    given = settings(pairs=str(tmp_path / "p.jsonl"), corpus=str(tmp_path / "c.jsonl"))
    (row,) = rows_of(dataset(tmp_path, given))
    assert row["positive"] == "Bal Bam\ndel dem den"
    assert row["negatives"] == ["gom\nfil"]


def test_a_positive_that_is_not_in_the_corpus_keeps_its_own_title(tmp_path, world):
    _, settings, *_ = world
    rows = [
        {"query": "bal bam", "positive": "bal bam del", "title": "gor"},
        {"query": "fil", "positive": "fil gom", "title": "gor"},
    ]
    corpus = [{"title": "gor", "text": "fil gom"}, {"title": "dem", "text": "bal den"}, {"text": "bam fil"}]
    lines(tmp_path / "p.jsonl", rows)
    lines(tmp_path / "c.jsonl", corpus)
    given = settings(pairs=str(tmp_path / "p.jsonl"), corpus=str(tmp_path / "c.jsonl"), negatives=2)
    by_query = {row["query"]: row for row in rows_of(dataset(tmp_path, given))}
    assert by_query["bal bam"]["positive"] == "gor\nbal bam del"
    assert by_query["fil"]["positive"] == "gor\nfil gom"
    assert "gor\nfil gom" not in by_query["fil"]["negatives"]


def test_positives_that_are_not_in_the_corpus_are_compared_by_their_text(world, encoder):
    tmp, settings, pairs, corpus = world
    new = [{"question": row["query"], "context": f"{row['positive']} bal"} for row in pairs]
    given = settings(pairs=lines(tmp / "new.jsonl", new), positive_share=0.9)
    by_pair = {(row["query"], row["positive"]): row for row in rows_of(dataset(tmp, given))}
    as_pairs = [{"query": row["question"], "positive": row["context"]} for row in new]
    whole = corpus + [row["positive"] for row in as_pairs]
    for pair in as_pairs:
        own = {other["positive"] for other in as_pairs if other["query"] == pair["query"]}
        (scores,) = cosines(encoder, [pair["query"]], whole)
        limit = min(scores[whole.index(text)] for text in own)
        ranked = np.argsort(-scores[: len(corpus)])[:10]
        kept = [corpus[i] for i in ranked if scores[i] <= limit - 0.1 * abs(limit)][:3]
        assert by_pair.get((pair["query"], pair["positive"]), {"negatives": []})["negatives"] == kept


def test_a_list_of_positives_is_as_many_rows(world):
    tmp, settings, pairs, _ = world
    by_query = {}
    for row in pairs:
        by_query.setdefault(row["query"], []).append(row["positive"])
    listed = [{"query": query, "pos": positives} for query, positives in by_query.items()]
    one = dataset(tmp, settings(), "one")
    two = dataset(tmp, settings(pairs=lines(tmp / "listed.jsonl", listed)), "two")
    assert sorted(map(str, rows_of(one))) == sorted(map(str, rows_of(two)))


def test_an_index_and_several_find_the_same(world):
    tmp, settings, *_ = world
    exact = dataset(tmp, settings(), "exact")
    for out, how in (("whole", {}), ("parts", {"index_rows": 15})):
        assert rows_of(dataset(tmp, settings(index="Flat", **how), out)) == rows_of(exact)


def test_a_random_pick_depends_on_the_seed_and_the_pair_alone(world):
    tmp, settings, pairs, _ = world
    one = {row["id"]: row for row in rows_of(dataset(tmp, settings(pick="random", seed=1), "one"))}
    turned = lines(tmp / "turned.jsonl", pairs[::-1])
    other = {
        row["id"]: row
        for row in rows_of(dataset(tmp, settings(pick="random", seed=1, pairs=turned, shard_size=3), "other"))
    }
    assert one == other
    third = {row["id"]: row for row in rows_of(dataset(tmp, settings(pick="random", seed=2), "third"))}
    assert any(one[name]["negatives"] != third[name]["negatives"] for name in one)
    ten = {row["id"]: row["negatives"] for row in rows_of(dataset(tmp, settings(negatives=10), "ten"))}
    assert all(set(row["negatives"]) <= set(ten[name]) for name, row in one.items())
    assert all(row["scores"] == sorted(row["scores"], reverse=True) for row in one.values())


def test_pairs_with_fewer_are_kept_or_rejected(world):
    tmp, settings, pairs, _ = world
    few = {"positive_share": 0.7, "last_rank": 12, "negatives": 8}
    kept = dataset(tmp, settings(**few), "kept")
    strict = dataset(tmp, settings(**few, fewer="reject"), "strict")
    lengths = [len(row["negatives"]) for row in rows_of(kept)]
    assert 0 < sum(length == 8 for length in lengths) < len(lengths)
    assert rows_of(strict) == [row for row in rows_of(kept) if len(row["negatives"]) == 8]
    reasons = strict.manifest.counts.rejects_by_reason
    assert reasons["negatives: fewer negatives than wanted"] == sum(length < 8 for length in lengths)
    assert sum(reasons.values()) + strict.rows == len(pairs)


# a judge


@pytest.fixture(scope="session")
def cross_encoder(tiny_bert, tmp_path_factory):
    """Folder of a random cross-encoder."""
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification, set_seed

    folder = tmp_path_factory.mktemp("judge") / "bert"
    config = BertConfig.from_pretrained(tiny_bert, num_labels=1, initializer_range=0.5)
    set_seed(1)
    BertForSequenceClassification(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(folder)
    return folder


def test_vectors_and_scores_that_are_there_are_recognised(world, tiny_gpt2):
    tmp, settings, *_ = world
    out = dataset(tmp, settings(judge=str(tiny_gpt2), judge_kind="likelihood")).path
    assert {part: fingerprints.of_settings(out / part) for part in ("queries", "corpus", "scores")} == {
        "queries": "80f8a3faba5b97aace0296298406733372ef2366f141f3e22ecff961f430a32d",
        "corpus": "b9d0e3f7c5fa9d930d9acba47111b2fba268be9a63b8f442bcc081ff0ce78bb1",
        "scores": "3b617390b6cc951e21605b8cb195017733ab54fc490502479954a3d05cc98a08",
    }


def test_a_cross_encoder_scores_ranks_and_limits(world, encoder, cross_encoder):
    from pairsmith.models.cross_encoder import load_cross_encoder, score_pairs

    tmp, settings, pairs, corpus = world
    given = settings(
        judge=str(cross_encoder), positive_share=0, margin=0.0, negatives=4, last_rank=9, shard_size=5
    )
    by_pair = {(row["query"], row["positive"]): row for row in rows_of(dataset(tmp, given))}
    judge = load_cross_encoder(str(cross_encoder), device="cpu")
    for pair in pairs:
        own = [other["positive"] for other in pairs if other["query"] == pair["query"]]
        (near,) = cosines(encoder, [pair["query"]], corpus)
        ranked = [corpus[i] for i in np.argsort(-near) if corpus[i] not in own][:9]
        scores = dict(zip(ranked, score_pairs(judge, [pair["query"]] * 9, ranked).tolist(), strict=True))
        of_own = score_pairs(judge, [pair["query"]] * len(own), own)
        allowed = sorted((text for text in ranked if scores[text] <= of_own.min()), key=lambda t: -scores[t])[
            :4
        ]
        row = by_pair.get((pair["query"], pair["positive"]))
        assert (row["negatives"] if row else []) == allowed
        if row:
            assert row["scores"] == pytest.approx([scores[text] for text in allowed], abs=1e-5)
            assert row["score"] == pytest.approx(of_own[own.index(pair["positive"])], abs=1e-5)


def test_of_negatives_that_are_drawn_whatever_their_scores_only_those_are_judged(
    world, cross_encoder, monkeypatch
):
    tmp, settings, pairs, _ = world
    given = {"judge": str(cross_encoder), "pick": "random", "positive_share": 0, "negatives": 2, "seed": 5}
    monkeypatch.setattr(choosing, "PAIRS_AT_ONCE", 1)  # the pairs of a query are in several batches
    drawn = dataset(tmp, settings(**given), "drawn")
    # A limit that excludes no score.
    every = dataset(tmp, settings(**given, lowest=-1e6), "every")
    for row, other in zip(rows_of(drawn), rows_of(every), strict=True):
        # In other batches a judge's scores are rounded otherwise.
        scores, expected = (np.array([r.pop("score"), *r.pop("scores")]) for r in (row, other))
        assert scores == pytest.approx(expected, abs=1e-5)
        assert row == other
    judged = {name: open_dataset(tmp / name / "scores").manifest.counts.rows for name in ("drawn", "every")}
    texts = {(row["query"], text) for row in rows_of(drawn) for text in row["negatives"]}
    assert judged["drawn"] == len(texts) + len(pairs) < judged["every"]
    monkeypatch.setattr(route, "seconds_to_judge", lambda *_: (0.0, 1e6))
    plans = [plan_negatives(settings(**given, **limit), {}).shared for limit in ({}, {"lowest": -1e6})]
    assert plans[1] - plans[0] == pytest.approx(1e6 * len(pairs) * (10 - 2), rel=1e-3)


@pytest.mark.parametrize(
    ("given", "drawn"),
    [
        ({}, False),
        ({"positive_share": 0}, True),
        ({"positive_share": 0, "pick": "top"}, False),
        ({"positive_share": 0, "margin": 0.0}, False),
        ({"positive_share": 0, "highest": 0.5}, False),
        ({"positive_share": 0, "lowest": 0.0}, False),
    ],
)
def test_negatives_are_drawn_before_their_scores_are_known_only_without_limits(given, drawn):
    settings = NegativesSettings(pairs="p", corpus=["c"], encoder="e", **{"pick": "random", **given})
    assert settings.drawn_before_scores is drawn


@pytest.mark.parametrize("change", [{"seed": 2}, {"negatives": 3}])
def test_scores_of_other_drawn_negatives_are_not_used_again(world, cross_encoder, change):
    tmp, settings, *_ = world
    given = {"judge": str(cross_encoder), "pick": "random", "positive_share": 0, "negatives": 2}
    dataset(tmp, settings(**given), "out")
    again = dataset(tmp, settings(**given | change), "out", fresh=True)
    assert rows_of(again) == rows_of(dataset(tmp, settings(**given | change), "new"))


def test_a_cross_encoder_reads_as_many_tokens_as_its_folder_says(world, cross_encoder, tmp_path):
    """Not as many as --max-length says, which is for the encoder."""
    from pairsmith.models.cross_encoder import load_cross_encoder, score_pairs

    _, settings, *_ = world
    judge = tmp_path / "judge"
    shutil.copytree(cross_encoder, judge)
    saved = json.loads((judge / "tokenizer_config.json").read_text())
    (judge / "tokenizer_config.json").write_text(json.dumps(saved | {"model_max_length": 12}))
    row = rows_of(dataset(tmp_path, settings(judge=str(judge))))[0]
    scores = {}
    for longest in (12, 64):
        cross = load_cross_encoder(str(judge), device="cpu", max_length=longest)
        scores[longest] = score_pairs(cross, [row["query"]] * 3, row["negatives"]).tolist()
    assert row["scores"] == pytest.approx(scores[12], abs=1e-5)
    assert row["scores"] != pytest.approx(scores[64], abs=1e-3)
    assert settings(judge=str(judge), max_length=9).judging().max_length is None


def test_a_language_model_judges_the_query_after_the_text(world, tiny_gpt2):
    from pairsmith.models.language.likelihood import likelihood_ratios, load_likelihood_judge

    tmp, settings, *_ = world
    given = settings(judge=str(tiny_gpt2), judge_kind="likelihood", negatives=2, last_rank=3)
    row = rows_of(dataset(tmp, given))[0]
    judge = load_likelihood_judge(str(tiny_gpt2), device="cpu", dtype="float32", max_length=None)
    both = [row["positive"], *row["negatives"]]
    scores = likelihood_ratios(judge, both, [row["query"]] * 3, cue="\n\n")
    assert [row["score"], *row["scores"]] == pytest.approx(scores.tolist(), abs=1e-4)


# resumed


@pytest.mark.parametrize("judged", [False, True])
def test_stopped_after_any_shard_it_ends_with_the_same_bytes(world, cross_encoder, monkeypatch, judged):
    tmp, settings, *_ = world
    for module in (candidates, choosing, false_negatives):
        monkeypatch.setattr(module, "PAIRS_AT_ONCE", 5)
    monkeypatch.setattr("pairsmith.steps.negatives.route.SHARD_ROWS", 4)
    new = lines(tmp / "some.jsonl", [{"query": q, "positive": q + " bal"} for q in texts(9, 4, 5)])
    given = settings(pairs=new, pick="random", **({"judge": str(cross_encoder)} if judged else {}))
    whole = files(dataset(tmp, given, "whole").path)
    real, left = FolderWriter.commit, 0

    def commit(self, *what, **how):
        nonlocal left
        if not left:
            raise KeyboardInterrupt
        left -= 1
        real(self, *what, **how)

    monkeypatch.setattr(FolderWriter, "commit", commit)
    stops, finished = 0, None
    while finished is None:
        left = 1 + stops % 2
        try:
            finished = dataset(tmp, given, "stopped")
        except KeyboardInterrupt:
            stops += 1
    assert stops > 8
    assert files(finished.path) == whole
    assert not list((tmp / "stopped").rglob("*.tmp"))


@pytest.mark.long
def test_two_workers_write_the_same_bytes(world):
    tmp, settings, *_ = world
    one = dataset(tmp, settings(), "one")
    two = dataset(tmp, settings(workers=2), "two")
    assert files(one.path) == files(two.path)


def test_ranks_of_an_array_job_write_the_same_bytes(world):
    tmp, settings, *_ = world
    one = dataset(tmp, settings(), "one")
    for number in (1, 0):
        given = settings(executor="array", rank=number, world_size=2)
        STEPS["negatives"].run(given, Run(tmp / "many", Silent()))
    assert files(tmp / "many") == files(one.path)


def test_other_settings_are_refused_and_afresh_vectors_stay(world):
    tmp, settings, *_ = world
    dataset(tmp, settings())
    with pytest.raises(FolderError, match="positive_share"):
        dataset(tmp, settings(positive_share=0.5))
    before = (tmp / "out" / "corpus" / "journal" / "00000.jsonl").stat().st_mtime_ns
    dataset(tmp, settings(positive_share=0.5), fresh=True)
    assert (tmp / "out" / "corpus" / "journal" / "00000.jsonl").stat().st_mtime_ns == before


def test_datasets_opens_rows_and_rejects(world):
    tmp, settings, *_ = world
    folder = dataset(tmp, settings(positive_share=0.5))
    opened = load_dataset(str(tmp / "out"), cache_dir=str(tmp / "cache"))["train"]
    assert opened.to_list() == rows_of(folder)
    rejects = load_dataset(str(tmp / "out"), "rejects", cache_dir=str(tmp / "cache"))["rejects"]
    assert len(rejects) == folder.manifest.counts.rejects > 0


def test_negatives_are_synthetic_only_if_a_model_wrote_a_text(world):
    tmp, settings, pairs, _ = world
    by_people = dataset(tmp, settings())
    assert "synthetic" not in (by_people.path / "README.md").read_text(encoding="utf-8")
    assert not written_by_model(by_people.path)  # the encoder only chose its rows
    schema = pa.schema([("id", pa.string()), ("query", pa.string()), ("positive", pa.string())])
    rows = pa.Table.from_pylist([{"id": str(n), **pair} for n, pair in enumerate(pairs)], schema)
    write_folder(tmp / "queries-of-a-model", {"train": rows}, models={"model": "sha256:0"})
    by_model = dataset(tmp, settings(pairs=str(tmp / "queries-of-a-model")), "by-model")
    assert written_by_model(by_model.path)


# labelled


def test_the_share_of_labelled_positives_among_the_negatives(world, capsys):
    tmp, settings, _, corpus = world
    every = rows_of(dataset(tmp, settings(), "unknown"))
    first = [row for row in every if row["query"] == every[0]["query"]]
    known = [
        {"query": every[0]["query"].upper(), "positive": text}
        for text in (first[0]["negatives"][1], corpus[0])
    ]
    known += [{"query": "of another", "positive": "text"}]
    given = settings(labelled=lines(tmp / "known.jsonl", known))
    folder = negatives(given, Run(tmp / "out", Progress()))
    assert rows_of(folder) == every
    count = 3 * len(first)
    share = f"{len(first)} of {count} ({len(first) / count:.1%}) of the negatives, and 1 of 10 (10.0%) of all texts"
    assert f"for 1 labelled queries: {share}" in capsys.readouterr().err
    assert share in folder.manifest.about.description
    assert share in (tmp / "out" / "README.md").read_text()


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({}, "and score lower than that text"),
        ({"positive_share": 0.0, "margin": 0.1}, "and score lower than that text"),
        ({"positive_share": 0.0, "highest": 0.5}, ", within limits of their scores"),
        ({"positive_share": 0.0}, ", whatever their scores"),
    ],
)
def test_the_card_says_which_scores_negatives_may_have(limits, said, tmp_path):
    given = NegativesSettings(pairs=str(tmp_path), corpus=[str(tmp_path)], encoder=str(tmp_path), **limits)
    assert f"{said} (hard negatives)" in route._card(given, {}, "").description


# bad input


def test_rows_that_are_no_pairs_are_rejects_with_a_reason(world):
    tmp, settings, pairs, _ = world
    bad = [
        {"query": " ", "positive": "bal"}, {"query": "bal", "positive": None}, pairs[0],
        {"query": "???", "positive": "bal"}, {"query": "bal bam", "positive": "unknown"},
    ]  # fmt: skip
    folder = dataset(tmp, settings(pairs=lines(tmp / "bad.jsonl", [*pairs, *bad])))
    assert folder.manifest.counts.rejects_by_reason == {
        "empty: the positive is blank": 1,
        "empty: the query is blank": 1,
        "duplicate: repeats an earlier pair": 1,
        "zero vector: the encoder's vector of the positive is zero": 1,
        "zero vector: the encoder's vector of the query is zero": 1,
    }
    assert rows_of(folder) == rows_of(dataset(tmp, settings(), "good"))
    (row,) = [json.loads(r["row"]) for r in folder.rejects().to_pylist() if "repeats" in r["reason"]]
    assert row["where"] == f"bad.jsonl:{len(pairs) + 3}"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "holds no pairs"),
        ([{"query": "", "positive": "a"}], "a query or a positive is blank in each of its 1 rows"),
        ([{"query": "unknown", "positive": "bal"}], "no pair has a vector of its query and of its positive"),
        ([{"text": "a"}], "none of the columns query, question"),
        ([{"query": "a", "other": "b"}], "none of the columns positive, context"),
        ([{"sentence1": "a", "sentence2": "b", "score": 0.1}], "has a column score, so in some of its pairs"),
        (
            [{"query": f"ba{c}", "positive": "a", "query_id": 7} for c in "lm"],
            r"different queries have the id '7' \(bad.jsonl:1, bad.jsonl:2\)",
        ),
    ],
)
def test_pairs_that_cannot_be_used_are_told(world, rows, message):
    tmp, settings, *_ = world
    with pytest.raises(InputError, match=message):
        dataset(tmp, settings(pairs=lines(tmp / "bad.jsonl", rows)))


def test_after_an_error_about_columns_the_command_can_name_them(world):
    tmp, settings, *_ = world
    pairs = lines(tmp / "faq.jsonl", [{"query": "bal", "reply": "bal bam"}])
    with pytest.raises(InputError, match="none of the columns positive, context"):
        dataset(tmp, settings(pairs=pairs), "named")
    dataset(tmp, settings(pairs=pairs, positive_column="reply"), "named")


def test_a_corpus_of_nothing_but_positives_is_told(world):
    tmp, settings, *_ = world
    corpus = lines(tmp / "few.jsonl", [{"text": "bal bam"}, {"text": "Bal bam!"}])
    pairs = lines(tmp / "p.jsonl", [{"query": "bal", "positive": "bal bam"}])
    with pytest.raises(InputError, match=r"no query has a text .* besides its positives, among 2 distinct"):
        dataset(tmp, settings(corpus=corpus, pairs=pairs))
    with pytest.raises(InputError, match=r"at the ranks 50 to 60 besides"):
        dataset(tmp, settings(first_rank=50, last_rank=60), "beyond")


def test_a_query_with_only_copies_as_neighbours_is_searched_deeper(world):
    tmp, settings, *_ = world
    copies = [{"text": f"bal bam {'!' * i}del"} for i in range(60)]
    corpus = lines(tmp / "many.jsonl", [*copies, {"text": "gol gom"}, {"text": "gor"}])
    pairs = lines(tmp / "p.jsonl", [{"query": "bal", "positive": "bal bam del"}])
    (row,) = rows_of(dataset(tmp, settings(corpus=corpus, pairs=pairs, last_rank=3)))
    assert sorted(row["negatives"]) == ["gol gom", "gor"]


def test_ranks_beyond_the_corpus_and_labels_of_other_queries(world):
    tmp, settings, _, corpus = world
    folder = dataset(tmp, settings(last_rank=4_000, negatives=100))
    assert {len(row["negatives"]) for row in rows_of(folder)} == {len(corpus) - 1, len(corpus) - 2}
    other = lines(tmp / "other.jsonl", [{"query": "of another", "positive": "text"}])
    with pytest.raises(InputError, match="none of its 1 pairs has a query of --pairs"):
        dataset(tmp, settings(labelled=other), "other")
    assert not (tmp / "other" / "corpus").exists()  # it is told before anything is encoded


def test_other_columns_are_other_queries(world):
    tmp, settings, pairs, _ = world
    both = [{**row, "asked": row["query"] + " bal"} for row in pairs]
    path = lines(tmp / "both.jsonl", both)
    dataset(tmp, settings(pairs=path))
    folder = dataset(tmp, settings(pairs=path, query_column="asked"), fresh=True)
    new = lines(tmp / "asked.jsonl", [{"query": row["asked"], "positive": row["positive"]} for row in both])
    assert rows_of(folder) == rows_of(dataset(tmp, settings(pairs=new), "new"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"first_rank": 9, "last_rank": 10}, "ranks 9 to 10 leave 2 candidates, too few for 3 negatives"),
        ({"lowest": 0.5, "highest": 0.2}, "lowest 0.5 is above highest 0.2"),
        ({"judge_kind": "encoder"}, "judge_kind has no effect without a judge"),
        ({"recall": 0.5}, "recall has no effect without index"),
    ],
)
def test_settings_without_effect_or_sense_are_refused(world, given, message):
    _, settings, *_ = world
    with pytest.raises(ValueError, match=message):
        settings(**given)


def test_what_cannot_be_done_is_told_before_anything_is_encoded(world, monkeypatch):
    tmp, settings, *_ = world
    monkeypatch.setattr("pairsmith.steps.negatives.encoding.encode_corpus", lambda *_: pytest.fail("encoded"))
    with pytest.raises(SettingsError, match="IVF4096,Falt"):
        dataset(tmp, settings(index="IVF4096,Falt"))


# planned


def test_a_plan_says_what_it_will_cost(world, cross_encoder):
    _, settings, pairs, _ = world
    plain = plan_negatives(settings(), {})
    assert plain.rows == {"train": len(pairs)}
    assert plain.sample.num_rows == len(pairs)
    assert plain.seconds > 0
    judged = plan_negatives(settings(judge=str(cross_encoder)), {})
    assert judged.shared > plain.shared
    estimates = {"@asked": plain}
    assert planned("negatives", settings(pairs="@asked"), estimates).rows == {"train": len(pairs)}


def test_a_plan_reads_the_columns_that_the_step_will_read(world, monkeypatch):
    _, settings, *_ = world
    encoded = []
    timed = route.timed
    monkeypatch.setattr(route, "timed", lambda load, sample: encoded.extend(sample) or timed(load, sample))
    samples = {
        "@pairs": pa.table({"anchor": ["Who barks?"], "passage": ["A dog barks."], "other": ["x"]}),
        "@chunks": pa.table(
            {"id": ["1"], "document": ["a/b.txt"], "title": ["Dogs"], "text": ["They bark."]}
        ),
    }
    rows = {"train": 100, "test": 7}  # those of the test are not read
    before = {name: Estimate(1, 1, 1, rows, sample=sample) for name, sample in samples.items()}
    estimate = planned("negatives", settings(pairs="@pairs", corpus=["@chunks"]), before)
    assert encoded == ["Who barks?", "Dogs\nThey bark."]
    assert estimate.rows == {"train": 100}
    before["@pairs"] = Estimate(1, 1, 1, {"train": 100}, sample=pa.table({"other": ["x"]}))
    with pytest.raises(InputError, match="@pairs has none of the columns query, .* it has: other"):
        planned("negatives", settings(pairs="@pairs"), before)


def test_a_recipe_may_have_the_step(world):
    tmp, settings, *_ = world
    (tmp / "r.yaml").write_text(
        "name: r\nsteps:\n  - {name: hard, step: negatives, settings: {pairs: ./pairs.jsonl, "
        f"corpus: ./corpus.jsonl, encoder: {settings().encoder}, negatives: 2}}}}\n"
    )
    (step,) = load_recipe(tmp / "r.yaml").steps
    assert step.settings(tmp / "run").negatives == 2
