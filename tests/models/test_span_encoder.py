import shutil
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pairsmith.core.errors import InputError, ModelError
from pairsmith.methods.quip.training_options import StudentOptions
from pairsmith.models.reader import answer, encode_questions, load_reader
from pairsmith.models.span_answers import answer_with_span_encoder, text_vectors, text_windows
from pairsmith.models.span_encoder import load_span_encoder, span_logits
from pairsmith.models.span_heads import HEADS_FILE, SpanHeads, heads_kind, load_heads, save_heads

pytestmark = pytest.mark.slow

TEXT = "A man is playing. A woman is slicing an onion. Two dogs run on the beach."
QUESTIONS = ["Who is slicing an onion?", "Where do the dogs run?"]


@pytest.fixture
def folder(tiny_bert, tmp_path):
    """A random BERT with random heads for questions beside it."""
    copy = shutil.copytree(tiny_bert, tmp_path / "student")
    save_heads(SpanHeads(16, "questions", seed=5), copy)
    return copy


def loaded(folder, **how):
    return load_span_encoder(str(folder), device="cpu", **how)


def test_a_head_is_two_layers_with_tanh_between_them():
    heads = SpanHeads(2, "questions")
    with torch.no_grad():
        for head, scale in ((heads.start, 1.0), (heads.end, -1.0)):
            head[0].weight.copy_(torch.eye(2))
            head[0].bias.copy_(torch.tensor([0.0, 1.0]))
            head[2].weight.copy_(scale * torch.tensor([[2.0, 0.0], [0.0, 3.0]]))
            head[2].bias.fill_(0.5)
    start, end = heads(torch.tensor([[0.5, -1.0]]))
    tanh = 0.46211715726  # of a half
    assert start[0].tolist() == pytest.approx([2 * tanh + 0.5, 0.5])
    assert end[0].tolist() == pytest.approx([-2 * tanh + 0.5, 0.5])


def test_the_logits_of_two_passages_by_hand():
    vectors = torch.tensor([[[1.0, 0.0], [0.0, 2.0]], [[1.0, 1.0], [3.0, 0.0]]])
    starts = torch.tensor([[1.0, 1.0], [0.0, 1.0], [2.0, -1.0]])
    ends = -starts
    start, end = span_logits(vectors, starts, ends, [1, 2])
    assert start.tolist() == [[1.0, 2.0], [1.0, 0.0], [1.0, 6.0]]
    assert end.tolist() == [[-1.0, -2.0], [-1.0, -0.0], [-1.0, -6.0]]


def test_counts_have_to_fit():
    for counts in ([1, 1], [3], [3, 0]):
        with pytest.raises(ValueError, match="count"):
            span_logits(torch.ones(2, 3, 4), torch.ones(3, 4), torch.ones(3, 4), counts)


def test_heads_are_saved_and_loaded_as_they_are(tmp_path):
    heads = SpanHeads(4, "questions", seed=3)
    save_heads(heads, tmp_path)
    again = load_heads(str(tmp_path), 4, "questions")
    assert all(
        torch.equal(a, b)
        for a, b in zip(heads.state_dict().values(), again.state_dict().values(), strict=True)
    )
    assert not torch.equal(heads.start[0].weight, heads.end[0].weight)
    assert torch.equal(SpanHeads(4, "questions", seed=3).start[0].weight, heads.start[0].weight)


def test_heads_of_the_same_weights_are_the_same_bytes(tmp_path):
    heads = SpanHeads(4, "tokens", seed=1)
    written = set()
    for _ in range(10):
        save_heads(heads, tmp_path)
        written.add((tmp_path / HEADS_FILE).read_bytes())
    assert len(written) == 1


def test_faulty_heads_are_told(tmp_path):
    assert heads_kind(str(tmp_path)) is None
    with pytest.raises(ModelError, match="there are none"):
        load_heads(str(tmp_path), 4, "questions")
    save_heads(SpanHeads(4, "tokens"), tmp_path)
    with pytest.raises(ModelError, match="the heads there read tokens"):
        load_heads(str(tmp_path), 4, "questions")
    with pytest.raises(ModelError, match="do not fit the model, whose vectors have 5"):
        load_heads(str(tmp_path), 5, "tokens")
    torch.save({}, tmp_path / HEADS_FILE)
    with pytest.raises(ModelError, match="cannot be read"):
        heads_kind(str(tmp_path))


def test_an_encoder_without_heads_is_none(tiny_bert, folder):
    with pytest.raises(ModelError, match="has no heads for questions; give a folder that infuse wrote"):
        loaded(tiny_bert)
    fresh = loaded(tiny_bert, fresh_heads=True, seed=5).heads.state_dict()
    kept = loaded(folder, fresh_heads=True, seed=9).heads.state_dict()
    assert all(torch.equal(fresh[name], kept[name]) for name in fresh)


def test_answers_are_those_of_the_whole_text_by_direct_computation(folder):
    encoder = loaded(folder)
    predictions = answer_with_span_encoder(encoder, QUESTIONS, [TEXT, TEXT], max_answer_tokens=4)
    encoded = encoder.tokens.tokenizer(TEXT, return_offsets_mapping=True)
    vectors = encoder.token_vectors(encoder.tokens.features([TEXT]))[0, 1:-1]
    offsets = encoded["offset_mapping"][1:-1]
    for question, prediction in zip(QUESTIONS, predictions, strict=True):
        first = encoder.token_vectors(encoder.tokens.features([question]))[:, 0]
        p, q = (
            (vectors @ head(first)[0]).softmax(dim=0).detach()
            for head in (encoder.heads.start, encoder.heads.end)
        )
        spans = [(float(p[i] * q[j]), -i, -j) for i in range(len(p)) for j in range(i, min(i + 4, len(p)))]
        score, i, j = max(spans)
        assert prediction.score == pytest.approx(score, rel=1e-4)
        assert prediction.text == TEXT[offsets[-i][0] : offsets[-j][1]]
        assert TEXT[prediction.start :].startswith(prediction.text)


def test_a_long_text_is_read_in_windows_and_each_token_counts_once(folder, monkeypatch):
    monkeypatch.setattr("pairsmith.models.span_answers.OVERLAP", 8)
    long = " ".join([TEXT] * 5)
    encoder = loaded(folder, max_length=32)
    windows = text_windows(encoder.tokens, [long, "", TEXT])
    assert len(windows) > 4
    whole = loaded(folder).tokens.tokenizer(
        long, truncation=False, return_offsets_mapping=True, verbose=False
    )
    kept = [tuple(offset) for w in windows if w.question == 0 for offset in w.offsets[w.is_context].tolist()]
    assert kept == whole["offset_mapping"][1:-1]
    middle = [window for window in windows if window.question == 0][1]
    assert middle.is_context.nonzero()[[0, -1], 0].tolist() == [5, 26]  # half of the 8 shared at either end
    read = text_vectors(encoder, [long, "", TEXT])
    assert [len(text.vectors) for text in read] == [len(text.offsets) for text in read]
    assert len(read[1].offsets) == 0


def test_as_many_tokens_as_the_student_reads_are_windows_of_456_that_begin_328_apart(tiny_bert):
    longest = StudentOptions(base="b").max_length
    tokens = replace(loaded(tiny_bert, fresh_heads=True).tokens, max_length=longest)
    windows = text_windows(tokens, ["a " * 1_000])
    texts = [window.offsets[1:-1] for window in windows]
    assert [len(offsets) for offsets in texts[:-1]] == [456, 456]
    assert [int(offsets[0, 0]) // 2 for offsets in texts] == [0, 328, 656]


def test_a_whole_passage_with_the_longest_question_is_one_window_of_a_teacher(tiny_bert):
    reader = load_reader(str(tiny_bert), device="cpu", fresh_head=True)
    reader = replace(reader, max_length=512)
    (window,) = encode_questions(reader, ["a " * 50], ["a " * 456])
    assert int(window.is_context.sum()) == 456


@pytest.fixture(scope="module")
def short_windows(tiny_bert):
    """An encoder of tokens whose windows have 16 tokens."""
    return load_span_encoder(str(tiny_bert), device="cpu", max_length=16, fresh_heads=True).tokens


@given(
    st.lists(st.sampled_from(["dog", "beach.", "onion", "  ", "weather;", "\n"]), max_size=60),
    st.integers(0, 30),
)
def test_no_token_is_lost_or_seen_twice(short_windows, words, overlap):
    text, encoder = " ".join(words), short_windows
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pairsmith.models.span_answers.OVERLAP", overlap)
        windows = text_windows(encoder, [text])
    kept = [tuple(offset) for window in windows for offset in window.offsets[window.is_context].tolist()]
    whole = encoder.tokenizer(text, return_offsets_mapping=True, add_special_tokens=False, verbose=False)
    assert kept == [tuple(offset) for offset in whole["offset_mapping"]]


def test_blank_texts_have_empty_answers_and_progress_is_told(folder):
    told = []
    predictions = answer_with_span_encoder(
        loaded(folder), ["Who?"] * 3, [TEXT, " ", TEXT], advance=told.append
    )
    assert predictions[1].text == ""
    assert predictions[1].score == 0.0
    assert predictions[0] == predictions[2]
    assert sum(told) == 3
    assert answer_with_span_encoder(loaded(folder), [], []) == []


def test_a_blank_text_without_special_tokens_has_an_empty_answer(tiny_gpt2):
    student = load_span_encoder(str(tiny_gpt2), device="cpu", fresh_heads=True)
    for texts in ([""], ["", TEXT]):
        first, *others = answer_with_span_encoder(student, ["Who?"] * len(texts), texts)
        assert (first.text, first.score) == ("", 0.0)
        assert all(other.text for other in others)


def test_damaged_weights_are_told(folder):
    encoder = loaded(folder)
    with torch.no_grad():
        encoder.heads.start[2].bias.fill_(float("nan"))
    with pytest.raises(ModelError, match="not finite"):
        answer_with_span_encoder(encoder, ["Who?"], [TEXT])


def test_a_teacher_is_a_reader_with_perceptrons(tiny_bert, tmp_path):
    copy = shutil.copytree(tiny_bert, tmp_path / "teacher")
    save_heads(SpanHeads(16, "tokens", seed=2), copy)
    kept = load_reader(str(copy), device="cpu")
    fresh = load_reader(str(tiny_bert), device="cpu", fresh_head=True, perceptrons=True, seed=2)
    given = kept.tokenizer(QUESTIONS[0], TEXT, return_tensors="pt")
    one, other = kept.model(**given), fresh.model(**given)
    states = kept.model.encoder(**given).last_hidden_state
    assert one.start_logits.shape == given["input_ids"].shape
    assert torch.equal(one.start_logits, kept.model.heads.start(states).squeeze(-1))
    assert torch.equal(one.end_logits, other.end_logits)
    assert answer(kept, QUESTIONS, [TEXT] * 2) == answer(fresh, QUESTIONS, [TEXT] * 2)


def test_features_are_made_of_lists_of_texts_and_vectors_of_features(folder):
    student = loaded(folder)
    for call in (student.tokens.features, student.tokens.text_tokens):
        with pytest.raises(InputError, match="texts must be a list of texts, not a single text"):
            call(TEXT)  # its characters would be taken for texts
    with pytest.raises(InputError, match="texts is empty; give at least one text"):
        student.tokens.features([])
    assert student.tokens.text_tokens([]) == []
    for call in (student.token_vectors, student.question_vectors):
        with pytest.raises(InputError, match=r"tokens.features\(texts\) returns; they are of the type list"):
            call([TEXT])


def test_a_student_is_shown_in_one_line(folder):
    tokens = f"TokenEncoder(BertModel {str(folder)!r}, max_length=64, dtype=float32, device=cpu)"
    assert repr(loaded(folder)) == f"SpanEncoder({tokens})"
