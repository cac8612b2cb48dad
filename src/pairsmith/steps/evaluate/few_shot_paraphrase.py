"""Few-shot paraphrase detection with the BERTScores of the last layers as features (Q9).

frozen: logistic regression on the standardised scores. tuned: the encoder is fine-tuned through the scores.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pairsmith.core.errors import ModelError
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.paraphrases import Paraphrase
from pairsmith.data.schemas import GradedPair
from pairsmith.metrics.pair_scores import batch_scores, pair_features, pair_scores
from pairsmith.models.token_vectors import TokenEncoder
from pairsmith.steps.evaluate.results import over_splits
from pairsmith.steps.evaluate.transfer_settings import EvaluateParaphraseSettings

LAYERS = 8
"""The scores of this many last layers are the features."""

C = 1.0
"""Inverse regularisation strength of the logistic regression."""

RATE = 1e-5
EPOCHS = 20
BATCH = 16
SCALE = 1e3
"""Factor on the output layer's logits, which makes its steps this much larger than the encoder's."""
EPSILON = 1e-8
"""Added to the variances of batch normalisation, as those of BERTScores are small."""

Floats = NDArray[np.float64]


def few_shot_figures(
    encoder: TokenEncoder,
    splits: Mapping[int, Sequence[Paraphrase]],
    test: Sequence[Paraphrase],
    of_test: Floats,
    settings: EvaluateParaphraseSettings,
    progress: Progress,
) -> dict[str, Any]:
    """F1 ×100 on ``test`` after training on the pairs of each split, ``frozen`` and ``tuned`` (Q9).

    ``of_test`` holds the scores of the test pairs by the last layers, ``(pairs, layers)``. For each way there
    are the figures of ``over_splits``, and ``shots``.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    positive = np.array([pair.label for pair in test])
    layers = last_layers(encoder)

    def frozen(some: Sequence[Paraphrase], _: int) -> float:
        model = make_pipeline(StandardScaler(), LogisticRegression(C=C, solver="liblinear"))
        model.fit(scored(encoder, some, layers, settings), [pair.label for pair in some])
        return f1(model.predict(of_test).astype(bool), positive)

    def tuned(some: Sequence[Paraphrase], seed: int) -> float:
        copy = TokenEncoder(deepcopy(encoder.model).float(), encoder.tokenizer, encoder.max_length)
        head = tune(copy, some, layers, settings, seed)
        scores = torch.from_numpy(scored(copy, test, layers, settings, progress)).float()
        with torch.inference_mode():
            return f1((head(scores.to(copy.model.device)) > 0).cpu().numpy(), positive)

    ways = {"frozen": frozen} | ({"tuned": tuned} if settings.tune else {})
    figures = {}
    for name, way in ways.items():
        by_split = {seed: 100 * way(some, seed) for seed, some in splits.items()}
        figures[name] = over_splits(by_split) | {"shots": settings.shots}
    return figures


def last_layers(encoder: TokenEncoder) -> range:
    """The numbers of the last ``LAYERS`` layers, or of all if there are fewer."""
    return range(max(1, encoder.layers - LAYERS + 1), encoder.layers + 1)


def scored(
    encoder: TokenEncoder,
    pairs: Sequence[Paraphrase | GradedPair],
    layers: Sequence[int],
    settings: EvaluateParaphraseSettings,
    progress: Progress | None = None,
) -> Floats:
    """The BERTScores of pairs by the given layers, ``(pairs, layers)``, with a bar on ``progress``."""
    with (progress or Silent()).task("score", len(pairs), "pairs") as bar:
        scores = pair_scores(
            encoder,
            [(pair.sentence1, pair.sentence2) for pair in pairs],
            layers,
            special_tokens=settings.special_tokens,
            batch_tokens=settings.batch_tokens,
            advance=bar.advance,
        )
    if not np.isfinite(scores).all():
        raise ModelError(f"model {settings.model}: gives vectors that are not finite; try dtype float32")
    return scores.astype(np.float64)


def tune(
    encoder: TokenEncoder,
    pairs: Sequence[Paraphrase],
    layers: Sequence[int],
    settings: EvaluateParaphraseSettings,
    seed: int,
    epochs: int = EPOCHS,
) -> "Head":
    """Train an encoder in place, and a head on the BERTScores of its layers, without dropout (Q9).

    The encoder is trained in evaluation mode, and left in it; ``seed`` decides the order of the pairs.
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
        order = rng.permutation(len(pairs))
        for first in range(0, len(pairs), BATCH):
            rows = order[first : first + BATCH]
            if len(rows) < 2:  # a single row cannot be standardised
                continue
            features = pair_features(encoder, [(pairs[i].sentence1, pairs[i].sentence2) for i in rows])
            scores = batch_scores(encoder, features, layers, special_tokens=settings.special_tokens)
            loss = nn.functional.binary_cross_entropy_with_logits(head(scores.T), labels[rows])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # torch has no type for it
            optimizer.step()
    return head.eval()


class Head(nn.Module):
    """Logits from features: batch normalisation, by cumulative averages, and a linear layer from 0 (Q9)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        # Without a momentum, the state is the plain mean over all batches so far.
        self.norm = nn.BatchNorm1d(width, eps=EPSILON, momentum=None, affine=False)
        self.weights = nn.Linear(width, 1)
        nn.init.zeros_(self.weights.weight)
        nn.init.zeros_(self.weights.bias)

    def forward(self, features: Tensor) -> Tensor:
        """``(n, width)`` to ``(n,)``."""
        logits: Tensor = SCALE * self.weights(self.norm(features)).squeeze(1)
        return logits


def f1(predicted: NDArray[np.bool_], positive: NDArray[np.bool_]) -> float:
    """F1 of the positive class, in [0, 1]."""
    both = int((predicted & positive).sum())
    return 2 * both / max(1, int(predicted.sum()) + int(positive.sum()))
