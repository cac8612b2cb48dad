"""A causal LM of transformers by name: what it says of itself, and what is wrong with files that are none."""

import copy
import gc
import pickle
import weakref
from functools import partial

import pytest
import torch
from tests.conftest import make_llama
from transformers import AutoModelForCausalLM, AutoTokenizer, MambaConfig, MambaForCausalLM

from pairsmith.core.errors import ModelError
from pairsmith.models.language.combine import self_debias
from pairsmith.models.language.decoder import Group, MultiPromptDecoder
from pairsmith.models.language.loading import load_model
from pairsmith.models.language.packed_weights import PackedLinear
from pairsmith.models.language.sampling import Sampling
from pairsmith.models.language.transformers_backend import TransformersModel, TransformersSession
from pairsmith.runs.seeds import stream_key

pytestmark = pytest.mark.slow

SAMPLING = Sampling(top_k=5, top_p=0.9, max_tokens=12)
RULE = partial(self_debias, decay=100.0, floor=0.01)


def decoded(model, groups, rows, sampling=SAMPLING):
    prompts = [prompt for group in groups for prompt in group.prompts]
    decoder = MultiPromptDecoder(model, RULE, sampling, 11, prompts, rows)
    for group in groups:
        decoder.add(Group(group.main, group.counters, group.stream))
    return {group.stream: tuple(group.tokens) for group in decoder.finished()}


def some_groups(model, count):
    return [Group(tuple(model.encode(f'Task {i}: write.\n"')), (), stream_key(i)) for i in range(count)]


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("counters", [0, 2])
def test_a_text_that_follows_another_in_its_rows_is_the_one_behind_the_whole_prompt(
    tiny_gpt2, counters, shared, monkeypatch
):
    if not shared:
        monkeypatch.setattr("pairsmith.models.language.transformers_backend.SHARED_ATTENTION_TYPES", ())
    model = load_model(str(tiny_gpt2), device="cpu")
    lead = model.encode('\nThen: "')
    every = [tuple(model.encode(f'Task {i}: write.\n"')) for i in range(9)]
    groups = [
        Group(main, tuple(every[j] for j in range(counters) if j != i), stream_key(i))
        for i, main in enumerate(every)
    ]
    sampling = Sampling(top_k=0, top_p=1.0, max_tokens=5)
    decoder = MultiPromptDecoder(model, RULE, sampling, 11, every, 12, tail=5 + len(lead) + 7)
    for group in groups:
        decoder.add(group)
    following, ended = {}, []
    for group in decoder.finished():
        ended.append(group)
        if group in groups and group.stream != stream_key(4):  # which nothing follows
            assert len(lead) + 7 <= decoder.room_after(group)
            following[decoder.follow(group, lead, stream_key("then", group.stream), 7)] = group
    assert {*ended} == {*groups, *following}
    assert len(following) == 8
    assert len({len(group.tokens) for group in groups}) > 1  # so that some read while others draw
    for group, before in following.items():
        added = (*before.tokens[:-1], *lead)
        assert group.before == added
        alone = Group((*before.main, *added), tuple((*c, *added) for c in before.counters), group.stream)
        assert decoded(model, [alone], 12, Sampling(top_k=0, top_p=1.0, max_tokens=7)) == {
            group.stream: tuple(group.tokens)
        }


def test_a_group_is_followed_once_it_has_ended_by_what_fits(tiny_gpt2):
    model = load_model(str(tiny_gpt2), device="cpu")
    (group,) = some_groups(model, 1)
    decoder = MultiPromptDecoder(model, RULE, SAMPLING, 11, group.prompts, 8, tail=30)
    decoder.add(group)
    with pytest.raises(ValueError, match="has just ended"):
        decoder.follow(group, [1], 0, 1)
    for ended in decoder.finished():
        room = decoder.room_after(ended)
        assert room == 30 - len(ended.tokens) + 1
        with pytest.raises(ValueError, match=f"1 tokens and {room} to draw do not fit the {room} left"):
            decoder.follow(ended, [1], 0, room)
        with pytest.raises(ValueError, match="0 tokens"):
            decoder.follow(ended, [], 0, 1)
    with pytest.raises(ValueError, match="has just ended"):
        decoder.follow(group, [1], 0, 1)


def test_a_group_that_is_being_drawn_cannot_be_followed(tiny_gpt2):
    model = load_model(str(tiny_gpt2), device="cpu")
    short, long = some_groups(model, 2)
    short.max_tokens = 2
    decoder = MultiPromptDecoder(model, RULE, SAMPLING, 11, short.prompts + long.prompts, 8, tail=30)
    decoder.add(short)
    decoder.add(long)
    ended = iter(decoder.finished())
    assert next(ended) is short
    assert len(short.tokens) == 2
    with pytest.raises(ValueError, match="has just ended"):
        decoder.follow(long, [1], 0, 1)
    following = decoder.follow(short, [1], 0, 1)
    with pytest.raises(ValueError, match="has just ended"):
        decoder.follow(short, [1], 0, 1)  # it is followed
    assert {*ended} == {long, following}


def test_texts_fit_their_tail(tiny_gpt2):
    model = load_model(str(tiny_gpt2), device="cpu")
    (group,) = some_groups(model, 1)
    with pytest.raises(ValueError, match="a tail of 11 tokens is shorter than a text of 12"):
        MultiPromptDecoder(model, RULE, SAMPLING, 11, group.prompts, 8, tail=11)
    decoder = MultiPromptDecoder(model, RULE, SAMPLING, 11, group.prompts, 8)
    group.max_tokens = 13
    with pytest.raises(ValueError, match="a text of 13 tokens does not fit a tail of 12"):
        decoder.add(group)


def test_names_revision_context_and_ends(tiny_gpt2):
    model = load_model(str(tiny_gpt2), device="cpu")
    assert model.name == str(tiny_gpt2)
    assert model.revision.startswith("sha256:")
    assert model.context == 128
    assert model.end_tokens == {0}
    quotes = model.tokens_with('"')
    assert quotes
    assert all('"' in model.decode([token]) for token in quotes)
    others = set(range(model.vocab_size)) - quotes
    assert not any('"' in model.decode([token]) for token in others)


def test_special_tokens_are_never_drawn_unless_the_model_may_end(tiny_gpt2):
    network = AutoModelForCausalLM.from_pretrained(tiny_gpt2)
    tokenizer = AutoTokenizer.from_pretrained(tiny_gpt2)
    # A mark of chats and a padding token; the latter has no row in the model's embeddings.
    tokenizer.add_special_tokens({"additional_special_tokens": [tokenizer.convert_ids_to_tokens(99)]})
    tokenizer.add_special_tokens({"pad_token": "[PAD]"})
    # The end and the mark are the likeliest by far, whatever was written; the rest is nearly uniform.
    network.lm_head = torch.nn.Linear(16, 300)
    with torch.no_grad():
        network.lm_head.weight.mul_(0.01)
        network.lm_head.bias.zero_()[[0, 99]] = 50.0
    model = TransformersModel(network, tokenizer, name="made", revision="test")
    assert model.end_tokens == {0, 99, 300}
    groups = some_groups(model, 20)
    wide = Sampling(top_k=0, top_p=1.0, max_tokens=12)
    drawn = {token for tokens in decoded(model, groups, 8, wide).values() for token in tokens}
    assert len(drawn) > 100
    assert not drawn & model.end_tokens
    ended = decoded(model, groups, 8, Sampling(top_k=5, top_p=0.9, max_tokens=12, may_end=True))
    assert {len(tokens) for tokens in ended.values()} == {1}
    assert {token for tokens in ended.values() for token in tokens} == {0, 99}


def test_text_survives_encode_and_decode(tiny_gpt2):
    model = load_model(str(tiny_gpt2), device="cpu")
    text = 'Sentence 1: "Zoë  said 你好 "\n\ttwice.'
    assert model.decode(model.encode(text)) == text


def test_a_model_is_shown_in_one_line(tiny_gpt2):
    name = str(tiny_gpt2)
    assert repr(load_model(name, device="cpu")) == f"TransformersModel({name!r}, dtype=float32, device=cpu)"
    half = load_model(name, device="cpu", dtype="bfloat16")
    assert repr(half) == f"TransformersModel({name!r}, dtype=bfloat16, device=cpu)"


@pytest.mark.parametrize("copied", [pickle.dumps, copy.deepcopy])
def test_a_packed_model_that_is_pickled_says_what_to_do_instead(tiny_gpt2, copied):
    model = load_model(str(tiny_gpt2), device="cpu")
    if not any(isinstance(module, PackedLinear) for module in model._model.modules()):
        pytest.skip("torch packs no weights on this machine")
    with pytest.raises(ModelError, match="cannot be pickled or copied; load it again where it is needed"):
        copied(model)


def test_a_folder_without_tokenizer_is_named(tiny_gpt2, tmp_path):
    AutoModelForCausalLM.from_pretrained(tiny_gpt2).save_pretrained(tmp_path / "bare")
    with pytest.raises(ModelError, match="holds no tokenizer") as caught:
        load_model(str(tmp_path / "bare"))
    assert "\n" not in str(caught.value)


def test_a_tokenizer_with_more_tokens_than_the_model(tiny_gpt2):
    network = AutoModelForCausalLM.from_pretrained(tiny_gpt2)
    tokenizer = AutoTokenizer.from_pretrained(tiny_gpt2)
    plain = tokenizer("some words")["input_ids"]
    size = len(tokenizer)
    tokenizer.add_tokens(["<later>"])  # never resized to
    tokenizer.chat_template = "{{ messages[0].content }}"
    assert network.get_input_embeddings().num_embeddings == size
    model = TransformersModel(network, tokenizer, name="mine", revision="0")
    assert model.encode("some words") == plain
    says = f"model mine: its tokenizer gives the token {size}, but the model has only {size:,} tokens; save"
    with pytest.raises(ModelError, match=says):
        model.encode("some <later> words")
    with pytest.raises(ModelError, match=says):
        model.encode_chat("some <later> words", '"')


@pytest.fixture(scope="module")
def starting_llama(tmp_path_factory):
    return make_llama(tmp_path_factory.mktemp("tiny") / "starting", starts=True)


def test_the_name_of_a_special_token_in_a_prompt_is_text(starting_llama):
    model = load_model(str(starting_llama), device="cpu")
    text = "Write <|endoftext|> or <s>."
    begin, *tokens = model.encode(text)
    assert model.encode("") == [begin] == [300]
    assert min(tokens) > 0
    assert max(tokens) < 300
    assert model.decode(tokens) == text


@pytest.mark.parametrize("message", ["Write.\n", " Say <|endoftext|>,\n<s> twice.", "\ufdd0<s>\ufdd0", "\n"])
def test_only_the_template_of_a_chat_has_special_tokens(message, starting_llama):
    model = load_model(str(starting_llama), device="cpu")
    tokenizer = model._tokenizer
    tokenizer.chat_template = "<s>You: {{ messages[0].content | trim }}<|endoftext|>\n<s>Me: "

    def ordinary(text):
        return tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]

    for answer in ('B: "', '<s>B: "'):
        tokens = model.encode_chat(message, answer)
        marks = [place for place, token in enumerate(tokens) if token in (0, 300)]
        assert [tokens[place] for place in marks] == [300, 0, 300]
        said, between, answered = (
            model.decode(tokens[start + 1 : end])
            for start, end in zip(marks, [*marks[1:], None], strict=True)
        )
        assert (said, between) == (f"You: {message.strip()}".replace("\ufdd0", ""), "\n")
        assert answered == f"Me: {answer}"
    if message == "Write.\n":  # as one text
        assert model.encode_chat(message, 'B: "') == [
            *(300, *ordinary("You: Write."), 0, *ordinary("\n"), 300, *ordinary('Me: B: "'))
        ]


def test_a_folder_that_is_no_model(tmp_path, tiny_gpt2):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match="holds no config.json"):
        load_model(str(tmp_path / "empty"))
    with pytest.raises(ModelError, match="no such folder"):
        load_model(str(tmp_path / "gone"))
    (tmp_path / "broken").mkdir()
    for file in tiny_gpt2.iterdir():
        data = b"{}" if file.name == "config.json" else file.read_bytes()
        (tmp_path / "broken" / file.name).write_bytes(data)
    with pytest.raises(ModelError, match="cannot be loaded as a causal language model"):
        load_model(str(tmp_path / "broken"))


def test_an_encoder_is_no_language_model(tiny_bert):
    with pytest.raises(ModelError, match="its weights lack cls.*not a causal language model"):
        load_model(str(tiny_bert))


def test_damaged_weights(tmp_path, tiny_gpt2):
    for file in tiny_gpt2.iterdir():
        data = file.read_bytes()
        (tmp_path / file.name).write_bytes(data[: len(data) // 2] if file.suffix == ".safetensors" else data)
    with pytest.raises(ModelError, match=r"its file model\.safetensors is damaged \("):
        load_model(str(tmp_path))


def test_a_recurrent_model_is_refused(tiny_gpt2):
    tokenizer = AutoTokenizer.from_pretrained(tiny_gpt2)
    config = MambaConfig(vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, state_size=4)
    model = TransformersModel(MambaForCausalLM(config), tokenizer, name="mamba", revision="test")
    with pytest.raises(ModelError, match="keeps no keys and values"):
        decoded(model, some_groups(model, 1), rows=4)


def test_probabilities_that_are_no_numbers_are_named(tiny_gpt2):
    model = load_model(str(tiny_gpt2), device="cpu")
    with torch.no_grad():
        model._model.transformer.ln_f.weight.fill_(torch.nan)
    with pytest.raises(ModelError, match="not finite numbers; use dtype float32"):
        decoded(model, some_groups(model, 2), rows=8)


def test_a_sessions_memory_goes_with_it(tiny_gpt2):
    model = load_model(str(tiny_gpt2), device="cpu")
    gc.collect()
    gc.disable()
    try:
        (group,) = some_groups(model, 1)
        decoder = MultiPromptDecoder(model, RULE, SAMPLING, 11, group.prompts, 8)
        decoder.add(group)
        list(decoder.finished())
        keys = weakref.ref(decoder._session._cache._tails.layers[0][0])
        assert keys() is not None
        del decoder
        assert keys() is None
    finally:
        gc.enable()


def test_prompts_of_very_different_lengths_are_computed_apart_on_a_cpu(tiny_gpt2, monkeypatch):
    computed = []
    compute = TransformersSession._compute_batch

    def noting(self, prompts, before):
        computed.append([len(prompt) for prompt in prompts])
        return compute(self, prompts, before)

    monkeypatch.setattr(TransformersSession, "_compute_batch", noting)
    model = load_model(str(tiny_gpt2), device="cpu")
    lengths = [90, 88, 70, 69, 20, 19, 4, 3]
    prompts = [(i, *range(20, 19 + length)) for i, length in enumerate(lengths)]
    session = model.session(8, prompts, 1)
    session.prefill(prompts)
    assert computed == [[69, 70, 88, 90], [3, 4, 19, 20]]  # 20 and 34 tokens of padding
    assert sorted(session._prompts) == sorted(prompts)
