import json
import math
import re
import shutil
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file
from tests.planned import planned
from torch.nn.functional import cross_entropy

from pairsmith.core.errors import FolderError, InputError, ModelError, SettingsError
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.squad import QUESTION, Answer, Question, read_questions
from pairsmith.methods.mining import reader as module
from pairsmith.methods.mining.options import ReaderOptions
from pairsmith.methods.mining.question_store import QuestionWithSpans, span_of
from pairsmith.methods.mining.reader import (
    ReaderWithLoss,
    answer_tokens,
    span_losses,
    train_reader_on,
    training_windows,
)
from pairsmith.models.reader import Reader, answer, encode_questions, load_reader
from pairsmith.runs import Run
from pairsmith.runs.estimate import Estimate
from pairsmith.steps.evaluate.qa import evaluate_qa
from pairsmith.steps.evaluate.settings import EvaluateQaSettings
from pairsmith.steps.training.reader import added_questions, train_reader
from pairsmith.steps.training.settings import TrainReaderSettings, TrainTeacherSettings
from pairsmith.training.best_step import BestStepCallback

pytestmark = pytest.mark.slow

# Who or what is asked for is told by the verb, so that a tiny model can learn it.
FACTS = [
    ("Who is slicing an onion?", "A woman is slicing an onion. Two dogs run on the beach.", "A woman"),
    ("Who rides a horse?", "Someone is talking about a child who rides a horse.", "a child"),
    ("What fell?", "The stock market fell again today.", "stock market"),
    ("What run on the beach?", "A woman is slicing an onion. Two dogs run on the beach.", "Two dogs"),
    ("Who is playing?", "A man is playing. The weather was not good, they said.", "A man"),
    ("What was not good?", "A man is playing. The weather was not good, they said.", "The weather"),
    ("When did it fall?", "The stock market fell again today.", "today"),
    ("Where do dogs run?", "Two dogs run on the beach.", "beach"),
]


def question(wording, context, *answers, number=0):
    gold_answers = tuple(Answer(text, context.index(text)) for text in answers)
    return Question(f"q{number}", "", context, wording, gold_answers)


QUESTIONS = [question(*fact, number=number) for number, fact in enumerate(FACTS)]


def question_table():
    return pa.Table.from_pylist([question.columns() for question in QUESTIONS], schema=QUESTION)


def write(path, questions, column="question"):
    rows = [
        {
            "id": example.id,
            "context": example.context,
            column: example.question,
            "answers": {
                "text": [gold.text for gold in example.answers],
                "answer_start": [gold.start for gold in example.answers],
            },
        }
        for example in questions
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    return write(tmp_path_factory.mktemp("questions") / "seeds.jsonl", QUESTIONS)


@pytest.fixture(scope="module")
def tiny_bart(tiny_bert, tmp_path_factory):
    from transformers import BartConfig, BartModel

    folder = tmp_path_factory.mktemp("tiny") / "bart"
    config = BartConfig(
        vocab_size=160,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        max_position_embeddings=64,
        pad_token_id=0,
        bos_token_id=2,
        eos_token_id=3,
        decoder_start_token_id=3,
        forced_eos_token_id=3,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        BartModel(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tiny_bert / name, folder)
    return folder


FAST = {"batch_size": 4, "steps": 12, "learning_rate": [5e-3], "eval_steps": 4, "device": "cpu"}


def settings(base="", seeds="", **rest):
    return TrainReaderSettings(base=str(base), seeds=str(seeds), **(FAST | rest))


def options(base, **rest):
    return ReaderOptions(base=str(base), **(FAST | rest))


def marked(questions):
    return list(map(QuestionWithSpans.of, questions))


def train_on(base, questions=QUESTIONS, validation=(), **rest):
    return train_reader_on(marked(questions), validation, options(base, **rest))


def test_dropout_of_attention_can_be_left_out(tiny_bert):
    usual, without = (train_on(tiny_bert, steps=2, attention_dropout=share).model for share in (None, 0.0))
    assert not equal(weights(usual.model), weights(without.model))


# Where an answer stands.


@pytest.fixture(scope="module")
def bert(tiny_bert):
    return load_reader(str(tiny_bert), device="cpu", fresh_head=True)


def spelled(reader, example):
    """The text that each window's target covers, and how many windows there are."""
    windows = encode_questions(reader, [example.question], [example.context])
    targets = [answer_tokens(window, span_of(example.answers[0])) for window in windows]
    places = [
        (window.offsets[start, 0], window.offsets[end, 1])
        for window, (start, end) in ((w, place) for w, place in zip(windows, targets, strict=True) if place)
    ]
    return [example.context[start:end] for start, end in places], len(windows)


@pytest.mark.parametrize("model", ["tiny_bert", "tiny_gpt2", "tiny_llama"])
@pytest.mark.parametrize("number", range(len(FACTS)))
def test_the_tokens_of_an_answer_spell_it(model, number, request):
    reader = load_reader(str(request.getfixturevalue(model)), device="cpu", fresh_head=True)
    (spelling,), windows = spelled(reader, QUESTIONS[number])
    assert windows == 1
    assert spelling.strip() == FACTS[number][2]


@pytest.mark.parametrize(
    ("text", "start", "expected"),
    [
        (" dogs\n", 3, "dogs"),  # white space at its ends is no part of it
        ("og", 5, "dogs"),  # the tokens that cover it may hold more
        ("Two dogs\nrun.", 0, "Two dogs\nrun."),
    ],
)
def test_an_answer_is_covered_by_whole_tokens(bert, text, start, expected):
    context = "Two dogs\nrun."
    assert context.startswith(text, start)
    example = Question("q", "", context, "Who?", (Answer(text, start),))
    # A word of several pieces is covered by those pieces that hold its letters.
    ((spelling,), _) = spelled(bert, example)
    assert text.strip() in spelling
    assert spelling in expected


def test_a_letter_that_is_two_tokens_is_covered_from_the_first_to_the_last(tiny_gpt2):
    reader = load_reader(str(tiny_gpt2), device="cpu", fresh_head=True)
    context = "ab é cd"
    (window,) = encode_questions(reader, ["Who?"], [context])
    tokens = [list(place) for place in window.offsets[window.is_context].tolist()]
    assert tokens.count([3, 4]) + tokens.count([2, 4]) == 2  # two bytes
    start, end = answer_tokens(window, span_of(Answer("é", 3)))
    assert end == start + 1
    assert window.offsets[end].tolist() == [3, 4]


FILLER = "The stock market fell again today; the weather was not good, they said. "


def test_every_window_that_holds_all_of_an_answer_is_learned_from(bert):
    context = FILLER * 3 + "Two dogs run on the beach. " + FILLER * 3
    example = question("What run on the beach?", context, "Two dogs")
    windows = encode_questions(bert, [example.question], [context])
    (targets,) = training_windows(bert, marked([example]))
    assert 0 < len(targets) < len(windows)
    for target in targets:
        start, end = target.window.offsets[target.start, 0], target.window.offsets[target.end, 1]
        assert context[start:end] == "Two dogs"
        assert target.window.is_context[target.start]
        assert target.window.is_context[target.end]
    holding = [
        window
        for window in windows
        if {context.index("Two"), context.index("dogs")} <= set(window.offsets[:, 0].tolist())
    ]
    assert len(targets) == len(holding)


def test_where_no_window_holds_the_first_answer_the_next_is_learned(bert):
    context = FILLER * 6
    example = Question(
        "q", "", context, "What fell?", (Answer(context.strip(), 0), Answer("stock market", 4))
    )
    (targets,) = training_windows(bert, marked([example]))
    assert {context[t.window.offsets[t.start, 0] : t.window.offsets[t.end, 1]] for t in targets} == {
        "stock market"
    }


@pytest.mark.parametrize(
    ("rates", "message"),
    [([1e-3, 2.0], "between 0 and 1"), ([1e-3, 1e-4, 1e-3], "give each learning rate once")],
)
def test_learning_rates_that_make_no_sense_are_told(tiny_bert, rates, message):
    with pytest.raises(ValidationError, match=message):
        options(tiny_bert, learning_rate=rates)


def test_questions_whose_answer_is_in_no_window_are_left_out_and_that_is_said_once(tiny_bert, capsys):
    long = question("What fell?", FILLER * 6, (FILLER * 6).strip())
    given = options(tiny_bert, steps=2, learning_rate=[1e-3, 1e-4])
    trained = train_reader_on(marked([*QUESTIONS, long, long]), [], given, progress=Progress())
    assert trained.questions == 8
    said = capsys.readouterr().err
    assert said.count("2 of 10 questions are left out: no window of 64 tokens holds their answer") == 1
    with pytest.raises(InputError, match="no window of 64 tokens holds an answer to any of the 1 questions"):
        train_reader_on(marked([long]), [], given)


def test_with_longer_windows_a_longer_answer_is_held(tiny_bert):
    example = question("What?", FILLER, "stock market fell again today; the weather was not good")
    assert train_on(tiny_bert, [*QUESTIONS, example], steps=1).questions == 9
    assert train_on(tiny_bert, [*QUESTIONS, example], steps=1, max_length=18).questions == 8


# The loss.


def test_the_losses_by_hand():
    # Starts: softmax of log(1), log(3) over the allowed tokens 1 and 2. Ends: 1/2 each.
    starts = torch.tensor([[9.0, 1.0, 3.0, 5.0]]).log()
    ends = torch.tensor([[7.0, 2.0, 2.0, 8.0]]).log()
    allowed = torch.tensor([[False, True, True, False]])
    losses = span_losses(starts, ends, allowed, torch.tensor([1]), torch.tensor([2]))
    assert losses.tolist() == pytest.approx([(math.log(4) + math.log(2)) / 2])


def test_padding_does_not_change_a_loss():
    torch.manual_seed(0)
    logits = torch.randn(2, 3, 5, dtype=torch.float64)
    places = torch.tensor([[0, 4, 2], [3, 4, 2]])
    allowed = torch.ones(3, 5, dtype=torch.bool)
    padded = torch.cat([logits, torch.full((2, 3, 2), 50.0)], dim=2)
    masked = torch.cat([allowed, torch.zeros(3, 2, dtype=torch.bool)], dim=1)
    expected = sum(cross_entropy(logits[side], places[side], reduction="none") for side in (0, 1)) / 2
    for values, mask in ((logits, allowed), (padded, masked)):
        losses = span_losses(values[0], values[1], mask, places[0], places[1])
        assert losses.dtype == torch.float32
        assert losses.tolist() == pytest.approx(expected.tolist(), rel=1e-6)


def test_tokens_that_are_not_allowed_get_no_gradient():
    logits, allowed = torch.zeros(1, 3, requires_grad=True), torch.tensor([[False, True, True]])
    span_losses(logits, logits, allowed, torch.tensor([1]), torch.tensor([1])).sum().backward()
    assert logits.grad.tolist() == [[0.0, -0.5, 0.5]]


def test_the_loss_of_a_batch_is_the_mean_over_its_windows_in_whatever_chunks(tiny_bert, monkeypatch):
    reader = load_reader(str(tiny_bert), device="cpu", fresh_head=True)
    rows = [targets[0] for targets in training_windows(reader, marked(QUESTIONS))]
    marker = ReaderWithLoss(reader, 0)
    alone = [marker(**marker.batch([row]))["loss"] for row in rows]
    losses = {}
    for most in (32, 10_000):
        monkeypatch.setattr("pairsmith.training.chunks.tokens_at_once", lambda device, most=most: most)
        batch = marker.batch(rows)
        losses[len(batch["windows"]["chunks"])] = marker(**batch)["loss"]
    assert len(losses) == 2
    assert [loss.item() for loss in losses.values()] == pytest.approx([sum(alone).item() / 8] * 2, rel=1e-5)


# The training.


@pytest.mark.parametrize(
    ("model", "rate"),
    [
        ("tiny_bert", 1e-2),
        pytest.param("tiny_gpt2", 1e-2, marks=pytest.mark.long),
        pytest.param("tiny_llama", 1e-2, marks=pytest.mark.long),
        pytest.param("tiny_bart", 1e-2, marks=pytest.mark.long),
    ],
)
def test_a_tiny_model_learns_eight_questions_by_heart(model, rate, request, monkeypatch):
    losses = []

    def watched(*given):
        window_losses = span_losses(*given)
        losses.append(window_losses.mean().item())
        return window_losses

    monkeypatch.setattr(module, "span_losses", watched)
    base = request.getfixturevalue(model)
    trained = train_on(
        base, validation=QUESTIONS, steps=120, batch_size=8, learning_rate=[rate], eval_steps=40
    )
    assert sum(losses[-5:]) < sum(losses[:5]) / 5
    assert trained.history.validation[0] < 60
    assert trained.history.best > 90
    assert module.validation_f1(partial(answer, trained.model), QUESTIONS) == pytest.approx(
        trained.history.best
    )


def test_questions_of_several_windows_are_learned_too(tiny_bert):
    context = FILLER * 2 + "Two dogs run on the beach. " + FILLER
    questions = [question("What run on the beach?", context, "Two dogs"), *QUESTIONS[4:6]]
    given = {"steps": 100, "batch_size": 6, "learning_rate": [1e-2], "eval_steps": 50}
    trained = train_on(tiny_bert, questions, questions, **given)
    assert trained.history.best > 60


def weights(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def equal(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(tiny_bert):
    first = weights(train_on(tiny_bert).model.model)
    torch.manual_seed(99)
    assert equal(first, weights(train_on(tiny_bert).model.model))
    assert not equal(first, weights(train_on(tiny_bert, seed=2).model.model))


@pytest.mark.long
def test_the_learning_rate_with_the_best_f1_is_kept(tiny_bert):
    rates = {"learning_rate": [1e-6, 1e-2], "steps": 60, "batch_size": 8, "eval_steps": 30}
    trained = train_on(tiny_bert, validation=QUESTIONS, **rates)
    assert trained.learning_rate == 1e-2
    alone = train_on(tiny_bert, validation=QUESTIONS, **(rates | {"learning_rate": [1e-2]}))
    assert equal(weights(trained.model.model), weights(alone.model.model))
    assert list(trained.history.rates) == [1e-6, 1e-2]
    assert trained.history.rates[1e-2] == trained.history.validation == alone.history.validation
    assert "rates" not in alone.history.to_json()
    told = trained.history.to_json()["rates"]
    assert [record["learning_rate"] for record in told] == [1e-6, 1e-2]
    assert [point["step"] for point in told[0]["validation"]] == [0, 30, 60]


def test_a_training_that_diverges_is_an_error(tiny_bert, monkeypatch):
    monkeypatch.setattr(module, "span_losses", lambda *given: span_losses(*given) * torch.nan)
    with pytest.raises(ModelError, match="the training diverged"):
        train_on(tiny_bert, validation=QUESTIONS, steps=4)


# The step.

BY_HEART = {"steps": 200, "learning_rate": [1e-2], "batch_size": 8, "eval_steps": 50}


@pytest.fixture(scope="module")
def trained(tiny_bert, seeds, tmp_path_factory):
    out = tmp_path_factory.mktemp("trained") / "reader"
    train_reader(settings(tiny_bert, seeds, validation=str(seeds), **BY_HEART), Run(out, Silent()))
    return out


def test_the_folder_opens_with_transformers_and_here(trained):
    from transformers import AutoModelForQuestionAnswering

    model = AutoModelForQuestionAnswering.from_pretrained(trained)
    reader = load_reader(str(trained), device="cpu")
    assert equal(weights(model), weights(reader.model))
    predictions = answer(
        reader, [example.question for example in QUESTIONS], [example.context for example in QUESTIONS]
    )
    record = json.loads((trained / "training.json").read_text())
    best = max(point["F1"] for point in record["validation"][1:])
    assert record["steps"] == 200
    right = sum(prediction.text == fact[2] for prediction, fact in zip(predictions, FACTS, strict=True))
    assert right >= 6
    assert best > 75


def test_the_folder_holds_a_model_and_nothing_of_the_trainer(trained):
    names = {file.name for file in trained.rglob("*") if file.is_file()}
    assert {"model.safetensors", "config.json", "tokenizer.json", "README.md", "training.json"} <= names
    assert not {name for name in names if name.endswith((".bin", ".pt")) or "optimizer" in name}


@pytest.fixture(scope="module")
def trained_llama(tiny_llama, seeds, tmp_path_factory):
    out = tmp_path_factory.mktemp("trained") / "llama"
    given = settings(tiny_llama, seeds, validation=str(seeds), **{**BY_HEART, "steps": 150})
    train_reader(given, Run(out, Silent()))
    return out


def test_a_decoder_opens_with_transformers_too_and_its_tokenizer_parts_question_and_text(trained_llama):
    from transformers import AutoModelForQuestionAnswering, AutoTokenizer

    model, info = AutoModelForQuestionAnswering.from_pretrained(trained_llama, output_loading_info=True)
    assert not info["missing_keys"]
    reader = load_reader(str(trained_llama), device="cpu")
    assert equal(weights(model), weights(reader.model))
    (window,) = encode_questions(reader, [FACTS[0][0]], [FACTS[0][1]])
    tokenizer = AutoTokenizer.from_pretrained(trained_llama)
    assert tokenizer(*FACTS[0][:2])["input_ids"] == window.input_ids.tolist()
    given = EvaluateQaSettings(
        model=str(trained_llama), data=write(trained_llama.parent / "q.jsonl", QUESTIONS).as_posix()
    )
    figures = evaluate_qa(given, Run(trained_llama.parent / "figures", Silent()))
    record = json.loads((trained_llama / "training.json").read_text())
    best = max(point["F1"] for point in record["validation"][1:])
    assert figures["f1"] == pytest.approx(best, abs=1e-3)
    assert best > 75


@pytest.mark.parametrize("folder", ["trained", "trained_llama"])
def test_what_the_card_says_to_do_answers_the_question(folder, request, capsys):
    trained = request.getfixturevalue(folder)
    text = (trained / "README.md").read_text()
    assert "| seeds | 8 |" in text
    assert "chosen by the F1" in text
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]
    code = code.replace("path/to/this/folder", str(trained))
    wording, context, expected = FACTS[3]
    code = code.replace(
        '"Who wrote Hamlet?", "Hamlet is a play by Shakespeare."', repr((wording, context))[1:-1]
    )
    exec(code, {})
    answer_text = answer(load_reader(str(trained), device="cpu"), [wording], [context])[0].text
    assert capsys.readouterr().out.strip() == answer_text
    assert answer_text == expected


def test_a_reader_reads_windows_as_long_as_those_it_was_trained_on(tiny_bert, seeds, tmp_path):
    train_reader(settings(tiny_bert, seeds, steps=1, max_length=40), Run(tmp_path / "out", Silent()))
    assert load_reader(str(tmp_path / "out"), device="cpu").max_length == 40


def test_few_seeds_are_said_and_the_last_line_says_what_was_written(tiny_bert, seeds, tmp_path, capsys):
    given = settings(tiny_bert, seeds, validation=str(seeds), steps=2)
    train_reader(given, Run(tmp_path / "out", Progress()))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(f"--validation {seeds} holds the same data as --seeds {seeds}: ")
    assert lines[1] == "loading bert"
    assert lines[2] == "only 8 seeds; about a hundred are usual, and a model learns little from 8"
    assert re.fullmatch(
        rf"wrote {tmp_path}/out: best step 2 of 2, validation F1 \d+\.\d(; the base was better .*)?",
        lines[-1],
    )


class Stopped(Exception):  # noqa: N818 - it is no error
    pass


@pytest.mark.parametrize("model", ["tiny_bert", "tiny_bart", "tiny_llama"])
@pytest.mark.parametrize(
    ("step", "begun"),
    [pytest.param(2, None, marks=pytest.mark.long), (7, 4), pytest.param(11, 8, marks=pytest.mark.long)],
)
def test_a_stopped_training_goes_on_to_the_same_weights(
    model, step, begun, seeds, tmp_path, monkeypatch, request, capsys
):
    base = request.getfixturevalue(model)  # the tiny models have dropout
    given = settings(base, seeds, validation=str(seeds), checkpoint_steps=4)
    train_reader(given, Run(tmp_path / "whole", Silent()))
    real = BestStepCallback.on_step_end

    def stopping(self, args, state, control, **kwargs):
        if state.global_step == step:
            raise Stopped
        real(self, args, state, control, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(BestStepCallback, "on_step_end", stopping)
        with pytest.raises(Stopped):
            train_reader(given, Run(tmp_path / "stopped", Silent()))
    train_reader(given, Run(tmp_path / "stopped", Progress()))
    assert ("resuming from checkpoint-" in (said := capsys.readouterr().err)) == (begun is not None)
    assert begun is None or f"checkpoint-{begun}" in said
    whole, stopped = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "stopped"))
    assert equal(whole, stopped)
    records = [json.loads((tmp_path / name / "training.json").read_text()) for name in ("whole", "stopped")]
    assert records[0]["validation"] == records[1]["validation"]


def test_the_same_training_is_not_done_again_and_another_is_refused(trained, tiny_bert, seeds, capsys):
    given = settings(tiny_bert, seeds, validation=str(seeds), **BY_HEART)
    before = (trained / "model.safetensors").stat().st_mtime_ns
    train_reader(given, Run(trained, Progress()))
    assert (trained / "model.safetensors").stat().st_mtime_ns == before
    assert "already trained with these settings; nothing to do" in capsys.readouterr().err
    with pytest.raises(FolderError, match="seed: 1 there, 2 here"):
        train_reader(given.model_copy(update={"seed": 2}), Run(trained, Silent()))


# Added questions.


@pytest.fixture
def mined(tmp_path):
    """Two files in the form of mined rows, whose questions are called input."""
    rows = [question("Who?", "Two dogs run.", "dogs", number=10 + number) for number in range(5)]
    return [write(tmp_path / f"{n}.jsonl", part, "input") for n, part in enumerate((rows[:3], rows[3:]))]


@pytest.mark.parametrize(
    ("extra", "expected"),
    [(None, [10, 11, 12, 13, 14]), (0, []), (2, [10, 11]), (4, [10, 11, 12, 13]), (9, [10, 11, 12, 13, 14])],
)
def test_so_many_questions_are_added_in_their_order(mined, extra, expected):
    given = settings(added=list(map(str, mined)), extra=extra)
    assert [example.id for example in added_questions(given, [])[0]] == [f"q{number}" for number in expected]


def test_added_questions_do_not_repeat_seeds_or_validation_questions(tmp_path):
    rows = [question("Who?", f"{n} dogs run.", "dogs", number=n) for n in range(4)]
    added, others = write(tmp_path / "added.jsonl", rows), write(tmp_path / "others.jsonl", rows[1:3])
    excluded = list(read_questions(str(others)))
    given = settings(added=[str(added)])
    kept, *left_out = added_questions(given, excluded)
    assert ([example.id for example in kept], left_out) == (["q0", "q3"], [2, 0])
    given = settings(added=[str(added)], extra=1)
    kept, *left_out = added_questions(given, excluded)
    assert ([example.id for example in kept], left_out) == (["q0"], [0, 0])  # the others were not read


def test_how_many_added_questions_were_left_out_is_said_and_in_the_card(
    tiny_bert, seeds, mined, tmp_path, capsys
):
    added = [str(mined[0]), str(seeds)]
    train_reader(settings(tiny_bert, seeds, added=added, steps=1), Run(tmp_path / "out", Progress()))
    count = len(QUESTIONS)
    said = f"{count} of {count + 3} added questions repeat other examples and are left out"
    assert said in capsys.readouterr().err
    card = (tmp_path / "out" / "README.md").read_text()
    assert "| added questions | 3 |" in card
    assert f"| added questions left out as repeats | {count} |" in card


@pytest.mark.parametrize(("extra", "count"), [(None, 5), (3, 3), (9, 5)])
def test_added_questions_are_trained_on(tiny_bert, seeds, mined, tmp_path, extra, count, monkeypatch, capsys):
    seen = []

    def noted(questions, *rest, **named):
        seen.extend(example.question for example in questions)
        return train_reader_on(questions, *rest, **named)

    monkeypatch.setattr("pairsmith.steps.training.reader.train_reader_on", noted)
    given = settings(tiny_bert, seeds, added=list(map(str, mined)), extra=extra, steps=1)
    train_reader(given, Run(tmp_path / "out", Progress()))
    assert seen == [*(example.question for example in QUESTIONS), *["Who?"] * count]
    assert f"| added questions | {count} |" in (tmp_path / "out" / "README.md").read_text()
    assert ("--added has 5 new questions, fewer than --extra 9; all are used" in capsys.readouterr().err) == (
        extra == 9
    )


def test_other_added_questions_are_another_training(tiny_bert, seeds, mined, tmp_path):
    given = settings(tiny_bert, seeds, added=[str(mined[0])], steps=1)
    train_reader(given, Run(tmp_path / "out", Silent()))
    write(mined[0], [question("Who?", "Two dogs run.", "Two dogs")], "input")
    with pytest.raises(FolderError, match="input added 1"):
        train_reader(given, Run(tmp_path / "out", Silent()))


def test_a_plan_counts_what_is_learned_and_not_what_is_measured_on(tiny_bert, monkeypatch):
    counted, real = [], TrainTeacherSettings.steps_of

    def steps_of(self, examples):
        counted.append(examples)
        return real(self, examples)

    monkeypatch.setattr(TrainTeacherSettings, "steps_of", steps_of)
    many = Estimate(1.0, 1, 1, {"train": 100_000}, sample=question_table())
    few = Estimate(1.0, 1, 1, {"train": 50}, sample=question_table())
    given = TrainTeacherSettings(
        base=str(tiny_bert), data=["@few", "@few"], validation="@many", max_length=32, device="cpu"
    )
    planned("train-teacher", given, {"@few": few, "@many": many})
    assert max(counted) == 100


def test_a_plan_trains_on_what_an_earlier_step_would_make(tiny_bert):
    sample = question_table()
    mixed = Estimate(seconds=1.0, memory=1, disk=1, rows={"train": 900}, sample=sample)
    given = settings(tiny_bert, "@mixed", validation="@mixed")
    assert planned("train-reader", given, {"@mixed": mixed}).seconds > 0
    with pytest.raises(
        SettingsError, match="@mixed: plan cannot estimate a step that reads the output of this step"
    ):
        planned("train-reader", given, {"@mixed": replace(mixed, sample=None)})


# What cannot be.


def test_extra_without_added_is_refused(tiny_bert, seeds):
    with pytest.raises(ValidationError, match="extra limits the rows of --added, which is missing"):
        settings(tiny_bert, seeds, extra=50)


@pytest.mark.parametrize("option", ["seeds", "added", "validation", "base"])
def test_what_is_read_is_not_written_over(tiny_bert, seeds, tmp_path, option):
    out = tmp_path / "data"
    given = {"base": tiny_bert, "seeds": seeds} | {option: [str(out)] if option == "added" else str(out)}
    with pytest.raises(FolderError, match=f"is what --{option} reads"):
        train_reader(settings(**given), Run(out, Silent()))


@pytest.mark.parametrize("option", ["seeds", "added", "validation"])
def test_pairs_without_answers_are_refused_before_a_folder_is_made(tiny_bert, seeds, tmp_path, option):
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text('{"input": "Who?", "output": "dogs"}\n')
    given = {"base": tiny_bert, "seeds": seeds} | {option: [str(pairs)] if option == "added" else str(pairs)}
    with pytest.raises(InputError, match="context"):
        train_reader(settings(**given), Run(tmp_path / "out", Silent()))
    assert not (tmp_path / "out").exists()


def test_missing_seeds_are_named(tiny_bert, tmp_path):
    with pytest.raises(InputError, match=r"none\.json does not exist"):
        train_reader(settings(tiny_bert, tmp_path / "none.json"), Run(tmp_path / "out", Silent()))


def test_windows_are_never_longer_than_the_model_reads(tiny_bert):
    assert isinstance(train_on(tiny_bert, steps=1, max_length=384).model, Reader)
    assert train_on(tiny_bert, steps=1, max_length=384).model.max_length == 64
