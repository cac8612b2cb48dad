"""A causal language model learns to ask: the bundled one, of a few sentences."""

import json
from collections import Counter
from dataclasses import replace
from itertools import groupby, pairwise

import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from tests.planned import planned
from tests.tiny_bart import make_bart
from tests.training.stopping import Stopped, stopped_at
from transformers import BloomConfig, BloomForCausalLM

from pairsmith.core.errors import InputError, ModelError
from pairsmith.core.model_names import resolve_model
from pairsmith.core.progress import Silent
from pairsmith.data.examples import Example
from pairsmith.data.squad import QUESTION, read_questions
from pairsmith.data.text.instructed import ANSWER_CUE, QUESTION_CUE, instructed_prompt
from pairsmith.methods.quip.generator_training import (
    CausalWriter,
    QuestionGroups,
    causal_limit,
    causal_rows,
    generator_examples,
    target_text,
    token_accuracy,
)
from pairsmith.methods.quip.training_options import QuestionGeneratorOptions
from pairsmith.models.heads import load_tokenizer
from pairsmith.models.language.loading import load_model
from pairsmith.runs import Run
from pairsmith.runs.estimate import Estimate
from pairsmith.steps.questions.ask import ask, load_generator
from pairsmith.steps.questions.plan import plan_ask
from pairsmith.steps.questions.settings import AskSettings
from pairsmith.steps.training import question_generator
from pairsmith.steps.training.question_generator import train_question_generator
from pairsmith.steps.training.settings import TrainQuestionGeneratorSettings
from pairsmith.training.generators import IGNORED

pytestmark = pytest.mark.slow

TINY = "pairsmith:tiny"
ASKED = [
    ("A man is playing the piano.", "A man", "Who is playing?"),
    ("Two dogs run on the beach.", "the beach", "Where do they run?"),
]


TEXT_OF_MANY = "A man is playing the piano, and two dogs run on the beach."
MANY = [
    (TEXT_OF_MANY, "A man", "Who plays?"),
    (TEXT_OF_MANY, "the piano", "What is played?"),
    (TEXT_OF_MANY, "two dogs", "Who runs?"),
]


def write(path, questions):
    rows = [
        {
            "context": text,
            "question": question,
            "answers": {"text": [answer], "answer_start": [text.index(answer)]},
        }
        for text, answer, question in questions
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture
def data(tmp_path):
    return write(tmp_path / "data.jsonl", ASKED)


def settings(data, **rest):
    fast = {"batch_size": 2, "epochs": 30, "learning_rate": [1e-3], "device": "cpu", "warmup": 0}
    return TrainQuestionGeneratorSettings(base=TINY, data=[data], **(fast | rest))


@pytest.fixture(scope="module")
def writer():
    return CausalWriter(QuestionGeneratorOptions(base=TINY), "cpu")


EXAMPLES = [Example(text, target_text(answer, question)) for text, answer, question in ASKED]


def test_what_is_learned_is_what_stands_behind_the_instruction(writer):
    for row, example in zip(causal_rows(writer.tokenizer, EXAMPLES, 256), EXAMPLES, strict=True):
        assert writer.tokenizer.decode(row.tokens[: row.prompt_length]) == instructed_prompt(
            example.input, ANSWER_CUE
        )
        assert writer.tokenizer.decode(row.tokens[row.prompt_length :]) == example.output
    (chunk,) = writer.continuations(list(causal_rows(writer.tokenizer, EXAMPLES, 256)))["pairs"]["chunks"]
    kept = chunk["kept"]
    assert chunk["labels"].shape == (2, len(kept))
    assert kept[-1] == chunk["input_ids"].shape[1] - 1
    for tokens, labels in zip(chunk["input_ids"], chunk["labels"], strict=True):
        assert torch.equal(tokens[kept + 1 - len(tokens)][labels != IGNORED], labels[labels != IGNORED])
    told_of_both = [row.prompt_length for row in causal_rows(writer.tokenizer, EXAMPLES, 256)]
    assert kept[0] == min(told_of_both) - 1
    assert (chunk["labels"][:, 0] != IGNORED).any()


def test_the_name_of_a_special_token_in_a_passage_is_text_as_for_ask(writer):
    end = writer.tokenizer.eos_token
    example = Example(f"Ann sold {end} to Bob {end}", target_text("Bob", f"Who bought {end}?"))
    (row,) = causal_rows(writer.tokenizer, [example], 256)
    assert writer.tokenizer.eos_token_id not in row.tokens
    prompt = instructed_prompt(example.input, ANSWER_CUE)
    assert list(row.tokens) == load_model(TINY, device="cpu").encode(prompt + example.output)


def test_a_token_that_the_base_has_no_vector_for_is_an_error_of_the_model():
    writer = CausalWriter(QuestionGeneratorOptions(base=TINY), "cpu")
    writer.tokenizer.add_tokens(["unheard"])
    with pytest.raises(ModelError, match="gives the token 4096, but the model has vectors only for tokens"):
        writer.collate([Example("Ann sold the unheard.", EXAMPLES[0].output)])


def test_what_is_beyond_the_context_is_cut_off(writer):
    (row,) = causal_rows(writer.tokenizer, EXAMPLES[:1], 256)
    (short,) = causal_rows(writer.tokenizer, EXAMPLES[:1], row.prompt_length + 2)
    assert (short.tokens, short.prompt_length) == (row.tokens[: row.prompt_length + 2], row.prompt_length)
    assert writer(**writer.continuations([short, row]))["loss"].isfinite()
    assert list(causal_rows(writer.tokenizer, EXAMPLES[:1], row.prompt_length)) == []


def test_a_tokenizer_that_closes_every_text_changes_nothing(writer):
    from tokenizers.processors import TemplateProcessing
    from transformers import AutoTokenizer

    closing = AutoTokenizer.from_pretrained(resolve_model(TINY))
    end = closing.eos_token
    closing.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"$A {end}", special_tokens=[(end, closing.eos_token_id)]
    )
    assert closing("A man")["input_ids"][-1] == closing.eos_token_id
    assert list(causal_rows(closing, EXAMPLES, 256)) == list(causal_rows(writer.tokenizer, EXAMPLES, 256))


def test_a_token_across_the_border_is_written(writer):
    """The quotation mark before ``'tis`` makes one token with what follows it."""
    (row,) = causal_rows(writer.tokenizer, [Example("He said so.", target_text("'tis", "What?"))], 256)
    assert writer.tokenizer.decode(row.tokens[row.prompt_length :]).lstrip() == f'"\'tis{QUESTION_CUE}What?"'


def test_a_word_above_the_limit_is_no_passage(tmp_path):
    long = write(tmp_path / "long.jsonl", [("猫" * 400, "猫", "Who?"), *ASKED])
    assert list(asker_examples_of(long)) == EXAMPLES


def test_a_model_that_cannot_write_is_refused(data, tmp_path):
    from transformers import DistilBertConfig

    DistilBertConfig().save_pretrained(tmp_path / "distilbert")
    (tmp_path / "distilbert" / "model.safetensors").touch()
    CausalWriter(QuestionGeneratorOptions(base=TINY), "cpu").tokenizer.save_pretrained(
        tmp_path / "distilbert"
    )
    some = settings(data).model_copy(update={"base": str(tmp_path / "distilbert")})
    with pytest.raises(ModelError, match="distilbert cannot be trained to write text; give BART"):
        train_question_generator(some, Run(tmp_path / "out", Silent()))
    assert not (tmp_path / "out").exists()


def test_the_loss_is_that_of_transformers(writer):
    rows = list(causal_rows(writer.tokenizer, EXAMPLES, 256))
    expected = count = 0
    for row in rows:
        labels = torch.tensor([[IGNORED] * row.prompt_length + list(row.tokens[row.prompt_length :])])
        with torch.inference_mode():
            loss = writer.model(input_ids=torch.tensor([row.tokens]), labels=labels).loss
        expected += float(loss) * (len(row.tokens) - row.prompt_length)
        count += len(row.tokens) - row.prompt_length
    loss = writer(**writer.continuations(rows))["loss"]
    assert loss.item() == pytest.approx(expected / count, rel=1e-5)


def test_token_accuracy_counts_what_is_written(writer):
    chunks = writer.continuations(list(causal_rows(writer.tokenizer, EXAMPLES, 256)))["pairs"]["chunks"]
    right = count = 0
    for chunk in chunks:
        likeliest = writer.logits(chunk).argmax(dim=2)
        for tokens, labels in zip(likeliest.tolist(), chunk["labels"].tolist(), strict=True):
            right += sum(a == b for a, b in zip(tokens, labels, strict=True) if b != IGNORED)
            count += sum(b != IGNORED for b in labels)
    assert token_accuracy(writer, chunks) == pytest.approx(100 * right / count)


TOGETHER = [Example(text, target_text(answer, question)) for text, answer, question in MANY]


def test_a_passage_that_is_read_once_for_its_questions_has_the_same_loss_and_gradients():
    results = []
    for questions in (1, 4):
        some = QuestionGeneratorOptions(base=TINY, questions=questions)
        sharing = CausalWriter(some, "cpu")
        batch = sharing.collate([*TOGETHER, *EXAMPLES])
        loss = sharing(**batch)["loss"]
        loss.backward()
        tokens = sum(chunk["input_ids"].numel() for chunk in batch["pairs"]["chunks"])
        accuracy = token_accuracy(sharing, batch["pairs"]["chunks"])
        results.append((loss.item(), accuracy, sharing.model.get_input_embeddings().weight.grad, tokens))
    (loss, accuracy, gradient, alone), (again, same, other, together) = results
    assert again == pytest.approx(loss, rel=1e-5)
    assert same == pytest.approx(accuracy)
    assert torch.allclose(other, gradient, atol=1e-5)
    assert together < alone - len(TEXT_OF_MANY.split())


def test_questions_of_a_passage_are_learned_together_and_a_stopped_training_goes_on(tmp_path, monkeypatch):
    data = write(tmp_path / "data.jsonl", [*MANY, *ASKED])
    some = settings(data, questions=2, epochs=4, batch_size=4, checkpoint_steps=2)
    seen, whole = [], CausalWriter.collate
    with monkeypatch.context() as patch:
        patch.setattr(
            CausalWriter, "collate", lambda self, examples: seen.append(examples) or whole(self, examples)
        )
        train_question_generator(some, Run(tmp_path / "whole", Silent()))
    assert len(seen) == 5  # four passes over five questions, four a step
    assert all(len(step) == 4 for step in seen)
    of_pass = [example.output for step in seen for example in step][:5]
    assert sorted(of_pass) == sorted(example.output for example in [*TOGETHER, *EXAMPLES])
    with monkeypatch.context() as patch:
        stopped_at(patch, 3)
        with pytest.raises(Stopped):
            train_question_generator(some, Run(tmp_path / "stopped", Silent()))
    train_question_generator(some, Run(tmp_path / "stopped", Silent()))
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "stopped"))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_questions_together_need_a_model_that_reads_a_passage_once(data, tmp_path):
    for base, reason in (
        (make_bart(tmp_path / "bart"), "bart is no causal language model"),
        (make_bloom(tmp_path / "bloom"), "bloom cannot read a passage once for several questions"),
    ):
        some = settings(data, questions=2).model_copy(update={"base": str(base)})
        with pytest.raises((InputError, ModelError), match=f"questions 2: .*{reason}"):
            train_question_generator(some, Run(tmp_path / base.name / "out", Silent()))
    assert not (tmp_path / "bart" / "out").exists()


def make_bloom(folder):
    tokenizer = load_tokenizer(TINY)
    config = BloomConfig(vocab_size=len(tokenizer), hidden_size=16, n_layer=2, n_head=2)
    BloomForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_questions_together_are_planned_and_validated(data):
    assert train_question_generator.plan(settings(data, questions=4, validation=data), {}).seconds > 0


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=30), st.integers(1, 7), st.integers(0, 3))
def test_a_pass_has_each_question_once_and_those_of_a_group_side_by_side(passages, most, turn):
    order = QuestionGroups(passages, most, seed=1).order(turn).tolist()
    assert sorted(order) == list(range(len(passages)))
    runs = [len(list(run)) for _, run in groupby(passages[number] for number in order)]
    counts = Counter(passages)
    assert len(runs) <= sum(-(-count // most) for count in counts.values())
    assert min(runs) >= min(count // -(-count // most) for count in counts.values())


def test_passes_put_other_questions_together():
    groups = QuestionGroups(["a"] * 20 + ["b"] * 20, 5, seed=1)
    assert groups.order(0).tolist() == groups.order(0).tolist() != groups.order(1).tolist()
    halves = [number < 20 for number in groups.order(0).tolist()]
    assert all(len(set(halves[first : first + 5])) == 1 for first in range(0, 40, 5))
    assert sum(a != b for a, b in pairwise(halves)) > 1


@pytest.mark.long
def test_two_questions_are_learned_by_heart_and_asked(data, tmp_path):
    some = settings(data, validation=data, eval_steps=30)
    asker = str(train_question_generator(some, Run(tmp_path / "asker", Silent())))
    curve = json.loads((tmp_path / "asker" / "training.json").read_text())["validation"]
    assert curve[0]["token accuracy"] < curve[-1]["token accuracy"] == 100.0
    (tmp_path / "texts.txt").write_text("".join(text + "\n" for text, *_ in ASKED))
    folder = ask(
        AskSettings(inputs=[str(tmp_path / "texts.txt")], model=asker, questions=1, device="cpu"),
        Run(tmp_path / "asked", Silent()),
    )
    questions = {(row["context"], row["written"], row["question"]) for row in folder.table().to_pylist()}
    assert questions == set(ASKED)


def test_a_stopped_training_goes_on_to_the_same_weights(data, tmp_path, monkeypatch):
    some = settings(data, epochs=6, checkpoint_steps=2, attention_dropout=0.1)
    train_question_generator(some, Run(tmp_path / "whole", Silent()))
    with monkeypatch.context() as patch:
        stopped_at(patch, 5)
        with pytest.raises(Stopped):
            train_question_generator(some, Run(tmp_path / "stopped", Silent()))
    assert list((tmp_path / "stopped").glob(".pairsmith*"))
    train_question_generator(some, Run(tmp_path / "stopped", Silent()))
    whole, stopped = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "stopped"))
    assert whole.keys() == stopped.keys()
    assert all(torch.equal(whole[name], stopped[name]) for name in whole)


def test_a_quotation_mark_would_end_an_answer(data, tmp_path):
    assert target_text(" the\nbeach ", "Where?") == f'the beach{QUESTION_CUE}Where?"'
    assert target_text('"the beach"', "Where?") is target_text("the beach", 'Where is "it"?') is None
    quoted = write(tmp_path / "quoted.jsonl", [*ASKED, ("He said it.", "He", 'Who said "it"?')])
    assert list(asker_examples_of(quoted)) == list(asker_examples_of(data)) == EXAMPLES


def test_what_is_read_is_counted(data, tmp_path):
    quoted = write(tmp_path / "quoted.jsonl", [*ASKED, ("He said it.", "He", 'Who said "it"?')])
    both = settings(data).model_copy(update={"data": [quoted, data], "validation": data})
    whole = train_question_generator.read(both, None)
    assert (list(whole.training), list(whole.validation)) == ([*EXAMPLES, *EXAMPLES], EXAMPLES)
    assert (whole.rows, whole.examples, whole.unread) == (5, 4, 0)
    some = train_question_generator.read(both, 1)
    assert list(some.training) == [EXAMPLES[0]] * 2
    assert (some.rows, some.unread) == (2, 3)


def asker_examples_of(path):
    return generator_examples(read_questions(path), QuestionGeneratorOptions(base=TINY))


def test_passages_are_as_long_as_those_that_are_asked_about(data, tmp_path):
    limit = load_generator(AskSettings(inputs=[data], model=TINY, device="cpu")).limit
    assert causal_limit(TINY, load_tokenizer(TINY)) == limit < 256
    text = "Nothing is said here. " * limit + "A man is playing."
    (example,) = asker_examples_of(write(tmp_path / "long.jsonl", [(text, "A man", "Who is playing?")]))
    assert example.input.endswith("here. A man is playing.")
    assert len(example.input) < len(text)


def test_a_model_that_reads_too_little_is_refused(data, tmp_path, tiny_gpt2):
    some = settings(data).model_copy(update={"base": str(tiny_gpt2)})
    with pytest.raises(
        ModelError, match=r"reads 128 tokens, of which the instruction takes .* give a base that reads more"
    ):
        train_question_generator(some, Run(tmp_path / "out", Silent()))


def test_a_tokenizer_that_does_not_say_where_tokens_stand_is_refused(data, tmp_path):
    """CTRL's is of that kind."""
    from transformers import CTRLConfig

    folder = tmp_path / "ctrl"
    CTRLConfig(vocab_size=3).save_pretrained(folder)
    (folder / "vocab.json").write_text(json.dumps({"<unk>": 0, "a</w>": 1, "b</w>": 2}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    (folder / "model.safetensors").touch()
    some = settings(data).model_copy(update={"base": str(folder)})
    with pytest.raises(ModelError, match=r"does not give the positions of tokens .* tokenizer\.json"):
        train_question_generator(some, Run(tmp_path / "out", Silent()))


def test_without_an_answer_in_a_passage_there_is_nothing_to_learn(tmp_path):
    quoted = write(tmp_path / "quoted.jsonl", [("He said it.", "He", 'Who said "it"?')])
    with pytest.raises(
        InputError, match=r"no passage of \d+ tokens holds the answer, or answer or question contain"
    ):
        train_question_generator(settings(quoted), Run(tmp_path / "out", Silent()))


def test_a_plan_without_a_question_to_learn_says_so(tmp_path):
    path = write(tmp_path / "quoted.jsonl", [("A man plays.", "A man", 'Who "plays"?')])
    with pytest.raises(InputError, match="none of the questions can be used for training"):
        train_question_generator.plan(settings(path), {})


def test_a_plan_looks_at_validation_questions_of_an_earlier_step_too(data, monkeypatch):
    looked = []
    whole = question_generator.train_question_generator_on
    monkeypatch.setattr(
        question_generator,
        "train_question_generator_on",
        lambda examples, unseen, *rest, **named: (
            looked.append(len(unseen)) or whole(examples, unseen, *rest, **named)
        ),
    )
    sample = pa.Table.from_pylist([question.columns() for question in read_questions(data)], schema=QUESTION)
    earlier = {"@unseen": Estimate(seconds=1.0, memory=1, disk=1, rows={"train": 2}, sample=sample)}
    planned("train-asker", settings(data, validation="@unseen"), earlier)
    assert max(looked) == 2


def test_both_steps_are_planned(data):
    assert train_question_generator.plan(settings(data), {}).seconds > 0
    estimate = plan_ask(
        AskSettings(inputs=[data], column="context", model=TINY, questions=2, device="cpu"),
        {TINY: Estimate(seconds=1.0, memory=1, disk=1, rows={})},
    )
    assert estimate.rows == {"train": 4}


def test_a_plan_asks_about_texts_that_an_earlier_step_will_make(data):
    chunks = pa.table({"id": ["1", "2"], "document": ["a", "a"], "text": ["A man sings.", "Two dogs run."]})
    before = {
        "@asker": Estimate(seconds=1.0, memory=1, disk=1, rows={}),
        "@chunks": Estimate(seconds=1.0, memory=1, disk=1, rows={"train": 50}, sample=chunks),
    }
    settings = AskSettings(inputs=["@chunks"], model="@asker", questions=2, device="cpu")
    estimate = planned("ask", settings, before, TINY)
    assert estimate.rows == {"train": 100}
    assert {"A man sings.", "Two dogs run."} == set(estimate.sample["context"].to_pylist())
    both = AskSettings(inputs=["@chunks", data], column="context", model="@asker", questions=2, device="cpu")
    renamed = replace(before["@chunks"], sample=chunks.rename_columns(["id", "document", "context"]))
    of_both = planned("ask", both, {**before, "@chunks": renamed}, TINY)
    assert of_both.rows == {"train": 2 * (50 + 2)}
