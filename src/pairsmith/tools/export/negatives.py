"""Export of queries with hard negatives, in the formats of the tools that train on them.

sentence-transformers reads triplets and tuples by the order of their columns, and the column ``label`` by its
name. Its MarginMSE and KL losses expect the scores of the positive and of all negatives there. Tevatron and
FlagEmbedding read one line for each query.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pairsmith.core.errors import SettingsError
from pairsmith.data.kinds import Row

Splits = Mapping[str, Sequence[Row]]
"""Rows by split."""

Files = Iterator[tuple[str, Iterable[str]]]
"""File names, each with the lines of the file."""


def line(row: Mapping[str, Any]) -> str:
    """A row as a line of JSON."""
    return json.dumps(dict(row), ensure_ascii=False, default=str)


def triplets(splits: Splits) -> Files:
    """A row for each negative: anchor, positive, negative."""
    for split, rows in splits.items():
        yield (
            f"{split}.jsonl",
            [
                line({"anchor": row["query"], "positive": row["positive"], "negative": text})
                for row in rows
                for text in row["negatives"]
            ],
        )


def tuples(splits: Splits) -> Files:
    """Anchor, positive and negatives; only rows with the largest number of negatives are written."""
    count = most_negatives(splits)
    for split, rows in splits.items():
        yield f"{split}.jsonl", [line(_tuple(row)) for row in rows if len(row["negatives"]) == count]


def scored_tuples(splits: Splits) -> Files:
    """As ``tuples``, with the scores of the positive and of all negatives as ``label``."""
    count = most_negatives(splits)
    for split, rows in splits.items():
        for row in rows:
            _refuse_unscored(row, "scored-tuples")
        yield (
            f"{split}.jsonl",
            [
                line(_tuple(row) | {"label": [row["score"], *row["scores"]]})
                for row in rows
                if len(row["negatives"]) == count
            ],
        )


def most_negatives(splits: Splits) -> int:
    """The largest number of negatives of a row."""
    return max((len(row["negatives"]) for rows in splits.values() for row in rows), default=0)


def left_out(splits: Splits) -> int:
    """The number of rows that ``tuples`` leaves out, as they have fewer negatives than other rows."""
    count = most_negatives(splits)
    return sum(len(row["negatives"]) < count for rows in splits.values() for row in rows)


def tevatron(splits: Splits) -> Files:
    """A line for each query: ``query_id``, ``query``, ``positive_passages`` and ``negative_passages``."""
    for split, rows in splits.items():
        yield (
            f"{split}.jsonl",
            [
                line(
                    {
                        "query_id": query_id,
                        "query": of_query[0]["query"],
                        "positive_passages": _passages(_positives(of_query)),
                        "negative_passages": _passages(_negatives(of_query)),
                    }
                )
                for query_id, of_query in _by_query(rows).items()
            ],
        )


def flag_embedding(splits: Splits) -> Files:
    """A line for each query: ``query``, ``pos`` and ``neg``, and if all texts have scores these, too."""
    for split, rows in splits.items():
        lines = []
        for of_query in _by_query(rows).values():
            positives, negatives = _positives(of_query), _negatives(of_query)
            entry: dict[str, Any] = {
                "query": of_query[0]["query"],
                "pos": [text for text, _ in positives.values()],
                "neg": [text for text, _ in negatives.values()],
            }
            scores = [score for texts in (positives, negatives) for _, score in texts.values()]
            if None not in scores:
                entry["pos_scores"] = scores[: len(positives)]
                entry["neg_scores"] = scores[len(positives) :]
            lines.append(line(entry))
        yield f"{split}.jsonl", lines


def beir_with_negatives(splits: Splits) -> Files:
    """BEIR: ``corpus.jsonl`` has positives and negatives, ``qrels/SPLIT.tsv`` the positives of each query."""
    all_rows = [row for rows in splits.values() for row in rows]
    texts: dict[str, str] = {}
    for row in all_rows:
        texts.setdefault(row["positive_id"], row["positive"])
        for name, text in zip(row["negative_ids"], row["negatives"], strict=True):
            texts.setdefault(name, text)
    queries = {row["query_id"]: row["query"] for row in all_rows}
    yield "corpus.jsonl", (line({"_id": name, "title": "", "text": text}) for name, text in texts.items())
    yield "queries.jsonl", (line({"_id": name, "text": text}) for name, text in queries.items())
    for split, rows in splits.items():
        pairs = dict.fromkeys((row["query_id"], row["positive_id"]) for row in rows)
        lines = [f"{query}\t{document}\t1" for query, document in pairs]
        yield f"qrels/{split}.tsv", ["query-id\tcorpus-id\tscore", *lines]


def _tuple(row: Row) -> dict[str, Any]:
    negatives = {f"negative_{number}": text for number, text in enumerate(row["negatives"], start=1)}
    return {"anchor": row["query"], "positive": row["positive"], **negatives}


def _refuse_unscored(row: Row, form: str) -> None:
    if row["score"] is None or row["scores"] is None:
        raise SettingsError(
            f"--form {form} needs the columns score and scores, which row {row['id']} lacks; choose "
            "--form sentence-transformers or triplets"
        )


def _by_query(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The rows of each query, in the order in which queries appear."""
    by_query: dict[str, list[Row]] = {}
    for row in rows:
        by_query.setdefault(row["query_id"], []).append(row)
    return by_query


Texts = dict[str, tuple[str, float | None]]
"""Texts with their scores, by their ids."""


def _positives(rows: Iterable[Row]) -> Texts:
    return {row["positive_id"]: (row["positive"], row["score"]) for row in rows}


def _negatives(rows: Iterable[Row]) -> Texts:
    """The negatives of all rows of a query, each of them once, with the score that it has first."""
    negatives: Texts = {}
    for row in rows:
        scores = row["scores"] or [None] * len(row["negatives"])
        for name, text, score in zip(row["negative_ids"], row["negatives"], scores, strict=True):
            negatives.setdefault(name, (text, score))
    return negatives


def _passages(texts: Texts) -> list[dict[str, str]]:
    return [{"docid": name, "title": "", "text": text} for name, (text, _) in texts.items()]
