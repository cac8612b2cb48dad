import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.heard import Heard
from tests.training.stopping import Stopped, stopped_at
from transformers import AutoModel

import pairsmith
from pairsmith.core.errors import InputError, ModelError, SettingsError
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.questions import Distribution, GeneratedQuestion, read_generated_questions
from pairsmith.methods.quip.distillation import LabelledQuestion, PassageExample, labelled_question
from pairsmith.methods.quip.student import (
    SpanEncoderWithLoss,
    grouped_by_passage,
    keep_readable_questions,
    passage_in_epoch,
    train_student_on,
)
from pairsmith.models.reader import answer, load_reader
from pairsmith.models.span_heads import SpanHeads, save_heads
from pairsmith.runs import Run
from pairsmith.runs.seeds import generator
from pairsmith.steps.evaluate.qa import evaluate_qa
from pairsmith.steps.evaluate.settings import EvaluateQaSettings
from pairsmith.steps.training.question_generator import train_question_generator
from pairsmith.steps.training.reader import train_reader
from pairsmith.steps.training.settings import (
    InfuseSettings,
    TrainQuestionGeneratorSettings,
    TrainReaderSettings,
    TrainTeacherSettings,
)
from pairsmith.steps.training.student import infuse
from pairsmith.steps.training.teacher import train_teacher
from pairsmith.training.best_step import BestStepCallback

sys.path.insert(0, str(Path(__file__).parents[2]))
from tiny_bart import make_bart

pytestmark = pytest.mark.slow

CONTEXTS = ["A man is playing. A woman is slicing an onion.", "Two dogs run on the beach."]
ASKED = [(0, "Who is playing?", "A man"), (0, "Who is slicing?", "A woman"), (1, "What run?", "Two dogs")]


def spread(place):
    return {"position": [place], "probability": [0.9]}


@pytest.fixture
def data(tmp_path):
    rows = []
    for number, question, text in ASKED:
        start = CONTEXTS[number].index(text)
        rows.append(
            {
                "id": question,
                "context": CONTEXTS[number],
                "question": question,
                "answers": {"text": [text], "answer_start": [start]},
                "starts": spread(start),
                "ends": spread(start + len(text)),
            }
        )
    path = tmp_path / "asked.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def settings(quick_bert, data, **rest):
    fast = {"batch_size": 2, "epochs": 120, "learning_rate": [5e-3], "device": "cpu", "warmup": 0}
    return InfuseSettings(base=str(quick_bert), data=[data], **(fast | rest))


def trained(some, data):
    passages = grouped_by_passage(read_generated_questions(data), some.labels)
    return train_student_on(passages, (), some).model


def answered(student):
    predictions = pairsmith.answer_with_student(
        student, [question for _, question, _ in ASKED], [CONTEXTS[number] for number, *_ in ASKED]
    )
    return [prediction.text for prediction in predictions]


@pytest.mark.parametrize("labels", ["teacher", pytest.param("hard", marks=pytest.mark.long), "answers"])
def test_three_questions_are_learned_by_heart(quick_bert, data, labels):
    student = trained(settings(quick_bert, data, labels=labels, epochs=60), data)
    assert answered(student) == [text for *_, text in ASKED]


def test_among_the_tokens_of_all_passages_too(quick_bert, data):
    student = trained(settings(quick_bert, data, negatives="batch", epochs=60), data)
    assert answered(student) == [text for *_, text in ASKED]


def test_the_loss_of_a_batch_is_the_mean_over_its_questions_in_whatever_chunks(quick_bert, data, monkeypatch):
    from pairsmith.training import chunks

    passages = grouped_by_passage(read_generated_questions(data), "teacher")
    encoder = pairsmith.load_student(str(quick_bert), device="cpu", fresh_heads=True)
    student = SpanEncoderWithLoss(encoder).eval()
    whole = student(**student.batch(passages))["loss"]
    monkeypatch.setattr(chunks, "_call_tokens", lambda _: 0)
    groups = student.batch(passages)
    (chunk,) = groups["passages"]["chunks"]
    assert [len(chunk[name]["chunks"]) for name in ("passages", "questions")] == [2, 2]
    assert float(student(**groups)["loss"].detach()) == pytest.approx(float(whole.detach()), rel=1e-5)
    monkeypatch.setattr(chunks, "tokens_at_once", lambda _: 1)
    batch = student.batch(passages)
    assert len(batch["passages"]["chunks"]) == 2
    assert float(student(**batch)["loss"].detach()) == pytest.approx(float(whole.detach()), rel=1e-5)
    losses = [student(**student.batch([passage]))["loss"].detach() for passage in passages]
    assert float(whole.detach()) == pytest.approx(float(2 * losses[0] + losses[1]) / 3, rel=1e-5)


def test_questions_count_where_a_step_is_cut_into_calls(quick_bert, data):

    passages = grouped_by_passage(read_generated_questions(data), "teacher")
    encoder = pairsmith.load_student(str(quick_bert), device="cpu", fresh_heads=True)
    read = encoder.tokens.token_counts([passage.text for passage in passages])
    many = [replace(passage, questions=[*passage.questions] * 20) for passage in passages]
    question_tokens = [
        encoder.tokens.token_counts([q.question for q in passage.questions]) for passage in many
    ]
    assert sum(map(sum, question_tokens)) > 2 * sum(read)

    def chunks(rows, batch_tokens):
        batch = SpanEncoderWithLoss(encoder, batch_tokens=batch_tokens).batch(rows)
        return len(batch["passages"]["chunks"])

    assert chunks(passages, 2 * max(read)) == 1
    assert chunks(many, 2 * max(read)) == 2
    assert chunks(many, 2 * max(map(sum, question_tokens))) == 1


@pytest.mark.parametrize("negatives", ["passage", "batch"])
def test_calls_of_few_tokens_have_the_same_loss_and_gradients(quick_bert, data, negatives, monkeypatch):
    from pairsmith.models.span_encoder import SpanEncoder

    passages = grouped_by_passage(read_generated_questions(data), "teacher")
    encoder = pairsmith.load_student(str(quick_bert), device="cpu", fresh_heads=True)
    calls, whole = [], SpanEncoder.token_vectors
    monkeypatch.setattr(
        SpanEncoder,
        "token_vectors",
        lambda self, texts: calls.append(texts["input_ids"].numel()) or whole(self, texts),
    )

    def step(batch_tokens):
        student = SpanEncoderWithLoss(
            encoder, together=9 if negatives == "batch" else None, batch_tokens=batch_tokens
        ).eval()
        student.zero_grad()
        calls.clear()
        loss = student(**student.batch(passages))["loss"]
        loss.backward()
        gradients = {
            name: weight.grad for name, weight in student.named_parameters() if weight.grad is not None
        }
        return float(loss.detach()), gradients, list(calls)

    loss, gradients, at_once = step(None)
    again, others, cut = step(16)
    assert max(cut) < max(at_once)
    if negatives == "batch":  # no group is held: each is computed once more on the way backward
        assert sorted(cut) == sorted(2 * cut[: len(cut) // 2])
    assert again == pytest.approx(loss, rel=1e-5)
    assert others.keys() == gradients.keys()
    for name, gradient in gradients.items():
        assert torch.allclose(others[name], gradient, atol=1e-5), name


@pytest.mark.parametrize("negatives", ["passage", "batch"])
def test_gradients_are_those_of_finite_differences(quick_bert, data, negatives, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)  # products and losses in float64, too
    rows = [json.loads(line) for line in Path(data).read_text().splitlines()]
    for row in rows:
        row["starts"] = {"position": [0, 6], "probability": [0.5, 0.25]}
        row["ends"] = {"position": [5, 12], "probability": [0.375, 0.5]}
    Path(data).write_text("".join(json.dumps(row) + "\n" for row in rows))
    passages = grouped_by_passage(read_generated_questions(data), "teacher")
    encoder = pairsmith.load_student(str(quick_bert), device="cpu", fresh_heads=True)
    student = SpanEncoderWithLoss(encoder, together=9 if negatives == "batch" else None).eval().double()
    batch = student.batch(passages)
    student(**batch)["loss"].backward()
    rng, looked = np.random.default_rng(0), 0
    with torch.no_grad():
        for name, weight in student.named_parameters():
            if weight.grad is None:
                assert "pooler" in name
                continue
            if weight.ndim == 2:  # of tables the rows that are used, else one that is not is all that is seen
                used = weight.grad.abs().sum(dim=1).nonzero().flatten().tolist()
                place = (used[int(rng.integers(len(used)))], int(rng.integers(weight.shape[1])))
            else:
                place = (int(rng.integers(len(weight))),)
            before, sides = weight[place].clone(), []
            for step in (1e-5, -1e-5):
                weight[place] = before + step
                sides.append(float(student(**batch)["loss"]))
            weight[place] = before
            slope = (sides[0] - sides[1]) / 2e-5
            assert float(weight.grad[place]) == pytest.approx(slope, rel=1e-4, abs=1e-7), name
            looked += slope != 0
    assert looked > 30


@pytest.mark.parametrize(
    "rest",
    [
        {"epochs": 8, "batch_size": 1},
        {"epochs": 16, "batch_size": 2, "negatives": "batch", "batch_tokens": 16},
    ],
)
def test_a_stopped_training_goes_on_to_the_same_weights(tiny_bert, data, tmp_path, monkeypatch, rest):
    given = settings(tiny_bert, data, questions=1, checkpoint_steps=4, **rest)
    infuse(given, Run(tmp_path / "whole", Silent()))
    with monkeypatch.context() as patch:
        stopped_at(patch, 7)
        with pytest.raises(Stopped):
            infuse(given, Run(tmp_path / "stopped", Silent()))
    steps, real = [], BestStepCallback.on_step_end

    def counting(self, args, state, control, **kwargs):
        steps.append(state.global_step)
        real(self, args, state, control, **kwargs)

    monkeypatch.setattr(BestStepCallback, "on_step_end", counting)
    infuse(given, Run(tmp_path / "stopped", Silent()))
    assert steps == list(range(5, 17))
    for name in ("model.safetensors", "heads.safetensors"):
        assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_negatives_of_the_batch_make_it_harder(quick_bert, data):

    passages = grouped_by_passage(read_generated_questions(data), "teacher")
    encoder = pairsmith.load_student(str(quick_bert), device="cpu", fresh_heads=True)
    alone, among = (
        float(student(**student.batch(passages))["loss"].detach())
        for student in (SpanEncoderWithLoss(encoder, together=share).eval() for share in (None, 9))
    )
    assert among > alone


@pytest.mark.parametrize("together", [None, 2])
def test_the_loss_is_that_of_direct_computation(quick_bert, together):
    """Eq. 1 to 3 of the paper, with each text encoded by itself; joined, with the other passage's tokens (Q6)."""
    encoder = pairsmith.load_student(str(quick_bert), device="cpu", fresh_heads=True)
    tokenizer = encoder.tokens.tokenizer
    to_end = Distribution((CONTEXTS[0].index("man") + 3, len(CONTEXTS[0])), (0.5, 0.25))
    questions = [
        [LabelledQuestion("Who is playing?", Distribution((0, CONTEXTS[0].index("woman")), (0.6, 0.1)), to_end),
         LabelledQuestion("What?", None, None)],
        [LabelledQuestion("What run?", Distribution((CONTEXTS[1].index("dogs"),), (0.9,)), Distribution((8,), (0.8,)))],
    ]  # fmt: skip

    def vectors(text):
        with torch.inference_mode():
            return encoder.token_vectors(encoder.tokens.features([text]))[0]

    def token_at(character, text):
        offsets = tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
        return next(place for place, (begin, end) in enumerate(offsets) if begin <= character < end)

    losses = []
    for number, (text, of_passage) in enumerate(zip(CONTEXTS, questions, strict=True)):
        read = [vectors(text), *([vectors(CONTEXTS[1 - number])] if together else [])]
        for question in of_passage:
            with torch.inference_mode():
                f_start, f_end = encoder.heads(vectors(question.question)[0])
            loss = 0.0
            for f, distribution, of_end in ((f_start, question.starts, 0), (f_end, question.ends, 1)):
                log_p = (torch.cat(read) @ f).log_softmax(dim=0)
                if distribution is None:
                    loss -= log_p[0]
                    continue
                for position, share in zip(distribution.positions, distribution.probabilities, strict=True):
                    loss -= share * log_p[token_at(position - of_end, text)]
            losses.append(float(loss))
    student = SpanEncoderWithLoss(encoder, together=together).eval()
    rows = [PassageExample(text, of_passage) for text, of_passage in zip(CONTEXTS, questions, strict=True)]
    assert float(student(**student.batch(rows))["loss"].detach()) == pytest.approx(np.mean(losses), rel=1e-5)


def test_so_many_passages_are_joined_and_not_the_whole_step(quick_bert, data):
    """The loss of four passages, two together, is the mean over the questions of both twos (Q6)."""
    passages = [*grouped_by_passage(read_generated_questions(data), "teacher")]
    four = [passages[0], passages[1], passages[1], passages[0]]
    encoder = pairsmith.load_student(str(quick_bert), device="cpu", fresh_heads=True)

    def loss(rows, together):
        student = SpanEncoderWithLoss(encoder, together=together).eval()
        return float(student(**student.batch(rows))["loss"].detach())

    twos = [loss(four[:2], 9), loss(four[2:], 9)]
    assert loss(four, 2) == pytest.approx(sum(twos) / 2, rel=1e-5)  # of three questions each
    assert loss(four, 9) > loss(four, 2)
    alone = settings(quick_bert, data, negatives="batch", batch_size=1)
    with pytest.raises(SettingsError, match="joins several passages .* would have only one"):
        train_student_on(grouped_by_passage(read_generated_questions(data), "teacher"), (), alone)
    with pytest.raises(ValidationError, match="together has no effect with negatives passage"):
        settings(quick_bert, data, together=3)


@given(count=st.integers(1, 30), most=st.integers(1, 12), seed=st.integers(0, 9), turn=st.integers(0, 50))
def test_each_question_of_a_passage_has_its_turn(count, most, seed, turn):
    passage = PassageExample("a", [LabelledQuestion(str(number), None, None) for number in range(count)])
    all_numbers = []
    for later in range(-(-count // most)):  # from any pass on, after so many each was seen
        drawn = passage_in_epoch([passage], most, seed, 0, turn + later, generator(seed, later)).questions
        numbers = [int(question.question) for question in drawn]
        assert len(numbers) == min(most, count)
        assert numbers == sorted(set(numbers))
        all_numbers += numbers
    assert set(all_numbers) == set(range(count))


def test_whose_turn_it_is_is_by_chance():
    passages = [PassageExample("a", [LabelledQuestion(str(number), None, None) for number in range(5)])] * 9

    def chosen(seed, number, rng):
        return tuple(row.question for row in passage_in_epoch(passages, 2, seed, number, 0, rng).questions)

    assert len({chosen(seed, number, generator(1)) for seed in range(3) for number in range(9)}) > 5
    assert len({chosen(1, 0, generator(n)) for n in range(9)}) == 1


def test_the_folder_opens_with_transformers_and_here_and_is_evaluated(quick_bert, data, tmp_path):
    run = Run(tmp_path / "student", Silent())
    given = settings(quick_bert, data, validation=data, epochs=60, eval_steps=40)
    infuse(given, run)
    student = pairsmith.load_student(str(run.out), device="cpu")
    assert answered(student) == [text for *_, text in ASKED]
    alone = AutoModel.from_pretrained(run.out).state_dict()
    assert all(torch.equal(alone[name], value) for name, value in student.tokens.model.state_dict().items())
    assert "pairsmith.load_student" in (run.out / "README.md").read_text()
    scores = evaluate_qa(
        EvaluateQaSettings(model=str(run.out), data=data, device="cpu", bootstrap=0),
        Run(tmp_path / "results", Silent()),
    )
    assert (scores["exact"], scores["f1"]) == (100.0, 100.0)
    again = Run(tmp_path / "student", Silent())
    assert infuse(given, again) == run.out


def behind(path, *answers):
    """A passage of 40 words, and a question for each of some of them."""
    words = ["dog"] * 40
    for place in answers:
        words[place] = "man"
    text = " ".join(words)
    rows = [
        {
            "context": text,
            "question": f"Who is number {place}?",
            "answers": {"text": ["man"], "answer_start": [4 * place]},
        }
        for place in answers
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_answers_behind_what_is_read_are_left_out_and_counted(quick_bert, data, tmp_path, capsys):
    cut = {"labels": "answers", "max_length": 16, "epochs": 1}
    long, late = behind(tmp_path / "long.jsonl", 2, 30), behind(tmp_path / "late.jsonl", 33)
    some = settings(quick_bert, data, **cut).model_copy(update={"data": [data, long, late]})
    run = Run(tmp_path / "out", Progress())
    infuse(some, run)
    assert "2 of 6 questions are left out: their answers are beyond the first 16 tokens" in (
        capsys.readouterr().err
    )
    card = (run.out / "README.md").read_text()
    assert "| passages | 3 |\n| questions | 4 |\n" in card
    assert "| questions left out: the answer is beyond the tokens that are read | 2 |" in card
    with pytest.raises(InputError, match=r"first 16 tokens .* no answer to any of the 1 questions; .*larger"):
        infuse(settings(quick_bert, late, **cut), Run(tmp_path / "none", Silent()))


def test_what_is_left_out_does_not_count_in_the_mean(quick_bert, tmp_path):
    encoder = pairsmith.load_student(str(quick_bert), device="cpu", fresh_heads=True, max_length=16)
    student = SpanEncoderWithLoss(encoder).eval()
    losses = []
    for places in ((2,), (2, 30)):
        rows = read_generated_questions(behind(tmp_path / "rows.jsonl", *places))
        passages = grouped_by_passage(rows, "answers")
        known = keep_readable_questions(encoder.tokens, passages, Silent())
        assert [question.question for question in known[0].questions] == ["Who is number 2?"]
        losses.append(float(student(**student.batch(known))["loss"].detach()))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)  # word 30 is not read
    assert losses[0] > 0


def test_without_a_teacher_its_distributions_are_asked_for(quick_bert, tmp_path):
    path = tmp_path / "plain.jsonl"
    row = {"context": CONTEXTS[0], "question": "Who?", "answers": {"text": ["A man"], "answer_start": [0]}}
    path.write_text(json.dumps(row) + "\n")
    with pytest.raises(InputError, match="make them with relabel"):
        infuse(settings(quick_bert, str(path)), Run(tmp_path / "out", Silent()))
    path.write_text("")
    with pytest.raises(InputError, match="no questions to train on"):
        infuse(settings(quick_bert, str(path)), Run(tmp_path / "other", Silent()))


def test_a_teacher_learns_the_same_questions(quick_bert, data, tmp_path):
    run = Run(tmp_path / "teacher", Silent())
    train_teacher(
        TrainTeacherSettings(
            base=str(quick_bert),
            data=[data],
            epochs=150,
            batch_size=3,
            learning_rate=[5e-3],
            validation=data,
            eval_steps=50,
            warmup=0,
            device="cpu",
        ),
        run,
    )
    teacher = load_reader(str(run.out), device="cpu")
    predictions = answer(
        teacher, [question for _, question, _ in ASKED], [CONTEXTS[number] for number, *_ in ASKED]
    )
    assert [prediction.text for prediction in predictions] == [text for *_, text in ASKED]
    record = json.loads((run.out / "training.json").read_text())
    curve = [look["F1"] for look in record["validation"]]
    assert curve[0] < curve[-1] == 100.0
    assert (run.out / "heads.safetensors").is_file()
    AutoModel.from_pretrained(run.out)


def test_a_cross_encoder_student_learns_the_likeliest_start_and_end_each_for_itself(tmp_path):
    """The end may stand before the start, as the two are not learned as a span (Q6)."""
    row = {
        "context": CONTEXTS[1],
        "question": "What run?",
        "answers": {"text": ["Two dogs"], "answer_start": [0]},
        "starts": {"position": [0, 9], "probability": [0.3, 0.6]},
        "ends": {"position": [8, 13], "probability": [0.5, 0.2]},
    }
    path = tmp_path / "asked.jsonl"
    path.write_text(
        json.dumps(row) + "\n" + json.dumps({**row, "starts": {"position": [], "probability": []}})
    )
    given = TrainTeacherSettings(base="", data=[str(path)], labels="hard")
    read = train_teacher.read(given, None)
    assert [question.spans for question in read.training] == [((9, 7),), ()]
    assert train_teacher.read(given, 1).unread == 1
    answers = train_teacher.read(given.model_copy(update={"labels": "answers"}), None)
    assert [question.spans for question in answers.training] == [((0, 7),)] * 2
    path.write_text(json.dumps({name: row[name] for name in ("context", "question", "answers")}))
    with pytest.raises(InputError, match="has no distributions of a teacher; make them with relabel"):
        train_teacher.read(given, None)


def test_what_is_learned_of_a_question_with_and_without_a_teacher():
    starts, ends = Distribution((2, 0), (0.3, 0.6)), Distribution((5, 17), (0.5, 0.2))
    place = CONTEXTS[0].index("woman")
    taught = GeneratedQuestion("q", CONTEXTS[0], "Who?", "WOMAN", (0, 5), (place, place + 5), starts, ends)
    by_labels = {labels: labelled_question(taught, labels) for labels in ("teacher", "hard", "answers")}
    assert by_labels["teacher"] == LabelledQuestion("Who?", starts, ends)
    assert by_labels["hard"] == LabelledQuestion(
        "Who?", Distribution((0,), (1.0,)), Distribution((5,), (1.0,))
    )
    # The teacher's best, at 0, is not what the asker wrote.
    assert by_labels["answers"] == LabelledQuestion(
        "Who?", Distribution((place,), (1.0,)), Distribution((place + 5,), (1.0,))
    )
    nowhere = replace(taught, generated_span=None)
    assert labelled_question(nowhere, "answers") == LabelledQuestion("Who?", None, None)


@pytest.mark.parametrize(("step", "kind"), [(infuse, InfuseSettings), (train_teacher, TrainTeacherSettings)])
def test_an_encoder_with_a_decoder_is_neither_student_nor_teacher(step, kind, data, tmp_path):
    make_bart(tmp_path / "bart")
    given = {"base": str(tmp_path / "bart"), "data": [data], "device": "cpu"}
    with pytest.raises(ModelError, match="models of type bart have an encoder and a decoder"):
        step(kind(**given), Run(tmp_path / "out", Silent()))


@pytest.mark.parametrize("base", ["tiny_llama", pytest.param("tiny_gpt2", marks=pytest.mark.long)])
def test_a_language_model_is_a_student_whose_tokens_see_later_ones(base, data, tmp_path, request):
    model = str(request.getfixturevalue(base))
    given = settings(model, data, learning_rate=[1e-2], attention_dropout=0.0)
    infuse(given, Run(tmp_path / "student", Silent()))
    student = pairsmith.load_student(str(tmp_path / "student"), device="cpu")
    assert answered(student) == [text for *_, text in ASKED]
    one, other = (student.token_vectors(student.tokens.features([text]))[0, 0] for text in ("a man", "a dog"))
    assert not torch.equal(one, other)
    opened = AutoModel.from_pretrained(tmp_path / "student")
    features = student.tokens.features([CONTEXTS[0]])
    with torch.inference_mode():
        states = opened.eval()(**features).last_hidden_state
        assert torch.allclose(states, student.token_vectors(features), atol=1e-5)


@pytest.mark.parametrize("base", [pytest.param("tiny_llama", marks=pytest.mark.long), "tiny_gpt2"])
def test_a_language_model_is_a_teacher_that_reads_the_question_first(base, data, tmp_path, request):
    given = TrainTeacherSettings(
        base=str(request.getfixturevalue(base)), data=[data], epochs=150, batch_size=3, learning_rate=[1e-2],
        warmup=0, device="cpu",
    )  # fmt: skip
    train_teacher(given, Run(tmp_path / "teacher", Silent()))
    teacher = load_reader(str(tmp_path / "teacher"), device="cpu")
    predictions = answer(
        teacher, [question for _, question, _ in ASKED], [CONTEXTS[number] for number, *_ in ASKED]
    )
    assert [prediction.text.strip() for prediction in predictions] == [text for *_, text in ASKED]


def test_a_reader_does_not_begin_as_a_teacher(quick_bert, data, tmp_path):
    copy = shutil.copytree(quick_bert, tmp_path / "teacher")
    save_heads(SpanHeads(16, "tokens"), copy)
    with pytest.raises(ModelError, match="is already a teacher or a student"):
        train_reader(TrainReaderSettings(base=str(copy), seeds=data), Run(tmp_path / "out", Silent()))


def test_after_a_fault_of_the_data_the_corrected_command_goes_on(quick_bert, tmp_path):
    path = tmp_path / "plain.jsonl"
    row = {"context": CONTEXTS[0], "question": "Who?", "answers": {"text": ["A man"], "answer_start": [0]}}
    path.write_text(json.dumps(row) + "\n")
    run = Run(tmp_path / "out", Silent())
    with pytest.raises(InputError, match="make them with relabel"):
        infuse(settings(quick_bert, str(path)), run)
    infuse(settings(quick_bert, str(path), labels="answers", epochs=1), run)
    assert (run.out / "heads.safetensors").is_file()


def test_a_student_that_was_saved_answers_as_before(quick_bert, tmp_path):
    texts, questions = ["A man is playing in Rome.", "It is cold."], ["Where does he play?", "How is it?"]
    student = pairsmith.load_student(str(quick_bert), device="cpu", fresh_heads=True, seed=3)
    student.save(tmp_path / "new" / "student")
    saved = pairsmith.load_student(str(tmp_path / "new" / "student"), device="cpu")
    answers = pairsmith.answer_with_student(student, questions, texts)
    assert pairsmith.answer_with_student(saved, questions, texts) == answers


def test_rows_without_a_column_of_answers_are_not_taken_for_questions_without_an_answer(quick_bert, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("context,question,answer\nAnn plays.,Who plays?,Ann\n")
    given = settings(quick_bert, str(path), labels="answers")
    with pytest.raises(InputError, match="'answers', which is needed; if 'answer' holds it, rename that"):
        infuse.read(given, None)
    path.write_text(path.read_text().replace("answer", "answers"))
    (passage,) = infuse.read(given, None).training
    assert passage.questions[0].starts.positions == (0,)


@pytest.mark.parametrize(
    ("step", "given"),
    [
        (train_teacher, TrainTeacherSettings),
        (train_question_generator, TrainQuestionGeneratorSettings),
    ],
)
def test_questions_without_an_answer_are_counted(step, given, tmp_path):
    path = tmp_path / "rows.jsonl"
    row = {"context": "Ann plays.", "question": "Who plays?", "answers": "Ann"}
    path.write_text("".join(json.dumps(line) + "\n" for line in (row, row | {"answers": []}, row)))
    validation = tmp_path / "validation.jsonl"
    validation.write_text("".join(json.dumps(line) + "\n" for line in (row, row | {"answers": []})))
    read = step.read(given(base="pairsmith:tiny", data=[str(path)], validation=str(validation)), None)
    heard = Heard()
    read.report(heard)
    assert (len(read.training), read.unanswered, len(read.validation)) == (2, 1, 1)
    assert heard.lines == [
        "1 of 3 questions has no answer and is left out",
        "1 of 2 validation questions has no answer and is left out",
    ]


def test_infuse_says_how_many_questions_have_no_answer_in_their_passage(quick_bert, tmp_path):
    path = tmp_path / "rows.jsonl"
    row = {"context": "Ann plays.", "question": "Who plays?", "answers": "Ann"}
    path.write_text("".join(json.dumps(line) + "\n" for line in (row, row | {"answers": []}, row)))
    heard = Heard()
    infuse(settings(quick_bert, str(path), labels="answers", max_steps=1), Run(tmp_path / "out", heard))
    said = "1 of 3 questions has no answer in the passage; there the student learns the first token"
    assert said in heard.lines


def test_infuse_says_how_many_questions_of_an_official_file_have_no_answer(quick_bert, tmp_path):
    path = tmp_path / "train.json"
    answered = {"question": "Who plays?", "answers": [{"text": "Ann", "answer_start": 0}]}
    questions = [answered, {"question": "Who sings?", "answers": [], "is_impossible": True}]
    paragraph = {"context": "Ann plays.", "qas": questions}
    path.write_text(json.dumps({"data": [{"title": "a", "paragraphs": [paragraph]}]}))
    heard = Heard()
    given = settings(quick_bert, str(path), labels="answers", max_steps=1, validation=str(path))
    infuse(given, Run(tmp_path / "out", heard))
    assert "1 of 2 questions in SQuAD's official files has no answer and is left out" in heard.lines
    assert "1 of 2 validation questions has no answer and is left out" in heard.lines
