"""The bi-encoder's loss and the cross-encoder's, against numbers by hand."""

import math

import numpy as np
import pytest
import torch

from pairsmith.core.errors import ModelError
from pairsmith.data.examples import Example
from pairsmith.methods.mining import biencoder, crossencoder
from pairsmith.methods.mining.crossencoder import binary_losses, listwise_losses
from pairsmith.methods.mining.options import CrossencoderOptions
from pairsmith.methods.mining.style import StyleClassifier, load_style_classifier
from pairsmith.training.contrastive import contrastive_loss

X = torch.tensor([[2.0, 0.0], [0.0, 3.0]])
Y = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, -1.0]])  # two outputs and an added wrong one
NONE = torch.zeros(2, 3, dtype=torch.bool)
HALF = math.sqrt(0.5)


def test_the_contrastive_loss_by_hand():
    # Cosines: x0 1, 0.7071, 0; x1 0, 0.7071, -1.
    rows = [([1, HALF, 0], 0), ([0, HALF, -1], 1)]
    for scale in (1.0, 20.0):
        expected = (
            sum(-scale * c[own] + math.log(sum(math.exp(scale * cosine) for cosine in c)) for c, own in rows)
            / 2
        )
        assert contrastive_loss(X, Y, NONE, scale).item() == pytest.approx(expected, abs=1e-5)


def test_autocast_rounds_no_cosine():
    x, y = torch.randn(2, 32, 64, generator=torch.Generator().manual_seed(1)) * 0.05 + 0.1
    none = torch.zeros(32, 32, dtype=torch.bool)
    with torch.autocast("cpu", torch.bfloat16):
        loss = contrastive_loss(x, y, none, 20.0)
    assert loss.dtype == torch.float32
    assert torch.equal(loss, contrastive_loss(x, y, none, 20.0))


def test_an_output_that_is_right_too_is_left_out():
    same = NONE.clone()
    same[0, 0] = same[0, 1] = same[1, 1] = True
    expected = -1 + math.log(math.e + 1)
    expected += -HALF + math.log(1 + math.exp(HALF) + math.exp(-1))
    assert contrastive_loss(X, Y, same, 1.0).item() == pytest.approx(expected / 2, abs=1e-6)


SCORES = torch.tensor([2.0, 0.0, -1.0, 1.0])  # two inputs: one right and two wrong; one right alone
ROW = torch.tensor([0, 0, 0, 1])


def test_the_losses_of_the_cross_encoder_by_hand():
    def minus_log_sigmoid(x):
        return math.log(1 + math.exp(-x))

    binary = (minus_log_sigmoid(2) + minus_log_sigmoid(0) + minus_log_sigmoid(1) + minus_log_sigmoid(1)) / 4
    right = torch.tensor([1.0, 0.0, 0.0, 1.0])
    assert binary_losses(SCORES, right).mean().item() == pytest.approx(binary, abs=1e-6)
    half = (minus_log_sigmoid(2) + minus_log_sigmoid(-2)) / 2  # as right as wrong
    assert binary_losses(SCORES[:1], torch.tensor([0.5])).item() == pytest.approx(half, abs=1e-6)
    listwise = (-2 + math.log(math.exp(2) + 1 + math.exp(-1)) + 0) / 2
    assert listwise_losses(SCORES, ROW).mean().item() == pytest.approx(listwise, abs=1e-6)


def test_the_retrieval_accuracy_by_hand(monkeypatch):
    vectors = {"a": [1, 0], "b": [0, 1], "c": [1, 1], "d": [1, -1]}  # the inputs
    vectors |= {"a1": [2, 0], "b1": [1, 0.1], "c1": [0, 1], "c2": [3, 3], "d1": [1, -2], "d2": [2, -4]}
    vectors |= {"negative": [0, 5]}
    monkeypatch.setattr(
        biencoder, "encode_texts", lambda _, texts, side: np.array([vectors[text] for text in texts])
    )
    pairs = [("a", "a1"), ("b", "b1"), ("c", "c2"), ("c", "c1"), ("d", "d1")]
    examples = [Example(*pair) for pair in pairs]

    def accuracy(negatives):
        return biencoder.retrieval_accuracy(None, examples, lambda number, rng: negatives)

    assert accuracy([]) == pytest.approx(60)  # c1 is nearer to b than b1; a1 and b1 are nearer to c than c1
    # A text that is as near as the own output counts as nearer, so that equal vectors are no success.
    assert accuracy(["d2"]) == pytest.approx(40)
    vectors["negative"] = [math.nan, 0]
    assert accuracy(["negative"]) is None


def test_the_ranking_accuracy_by_hand(monkeypatch):
    scores = {("a", "right"): 2.0, ("a", "wrong"): 1.0, ("b", "right"): 1.0, ("b", "wrong"): 1.0}
    monkeypatch.setattr(
        crossencoder,
        "score_pairs",
        lambda _, inputs, outputs: np.array([scores[pair] for pair in zip(inputs, outputs, strict=True)]),
    )
    examples = [Example("a", "right"), Example("b", "right")]
    assert crossencoder.ranking_accuracy(None, examples, lambda number, rng: ["wrong"]) == 50
    assert crossencoder.ranking_accuracy(None, examples, lambda number, rng: []) == 100


def test_an_input_has_as_many_negatives_as_asked_for_although_its_own_output_is_none():
    examples = [Example(name, f"output of {name}") for name in "abcd"]
    draw = crossencoder.negatives_for(examples, None, CrossencoderOptions(base="b", negatives=3))
    others = {example.output for example in examples[1:]}
    assert all(set(draw(0, np.random.default_rng(seed))) == others for seed in range(10))


def test_the_style_of_vectors_by_hand(tmp_path):
    style = StyleClassifier(np.array([2.0, 0.0], np.float32), -1.0)
    vectors = np.array([[3, 4], [0, 2], [0, 0]], np.float32)
    likely = [1 / (1 + math.exp(-x)) for x in (0.2, -1.0, -1.0)]
    assert style.probability(vectors).tolist() == pytest.approx(likely, abs=1e-6)
    assert load_style_classifier(str(tmp_path)) is None
    style.save(tmp_path)
    assert load_style_classifier(str(tmp_path)).probability(vectors).tolist() == pytest.approx(
        likely, abs=1e-6
    )
    (tmp_path / "style.safetensors").write_bytes(b"junk")
    with pytest.raises(ModelError, match="train the encoder again"):
        load_style_classifier(str(tmp_path))


class Width(torch.nn.Module):
    """Stands for an encoder of vectors of two numbers."""

    def get_embedding_dimension(self):
        return 2


@pytest.mark.parametrize("side", ["query", "document"])
def test_the_loss_of_a_batch_adds_the_style_classifiers_to_the_contrastive_by_hand(side, monkeypatch):
    """The seeds' questions, or their outputs without the added negatives, are told from corpus texts (M4)."""
    others = torch.tensor([[0.0, 5.0]])
    monkeypatch.setattr(biencoder, "side_vectors", lambda _, features, side: features)
    model = biencoder.BiEncoder(Width(), scale=20.0, style=side, style_weight=0.5)
    with torch.no_grad():
        model.style.weight[:] = torch.tensor([[0.02, -0.01]])  # times 100: 2 and -1
        model.style.bias[:] = 0.003

    def logit(vector):
        x, y = (number / math.hypot(*vector) for number in vector)
        return 2 * x - y + 0.3

    seeds = X.tolist() if side == "query" else Y[:2].tolist()
    of_seeds = sum(math.log(1 + math.exp(-logit(seed))) for seed in seeds) / 2
    of_others = math.log(1 + math.exp(logit([0.0, 5.0])))
    expected = contrastive_loss(X, Y, NONE, 20.0).item() + 0.5 * (of_seeds + of_others) / 2
    assert model(X, Y, NONE, others)["loss"].item() == pytest.approx(expected, rel=1e-5)
    assert model(X, Y, NONE)["loss"].item() == pytest.approx(contrastive_loss(X, Y, NONE, 20.0).item())
    style = model.style_classifier()
    assert style.probability(np.array([[3, 4]], np.float32)).item() == pytest.approx(
        1 / (1 + math.exp(-logit([3, 4]))), rel=1e-5
    )
