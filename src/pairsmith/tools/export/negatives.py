"""Queries with hard negatives as JSON objects, in the formats of the tools that train on them.

sentence-transformers reads triplets and tuples by the order of their columns, and the column ``label`` by its
name. Its MarginMSE and KL losses expect the scores of the positive and of all negatives there. Tevatron and
FlagEmbedding read one object for each query.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from pairsmith.core.errors import InputError, SettingsError
from pairsmith.data.kinds import Row

Objects = Iterator[dict[str, Any]]

Texts = dict[str, tuple[str, float | None]]
"""Texts with their scores, by their ids."""


def triplets(rows: Iterable[Row]) -> Objects:
    """An object for each negative: anchor, positive, negative."""
    for row in rows:
        for text in row["negatives"]:
            yield {"anchor": row["query"], "positive": row["positive"], "negative": text}


def tuples(rows: Iterable[Row]) -> Objects:
    """An object for each row: anchor, positive, ``negative_1``, ``negative_2`` …."""
    for row in rows:
        negatives = {f"negative_{number}": text for number, text in enumerate(row["negatives"], start=1)}
        yield {"anchor": row["query"], "positive": row["positive"], **negatives}


def scored_tuples(rows: Iterable[Row]) -> Objects:
    """As ``tuples``, with the scores of the positive and of all negatives as ``label``."""
    for row in rows:
        if row["score"] is None or row["scores"] is None:
            raise SettingsError(
                f"--form scored-tuples needs the columns score and scores, which row {row['id']} lacks; "
                "choose --form sentence-transformers or triplets"
            )
        (columns,) = tuples([row])
        yield columns | {"label": [row["score"], *row["scores"]]}


def tevatron(rows: Iterable[Row]) -> Objects:
    """An object for each query: ``query_id``, ``query``, ``positive_passages``, ``negative_passages``."""
    for query_id, (query, positives, negatives) in _by_query(rows).items():
        yield {
            "query_id": query_id,
            "query": query,
            "positive_passages": _passages(positives),
            "negative_passages": _passages(negatives),
        }


def flag_embedding(rows: Iterable[Row]) -> Objects:
    """An object for each query: ``query``, ``pos``, ``neg`` and, if all texts have scores, their scores."""
    for query, positives, negatives in _by_query(rows).values():
        sides = {"pos": positives.values(), "neg": negatives.values()}
        scores = {f"{side}_scores": [score for _, score in texts] for side, texts in sides.items()}
        complete = not any(None in of_side for of_side in scores.values())
        texts = {side: [text for text, _ in texts] for side, texts in sides.items()}
        yield {"query": query, **texts, **(scores if complete else {})}


def _passages(texts: Texts) -> list[dict[str, str]]:
    return [{"docid": name, "title": "", "text": text} for name, (text, _) in texts.items()]


def _by_query(rows: Iterable[Row]) -> dict[str, tuple[str, Texts, Texts]]:
    """By query id, the query, its positives and its negatives.

    A negative that occurs in several rows has its score in the first of these rows.
    """
    by_query: dict[str, tuple[str, Texts, Texts]] = {}
    for row in rows:
        query, positives, negatives = by_query.setdefault(row["query_id"], (row["query"], {}, {}))
        refuse_other_query(row, query)
        positives[row["positive_id"]] = row["positive"], row["score"]
        scores = row["scores"] or [None] * len(row["negatives"])
        for name, text, score in zip(row["negative_ids"], row["negatives"], scores, strict=True):
            negatives.setdefault(name, (text, score))
    return by_query


def refuse_other_query(row: Row, earlier: str) -> None:
    """Raise an ``InputError`` unless the row's query is ``earlier``, which another row has with its id."""
    if row["query"] != earlier:
        raise InputError(
            f"row {row['id']}: another query has the query_id {row['query_id']!r}, too; give each query an "
            "id of its own"
        )
