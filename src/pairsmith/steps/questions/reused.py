"""``ask --reuse``: passages that have not changed keep the questions of an earlier run.

finished folder of questions -> its questions and rejects by passage -> texts with the passages that keep them
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Self

from pairsmith.data.documents import Document
from pairsmith.data.questions import GENERATED_QUESTION, generated_questions_in
from pairsmith.data.schemas import Reject
from pairsmith.methods.quip.passages import Passage, passage_id
from pairsmith.runs.identity import Identity
from pairsmith.runs.mapped import RecordShard
from pairsmith.steps.reuse import EarlierRows, WithEarlier, open_earlier

_CHOOSING = {"column", "keep_column", "sample", "shard_size"}
"""Settings that decide which passages are used and how rows are saved, but not a passage's questions."""

PassagesOf = Callable[[Sequence[Document]], tuple[list[list[Passage]], list[Reject]]]


class EarlierQuestions:
    """The questions and rejects of a finished folder, by passage."""

    def __init__(self, path: str, rows: EarlierRows) -> None:
        self._path, self._rows = path, rows

    @classmethod
    def open(cls, path: str, identity: Identity) -> Self:
        """Open the folder ``path`` for the run with this identity.

        Raises:
            FolderError: the folder is unfinished or damaged, or its questions were made with other settings.
        """
        # Beam search is deterministic: the seed only decides which passages are sampled.
        choosing = _CHOOSING | ({"seed"} if identity.settings.get("decoding") == "beams" else set())
        folder = open_earlier(path, identity, choosing=choosing, sources="inputs", rows="questions")
        return cls(path, EarlierRows(folder, lambda row: _passage(row["id"]), lambda row: _passage(row.id)))

    def has(self, document: Document) -> bool:
        """Whether the folder has the first passage of a text, and thus all, unless it holds a sample."""
        return passage_id(0, document.text) in self._rows

    def filled(
        self, passages_of: PassagesOf, shard: RecordShard[Document]
    ) -> RecordShard[WithEarlier[Document, Passage]]:
        """The texts of a shard, each with its passages that are in the folder.

        ``passages_of`` returns the passages of each text to ask about, as ``cut_passages`` does.
        """
        of_texts, _ = passages_of(shard.records)
        rows = self._rows.of(passage.id for of_text in of_texts for passage in of_text)
        inputs = []
        for document, of_text in zip(shard.records, of_texts, strict=True):
            passages = [self._filled(passage, *rows.get(passage.id, ([], []))) for passage in of_text]
            earlier = {passage.id: passage for passage in passages if not passage.is_new}
            inputs.append(WithEarlier(document, earlier, len(passages) - len(earlier)))
        return RecordShard(shard.number, tuple(inputs))

    def _filled(self, passage: Passage, rows: list[dict[str, Any]], rejects: list[Reject]) -> Passage:
        """The passage with its questions and rejects of the folder; unchanged if its text differs there."""
        contexts = {row["context"] for row in rows} or {
            json.loads(reject.row)["context"] for reject in rejects
        }
        if contexts != {passage.text}:
            return passage
        questions = generated_questions_in(((self._path, row) for row in rows), {})
        by_text = {
            question.question.casefold(): replace(question, kept=passage.kept) for question in questions
        }
        own_rejects = [_with_kept(passage, reject) for reject in rejects]
        return replace(passage, questions=by_text, rejects=own_rejects)


def _with_kept(passage: Passage, reject: Reject) -> Reject:
    """The reject with the columns that this run keeps of the passage's document."""
    row = json.loads(reject.row)
    own = {name: row[name] for name in GENERATED_QUESTION.names if name in row}
    return Reject.of(reject.id, reject.filter, reject.reason, {**own, **passage.kept})


def _passage(name: str) -> str:
    """The id of the passage in the id of a question or reject; the reject of a whole passage has this id."""
    return name.partition("-")[0]
