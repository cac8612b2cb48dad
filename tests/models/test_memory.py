"""How many rows fit, and what happens when memory is short."""

from types import SimpleNamespace

import pytest
import torch

from pairsmith.models import memory
from pairsmith.models.language import kv_store, packed_weights
from pairsmith.models.language.kv_store import Store
from pairsmith.models.language.loading import load_model
from pairsmith.models.memory import MOST_ROWS, MOST_TOKENS


def test_what_is_free_is_less_than_there_is():
    assert 0 < memory.free_memory(torch.device("cpu")) < 2**50


def test_a_containers_limit_counts(tmp_path, monkeypatch):
    (tmp_path / "max").write_text("5000000\n")
    (tmp_path / "current").write_text("2000000\n")
    limit = (str(tmp_path / "max"), str(tmp_path / "current"))
    monkeypatch.setattr(memory, "_LIMITS", (limit,))
    assert memory.free_memory(torch.device("cpu")) == 3_000_000
    (tmp_path / "max").write_text("max\n")
    assert memory.free_memory(torch.device("cpu")) > 3_000_000


@pytest.mark.parametrize(
    ("free", "tokens", "rows"),
    # GPT-2 of 2 layers of 16 in float32: 256 bytes a token; 300 logits of 12 bytes: 3,600 bytes a row.
    [(2**40, 100, MOST_ROWS["cpu"]), (2 * 100 * (3_600 + 100 * 256), 100, 100), (0, 100, 16)],
)
def test_rows_that_fit(tiny_gpt2, monkeypatch, free, tokens, rows):
    model = load_model(str(tiny_gpt2), device="cpu")
    config = model._model.config
    assert (config.n_layer, config.n_embd, model.vocab_size) == (2, 16, 300)
    monkeypatch.setattr("pairsmith.models.language.transformers_backend.free_memory", lambda _: free)
    assert model.rows_that_fit(tokens) == rows


def test_a_small_model_computes_many_tokens_in_the_time_of_a_call(tiny_gpt2, monkeypatch):
    assert load_model(str(tiny_gpt2), device="cpu").session(1, [(1,)], 1).call_tokens == 0
    free = 2**40
    monkeypatch.setattr(memory, "free_memory", lambda _: free)

    def tokens(parameters, device="cuda", dtype=torch.bfloat16):
        weights = torch.empty(parameters, device="meta")
        model = SimpleNamespace(device=torch.device(device), dtype=dtype, parameters=lambda: iter([weights]))
        return memory.call_tokens(model, 1_000)

    assert tokens(10**6) == MOST_TOKENS
    assert tokens(5 * 10**8) == 5_000
    assert tokens(5 * 10**8, dtype=torch.float32) == 500
    assert tokens(5 * 10**8, device="mps") == 0
    free = 8_000_000
    assert tokens(5 * 10**8) == 1_000


def test_memory_that_is_not_there_is_a_memory_error(monkeypatch):
    def refused(*_, **__):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(kv_store.mmap, "mmap", refused)
    state = torch.zeros(2, 3, 4)
    with pytest.raises(MemoryError, match="bytes for keys and values"):
        Store(5, 3).prepare([(state, state)])


def test_a_store_gives_back_what_was_written_and_begins_with_zeros():
    store = Store(3, 8)
    keys, values = torch.randn(2, 2, 5, 4)
    store.prepare([(keys, values)])
    assert not store.layers[0][0].any()
    store.write(1, [(keys, values)])
    assert [torch.equal(*pair) for pair in zip(store.read(1)[0], (keys, values), strict=True)] == [True, True]


@pytest.mark.parametrize("gone", ["_linear_pointwise", "_is_mkldnn_bf16_supported"])
def test_without_what_packing_needs_a_model_stays_as_it_is(tiny_gpt2, monkeypatch, gone):
    class Ops:
        def __getattr__(self, name):
            if name == gone:
                raise AttributeError(name)
            return getattr(torch.ops.mkldnn, name)

    monkeypatch.setattr(packed_weights, "_OPS", Ops())
    model = load_model(str(tiny_gpt2), device="cpu", dtype="bfloat16")
    assert not any(isinstance(module, packed_weights.PackedLinear) for module in model._model.modules())


def test_on_a_gpu_what_the_process_keeps_for_its_next_tensors_is_free(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (5, 100))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 30)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 10)
    assert memory.free_memory(torch.device("cuda")) == 25
