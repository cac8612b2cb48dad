"""Training a retriever: an encoder learns from queries, texts that answer them, and texts that do not.

rows -> all documents of a batch -> ranking loss, or a judge's scores of a row's own documents -> encoder
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses
from sentence_transformers.util import pairwise_cos_sim
from torch import Tensor, nn

from pairsmith.core.errors import InputError, SettingsError, counted
from pairsmith.core.model_files import pick_device
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.tuples import RetrievalExample
from pairsmith.methods.retrieval.example_store import KnownPositives
from pairsmith.methods.retrieval.retriever_options import RetrieverOptions
from pairsmith.metrics.ranking import ndcg
from pairsmith.models.encode import Side, encode_texts
from pairsmith.models.sentence_encoder import load_sentence_encoder
from pairsmith.search.exact import nearest
from pairsmith.training.checkpoints import Checkpoints
from pairsmith.training.contrastive import contrastive_loss, side_features, side_vectors
from pairsmith.training.fit import MakeRow, TrainedModel, TrainingTask, train_at_each_rate
from pairsmith.training.validation import cannot_choose

NEAREST = 10
"""Number of retrieved documents that count in the validation figure."""


def train_retriever_on(
    examples: Sequence[RetrievalExample],
    validation: Sequence[RetrievalExample],
    options: RetrieverOptions,
    *,
    progress: Progress | None = None,
    checkpoints: Checkpoints | None = None,
) -> TrainedModel["Retriever"]:
    """Train a retriever at each learning rate, and keep the best one.

    nDCG@10 on ``validation`` chooses step and learning rate; without validation examples the last step at the
    first rate is kept.
    """
    check_retrieval_examples(examples, options)
    positives = KnownPositives(examples)
    documents = {text for example in validation for text in (example.positive, *example.negatives)}
    if len(documents) == 1:  # it ranks first for every query, so that the first evaluation would be best
        needed = "two or more different documents are needed"
        (progress or Silent()).say(cannot_choose(len(validation), needed))
        validation = ()
    draw = retriever_row_maker(examples, positives, options.negatives)

    def make() -> tuple[Retriever, TrainingTask[RetrieverRow]]:
        torch.manual_seed(options.seed)
        model = Retriever(base_retriever(options), options)
        measure = partial(ndcg_of, model.encoder, validation) if validation else None
        return model, TrainingTask(len(examples), draw, model.batch, measure, f"ndcg@{NEAREST}")

    return train_at_each_rate(make, options, progress, checkpoints)


def base_retriever(options: RetrieverOptions) -> SentenceTransformer:
    """Load the base with the layers, the attention and the prompts of the options, and cosine similarity."""
    encoder = load_sentence_encoder(
        options.base,
        pooling=options.pooling,
        device=pick_device(options.device),
        max_length=options.max_length,
        layers=options.layers,
        bidirectional=options.attention == "bidirectional",
    )
    for name, prompt in (("query", options.query_prompt), ("document", options.document_prompt)):
        if prompt is not None:
            encoder.prompts[name] = prompt
    encoder.similarity_fn_name = "cosine"
    width = encoder.get_embedding_dimension()
    if too_wide := [size for size in options.matryoshka if size >= width]:
        raise SettingsError(
            f"matryoshka {too_wide[0]}: the base's vectors have {width} numbers, all of which are trained; "
            "give smaller numbers"
        )
    return encoder


def check_retrieval_examples(examples: Sequence[RetrievalExample], options: RetrieverOptions) -> None:
    """Refuse rows from which nothing can be learned with these options."""
    most, name = options.negatives, options.objective
    counts = [
        len(example.negatives) if most is None else min(most, len(example.negatives)) for example in examples
    ]
    few = min(counts)
    if name != "ranking" and few < max(counts):
        query = examples[counts.index(few)].query[:60]
        raise InputError(
            f"a row has {counted(few, 'negatives')} (query {query!r}), another {max(counts)}; objective "
            f"{name} needs equally many of all rows, so give negatives {few} or drop the rows with few"
        )
    if name == "ranking" and few == 0 and (options.batch_size == 1 or len(examples) == 1):
        raise InputError(
            "in a batch of one row without negatives there is no text to distinguish the positive from; give "
            "a batch_size of 2 or more and two rows or more, or negatives"
        )


@dataclass(frozen=True, slots=True)
class RetrieverRow:
    """A query with one of its positives, some negatives, and the scores of the positive and the negatives.

    ``positives`` are the keys of all positives of the query, as ``KnownPositives`` gives them.
    """

    query: str
    positive: str
    positives: frozenset[int]
    negatives: Sequence[str]
    scores: Sequence[float]


def retriever_row_maker(
    examples: Sequence[RetrievalExample], positives: KnownPositives, negatives: int | None
) -> MakeRow[RetrieverRow]:
    """The function that makes an example's row with a random choice of its negatives; None: with all."""

    def make_row(example: int, _: int, rng: np.random.Generator) -> RetrieverRow:
        source = examples[example]
        count = len(source.negatives)
        kept: Sequence[int] = range(count)
        if negatives is not None and negatives < count:
            kept = sorted(rng.choice(count, negatives, replace=False).tolist())
        scores = [source.scores[0], *(source.scores[1 + i] for i in kept)] if source.scores else []
        return RetrieverRow(
            source.query,
            source.positive,
            positives.of(source.query),
            [source.negatives[i] for i in kept],
            scores,
        )

    return make_row


class Retriever(nn.Module):
    """A sentence encoder that returns the loss of a batch."""

    def __init__(self, encoder: SentenceTransformer, options: RetrieverOptions) -> None:
        super().__init__()
        self.encoder = encoder
        self._scale = options.scale
        self._temperature = options.temperature
        self._widths = [encoder.get_embedding_dimension(), *options.matryoshka]

        def similarity(queries: Tensor, documents: Tensor) -> Tensor:
            cosines: Tensor = pairwise_cos_sim(queries, documents)
            return options.scale * cosines

        # These losses are given vectors, so they need no model.
        self._distillation: Any = {
            "ranking": None,
            "margin-mse": losses.MarginMSELoss(None, similarity),
            "kl": losses.DistillKLDivLoss(None, similarity),
        }[options.objective]

    def batch(self, rows: Sequence[RetrieverRow]) -> Mapping[str, Any]:
        """The arguments of ``forward``; the documents are the positives of the rows, then their negatives."""
        documents = [row.positive for row in rows] + [text for row in rows for text in row.negatives]
        arguments: dict[str, Any] = {
            "queries": side_features(self.encoder, [row.query for row in rows], "query"),
            "documents": side_features(self.encoder, documents, "document"),
        }
        if self._distillation is None:
            keys = [KnownPositives.key(text) for text in documents]
            arguments["same"] = torch.tensor([[key in row.positives for key in keys] for row in rows])
        else:
            arguments["scores"] = torch.tensor([row.scores for row in rows]) / self._temperature
        return arguments

    def forward(
        self,
        queries: Mapping[str, Any],
        documents: Mapping[str, Any],
        same: Tensor | None = None,
        scores: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """The loss of a batch of n queries, ``loss``, ``()`` float32, summed over the widths of the vectors.

        Args:
            queries: features of the queries.
            documents: features of the m documents, the positive of query i being the i-th.
            same: ``(n, m)`` bool, which documents are positives of which query; for the objective ranking.
            scores: ``(n, 1 + negatives)`` float32, the judge's, of the positive and of each negative; for the
                other objectives.
        """
        x = side_vectors(self.encoder, queries, "query").float()
        y = side_vectors(self.encoder, documents, "document").float()
        parts = [self._loss(x[:, :width], y[:, :width], same, scores) for width in self._widths]
        return {"loss": torch.stack(parts).sum()}

    def _loss(self, x: Tensor, y: Tensor, same: Tensor | None, scores: Tensor | None) -> Tensor:
        if same is not None:
            return contrastive_loss(x, y, same, self._scale)
        positives, negatives = y[: len(x)], y[len(x) :].view(len(x), -1, y.shape[1])
        loss: Tensor = self._distillation.compute_loss_from_embeddings(
            [x, positives, *negatives.unbind(dim=1)], scores
        )
        return loss


def ndcg_of(encoder: SentenceTransformer, examples: Sequence[RetrievalExample]) -> float | None:
    """Mean nDCG@10, ×100, of the examples' queries, ranked among all of their documents.

    None if a vector is not finite.
    """
    of_queries = KnownPositives(examples)
    queries = list(dict.fromkeys(example.query for example in examples))
    documents = list(
        dict.fromkeys(text for example in examples for text in (example.positive, *example.negatives))
    )

    def vectors(texts: Sequence[str], side: Side) -> Tensor:
        return nn.functional.normalize(torch.from_numpy(encode_texts(encoder, texts, side=side)), dim=1)

    x, y = vectors(queries, "query"), vectors(documents, "document")
    if not (torch.isfinite(x).all() and torch.isfinite(y).all()):
        return None
    keys = [KnownPositives.key(text) for text in documents]
    ranked = nearest(x, y, NEAREST).ids.tolist()
    figures = [
        ndcg(
            np.array([keys[place] in positives for place in places], np.int64),
            np.ones(len(positives), np.int64),
            NEAREST,
        )
        for places, positives in zip(ranked, map(of_queries.of, queries), strict=True)
    ]
    return 100.0 * float(np.mean(figures))
