"""Decoder-only models as readers and cross-encoders: what they read, token by token."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.conftest import make_llama
from tokenizers import Tokenizer, models, processors
from transformers import AutoModelForQuestionAnswering, AutoTokenizer, PreTrainedTokenizerFast

from pairsmith.core.errors import ModelError
from pairsmith.methods.mining import crossencoder
from pairsmith.methods.mining.crossencoder import CrossEncoderWithLoss, RankingRow
from pairsmith.models.cross_encoder import load_cross_encoder, score_pairs
from pairsmith.models.loading import mark_pairs
from pairsmith.models.reader import answer, collate, encode_questions, load_reader, read_windows
from pairsmith.training import chunks

pytestmark = pytest.mark.slow

LINE = 199  # the byte-level token of a line break
ASKED = "Who is playing?"
TEXT = "A man is playing. The weather was not good, they said."


def tokens_of(folder, text):
    return AutoTokenizer.from_pretrained(folder)(text, add_special_tokens=False)["input_ids"]


@pytest.fixture(scope="module")
def starting_llama(tmp_path_factory):
    """A Llama whose tokenizer puts a start token before a pair, and nothing between its texts."""
    return make_llama(tmp_path_factory.mktemp("tiny") / "starting", starts=True)


@pytest.mark.parametrize(
    ("model", "start"), [("tiny_gpt2", []), ("tiny_llama", []), ("starting_llama", [300])]
)
def test_a_line_break_parts_two_texts_and_stays_with_the_tokenizer(model, start, request, tmp_path):
    folder = request.getfixturevalue(model)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    mark_pairs(tokenizer)
    one, other = tokens_of(folder, ASKED), tokens_of(folder, TEXT)
    tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    state = again.backend_tokenizer.to_str()
    mark_pairs(again)  # it is marked already
    assert again.backend_tokenizer.to_str() == state
    for marked in (tokenizer, again):
        pair = marked(ASKED, TEXT)
        assert pair["input_ids"] == [*start, *one, LINE, *other]
        parts = [*[None] * len(start), *[0] * len(one), None, *[1] * len(other)]
        assert pair.sequence_ids(0) == parts
        assert marked(ASKED)["input_ids"] == [*start, *one]
        assert marked.num_special_tokens_to_add(pair=True) == len(start) + 1


def test_a_line_break_parts_texts_of_a_tokenizer_without_latin_letters():
    pieces = Tokenizer(models.BPE({"\n": 0, "か": 1, "き": 2}, []))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=pieces)
    mark_pairs(tokenizer)
    assert tokenizer("か", "き")["input_ids"] == [1, 0, 2]


def test_tokenizers_that_mark_pairs_or_know_no_line_break_are_left_alone(tiny_bert):
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    state = tokenizer.backend_tokenizer.to_str()
    mark_pairs(tokenizer)
    assert tokenizer.backend_tokenizer.to_str() == state
    tokenizer.backend_tokenizer.post_processor = None
    mark_pairs(tokenizer)
    assert tokenizer("a", "b").sequence_ids(0) == [0, 1]


def test_every_window_of_a_long_text_begins_with_the_question_and_a_line_break(tiny_llama):
    reader = load_reader(str(tiny_llama), device="cpu", fresh_head=True, max_length=40)
    context = TEXT * 3
    question, read = tokens_of(tiny_llama, ASKED), tokens_of(tiny_llama, context)
    windows = encode_questions(reader, [f" {ASKED}\n"], [context])
    room = 40 - len(question) - 1
    # A question has up to (40 - 1) // 2 = 19 tokens, so windows share (39 - 19) // 2 = 10.
    starts = range(0, len(read) - 10, room - 10)
    assert len(windows) == len(starts) > 2
    for window, start in zip(windows, starts, strict=True):
        text = read[start : start + room]
        assert window.input_ids.tolist() == [*question, LINE, *text]
        assert window.token_types is None
        assert not window.is_context[: len(question) + 1].any()
        places = window.offsets[window.is_context].tolist()
        spelled = context[places[0][0] : places[-1][1]]
        assert spelled.strip() == reader.tokenizer.decode(text).strip()


def test_windows_are_padded_on_the_right_and_padding_is_not_seen(tiny_llama):
    reader = load_reader(str(tiny_llama), device="cpu", fresh_head=True)
    batch = encode_questions(reader, [ASKED, ASKED], [TEXT, TEXT[:17]])
    inputs = collate(reader, batch)
    count = len(batch[1].input_ids)
    assert inputs["attention_mask"][1].tolist() == [1] * count + [0] * (len(batch[0].input_ids) - count)
    assert set(inputs["input_ids"][1, count:].tolist()) == {0}  # the end token, as there is none for padding
    together = read_windows(reader, batch)
    for window, scores in zip(batch, together, strict=True):
        assert torch.allclose(read_windows(reader, [window])[0], scores, atol=1e-6)


def test_start_and_end_are_scored_from_the_last_layers_states_of_the_base(tiny_llama):
    from transformers import LlamaModel

    reader = load_reader(str(tiny_llama), device="cpu", fresh_head=True)
    (window,) = encode_questions(reader, [ASKED], [TEXT])
    with torch.no_grad():
        states = LlamaModel.from_pretrained(tiny_llama)(window.input_ids[None]).last_hidden_state
        expected = reader.model.qa_outputs(states)[0].T
    assert torch.allclose(read_windows(reader, [window])[0], expected, atol=1e-6)


def test_a_reader_made_of_a_llama_is_saved_and_loaded_again(tiny_llama, tmp_path):
    reader = load_reader(str(tiny_llama), device="cpu", fresh_head=True)
    reader.model.save_pretrained(tmp_path)
    reader.tokenizer.save_pretrained(tmp_path)
    _, info = AutoModelForQuestionAnswering.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    again = load_reader(str(tmp_path), device="cpu")
    given = ([ASKED, ASKED], [TEXT, TEXT * 9])
    assert answer(again, *given) == answer(reader, *given)


@pytest.mark.parametrize(("lost", "count"), [("model.norm.weight", 1), ("", 20)])
def test_a_llama_without_some_of_its_weights_is_refused(tiny_llama, tmp_path, lost, count):
    folder = shutil.copytree(tiny_llama, tmp_path / "lossy")
    kept = load_file(folder / "model.safetensors")
    kept = {name: weight for name, weight in kept.items() if lost and name != lost} or {"no": torch.zeros(1)}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=rf"its weights lack transformer\.\S+ \({count} missing in all\)"):
        load_reader(str(folder), device="cpu", fresh_head=True)


def test_a_model_that_reads_too_little_for_a_question_is_refused(tmp_path):
    folder = make_llama(tmp_path / "short", max_position_embeddings=12)
    with pytest.raises(ModelError, match="reads 12 tokens at once, .* give a model that reads at least 16"):
        load_reader(str(folder), device="cpu", fresh_head=True)


def test_without_any_end_token_padding_cannot_be(tiny_llama, tmp_path):
    folder = shutil.copytree(tiny_llama, tmp_path / "endless")
    values = json.loads((folder / "tokenizer_config.json").read_text())
    del values["eos_token"]
    (folder / "tokenizer_config.json").write_text(json.dumps(values))
    with pytest.raises(
        ModelError, match=r"neither a padding nor an end token; name one of them in its token"
    ):
        load_reader(str(folder), device="cpu", fresh_head=True)


@pytest.mark.parametrize("model", ["tiny_gpt2", "tiny_llama"])
def test_a_cross_encoder_reads_both_texts_with_a_line_break_between(model, request):
    folder = request.getfixturevalue(model)
    cross = load_cross_encoder(str(folder), device="cpu", fresh_head=True, max_length=30)
    one, other = tokens_of(folder, ASKED), tokens_of(folder, TEXT)
    (ids,) = cross.features([ASKED], [TEXT])["input_ids"].tolist()
    assert ids == [*one, LINE, *other[: 29 - len(one)]]  # the longer text is cut off, never the line break
    assert cross.token_counts([ASKED, ASKED], [TEXT, "A man"]) == [30, len(one) + 1 + 3]


@pytest.mark.parametrize("load", [load_reader, load_cross_encoder])
def test_no_keys_and_values_are_kept(load, tiny_llama, tmp_path):
    loaded = load(str(tiny_llama), device="cpu", fresh_head=True)
    loaded.model.save_pretrained(tmp_path)
    loaded.tokenizer.save_pretrained(tmp_path)
    for scorer in (loaded, load(str(tmp_path), device="cpu")):
        assert scorer.model.base_model(torch.tensor([[1, 2]])).past_key_values is None


def test_a_line_break_changes_scores_and_padding_does_not(tiny_llama):
    cross = load_cross_encoder(str(tiny_llama), device="cpu", fresh_head=True)
    texts = [TEXT, "A man.", TEXT * 2]
    scores = score_pairs(cross, [ASKED] * 3, texts)
    alone = [score_pairs(cross, [ASKED], [text])[0] for text in texts]
    assert np.allclose(scores, alone, atol=1e-6)
    with torch.no_grad():
        together = cross.model(torch.tensor([tokens_of(tiny_llama, ASKED) + tokens_of(tiny_llama, TEXT)]))
    assert abs(float(together.logits) - scores[0]) > 1e-4


@pytest.mark.parametrize("model", ["starting_llama", "tiny_gpt2", "tiny_llama"])
def test_an_input_is_read_once_for_all_outputs_and_their_scores_are_those_of_transformers(model, request):
    """Also where the input is cut, and the more of it the longer the output is."""
    cross = load_cross_encoder(
        str(request.getfixturevalue(model)), device="cpu", fresh_head=True, max_length=70
    )
    outputs = ["A man.", "A dog runs.", "x", "The weather was good, they said again."]
    inputs = [TEXT, TEXT, TEXT * 3, TEXT * 3, TEXT * 3, "No"]
    outputs = [*outputs[:2], *outputs[1:], "No man is playing."]
    assert cross.shares
    rows = cross.rows(inputs, outputs)
    assert sorted(sorted(row.numbers) for row in rows) == [[0, 1], [2, 3, 4], [5]]
    assert len(set(rows[1].seen)) == 3
    with torch.inference_mode():
        alone = [
            float(cross.model(**cross.features([given], [output])).logits)
            for given, output in zip(inputs, outputs, strict=True)
        ]
    for batch_tokens in (1, 120, None):
        assert np.allclose(score_pairs(cross, inputs, outputs, batch_tokens=batch_tokens), alone, atol=1e-5)


def test_the_last_token_that_is_no_padding_is_scored(tiny_llama, tmp_path):
    """As transformers does, also where texts end with the token that pads them."""
    tokenizer = AutoTokenizer.from_pretrained(tiny_llama)
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="$A <|endoftext|>", pair="$A $B:1 <|endoftext|>", special_tokens=[("<|endoftext|>", 0)]
    )
    folder = shutil.copytree(tiny_llama, tmp_path / "ending")
    tokenizer.save_pretrained(folder)
    cross = load_cross_encoder(str(folder), device="cpu", fresh_head=True)
    assert cross.features([TEXT], ["A man."])["input_ids"][0, -1] == cross.tokenizer.pad_token_id == 0
    with torch.inference_mode():
        alone = [
            float(cross.model(**cross.features([TEXT], [output])).logits) for output in ("A man.", "A dog.")
        ]
    assert np.allclose(score_pairs(cross, [TEXT] * 2, ["A man.", "A dog."]), alone, atol=1e-6)


@pytest.mark.parametrize("listwise", [False, True])
@pytest.mark.parametrize("tokens", [20, 60, 2_048])
def test_a_training_that_shares_inputs_has_the_same_gradients(listwise, tokens, tiny_llama, monkeypatch):
    """In whatever chunks a batch is computed."""
    rows = [
        RankingRow(TEXT, ["A man.", "A dog.", "The weather."]),
        RankingRow(TEXT * 2, ["It was not good.", "x"]),
        RankingRow("No", ["A dog runs in the park.", "A man."]),
    ]
    cross = load_cross_encoder(str(tiny_llama), device="cpu", fresh_head=True, max_length=60)

    def loss_and_gradients(cross):
        scorer = CrossEncoderWithLoss(cross, listwise=listwise)
        scorer.zero_grad()
        loss = scorer(**scorer.batch(rows))["loss"]
        loss.backward()
        return loss.item(), {name: weight.grad.clone() for name, weight in scorer.named_parameters()}

    expected, gradients = loss_and_gradients(replace(cross, shares=False))
    for module in (crossencoder, chunks):
        monkeypatch.setattr(module, "tokens_at_once", lambda _: tokens)
    loss, others = loss_and_gradients(cross)
    assert loss == pytest.approx(expected, rel=1e-5)
    for name, gradient in gradients.items():
        assert torch.allclose(others[name], gradient, atol=1e-6), name
    scores = torch.tensor(
        [score for row in rows for score in score_pairs(cross, [row.input] * len(row.outputs), row.outputs)]
    )
    first = torch.tensor([0, 3, 5])
    if listwise:
        by_hand = [float(scores[some].logsumexp(0) - scores[some[0]]) for some in ([0, 1, 2], [3, 4], [5, 6])]
    else:
        right = torch.zeros(7).index_fill(0, first, 1.0)
        by_hand = -(right * scores.sigmoid().log() + (1 - right) * (-scores).sigmoid().log())
    assert expected == pytest.approx(float(torch.as_tensor(by_hand).mean()), rel=1e-4)


@pytest.mark.parametrize("load", [load_reader, load_cross_encoder])
def test_a_token_that_the_model_has_no_vector_for_is_an_error_of_the_model(load, tiny_gpt2):
    model = load(str(tiny_gpt2), device="cpu", fresh_head=True)
    model.tokenizer.add_tokens(["unheard"])

    def compute(text):
        if load is load_reader:
            return encode_questions(model, [ASKED], [text])
        return score_pairs(model, [ASKED], [text])

    assert len(compute(TEXT)) == 1
    with pytest.raises(ModelError, match=r"gives the token 300, but the model has vectors only for tokens"):
        compute("A man unheard")
