import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from pydantic import ValidationError

from pairsmith.core.errors import FolderError, InputError, ModelError, SettingsError
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.tagged import TaggedSentence, as_bio, read_tagged
from pairsmith.models.span_encoder import load_span_encoder
from pairsmith.models.span_heads import SpanHeads, save_heads
from pairsmith.models.span_reader import question_vectors
from pairsmith.models.token_vectors import load_token_encoder
from pairsmith.runs import Run
from pairsmith.steps.evaluate import tagging
from pairsmith.steps.evaluate.ner import (
    QUESTIONS,
    drawn,
    entity_f1,
    evaluate_ner,
    few_and_test,
    questions_of,
)
from pairsmith.steps.evaluate.plan import plan_evaluate_ner
from pairsmith.steps.evaluate.tagging import Tagger, Words, _question_rows, tag_after_training
from pairsmith.steps.evaluate.transfer_settings import EvaluateNerSettings

pytestmark = pytest.mark.slow

SENTENCES = [
    TaggedSentence(("A", "man", "is", "playing", "."), ("B-PER", "I-PER", "O", "O", "O")),
    TaggedSentence(
        ("Two", "dogs", "run", "on", "the", "beach", "."), ("O", "O", "O", "O", "B-LOC", "I-LOC", "O")
    ),
]


@pytest.fixture(scope="module")
def student(tiny_bert, tmp_path_factory):
    copy = shutil.copytree(tiny_bert, tmp_path_factory.mktemp("students") / "student")
    save_heads(SpanHeads(16, "questions", seed=4), copy)
    return str(copy)


def write(folder, name):
    (folder / f"{name}.words").write_text("".join(" ".join(sentence.words) + "\n" for sentence in SENTENCES))
    (folder / f"{name}.ner").write_text("".join(" ".join(sentence.tags) + "\n" for sentence in SENTENCES))


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "few"
    folder.mkdir()
    for name in ("few_shot_5_0", "few_shot_5_1", "test"):
        write(folder, name)
    return str(folder)


def settings(model, data="", **rest):
    fast = {"epochs": 120, "learning_rate": 1e-2, "splits": [0, 1], "device": "cpu"}
    return EvaluateNerSettings(model=model, data=data, **(fast | rest))


def test_two_sentences_are_learned_by_heart_from_either_start(student, data, tmp_path):
    results = evaluate_ner(settings(student, data), Run(tmp_path / "out", Silent()))
    for start in ("random", "questions"):
        assert results[start] == {"f1": 100.0, "error": 0.0, "splits": {"0": 100.0, "1": 100.0}}
    assert results["count"] == 2
    lines = [json.loads(line) for line in (tmp_path / "out" / "predictions.jsonl").read_text().splitlines()]
    assert [tuple(line["predicted"]) for line in lines] == [sentence.tags for sentence in SENTENCES]
    assert evaluate_ner(settings(student, data), Run(tmp_path / "out", Silent())) == results


def test_corrected_tags_are_another_evaluation(student, data, tmp_path):
    some = settings(student, data, epochs=1)
    evaluate_ner(some, Run(tmp_path / "out", Silent()))
    tags = Path(data, "test.ner")
    tags.write_text(tags.read_text().replace("B-PER", "B-LOC"))
    with pytest.raises(FolderError, match="test, tags"):
        evaluate_ner(some, Run(tmp_path / "out", Silent()))


def test_a_training_that_diverged_has_no_figure(tiny_bert):
    tagger = Tagger(load_token_encoder(str(tiny_bert), device="cpu"), torch.full((2, 16), torch.nan))
    with pytest.raises(ModelError, match="try a smaller --learning-rate"):
        tagging._tag(tagger, SENTENCES, ["O", "B-PER"], lambda _: None)


def test_the_progress_counts_what_is_learned_and_what_is_tagged(student, data, tmp_path, capsys):
    evaluate_ner(settings(student, data, epochs=3), Run(tmp_path / "out", Progress()))
    whole = 2 * 2 * (3 * 2 + 2)  # starts, splits, epochs of two sentences and two that are tagged
    assert f"learn and tag: {whole}/{whole} sentences · 100 %" in capsys.readouterr().err


def test_rows_begin_as_the_start_vectors_of_their_questions(student):
    tags = ["O", "B-PER", "I-PER", "B-LOC"]
    some = settings(student)
    questions = questions_of(some, SENTENCES)
    assert questions == {"O": QUESTIONS["O"], "PER": "Who is a person ?", "LOC": "What is a location ?"}
    _, rows = _question_rows(some, tags, questions)
    encoder = load_span_encoder(student, device="cpu")
    starts, _ = question_vectors(encoder, ["Who is a person ?"])
    expected = (starts[0] / starts[0].norm()).detach()
    assert torch.allclose(rows[1], expected, atol=1e-6)
    assert torch.equal(rows[1], rows[2])
    assert rows.norm(dim=1).tolist() == pytest.approx([1.0] * 4)


def test_steps_too_small_for_two_bytes_are_not_lost(tiny_bert, monkeypatch):
    taggers = []
    monkeypatch.setattr(tagging, "_tag", lambda tagger, *_: taggers.append(tagger))
    some = settings(str(tiny_bert), dtype="bfloat16", learning_rate=1e-6, epochs=3)
    tag_after_training(some, SENTENCES, SENTENCES, None, seed=1)
    before = load_token_encoder(str(tiny_bert), device="cpu").model.encoder.state_dict()
    for name, weight in taggers[0].model.encoder.state_dict().items():
        moved = (weight - before[name]).abs()
        assert 0 < moved.max() < 1e-5, name


def test_sums_in_numbers_of_two_bytes_are_of_the_weights_as_they_are(tiny_bert, monkeypatch):
    calls = []

    def tag(tagger, sentences, *_):
        words = Words.of(tagger.encoder, sentences)
        calls.append((tagger, words, tagger(words)))

    monkeypatch.setattr(tagging, "_tag", tag)
    tag_after_training(
        settings(str(tiny_bert), dtype="bfloat16", epochs=9), SENTENCES, SENTENCES, None, seed=1
    )
    ((tagger, words, scores),) = calls
    assert scores.dtype == torch.bfloat16
    assert torch.equal(scores, tagger(words))  # when nothing is kept any more of what was converted


def test_the_rate_falls_in_equal_steps_and_gradients_are_cut_to_a_norm_of_1(tiny_bert, monkeypatch):
    """As Hugging Face's trainer does by default: batches of 8, no warm-up, and no weight decay."""
    sentences = SENTENCES * 5  # two batches an epoch, of 8 and of 2
    rates, norms, decays = [], [], []
    whole = torch.optim.AdamW.step

    def step(self, *args, **named):
        (group,) = self.param_groups
        rates.append(group["lr"])
        decays.append(group["weight_decay"])
        squares = [weight.grad.square().sum() for weight in group["params"] if weight.grad is not None]
        norms.append(float(torch.stack(squares).sum().sqrt()))
        return whole(self, *args, **named)

    monkeypatch.setattr(torch.optim.AdamW, "step", step)
    given = EvaluateNerSettings(model=str(tiny_bert), data="", epochs=3, device="cpu")
    large = 100 * torch.randn(5, 16, generator=torch.Generator().manual_seed(0))
    tagger = Tagger(load_token_encoder(str(tiny_bert), device="cpu"), large)
    tags = ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
    tagging._train(tagger, sentences, tags, given, 0, lambda _: None)
    assert rates == pytest.approx([2e-5 * (6 - step) / 6 for step in range(6)], rel=1e-12)
    assert norms == pytest.approx([1.0] * 6, rel=1e-4)
    assert decays == [0.0] * 6


def test_dropout_before_the_output_layer_is_off_when_tagging(tiny_bert):
    tagger = Tagger(load_token_encoder(str(tiny_bert), device="cpu"), torch.eye(16)[:2])
    words = Words.of(tagger.encoder, SENTENCES)
    assert tagger.dropout.p == 0.1
    tagger.model.eval()
    assert not torch.equal(tagger(words), tagger(words))
    tagger.eval()
    assert torch.equal(tagger(words), tagger(words))


def test_each_split_has_a_seed_of_its_own_and_both_tags_of_a_type(student, data, tmp_path, monkeypatch):
    seen = []

    def tag(settings, train, test, questions, *, seed, advance):
        seen.append(seed)
        return [list(sentence.tags) for sentence in test]

    monkeypatch.setattr(tagging, "tag_after_training", tag)
    evaluate_ner(settings(student, data, start=["random"]), Run(tmp_path / "out", Silent()))
    assert seen == [0, 1]
    monkeypatch.undo()
    taggers = []
    monkeypatch.setattr(tagging, "_tag", lambda tagger, _, tags, *__: taggers.append((tagger, tags)))
    begun = [TaggedSentence(("Ann", "ran"), ("B-PER", "O"))]
    tag_after_training(settings(student, epochs=1), begun, begun, None, seed=0)
    tag_after_training(settings(student, epochs=1), begun, begun, None, seed=1)
    assert [tags for _, tags in taggers] == [["O", "B-PER", "I-PER"]] * 2
    assert not torch.equal(taggers[0][0].rows, taggers[1][0].rows)


def test_all_sentences_may_be_learned_from(student, tmp_path):
    files = [conll(tmp_path / f"{name}.conll", SENTENCES * 3) for name in ("test", "train")]
    some = settings(student, files[0], train=files[1], whole=True)
    few, test = few_and_test(some)
    assert [len(split) for split in few] == [len(test)] * 2 == [6, 6]
    with pytest.raises(ValidationError, match="shots does nothing with whole"):
        settings(student, files[0], train=files[1], whole=True, shots=2)
    with pytest.raises(ValidationError, match="whole does nothing without train"):
        settings(student, files[0], whole=True)


def test_the_first_word_has_the_tokens_that_it_has_behind_another(tiny_gpt2, tiny_bert):
    for model, before in ((tiny_gpt2, " "), (tiny_bert, "")):
        encoder = load_token_encoder(str(model), device="cpu")
        if encoder.tokenizer.pad_token is None:
            encoder.tokenizer.pad_token = encoder.tokenizer.eos_token
        sentence = TaggedSentence(("dogs", "and", "dogs"), ("O",) * 3)
        words = Words.of(encoder, [sentence])
        ids = words.features["input_ids"][0]
        assert ids[words.token[0]] == ids[words.token[2]]
        assert tagging._before_words(encoder) == before


def test_a_word_is_told_by_its_first_token(tiny_bert):
    encoder = load_token_encoder(tiny_bert.as_posix(), device="cpu")
    words = Words.of(encoder, SENTENCES)
    assert len(words.word) == 12
    tagger = Tagger(encoder, torch.eye(16)[:2]).eval()
    scores = tagger(words)
    states = encoder.model(**encoder.features(["Two dogs run on the beach ."])).last_hidden_state[0]
    place = int(((words.sentence == 1) & (words.word == 1)).nonzero())
    offsets = encoder.text_tokens(["Two dogs run on the beach ."])[0]
    token = int(offsets.numbers[[begin for begin, _ in offsets.offsets.tolist()].index(4)])
    assert scores[place].tolist() == pytest.approx(states[token, :2].tolist(), abs=1e-5)


@pytest.mark.parametrize("model", ["tiny_bert", "tiny_gpt2"])  # GPT-2's tokens hold the space before a word
def test_a_word_without_tokens_does_not_take_those_of_the_next(model, request):
    encoder = load_token_encoder(str(request.getfixturevalue(model)), device="cpu")
    if encoder.tokenizer.pad_token is None:
        encoder.tokenizer.pad_token = encoder.tokenizer.eos_token
    nothing = "\u200b" if model == "tiny_bert" else ""
    sentence = TaggedSentence(("A", nothing, "man", nothing), ("O", "O", "B-PER", "O"))
    words = Words.of(encoder, [sentence])
    assert words.word.tolist() == [0, 2]
    text = tagging._before_words(encoder) + " ".join(sentence.words)
    (tokens,) = encoder.text_tokens([text])
    place = {int(number): begin for number, (begin, _) in zip(tokens.numbers, tokens.offsets, strict=True)}
    assert [text[place[int(token)] :].lstrip()[0] for token in words.token] == ["A", "m"]


def test_words_beyond_the_longest_sentence_are_no_names(tiny_bert):
    long = TaggedSentence(("man",) * 40, ("B-PER",) * 40)
    (tags,) = tag_after_training(
        settings(str(tiny_bert), max_length=8, epochs=20), [long], [long], None, seed=1
    )
    assert tags[:6] == ["B-PER"] * 6
    assert tags[6:] == ["O"] * 34


def test_types_without_a_question_are_told_and_can_get_one(student, data, tmp_path):
    some = [TaggedSentence(("Jazz",), ("B-genre",))]
    with pytest.raises(
        SettingsError, match="no question for the type 'genre'; write one in --questions FILE"
    ):
        questions_of(settings(student), some)
    assert questions_of(settings(student, start=["random"]), some)["genre"] == ""
    path = tmp_path / "questions.yaml"
    path.write_text("genre: What is a genre ?\nperson-actor: Who is an actor ?\n")
    actor = [TaggedSentence(("Gabin",), ("B-Person-Actor",))]
    assert questions_of(settings(student, questions=str(path)), actor)["Person-Actor"] == "Who is an actor ?"
    assert questions_of(settings(student, questions=str(path)), some)["genre"] == "What is a genre ?"
    path.write_text("genre: [1]\n")
    with pytest.raises(SettingsError, match="as text"):
        questions_of(settings(student, questions=str(path)), some)
    path.write_text("genre: What is a genre ?\ngenre: Which genre ?\n")
    with pytest.raises(SettingsError, match=r"is given twice \(lines 1 and 2\)"):
        questions_of(settings(student, questions=str(path)), some)


def test_a_model_without_heads_begins_at_random_only(tiny_bert, data, tmp_path):
    with pytest.raises(ModelError, match="there are none"):
        evaluate_ner(settings(str(tiny_bert), data, epochs=1), Run(tmp_path / "out", Silent()))
    results = evaluate_ner(
        settings(str(tiny_bert), data, epochs=1, start=["random"]), Run(tmp_path / "random", Silent())
    )
    assert "questions" not in results


def conll(path, sentences):
    lines = (
        "".join(f"{word}\t{tag}\n" for word, tag in zip(s.words, s.tags, strict=True)) for s in sentences
    )
    path.write_text("\n".join(lines))
    return str(path)


@pytest.mark.long
def test_sentences_are_drawn_from_others_that_are_learned_by_heart(student, tmp_path):
    files = [conll(tmp_path / f"{name}.conll", SENTENCES) for name in ("test", "train")]
    some = settings(student, files[0], train=files[1], shots=1)
    results = evaluate_ner(some, Run(tmp_path / "out", Silent()))
    assert results["questions"] == {"f1": 100.0, "error": 0.0, "splits": {"0": 100.0, "1": 100.0}}
    assert results["count"] == 2
    assert set(results["about"]["inputs"]) == {"train", "test"}
    assert evaluate_ner(some, Run(tmp_path / "out", Silent())) == results
    conll(Path(files[1]), SENTENCES * 2)
    with pytest.raises(FolderError, match="input train"):
        evaluate_ner(some, Run(tmp_path / "out", Silent()))
    assert plan_evaluate_ner(some, {}).seconds > 0


def test_of_each_type_as_many_sentences_are_drawn_each_once():
    both = TaggedSentence(("Ann", "Rome"), ("B-PER", "B-LOC"))
    others = [TaggedSentence((str(n),), (f"B-{kind}",)) for kind in ("LOC", "PER", "ORG") for n in range(6)]
    nothing = [TaggedSentence(("and",), ("O",))] * 9
    every = [both, *others, *nothing]
    seen = set()
    for seed in range(5):
        sentences = drawn(every, 3, seed)
        kinds = [{tag[2:] for tag in sentence.tags} for sentence in sentences]
        assert [min(sum(name in types for types in kinds), 3) for name in ("LOC", "ORG", "PER")] == [3] * 3
        assert len(sentences) == 9 == len({id(sentence) for sentence in sentences})
        assert sentences == drawn(every, 3, seed)
        seen.add(tuple(sentence.words for sentence in sentences))
    assert len(seen) > 1
    with pytest.raises(InputError, match="--train has 6 sentences with the type ORG .* 7 are needed"):
        drawn([*every, both], 7, 0)
    with pytest.raises(InputError, match="no sentence with an entity"):
        drawn(nothing, 1, 0)


def test_rows_of_tokens_and_tags(tmp_path):
    rows = [{"tokens": sentence.words, "ner_tags": sentence.tags} for sentence in SENTENCES]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"tokens": [], "ner_tags": []}]))
    assert read_tagged(path) == SENTENCES
    path.write_text(json.dumps({"words": ["A", "man"], "tags": ["I-PER", "I-PER"]}) + "\n")
    assert read_tagged(path) == [TaggedSentence(("A", "man"), ("B-PER", "I-PER"))]
    for row, message in (
        ({"words": ["A"], "tags": [1]}, "rows.jsonl:1: the tag '1' is not a BIO tag"),
        ({"words": "A man", "tags": ["O"]}, "have to be lists"),
        ({"words": ["A"], "tags": ["O", "O"]}, "1 words and 2 tags"),
        ({"text": "A man"}, "none of the columns tokens, words"),
        ({"tokens": ["A"]}, "columns ner_tags, tags, ner; rename the column that holds them to one of these"),
    ):
        path.write_text(json.dumps(row) + "\n")
        with pytest.raises(InputError, match=message):
            read_tagged(path)


def test_a_hub_data_set_names_what_its_numbers_stand_for(student, tmp_path, monkeypatch):
    import datasets

    names = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
    rows = datasets.Dataset.from_dict(
        {
            "tokens": [list(sentence.words) for sentence in SENTENCES],
            "ner_tags": [[names.index(tag) for tag in sentence.tags] for sentence in SENTENCES],
        },
        features=datasets.Features(
            {
                "tokens": datasets.List(datasets.Value("string")),
                "ner_tags": datasets.List(datasets.ClassLabel(names=names)),
            }
        ),
    )
    requests = []

    def load(*named, split, streaming):
        requests.append((*named, split))
        return rows.to_iterable_dataset() if streaming else rows

    monkeypatch.setattr(datasets, "load_dataset", load)
    assert read_tagged("org/names:test") == SENTENCES
    assert set(requests) == {("org/names", "test")}
    assert read_tagged("org/names/small:test") == SENTENCES
    assert requests[-1] == ("org/names", "small", "test")
    results = evaluate_ner(
        settings(student, "org/names:test", train="org/names", shots=1, start=["random"]),
        Run(tmp_path / "out", Silent()),
    )
    assert results["random"]["f1"] == 100.0


def test_a_folder_that_is_called_like_a_hub_data_set_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = pa.table({"tokens": [["Ann", "sings"]], "ner_tags": [["B-PER", "O"]]})
    (tmp_path / "my" / "names" / "data").mkdir(parents=True)
    pq.write_table(rows, tmp_path / "my" / "names" / "data" / "train-00000.parquet")
    monkeypatch.setattr("datasets.load_dataset", lambda *_, **__: pytest.fail("the Hub was asked"))
    sentences = [TaggedSentence(("Ann", "sings"), ("B-PER", "O"))]
    assert read_tagged("my/names") == read_tagged("my/names:train") == sentences


def test_a_file_to_test_on_wants_one_to_learn_from(student, tmp_path):
    for source in (conll(tmp_path / "test.conll", SENTENCES), str(tmp_path)):
        with pytest.raises(InputError, match=r"give tagged sentences to learn from as --train"):
            evaluate_ner(settings(student, source), Run(tmp_path / "out", Silent()))


def test_missing_splits_are_named(student, data, tmp_path):
    with pytest.raises(InputError, match="few_shot_5_7.words does not exist"):
        evaluate_ner(settings(student, data, splits=[7]), Run(tmp_path / "out", Silent()))


def test_f1_counts_whole_entities_of_the_right_type():
    gold = [["B-PER", "I-PER", "O", "B-LOC"]]
    assert entity_f1(gold, gold) == 100.0
    # One of two found, and one found of two: half a name is none.
    assert entity_f1(gold, [["B-PER", "O", "O", "B-LOC"]]) == 50.0
    assert entity_f1(gold, [["O", "O", "O", "O"]]) == 0.0


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("I-PER I-PER O I-LOC", "B-PER I-PER O B-LOC"),
        ("I-PER I-LOC", "B-PER B-LOC"),
        ("I-PER B-PER I-PER", "B-PER B-PER I-PER"),
        ("O O", "O O"),
    ],
)
def test_entities_of_iob1_begin_with_b(tags, expected):
    assert as_bio(tags.split()) == expected.split()


def test_the_form_of_conll(tmp_path):
    path = tmp_path / "eng.testa"
    path.write_text("-DOCSTART- -X- O O\n\nA DT B-NP I-PER\nman NN I-NP I-PER\n\nruns\tO\n")
    assert read_tagged(path) == [
        TaggedSentence(("A", "man"), ("B-PER", "I-PER")),
        TaggedSentence(("runs",), ("O",)),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A I-PER\nman person\n", "eng:1: the tag 'person' is not a BIO tag"),
        ("A I-PER\nman\n", "eng:2: a word and its tag"),
        ("\n", "no tagged sentences"),
    ],
)
def test_faults_are_told_with_their_place(tmp_path, text, message):
    (tmp_path / "eng").write_text(text)
    with pytest.raises(InputError, match=message):
        read_tagged(tmp_path / "eng")


def test_words_and_tags_have_to_be_as_many(data, tmp_path):
    words = tmp_path / "few" / "test.words"
    words.write_text("A man\n")
    with pytest.raises(InputError, match="1 lines, and test.ner has 2"):
        read_tagged(words)
    words.write_text("A man\nTwo dogs\n")
    with pytest.raises(InputError, match="test.words:1: 2 words and 5 tags"):
        read_tagged(words)
    with pytest.raises(InputError, match="does not exist"):
        read_tagged(tmp_path / "none.words")


def test_a_plan_trains_for_some_epochs(student, data, tiny_bert):
    estimate = plan_evaluate_ner(settings(student, data), {})
    assert estimate.seconds > 0
    assert (
        plan_evaluate_ner(settings("@later", data), {"@later": estimate}, str(tiny_bert)).disk
        == estimate.disk
    )
