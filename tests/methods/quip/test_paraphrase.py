from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from pairsmith.core.errors import InputError, SettingsError
from pairsmith.data.paraphrases import Paraphrase
from pairsmith.data.schemas import GradedPair
from pairsmith.methods.quip.paraphrase import (
    Head,
    best_layer,
    detect_paraphrases,
    draw_paraphrases,
    fine_tune,
    labels_of,
    last_layers,
    layer_correlations,
    predict_frozen,
    usual_layer,
)
from pairsmith.metrics.bertscore import BertScorer
from pairsmith.models.token_vectors import load_token_encoder

TEXTS = ["A man is playing.", "A woman is slicing an onion.", "Two dogs run.", "They said so.", "It is cold."]


def test_the_usual_layer_is_five_sixths_of_the_way_up():
    assert [usual_layer(layers) for layers in (24, 12, 6, 1)] == [20, 10, 5, 1]


def test_the_features_are_of_the_last_eight_layers():
    assert list(last_layers(SimpleNamespace(layers=24))) == [17, 18, 19, 20, 21, 22, 23, 24]
    assert list(last_layers(SimpleNamespace(layers=6))) == [1, 2, 3, 4, 5, 6]


def test_the_frozen_classifier_has_the_least_regularised_loss_on_standardised_scores():
    """With C = 1, and as liblinear does, the intercept counts as one of the weights (Q9)."""
    rng = np.random.default_rng(0)
    labels = np.repeat([False, True], 16)
    features = 0.9 + 1e-3 * (rng.standard_normal((32, 8)) + labels[:, None] * rng.standard_normal(8))
    test = 0.9 + 1e-3 * rng.standard_normal((400, 8))
    mean, deviation = features.mean(axis=0), features.std(axis=0)
    rows, test_rows = (
        np.column_stack([(scores - mean) / deviation, np.ones(len(scores))]) for scores in (features, test)
    )
    sign = np.where(labels, 1, -1)

    def objective(weights, c):
        return weights @ weights / 2 + c * np.logaddexp(0, -sign * (rows @ weights)).sum()

    def logits(c):
        return test_rows @ minimize(objective, np.zeros(9), c, tol=1e-10).x

    clear = np.abs(logits(1.0)) > 0.01  # liblinear stops a little before the minimum
    predicted = predict_frozen(features, labels, test)
    assert (predicted[clear] == (logits(1.0) > 0)[clear]).all()
    assert all((predicted[clear] != (logits(c) > 0)[clear]).any() for c in (0.1, 10.0))


def test_a_layer_is_as_good_as_its_correlations_are_on_average():
    """Three languages: layer 1 agrees with people in two of them, layer 2 nearly in all, layer 3 is constant."""
    people = [0.0, 1.0, 2.0]
    judgements = {name: [GradedPair(name, str(score), score) for score in people] for name in "abc"}
    by_layer = {"a": [[0, 1, 2], [0, 1, 2]], "b": [[0, 1, 2], [0, 1, 2]], "c": [[2, 1, 0], [0, 2, 1]]}

    def scores(pairs, layers, _):
        assert list(layers) == [1, 2, 3]
        return np.array([*by_layer[pairs[0].sentence1], [7, 7, 7]], float).T

    scorer = SimpleNamespace(encoder=SimpleNamespace(layers=3), scores=scores)
    correlations = layer_correlations(scorer, judgements)
    assert [correlations[1], correlations[2]] == pytest.approx([1 / 3, 2.5 / 3])
    assert np.isnan(correlations[3])
    assert best_layer(correlations) == 2
    assert best_layer({1: 0.5, 2: 0.7, 3: 0.7, 4: np.nan}) == 3  # of equal ones the highest


def test_examples_are_drawn_of_each_class_and_by_the_seed():
    pairs = [Paraphrase(str(n), str(n), n % 3 == 0) for n in range(60)]
    examples = draw_paraphrases(pairs, 4, seed=13)
    assert [pair.label for pair in examples] == [False] * 4 + [True] * 4
    assert examples == draw_paraphrases(pairs, 4, seed=13) != draw_paraphrases(pairs, 4, seed=21)
    with pytest.raises(InputError, match="there are 20 pairs with the label 1, but 21 are needed"):
        draw_paraphrases(pairs, 21, seed=13)


def test_the_state_of_batch_normalisation_is_the_mean_over_all_batches():
    """After 40 updates, by the definition: means of the batches' means and of their unbiased variances (Q9)."""
    rng = np.random.default_rng(0)
    batches = [0.9 + 1e-4 * rng.standard_normal((16, 8)) for _ in range(40)]
    head = Head(8).double().train()
    for batch in batches:
        outputs = head.norm(torch.from_numpy(batch)).numpy()
        expected = (batch - batch.mean(axis=0)) / np.sqrt(batch.var(axis=0) + 1e-8)
        np.testing.assert_allclose(outputs, expected, rtol=1e-7, atol=1e-9)
    mean = np.mean([batch.mean(axis=0) for batch in batches], axis=0)
    variance = np.mean([batch.var(axis=0, ddof=1) for batch in batches], axis=0)
    np.testing.assert_allclose(head.norm.running_mean.numpy(), mean, rtol=1e-7)
    np.testing.assert_allclose(head.norm.running_var.numpy(), variance, rtol=1e-7)
    some = batches[0]
    outputs = head.eval().norm(torch.from_numpy(some)).numpy()
    np.testing.assert_allclose(outputs, (some - mean) / np.sqrt(variance + 1e-8), rtol=1e-7)


@pytest.mark.slow
def test_tuning_moves_the_encoder_and_leaves_it_able(tiny_bert):
    encoder = load_token_encoder(str(tiny_bert), device="cpu")
    before = {name: value.clone() for name, value in encoder.model.state_dict().items()}
    pairs = [Paraphrase(a, b, a == b) for a in TEXTS[:3] for b in TEXTS[:3]]
    head = fine_tune(BertScorer(encoder), pairs, last_layers(encoder), seed=1)
    after = encoder.model.state_dict()
    assert any(not torch.equal(before[name], after[name]) for name in before)
    assert not encoder.model.training
    assert not head.training
    assert bool(head.weights.weight.detach().any())


@pytest.mark.slow
def test_tuning_makes_20_passes_in_batches_of_16_with_the_papers_adam(tiny_bert, monkeypatch):
    groups, sizes = [], []
    step, forward = torch.optim.Adam.step, Head.forward

    def recorded_step(self, *args, **named):
        groups.append({name: self.param_groups[0][name] for name in ("lr", "betas", "eps", "weight_decay")})
        return step(self, *args, **named)

    def recorded_forward(self, features):
        sizes.append(len(features))
        return forward(self, features)

    monkeypatch.setattr(torch.optim.Adam, "step", recorded_step)
    monkeypatch.setattr(Head, "forward", recorded_forward)
    encoder = load_token_encoder(str(tiny_bert), device="cpu")
    pairs = [Paraphrase(a, b, a == b) for a in TEXTS[:4] for b in TEXTS]
    fine_tune(BertScorer(encoder), pairs, last_layers(encoder), seed=1)
    assert groups == [{"lr": 1e-5, "betas": (0.9, 0.98), "eps": 1e-6, "weight_decay": 0}] * 40
    assert sizes == [16, 4] * 20


def test_the_head_standardises_and_starts_at_nothing():
    head = Head(2)
    features = torch.tensor([[1.0, 5.0], [3.0, 9.0]])
    assert head(features).tolist() == [0.0, 0.0]
    with torch.no_grad():
        head.weights.weight[:] = torch.tensor([[1.0, 0.0]])
    assert head(features).tolist() == pytest.approx([-1000.0, 1000.0], rel=1e-4)


@pytest.mark.slow
def test_paraphrases_are_detected_without_files_or_settings(tiny_bert):
    encoder = load_token_encoder(str(tiny_bert), device="cpu")
    before = {name: value.clone() for name, value in encoder.model.state_dict().items()}
    pairs = [Paraphrase(a, b, a == b) for a in TEXTS[:3] for b in TEXTS[:3]]
    scorer, train = BertScorer(encoder), {13: pairs, 21: pairs[:5]}
    scores, predictions = detect_paraphrases(scorer, pairs, 2, train, tune=True)
    assert np.array_equal(scores > 0.999, labels_of(pairs))
    assert [list(by_split) for by_split in predictions.values()] == [[13, 21], [13, 21]]
    assert all(np.array_equal(predictions["frozen"][split], labels_of(pairs)) for split in train)
    assert predictions["tuned"][13].shape == (9,)
    assert all(torch.equal(value, before[name]) for name, value in encoder.model.state_dict().items())
    alone, none = detect_paraphrases(scorer, pairs, 2, {})
    assert np.array_equal(alone, scores)
    assert none == {}


@pytest.mark.slow
def test_a_layer_that_the_encoder_does_not_have_is_refused(tiny_bert):
    encoder, pairs = load_token_encoder(str(tiny_bert), device="cpu"), [Paraphrase("A", "B", True)]
    for layer in (-1, 3):
        with pytest.raises(
            SettingsError, match=f"layer is {layer}, but the encoder has 2 layers; give a number"
        ):
            detect_paraphrases(BertScorer(encoder), pairs, layer, {})
