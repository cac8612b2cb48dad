"""Training objectives of a sentence encoder: the training rows that each needs, and its loss.

``cosine`` is the paper's objective (D10). The others use the same pairs with other losses of
sentence-transformers.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses
from torch import Tensor, nn

from pairsmith.core.errors import InputError
from pairsmith.methods.dino.options import Objective
from pairsmith.models.encode import embed_batch
from pairsmith.training.chunks import grouped
from pairsmith.training.processes import Processes

IN_BATCH: tuple[Objective, ...] = ("contrastive", "simcse")
"""Objectives with in-batch negatives: a batch must not hold the same text twice."""


def training_rows(pairs: pa.Table, objective: Objective, hard_negatives: float = 0.2) -> pa.Table:
    """The training rows of an objective: a column for each text, then the score if the objective uses it.

    ``pairs`` has the columns sentence1, sentence2 and score. Only ``contrastive`` uses ``hard_negatives``.
    """
    if objective == "simcse":
        texts = pa.array(dict.fromkeys(pairs["sentence1"].to_pylist()), pa.string())
        return pa.table({"anchor": texts, "positive": texts})
    if objective == "contrastive":
        return contrastive_rows(pairs, hard_negatives)
    return pairs


def contrastive_rows(pairs: pa.Table, hard_negatives: float) -> pa.Table:
    """Rows of a first text, one of its positives, and one hard negative of each low score.

    The positives of a first text are its second texts with the highest score; its hard negatives are its
    second texts with a low score, at most ``hard_negatives``. Second texts with a score in between are
    somewhat similar and not used. The i-th positive stands beside the i-th hard negative of each low score;
    if there are fewer hard negatives than positives, they are used again from the first on. A first text that
    has no second text of the highest score, or of one of the low scores, is left out, so that all rows have
    the same columns: ``anchor``, ``positive`` and ``negative_1`` …, in the order of falling scores.
    """
    texts_of: dict[str, dict[float, list[str]]] = defaultdict(lambda: defaultdict(list))
    for pair in pairs.select(["sentence1", "sentence2", "score"]).to_pylist():
        texts_of[pair["sentence1"]][pair["score"]].append(pair["sentence2"])
    present = sorted({score for texts in texts_of.values() for score in texts}, reverse=True)
    scores = [present[0], *(score for score in present[1:] if score <= hard_negatives)]
    names = ["anchor", "positive", *(f"negative_{i}" for i in range(1, len(scores)))]
    columns: dict[str, list[str]] = {name: [] for name in names}
    for first, texts in texts_of.items():
        if len(scores) < 2 or any(score not in texts for score in scores):
            continue
        for i in range(len(texts[scores[0]])):
            row = [first, *(texts[score][i % len(texts[score])] for score in scores)]
            for name, text in zip(names, row, strict=True):
                columns[name].append(text)
    if not columns["anchor"]:
        raise InputError(
            f"contrastive training needs first texts with a second text of score {present[0]:g} and one of "
            f"each score up to {hard_negatives:g}; none of {len(texts_of):,} first texts has these (scores: "
            f"{', '.join(f'{score:g}' for score in present)}); raise hard_negatives if the scores "
            "are higher"
        )
    return pa.table({name: pa.array(texts, pa.string()) for name, texts in columns.items()})


def loss_of(encoder: SentenceTransformer, objective: Objective, scale: float) -> nn.Module:
    """The loss of an objective, a module that returns ``()``.

    The loss ``cosine`` is the mean of (cos(u1, u2) - score)² over the pairs of a batch (D10). In the losses
    of all other objectives, ``scale`` multiplies the cosines.
    """
    loss: Any
    match objective:
        case "cosine":
            loss = losses.CosineSimilarityLoss(encoder)
        case "cosent":
            loss = losses.CoSENTLoss(encoder, scale=scale)
        case "angle":
            loss = losses.AnglELoss(encoder, scale=scale)
        case "contrastive" | "simcse":
            # With several processes, the texts of all of them are negatives.
            together = Processes.current().size > 1
            loss = losses.MultipleNegativesRankingLoss(encoder, scale=scale, gather_across_devices=together)
    return EncodedByLength(encoder, loss)


class EncodedByLength(nn.Module):
    """A loss of sentence-transformers whose texts are encoded in groups of similar length.

    The library pads all texts of a column to its longest, so that most of the arithmetic on a batch of
    sentences would be spent on padding. Loss and gradients stay the same except for rounding.
    """

    def __init__(self, encoder: SentenceTransformer, loss: Any) -> None:
        super().__init__()
        self.model = encoder
        self.loss = loss

    def forward(self, sentence_features: Iterable[Mapping[str, Any]], labels: Tensor | None) -> Tensor:
        """The loss of a batch: each column's features, and the scores ``(rows,)`` where there are any."""
        vectors = encode_by_length(self.model, list(sentence_features))
        loss: Tensor = self.loss.compute_loss_from_embeddings(vectors, labels)
        return loss

    def get_config_dict(self) -> dict[str, Any]:
        """The library's entries for its own model card; none."""
        return {}


def encode_by_length(encoder: SentenceTransformer, columns: Sequence[Mapping[str, Any]]) -> list[Tensor]:
    """The sentence vectors of each column (D10), ``(rows, d)`` in the encoder's dtype.

    The texts of all columns are encoded together, in groups of similar length. A column's tokenized texts are
    ``(rows, tokens)`` int64 tensors, padded at the end.
    """
    texts = [
        {key: value[row] for key, value in column.items() if torch.is_tensor(value) and value.ndim == 2}
        for column in columns
        for row in range(len(column["attention_mask"]))
    ]
    lengths = [int(text["attention_mask"].sum()) for text in texts]

    def features(numbers: list[int]) -> dict[str, Tensor]:
        width = max(lengths[number] for number in numbers)
        return {key: torch.stack([_cut(texts[number][key], width) for number in numbers]) for key in texts[0]}

    groups = grouped(lengths, features, encoder.device)
    vectors = torch.cat([embed_batch(encoder, group) for group in groups["chunks"]])
    sizes = [len(column["attention_mask"]) for column in columns]
    return list(torch.split(vectors[groups["order"].argsort()], sizes))


def _cut(values: Tensor, width: int) -> Tensor:
    """The first ``width`` values of a text, padded with zeros, which the attention mask hides."""
    return nn.functional.pad(values[:width], (0, max(0, width - len(values))))
