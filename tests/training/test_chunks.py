"""A batch computed in chunks."""

import math
from itertools import chain, pairwise, product
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from pairsmith.training import chunks
from pairsmith.training.chunks import activation_bytes, compute_chunks, grouped, sum_of_losses


class Line(nn.Module):
    """Two weights, of which a chunk uses the second or does not, and one that is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.tensor(2.0))
        self.height = nn.Parameter(torch.tensor(1.0))
        self.unused = nn.Parameter(torch.tensor(5.0))
        self.fixed = nn.Parameter(torch.tensor(3.0), requires_grad=False)

    def losses(self, chunk: Any) -> Tensor:
        squares: Tensor = (self.slope * chunk["x"]) ** 2
        return squares + self.height * self.fixed if chunk["high"] else squares


CHUNKS = [
    {"x": torch.tensor([1.0, 3.0]), "high": False},
    {"x": torch.tensor([2.0]), "high": True},
    {"x": torch.tensor([0.5]), "high": True},
]


def test_gradients_are_those_of_the_sum() -> None:
    line = Line()
    loss = sum_of_losses(line.losses, CHUNKS, line) / 4
    loss.backward()
    assert loss.item() == pytest.approx((4 * 14.25 + 2 * 3) / 4)
    assert line.slope.grad is not None
    assert line.slope.grad.item() == pytest.approx(2 * 2 * 14.25 / 4)
    assert line.height.grad is not None
    assert line.height.grad.item() == pytest.approx(2 * 3 / 4)
    assert line.unused.grad is None
    assert line.fixed.grad is None


def test_gradients_add_up_over_batches() -> None:
    line = Line()
    for _ in range(2):
        sum_of_losses(line.losses, CHUNKS, line).backward()
    assert line.slope.grad is not None
    assert line.slope.grad.item() == pytest.approx(2 * 2 * 2 * 14.25)


def test_without_gradients_it_is_the_sum() -> None:
    line = Line()
    with torch.no_grad():
        total = sum_of_losses(line.losses, CHUNKS, line)
    assert total.item() == pytest.approx(4 * 14.25 + 2 * 3)
    assert not total.requires_grad
    line.requires_grad_(False)
    assert not sum_of_losses(line.losses, CHUNKS, line).requires_grad


def test_weights_with_one_gradient_between_them_keep_their_own() -> None:
    twins = nn.ParameterList([torch.tensor([1.0, 1.0]), torch.tensor([2.0, 2.0])])
    chunks = [{"x": torch.tensor([1.0, 2.0])}, {"x": torch.tensor([3.0, 4.0])}]
    sum_of_losses(lambda chunk: (twins[0] + twins[1]) * chunk["x"], chunks, twins).backward()
    assert [twin.grad.tolist() for twin in twins] == [[4.0, 6.0], [4.0, 6.0]]


def test_so_they_do_in_a_single_chunk() -> None:
    twins = nn.ParameterList([torch.tensor([1.0, 1.0]), torch.tensor([2.0, 2.0])])
    for _ in range(2):
        chunk = {"x": torch.tensor([1.0, 2.0])}
        sum_of_losses(lambda chunk: (twins[0] + twins[1]) * chunk["x"], [chunk], twins).backward()
    assert [twin.grad.tolist() for twin in twins] == [[2.0, 4.0], [2.0, 4.0]]


def test_backward_is_in_forwards_formats() -> None:
    weight = nn.Linear(64, 64, bias=False)
    x = torch.randn(8, 64, generator=torch.Generator().manual_seed(0))

    def losses(chunk: Any) -> Tensor:
        with torch.autocast("cpu", enabled=False):  # as where a model's last product is in float32
            return weight(chunk["x"]).square().sum(1)

    sum_of_losses(losses, [{"x": x}], weight).backward()
    exact = weight.weight.grad
    weight.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = sum_of_losses(losses, [{"x": x}], weight)
    loss.backward()
    assert exact is not None
    assert weight.weight.grad is not None
    assert torch.equal(weight.weight.grad, exact)


def groups(lengths: list[int], batch_tokens: int | None = None) -> list[list[int]]:
    batch = grouped(lengths, lambda numbers: {"numbers": numbers}, torch.device("cpu"), batch_tokens)
    numbers = [chunk["numbers"] for chunk in batch["chunks"]]
    assert batch["order"].tolist() == list(chain.from_iterable(numbers))
    return numbers


def test_a_group_ends_where_its_padding_would_exceed_a_call() -> None:
    # 2,048 tokens at once on a processor, of which a call takes as long as 64.
    assert groups([100, 163]) == [[1, 0]]
    assert groups([100, 165]) == [[1], [0]]
    assert groups([7, 7, 7]) == [[0, 1, 2]]
    # In one group 4 * 90 tokens, in two 2 * 90 + 2 * 40 and another call.
    assert groups([40, 90, 40, 90]) == [[1, 3], [0, 2]]
    assert groups([]) == []


def test_a_group_has_no_more_tokens_than_were_asked_for() -> None:
    assert groups([7, 7, 7], 14) == [[0], [1, 2]]
    assert groups([5, 7, 6, 20], 13) == [[3], [1], [2, 0]]


@given(st.lists(st.integers(1, 200), min_size=1, max_size=9), st.one_of(st.none(), st.integers(1, 500)))
def test_no_other_groups_take_less_time(lengths: list[int], most: int | None) -> None:
    def cost(groups: list[list[int]]) -> float:
        total = 0
        for group in groups:
            tokens = lengths[group[0]] * len(group)
            if most and tokens > most and len(group) > 1:
                return math.inf
            total += tokens + 64
        return total

    all_groups = groups(lengths, most)
    order = list(chain.from_iterable(all_groups))
    assert sorted(order) == list(range(len(lengths)))
    assert [lengths[number] for number in order] == sorted(lengths, reverse=True)
    others = []
    for ends in product([False, True], repeat=len(order) - 1):
        cuts = [0, *(place for place, cut in enumerate(ends, 1) if cut), len(order)]
        others.append(cost([order[start:end] for start, end in pairwise(cuts)]))
    assert cost(all_groups) == min(others)


def test_what_there_is_no_room_for_is_recomputed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "KEPT_BYTES", 5)
    calls: list[int] = []
    parts = [torch.arange(8.0) + number for number in range(4)]
    inputs = {"chunks": [{"x": part, "number": n} for n, part in enumerate(parts)]}
    inputs |= {"order": torch.tensor([3, 1, 2, 0])}
    bytes_of = [3.0, 4.0, 2.0, 1.0]
    gradients = []
    for kept in (lambda _: math.inf, lambda chunk: bytes_of[chunk["number"]], lambda _: 0.0):
        weight = torch.tensor(2.0, requires_grad=True)
        torch.manual_seed(1)

        def compute(chunk: Any, weight: Tensor = weight) -> Tensor:
            calls.append(chunk["number"])
            return nn.functional.dropout((weight * chunk["x"]) ** 2, 0.5)[None]

        calls.clear()
        results = compute_chunks(compute, inputs, kept)
        assert calls == [0, 1, 2, 3]
        results.square().sum().backward()
        gradients.append((results.detach(), weight.grad))
        again = {0: [0, 1, 2, 3], 1: [1, 3], 2: []}[len(gradients) - 1]
        assert sorted(calls[4:]) == again
    for values, gradient in gradients[1:]:
        assert torch.equal(values, gradients[0][0])
        assert torch.equal(gradient, gradients[0][1])


def test_the_bytes_that_are_kept() -> None:
    chunk = {"input_ids": torch.zeros(3, 5, dtype=torch.int64)}
    sizes = {"num_hidden_layers": 2, "hidden_size": 4, "num_attention_heads": 2}
    assert activation_bytes(SimpleNamespace(**sizes, intermediate_size=8), chunk) == 4 * 15 * 2 * (
        48 + 32 + 30
    )
    assert activation_bytes(SimpleNamespace(**sizes), chunk) == 4 * 15 * 2 * (48 + 64 + 30)
    assert activation_bytes(SimpleNamespace(**sizes, intermediate_size=8), {}) == math.inf
    del sizes["hidden_size"]
    assert activation_bytes(SimpleNamespace(**sizes), chunk) == math.inf
    assert activation_bytes(None, chunk) == math.inf


def test_they_are_about_those_of_a_model() -> None:
    config = BertConfig(
        vocab_size=50, hidden_size=64, num_hidden_layers=3, num_attention_heads=4, intermediate_size=256
    )
    config._attn_implementation = "eager"
    model = BertModel(config)
    chunk = {"input_ids": torch.ones(8, 32, dtype=torch.int64)}
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    kept: dict[int, int] = {}

    def note(values: Tensor) -> Tensor:
        storage = values.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return values

    with torch.autograd.graph.saved_tensors_hooks(note, lambda values: values):
        result = model(**chunk).last_hidden_state
    assert result.requires_grad
    real = sum(size for place, size in kept.items() if place not in weights)
    assert 0.6 < activation_bytes(config, chunk) / real < 1.6
