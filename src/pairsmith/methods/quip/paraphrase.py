"""Paraphrase detection: by BERTScore alone, and with a few labelled pairs (Q8, Q9).

people's judgements -> the layer that agrees with them best -> BERTScores of the pairs -> AUROC
a few labelled pairs -> BERTScores of the last layers -> logistic regression, or fine-tuning -> F1
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pairsmith.core.arrays import Float64s
from pairsmith.core.batches import in_batches
from pairsmith.core.errors import InputError, SettingsError
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.paraphrases import Paraphrase
from pairsmith.data.schemas import GradedPair
from pairsmith.metrics.auroc import auroc
from pairsmith.metrics.classification import binary_f1
from pairsmith.metrics.correlation import pearson
from pairsmith.metrics.pair_scores import batch_scores, pair_features, pair_scores
from pairsmith.models.encode import not_finite
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
"""Added to the variances of batch normalisation, as those of BERTScores are small."""

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class DetectedParaphrases:
    """The BERTScores of n pairs, and how well they tell paraphrases from other pairs.

    Attributes:
        layer: the layer whose vectors were compared.
        correlations: for each layer from 1 on, the correlation of its scores with people's judgements, from
            -1 to 1; NaN if it is undefined. Empty without judgements (Q8).
        scores: the BERTScore F of each pair, ``(n,)`` float64, at most 1.
        auroc: how well the scores rank paraphrases above other pairs, from 0 to 1; NaN if all pairs have
            the same label.
        few_shot: F1 after training, from 0 to 1, first by ``frozen`` or ``tuned``, then by split; empty
            without training pairs (Q9).
        predictions: whether each pair is predicted to be paraphrases, ``(n,)`` bool, for each of
            ``few_shot``.
    """

    layer: int
    correlations: Mapping[int, float]
    scores: Float64s
    auroc: float
    few_shot: Mapping[str, Mapping[int, float]]
    predictions: Mapping[str, Mapping[int, Bools]]


def detect_paraphrases(
    encoder: TokenEncoder,
    pairs: Sequence[Paraphrase],
    *,
    layer: int | None = None,
    judgements: Mapping[str, Sequence[GradedPair]] | None = None,
    train: Mapping[int, Sequence[Paraphrase]] | None = None,
    tune: bool = False,
    special_tokens: bool = True,
    batch_tokens: int | None = None,
    progress: Progress | None = None,
) -> DetectedParaphrases:
    """Score pairs of texts by BERTScore, and measure how well the scores detect paraphrases (Q8, Q9).

    Args:
        encoder: the encoder of the tokens; it is put into evaluation mode, and not trained.
        pairs: labelled pairs.
        layer: the layer whose vectors are compared, from 0 to ``encoder.layers``; None: the layer that agrees
            best with ``judgements`` or, without judgements, ``usual_layer``.
        judgements: pairs of translations with people's scores, by language pair.
        train: labelled training pairs by the number of their split, which is also the random seed of the
            fine-tuning on that split.
        tune: whether to fine-tune a copy of the encoder on each split as well.
        special_tokens: whether the means of BERTScore include special tokens, as QUIP's do.
        batch_tokens: most tokens in a batch, padding included; None: what suits the device.
        progress: shows how far the scoring is; by default nothing is shown.

    Raises:
        InputError: ``judgements`` is empty.
        ModelError: the encoder gives vectors that are not finite.
        SettingsError: the encoder has no such layer, or ``layer`` and ``judgements`` are both given.
    """
    if layer is not None and judgements is not None:
        raise SettingsError("layer and judgements both choose the layer; give only one of them")
    if judgements is not None and not judgements:
        raise InputError("there are no judgements; give some, or None for the usual layer")
    if layer is not None and not 0 <= layer <= encoder.layers:
        raise SettingsError(
            f"layer is {layer}, but the encoder has {encoder.layers} layers; give a number from 0 to "
            f"{encoder.layers}"
        )
    score = partial(paraphrase_scores, special_tokens=special_tokens, batch_tokens=batch_tokens)
    # Choose the layer whose vectors are compared (Q8).
    correlations: Mapping[int, float] = {}
    if judgements is not None:
        correlations = layer_correlations(
            partial(score, encoder, progress=progress), judgements, encoder.layers
        )
        layer = best_layer(correlations)
    elif layer is None:
        layer = usual_layer(encoder.layers)
    # BERTScores by this layer (Q8). With labelled pairs, those by the last layers are features, too (Q9).
    layers = last_layers(encoder)
    by_layer = score(encoder, pairs, [layer, *(layers if train else ())], progress=progress)
    scores, features, gold = by_layer[:, 0], by_layer[:, 1:], labels_of(pairs)

    # Classifiers that learn from a few labelled pairs (Q9).
    def frozen(examples: Sequence[Paraphrase], _: int) -> Bools:
        return predict_frozen(score(encoder, examples, layers), labels_of(examples), features)

    def tuned(examples: Sequence[Paraphrase], seed: int) -> Bools:
        copy = TokenEncoder(deepcopy(encoder.model).float(), encoder.tokenizer, encoder.max_length)
        head = fine_tune(copy, examples, layers, seed=seed, special_tokens=special_tokens)
        return head.predict(score(copy, pairs, layers, progress=progress))

    ways = {"frozen": frozen} | ({"tuned": tuned} if tune else {})
    predictions = {
        name: {seed: predict(examples, seed) for seed, examples in (train or {}).items()}
        for name, predict in ways.items()
        if train
    }
    few_shot = {
        name: {split: binary_f1(predicted, gold) for split, predicted in by_split.items()}
        for name, by_split in predictions.items()
    }
    return DetectedParaphrases(layer, correlations, scores, auroc(scores, gold), few_shot, predictions)


def paraphrase_scores(
    encoder: TokenEncoder,
    pairs: Sequence[Paraphrase | GradedPair],
    layers: Sequence[int],
    *,
    special_tokens: bool,
    batch_tokens: int | None,
    progress: Progress | None = None,
) -> Float64s:
    """The BERTScore F of each pair by each of ``layers``, ``(pairs, layers)`` float64, at most 1 (Q8).

    The scores are computed in float32, see ``pair_scores``. Raises a ``ModelError`` if one is not finite.
    """
    with (progress or Silent()).task("score", len(pairs), "pairs") as bar:
        scores = pair_scores(
            encoder,
            [(pair.sentence1, pair.sentence2) for pair in pairs],
            layers,
            special_tokens=special_tokens,
            batch_tokens=batch_tokens,
            advance=bar.advance,
        )
    if not np.isfinite(scores).all():
        raise not_finite("the encoder gives vectors")
    return scores.astype(np.float64)


def labels_of(pairs: Sequence[Paraphrase]) -> Bools:
    """Whether the two texts of each pair are paraphrases, ``(pairs,)`` bool."""
    return np.array([pair.label for pair in pairs])


# The layer (Q8)


def layer_correlations(
    score: Callable[[Sequence[GradedPair], Sequence[int]], Float64s],
    judgements: Mapping[str, Sequence[GradedPair]],
    layers: int,
) -> dict[int, float]:
    """For each layer from 1 to ``layers``, the correlation of its scores with people's judgements (Q8).

    It is the mean of the Pearson correlations of all language pairs, the keys of ``judgements``: from -1 to
    1, NaN if one of them is undefined. ``score`` returns the scores of n pairs by several layers,
    ``(n, layers)`` float64, as ``paraphrase_scores`` does.
    """
    numbers, by_language = range(1, layers + 1), []
    for judged in judgements.values():
        scores, gold = score(judged, numbers), np.array([pair.score for pair in judged])
        by_language.append([pearson(column, gold) for column in scores.T])
    return dict(zip(numbers, np.mean(by_language, axis=0).tolist(), strict=True))


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
    ``(test, layers)``, those of the test pairs; both are standardised. ``labels``, ``(train,)``, has both
    classes.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), LogisticRegression(C=C, solver="liblinear"))
    model.fit(features, labels)
    predicted: Bools = model.predict(test_features).astype(bool)
    return predicted


def fine_tune(
    encoder: TokenEncoder,
    pairs: Sequence[Paraphrase],
    layers: Sequence[int],
    *,
    seed: int,
    special_tokens: bool = True,
    epochs: int = EPOCHS,
) -> "Head":
    """Train an encoder in place, and a head on the BERTScores of its layers, without dropout (Q9).

    The loss is the binary cross-entropy of the labels. A batch has up to ``BATCH`` pairs, whose features are
    ``(batch, layers)`` float32.

    Args:
        encoder: of float32 weights; it is trained in evaluation mode, and left in it.
        pairs: labelled pairs, at least two.
        layers: numbers of the layers, from 0 to ``encoder.layers``.
        seed: decides the order of the pairs.
        special_tokens: whether the means of BERTScore include special tokens.
        epochs: number of passes over the pairs.

    Returns:
        the head, in evaluation mode.
    """
    device = encoder.model.device
    head = Head(len(layers)).to(device)
    encoder.model.eval()
    weights = [*encoder.model.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(weights, lr=RATE, betas=(0.9, 0.98), eps=1e-6)
    labels = torch.tensor([float(bool(pair.label)) for pair in pairs], device=device)
    rng = np.random.default_rng(seed)
    head.train()
    for _ in range(epochs):
        for rows in in_batches(rng.permutation(len(pairs)), BATCH):
            if len(rows) < 2:  # a single row cannot be standardised
                continue
            features = pair_features(encoder, [(pairs[i].sentence1, pairs[i].sentence2) for i in rows])
            scores = batch_scores(encoder, features, layers, special_tokens=special_tokens)
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
