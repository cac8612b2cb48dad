"""Two searches in place of draws, and askers that are told what to do (Q2)."""

import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pairsmith.core.errors import InputError, ModelError, OtherWorkError, SettingsError
from pairsmith.core.progress import Silent
from pairsmith.data.text.instructed import ANSWER_CUE, CLOSING_QUOTE, INSTRUCTION, QUESTION_CUE
from pairsmith.methods.quip.causal_generator import CausalGenerator
from pairsmith.methods.quip.passages import Passage, diverse
from pairsmith.methods.quip.sequence_generator import SequenceGenerator
from pairsmith.models.language.scripted import ScriptedModel
from pairsmith.models.language.sequences import search_sequences
from pairsmith.models.question_generator import SEPARATOR
from pairsmith.models.text_generator import encode_inputs, input_features, load_text_generator
from pairsmith.runs import Run
from pairsmith.steps.questions.ask import ask, shown_examples
from pairsmith.steps.questions.settings import AskSettings
from pairsmith.steps.training.question_generator import train_question_generator
from pairsmith.steps.training.settings import TrainQuestionGeneratorSettings

sys.path.insert(0, str(Path(__file__).parents[2]))
from tiny_bart import document, make_bart

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def asker(tmp_path_factory):
    """A tiny BART that has learned to ask who it was and what was heard of four texts."""
    return trained(tmp_path_factory.mktemp("searching"), 300)


@pytest.fixture(scope="module")
def beginner(tmp_path_factory):
    """The same, after fewer lessons."""
    return trained(tmp_path_factory.mktemp("beginning"), 60)


def trained(folder, epochs):
    make_bart(folder / "bart")
    rows = []
    for text in map(document, range(4)):
        for place, question in ((1, "What was heard?"), (9, "Who was it?")):
            answer = text.split()[place]
            answers = {"text": [answer], "answer_start": [text.index(answer)]}
            rows.append({"context": text, "question": question, "answers": answers})
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = TrainQuestionGeneratorSettings(
        base=str(folder / "bart"),
        data=[str(folder / "data.jsonl")],
        epochs=epochs,
        batch_size=8,
        learning_rate=[5e-3],
        device="cpu",
        warmup=0,
    )
    return str(train_question_generator(settings, Run(folder / "asker", Silent())))


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("".join(document(number) + "\n" for number in range(4)))
    return str(path)


def test_answers_as_different_as_can_be_are_kept():
    answers = ["the old town", "the town", "", "Ann", "old town hall", "THE OLD TOWN", "Bob and Ann"]
    # Ann has no word of the first; then Bob and Ann (2/4 with Ann), the town and old town hall tie behind it.
    assert diverse(answers, 3)[:2] == [0, 3]
    assert diverse(answers, 99)[0] == 0
    assert sorted(diverse(answers, 99)) == [0, 1, 3, 4, 6]
    assert diverse([], 3) == []


def test_the_likeliest_sequences_are_found(asker):
    loaded = load_text_generator(asker, device="cpu")
    network, end = loaded.model, loaded.tokenizer.eos_token_id
    features = input_features(loaded, encode_inputs(loaded, [document(0)]))
    answer = loaded.tokenizer(f"{document(0).split()[1]}{SEPARATOR}", add_special_tokens=False)["input_ids"]
    begin = [loaded.tokenizer.bos_token_id, *answer]
    with torch.inference_mode():
        states = network.get_encoder()(**features).last_hidden_state

        def search(beams, count):
            return search_sequences(
                network, states, features["attention_mask"], [begin], beams=beams, count=count, max_tokens=30,
                end=end,
            )[0]  # fmt: skip

        def likelihood(tokens):
            """The mean log-probability, by which beams that have ended are compared."""
            whole = torch.tensor([[network.generation_config.decoder_start_token_id, *begin, *tokens]])
            scores = network(**features, decoder_input_ids=whole[:, :-1]).logits[0].log_softmax(dim=1)
            written = scores.gather(1, whole[0, 1:, None])[len(begin) :]
            return float(written.sum()) / len(tokens)

        (greedy,), sequences = search(1, 1), search(4, 3)
        assert [row[-1] for row in sequences] == [end] * 3
        likely = [likelihood(row) for row in sequences]
        assert likely == sorted(likely, reverse=True)
        assert likely[0] >= likelihood(greedy) - 1e-6
        step = network(
            **features,
            decoder_input_ids=torch.tensor([[network.generation_config.decoder_start_token_id, *begin]]),
        )
        assert greedy[0] == int(step.logits[0, -1].argmax())


def test_a_search_goes_on_from_what_is_given(asker):
    loaded = load_text_generator(asker, device="cpu")
    text = document(0)
    features = input_features(loaded, encode_inputs(loaded, [text, text]))
    with torch.inference_mode():
        states = loaded.model.get_encoder()(**features).last_hidden_state
    begins = [
        loaded.tokenizer(f"{text.split()[place]}{SEPARATOR}", add_special_tokens=False)["input_ids"]
        for place in (1, 9)
    ]
    questions = []
    for row, begin in enumerate(begins):
        ((tokens,),) = search_sequences(
            loaded.model,
            states[[row]],
            features["attention_mask"][[row]],
            [[loaded.tokenizer.bos_token_id, *begin]],
            beams=3,
            count=1,
            max_tokens=20,
            end=loaded.tokenizer.eos_token_id,
        )
        questions.append(loaded.tokenizer.decode(tokens, skip_special_tokens=True).strip())
    assert questions == ["What was heard?", "Who was it?"]


def test_two_searches_ask_what_was_learned_each_answer_once(asker, texts, tmp_path):
    some = AskSettings(inputs=[texts], model=asker, questions=2, decoding="beams", beams=4, device="cpu")
    folder = ask(some, Run(tmp_path / "out", Silent()))
    rows = folder.table().to_pylist()
    expected = {(document(n), document(n).split()[1], "What was heard?") for n in range(4)}
    assert len({row["context"] for row in rows} & {text for text, *_ in expected}) == 4
    questions = {(row["context"], row["written"], row["question"]) for row in rows}
    assert len(questions & expected) >= 3
    answers = [(row["context"], row["written"].casefold()) for row in rows]
    assert len(set(answers)) == len(answers)
    small = some.model_copy(update={"batch_size": 1})
    assert ask(small, Run(tmp_path / "small", Silent())).table().to_pylist() == rows


def test_a_beginner_finds_answers_with_many_beams_too(beginner, texts, tmp_path):
    some = AskSettings(inputs=[texts], model=beginner, questions=2, decoding="beams", device="cpu")
    folder = ask(some, Run(tmp_path / "out", Silent()))
    faults = Counter(folder.rejects()["filter"].to_pylist())
    # Each of the 20 answers of a text is chosen or not, or there was none; nothing is lost.
    assert folder.rows + sum(faults.values()) == 4 * some.beams
    assert faults["not chosen"] > 20
    assert folder.rows >= 4


def test_a_question_that_does_not_end_is_unfinished(asker, texts, tmp_path):
    loaded = load_text_generator(asker, device="cpu")
    with torch.no_grad():
        loaded.model.final_logits_bias[0, loaded.tokenizer.eos_token_id] = -100.0
    loaded.model.save_pretrained(tmp_path / "endless")
    loaded.tokenizer.save_pretrained(tmp_path / "endless")
    for decoding in ("beams", "nucleus"):
        some = AskSettings(
            inputs=[texts], model=str(tmp_path / "endless"), questions=1, decoding=decoding, device="cpu"
        )  # fmt: skip
        folder = ask(some, Run(tmp_path / decoding, Silent()))
        assert folder.rows == 0
        assert "no end" in folder.rejects()["filter"].to_pylist()


def test_a_model_that_reads_little_searches_within_it(asker, texts, tmp_path):
    loaded = replace(load_text_generator(asker, device="cpu"), context=34, max_length=34)
    with torch.no_grad():  # its questions have no end
        loaded.model.final_logits_bias[0, loaded.tokenizer.eos_token_id] = -100.0
    some = AskSettings(inputs=[texts], model="small", questions=3, decoding="beams", beams=6, device="cpu")
    longest = []
    generate = loaded.model.generate

    def watched(**given):
        sequences = generate(**given)
        longest.append(sequences.shape[1])
        return sequences

    loaded.model.generate = watched
    SequenceGenerator(loaded, some.options).generate([Passage("p", document(0))])
    assert len(longest) > 1
    assert max(longest) == 34


@pytest.mark.parametrize("decoding", ["nucleus", "beams"])
def test_the_progress_hears_of_every_batch_and_of_all_tries(asker, texts, decoding):
    some = AskSettings(
        inputs=[texts], model="small", questions=2, tries=4, batch_size=2, decoding=decoding, device="cpu"
    )
    heard = []
    passages = [Passage(str(number), document(number)) for number in range(5)]
    SequenceGenerator(load_text_generator(asker, device="cpu"), some.options).generate(passages, heard.append)
    assert sum(heard) == 4 * 5
    assert len(heard) > 2


def test_scores_that_are_no_numbers_are_told_in_a_search(asker, texts, tmp_path):
    loaded = load_text_generator(asker, device="cpu")
    with torch.no_grad():
        loaded.model.model.decoder.layers[0].fc1.bias.fill_(float("nan"))
    some = AskSettings(inputs=[texts], model="broken", questions=2, decoding="beams", device="cpu")
    with pytest.raises(ModelError, match="not numbers"):
        SequenceGenerator(loaded, some.options).generate([Passage("p", document(0))])


def test_a_passage_is_no_longer_than_what_the_model_reads(asker):
    """A model with more positions may have been trained on shorter texts."""
    loaded = replace(load_text_generator(asker, device="cpu"), max_length=34)
    assert loaded.context == 64
    generator = SequenceGenerator(loaded, AskSettings(inputs=["x"], model="small").options)
    assert generator.limit == 32  # two special tokens stand around it


def test_a_model_without_an_end_is_told(asker):
    loaded = load_text_generator(asker, device="cpu")
    loaded.model.generation_config.eos_token_id = None
    with pytest.raises(ModelError, match="which token ends a text"):
        SequenceGenerator(loaded, AskSettings(inputs=["x"], model="endless").options, "endless")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": "cloze", "chat": True}, "--chat has no effect with --model cloze"),
        ({"model": "BART", "examples": "e.jsonl"}, "--examples has no effect with a model with an encoder"),
        ({"model": "cloze", "top_p": 0.5}, "--top-p has no effect with --model cloze"),
        ({"model": "BART", "chat": True}, "--chat has no effect with a model with an encoder and a decoder"),
        ({"model": "BART", "beams": 12}, "--beams .* and --decoding nucleus; leave it out"),
        ({"model": "BART", "decoding": "beams", "tries": 2}, "--tries .* and --decoding beams; leave it out"),
        ({"model": "GPT", "separator": "|"}, "--separator has no effect with a causal language model"),
        ({"model": "GPT", "beams": 12}, "--beams .* and --decoding nucleus; leave it out"),
        ({"model": "cloze", "decoding": "beams"}, "--decoding has no effect with --model cloze"),
        ({"model": "http://host:1/v1#m"}, "ask needs a model that it can load"),
    ],
)
def test_settings_that_would_do_nothing_are_refused(given, message, asker, tiny_gpt2, texts, tmp_path):
    names = {"BART": asker, "GPT": str(tiny_gpt2)}
    some = AskSettings(inputs=[texts], **(given | {"model": names.get(given["model"], given["model"])}))
    with pytest.raises(SettingsError, match=message):
        ask(some, Run(tmp_path / "out", Silent()))
    assert not (tmp_path / "out").exists()


def test_an_encoder_alone_is_no_asker(tiny_bert, texts, tmp_path):
    some = AskSettings(inputs=[texts], model=str(tiny_bert), device="cpu")
    with pytest.raises(ModelError, match=r"an encoder alone cannot write text; .* train-asker --base"):
        ask(some, Run(tmp_path / "out", Silent()))


def test_settings_that_change_nothing_do_not_keep_a_run_from_going_on(asker, texts, tmp_path):
    some = AskSettings(inputs=[texts], model=asker, questions=2, decoding="beams", beams=4, device="cpu")
    first = ask(some, Run(tmp_path / "out", Silent()))
    other = some.model_copy(update={"seed": 9, "batch_size": 3})
    assert ask(other, Run(tmp_path / "out", Silent())).manifest == first.manifest
    half = some.model_copy(update={"dtype": "bfloat16", "batch_size": 3})
    ask(half, Run(tmp_path / "half", Silent()))
    with pytest.raises(OtherWorkError, match="batch_size"):
        ask(half.model_copy(update={"batch_size": 4}), Run(tmp_path / "half", Silent()))


def test_beams_are_as_many_as_answers_and_for_models():
    with pytest.raises(ValueError, match="4 beams cannot find 10 answers"):
        AskSettings(inputs=["x"], model="x", decoding="beams", beams=4)


def test_what_a_decoding_does_not_use_is_no_part_of_the_identity(tiny_gpt2, texts, tmp_path):
    def settings(**rest):
        some = AskSettings(
            inputs=[texts], model=str(tiny_gpt2), questions=1, device="cpu", instruction="{passage}", **rest
        )  # fmt: skip
        return ask(
            some, Run(tmp_path / "-".join(map(str, rest.values())) / "out", Silent())
        ).manifest.settings

    sampled = settings()
    assert sampled["decoding"] == "nucleus"
    assert not {"beams", "separator"} & sampled.keys()
    searched = settings(decoding="beams", beams=3)
    assert (searched["decoding"], searched["beams"]) == ("beams", 3)
    assert not {"top_p", "seed", "tries"} & searched.keys()
    drawn = settings(decoding="beams", beams=4, sample=1)
    assert "seed" in drawn  # it draws the passages


class Chat(ScriptedModel):
    """Chats look otherwise."""

    def encode_chat(self, message, answer):
        return self.encode(f"[{message}] {answer}")


def told(script, context=4096, **rest):
    """An asker whose model goes on as the script says for what stands last; and the texts that it went on from."""
    prompts = []

    def following(prompt, begun):
        text = prompt + begun
        place, said = max((text.rindex(end) + len(end), said) for end, said in script if end in text)
        rest = text[place:]
        if not rest:
            prompts.append(text)
        # Behind an answer the model is told how to go on, whatever it would have said.
        return {said[len(rest)] if len(rest) < len(said) else "?": 1.0}

    model = Chat(following, "".join(map(chr, [*range(1, 127), 0xFFFD])), context=context)
    settings = AskSettings(inputs=["x"], model="told", **({"questions": 1, "tries": 1} | rest))
    options = replace(settings.options, examples=shown_examples(settings))
    return CausalGenerator(model, options), prompts


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ([('Answer: "', 'Ann"'), (f"Ann{QUESTION_CUE}", 'Who was it?"')], ("Ann", "Who was it?", None)),
        ([('Answer: "', ' Ann "'), (f" Ann {QUESTION_CUE}", ' Who? "')], ("Ann", "Who?", None)),
        ([('Answer: "', '"')], ("", "", "empty")),
        ([('Answer: "', "Ann " * 10)], (("Ann " * 8)[:30].strip(), "", "no end")),
        ([('Answer: "', "Ann" + chr(0))], ("Ann", "", "no end")),
        ([('Answer: "', 'Ann\ufffd"')], ("Ann\ufffd", "", "bad character")),
        ([('Answer: "', 'Ann\nBob"')], ("Ann\nBob", "", "line break")),
        ([('Answer: "', 'Ann"'), (QUESTION_CUE, '"')], ("Ann", "", "empty")),
        (
            [('Answer: "', 'Ann"'), (QUESTION_CUE, "Who " * 20)],
            ("Ann", ("Who " * 13)[:50].strip(), "no end"),
        ),
    ],
)
def test_a_model_that_is_told_what_to_do_answers_and_asks(script, expected):
    asker, prompts = told(script)
    passage = Passage("p", "Ann was here.")
    asker.generate([passage])
    rejects = passage.rejects
    answer, question, fault = expected
    if fault is None:
        assert rejects == []
        (question_found,) = passage.questions.values()
        row = question_found.columns()
        assert (row["written"], row["question"]) == (answer, question)
        assert row["answers"] == {"text": ["Ann"], "answer_start": [0]}
    else:
        (reject,) = rejects
        row = json.loads(reject.row)
        assert (reject.filter, row["written"], row["question"]) == (fault, answer, question)
    assert prompts[0] == (
        "Text: Ann was here.\nTask: Take an answer from the text, and write the question to which it is the "
        f"answer.\n{ANSWER_CUE}"
    )


@pytest.fixture
def examples(tmp_path):
    rows = [
        ("Bo ran.", "Bo", 'Who "ran"?'),
        ("Bo ran.", "Bo", "Who ran?"),
        ("It is cold.", "cold", "What is it?"),
    ]
    path = tmp_path / "examples.jsonl"
    path.write_text(
        "".join(
            json.dumps(
                {"context": c, "question": q, "answers": {"text": [a], "answer_start": [c.index(a.strip())]}}
            )
            + "\n"
            for c, a, q in rows
        )
    )
    return str(path)


def test_too_few_examples_are_told_before_the_folder_is_begun(examples, tmp_path):
    (tmp_path / "texts.txt").write_text("Rain fell on the town.\n")
    settings = AskSettings(
        inputs=[str(tmp_path / "texts.txt")], model="pairsmith:tiny", examples=examples, shots=3
    )
    with pytest.raises(InputError, match="fewer than --shots 3"):
        ask(settings, Run(tmp_path / "out", Silent()))
    assert not (tmp_path / "out").exists()


def test_examples_stand_before_the_passage_with_their_whole_output(examples):
    script = [('Answer: "', 'Ann"'), (QUESTION_CUE, 'Who?"')]
    asker, prompts = told(script, examples=examples, shots=2, instruction="Ask of {passage}")
    asker.generate([Passage("p", "Ann was here.")])
    before = (
        'Ask of Bo ran.\nAnswer: "Bo"\nQuestion: "Who ran?"\n\n'
        'Ask of It is cold.\nAnswer: "cold"\nQuestion: "What is it?"\n\n'
    )
    begun = f'{before}Ask of Ann was here.\nAnswer: "'
    assert prompts == [begun, f'{begun}Ann"\nQuestion: "']
    asker, prompts = told(script, examples=examples, shots=2, instruction="Ask of {passage}", chat=True)
    asker.generate([Passage("p", "Ann was here.")])
    assert prompts[0] == f'[{before}Ask of Ann was here.] Answer: "'
    plain, few = (
        told([], max_length=None, context=900, **rest)[0] for rest in ({}, {"examples": examples, "shots": 2})
    )
    assert few.limit < plain.limit - 2 * len("Answer: Question: ")
    with pytest.raises(InputError, match="has 2 questions without quotation marks, fewer than --shots 3"):
        told(script, examples=examples)
    with pytest.raises(
        ModelError, match="with the examples and the output .*; shorten the instruction, or show"
    ):
        told([], examples=examples, shots=2, context=400)


def test_a_chat_is_told_as_a_user_tells():
    asker, prompts = told(
        [('Answer: "', 'Ann"'), (QUESTION_CUE, 'Who?"')], chat=True, instruction="Ask of {passage}!"
    )
    asker.generate([Passage("p", "Ann was here.")])
    assert prompts == [
        '[Ask of Ann was here.!] Answer: "',
        '[Ask of Ann was here.!] Answer: "Ann"\nQuestion: "',
    ]


def test_a_text_is_cut_to_what_the_instruction_leaves():
    asker, _ = told([])
    assert asker.limit == 456
    asker, _ = told([], max_length=None)
    around = len(INSTRUCTION) - len("{passage}") + len(f"\n{ANSWER_CUE}{QUESTION_CUE}")
    assert asker.limit == 4096 - around - 30 - 50
    with pytest.raises(ModelError, match=r"reads 4096 tokens, .* shorten the instruction"):
        told([], instruction="{passage}" + "x" * 4096)
    with pytest.raises(ValueError, match="has no {passage}"):
        told([], instruction="Ask!")


def test_an_instruction_may_name_the_passage_twice():
    asker, prompts = told(
        [('Answer: "', 'Ann"'), (QUESTION_CUE, 'Who?"')], context=190, instruction="{passage} {passage}"
    )
    text = "a" * asker.limit
    asker.generate([Passage("p", text)])
    assert prompts[0] == f"{text} {text}\n{ANSWER_CUE}"
    assert len(prompts) == 2


class Merging(Chat):
    """One token is ``."``, one is ``..."``, one is four line breaks."""

    def encode(self, text):
        return super().encode(text.replace("\n" * 4, "\x01"))

    def decode(self, tokens):
        return super().decode(tokens).replace("\x02", '."').replace("\x03", '..."')

    def tokens_with(self, piece):
        return super().tokens_with(piece) | super().tokens_with("\x02") | super().tokens_with("\x03")


def test_a_quotation_mark_within_a_token_ends_an_answer_that_keeps_what_stands_before(monkeypatch):
    monkeypatch.setattr(f"{__name__}.Chat", Merging)
    asker, texts = told([('Answer: "', "U.S\x02"), (f"U.S.{QUESTION_CUE}", 'Where?"')])
    passage = Passage("p", "In the U.S. it is.")
    asker.generate([passage])
    assert passage.rejects == []
    (question,) = passage.questions.values()
    assert (question.columns()["written"], question.question) == ("U.S.", "Where?")
    assert texts[1].endswith(f"{ANSWER_CUE}U.S.{QUESTION_CUE}")
    # An answer of 30 tokens leaves room for one token more before the question, not for two.
    for ending, faults in (('"', []), ("\x02", []), ("\x03", ["too long"])):
        asker, _ = told([('Answer: "', "U" * 29 + ending), (QUESTION_CUE, 'Where?"')])
        passage = Passage("p", "In it.")
        asker.generate([passage])
        assert [reject.filter for reject in passage.rejects] == faults


def test_a_passage_that_does_not_fit_after_all_is_a_reject(monkeypatch):
    monkeypatch.setattr(f"{__name__}.Chat", Merging)
    # Without a passage its four line breaks are one token.
    asker, texts = told(
        [('Answer: "', 'Ann"'), (QUESTION_CUE, 'Who?"')], context=190, instruction="Ask\n\n{passage}\n\n:"
    )
    fits, long = Passage("f", "a" * (asker.limit - 3)), Passage("l", "a" * asker.limit)
    asker.generate([long, fits])
    (reject,) = long.rejects
    assert (reject.filter, reject.id) == ("too long", "l-0")
    assert (len(fits.questions), fits.rejects) == (1, [])
    assert not any(long.text in text for text in texts)


def test_passages_are_asked_about_some_at_a_time():
    script = [('Answer: "', 'Ann"'), (QUESTION_CUE, 'Who?"')]
    asker, prompts = told(script, batch_size=2, questions=2, tries=1)
    passages = [Passage(str(number), f"Ann was here, {number}.") for number in range(5)]
    heard = []
    asker.generate(passages, heard.append)
    assert heard == [2, 2, 1]  # of five, three batches of about one size
    assert all(len(passage.questions) == 1 for passage in passages)  # the second one is the first again
    kinds = ["Q" if "Question: " in prompt else "A" for prompt in prompts]
    assert "".join(kinds) == "AAAAQQQQ" * 2 + "AAQQ"


def two_answers(prompt, begun):
    """Of a passage about Ann and Bob, answers of 0.5, 0.3 and, with a small letter, 0.2; a question for each."""
    text = prompt + begun
    said, _, question = text.rpartition(ANSWER_CUE)[2].partition(QUESTION_CUE)
    if not said.endswith(CLOSING_QUOTE) and QUESTION_CUE not in text.rpartition(ANSWER_CUE)[2]:
        if not said:
            return {"A": 0.5, "B": 0.3, "a": 0.2}
        name = {"A": "Ann", "B": "Bob", "a": "ann"}[said[0]] + CLOSING_QUOTE
        return {name[len(said)]: 1.0}
    asked = {"Ann": ["Who is she?", "Is it her?"], "Bob": ["Who is he?", "Is it him?"]}[said]
    if not question:
        return {"W": 0.6, "I": 0.4}
    whole = asked[question[0] == "I"] + CLOSING_QUOTE
    return {whole[len(question)]: 1.0}


def test_a_passage_that_is_given_twice_gets_its_questions_twice():
    model = ScriptedModel(two_answers, "".join(map(chr, range(1, 127))))
    settings = AskSettings(inputs=["x"], model="told", questions=2, decoding="beams", beams=4)
    passages = [
        Passage("p", "Ann and Bob met."),
        Passage("q", "Bob saw Ann."),
        Passage("p", "Ann and Bob met."),
    ]
    CausalGenerator(model, settings.options).generate(passages)
    assert passages[0] == passages[2]
    assert passages[0].questions


def test_a_causal_model_searches_for_answers_and_then_for_their_questions():
    model = ScriptedModel(two_answers, "".join(map(chr, range(1, 127))))
    settings = AskSettings(inputs=["x"], model="told", questions=2, decoding="beams", beams=4)
    passages = [Passage("p", "Ann and Bob met."), Passage("q", "Bob saw Ann.")]
    heard = []
    CausalGenerator(model, settings.options).generate(passages, heard.append)
    for passage in passages:
        rows = [question.columns() for question in passage.questions.values()]
        found = [(row["written"], row["question"]) for row in rows]
        assert found == [("Ann", "Who is she?"), ("Bob", "Who is he?")]
        (reject,) = passage.rejects
        assert (reject.filter, json.loads(reject.row)["written"]) == ("not chosen", "ann")
    assert sum(heard) == 2 * settings.tries


def test_what_is_wrong_with_what_a_causal_model_finds_is_told():
    def reject(script, text="Ann was here.", **more):
        passage = Passage("p", text)
        told(script, decoding="beams", **more)[0].generate([passage])
        return passage.rejects[0]

    endless = reject([('Answer: "', "Ann " * 10)])
    assert (endless.filter, "Ann Ann" in endless.row) == ("no end", True)
    endless = reject([('Answer: "', 'Ann"'), (QUESTION_CUE, "Who " * 20)])
    assert (endless.filter, "Who Who" in endless.row) == ("no end", True)
    long = reject([('Answer: "', 'Ann"')], "Ann. " * 60, context=300)
    assert (long.filter, "passage" in long.reason) == ("too long", True)


def test_what_a_causal_model_draws_hangs_on_the_passage_alone(tiny_gpt2, texts, tmp_path):
    def drawn_rows(out, inputs, **rest):
        some = AskSettings(
            inputs=[str(inputs)], model=str(tiny_gpt2), questions=2, tries=1, device="cpu", top_p=1.0,
            instruction="{passage}", **rest,
        )  # fmt: skip
        folder = ask(some, Run(tmp_path / out, Silent()))
        rows = [*folder.table().to_pylist(), *folder.rejects().to_pylist()]
        return {row["id"]: row for row in rows}

    # The tiny model's context is short: pieces of texts.
    every = drawn_rows("every", texts)
    assert every
    one = tmp_path / "one.txt"
    one.write_text(document(2) + "\n")
    alone = drawn_rows("alone", one)
    assert alone
    assert all(every[name] == row for name, row in alone.items() if "where" not in row.get("row", ""))
    assert drawn_rows("other", texts, seed=2) != every
    assert drawn_rows("shards", texts, shard_size=1) == every
