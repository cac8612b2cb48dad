import json
import shutil
from dataclasses import replace
from functools import partial

import pytest
import torch
from safetensors.torch import save_file
from tests.tiny_bart import document, make_bart, weights
from tokenizers import Tokenizer, models, processors
from transformers import PreTrainedTokenizerFast

from pairsmith.core.errors import ModelError
from pairsmith.models.added_tokens import add_marker
from pairsmith.models.text_generator import (
    BEAMS,
    SUMMARY_TOKENS,
    encode_inputs,
    encode_targets,
    generate_outputs,
    input_features,
    load_text_generator,
    search_settings,
)

pytestmark = pytest.mark.slow

DOCUMENTS = [document(0), document(1)[:20], document(2) * 4, document(3)[:40]]


@pytest.fixture(scope="module")
def bart(tmp_path_factory):
    return make_bart(tmp_path_factory.mktemp("summarizer") / "bart")


@pytest.fixture
def summarizer(bart):
    return load_text_generator(str(bart), device="cpu")


def likeliest(summarizer, text, longest, shortest):
    """The likeliest token each time, without three tokens twice, written out step by step."""
    model, tokenizer = summarizer.model, summarizer.tokenizer
    inputs = tokenizer(text, truncation=True, max_length=64, return_tensors="pt")
    ids = [2]
    while len(ids) < longest:
        with torch.no_grad():
            logits = model(**inputs, decoder_input_ids=torch.tensor([ids])).logits[0, -1]
        for at in range(len(ids) - 2):
            if ids[at : at + 2] == ids[-2:]:
                logits[ids[at + 2]] = -torch.inf
        if len(ids) < shortest:
            logits[2] = -torch.inf
        ids.append(2 if len(ids) == longest - 1 else int(logits.argmax()))
        if ids[-1] == 2:
            break
    return tokenizer.decode(ids, skip_special_tokens=True).strip()


def test_with_one_beam_the_likeliest_token_is_taken(summarizer):
    expected = [likeliest(summarizer, text, 24, 11) for text in DOCUMENTS]
    assert generate_outputs(summarizer, DOCUMENTS, beams=1, output_tokens=24) == expected


def log_likelihood(summarizer, text, ids):
    inputs = summarizer.tokenizer(text, truncation=True, max_length=64, return_tensors="pt")
    with torch.no_grad():
        logits = summarizer.model(**inputs, decoder_input_ids=torch.tensor([ids[:-1]])).logits[0]
    return logits.log_softmax(-1).gather(1, torch.tensor(ids[1:])[:, None]).sum().item()


def test_beams_find_the_best_of_all_summaries_when_there_are_enough_of_them(tmp_path):
    # With 5 tokens in all, the start among them and the end forced, three are free, and no three can come
    # twice. As many beams as there are pairs of tokens leave nothing out. The forced end costs nothing.
    folder = make_bart(tmp_path / "bart", seed=5)
    summarizer = load_text_generator(str(folder), device="cpu")
    text = DOCUMENTS[0]
    allowed = [4, 40, 60]
    summarizer.model.generation_config.suppress_tokens = [n for n in range(330) if n not in {2, *allowed}]
    summaries = generate_outputs(summarizer, [text], beams=9, output_tokens=5)
    every = [[2, a, b, c, 2] for a in allowed for b in allowed for c in allowed]
    best = max(every, key=lambda ids: log_likelihood(summarizer, text, ids[:-1]))
    assert summaries == [summarizer.tokenizer.decode(best, skip_special_tokens=True).strip()]


@pytest.mark.parametrize("threads", [pytest.param(1, marks=pytest.mark.long), 2])
def test_summaries_are_the_same_in_any_batch_and_on_any_number_of_threads(summarizer, threads):
    heard = []
    alone = [generate_outputs(summarizer, [text], beams=3)[0] for text in DOCUMENTS]
    torch.set_num_threads(threads)
    try:
        for batch_size in (1, 3, 8):
            summaries = generate_outputs(
                summarizer, DOCUMENTS, beams=3, batch_size=batch_size, advance=lambda done: heard.append(done)
            )
            assert summaries == alone
    finally:
        torch.set_num_threads(1)
    assert sum(heard) == 3 * len(DOCUMENTS)
    assert heard[:4] == [1] * 4


def test_how_summaries_are_written_is_that_of_barts_authors_for_xsum(summarizer):
    how = search_settings(summarizer, BEAMS, SUMMARY_TOKENS)
    assert (how.num_beams, how.length_penalty, how.no_repeat_ngram_size) == (6, 1.0, 3)
    assert (how.min_length, how.max_length, how.early_stopping) == (11, 62, True)
    assert (how.decoder_start_token_id, how.pad_token_id, how.forced_eos_token_id) == (2, 1, 2)
    assert search_settings(summarizer, 1, 5).min_length == 5
    assert search_settings(summarizer, 1, 1000).max_length == 64  # the model has no more positions


def test_what_a_model_says_of_its_search_does_not_count(bart, tmp_path):
    folder = shutil.copytree(bart, tmp_path / "copy")
    path = folder / "generation_config.json"
    own = {
        "num_beams": 2,
        "min_length": 30,
        "max_new_tokens": 3,
        "repetition_penalty": 9.0,
        "do_sample": True,
    }
    path.write_text(json.dumps(json.loads(path.read_text()) | own))
    texts = [
        generate_outputs(load_text_generator(str(source), device="cpu"), DOCUMENTS[:2], beams=2)
        for source in (bart, folder)
    ]
    assert texts[0] == texts[1]


def test_of_a_document_that_is_too_long_the_beginning_is_read(summarizer, bart):
    text = document(2) * 4
    (ids,) = encode_inputs(summarizer, [text])
    assert len(ids) == 64
    assert (ids[0], ids[-1]) == (0, 2)
    assert generate_outputs(summarizer, [text], beams=2) == generate_outputs(
        summarizer, [text + document(5)], beams=2
    )
    assert load_text_generator(str(bart), device="cpu", max_length=9999).max_length == 64
    short = load_text_generator(str(bart), device="cpu", max_length=16)
    assert (short.max_length, short.context) == (16, 64)
    assert len(encode_inputs(short, [text])[0]) == 16
    assert len(encode_targets(short, [text], 62)[0]) == 62
    assert len(encode_targets(short, [text], 99)[0]) == 64


def test_no_documents_have_no_summaries(summarizer):
    assert generate_outputs(summarizer, []) == []


def test_features_are_padded_on_the_right(summarizer):
    features = input_features(summarizer, [[0, 7, 2], [0, 2]])
    assert features["input_ids"].tolist() == [[0, 7, 2], [0, 2, 1]]
    assert features["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0]]


def test_a_marker_becomes_one_token_whose_vector_is_the_mean(bart, summarizer, tmp_path):
    before = weights(bart)["model.shared.weight"]
    ahead = generate_outputs(summarizer, DOCUMENTS, beams=2)
    torch.manual_seed(3)
    add_marker(summarizer, "<mined>")
    drawn = torch.rand(1)
    torch.manual_seed(3)
    assert torch.equal(torch.rand(1), drawn)  # nothing was drawn from the process's own generator
    table = summarizer.model.get_input_embeddings().weight
    assert table is summarizer.model.get_output_embeddings().weight
    assert torch.equal(table[:-1], before)
    assert torch.allclose(table[-1], before.mean(0))
    (ids,) = encode_inputs(summarizer, ["<mined>" + DOCUMENTS[1]], marker="<mined>")
    (plain,) = encode_inputs(summarizer, DOCUMENTS[1:2])
    assert ids == [plain[0], len(before), *plain[1:]]
    assert generate_outputs(summarizer, DOCUMENTS, beams=2) == ahead
    add_marker(summarizer, "<mined>")  # it is there
    assert len(summarizer.tokenizer) == len(table) == len(before) + 1
    summarizer.model.save_pretrained(tmp_path)
    summarizer.tokenizer.save_pretrained(tmp_path)
    again = load_text_generator(str(tmp_path), device="cpu")
    assert encode_inputs(again, ["<mined>" + DOCUMENTS[1]], marker="<mined>") == [ids]
    assert generate_outputs(again, DOCUMENTS, beams=2) == ahead


def test_the_names_of_special_tokens_in_documents_and_summaries_are_text(bart):
    summarizer = load_text_generator(str(bart), device="cpu")
    add_marker(summarizer, "<mined>")
    mined = summarizer.tokenizer.convert_tokens_to_ids("<mined>")
    text = "A </s> b <mined> c"
    for (ids,) in (encode_inputs(summarizer, [text]), encode_targets(summarizer, [text], 62)):
        assert (ids[0], ids[-1]) == (0, 2)
        assert not {0, 1, 2, 3, mined} & set(ids[1:-1])
        assert summarizer.tokenizer.decode(ids[1:-1]) == text
    for (ids,) in (
        encode_inputs(summarizer, [text], marker="<mined>"),
        encode_targets(summarizer, [text], 62, "<mined>"),
    ):
        place = ids.index(mined)
        parts = [summarizer.tokenizer.decode(part) for part in (ids[1:place], ids[place + 1 : -1])]
        assert parts == ["A </s> b ", " c"]
    assert len(encode_targets(summarizer, [text], 5, "<mined>")[0]) == 5
    assert encode_targets(summarizer, [text], 1) == [[0, 2]]


def test_a_tokenizer_of_another_script_may_have_no_token_for_a(summarizer):
    pieces = Tokenizer(models.BPE({"<s>": 0, "<pad>": 1, "</s>": 2, "か": 3, "き": 4}, []))
    pieces.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=pieces, pad_token="<pad>", eos_token="</s>")
    of_kana = replace(summarizer, tokenizer=tokenizer)
    assert encode_inputs(of_kana, ["b", "かき"]) == [[0, 2], [0, 3, 4, 2]]
    assert encode_targets(of_kana, ["き"], 62) == [[0, 4, 2]]
    assert encode_inputs(of_kana, ["b"]) == [[0, 2]]


def test_texts_are_tokenized_all_at_once(bart, monkeypatch):
    summarizer = load_text_generator(str(bart), device="cpu")
    add_marker(summarizer, "<mined>")
    texts = ["", " ", "<mined>", *DOCUMENTS, *(f"<mined>{document}" for document in DOCUMENTS)]
    one_by_one = [encode_inputs(summarizer, [text], marker="<mined>")[0] for text in texts]
    calls, tokenize = [], type(summarizer.tokenizer).__call__

    def counting(*args, **options):
        calls.append(args)
        return tokenize(*args, **options)

    monkeypatch.setattr(type(summarizer.tokenizer), "__call__", counting)
    assert encode_inputs(summarizer, texts, marker="<mined>") == one_by_one
    assert len(calls) == 2  # the other call is for the special tokens around a text
    assert encode_inputs(summarizer, []) == []


def test_a_token_that_the_model_has_no_vector_for_is_an_error_of_the_model(bart):
    summarizer = load_text_generator(str(bart), device="cpu")
    count = len(summarizer.tokenizer)
    summarizer.tokenizer.add_tokens(["unheard"])
    assert len(generate_outputs(summarizer, ["A man"])) == 1
    for encode in (encode_inputs, partial(encode_targets, tokens=9)):
        with pytest.raises(ModelError, match=f"gives the token {count}, but the model has vectors only for"):
            encode(summarizer, ["A man unheard"])


def make_t5(folder, *, own_output=False, **changes):
    from transformers import T5Config, T5ForConditionalGeneration

    make_bart(folder)  # for its tokenizer
    values = {"vocab_size": 330, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    tokens = {"pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        T5ForConditionalGeneration(T5Config(**(values | tokens | changes))).save_pretrained(folder)
        if own_output:  # as Flan-T5 has
            saved = weights(folder)
            saved["lm_head.weight"] = torch.randn_like(saved["shared.weight"])
            save_file(saved, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_of_two_tables_both_get_the_mean_and_stay_two(tmp_path, capfd):
    folder = make_t5(tmp_path / "t5", own_output=True)
    capfd.readouterr()
    summarizer = load_text_generator(str(folder), device="cpu")
    assert capfd.readouterr() == ("", "")
    model = summarizer.model
    tables = [model.get_input_embeddings().weight.clone(), model.get_output_embeddings().weight.clone()]
    assert not torch.equal(*tables)
    add_marker(summarizer, "<mined>")
    for module, before in zip(
        (model.get_input_embeddings(), model.get_output_embeddings()), tables, strict=True
    ):
        assert torch.equal(module.weight[:-1], before)
        assert torch.allclose(module.weight[-1], before.mean(0))
    written = generate_outputs(summarizer, DOCUMENTS, beams=2)
    model.save_pretrained(tmp_path / "saved")
    summarizer.tokenizer.save_pretrained(tmp_path / "saved")
    assert (
        generate_outputs(load_text_generator(str(tmp_path / "saved"), device="cpu"), DOCUMENTS, beams=2)
        == written
    )


def test_a_table_with_rows_to_spare_stays_as_it_is(tmp_path):
    summarizer = load_text_generator(str(make_t5(tmp_path / "t5", vocab_size=336)), device="cpu")
    add_marker(summarizer, "<mined>")
    assert summarizer.model.get_input_embeddings().num_embeddings == 336
    assert summarizer.tokenizer.convert_tokens_to_ids("<mined>") == 330


def test_scores_that_are_no_numbers_are_an_error(summarizer):
    with torch.no_grad():
        summarizer.model.lm_head.weight[5] = torch.nan
    with pytest.raises(ModelError, match="scores are not numbers; its weights are damaged"):
        generate_outputs(summarizer, DOCUMENTS)


def test_loading_says_nothing_and_the_weights_come_in_the_format_asked_for(bart, capfd):
    capfd.readouterr()
    summarizer = load_text_generator(str(bart), device="cpu", dtype="bfloat16")
    assert len(generate_outputs(summarizer, DOCUMENTS, beams=2)) == 4
    assert {weight.dtype for weight in summarizer.model.parameters()} == {torch.bfloat16}
    assert capfd.readouterr() == ("", "")


def test_a_bart_that_was_saved_without_its_language_model_is_whole(bart, tmp_path):
    # As facebook/bart-base and bart-large were: the head's weights are those of the word vectors.
    folder = shutil.copytree(bart, tmp_path / "copy")
    bare = {
        name.removeprefix("model."): value
        for name, value in weights(bart).items()
        if name != "final_logits_bias"
    }
    save_file(bare, folder / "model.safetensors", metadata={"format": "pt"})
    summarizer = load_text_generator(str(folder), device="cpu")
    assert generate_outputs(summarizer, DOCUMENTS[:1]) == generate_outputs(
        load_text_generator(str(bart), device="cpu"), DOCUMENTS[:1]
    )


@pytest.mark.parametrize("lost", ["decoder.layers.0.fc1.weight", "model.shared.weight"])
def test_a_model_that_would_be_partly_random_is_refused(bart, tmp_path, lost):
    folder = shutil.copytree(bart, tmp_path / "copy")
    kept = {name: value for name, value in weights(bart).items() if lost not in name}
    assert len(kept) < len(weights(bart))
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"its weights lack .* missing in all"):
        load_text_generator(str(folder), device="cpu")


def test_a_t5_that_lacks_weights_is_refused(tmp_path):
    folder = make_t5(tmp_path / "t5")
    lost = "decoder.block.0.layer.0.SelfAttention.q.weight"
    kept = {name: value for name, value in weights(folder).items() if name != lost}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=rf"its weights lack {lost} \(1 missing in all\)"):
        load_text_generator(str(folder), device="cpu")


def test_models_of_another_kind_are_refused(tiny_bert, silent_model):
    with pytest.raises(ModelError, match="no continuation for models of type distilbert; give BART, T5"):
        load_text_generator(str(silent_model), device="cpu")
    with pytest.raises(ModelError, match="no summarization for models of type bert; give BART, T5"):
        load_text_generator(str(tiny_bert), device="cpu")


def test_a_model_that_does_not_say_where_a_text_starts_is_refused(bart, tmp_path):
    folder = shutil.copytree(bart, tmp_path / "copy")
    for name in ("config.json", "generation_config.json"):
        values = json.loads((folder / name).read_text())
        without = values | {"decoder_start_token_id": None, "bos_token_id": None}
        (folder / name).write_text(json.dumps(without))
    with pytest.raises(ModelError, match="does not say which token a summary starts from"):
        load_text_generator(str(folder), device="cpu")
