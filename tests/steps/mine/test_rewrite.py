"""The step ``rewrite``: questions and summaries by a model in place of those that were mined."""

import json

import pytest
from tests.steps.mine.test_filter import folder_of
from tests.tiny_bart import document, make_bart
from tests.training.few import PEOPLE, PLAYS, passage, reading
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from pairsmith.cli import planning
from pairsmith.cli.compare.tokens import written_tokens
from pairsmith.cli.planning import plan_recipe
from pairsmith.cli.recipes import load_recipe
from pairsmith.cli.running import run_recipe
from pairsmith.core.errors import FolderError, InputError, StorageError
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.readers import text_id
from pairsmith.data.schemas import MINED_ANSWER, MINED_PAIR, MinedAnswer, MinedPair
from pairsmith.data.squad import read_questions
from pairsmith.models.text_generator import generate_outputs, load_text_generator
from pairsmith.runs import Run
from pairsmith.steps.mine import rewrite as rewriting
from pairsmith.steps.mine.rewrite import model_inputs, plan_rewrite, rewrite, rewritten
from pairsmith.steps.mine.settings import RewriteSettings
from pairsmith.steps.training import plan
from pairsmith.steps.training.settings import TrainSummarizerSettings
from pairsmith.steps.training.summarizer import train_summarizer

pytestmark = pytest.mark.slow

SUMMARIES = [MinedPair(f"s{n}", document(n), f"mined {n}", 1.2, 0.5) for n in range(5)]
ANSWERS = [
    MinedAnswer(
        f"a{n}",
        f"who plays the {PLAYS[n]}?",
        f"{PEOPLE[n]}: {passage(n)}",
        1.2,
        0.5,
        passage(n),
        {"text": [PEOPLE[n]], "answer_start": [0]},
    )
    for n in range(5)
]


@pytest.fixture(scope="module")
def bart(tmp_path_factory):
    return str(make_bart(tmp_path_factory.mktemp("writer") / "bart"))


@pytest.fixture
def pairs(tmp_path):
    folder_of(tmp_path / "summaries", SUMMARIES, MINED_PAIR)
    folder_of(tmp_path / "reading", ANSWERS, MINED_ANSWER)
    return tmp_path


def settings(folder, bart, kind="summaries", **rest):
    fast = {"beams": 2, "tokens": 14, "shard_size": 2, "device": "cpu"}
    return RewriteSettings(**({"kind": kind, "pairs": str(folder / kind), "model": bart} | fast | rest))


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*.parquet"))}


def test_summaries_are_those_the_model_writes_of_the_documents(pairs, bart):
    rows = rewrite(settings(pairs, bart), Run(pairs / "out", Silent())).table().to_pylist()
    documents = [pair.input for pair in SUMMARIES]
    written = generate_outputs(load_text_generator(bart, device="cpu"), documents, beams=2, output_tokens=14)
    assert [(row["input"], row["output"]) for row in rows] == list(zip(documents, written, strict=True))
    assert set(rows[0]) == {"id", "input", "output"}
    assert rows[0]["id"] == f"{text_id(documents[0])}-{text_id(written[0])}"
    card = (pairs / "out/README.md").read_text()
    assert "rewritten by" in card
    assert "| output | string | a summary that the model wrote |" in card


def test_questions_are_written_of_answers_in_passages_and_the_rows_are_read_as_questions(pairs, bart):
    given = settings(pairs, bart, "reading", best=3)
    folder = rewrite(given, Run(pairs / "out", Silent()))
    assert model_inputs(folder.table(), "reading") == [pair.output for pair in ANSWERS[:3]]
    questions = list(read_questions(str(pairs / "out")))
    assert [question.context for question in questions] == [passage(n) for n in range(3)]
    assert all(question.question != ANSWERS[n].input for n, question in enumerate(questions))
    card = (pairs / "out/README.md").read_text()
    assert "| input | string | a question that the model wrote |" in card
    assert "| output | string | an answer, a colon, and its passage |" in card


def test_where_nothing_is_written_the_pair_is_rejected(pairs):
    table = folder_of(pairs / "some", SUMMARIES[:3], MINED_PAIR).table().drop_columns(["margin", "score"])
    rows, rejects = rewritten(table, ["", "a summary", None], "summaries")
    assert rows["output"].to_pylist() == ["a summary"]
    assert rejects["filter"].to_pylist() == ["empty", "duplicate"]
    assert json.loads(rejects["row"][0].as_py())["input"] == SUMMARIES[0].input


def test_of_several_pairs_with_one_document_one_is_written(pairs, bart):
    again = [MinedPair("again", document(1), "another", 1.1, 0.4)]
    folder_of(pairs / "copies", [*SUMMARIES, *again], MINED_PAIR)
    whole = rewrite(settings(pairs, bart), Run(pairs / "out", Silent()))
    folder = rewrite(settings(pairs, bart, pairs=str(pairs / "copies")), Run(pairs / "more", Silent()))
    assert folder.table().equals(whole.table())
    assert folder.rejects()["id"].to_pylist() == ["again"]


def test_what_was_kept_for_validation_stays_there(pairs, bart, capsys):
    folder_of(pairs / "split", SUMMARIES[:2], MINED_PAIR, validation=SUMMARIES[2:])
    given = settings(pairs, bart, pairs=str(pairs / "split"))
    rows = rewrite(given, Run(pairs / "out", Progress())).table().to_pylist()
    assert [row["input"] for row in rows] == [pair.input for pair in SUMMARIES[:2]]
    assert "split: its split train is rewritten; validation is not" in capsys.readouterr().err
    assert plan_rewrite(given, {}).rows == {"train": 2}


@pytest.mark.long
def test_stopped_it_goes_on_to_the_same_bytes_and_so_do_two_workers(pairs, bart, monkeypatch):
    rewrite(settings(pairs, bart), Run(pairs / "whole", Silent()))
    calls, real = [], rewriting.generate_outputs

    def failing(*args, **more):
        calls.append(len(args[1]))
        if len(calls) == 2:
            raise StorageError("no space left")
        return real(*args, **more)

    monkeypatch.setattr(rewriting, "generate_outputs", failing)
    with pytest.raises(StorageError):
        rewrite(settings(pairs, bart), Run(pairs / "out", Silent()))
    rewrite(settings(pairs, bart), Run(pairs / "out", Silent()))
    assert calls == [2, 2, 2, 1]
    rewrite(settings(pairs, bart, workers=2), Run(pairs / "two", Silent()))
    assert files(pairs / "out") == files(pairs / "two") == files(pairs / "whole")


def test_done_before_it_says_so(pairs, bart, capsys):
    rewrite(settings(pairs, bart), Run(pairs / "out", Silent()))
    rewrite(settings(pairs, bart), Run(pairs / "out", Progress()))
    assert "finished already" in capsys.readouterr().err


def test_what_cannot_be_written_is_said(pairs, bart):
    with pytest.raises(InputError, match="context, answers missing"):
        rewrite(
            settings(pairs, bart, "reading", pairs=str(pairs / "summaries")), Run(pairs / "out", Silent())
        )
    with pytest.raises(InputError, match="context, answers missing"):
        plan_rewrite(settings(pairs, bart, "reading", pairs=str(pairs / "summaries")), {})
    with pytest.raises(FolderError, match="is what --pairs reads"):
        rewrite(settings(pairs, bart), Run(pairs / "summaries", Silent()))


def test_of_no_pairs_nothing_is_written(pairs, bart):
    folder_of(pairs / "none", [], MINED_PAIR)
    folder = rewrite(settings(pairs, bart, pairs=str(pairs / "none")), Run(pairs / "out", Silent()))
    assert folder.rows == 0


def test_its_plan_counts_the_pairs(pairs, bart):
    estimate = plan_rewrite(settings(pairs, bart, best=4), {})
    assert estimate.rows == {"train": 4}
    assert estimate.seconds > 0
    assert estimate.shards == 2


# An encoder with a decoder of its own weights.


def test_an_encoder_gets_a_decoder_and_learns_to_ask(tiny_bert, tmp_path):
    seeds = reading(tmp_path / "seeds.jsonl", range(4))
    added = reading(tmp_path / "added.jsonl", range(4, 6))
    given = TrainSummarizerSettings(
        kind="reading",
        base=str(tiny_bert),
        seeds=seeds,
        added=[added],
        steps=3,
        batch_size=4,
        device="cpu",
    )
    train_summarizer(given, Run(tmp_path / "asker", Silent()))
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "asker")
    words = load_text_generator(str(tiny_bert), device="cpu", fresh_decoder=True).model
    marked = model.get_input_embeddings().weight
    assert len(marked) == len(words.get_input_embeddings().weight) + 1
    assert model.generation_config.min_length == 1
    assert "questions to answers in passages" in (tmp_path / "asker/README.md").read_text()
    folder_of(tmp_path / "reading", ANSWERS, MINED_ANSWER)
    folder = rewrite(settings(tmp_path, str(tmp_path / "asker"), "reading"), Run(tmp_path / "out", Silent()))
    assert folder.rows + folder.rejects().num_rows == len(ANSWERS)


def test_the_decoder_begins_as_the_encoder_and_the_rest_is_of_the_seed(tiny_bert):
    one, same, other = (
        load_text_generator(str(tiny_bert), device="cpu", fresh_decoder=True, seed=seed).model.state_dict()
        for seed in (1, 1, 2)
    )
    assert all(one[name].equal(same[name]) for name in one)
    drawn = {name for name in one if not one[name].equal(other[name])}
    assert drawn
    assert all("crossattention" in name or "cls.predictions" in name for name in drawn)
    layer = "layer.0.attention.self.query.weight"
    assert one[f"encoder.encoder.{layer}"].equal(one[f"decoder.bert.encoder.{layer}"])


RECIPE = """
name: gen
steps:
  - name: asker
    step: train-summarizer
    settings: {kind: reading, seeds: ./seeds.jsonl, base: BASE, steps: 2, batch_size: 2}
  - name: gen
    step: rewrite
    settings: {kind: reading, pairs: PAIRS, model: "@asker", tokens: 8, beams: 1}
results:
  rows: "gen:rows"
"""


def test_it_is_planned_before_its_model_is_trained_and_run(tiny_bert, pairs, monkeypatch):
    reading(pairs / "seeds.jsonl", range(4))
    path = pairs / "gen.yaml"
    path.write_text(RECIPE.replace("BASE", str(tiny_bert)).replace("PAIRS", str(pairs / "reading")))
    recipe = load_recipe(path)
    monkeypatch.setattr(planning, "_in_new_process", lambda work, *arguments: work(*arguments))
    monkeypatch.setattr(plan, "TRIED_STEPS", 2)
    assert plan_recipe(recipe, Silent())["gen"].rows == {"train": 5}
    assert run_recipe(recipe, pairs / "run", Silent())["rows"] <= 5


@pytest.mark.parametrize(("kind", "side"), [("summaries", "output"), ("reading", "input")])
def test_tokens_are_those_of_what_was_written(pairs, bart, kind, side):
    out = pairs / "rewritten"
    folder = rewrite(settings(pairs, bart, kind), Run(out, Silent()))
    texts = [row[side] for row in folder.table().to_pylist()]
    texts += [
        json.loads(row["row"])[side] for row in folder.rejects().to_pylist() if row["filter"] != "duplicate"
    ]
    tokenizer = AutoTokenizer.from_pretrained(bart)
    expected = sum(len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts)
    assert written_tokens(out, "rewrite", bart) == expected > 0
