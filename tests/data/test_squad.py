"""Questions in SQuAD's forms: the official files, rows of several shapes, and what is wrong with either."""

import gzip
import json
import sys
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairsmith.core.errors import InputError
from pairsmith.data.documents import read_documents
from pairsmith.data.readers import text_id
from pairsmith.data.squad import (
    QUESTION,
    Answer,
    Question,
    QuestionRow,
    open_passages,
    read_question_rows,
    read_questions,
)

PASSAGE = " The Rhine rises in the Alps and ends in the North Sea. "
WHERE = Question("q1", "Rhine", PASSAGE, "Where does it rise?", (Answer("the Alps", 20), Answer("Alps", 24)))
END = Question("q2", "Rhine", PASSAGE, "Where does it end?", (Answer("the North Sea", 41),))

OFFICIAL = {
    "version": "v2.0",
    "data": [
        {
            "title": "Rhine",
            "paragraphs": [
                {
                    "context": PASSAGE,
                    "qas": [
                        {
                            "id": "q1",
                            "question": " Where does it rise? ",
                            "answers": [
                                {"text": "the Alps", "answer_start": 20},
                                {"text": "Alps", "answer_start": 24},
                            ],
                            "is_impossible": False,
                        },
                        {
                            "id": "q0",
                            "question": "Where does it sing?",
                            "answers": [],
                            "plausible_answers": [{"text": "the Alps", "answer_start": 20}],
                            "is_impossible": True,
                        },
                    ],
                },
                {
                    "context": PASSAGE,
                    "qas": [
                        {
                            "id": "q2",
                            "question": "Where does it end?",
                            "answers": [{"text": "the North Sea", "answer_start": 41}],
                        }
                    ],
                },
            ],
        }
    ],
}
ROW = {
    "id": "q2",
    "title": "Rhine",
    "context": PASSAGE,
    "question": "Where does it end?",
    "answers": {"text": ["the North Sea"], "answer_start": [41]},
}


@pytest.fixture
def put(tmp_path):
    def write(name, data):
        path = tmp_path / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode("utf-8"))
        return path

    return write


@pytest.fixture
def rows(put):
    return lambda *rows, name="q.jsonl": put(name, "".join(json.dumps(row) + "\n" for row in rows))


def fault(source):
    with pytest.raises(InputError) as caught:
        list(read_questions(source))
    message = str(caught.value)
    assert message.count("\n") <= 1
    return message


class TestOfficialFiles:
    @pytest.mark.parametrize("indent", [None, 2])
    def test_questions_with_answers_are_read(self, put, indent):
        assert list(read_questions(put("dev.json", json.dumps(OFFICIAL, indent=indent)))) == [WHERE, END]

    def test_two_joined_files_are_refused(self, put):
        message = fault(put("all.json", f"{json.dumps(OFFICIAL)}\n\n{json.dumps(OFFICIAL)}\n"))
        assert message == (
            "all.json:3: more text after the end of the SQuAD file; if several files were joined, give each of "
            "them by itself"
        )

    @pytest.mark.parametrize("data", ["2020-12-31", None, [], [1]])
    def test_rows_may_have_a_column_data(self, put, data):
        path = put("q.json", 2 * (json.dumps({"data": data, **ROW}) + "\n"))
        assert list(read_questions(path)) == [END, END]

    def test_gzip_and_a_path_as_a_string(self, put):
        path = put("dev.json.gz", gzip.compress(json.dumps(OFFICIAL).encode()))
        assert list(read_questions(str(path))) == [WHERE, END]

    def test_an_impossible_question_is_left_out_even_with_answers(self, put):
        file = json.loads(json.dumps(OFFICIAL))
        file["data"][0]["paragraphs"][0]["qas"][1]["answers"] = [{"text": "Alps", "answer_start": 24}]
        assert list(read_questions(put("dev.json", json.dumps(file)))) == [WHERE, END]

    @pytest.mark.parametrize(
        ("path", "value", "message"),
        [
            (["data", 0, "paragraphs"], None, "dev.json: data[0]: a list called paragraphs is expected"),
            (["data", 0], 3, "dev.json: data[0]: a list called paragraphs is expected"),
            (["data", 0, "paragraphs", 1, "qas"], {}, "data[0].paragraphs[1]: a list called qas is expected"),
            (
                ["data", 0, "paragraphs", 1, "qas", 0],
                "x",
                "data[0].paragraphs[1].qas[0]: an object with question",
            ),
            (["data", 0, "paragraphs", 1, "context"], " ", "data[0].paragraphs[1].qas[0]: context is blank"),
            (["data", 0, "paragraphs", 1, "context"], 7, "qas[0]: column 'context' holds a number, not text"),
            (
                ["data", 0, "paragraphs", 1, "qas", 0, "question"],
                "",
                "paragraphs[1].qas[0]: question is blank",
            ),
        ],
    )
    def test_where_a_fault_stands(self, put, path, value, message):
        file = json.loads(json.dumps(OFFICIAL))
        *parents, last = path
        inner = file
        for step in parents:
            inner = inner[step]
        inner[last] = value
        assert message in fault(put("dev.json", json.dumps(file)))

    def test_a_paragraph_without_context(self, put):
        file = json.loads(json.dumps(OFFICIAL))
        del file["data"][0]["paragraphs"][0]["context"]
        assert "dev.json: data[0].paragraphs[0]: has no context; it has: qas" in fault(
            put("dev.json", json.dumps(file))
        )

    @pytest.mark.parametrize("text", ["{\n", '{\n"data": 3}', '{\n "version": "1.1"\n}', '{"data": [}'])
    def test_what_is_no_squad_file_says_so(self, put, text):
        assert (
            "dev.json is neither a SQuAD file (one object whose data is a list of articles) nor one"
            in fault(put("dev.json", text))
        )

    def test_rows_may_be_called_json(self, rows):
        assert list(read_questions(rows(ROW, ROW, name="q.json"))) == [END, END]

    def test_an_array_gets_the_advice_for_arrays(self, put):
        assert "a JSON array; one object per line is expected" in fault(put("q.json", json.dumps([ROW])))

    def test_nothing_with_an_answer(self, put, rows):
        assert fault(put("dev.json", '{"data": []}')).endswith("dev.json holds no questions with answers")
        unanswered = {**ROW, "answers": {"text": [], "answer_start": []}}
        assert "none of its 2 questions has an answer in its passage; relabel has a teacher answer" in fault(
            rows(unanswered, unanswered)
        )


class TestRows:
    def test_lists_of_texts_and_starts(self, rows):
        assert list(read_questions(rows(ROW))) == [END]

    def test_a_list_of_answers(self, rows):
        row = {**ROW, "answers": [{"text": "the North Sea", "answer_start": 41}]}
        assert list(read_questions(rows(row))) == [END]

    @pytest.mark.parametrize("answers", ["the North Sea", ["the North Sea"]])
    def test_answers_without_a_place_stand_where_they_first_occur(self, rows, answers):
        assert list(read_questions(rows({**ROW, "answers": answers}))) == [END]

    def test_a_csv_file_has_the_texts_of_the_answers(self, put):
        path = put("q.csv", f'context,question,answers\n"{PASSAGE}",Where does it end?,the North Sea\n')
        (question,) = read_questions(path)
        start = question.context.index("the North Sea")
        assert question.answers == (Answer("the North Sea", start),)

    @pytest.mark.parametrize("answers", [None, "", " ", [], {"text": [], "answer_start": []}])
    def test_a_question_without_answers_is_left_out(self, rows, answers):
        assert list(read_questions(rows({**ROW, "answers": answers}, ROW))) == [END]

    def test_mined_rows_call_the_question_input(self, rows):
        row = {"id": "q2", "input": "Where does it end?", "output": "x", "margin": 1.2, "score": 0.5}
        mined = {**row, "context": PASSAGE, "answers": ROW["answers"]}
        assert next(read_questions(rows(mined))).question == "Where does it end?"
        both = {**mined, "question": "Which?"}
        assert next(read_questions(rows(both))).question == "Which?"

    def test_id_and_title_may_be_missing(self, rows):
        row = {key: value for key, value in ROW.items() if key not in ("id", "title")}
        question = next(read_questions(rows(row)))
        assert (question.id, question.title) == (text_id("Where does it end?" + PASSAGE), "")

    @pytest.mark.parametrize(("given_id", "expected"), [(0, "0"), (17, "17"), (" a ", "a")])
    def test_an_id_may_be_a_number(self, rows, given_id, expected):
        assert next(read_questions(rows({**ROW, "id": given_id}))).id == expected

    @pytest.mark.parametrize("start", [0, 40, 9999, -1])
    def test_an_answer_that_stands_elsewhere_is_taken_where_it_stands_first(self, rows, start):
        row = {**ROW, "answers": {"text": ["the"], "answer_start": [start]}}
        assert next(read_questions(rows(row))).answers == (Answer("the", 20),)

    def test_a_later_occurrence_that_is_right_stays(self, rows):
        row = {**ROW, "answers": {"text": ["the"], "answer_start": [41]}}
        assert next(read_questions(rows(row))).answers == (Answer("the", 41),)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"context": " "}, "q.jsonl:2: context is blank; fill it in or drop the row"),
            ({"question": None}, "q.jsonl:2: question is blank; fill it in or drop the row"),
            ({"question": 3}, "q.jsonl:2: column 'question' holds a number, not text"),
            (
                {"answers": {"text": ["The Alps"], "answer_start": [20]}},
                "q.jsonl:2: the answer 'The Alps' does not occur in its context, at 20 or elsewhere",
            ),
            (
                {"answers": {"text": [" "], "answer_start": [0]}},
                'q.jsonl:2: an answer is " "; a text is expected',
            ),
            ({"answers": {"text": [None], "answer_start": [0]}}, "q.jsonl:2: an answer is null; a text"),
            (
                {"answers": {"text": ["Alps"], "answer_start": ["24"]}},
                "q.jsonl:2: answer_start of 'Alps' is '24'; a character position is expected",
            ),
            ({"answers": [{"text": "Alps"}]}, "q.jsonl:2: answer_start of 'Alps' is None; a character"),
            (
                {"answers": {"text": ["Alps"], "answer_start": []}},
                "q.jsonl:2: answers has to be a text, a list of texts, two lists of one",
            ),
            ({"answers": 3}, "or a list of objects with both; it is 3"),
            ({"answers": ["Alps", 3]}, 'or a list of objects with both; it is ["Alps", 3]'),
            ({"answers": "The Alps"}, "the answer 'The Alps' does not occur in its context; answers have"),
        ],
    )
    def test_a_bad_row_is_named(self, rows, change, message):
        assert message in fault(rows(ROW, {**ROW, **change}))

    @pytest.mark.parametrize("column", ["context", "question", "answers"])
    def test_a_missing_column(self, rows, column):
        row = {key: value for key, value in ROW.items() if key != column}
        assert f"q.jsonl has no column {column!r}" in fault(rows(row))
        assert f"q.jsonl:2: no column {column!r}, which earlier rows have" in fault(rows(ROW, row))

    def test_a_source_that_is_not_there_fails_at_once(self, tmp_path):
        with pytest.raises(InputError, match=r"q\.json does not exist"):
            read_questions(tmp_path / "q.json")

    def test_a_hub_data_set(self, monkeypatch):
        calls = []

        def load(name, *, split, streaming):
            calls.append((name, split, streaming))
            return [ROW]

        monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load))
        assert list(read_questions("rajpurkar/squad:validation")) == [END]
        assert calls == [("rajpurkar/squad", "validation", True)]


class TestTables:
    def test_the_schema_is_the_hubs(self):
        assert QUESTION.names == ["id", "title", "context", "question", "answers"]
        assert QUESTION.field("answers").type == pa.struct(
            [("text", pa.list_(pa.string())), ("answer_start", pa.list_(pa.int32()))]
        )

    def test_a_table_is_read_back_from_parquet_and_from_a_folder(self, tmp_path):
        table = pa.Table.from_pylist([WHERE.columns(), END.columns()], schema=QUESTION)
        (tmp_path / "data").mkdir()
        pq.write_table(table, tmp_path / "data" / "train-00000.parquet")
        assert list(read_questions(tmp_path / "data" / "train-00000.parquet")) == [WHERE, END]
        assert list(read_questions(tmp_path)) == [WHERE, END]

    @given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1), st.data())
    def test_any_part_of_a_passage_can_be_an_answer(self, tmp_path_factory, context, data):
        begin = data.draw(st.integers(0, len(context) - 1))
        answer = Answer(context[begin : data.draw(st.integers(begin + 1, len(context)))], begin)
        if not answer.text.strip():
            return
        question = Question("a", "", context, "Which?", (answer,))
        path = tmp_path_factory.mktemp("t") / "q.parquet"
        pq.write_table(pa.Table.from_pylist([question.columns()], schema=QUESTION), path)
        assert list(read_questions(path)) == [question]


def test_the_passages_of_an_official_file_are_documents_each_once(tmp_path):
    qas = [{"id": "1", "question": "Who?", "answers": []}, {"id": "2", "question": "What?", "answers": []}]
    paragraphs = [{"context": " Ann came. ", "qas": qas}, {"context": "Bob left.", "qas": qas[:1]}]
    articles = [{"title": "People", "paragraphs": [*paragraphs, paragraphs[0]]}]
    path = tmp_path / "squad.json"
    path.write_text(json.dumps({"version": "v2.0", "data": articles}, indent=1))
    source = open_passages(str(path))
    documents = list(read_documents(source, keep={"title": "title"}))
    assert [(document.text, document.kept) for document in documents] == [
        ("Ann came.", {"title": "People"}),
        ("Bob left.", {"title": "People"}),
    ]
    assert [document.where for document in documents] == [
        f"squad.json: data[0].paragraphs[{place}]" for place in range(2)
    ]
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"text": "One."}\n')
    assert [document.text for document in read_documents(open_passages(str(rows)))] == ["One."]


def test_a_column_of_a_similar_name_is_not_taken_for_the_one_that_is_needed(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"context": "c", "question": "q", "answer": "c"}\n')
    with pytest.raises(
        InputError, match="no column 'answers', which is needed; if 'answer' holds it, rename"
    ):
        list(read_questions(path))


def test_questions_to_answer_keep_their_other_columns_but_not_those_of_mrqa_alone(rows):
    spans = [{"text": "the Alps", "char_spans": [[20, 27]]}]
    question = {"qid": "m1", "question": "Where?", "detected_answers": spans, "answers": ["Alps"]}
    mrqa = rows({"header": {"dataset": "x"}}, {"context": PASSAGE, "qas": [question]})
    answers = {"answers": '{"text": ["the Alps"], "answer_start": [20]}'}
    assert list(read_question_rows(str(mrqa))) == [QuestionRow("m1", PASSAGE, "Where?", answers)]
    mined = rows({"input": " Where? ", "Context": PASSAGE, "margin": 1.5, "answers": None})
    (row,) = read_question_rows(str(mined))
    assert row == QuestionRow(
        text_id(f"Where?{PASSAGE}"), PASSAGE, "Where?", {"margin": "1.5", "answers": None}
    )


def test_an_id_of_a_question_to_answer_is_read_in_any_letter_case(rows):
    question = {"question": "Where?", "context": PASSAGE}
    first, second = read_question_rows(str(rows({"ID": 1, **question}, {"ID": 2, "id": 3, **question})))
    assert (first.id, first.others) == ("1", {})
    assert (second.id, second.others) == ("3", {"ID": "2"})


def test_each_document_that_a_search_finds_is_a_passage_of_its_query(rows):
    found = [
        {"rank": 1, "score": 0.5, "id": "c1", "title": "T", "document": "m.md", "text": PASSAGE},
        {"rank": 2, "score": 0.25, "id": "c2", "title": "", "document": "n.md", "text": "Nothing."},
    ]
    data = rows({"query": "Where?", "documents": found}, {"query": "Who?", "documents": []})
    first, second, third = read_question_rows(str(data))
    assert first == QuestionRow(
        text_id(f"Where?{PASSAGE}"),
        PASSAGE,
        "Where?",
        {"rank": "1", "score": "0.5", "chunk": "c1", "title": "T", "document": "m.md"},
    )
    assert (second.context, second.others["chunk"], second.blank) == ("Nothing.", "c2", "")
    assert (third.question, third.context, third.others, third.blank) == ("Who?", "", {}, "passage")


def test_the_columns_of_a_query_go_on_to_each_of_its_documents(rows):
    found = [
        {"rank": rank, "score": 0.5, "id": f"c{rank}", "title": "T", "document": "m.md", "text": PASSAGE}
        for rank in (1, 2)
    ]
    others = {"Title": "Mr", "title": "Dr", "team": "A", "question": "old", "context": None}
    data = rows(
        {"query": "Where?", "id": "17", **others, "documents": found},
        {"query": "Who?", "id": "18", **others, "documents": []},
    )
    first, second, third = read_question_rows(str(data))
    assert [(row.id, row.question) for row in (first, second, third)] == [
        ("17", "Where?"), ("17-2", "Where?"), ("18", "Who?"),
    ]  # fmt: skip
    kept = {
        "Title": "Mr", "original_title": "Dr", "team": "A", "original_question": "old", "original_context": None,
    }  # fmt: skip
    documents = {"score": "0.5", "title": "T", "document": "m.md"}
    assert first.others == {"rank": "1", "chunk": "c1", **documents, **kept}
    assert second.others == {"rank": "2", "chunk": "c2", **documents, **kept}
    assert third.others == kept


def test_the_ids_of_a_querys_documents_are_those_of_no_other_query(rows):
    found = [{"id": f"c{rank}", "text": PASSAGE} for rank in (1, 2)]
    data = rows(*({"query": "Where?", "id": name, "documents": found} for name in ("17", 18, "17-2")))
    ids = [row.id for row in read_question_rows(str(data))]
    assert ids == ["17", "17-2-2", "18", "18-2", "17-2", "17-2-2-2"]


def test_questions_without_passages_are_told_where_to_find_some(rows):
    data = rows({"Question": "Where?", "urgent": "yes"})
    message = "no column 'context', .*; pairsmith search --json finds passages; it has: Question, urgent$"
    with pytest.raises(InputError, match=message):
        list(read_question_rows(str(data)))


def test_a_column_of_questions_in_capitals_comes_before_one_of_inputs(rows):
    data = rows({"input": "Summarise.", "Question": "Where?", "context": PASSAGE})
    (row,) = read_question_rows(str(data))
    assert (row.question, row.others) == ("Where?", {"input": "Summarise."})


@pytest.mark.parametrize(
    ("question", "context", "blank"),
    [("Who?", " a", ""), ("", "a", "question"), ("Who?", " \n", "passage"), ("", "", "question")],
)
def test_what_is_blank_of_a_question(question, context, blank):
    assert QuestionRow("1", context, question, {}).blank == blank
