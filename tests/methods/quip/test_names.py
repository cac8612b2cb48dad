from types import SimpleNamespace

import pytest
import torch
from tests.tagged_sentences import SENTENCES, make_student

from pairsmith.core.errors import InputError, ModelError
from pairsmith.data.tagged import TaggedSentence
from pairsmith.methods.quip import names as module
from pairsmith.methods.quip.names import (
    TYPE_QUESTIONS,
    TaggingNetwork,
    draw_tagged_sentences,
    question_rows,
    questions_for,
    tag_after_training,
    tags_of,
    train_on_sentences,
    types_of,
)
from pairsmith.methods.quip.tagger_options import TaggerOptions
from pairsmith.models import tagger as tagging
from pairsmith.models.span_answers import question_vectors
from pairsmith.models.span_encoder import load_span_encoder
from pairsmith.models.tagger import Words, predicted_tags
from pairsmith.models.token_vectors import load_token_encoder

pytestmark = pytest.mark.slow

FAST = TaggerOptions(epochs=120, learning_rate=1e-2)


@pytest.fixture(scope="module")
def student(tiny_bert, tmp_path_factory):
    return make_student(tiny_bert, tmp_path_factory.mktemp("students"))


def test_a_training_that_diverged_has_no_figure(tiny_bert):
    encoder = load_token_encoder(str(tiny_bert), device="cpu")
    tagger = TaggingNetwork(encoder, ["O", "B-PER"], torch.full((2, 16), torch.nan))
    with pytest.raises(ModelError, match="try a smaller learning rate"):
        predicted_tags(encoder, tagger.tags, tagger, [row.words for row in SENTENCES], lambda _: None)


def test_the_questions_of_types_are_the_papers():
    """Table 9, with the tags of CoNLL 2003 and of WNUT 17."""
    assert questions_for(["PER", "LOC", "ORG", "MISC"]) == {
        "O": "What is a generic object ?",
        "PER": "Who is a person ?",
        "LOC": "What is a location ?",
        "ORG": "What is an organization ?",
        "MISC": "What is a miscellaneous entity ?",
    }
    assert questions_for(["person", "corporation", "product", "creative-work", "group"]) == {
        "O": "What is a generic object ?",
        "person": "Who is a person ?",
        "corporation": "What is a corporation ?",
        "product": "What is a product ?",
        "creative-work": "What is a creative work ?",
        "group": "What is a group ?",
    }


def test_a_tagger_is_trained_as_in_the_paper():
    assert TaggerOptions() == TaggerOptions(epochs=200, learning_rate=2e-5, batch_size=8)


def test_random_rows_have_the_deviation_with_which_the_encoder_began():
    for given, deviation in (({"initializer_range": 0.07}, 0.07), ({}, 0.02)):
        config = SimpleNamespace(hidden_size=16, **given)
        rows = module.random_rows(SimpleNamespace(model=SimpleNamespace(config=config)), 2_000, seed=3)
        assert rows.shape == (2_000, 16)
        assert float(rows.std()) == pytest.approx(deviation, rel=0.02)
        assert abs(float(rows.mean())) < deviation / 50


def test_rows_begin_as_the_start_vectors_of_their_questions(student):
    tags = ["O", "B-PER", "I-PER", "B-LOC"]
    questions = questions_for(types_of(SENTENCES))
    assert questions == {"O": TYPE_QUESTIONS["O"], "PER": "Who is a person ?", "LOC": "What is a location ?"}
    encoder = load_span_encoder(student, device="cpu")
    rows = question_rows(encoder, tags, questions)
    starts, _ = question_vectors(encoder, ["Who is a person ?"])
    expected = (starts[0] / starts[0].norm()).detach()
    assert torch.allclose(rows[1], expected, atol=1e-6)
    assert torch.equal(rows[1], rows[2])
    assert rows.norm(dim=1).tolist() == pytest.approx([1.0] * 4)


def test_steps_too_small_for_two_bytes_are_not_lost(tiny_bert):
    options = TaggerOptions(dtype="bfloat16", learning_rate=1e-6, epochs=3)
    encoder = load_token_encoder(str(tiny_bert), device="cpu")
    tagger = train_on_sentences(encoder, SENTENCES, None, options, seed=1)
    before = load_token_encoder(str(tiny_bert), device="cpu").model.encoder.state_dict()
    for name, weight in tagger.model.encoder.state_dict().items():
        moved = (weight - before[name]).abs()
        assert 0 < moved.max() < 1e-5, name


def test_sums_in_numbers_of_two_bytes_are_of_the_weights_as_they_are(tiny_bert, monkeypatch):
    calls = []

    def predicted(encoder, tags, tagger, sentences, advance):
        words = Words.of(encoder, sentences)
        calls.append((tagger, words, tagger(words)))

    monkeypatch.setattr(module, "predicted_tags", predicted)
    options = TaggerOptions(dtype="bfloat16", learning_rate=1e-2, epochs=9)
    encoder = load_token_encoder(str(tiny_bert), device="cpu")
    tag_after_training(encoder, SENTENCES, SENTENCES, None, options, seed=1)
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
    large = 100 * torch.randn(5, 16, generator=torch.Generator().manual_seed(0))
    tagger = TaggingNetwork(load_token_encoder(str(tiny_bert), device="cpu"), tags_of(sentences), large)
    module.train_tagger(tagger, sentences, TaggerOptions(epochs=3), 0, lambda _: None)
    assert rates == pytest.approx([2e-5 * (6 - step) / 6 for step in range(6)], rel=1e-12)
    assert norms == pytest.approx([1.0] * 6, rel=1e-4)
    assert decays == [0.0] * 6


def test_dropout_before_the_output_layer_is_off_when_tagging(tiny_bert):
    encoder = load_token_encoder(str(tiny_bert), device="cpu")
    tagger = TaggingNetwork(encoder, ["O", "B-PER"], torch.eye(16)[:2])
    words = Words.of(tagger.encoder, [row.words for row in SENTENCES])
    assert tagger.dropout.p == 0.1
    tagger.model.eval()
    assert not torch.equal(tagger(words), tagger(words))
    tagger.eval()
    assert torch.equal(tagger(words), tagger(words))


def test_the_first_word_has_the_tokens_that_it_has_behind_another(tiny_gpt2, tiny_bert):
    for model, before in ((tiny_gpt2, " "), (tiny_bert, "")):
        encoder = load_token_encoder(str(model), device="cpu")
        if encoder.tokenizer.pad_token is None:
            encoder.tokenizer.pad_token = encoder.tokenizer.eos_token
        sentence = TaggedSentence(("dogs", "and", "dogs"), ("O",) * 3)
        words = Words.of(encoder, [sentence.words])
        ids = words.features["input_ids"][0]
        assert ids[words.token[0]] == ids[words.token[2]]
        assert tagging._before_words(encoder) == before


def test_a_word_is_told_by_its_first_token(tiny_bert):
    encoder = load_token_encoder(tiny_bert.as_posix(), device="cpu")
    words = Words.of(encoder, [row.words for row in SENTENCES])
    assert len(words.word) == 12
    tagger = TaggingNetwork(encoder, ["O", "B-PER"], torch.eye(16)[:2]).eval()
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
    words = Words.of(encoder, [sentence.words])
    assert words.word.tolist() == [0, 2]
    text = tagging._before_words(encoder) + " ".join(sentence.words)
    (tokens,) = encoder.text_tokens([text])
    place = {int(number): begin for number, (begin, _) in zip(tokens.numbers, tokens.offsets, strict=True)}
    assert [text[place[int(token)] :].lstrip()[0] for token in words.token] == ["A", "m"]


def test_words_beyond_the_longest_sentence_are_no_names(tiny_bert):
    long = TaggedSentence(("man",) * 40, ("B-PER",) * 40)
    encoder = load_token_encoder(str(tiny_bert), device="cpu", max_length=8)
    (tags,) = tag_after_training(
        encoder, [long], [long], None, FAST.model_copy(update={"epochs": 20}), seed=1
    )
    assert tags[:6] == ["B-PER"] * 6
    assert tags[6:] == ["O"] * 34


def test_of_each_type_as_many_sentences_are_drawn_each_once():
    both = TaggedSentence(("Ann", "Rome"), ("B-PER", "B-LOC"))
    others = [TaggedSentence((str(n),), (f"B-{kind}",)) for kind in ("LOC", "PER", "ORG") for n in range(6)]
    nothing = [TaggedSentence(("and",), ("O",))] * 9
    every = [both, *others, *nothing]
    seen = set()
    for seed in range(5):
        sentences = draw_tagged_sentences(every, 3, seed)
        kinds = [{tag[2:] for tag in sentence.tags} for sentence in sentences]
        assert [min(sum(name in types for types in kinds), 3) for name in ("LOC", "ORG", "PER")] == [3] * 3
        assert len(sentences) == 9 == len({id(sentence) for sentence in sentences})
        assert sentences == draw_tagged_sentences(every, 3, seed)
        seen.add(tuple(sentence.words for sentence in sentences))
    assert len(seen) > 1
    with pytest.raises(InputError, match="there are 6 sentences with the type ORG .* 7 are needed"):
        draw_tagged_sentences([*every, both], 7, 0)
    with pytest.raises(InputError, match="no sentence with an entity"):
        draw_tagged_sentences(nothing, 1, 0)


def test_two_sentences_are_learned_by_heart_without_files_or_settings(student):
    encoder = load_span_encoder(student, device="cpu")
    tags = tag_after_training(encoder, SENTENCES, SENTENCES, questions_for(types_of(SENTENCES)), FAST, seed=1)
    assert [tuple(sentence_tags) for sentence_tags in tags] == [sentence.tags for sentence in SENTENCES]
    tokens = load_token_encoder(student, device="cpu")
    with pytest.raises(
        ModelError, match="the encoder has no heads for questions; give one that load_student"
    ):
        tag_after_training(tokens, SENTENCES, SENTENCES, TYPE_QUESTIONS)


def test_a_type_has_both_tags_even_if_one_does_not_occur():
    begun = [TaggedSentence(("Ann", "ran"), ("B-PER", "O"))]
    assert tags_of(begun) == ["O", "B-PER", "I-PER"]
    assert tags_of(SENTENCES) == ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
