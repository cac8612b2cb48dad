"""Taggers: saved and loaded, beside transformers' own pipeline, and on texts as people write them."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from tests.reader import make_roberta
from tests.tagged_sentences import SENTENCES, make_student
from transformers import (
    AutoModel,
    AutoModelForTokenClassification,
    AutoTokenizer,
    ModernBertConfig,
    pipeline,
)

import pairsmith
from pairsmith.core.errors import InputError, ModelError, SettingsError
from pairsmith.data.tagged import TaggedSentence
from pairsmith.methods.quip.names import train_on_sentences
from pairsmith.methods.quip.tagger_options import TaggerOptions
from pairsmith.models.tagger import NamedEntity, TaggedText, Words, check_for_tagger, load_tagger, tagger_of
from pairsmith.models.token_vectors import load_token_encoder

pytestmark = pytest.mark.slow

FAST = TaggerOptions(epochs=60, learning_rate=1e-2)
WORDS = [sentence.words for sentence in SENTENCES]


@pytest.fixture(scope="module")
def trained(tiny_bert):
    """A network that has learned the two sentences, and the tagger of it."""
    network = train_on_sentences(
        load_token_encoder(str(tiny_bert), device="cpu"), SENTENCES, None, FAST, seed=1
    )
    return network, tagger_of(network.encoder, network.tags, network.rows.detach())


def test_a_tagger_has_the_scores_of_the_network_that_was_trained(trained, tmp_path):
    network, tagger = trained
    words = Words.of(tagger, WORDS)
    with torch.inference_mode():
        expected = network(words)
        logits = tagger.model(**words.features).logits[words.sentence, words.token]
    assert torch.allclose(logits, expected, atol=1e-5)
    tagger.save(tmp_path)
    again = load_tagger(tmp_path, device="cpu")
    assert again.tags == ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
    assert again.tag_words(WORDS) == [list(sentence.tags) for sentence in SENTENCES]


def test_transformers_own_pipeline_opens_it_and_finds_the_same(trained, tmp_path, caplog):
    trained[1].save(tmp_path)
    model, report = AutoModelForTokenClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["unexpected_keys"]
    assert not report["missing_keys"]
    texts = ["A man is playing .", "Two dogs run on the beach ."]
    find = pipeline(
        "token-classification", model=model, tokenizer=AutoTokenizer.from_pretrained(tmp_path),
        aggregation_strategy="first", device="cpu",
    )  # fmt: skip
    theirs = [[(found["entity_group"], found["start"], found["end"]) for found in row] for row in find(texts)]
    ours = load_tagger(tmp_path, device="cpu").find_entities(texts)
    assert [[(entity.type, entity.start, entity.end) for entity in row] for row in ours] == theirs
    assert ours == [[NamedEntity("A man", "PER", 0, 5)], [NamedEntity("the beach", "LOC", 16, 25)]]


@pytest.mark.parametrize("model", ["tiny_bert", "tiny_gpt2", "roberta", "pairsmith:tiny"])
def test_models_of_several_types_are_saved_and_tag_as_before(model, request, tmp_path):
    if model == "roberta":
        model = str(make_roberta(tmp_path / "roberta"))
    elif not model.startswith("pairsmith"):
        model = str(request.getfixturevalue(model))
    encoder = load_token_encoder(model, device="cpu", max_length=100)
    network = train_on_sentences(
        encoder, SENTENCES, None, TaggerOptions(epochs=30, learning_rate=3e-3), seed=1
    )
    words = Words.of(encoder, WORDS)
    with torch.inference_mode():
        expected = network(words)
    tagger_of(encoder, network.tags, network.rows.detach()).save(tmp_path / "tagger")
    again = load_tagger(tmp_path / "tagger", device="cpu")
    with torch.inference_mode():
        logits = again.model(**words.features).logits[words.sentence, words.token]
    assert torch.allclose(logits, expected, atol=1e-4)


def test_a_language_model_that_attends_both_ways_still_does_when_it_is_loaded(tmp_path):
    encoder = load_token_encoder("pairsmith:tiny", device="cpu", bidirectional=True, max_length=100)
    words = Words.of(encoder, WORDS)
    rows = torch.randn(3, int(encoder.model.config.hidden_size), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        states = encoder.model(**words.features).last_hidden_state[words.sentence, words.token]
    tagger_of(encoder, ["O", "B-X", "I-X"], rows).save(tmp_path)
    again = load_tagger(tmp_path, device="cpu")
    with torch.inference_mode():
        logits = again.model(**words.features).logits[words.sentence, words.token]
    assert torch.allclose(logits, states @ rows.T, atol=1e-4)


def test_texts_become_sentences_and_words_with_their_places(trained):
    tagger = trained[1]
    text = "A man  is playing.\n\n\tTwo dogs run on the beach. "
    tagged, blank = tagger.tag_texts([text, " \n"])
    assert blank == TaggedText(" \n", (), ())
    assert tagged.words == [*WORDS[0], *WORDS[1]]
    assert list(tagged.tags) == [*SENTENCES[0].tags, *SENTENCES[1].tags]
    assert [text[entity.start : entity.end] for entity in tagged.entities] == ["A man", "the beach"]
    assert tagger.find_entities([]) == []
    with pytest.raises(InputError, match="not a single text"):
        tagger.find_entities(text)


def test_a_sentence_that_is_too_long_is_cut_and_all_words_are_tagged(trained, tmp_path):
    trained[1].save(tmp_path)
    tagger = load_tagger(tmp_path, device="cpu", max_length=12)
    text = " ".join(["A man is playing"] * 20)
    (tagged,) = tagger.tag_texts([text])
    assert len(tagged.words) == 80
    assert all(before[1] < after[0] for before, after in pairwise(tagged.spans))
    assert max(place for place, tag in enumerate(tagged.tags) if tag != "O") >= 70


def test_entities_of_tags():
    text = "ab cd ef"
    spans = ((0, 2), (3, 5), (6, 8))

    def entities(*tags):
        return [(entity.text, entity.type) for entity in TaggedText(text, spans, tags).entities]

    assert entities("B-X", "I-X", "B-X") == [("ab cd", "X"), ("ef", "X")]
    assert entities("O", "B-X", "B-Y") == [("cd", "X"), ("ef", "Y")]
    assert entities("B-X", "I-X", "I-X") == [("ab cd ef", "X")]


def test_what_is_no_tagger_is_refused(tiny_bert, trained, tmp_path):
    with pytest.raises(ModelError, match="has no head for token classification"):
        load_tagger(str(tiny_bert))
    trained[1].save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["id2label"] = {name: f"LABEL_{name}" for name in config["id2label"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(
        ModelError, match="labels are LABEL_0, LABEL_1, .* but BIO tags are needed, such as O"
    ):
        load_tagger(tmp_path)


@pytest.mark.parametrize("length", [0, 2, 7, 8.5])
def test_a_length_without_room_for_words_is_refused(tiny_bert, length):
    with pytest.raises(SettingsError, match="max_length must be (at least 8, not|a whole number, not)"):
        load_tagger(tiny_bert, device="cpu", max_length=length)


def test_in_python_a_student_becomes_a_tagger(tiny_bert, tmp_path):
    student = pairsmith.load_student(make_student(tiny_bert, tmp_path), device="cpu")
    tagger = pairsmith.train_tagger(student, SENTENCES, epochs=60, learning_rate=1e-2)
    assert tagger.tag_words(WORDS) == [list(sentence.tags) for sentence in SENTENCES]
    lines = (f"{word} {tag}" for word, tag in zip(WORDS[0], SENTENCES[0].tags, strict=True))
    (tmp_path / "few.conll").write_text("\n".join(lines))
    other = pairsmith.load_student(tmp_path / "student", device="cpu")
    from_file = pairsmith.train_tagger(
        other, tmp_path / "few.conll", start="random", epochs=60, learning_rate=1e-2
    )
    assert from_file.tags == ["O", "B-PER", "I-PER"]
    with pytest.raises(InputError, match="no sentence with an entity"):
        pairsmith.train_tagger(student, [TaggedSentence(("a",), ("O",))])
    with pytest.raises(SettingsError, match="no question for the type 'dish'"):
        pairsmith.train_tagger(student, [TaggedSentence(("a",), ("B-dish",))])
    with pytest.raises(SettingsError, match="start must be questions or random, not 'x'"):
        pairsmith.train_tagger(student, SENTENCES, start="x")
    with pytest.raises(SettingsError, match="train_tagger: epoch: unknown key"):
        pairsmith.train_tagger(student, SENTENCES, epoch=2)


def test_a_model_with_other_layers_is_refused_before_it_is_trained(tmp_path):
    sizes = {"vocab_size": 90, "hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
    config = ModernBertConfig(num_hidden_layers=1, pad_token_id=0, bos_token_id=1, eos_token_id=2, **sizes)
    network = AutoModel.from_config(config)
    bert = load_token_encoder("pairsmith:tiny", device="cpu", max_length=60)
    with pytest.raises(ModelError, match="no tagger of a model of type modernbert can be saved"):
        check_for_tagger(replace(bert, model=network))
    with pytest.raises(ModelError, match="trained in float32; load the model so, not in torch.bfloat16"):
        check_for_tagger(load_token_encoder("pairsmith:tiny", device="cpu", dtype="bfloat16"))


def test_the_longest_sentence_of_the_training_is_that_of_the_saved_tagger(tiny_bert, tmp_path):
    encoder = load_token_encoder(str(tiny_bert), device="cpu", max_length=20)
    tagger_of(encoder, ["O", "B-X", "I-X"], torch.zeros(3, 16)).save(tmp_path)
    assert load_tagger(tmp_path, device="cpu").max_length == 20


@pytest.mark.parametrize("text", ["dogs," * 60, "東" * 90, "....," * 30, "dogs " * 60], ids=range(4))
def test_every_word_of_a_long_text_is_read_with_or_without_spaces(trained, tmp_path, text):
    trained[1].save(tmp_path)
    tagger = load_tagger(tmp_path, device="cpu", max_length=12)
    parts = tagger._sentences(text)
    assert "".join(text[start:end] for part in parts for start, end in part) == text.replace(" ", "")
    words = Words.of(tagger, [[text[start:end] for start, end in part] for part in parts])
    assert len(words.word) == sum(map(len, parts))


def test_a_training_that_diverges_says_so_and_a_batch_without_tokens_is_passed_over(tiny_bert):
    nothing = TaggedSentence(("\u200b",), ("O",))
    fast = TaggerOptions(epochs=2, learning_rate=1e-2, batch_size=1)
    encoder = load_token_encoder(str(tiny_bert), device="cpu")
    train_on_sentences(encoder, [*SENTENCES, nothing], None, fast, seed=1)
    with torch.no_grad():
        next(encoder.model.parameters()).fill_(torch.nan)
    with pytest.raises(ModelError, match="the training diverged: try a smaller learning rate"):
        train_on_sentences(encoder, SENTENCES, None, fast, seed=1)


def test_what_is_no_sentence_is_refused(trained, tiny_bert, tmp_path):
    tagger = trained[1]
    for wrong in ("London", [["London", 3]], ["I", "live"]):
        with pytest.raises(InputError, match=r"sentences\[\d\] must be a list of words"):
            tagger.tag_words(wrong)
    student = pairsmith.load_student(make_student(tiny_bert, tmp_path), device="cpu")
    for sentence, message in (
        (TaggedSentence(("A", "b"), ("PER", "O")), "sentences.0.: the tag 'PER' is not a BIO tag"),
        (TaggedSentence(("A", "b"), ("O",)), "sentences.0.: 2 words and 1 tags"),
    ):
        with pytest.raises(InputError, match=message):
            pairsmith.train_tagger(student, [sentence])
    with pytest.raises(SettingsError, match="expected a question as text for each type"):
        pairsmith.train_tagger(student, SENTENCES, questions={"PER": " "})
    with pytest.raises(SettingsError, match="questions has no effect with start='random'"):
        pairsmith.train_tagger(student, SENTENCES, start="random", questions={"PER": "Who ?"})
