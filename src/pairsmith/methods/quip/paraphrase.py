"""Paraphrase detection: by BERTScore alone, and with a few labelled pairs (Q8, Q9).

human judgements -> the layer that agrees with them best -> BERTScores of the pairs -> AUROC
a few labelled pairs -> BERTScores of the last layers -> logistic regression, or fine-tuning -> F1
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pairsmith.core.arrays import Float64s
from pairsmith.core.batches import in_batches
from pairsmith.core.errors import InputError, SettingsError
from pairsmith.core.progress import Progress
from pairsmith.data.paraphrases import Paraphrase
from pairsmith.data.schemas import GradedPair
from pairsmith.metrics.bertscore import BertScorer
from pairsmith.metrics.correlation import pearson
from pairsmith.models.token_vectors import TokenEncoder

LAYERS = 8
"""Number of last layers whose scores are the features of few-shot detection."""

C = 1.0
"""Inverse regularisation strength of the logistic regression."""

RATE = 1e-5
EPOCHS = 20
BATCH = 16
SCALE = 1e3
"""Factor on the output layer's logits; it makes the layer's steps this much larger than the encoder's."""
EPSILON = 1e-8
"""Added to the variances in batch normalisation, as BERTScores have small variances."""

Bools = NDArray[np.bool_]


def detect_paraphrases(
    scorer: BertScorer,
    pairs: Sequence[Paraphrase],
    layer: int,
    train: Mapping[int, Sequence[Paraphrase]],
    *,
    tune: bool = False,
    progress: Progress | None = None,
) -> tuple[Float64s, dict[str, dict[int, Bools]]]:
    """Score n pairs of texts by BERTScore (Q8), and classify them after few-shot training (Q9).

    Args:
        scorer: has the encoder, which is put into evaluation mode, and not trained.
        pairs: labelled pairs, whose labels are not used.
        layer: the layer whose vectors are compared, from 0 to ``encoder.layers``.
        train: labelled training pairs by the number of their split, which is also the random seed of the
            fine-tuning on that split; may be empty.
        tune: whether to fine-tune a copy of the encoder on each split as well.
        progress: shows how far the scoring is; by default nothing is shown.

    Returns:
        The BERTScore F of each pair with ``layer``, ``(n,)`` float64, at most 1; and whether each pair is
        predicted to be paraphrases, ``(n,)`` bool, first by ``frozen`` or ``tuned``, then by split; empty
        without training pairs.

    Raises:
        ModelError: the encoder gives vectors that are not finite.
        SettingsError: the encoder has no such layer.
    """
    if not 0 <= layer <= scorer.encoder.layers:
        raise SettingsError(
            f"layer is {layer}, but the encoder has {scorer.encoder.layers} layers; give a number from 0 to "
            f"{scorer.encoder.layers}"
        )
    layers = last_layers(scorer.encoder)
    by_layer = scorer.scores(pairs, [layer, *(layers if train else ())], progress)
    scores, features = by_layer[:, 0], by_layer[:, 1:]
    predictions: dict[str, dict[int, Bools]] = {}
    if train:
        predictions["frozen"] = {
            split: predict_frozen(scorer.scores(examples, layers), labels_of(examples), features)
            for split, examples in train.items()
        }
    if train and tune:
        predictions["tuned"] = {
            split: predict_tuned(scorer, examples, pairs, seed=split, progress=progress)
            for split, examples in train.items()
        }
    return scores, predictions


def labels_of(pairs: Sequence[Paraphrase]) -> Bools:
    """Whether the two texts of each pair are paraphrases, ``(pairs,)`` bool."""
    return np.array([pair.label for pair in pairs])


# The layer (Q8)


def layer_correlations(
    scorer: BertScorer, judgements: Mapping[str, Sequence[GradedPair]], progress: Progress | None = None
) -> dict[int, float]:
    """For each layer from 1 on, the correlation of its BERTScores with human judgements (Q8).

    The correlation, from -1 to 1, is the mean of the Pearson correlations of all language pairs, which are
    the keys of ``judgements``, at least one. It is NaN if the correlation of a language pair is undefined.
    """
    layers, by_language = range(1, scorer.encoder.layers + 1), []
    for judged in judgements.values():
        scores, gold = scorer.scores(judged, layers, progress), np.array([pair.score for pair in judged])
        by_language.append([pearson(column, gold) for column in scores.T])
    return dict(zip(layers, np.mean(by_language, axis=0).tolist(), strict=True))


def best_layer(correlations: Mapping[int, float]) -> int:
    """The layer with the largest correlation; among equals, the highest layer. NaN counts as -1 (Q8)."""
    return max(correlations, key=lambda layer: (np.nan_to_num(correlations[layer], nan=-1.0), layer))


def usual_layer(layers: int) -> int:
    """The default layer of an encoder with this many layers: at five sixths, as QUIP's layer 20 of 24 is."""
    return max(1, round(layers * 5 / 6))


def last_layers(encoder: TokenEncoder) -> range:
    """The numbers of the last ``LAYERS`` layers, rising; all but layer 0 if there are fewer layers (Q9)."""
    return range(max(1, encoder.layers - LAYERS + 1), encoder.layers + 1)


# A few labelled pairs (Q9)


def draw_paraphrases(pairs: Sequence[Paraphrase], shots: int, seed: int) -> list[Paraphrase]:
    """Draw ``shots`` pairs of each class; pairs that are no paraphrases come first (Q9).

    Raises an ``InputError`` if a class has fewer pairs.
    """
    order = np.random.default_rng(seed).permutation(len(pairs))
    sample: list[Paraphrase] = []
    for label in (False, True):
        examples = [pairs[place] for place in order if pairs[place].label is label][:shots]
        if len(examples) < shots:
            raise InputError(
                f"there are {len(examples)} pairs with the label {int(label)}, but {shots} are needed; give "
                "more pairs, or take fewer shots"
            )
        sample += examples
    return sample


def predict_frozen(features: Float64s, labels: Bools, test_features: Float64s) -> Bools:
    """Whether each test pair is predicted to be paraphrases, ``(test,)``, by logistic regression (Q9).

    ``features``, ``(train, layers)`` float64, are the BERTScores of the training pairs, ``test_features``,
    ``(test, layers)``, the BERTScores of the test pairs; both are standardised. ``labels``, ``(train,)``, has
    both classes.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), LogisticRegression(C=C, solver="liblinear"))
    model.fit(features, labels)
    predicted: Bools = model.predict(test_features).astype(bool)
    return predicted


def predict_tuned(
    scorer: BertScorer,
    examples: Sequence[Paraphrase],
    pairs: Sequence[Paraphrase],
    *,
    seed: int,
    progress: Progress | None = None,
) -> Bools:
    """Whether each of ``pairs`` is predicted to be paraphrases, ``(pairs,)``, after fine-tuning (Q9).

    ``fine_tune`` trains a copy of the encoder on ``examples``; ``scorer`` itself is not changed.
    """
    copy = replace(scorer.encoder, model=deepcopy(scorer.encoder.model).float())
    tuned, layers = replace(scorer, encoder=copy), last_layers(copy)
    head = fine_tune(tuned, examples, layers, seed=seed)
    return head.predict(tuned.scores(pairs, layers, progress))


def fine_tune(
    scorer: BertScorer,
    pairs: Sequence[Paraphrase],
    layers: Sequence[int],
    *,
    seed: int,
    epochs: int = EPOCHS,
) -> "Head":
    """Train an encoder in place, and a head on the BERTScores of its layers, without dropout (Q9).

    The loss is the binary cross-entropy of the labels. A batch has up to ``BATCH`` pairs, whose features are
    ``(batch, layers)`` float32.

    Args:
        scorer: has the encoder, of float32 weights; it is trained in evaluation mode, and left in it.
        pairs: labelled pairs, at least two.
        layers: numbers of the layers, from 0 to ``encoder.layers``.
        seed: decides the order of the pairs.
        epochs: number of passes over the pairs.

    Returns:
        the head, in evaluation mode.
    """
    model = scorer.encoder.model.eval()
    head = Head(len(layers)).to(model.device).train()
    weights = [*model.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(weights, lr=RATE, betas=(0.9, 0.98), eps=1e-6)
    labels = torch.from_numpy(labels_of(pairs)).float().to(model.device)
    rng = np.random.default_rng(seed)
    for _ in range(epochs):
        for rows in in_batches(rng.permutation(len(pairs)), BATCH):
            if len(rows) < 2:  # a single row cannot be standardised
                continue
            scores = scorer.batch_scores(scorer.features([pairs[i] for i in rows]), layers)
            loss = nn.functional.binary_cross_entropy_with_logits(head(scores.T), labels[rows])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # torch has no type for it
            optimizer.step()
    return head.eval()


class Head(nn.Module):
    """A linear layer on batch-normalised features (Q9).

    The normalisation has no affine part and averages over all batches alike; the layer's weights start at 0.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        # Without a momentum, the running statistics are plain means over all batches so far.
        self.norm = nn.BatchNorm1d(width, eps=EPSILON, momentum=None, affine=False)
        self.weights = nn.Linear(width, 1)
        nn.init.zeros_(self.weights.weight)
        nn.init.zeros_(self.weights.bias)

    def forward(self, features: Tensor) -> Tensor:
        """The logits of n pairs, ``(n,)``, from their features, ``(n, width)``, both float32."""
        logits: Tensor = SCALE * self.weights(self.norm(features)).squeeze(1)
        return logits

    def predict(self, features: Float64s) -> Bools:
        """Whether n pairs are predicted to be paraphrases, ``(n,)``, from features ``(n, width)`` float64."""
        with torch.inference_mode():
            logits = self(torch.from_numpy(features).float().to(self.weights.weight.device))
            predicted: Bools = (logits > 0).cpu().numpy()
        return predicted
