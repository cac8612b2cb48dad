import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from pairsmith.core.errors import InputError, ModelError
from pairsmith.core.model_files import META
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.documents import Document
from pairsmith.data.examples import Example
from pairsmith.data.questions import read_generated_questions
from pairsmith.data.squad import read_questions
from pairsmith.data.text.windows import passage_limit, passages, token_count
from pairsmith.methods.quip.generator_training import SequenceWriter, generator_examples
from pairsmith.methods.quip.passages import cut_passages
from pairsmith.methods.quip.training_options import QuestionGeneratorOptions
from pairsmith.models.added_tokens import add_marker
from pairsmith.models.language.sampling import truncate
from pairsmith.models.language.sequences import draw_sequences, nucleus
from pairsmith.models.question_generator import SEPARATOR, parse, separator_of
from pairsmith.models.text_generator import encode_inputs, input_features, load_text_generator
from pairsmith.runs import Run
from pairsmith.runs.seeds import stream_key
from pairsmith.steps.questions.ask import ask, load_generator
from pairsmith.steps.questions.settings import AskSettings
from pairsmith.steps.training.question_generator import train_question_generator
from pairsmith.steps.training.settings import TrainQuestionGeneratorSettings

sys.path.insert(0, str(Path(__file__).parents[2]))
from tiny_bart import document, make_bart

pytestmark = pytest.mark.slow

PLAYERS = ("Ann", "Bob")


def squad(path, numbers):
    """Who was heard in the town, and what of it."""
    rows = []
    for number in numbers:
        text = document(number)
        for answer, question in ((text.split()[1], "What was heard?"), (text.split()[9], "Who was it?")):
            start = text.index(answer)
            rows.append(
                {
                    "context": text,
                    "question": question,
                    "answers": {"text": [answer], "answer_start": [start]},
                }
            )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture(scope="module")
def asker(tmp_path_factory):
    """A tiny BART that has learned to ask two questions of four texts."""
    folder = tmp_path_factory.mktemp("askers")
    make_bart(folder / "bart")
    data = squad(folder / "data.jsonl", range(4))
    settings = TrainQuestionGeneratorSettings(
        base=str(folder / "bart"),
        data=[data],
        epochs=300,
        batch_size=8,
        learning_rate=[5e-3],
        device="cpu",
        warmup=0,
    )
    return str(train_question_generator(settings, Run(folder / "asker", Silent())))


def settings(asker, texts, **rest):
    return AskSettings(inputs=[str(texts)], model=asker, questions=2, device="cpu", **rest)


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("".join(document(number) + "\n" for number in range(4)))
    return path


def test_what_was_learned_by_heart_is_asked(asker, texts, tmp_path):
    folder = ask(settings(asker, texts, tries=8, top_p=0.95), Run(tmp_path / "out", Silent()))
    rows = folder.table().to_pylist()
    assert {row["question"] for row in rows} == {"What was heard?", "Who was it?"}
    assert len({(row["context"], row["question"]) for row in rows}) == len(rows) >= 6
    assert all(
        row["context"].startswith(row["answers"]["text"][0], row["answers"]["answer_start"][0])
        for row in rows
    )
    assert set(folder.rejects()["filter"].to_pylist()) <= {"duplicate", "no end", "no separator"}
    assert len(list(read_generated_questions(str(folder.path)))) == len(rows)
    assert len({row["id"] for row in rows}) == len(rows)


@pytest.mark.long
def test_workers_and_batches_do_not_change_what_is_asked(asker, texts, tmp_path):
    one = ask(settings(asker, texts, shard_size=2), Run(tmp_path / "one", Silent()))
    two = ask(settings(asker, texts, shard_size=2, workers=2), Run(tmp_path / "two", Silent()))
    files = [
        [file.read_bytes() for file in sorted((folder.path / "data").iterdir())] for folder in (one, two)
    ]
    assert files[0] == files[1]
    other = ask(settings(asker, texts, shard_size=2, batch_size=1), Run(tmp_path / "other", Silent()))
    assert other.table().to_pylist() == one.table().to_pylist()
    again = ask(settings(asker, texts, shard_size=2), Run(tmp_path / "one", Silent()))
    assert again.manifest == one.manifest


def test_a_model_that_knows_no_separator_is_no_asker(texts, tmp_path):
    make_bart(tmp_path / "bart")
    with pytest.raises(ModelError, match="knows no token '<sep>'"):
        ask(settings(str(tmp_path / "bart"), texts), Run(tmp_path / "out", Silent()))


def test_a_random_model_writes_what_is_rejected_by_reason(tmp_path, texts):
    make_bart(tmp_path / "bart")
    loaded = load_text_generator(str(tmp_path / "bart"), device="cpu")
    add_marker(loaded, SEPARATOR, written=True)
    loaded.model.save_pretrained(tmp_path / "random")
    loaded.tokenizer.save_pretrained(tmp_path / "random")
    folder = ask(
        settings(str(tmp_path / "random"), texts, tries=1, top_p=1.0), Run(tmp_path / "out", Silent())
    )
    rejects = folder.rejects().to_pylist()
    assert rejects
    assert {reject["filter"] for reject in rejects} <= {
        "no end", "no separator", "empty", "too long", "duplicate",
    }  # fmt: skip
    assert folder.rows + len(rejects) == 8


def test_a_long_text_is_cut_into_passages_and_a_word_without_end_is_a_reject(asker, tmp_path):
    path = tmp_path / "long.jsonl"
    rows = [" ".join(document(number) for number in range(4)), "x" * 500]
    path.write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    folder = ask(settings(asker, path, max_length=32), Run(tmp_path / "out", Silent()))
    contexts = {row["context"] for row in folder.table().to_pylist()}
    assert len(contexts) > 1
    assert all(context in rows[0] for context in contexts)
    assert "too long" in folder.rejects()["filter"].to_pylist()


@pytest.mark.parametrize(
    ("text", "answer", "question", "fault"),
    [
        (f"Ann{SEPARATOR}Who was it?", "Ann", "Who was it?", None),
        (f" Ann {SEPARATOR} ", "Ann", "", "empty"),
        (f"{SEPARATOR}Who?", "", "Who?", "empty"),
        ("Who?", "Who?", "", "no separator"),
        (f"Ann{SEPARATOR}Who?{SEPARATOR}What?", "Ann", "Who?", "no separator"),
        (f"Ann{SEPARATOR}" + "Who was it? " * 40, "Ann", ("Who was it? " * 40).strip(), "too long"),
    ],
)
def test_sequences_are_taken_apart(asker, text, answer, question, fault):
    loaded = load_text_generator(asker, device="cpu")
    end = loaded.tokenizer.eos_token_id
    tokens = [*loaded.tokenizer(text, add_special_tokens=False)["input_ids"], end]
    sequence = parse(loaded, tokens, separator_of(loaded), end)
    named = sequence.fault and sequence.fault[0]
    assert (sequence.answer, sequence.question, named) == (answer, question, fault)


def test_a_sequence_without_an_end_is_unfinished(asker):
    loaded = load_text_generator(asker, device="cpu")
    tokens = loaded.tokenizer(f"Ann{SEPARATOR}Who", add_special_tokens=False)["input_ids"]
    assert parse(loaded, tokens, separator_of(loaded), loaded.tokenizer.eos_token_id).fault[0] == "no end"
    assert parse(loaded, [], separator_of(loaded), loaded.tokenizer.eos_token_id).fault[0] == "no separator"


def test_the_quick_nucleus_is_that_of_sorting_all():
    generator = torch.Generator().manual_seed(0)
    sharp = (20 * torch.rand(4, 2000, generator=generator)).softmax(dim=1)
    flat = torch.full((2, 2000), 1 / 2000)
    # Some rows want few tokens, some thousands, some nearly all; rounded, many are equally likely.
    scales = torch.tensor([0.2, 1.5, 1.5, 3.0, 6.0, 20.0])[:, None]
    broad = (scales * torch.randn(6, 9000, generator=generator)).softmax(dim=1)
    tied = (broad * 2**18).round() / 2**18
    for probabilities, top_p in (
        (sharp, 0.6),
        (flat, 0.6),
        (broad, 0.6),
        (tied / tied.sum(1, keepdim=True), 0.6),
        (sharp, 1.0),
        (sharp[:, :3] / sharp[:, :3].sum(1, keepdim=True), 0.5),
    ):
        kept, tokens = nucleus(probabilities, top_p)
        expected, numbers = truncate(probabilities, 0, top_p)
        some = int((expected > 0).sum(dim=1).max())
        assert torch.allclose(kept[:, :some], expected[:, :some], atol=1e-6)
        assert torch.equal(
            torch.where(kept > 0, tokens, -1)[:, :some], torch.where(expected > 0, numbers, -1)[:, :some]
        )
        assert not kept[:, some:].any()
        alone, number = nucleus(probabilities[:1], top_p)
        wide = min(alone.shape[1], kept.shape[1])
        assert torch.equal(alone[:, :wide], kept[:1, :wide])
        assert torch.equal(
            number[:, :wide] * (alone[:, :wide] > 0), tokens[:1, :wide] * (kept[:1, :wide] > 0)
        )


def test_draws_follow_the_models_distribution_and_their_streams(asker):
    loaded = load_text_generator(asker, device="cpu")
    features = input_features(loaded, encode_inputs(loaded, [document(0)]))
    streams = np.array([stream_key("a", n) for n in range(400)], np.uint64)
    (drawn,) = draw_sequences(loaded.model, features, [streams], seed=1, top_p=1.0, max_tokens=1)
    assert {len(row) for row in drawn} == {1}
    start = torch.tensor([[loaded.model.generation_config.decoder_start_token_id]])
    with torch.inference_mode():
        expected = loaded.model(**features, decoder_input_ids=start).logits[0, -1].softmax(dim=0)
    counts = torch.bincount(torch.tensor([row[0] for row in drawn]), minlength=len(expected)) / 400
    assert float((counts - expected).abs().max()) < 0.1
    (some,) = draw_sequences(loaded.model, features, [streams[7:9]], seed=1, top_p=1.0, max_tokens=1)
    assert some == drawn[7:9]


def test_an_encoder_with_a_fresh_decoder_learns_to_ask(tiny_bert, tmp_path):
    contexts = ["A man is playing.", "Two dogs run on the beach."]
    rows = [
        {
            "context": contexts[0],
            "question": "Who is playing?",
            "answers": {"text": ["A man"], "answer_start": [0]},
        },
        {
            "context": contexts[1],
            "question": "What run?",
            "answers": {"text": ["Two dogs"], "answer_start": [0]},
        },
    ]
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    some = TrainQuestionGeneratorSettings(
        base=str(tiny_bert),
        data=[str(path)],
        epochs=80,
        batch_size=2,
        learning_rate=[1e-2],
        device="cpu",
        warmup=0,
    )
    some = some.model_copy(update={"validation": str(path), "eval_steps": 80})
    asker = str(train_question_generator(some, Run(tmp_path / "asker", Silent())))
    limits = [
        load_generator(settings(asker, path).model_copy(update={"device": device})).limit
        for device in ("cpu", META)
    ]
    assert limits[0] == limits[1]
    curve = json.loads((tmp_path / "asker" / "training.json").read_text())["validation"]
    assert curve[0]["token accuracy"] < curve[-1]["token accuracy"] == 100.0
    (tmp_path / "texts.txt").write_text("\n".join(contexts))
    folder = ask(
        AskSettings(inputs=[str(tmp_path / "texts.txt")], model=asker, questions=1, device="cpu"),
        Run(tmp_path / "out", Silent()),
    )
    answers = {(row["context"], row["written"].casefold()) for row in folder.table().to_pylist()}
    assert answers == {(contexts[0], "a man"), (contexts[1], "two dogs")}


def test_answers_outside_every_passage_are_left_out(asker, tmp_path):
    text = "Ann was here. " * 30 + "It was " + "Bob " * 40
    row = {"context": text, "question": "Who?", "answers": {"text": [text[300:]], "answer_start": [300]}}
    path = tmp_path / "data.jsonl"
    path.write_text(json.dumps(row) + "\n")
    some = TrainQuestionGeneratorSettings(base=asker, data=[str(path)], max_length=32, device="cpu")
    with pytest.raises(InputError, match="no passage of 32 tokens holds the answer"):
        train_question_generator(some, Run(tmp_path / "out", Silent()))


def test_special_tokens_are_read_beside_those_of_a_whole_passage(asker, tmp_path):
    some = settings(asker, tmp_path, max_length=30)
    asking = load_generator(some)
    assert asking.limit == 30
    text = "1" * 30  # each a token of its own
    (((passage,),), lost) = cut_passages(asking, [Document(text, "here")])
    assert (passage.text, lost) == (text, [])
    (read,) = encode_inputs(asking.model, [passage.text])
    assert len(read) == 32
    writer = SequenceWriter(QuestionGeneratorOptions(base=asker, max_length=30), "cpu")
    (learned,) = writer.collate([Example(passage.text, "1")])["pairs"]["chunks"]
    assert learned["input_ids"].tolist() == [list(read)]  # nothing of a passage is cut off in training either


def test_only_the_separator_of_what_is_learned_is_a_special_token(asker):
    writer = SequenceWriter(QuestionGeneratorOptions(base=asker), "cpu")
    (chunk,) = writer.collate([Example("Ann.", f"An</s>n{SEPARATOR}Who <s>?")])["pairs"]["chunks"]
    begin, *tokens, end = chunk["labels"][0].tolist()
    assert (begin, end) == (0, 2)
    question = parse(writer.generator, [*tokens, end], separator_of(writer.generator), end)
    assert (question.answer, question.question, question.fault) == ("An</s>n", "Who <s>?", None)


def test_passages_are_cut_alike_without_the_models_weights(asker, tmp_path):
    texts = [Document(" ".join(document(number) for number in range(4)), "here")]
    for model, most in ((asker, 20), (asker, None), ("pairsmith:tiny", None)):
        some = settings(model, tmp_path, max_length=most)
        without, loaded = load_generator(some.model_copy(update={"device": META})), load_generator(some)
        if model == asker:
            assert all(weight.is_meta for weight in without.model.model.parameters())
        assert without.limit == loaded.limit
        assert cut_passages(without, texts) == cut_passages(loaded, texts)


def test_passages_are_runs_of_sentences_within_the_models_limit(asker):
    tokenizer = load_text_generator(asker, device="cpu").tokenizer
    assert passage_limit(tokenizer, None) == passage_limit(tokenizer, 999) == 62  # of 64, with begin and end
    assert passage_limit(tokenizer, None, 1024) == 456
    assert passage_limit(tokenizer, 30) == 30
    text = " ".join(document(number) for number in range(4))
    windows = passages(text, 30, tokenizer)
    assert " ".join(window.text for window in windows) == text
    assert all(len(tokenizer(window.text)["input_ids"]) <= 32 for window in windows)
    assert token_count("</s><s>", tokenizer) == 7  # as text


def test_a_text_that_stands_there_twice_is_asked_about_once(asker, tmp_path, capsys):
    path = tmp_path / "texts.jsonl"
    texts = [document(0), document(1), " ", document(0)]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    folder = ask(settings(asker, path, tries=1), Run(tmp_path / "out", Progress()))
    rows = folder.table().to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    said = capsys.readouterr().err
    assert "1 repeated text left out" in said
    assert "1 blank text left out" in said


def test_scores_that_are_no_numbers_are_told(asker):
    loaded = load_text_generator(asker, device="cpu")
    with torch.no_grad():
        loaded.model.model.decoder.layers[0].fc1.bias.fill_(float("nan"))
    features = input_features(loaded, encode_inputs(loaded, [document(0)]))
    with pytest.raises(ModelError, match="not numbers"):
        draw_sequences(loaded.model, features, [np.array([1], np.uint64)], seed=1, top_p=0.9, max_tokens=4)


def test_a_question_that_holds_the_separator_is_left_out(asker, tmp_path):
    row = {
        "context": "Ann was here.",
        "question": f"Who{SEPARATOR}?",
        "answers": {"text": ["Ann"], "answer_start": [0]},
    }
    path = tmp_path / "data.jsonl"
    path.write_text(json.dumps(row) + "\n")
    some = QuestionGeneratorOptions(base=asker)
    assert list(generator_examples(read_questions(str(path)), some)) == []
