"""Questions on passages, with answers that are spans of the passages, in SQuAD's formats.

- the official files (``.json``, also ``.gz``), versions 1.1 and 2.0: articles of paragraphs of questions;
- rows, one per question (JSON Lines, Parquet, a dataset folder, a Hub data set), with columns ``context``,
  ``question`` (``input`` in mined rows) and ``answers``: lists of ``text`` and ``answer_start``, as in the
  Hub's ``squad``, a list with both for each answer, or only the text of an answer, or a list of such texts,
  each of which stands for its first occurrence in the passage. ``id`` and ``title`` are optional;
- MRQA's files (JSON Lines, also ``.gz``): one passage per row, with all its questions;
- the results of ``search --json``: one query per row, with the texts that the search ranks highest for it.

By default, questions without an answer are left out.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pairsmith.core.errors import InputError, joined_names, redacted
from pairsmith.core.paths import Place, data_suffix, display_name, is_folder, place, reaching, size_of
from pairsmith.data.kept_columns import kept_names, value_as_text
from pairsmith.data.lines import read_lines
from pairsmith.data.readers import (
    at_least_one,
    column_text,
    filled_text,
    find_column,
    id_column,
    own_id,
    pick_columns,
    refuse_half_characters,
    row_id,
    title_of,
)
from pairsmith.data.schemas import ANSWERS, text_schema
from pairsmith.data.sources import Columns, Source, open_source

QUESTION: pa.Schema = pa.schema([*text_schema("id", "title", "context", "question"), ("answers", ANSWERS)])
WORDINGS = "(answers as people gave them)"
"""Internal column of the answers as people worded them; these need not occur in the passage verbatim."""
_COLUMNS_OF_SEARCH = {"id", "context", "question", "rank", "score", "chunk", "title", "document"}
"""Columns of a question on a document that ``search`` ranked."""
_NO_START = -1
"""The start of an answer that was given as a text alone."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, and the offset of its first character in the passage, in characters."""

    text: str
    start: int


@dataclass(frozen=True, slots=True)
class Question:
    """A question on a passage and its answers, each of which is a span of the passage.

    ``wordings`` are the answers as people worded them, if the data set has these in addition to the spans.
    """

    id: str
    title: str
    context: str
    question: str
    answers: tuple[Answer, ...]
    wordings: tuple[str, ...] = ()

    def columns(self) -> dict[str, Any]:
        """The question as a row of the schema ``QUESTION``."""
        return {
            "id": self.id,
            "title": self.title,
            "context": self.context,
            "question": self.question,
            "answers": {
                "text": [answer.text for answer in self.answers],
                "answer_start": [answer.start for answer in self.answers],
            },
        }

    @property
    def golds(self) -> tuple[str, ...]:
        """The gold answers that a prediction is scored against."""
        return self.wordings or tuple(answer.text for answer in self.answers)


def read_questions(source: str | Place | Source, *, unanswered: bool = False) -> Iterator[Question]:
    """Read questions that have answers, in order, one at a time; an official SQuAD file is read into memory.

    A question without an id gets one that is computed from its text and its passage. If an answer does not
    stand at its stated offset, its first occurrence in the passage is used.

    Args:
        source: a file, a dataset folder, or a Hub data set ``org/name`` or ``org/name:split``.
        unanswered: whether questions without answers are yielded, too.
    """
    return (question for question, _, _ in questions_with_rows(source, unanswered=unanswered))


def questions_with_rows(
    source: str | Place | Source, *, unanswered: bool = False
) -> Iterator[tuple[Question, str, Columns]]:
    """As ``read_questions``, but yields each question with the location of its row, and with its row."""
    return _questions(open_questions(source), unanswered)


@dataclass(frozen=True, slots=True)
class QuestionRow:
    """A question and its passage, either of which may be blank.

    ``others`` has the row's other columns: texts unchanged, other values as JSON, null as None.
    """

    id: str
    context: str
    question: str
    others: Mapping[str, str | None]

    @property
    def blank(self) -> str:
        """Which of the two is blank, ``question`` or ``passage``; empty if neither is."""
        if not self.question:
            return "question"
        return "" if self.context.strip() else "passage"


def read_question_rows(source: str) -> Iterator[QuestionRow]:
    """Read questions that a model is to answer, one at a time, including blank questions and passages.

    The rows need no column ``answers``; if they have one, it is not checked. ``source``, and the id of a
    question without one, are as for ``read_questions``.
    """
    opened = open_questions(source)
    names: list[str] = []
    for where, row in at_least_one(opened.rows(), f"{opened.name} holds no questions"):
        if not names and find_column(row, ["question"]) and not find_column(row, ["context"]):
            raise InputError(
                f"{opened.name} has no column 'context', in which each question has the passage that answers "
                f"it; pairsmith search --json finds passages; it has: {joined_names(row)}"
            )
        names = names or pick_columns(row, [["context"], [question_column(row)]], opened.name)
        column_text(row, names[0], where)  # refuses what is no text
        context = str(row[names[0]] or "")  # not stripped, as in ``read_questions``
        question = column_text(row, names[1], where)
        others = {
            name: value_as_text(value, name, where)
            for name, value in row.items()
            if name not in (*names, id_column(row), WORDINGS)
        }
        yield QuestionRow(row_id(row, question + context, where), context, question, others)


def open_questions(source: str | Place | Source) -> Source:
    """As ``open_source``; files with several questions in a row are also opened with one row per question."""
    if not isinstance(source, Source):
        source = official_squad(place(source)) or open_source(source)
    opened = source
    return Source(opened.name, lambda: one_question_per_row(opened.rows))


def open_passages(source: str) -> Source:
    """As ``open_source``; of an official SQuAD file each row is a passage, with ``title`` and ``context``."""
    questions = official_squad(place(source))
    return Source(questions.name, lambda: _passages(questions)) if questions else open_source(source)


def _passages(questions: Source) -> Iterator[tuple[str, Columns]]:
    """The passages of questions of an official file, each once; those without a question are left out."""
    passages = set[tuple[Any, Any]]()
    for where, row in questions.rows():
        passage = {name: row[name] for name in ("title", "context")}
        if (key := (str(row["title"]), str(row["context"]))) not in passages:
            passages.add(key)
            yield where.rpartition(".qas")[0], passage


def official_squad(path: Place) -> Source | None:
    """The official SQuAD file at ``path`` as a source of rows; None if the file has another format."""
    with reaching(path, InputError):
        is_file = data_suffix(path) == ".json" and not is_folder(path) and size_of(path) is not None
    return _nested(path) if is_file else None


def question_column(row: Columns) -> str:
    """The name of the column with the questions: ``question``, in any case, or ``input`` in mined rows."""
    return "question" if find_column(row, ["question"]) or "input" not in row else "input"


def _questions(source: Source, unanswered: bool) -> Iterator[tuple[Question, str, Columns]]:
    names: list[str] = []
    total = answered = 0
    for where, row in source.rows():
        if not names:
            columns = ("context", question_column(row), "answers")
            names = pick_columns(row, [[column] for column in columns], source.name)
        question = _question(row, names, where)
        total += 1
        answered += bool(question.answers)
        if question.answers or unanswered:
            yield question, where, row
    if total and not answered:
        raise InputError(
            f"{source.name}: none of its {total:,} questions has an answer in its passage; relabel has a "
            "teacher answer them"
        )
    if not total:
        raise InputError(f"{source.name} holds no questions with answers")


def _question(row: Columns, names: Sequence[str], where: str) -> Question:
    filled_text(row, names[0], where)
    context = str(row[names[0]])  # not stripped, as the offsets of answers count white space at its beginning
    question = filled_text(row, names[1], where)
    answers = () if row.get("is_impossible") is True else _answers(row, names[2], where, context)
    for wording in row.get(WORDINGS) or ():
        refuse_half_characters(wording, names[2], where)
    return Question(
        id=row_id(row, question + context, where),
        title=title_of(row, where),
        context=context,
        question=question,
        answers=answers,
        wordings=tuple(row.get(WORDINGS) or ()),
    )


def _answers(row: Columns, name: str, where: str, context: str) -> tuple[Answer, ...]:
    if name not in row:
        raise InputError(f"{where}: no column {name!r}, which earlier rows have; it has: {joined_names(row)}")
    return tuple(locate_answer(text, start, context, where) for text, start in answer_pairs(row[name], where))


def answer_pairs(answers: Any, where: str) -> Iterable[tuple[Any, Any]]:
    """(text, start) of each answer in a column answers, of either format; the values are not checked."""
    match answers:
        case None:
            return []
        case str():  # a cell of a CSV file; a blank one has no answer
            return [(answers, _NO_START)] if answers.strip() else []
        case [*texts] if texts and all(isinstance(text, str) for text in texts):
            return [(text, _NO_START) for text in texts]
        case {"text": [*texts], "answer_start": [*starts]} if len(texts) == len(starts):
            return zip(texts, starts, strict=True)
        case [*objects] if all(isinstance(answer, Mapping) for answer in objects):
            return [(answer.get("text"), answer.get("answer_start")) for answer in objects]
    raise InputError(
        f"{where}: answers has to be a text, a list of texts, two lists of one length (text and "
        f"answer_start), or a list of objects with both; it is {json.dumps(answers, default=str)[:60]}"
    )


def locate_answer(text: object, start: object, context: str, where: str) -> Answer:
    """The answer at ``start`` if it stands there in the context, else at its first occurrence.

    Raises:
        InputError: the text is blank, the start is no number, or the answer does not occur in the context.
    """
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"{where}: an answer is {json.dumps(text, default=str)[:40]}; a text is expected")
    if not isinstance(start, int) or isinstance(start, bool):
        raise InputError(
            f"{where}: answer_start of {text[:40]!r} is {start!r}; a character position is expected"
        )
    if start >= 0 and context.startswith(text, start):
        return Answer(text, start)
    position = context.find(text)
    if position < 0:
        at_start = "" if start == _NO_START else f", at {start} or elsewhere"
        raise InputError(
            f"{where}: the answer {text[:40]!r} does not occur in its context{at_start}; "
            "answers have to be copied from the context letter for letter"
        )
    return Answer(text, position)


def _nested(path: Place) -> Source | None:
    """The official SQuAD file at ``path`` as a source of rows; None if each of its lines is a row."""
    lines = ((number, line) for number, line in read_lines(path) if line.strip())
    _, first = next(lines, (0, ""))
    if not first.lstrip().startswith("{"):
        return None
    content: Any = None
    with suppress(ValueError, RecursionError):
        content = json.loads(first)
    articles = content.get("data") if content is not None else None
    if content is not None and not isinstance(articles, list):
        return None
    if articles is not None and (following := next(lines, None)):
        if not any(isinstance(article, dict) and "paragraphs" in article for article in articles):
            return None  # rows with a column data
        raise InputError(
            f"{display_name(path)}:{following[0]}: more text after the end of the SQuAD file; if several "
            "files were joined, give each of them by itself"
        )
    if content is None:
        with suppress(ValueError, RecursionError):
            content = json.loads("\n".join([first, *(line for _, line in lines)]))
        articles = content.get("data") if isinstance(content, dict) else None
    if not isinstance(articles, list):
        raise InputError(
            f"{path} is neither a SQuAD file (one object whose data is a list of articles) "
            "nor one JSON object per line"
        )
    name = display_name(path)
    return Source(redacted(str(path)), lambda: _flat(articles, name))


def _flat(articles: Sequence[Any], name: str) -> Iterator[tuple[str, Columns]]:
    """One row per question of an official file; locations are such as ``f: data[0].paragraphs[2].qas[1]``."""
    for a, article in enumerate(articles):
        where_article = f"{name}: data[{a}]"
        for p, paragraph in enumerate(_list(article, "paragraphs", where_article)):
            where_paragraph = f"{where_article}.paragraphs[{p}]"
            for q, question in enumerate(_list(paragraph, "qas", where_paragraph)):
                where = f"{where_paragraph}.qas[{q}]"
                if not isinstance(question, dict):
                    raise InputError(f"{where}: an object with question and answers is expected")
                if "context" not in paragraph:
                    raise InputError(f"{where_paragraph}: has no context; it has: {joined_names(paragraph)}")
                yield where, {"title": article.get("title"), "context": paragraph["context"], **question}


def _list(parent: object, key: str, where: str) -> list[Any]:
    values = parent.get(key) if isinstance(parent, dict) else None
    if not isinstance(values, list):
        raise InputError(f"{where}: a list called {key} is expected, as in SQuAD files")
    return values


# Rows of several questions


def one_question_per_row(
    rows: Callable[[], Iterable[tuple[str, Columns]]],
) -> Iterator[tuple[str, Columns]]:
    """Convert MRQA's rows, and those of ``search --json``, to rows of one question; others are unchanged.

    Each detected span of MRQA becomes an answer. The answers that MRQA's own script scores predictions
    against are in the column ``WORDINGS``.

    A query of ``search`` becomes a question on each of its documents, whose id is in the column ``chunk``;
    without documents it becomes one on a blank passage. Its other columns are kept, with ``original_`` before
    names that documents have. Its id is that of the question on the first document; the ids on the others end
    with the number of the document, as in ``17-2``, or in ``17-2-2`` if another query has that id.
    """
    ids = set[str]()  # those of all queries, and those of the questions so far
    for where, row in rows():
        documents = row.get("documents")
        if "query" in row and isinstance(documents, list) and all(isinstance(d, Mapping) for d in documents):
            query_id, not_others = own_id(row, where), {"query", "documents", id_column(row)}
            others = {name: value for name, value in row.items() if name not in not_others}
            ids = ids or {own_id(other, place_of_other) for place_of_other, other in rows()}
            for number, document in enumerate(documents or [{}], start=1):
                columns = {"chunk" if name == "id" else name: value for name, value in document.items()}
                columns = {"context": columns.pop("text", ""), "question": row["query"], **columns}
                if query_id:
                    question_id = query_id if number == 1 else f"{query_id}-{number}"
                    while number > 1 and question_id in ids:
                        question_id += f"-{number}"
                    ids.add(question_id)
                    columns = {"id": question_id, **columns}
                names = kept_names(others, _COLUMNS_OF_SEARCH | columns.keys())
                yield where, {**columns, **{names[name]: value for name, value in others.items()}}
            continue
        if "qas" not in row:
            yield where, row
            continue
        if not isinstance(row["qas"], list) or not isinstance(row.get("context"), str):
            raise InputError(f"{where}: a text called context and a list called qas are expected, as in MRQA")
        for number, question in enumerate(row["qas"]):
            yield f"{where}.qas[{number}]", _mrqa_row(question, row["context"], f"{where}.qas[{number}]")


def _texts(value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise ValueError(f"answers are a list of texts, not {str(value)[:40]}")
    return value


def _mrqa_row(question: Any, context: str, where: str) -> dict[str, Any]:
    try:
        spans = [span for answer in question["detected_answers"] for span in answer["char_spans"]]
        starts = [int(start) for start, _ in spans]
        texts = [context[int(start) : int(last) + 1] for start, last in spans]  # ``last`` is inclusive
        return {
            "id": str(question.get("qid") or question.get("id") or where),
            "context": context,
            "question": question["question"],
            "answers": {"text": texts, "answer_start": starts},
            WORDINGS: _texts(question.get("answers") or []),
        }
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise InputError(
            f"{where}: a question with detected_answers and their char_spans is expected, as MRQA has them "
            f"({type(error).__name__}: {error})"
        ) from None
