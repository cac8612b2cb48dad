"""Chats, other rules, and how much is begun at once."""

import json

import pytest
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel

from pairsmith.core.errors import ModelError, TaskError
from pairsmith.data.tasks import load_task
from pairsmith.data.tasks.loading import read_task
from pairsmith.methods.dino.method import Hooks, generate_pairs, write
from pairsmith.methods.dino.requests import prompt_tokens, text_requests
from pairsmith.models.language.scripted import ScriptedModel
from pairsmith.models.language.transformers_backend import TransformersModel

CHAT = """\
name: chat
kind: pair
format: chat
labels:
  1:
    instruction: |-
      Write two sentences that mean the same thing.
      Sentence 1: "<X1>"
      Sentence 2: "
  0:
    instruction: |-
      Write two sentences about different topics.
      Sentence 1: "<X1>"
      Sentence 2: "
    counter_labels: [1]
"""


@pytest.fixture
def chat(tmp_path):
    (tmp_path / "chat.yaml").write_text(CHAT)
    return read_task(tmp_path / "chat.yaml")


@pytest.fixture
def model(tiny_gpt2):
    tokenizer = AutoTokenizer.from_pretrained(tiny_gpt2)
    tokenizer.chat_template = (
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    config = GPT2Config(
        vocab_size=len(tokenizer), n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
    )
    return TransformersModel(GPT2LMHeadModel(config), tokenizer, name="made", revision="test")


def test_a_chat_begins_the_models_answer_with_the_last_line(chat, model):
    prompt = chat.instruction("1").replace("<X1>", "It rains.")
    assert model.decode(prompt_tokens(chat, model, prompt)) == (
        '<user>Write two sentences that mean the same thing.\nSentence 1: "It rains."</user><assistant>Sentence 2: "'
    )


def test_a_chat_is_written(chat, model):
    written = generate_pairs(chat, model, ["It rains."])
    assert len(written.rows) + len(written.rejects) > 0


def test_a_model_that_is_not_made_for_chats_is_named(chat, model):
    model._tokenizer.chat_template = None
    with pytest.raises(ModelError, match="no chat template"):
        generate_pairs(chat, model, ["It rains."])


def test_a_template_that_fails_is_named(chat, model):
    model._tokenizer.chat_template = "{{ raise_exception('no users here') }}"
    with pytest.raises(ModelError, match="chat template fails: no users here"):
        generate_pairs(chat, model, ["It rains."])


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("      Write two sentences about different topics.\n      Sentence 1: \"<X1>\"\n", "", "two lines"),
        ('about different topics.\n      Sentence 1: "<X1>"\n      Sentence 2: "',
         'about different topics.\n      "<X1>" is not like "', "is in the last line"),
        ("format: chat", "format: talk", "format"),
    ],
)  # fmt: skip
def test_chats_with_faults(tmp_path, old, new, text):
    assert old in CHAT
    (tmp_path / "chat.yaml").write_text(CHAT.replace(old, new))
    with pytest.raises(TaskError, match=text):
        read_task(tmp_path / "chat.yaml")


def scripted():
    def following(prompt, text):
        if len(text) == 16:
            return {'"': 1.0}
        return {"a": 0.6, "b": 0.2, "c": 0.2} if "same" in prompt else {"a": 0.5, "b": 0.25, "c": 0.25}

    alphabet = "".join(
        sorted({c for label in ("1", "0.5", "0") for c in load_task("sts").instruction(label)})
    )
    return ScriptedModel(following, "".join(sorted({*alphabet, *"abc", '"'})))


@pytest.mark.parametrize("rule", ["guidance", "contrast", "self-debiasing"])
def test_each_rule_writes(rule):
    task = load_task("sts")
    written = generate_pairs(
        task, scripted(), ["a b"], decoding=task.decoding.model_copy(update={"rule": rule})
    )
    assert len(written.rows) == 6
    assert written.rejects == []


@pytest.mark.long
def test_a_rule_of_ones_own(monkeypatch):
    def only_b(p_main, p_counter):
        del p_counter
        result = p_main.clone().zero_()
        result[:, scripted().encode("b")] = p_main[:, scripted().encode("b")] + 1e-9
        result[:, scripted().encode('"')] = p_main[:, scripted().encode('"')]
        return result / result.sum(dim=1, keepdim=True)

    monkeypatch.setattr("pairsmith.models.language.combine.only_b", only_b, raising=False)
    for rule in (only_b, "pairsmith.models.language.combine.only_b"):
        written = generate_pairs(load_task("sts"), scripted(), ["a b"], rule=rule)
        steered = [row for row in written.rows if row.score < 1]
        assert [(row.score, row.sentence2) for row in steered] == [(0.5, "b" * 16), (0.0, "b" * 16)]
        assert {(reject.filter, json.loads(reject.row)["sentence2"]) for reject in written.rejects} == {
            ("duplicate", "b" * 16)
        }
        assert len(written.rejects) == 8


def test_no_more_is_begun_than_there_is_room_for():
    """The groups of a text task all have computed prompts from the second on."""
    task = load_task("movie-reviews")
    ended = []
    decoding = task.decoding.model_copy(update={"decay": 0.0})
    written = write(
        task,
        scripted_reviews(),
        text_requests(task, range(500)),
        decoding,
        seed=1,
        rows=8,
        hooks=Hooks(on_done=ended.append, enough=lambda begun: begun > 2 and len(ended) >= 10),
    )
    assert 10 <= written.requests < 60


def scripted_reviews():
    task = load_task("movie-reviews")
    letters = {c for label in task.label_names for c in task.instruction(label)}
    return ScriptedModel(
        lambda prompt, text: {'"' if text else "a": 1.0}, "".join(sorted(letters | set('a"')))
    )
