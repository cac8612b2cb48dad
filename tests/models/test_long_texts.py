"""Of texts of megabytes models get only the beginning that they read, and get the same tokens as of the whole."""

from dataclasses import replace

import pytest
from tests.tiny_bart import make_bart

from pairsmith.models.cross_encoder import load_cross_encoder
from pairsmith.models.encode import beginning
from pairsmith.models.reader import encode_questions, load_reader
from pairsmith.models.text_generator import encode_inputs, encode_targets, load_text_generator
from pairsmith.models.token_vectors import load_token_encoder

pytestmark = pytest.mark.slow

TEXTS = [
    "A man is playing.",
    "Two dogs run on the beach; the weather was not good. " * 2_000,
    " " * 4_000 + "Someone is talking. " * 3_000,
]
SHORT = "A woman is slicing an onion."
MOST = 30_000
"""More characters than are tokenized at once of any of these texts, which have 60,000 and more."""


def test_a_giant_word_at_the_cut_does_not_count_as_its_beginning(tiny_bert):
    """Its first 90 characters are 90 tokens of the vocabulary's letters, the whole word is one unknown token."""
    tokenizer = load_cross_encoder(str(tiny_bert), device="cpu", fresh_head=True).tokenizer
    for limit in (8, 16, 30, 64):
        tried = 50 * limit  # characters of the first beginning
        text = " " * (tried - 90) + "a" * (2 * tried) + " the " * 3_000
        limited = {"truncation": True, "max_length": limit, "add_special_tokens": False}
        assert tokenizer(beginning(tokenizer, text, limit), **limited) == tokenizer(text, **limited)


class Recorder:
    """A tokenizer that keeps the length of the longest text that it got, in characters."""

    def __init__(self, tokenizer):
        self.tokenizer, self.longest = tokenizer, 0

    def __getattr__(self, name):
        return getattr(self.tokenizer, name)

    def __call__(self, *texts, **options):
        for side in (*texts, options.get("text", ""), options.get("text_target", "")):
            self.longest = max([self.longest, *map(len, [side] if isinstance(side, str) else side)])
        return self.tokenizer(*texts, **options)


def recorded(model):
    recorder = Recorder(model.tokenizer)
    return replace(model, tokenizer=recorder), recorder


def whole(model, *sides, **options):
    how = {"truncation": True, "max_length": model.max_length, "split_special_tokens": True} | options
    return model.tokenizer(*map(list, sides), **how)["input_ids"]


@pytest.mark.parametrize("kind", ["tiny_bert", "tiny_gpt2"])
@pytest.mark.parametrize("turned", [False, True])
def test_a_cross_encoder_reads_the_beginnings_of_both_texts(kind, turned, request):
    folder = str(request.getfixturevalue(kind))
    cross, recorder = recorded(load_cross_encoder(folder, device="cpu", fresh_head=True, max_length=30))
    sides = [[SHORT] * len(TEXTS), TEXTS]
    if turned:
        sides.reverse()
    rows = cross.rows(*sides)
    features = cross.row_features(rows, *sides)
    assert 0 < recorder.longest < MOST
    assert cross.tokenized(*sides)["input_ids"] == whole(cross, *sides)
    assert features["input_ids"].shape[1] == 30


def test_a_token_encoder_reads_the_beginning_of_a_text(tiny_bert):
    encoder, recorder = recorded(load_token_encoder(str(tiny_bert), device="cpu", max_length=30))
    offsets = [tokens.offsets.tolist() for tokens in encoder.text_tokens(TEXTS)]
    assert encoder.token_counts(TEXTS)[1:] == [30, 30]
    assert 0 < recorder.longest < MOST
    assert encoder.tokenized(TEXTS)["input_ids"] == whole(encoder, TEXTS)
    assert [TEXTS[2][begin:end] for begin, end in offsets[2]][:2] == ["Someo", "ne"]


def test_a_reader_gets_the_beginning_of_a_question_and_all_of_a_text(tiny_bert):
    reader, recorder = recorded(load_reader(str(tiny_bert), device="cpu", fresh_head=True, max_length=40))
    long = TEXTS[1].strip()
    features = encode_questions(reader, [long, SHORT], [SHORT, SHORT])
    assert 0 < recorder.longest < MOST
    room = (40 - 3) // 2
    expected = whole(reader, [long], max_length=room, add_special_tokens=False)[0]
    assert features[0].input_ids.tolist()[1 : 1 + room] == expected
    windows = encode_questions(reader, [SHORT], [long])
    assert int(windows[-1].offsets.max()) == len(long)


def test_a_summarizer_gets_the_beginnings_of_documents_and_of_summaries(tmp_path):
    writer, recorder = recorded(load_text_generator(str(make_bart(tmp_path)), device="cpu"))
    assert encode_inputs(writer, TEXTS) == whole(writer, TEXTS, split_special_tokens=False)
    assert encode_targets(writer, TEXTS, 20) == whole(
        writer, TEXTS, max_length=20, split_special_tokens=False
    )
    longest = recorder.longest
    recorder.longest = 0
    encode_inputs(writer, TEXTS)
    encode_targets(writer, TEXTS, 20)
    assert 0 < recorder.longest < MOST < longest


def test_a_decoder_only_summarizer_gets_them_too(tiny_gpt2):
    writer, recorder = recorded(load_text_generator(str(tiny_gpt2), device="cpu"))
    summaries = encode_targets(writer, TEXTS, 20)
    encode_inputs(writer, TEXTS)
    assert 0 < recorder.longest < MOST
    behind = writer.tokenizer(f" {TEXTS[1]}", add_special_tokens=False)["input_ids"]
    assert summaries[1] == [*behind[:19], writer.tokenizer.eos_token_id]
