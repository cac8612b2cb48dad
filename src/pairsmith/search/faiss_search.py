"""Approximate nearest neighbours by FAISS, for corpora that are too large to multiply with each other.

An index finds candidates. Their similarities are computed again from the vectors themselves, as similarities
of compressed vectors would bias the margin (M3). The search effort is tuned on one sample of the queries, and
recall is measured on another. If there are too many vectors for one index, the results of several indexes are
``merged``.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from pairsmith.core.errors import MissingExtra, SettingsError
from pairsmith.search.exact import ROUNDING, Neighbours, merged, products_with

INDEX_EXAMPLES = "IVF4096,Flat or HNSW32, or where memory is short IVF4096,PQ48x4fs"

PER_CENTROID = 39
"""Training vectors per centroid; FAISS warns if there are fewer, and 64 did no better on real sentences."""
CENTROIDS = 256
"""Training vectors are counted as if an index had at least this many centroids, the codes of one byte.

A corpus with fewer training vectors than that needs is searched exactly.
"""
QUERIES_AT_ONCE = 4096
"""Number of queries that are searched at once."""
CONVERTED = 2**18
"""Number of float16 vectors that are converted to float32 at once."""
GATHERED = 2**22
"""Number of vector components that are gathered at once."""
SAMPLE = 500
"""Number of queries on which the search effort is tuned, and of others on which the recall is measured."""


def faiss_search(
    queries: Tensor,
    index: "FaissIndex",
    k: int,
    *,
    recall: float = 0.95,
    advance: Callable[[int], None] = lambda _: None,
) -> tuple[Neighbours, float]:
    """Approximately the k nearest of each query among the vectors in an index, and the recall.

    Similarities are inner products. Recall is the share of the true k nearest neighbours that was found, from
    0 to 1; a vector that is as near as the k-th counts as one of them. The same input and number of threads
    give the same bytes.

    Args:
        queries: ``(n, d)`` float32 or float16, vectors of length 1, finite; may be mapped from a file.
        index: holds the others, ``(m, d)`` likewise.
        k: number of neighbours, at least 1; if there are fewer others, all of them are found.
        recall: the recall to be reached. The search effort is doubled until the recall on a sample of the
            queries, minus one standard error, reaches this value, or until doubling no longer raises it.
        advance: called with the number of queries that were finished.
    """
    others = index.others
    k = min(k, len(others))
    if queries.ndim != 2 or not len(queries) or queries.shape[1] != others.shape[1] or k < 1:
        shapes = tuple(queries.shape), tuple(others.shape)
        raise ValueError(f"expected (n, d), (m, d), and k, n and m of 1 or more, got {shapes}, {k=}")
    tried, measured = (_drawn(min(SAMPLE, len(queries)), len(queries), seed) for seed in (1, 2))
    effort = _tuned(index, queries[tried], k, recall)
    ids, similarities = torch.full((len(queries), k), -1), torch.full((len(queries), k), -torch.inf)
    for rows in torch.split(torch.arange(len(queries)), QUERIES_AT_ONCE):
        neighbours = index.search(queries[rows], k, effort)
        ids[rows], similarities[rows] = neighbours.ids, neighbours.similarities
        advance(len(rows))
    incomplete = (ids[:, -1] < 0).nonzero().squeeze(1)  # queries with fewer than k neighbours
    if len(incomplete):
        neighbours = _exact(queries[incomplete], others, k)
        ids[incomplete], similarities[incomplete] = neighbours.ids, neighbours.similarities
    nearest = _exact(queries[measured], others, k)
    return Neighbours(ids, similarities), _share(similarities[measured], nearest.similarities)


def needed_vectors(index: str, width: int) -> int:
    """The number of vectors of this width that an index is trained on; 0 if it needs no training."""
    return FaissIndex(index, width).needed


class _Effort(NamedTuple):
    """The search effort for a query."""

    probe: int  # number of lists that are searched in an IVF index; queue length (``efSearch``) in HNSW
    candidates: int  # number of candidates whose similarities are computed again


class FaissIndex:
    """A FAISS index, in the notation of its ``index_factory``, and the vectors in it."""

    def __init__(self, index: str, width: int) -> None:
        self._library = _faiss()
        self._name, self._width = index, width
        self._index = self._empty(index)
        # With several threads, the links of a graph would be made in a different order each time.
        self._graph = "HNSW" in index or "NSG" in index
        self._unfilled: Any = None

    @classmethod
    def from_bytes(cls, index: str, width: int, data: Any) -> Self:
        """The trained index that ``to_bytes`` serialised, from any buffer with these bytes."""
        faiss_index = cls(index, width)
        with faiss_index._refusals():
            faiss_index._index = faiss_index._library.deserialize_index(np.frombuffer(data, np.uint8))
        return faiss_index

    def to_bytes(self) -> bytes:
        """The trained index in FAISS's own format, without the vectors that it holds."""
        self._index.reset()
        data: bytes = self._library.serialize_index(self._index).tobytes()
        return data

    @property
    def needed(self) -> int:
        """The number of vectors that the index is trained on; 0 if it needs no training."""
        if self._index.is_trained:
            return 0
        codes = self._core.pq.ksub if hasattr(self._core, "pq") else 1
        return PER_CENTROID * max(CENTROIDS, getattr(self._core, "nlist", 1), codes)

    def train(self, vectors: Tensor) -> None:
        """Train on a sample of the vectors, ``(n, width)`` float32 or float16, if the index needs training.

        If there are fewer vectors than ``needed``, the index becomes ``Flat``, which needs no training and is
        exact.
        """
        if len(vectors) < self.needed:
            self._index = self._empty("Flat")
        elif self.needed:
            if hasattr(self._core, "cp"):
                self._core.cp.seed = 1
            if hasattr(self._core, "do_polysemous_training"):
                self._core.do_polysemous_training = False  # slow, and for a search mode that is not used
            with self._refusals(), self._threads(one=self._graph):
                self._index.train(vectors[_drawn(self.needed, len(vectors), 1)].float().numpy())

    def hold(self, others: Tensor) -> None:
        """Put these vectors, ``(n, width)`` float32 or float16, into the index in place of any others.

        What the index learned in training is kept.
        """
        if "HNSW" in self._name:  # ``reset`` keeps the state of its random generator
            if self._unfilled is None:
                self._unfilled = self._library.serialize_index(self._index)
            self._index = self._library.deserialize_index(self._unfilled)
        self._index.reset()
        self.others = others.contiguous()
        with self._refusals(), self._threads(one=self._graph and self.probes()[0] != "nprobe"):
            # NSG takes all vectors at once.
            converted_at_once = others.dtype == torch.float32 or "NSG" in self._name
            together = max(1, len(others)) if converted_at_once else CONVERTED
            for part in torch.split(self.others, together):
                self._index.add(part.float().numpy())

    def _empty(self, index: str) -> Any:
        """An empty index, with its wrappers (rotations and the like)."""
        if re.search(r"(IVF|HNSW|NSG)0*[01](?!\d)", index):
            raise self._refusal("fewer than 2 lists or links")  # FAISS would crash, or find nothing
        with self._refusals():
            return self._library.index_factory(self._width, index, self._library.METRIC_INNER_PRODUCT)

    @property
    def _core(self) -> Any:
        """The core index inside the wrappers."""
        index = self._index
        while inner := getattr(index, "index", None) or getattr(index, "base_index", None):
            index = self._library.downcast_index(inner)
        return index

    def search(self, queries: Tensor, k: int, effort: _Effort) -> Neighbours:
        """The k nearest candidates of each query; the id is -1 where there are fewer."""
        parameter, _, most = self.probes()
        if parameter:
            probe = min(effort.probe, most)
            self._library.ParameterSpace().set_index_parameter(self._index, parameter, probe)
        queries = queries.contiguous().float()
        _, ids = self._index.search(queries.numpy(), min(effort.candidates, len(self.others)))
        return _scored(queries, self.others, torch.from_numpy(ids), k)

    def probes(self) -> tuple[str | None, int, int]:
        """FAISS's name for the parameter that ``probe`` sets, and its smallest and largest useful value."""
        if hasattr(self._core, "nlist"):
            return "nprobe", 1, self._core.nlist
        return ("efSearch", 16, len(self.others)) if hasattr(self._core, "hnsw") else (None, 1, 1)

    def _refusal(self, reason: str) -> SettingsError:
        return SettingsError(
            f"index {self._name!r} cannot be built from vectors of width {self._width} ({reason}); "
            f"try {INDEX_EXAMPLES}"
        )

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Raise FAISS's errors as ``SettingsError``, without the place in its code that they begin with."""
        try:
            yield
        except (RuntimeError, MemoryError) as error:
            raise self._refusal(str(error).rpartition(": ")[2]) from None

    @contextmanager
    def _threads(self, *, one: bool) -> Iterator[None]:
        usual = self._library.omp_get_max_threads()
        self._library.omp_set_num_threads(1 if one else usual)
        try:
            yield
        finally:
            self._library.omp_set_num_threads(usual)


def _tuned(index: FaissIndex, queries: Tensor, k: int, recall: float) -> _Effort:
    """The search effort, doubled as ``faiss_search`` says."""
    nearest = _exact(queries, index.others, k)
    _, least, most = index.probes()

    def tried(effort: _Effort) -> tuple[float, _Effort]:
        return _share(index.search(queries, k, effort).similarities, nearest.similarities), effort

    share, effort = tried(_Effort(least, 2 * k))
    while share - (share * (1 - share) / len(queries)) ** 0.5 < recall:
        more = []
        if effort.probe < most:
            more.append(tried(_Effort(2 * effort.probe, effort.candidates)))
        if effort.candidates < len(index.others):
            more.append(tried(_Effort(effort.probe, 2 * effort.candidates)))
        best = max(more, key=lambda trial: trial[0], default=(share, effort))
        if best[0] <= share:
            break
        share, effort = best
    return effort


def _exact(queries: Tensor, others: Tensor, k: int) -> Neighbours:
    """The k nearest neighbours, by computing all products; for few queries."""
    library = _faiss()
    count = min(2 * k, len(others))
    together = max(count, len(others) if others.dtype == torch.float32 else CONVERTED)
    candidates = []
    for first in range(0, len(others), together):
        part = others[first : first + together].contiguous().float().numpy()
        query_vectors = queries.contiguous().float().numpy()
        _, ids = library.knn(query_vectors, part, min(count, len(part)), metric=library.METRIC_INNER_PRODUCT)
        candidates.append(torch.from_numpy(ids) + first)
    return _scored(queries, others, torch.cat(candidates, dim=1), k)


def _scored(queries: Tensor, others: Tensor, ids: Tensor, k: int) -> Neighbours:
    """The k nearest of the candidates ``ids``.

    They are chosen by float32 sums. Their similarities are rounded float64 sums, as in ``two_way_search``.
    """
    values = _float32_products(queries.contiguous().float(), others, ids.contiguous())
    nearest_ids = merged([Neighbours(ids, values.masked_fill(ids < 0, -torch.inf))], k).ids
    height = max(1, GATHERED // (nearest_ids.shape[1] * others.shape[1]))
    parts = zip(torch.split(queries, height), torch.split(nearest_ids.clamp(min=0), height), strict=True)
    sums = torch.cat([products_with(part, others, of_part) for part, of_part in parts])
    return Neighbours(nearest_ids, sums.masked_fill(nearest_ids < 0, -torch.inf))


def _float32_products(queries: Tensor, others: Tensor, ids: Tensor) -> Tensor:
    """The products of queries, ``(n, d)`` float32, with their candidates: ``(n, c)`` float32.

    ``ids``, ``(n, c)`` int64, are the candidates; the product for the id -1 is undefined.
    """
    if others.dtype == torch.float32:
        values = torch.empty(ids.shape)
        library = _faiss()
        pointers = (
            library.swig_ptr(tensor.numpy()) for tensor in (values, queries, others.contiguous(), ids)
        )
        library.fvec_inner_products_by_idx(*pointers, queries.shape[1], *ids.shape)
        return values
    height = max(1, GATHERED // (ids.shape[1] * others.shape[1]))
    products = []
    for part, whose in zip(torch.split(queries, height), torch.split(ids.clamp(min=0), height), strict=True):
        candidates = others.index_select(0, whose.flatten()).view(*whose.shape, -1).float()
        products.append(torch.bmm(candidates, part[:, :, None]).squeeze(2))
    return torch.cat(products)


def _share(similarities: Tensor, nearest: Tensor) -> float:
    """Recall: the share of the similarities that were found, ``(n, k)``, that are among the k largest."""
    return float((similarities >= nearest[:, -1:] - ROUNDING).double().mean())


def _drawn(count: int, of: int, seed: int) -> Tensor:
    """``count`` distinct random numbers below ``of``, rising: one from each of ``count`` equal intervals."""
    edges = torch.arange(count + 1) * of // count
    places = torch.rand(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return edges[:-1] + (places * edges.diff()).long()


def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise MissingExtra("faiss-cpu", "faiss") from None
    return faiss
