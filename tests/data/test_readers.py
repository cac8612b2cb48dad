import bz2
import codecs
import gzip
import json
import lzma
import os
import sys
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairsmith.core.errors import InputError
from pairsmith.data.chunk_rows import read_passages
from pairsmith.data.documents import DOCUMENT_COLUMNS, read_documents
from pairsmith.data.labelled_rows import read_labelled_rows
from pairsmith.data.labelled_texts import read_labelled_texts
from pairsmith.data.paraphrases import read_paraphrases
from pairsmith.data.query_pairs import read_query_pairs
from pairsmith.data.query_rows import read_query_rows
from pairsmith.data.questions import read_generated_questions
from pairsmith.data.readers import (
    TEXT_COLUMNS,
    TextRecord,
    find_column,
    read_inputs_and_outputs,
    read_pairs,
    read_texts,
)
from pairsmith.data.schemas import GradedPair
from pairsmith.data.sources import is_hub_data, open_source
from pairsmith.data.squad import read_questions
from pairsmith.runs import model_display_name, sources_of


def texts(source, **options):
    return [record.text for record in read_texts(source, **options)]


def write(path, data):
    path.write_bytes(data if isinstance(data, bytes) else data.encode("utf-8"))
    return path


@pytest.fixture
def put(tmp_path):
    return lambda name, data: write(tmp_path / name, data)


def fault(source, **options):
    with pytest.raises(InputError) as caught:
        texts(source, **options)
    message = str(caught.value)
    assert message.count("\n") <= 1
    return message


class TestPlainText:
    def test_one_text_a_line_and_where_it_stood(self, put):
        path = put("in.txt", "One.\n\n   \nTwo.\n")
        assert list(read_texts(path)) == [TextRecord("One.", "in.txt:1"), TextRecord("Two.", "in.txt:4")]

    def test_a_path_may_be_a_string(self, put):
        assert texts(str(put("in.txt", "One."))) == ["One."]

    def test_byte_order_mark_and_windows_line_ends_are_dropped(self, put):
        assert texts(put("in.txt", b"\xef\xbb\xbfOne.\r\nTwo.\r\n\r\n")) == ["One.", "Two."]

    @pytest.mark.parametrize("end", ["", "\r"])
    @pytest.mark.parametrize("pack", [bytes, gzip.compress])
    def test_lines_of_old_macs_end_with_a_carriage_return(self, put, end, pack):
        long = "x" * 200_000
        path = put("in.txt" + ".gz" * (pack is not bytes), pack(f"\ufeffOne.\r\r{long}\rTwo{end}".encode()))
        records = [("One.", 1), (long, 3), ("Two", 4)]
        assert list(read_texts(path)) == [TextRecord(text, f"{path.name}:{n}") for text, n in records]

    @pytest.mark.parametrize("data", [b"One.\rTwo.", b"One.\nTwo."])
    def test_a_file_is_opened_once(self, put, monkeypatch, data):
        path, opened, open_file = put("in.txt", data), [], Path.open
        monkeypatch.setattr(
            Path, "open", lambda *args, **kw: opened.append(args[0]) or open_file(*args, **kw)
        )
        assert texts(path) == ["One.", "Two."]
        assert opened == [path]

    @pytest.mark.parametrize("end", ["\n", "\r\n"])
    def test_a_carriage_return_within_a_line_divides_no_text(self, put, end):
        lines = ["x" * 100_000 + "\ry", "one\rtext"]
        assert texts(put("in.txt", "".join(f"{line}{end}" for line in lines))) == lines

    def test_byte_order_marks_of_joined_files_are_dropped(self, put):
        assert texts(put("in.txt", "One.\n\ufeffTwo.\n")) == ["One.", "Two."]
        assert texts(put("in.jsonl", '"One."\n\ufeff"Two."\n')) == ["One.", "Two."]
        assert texts(put("in.csv", 'text\n\ufeff"One, 1."\n\ufeffTwo.\n')) == ["One, 1.", "Two."]
        assert texts(put("two.csv", "\ufeff\ufefftext\nOne.\n")) == ["One."]

    def test_a_mark_inside_the_text_stays(self, put):
        assert texts(put("in.txt", "One \ufeff.\nTwo")) == ["One \ufeff.", "Two"]

    def test_invisible_spaces_are_blank(self, put):
        lines = "\u200b\n\u00a0 \ufeff\u2060\n\u200b One\u200btwo.\ufeff \u200b\n\u200cThree\u200d\n"
        assert texts(put("in.txt", lines)) == ["One\u200btwo.", "\u200cThree\u200d"]

    def test_tabs_quotes_and_separators_inside_stay_and_surrounding_space_goes(self, put):
        line = "She said \"no\"\tand 'left', \u2028 \x0b \x85 then; more"
        assert texts(put("in.txt", f"  {line} \t\n")) == [line]

    def test_any_other_suffix_is_plain_text(self, put):
        assert texts(put("corpus.en", "a,b\nc")) == ["a,b", "c"]

    @pytest.mark.parametrize("name", ["app.log", "notes.md", "corpus", "page.html", "corpus.en.gz"])
    def test_text_with_an_unknown_suffix_or_none_is_read(self, put, name):
        data = "Größe\nb\n".encode()
        assert texts(put(name, gzip.compress(data) if name.endswith(".gz") else data)) == ["Größe", "b"]

    def test_gzip(self, put):
        assert texts(put("in.txt.gz", gzip.compress("Ä\r\nb".encode()))) == ["Ä", "b"]

    def test_a_truncated_gzip_file_says_so(self, put):
        data = gzip.compress("\n".join(map(str, range(50_000))).encode())
        message = fault(put("in.txt.gz", data[: len(data) // 2]))
        assert "in.txt.gz is not a valid gzip file (after line " in message

    def test_a_file_that_is_not_gzip_says_so(self, put):
        assert "is not a valid gzip file" in fault(put("in.txt.gz", "plain"))

    def test_bytes_that_are_not_text_in_a_gzip_file(self, put):
        assert "in.txt.gz:2: not UTF-8 (byte 0xe9" in fault(put("in.txt.gz", gzip.compress(b"One.\n\xe9\n")))

    def test_a_line_of_forty_megabytes(self, put):
        long = "x" * 40_000_000
        assert [len(text) for text in texts(put("in.txt", f"a\n{long}\nb\n"))] == [1, 40_000_000, 1]

    def test_reading_is_a_stream(self, put):
        records = read_texts(put("in.txt", b"One\n\xff\n"))
        assert next(records).text == "One"
        with pytest.raises(InputError):
            next(records)

    @given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\0"), min_size=1)))
    def test_what_is_written_line_by_line_is_read(self, tmp_path_factory, lines):
        path = write(tmp_path_factory.mktemp("t") / "in.txt", "".join(f"x{line}x\n" for line in ["", *lines]))
        assert texts(path) == [f"x{line}x" for line in ["", *lines]]


class TestBadText:
    def test_latin1(self, put):
        message = fault(put("in.txt", "good\ncafé au lait\n".encode("latin1")))
        assert "in.txt:2: not UTF-8 (byte 0xe9 at column 4); re-save it as UTF-8" in message
        assert "iconv -f latin1 -t utf-8 in.txt" in message
        message = fault(put("in.CSV", "id;text\n1;café\n".encode("latin1")))
        assert message.endswith(
            "re-save it as UTF-8 (in Excel as CSV UTF-8; else e.g. iconv -f latin1 -t utf-8 in.CSV > new)"
        )

    @pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le"])
    def test_utf16(self, put, encoding):
        assert "UTF-16" in fault(put("in.txt", "Hello\n".encode(encoding)))

    @pytest.mark.parametrize("mark", [codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE])
    def test_utf32(self, put, mark):
        message = fault(put("in.txt", mark + b"H\0\0\0"))
        assert message.endswith(
            "is UTF-32 text; re-save it as UTF-8 (e.g. iconv -f utf-32 -t utf-8 in.txt > new)"
        )

    @pytest.mark.parametrize(
        ("packed", "message"),
        [
            (gzip.compress, r"is compressed by gzip; give it a name that ends in \.gz"),
            (lambda data: pa.compress(data, "zstd", asbytes=True), "by zstd, which is not read; unpack it"),
            (bz2.compress, "is compressed by bzip2, which is not read"),
            (lzma.compress, "is compressed by xz, which is not read"),
            (lambda data: b"PK\x03\x04" + data, "is a zip archive, or a document of an office program"),
            (lambda data: b"PAR1" + data, r"is a Parquet file; give it a name that ends in \.parquet"),
            (lambda data: b"%PDF-1.7" + data, "is a PDF; its text is read by chunk"),
            (lambda data: b"\xd0\xcf\x11\xe0" + data, "is a document of an office program; save it as plain"),
            (lambda data: b"SQLite format 3\0" + data, "is a database of SQLite; export its rows as CSV"),
            (lambda data: b"\x89PNG" + data, "is an image, which is not read"),
            (lambda data: b"\xff\xd8\xff" + data, "is an image, which is not read"),
            (lambda data: b"GIF89a" + data, "is an image, which is not read"),
        ],
    )
    @pytest.mark.parametrize("name", ["in.txt", "in.jsonl", "in.csv"])
    def test_what_is_no_text_is_named(self, put, name, packed, message):
        with pytest.raises(InputError, match=rf"{name} .*{message}"):
            texts(put(name, packed(bytes(range(255, 0, -1)) * 9)))

    @pytest.mark.parametrize(
        ("bad", "fault"),
        [
            (b"One\0", "holds a NUL character, as binary and UTF-16 files do; re-save it"),
            (b"One\xff\x01", "not UTF-8 (byte 0xff"),
        ],
    )
    @pytest.mark.parametrize(
        ("name", "kind"), [("in.xyz", "with the suffix .xyz"), ("in", "without a suffix")]
    )
    def test_a_file_of_an_unknown_kind_that_is_no_text_is_refused_before_its_first_row(
        self, put, name, kind, bad, fault
    ):
        path = put(name, b"One.\n" * 50 + bad + b"\n")
        with pytest.raises(InputError) as caught:
            next(open_source(path).rows())
        first, second = str(caught.value).splitlines()
        assert first.startswith(f"{path}:51: {fault}")
        assert second == (
            f"files {kind} are read as plain text; save the data as .txt with a text per line, .jsonl, .tsv, "
            ".csv or .parquet, or give documents (.pdf, .html, .md) to chunk"
        )

    @pytest.mark.parametrize("name", ["corpus.fr", "in"])
    def test_a_file_of_an_unknown_kind_in_latin_1_is_only_to_be_saved_as_utf_8(self, put, name):
        path = put(name, "Un café.\n".encode("latin1"))
        assert fault(path) == (
            f"{path}:1: not UTF-8 (byte 0xe9 at column 7); "
            f"re-save it as UTF-8 (e.g. iconv -f latin1 -t utf-8 {name} > new)"
        )

    @pytest.mark.parametrize(
        ("name", "data", "command"),
        [
            ("two words.txt", b"caf\xe9\n", "iconv -f latin1 -t utf-8 'two words.txt' > new"),
            ("in.txt.gz", b"caf\xe9\n", "gzip -dc in.txt.gz | iconv -f latin1 -t utf-8 > new"),
            ("in.txt.gz", "a".encode("utf-16"), "gzip -dc in.txt.gz | iconv -f utf-16 -t utf-8 > new"),
            ("in.csv.gz", b"id,text\r1,a\n", "gzip -dc in.csv.gz | tr '\\r' '\\n' > new"),
            ("in.jsonl.gz", b"[1]\n", "gzip -dc in.jsonl.gz | jq -c '.[]' > new"),
        ],
    )
    def test_a_command_in_a_message_can_be_run(self, put, name, data, command):
        path = put(name, gzip.compress(data) if name.endswith(".gz") else data)
        assert f"(e.g. {command})" in fault(path)

    @pytest.mark.parametrize("name", ["in.docx", "in.PDF", "in.zip", "in.tar.gz", "in.png"])
    def test_text_with_the_suffix_of_another_format_is_refused(self, put, name):
        data = b"One.\n"
        path = put(name, gzip.compress(data) if name.endswith(".gz") else data)
        suffix = ".tar" if name.endswith(".gz") else path.suffix.lower()
        assert fault(path) == (
            f"{path}: files with the suffix {suffix} are not read; save the data as .txt with a text per line, "
            ".jsonl, .tsv, .csv or .parquet, or give documents (.pdf, .html, .md) to chunk\n"
            "if it is text, rename it to a .txt file"
        )

    @pytest.mark.parametrize("name", ["in.ndjson", "in.jsonlines.gz", "in"])
    def test_json_lines_with_another_suffix_are_no_texts(self, put, name):
        data = b'\n{"text": "One."}\n{"text": "Two."}\n'
        path = put(name, gzip.compress(data) if name.endswith(".gz") else data)
        ending = ".jsonl.gz" if name.endswith(".gz") else ".jsonl"
        assert fault(path) == (
            f"{name}:2: a JSON object, as in JSON Lines; give the file a name that ends in {ending}, or in .txt "
            "if each line is a text"
        )
        assert texts(put("in.txt", data)) == ['{"text": "One."}', '{"text": "Two."}']
        assert texts(put("in.tex", "{\\bf One.}\n")) == ["{\\bf One.}"]

    @pytest.mark.parametrize("name", ["europarl.pt", "old.doc", "a.txt"])
    def test_texts_whose_names_or_beginnings_only_look_like_another_format_are_read(self, put, name):
        for line in ("Um texto.", "%PDF files are common.", "{\\rtf is a command."):
            assert texts(put(name, f"{line}\n".encode())) == [line]

    def test_a_word_file_is_named(self, put):
        assert "is a zip archive, or a document of an office program" in fault(
            put("in.docx", b"PK\x03\x04\0")
        )

    @pytest.mark.parametrize("name", ["in.txt", "in.log", "in.csv"])
    @pytest.mark.parametrize(
        ("data", "what"), [(b"%PDF-1.4\n1 0 obj\n", "is a PDF"), (b"{\\rtf1 One.}\n", "is a document in RTF")]
    )
    def test_documents_of_printable_characters_are_recognised(self, put, name, data, what):
        assert what in fault(put(name, data))

    @pytest.mark.parametrize("data", [b"", b"\n\n \t\r\n", b"\xef\xbb\xbf"])
    def test_no_texts(self, put, data):
        assert fault(put("in.txt", data)).endswith("in.txt holds no texts")

    def test_missing_file_names_the_nearest_at_once(self, put, tmp_path):
        put("sentences.txt", "a")
        with pytest.raises(
            InputError, match=r"sentnces\.txt does not exist; did you mean .*sentences\.txt\?"
        ):
            read_texts(tmp_path / "sentnces.txt")

    def test_missing_file_with_nothing_near(self, tmp_path):
        assert fault(tmp_path / "a.txt").endswith("a.txt does not exist; check the path")

    def test_missing_folder(self, tmp_path):
        assert "does not exist; there is no folder" in fault(tmp_path / "no" / "a.txt")
        for model in ("pairsmith:tiny", "embedded:all-minilm-l6-v2"):
            assert fault(model).startswith(f"{model} is the name of a model; give data")

    def test_a_folder_that_is_none_of_ours(self, tmp_path):
        assert fault(tmp_path).endswith("without data/*.parquet; give a file or a dataset folder")
        write(tmp_path / "train.jsonl", "{}")
        assert fault(tmp_path).endswith(
            f"without data/*.parquet; give a file, such as {tmp_path / 'train.jsonl'}, or a dataset folder"
        )

    def test_the_files_of_a_dataset_folder_without_the_folder(self, tmp_path):
        (tmp_path / "data").mkdir()
        assert "is a folder without data/*.parquet" in fault(tmp_path / "data")
        pq.write_table(pa.table({"text": ["a"]}), tmp_path / "data" / "train-00000.parquet")
        assert fault(tmp_path / "data").endswith(f"is a part of a dataset folder; give the whole: {tmp_path}")

    def test_a_file_that_cannot_be_read(self, put, monkeypatch):
        path = put("in.txt", "a")
        denied = PermissionError(13, "Permission denied")
        monkeypatch.setattr(type(path), "open", lambda *_: (_ for _ in ()).throw(denied))
        assert fault(path).endswith("in.txt cannot be read: Permission denied")


class TestJson:
    def test_objects_and_bare_strings(self, put):
        assert texts(put("in.jsonl", '{"text": "a\\nb"}\n\n"c"\n{"text": null}\n{"text": " "}')) == [
            "a\nb",
            "c",
        ]

    def test_gzip_and_the_column(self, put):
        data = gzip.compress(b'{"text": "a", "headline": "b"}\n')
        assert texts(put("in.jsonl.gz", data), columns=["headline"]) == ["b"]

    @pytest.mark.parametrize(
        ("line", "expected"),
        [
            ("{'text': 'a'}", "in.jsonl:2: not JSON (Expecting property name"),
            ("[1]", "in.jsonl:2: a JSON array; one object per line is expected"),
            ("17", "in.jsonl:2: 17 is not a JSON object with columns such as text"),
            ('{"text": 5}', "in.jsonl:2: column 'text' holds a number, not text"),
            ('{"text": ["a"]}', "in.jsonl:2: column 'text' holds a list, not text"),
            ('{"txt": "b"}', "in.jsonl:2: no column 'text', which earlier rows have; it has: txt"),
            ('{"text": "\\ud800"}', "in.jsonl:2: column 'text' holds half a character"),
            ("{" * 20, "in.jsonl:2: not JSON"),
            (
                '{"text": "b", "text": "c"}',
                "in.jsonl:2: a JSON object names 'text' twice; rename one of them",
            ),
            ('{"text": "b", "of": [{"a": 1, "a": 2}]}', "in.jsonl:2: a JSON object names 'a' twice"),
        ],
    )
    def test_a_bad_line_is_named(self, put, line, expected):
        assert expected in fault(put("in.jsonl", f'{{"text": "a"}}\n{line}\n'))

    def test_absurd_nesting(self, put):
        assert "in.jsonl:1: not JSON" in fault(put("in.jsonl", '{"text":' + "[" * 200_000))


PAIR = {"sentence1": "a", "sentence2": "b", "label": 1}
ANSWERED = {"context": "a", "question": "b", "answers": {"text": ["a"], "answer_start": [0]}}


@pytest.mark.parametrize(
    ("read", "row", "column"),
    [
        (read_documents, {"text": "a"}, "id"),
        (read_passages, {"text": "a"}, "id"),
        (read_passages, {"text": "a"}, "_id"),
        (read_passages, {"text": "a"}, "document"),
        (lambda path: read_query_pairs(str(path)), {"query": "a", "positive": "b"}, "qid"),
        (lambda path: read_query_pairs(str(path)), {"query": "a", "positive": "b"}, "title"),
        (lambda path: read_documents(path, group_column="day"), {"text": "a"}, "day"),
        (lambda path: read_query_rows(str(path), [str(path)]).queries, {"query": "a", "text": "b"}, "chunk"),
        (lambda path: read_labelled_rows(str(path))[1], PAIR, "id"),
        (read_paraphrases, PAIR, "id"),
        (read_questions, ANSWERED, "id"),
        (read_generated_questions, ANSWERED, "id"),
    ],
)
def test_half_a_character_in_an_id_title_or_group_is_refused(put, read, row, column):
    path = put("in.jsonl", json.dumps({**row, column: "a\ud800"}) + "\n")
    with pytest.raises(InputError, match=rf"in.jsonl:1: column '{column}' holds half a character"):
        list(read(path))


@pytest.mark.parametrize("read", [read_documents, read_passages, read_paraphrases, read_questions])
@pytest.mark.parametrize(
    ("columns", "expected"),
    [({"ID": "a"}, "a"), ({"Id": 7}, "7"), ({"ID": "a", "id": "b"}, "b"), ({"ID": "a", "Id": "b"}, "a")],
)
def test_an_id_is_read_in_any_letter_case_and_id_itself_is_preferred(put, read, columns, expected):
    path = put("in.jsonl", json.dumps({**columns, **PAIR, **ANSWERED}) + "\n")
    assert [row.id for row in read(path)] == [expected]


def test_a_missing_number_is_no_id(put):
    path = put("in.jsonl", '{"id": NaN, "text": "a"}\n{"id": 2.0, "text": "b"}\n')
    assert [(row.own_id, row.text) for row in read_documents(path)] == [("", "a"), ("2.0", "b")]


def test_the_letter_case_of_columns_is_folded_once_for_rows_with_the_same_columns():
    folded = []

    class Name(str):
        def casefold(self):
            folded.append(self)
            return super().casefold()

    for _ in range(3):
        assert find_column({Name("folded-once"): "a", Name("Folded-ID"): "b"}, ["folded-id"]) == "Folded-ID"
    assert len(folded) == 2


def test_other_ids_are_read_in_any_letter_case(put):
    pairs = read_query_pairs(str(put("a.jsonl", '{"QID": 3, "query": "a", "positive": "b"}\n')))
    assert [pair.query_id for pair in pairs] == ["3"]
    assert [row.id for row in read_passages(put("b.jsonl", '{"_ID": 4, "text": "b"}\n'))] == ["4"]
    # A column called Document that holds the texts does not name the documents that they are part of.
    assert [row.part_of for row in read_passages(put("c.jsonl", '{"Document": "b"}\n'))] == [""]


class TestTables:
    def test_columns_by_preference_and_without_regard_to_case(self, put):
        assert texts(put("a.csv", "question,Sentence\nq,s\n")) == ["s"]
        assert texts(put("b.csv", "other,document\nq,d\n")) == ["d"]

    @pytest.mark.parametrize("first", range(len(TEXT_COLUMNS)))
    def test_the_first_of_the_usual_columns_is_read(self, put, first):
        names = TEXT_COLUMNS[first:][::-1]
        path = put("in.csv", f"id,{','.join(names)}\n1,{','.join(f'in {name}' for name in names)}\n")
        assert texts(path) == [f"in {TEXT_COLUMNS[first]}"]

    def test_the_usual_columns_have_an_order(self):
        last = ("question", "review", "content", "message", "body", "comment")
        assert TEXT_COLUMNS[-len(last) :] == last
        assert DOCUMENT_COLUMNS[-4:] == ("question", "review", "message", "comment")

    def test_no_column_lists_what_is_there(self, put):
        message = fault(put("in.csv", "id,remark\n1,a\n"))
        assert "has none of the columns text, sentence, sentence1, input, document, question" in message
        assert message.endswith("name the column with the texts; it has: id, remark")

    def test_an_unknown_column_names_the_nearest(self, put):
        message = fault(put("in.csv", "id,headline\n1,a\n"), columns=["headlines"])
        assert message.endswith("no column 'headlines'; did you mean 'headline'? known: headline, id")

    def test_of_two_columns_each_rows_texts_are_taken_in_turn(self, put):
        path = put("in.csv", "id,first,second\n1,a,b\n2,  ,c\n3,d,\n4,,\n5, e ,a\n")
        both = [
            TextRecord("a", "in.csv:2"),
            TextRecord("b", "in.csv:2"),
            TextRecord("c", "in.csv:3"),
            TextRecord("d", "in.csv:4"),
            TextRecord("e", "in.csv:6"),
            TextRecord("a", "in.csv:6"),
        ]
        assert list(read_texts(path, columns=["first", "second"])) == both
        assert texts(path, columns=["second", "FIRST"]) == ["b", "a", "c", "d", "a", "e"]
        assert texts(path, columns=("second",)) == ["b", "c", "a"]

    @pytest.mark.parametrize("columns", [["first", "secnd"], ["secnd", "first"]])
    def test_of_several_columns_each_must_be_there(self, put, columns):
        message = fault(put("in.csv", "first,second\na,b\n"), columns=columns)
        assert "no column 'secnd'; did you mean 'second'?" in message

    def test_several_columns_without_a_text(self, put):
        message = fault(put("in.csv", "first,second\n,\n ,\n"), columns=["first", "second"])
        assert message.endswith("in.csv holds no texts")

    def test_csv_quoting_commas_newlines_and_windows_line_ends(self, put):
        data = b'\xef\xbb\xbfid,text\r\n1,"a ""b"", c\r\nd"\r\n\r\n2,e\r\n'
        records = list(read_texts(put("in.csv", data)))
        assert records == [TextRecord('a "b", c\nd', "in.csv:2"), TextRecord("e", "in.csv:5")]

    def test_semicolons_as_excel_writes_them(self, put):
        assert texts(put("in.csv", "id;text\n1;a, b\n")) == ["a, b"]
        # Excel quotes a field with a comma only if the comma is the separator.
        assert texts(put("in.csv", 'id;from, to;text;"a, b, c, d"\n1;;a, b;\n')) == ["a, b"]
        assert texts(put("in.csv", 'id,text,"a; b; c; d"\n1,a;b,\n')) == ["a;b"]

    def test_a_quote_left_open_is_named_by_the_line_it_began_on(self, put):
        message = fault(put("in.csv", 'id,text\n1,a\n2,"b\n3,c\n4,d\n'))
        assert "in.csv:3: not a valid csv row (unexpected end of data)" in message

    def test_a_long_field(self, put):
        assert [len(text) for text in texts(put("in.csv", f'id,text\n1,"{"x" * 300_000}"\n'))] == [300_000]

    def test_tsv_takes_quotes_as_they_are(self, put):
        data = 'id\ttext\n1\t"Open, she said\n2\tfive "nine"\n\n3\t"""x\n'
        assert texts(put("in.tsv", data)) == ['"Open, she said', 'five "nine"', '"""x']

    def test_tsv_whose_header_is_quoted_is_unquoted(self, put):
        assert texts(put("in.tsv.gz", gzip.compress(b'"id"\t"text"\n1\t"a ""b""\tc"\n'))) == ['a "b"\tc']

    @pytest.mark.parametrize(
        ("name", "data"), [("in.csv", "id,text\n1,a,b\n"), ("in.tsv", "id\ttext\n1\ta\tb\n")]
    )
    def test_a_row_with_more_fields_is_refused(self, put, name, data):
        assert f"{name}:2: 3 fields where the header has 2 (id, text)" in fault(put(name, data))

    def test_without_a_header_the_message_is_short(self, put):
        message = fault(put("in.tsv", "\t".join(f"a text {n} " * 99 for n in range(999)) + "\n1\n"))
        assert "1 fields where the header has 999 (a text 0 a text 0 " in message
        assert "…, … (999 in all)); a separator or quotation mark" in message
        assert len(message) < 11_000

    def test_a_row_with_fewer_fields_is_refused(self, put):
        assert "in.csv:2: 1 fields where the header has 2" in fault(put("in.csv", "id,text\n1\n"))

    def test_blank_fields_at_the_end_are_not_counted(self, put):
        assert texts(put("in.csv", "id,text\n1,a,, \n")) == ["a"]

    def test_a_header_with_a_name_twice_is_refused(self, put):
        assert "in.tsv:1: the header names 'text' twice" in fault(put("in.tsv", "text\ttext\na\tb\n"))

    def test_the_header_of_a_second_file_within_the_first_is_refused(self, put):
        message = fault(put("in.csv", "text, label\na,x\ntext,label\nb,y\n"))
        assert message == "in.csv:3: the header again, as in files that were joined; remove this line"
        assert texts(put("in.tsv", "text\na\ntext\n")) == ["a", "text"]  # it may be a text

    @pytest.mark.parametrize("name", ["in.csv", "in.tsv"])
    @pytest.mark.parametrize("data", ["", "\n \n", "id\ttext\n", '"text"\n'])
    def test_no_rows(self, put, name, data):
        assert fault(put(name, data)).endswith(f"{name} holds no texts")

    @pytest.mark.parametrize(
        ("data", "expected"),
        [
            ("text,label (pos;neg;neutral)\ngood,pos\n\nbad,neg,\n", ["good", "bad"]),
            ('text,label (a;b;c)\n  \n"good; or\nnot",a\n', ["good; or\nnot"]),
            ("text;label (a,b,c);n\ngood, I think;a;1\n", ["good, I think"]),
            ("text;from, to\na, b;c\nd;e\n", ["a, b", "d"]),
            ("text,label (a;b)\n", None),
            ("a,text,label (a;b)\n1,x,y\n", ["x"]),
            ('text, n (a; b; c)\n"x, y", "1"\n', ["x, y"]),
        ],
    )
    def test_the_separator_divides_all_rows_into_as_many_fields(self, put, data, expected):
        path = put("in.csv", data)
        if expected is None:
            assert fault(path).endswith("in.csv holds no texts")
        else:
            assert texts(path) == expected

    @pytest.mark.parametrize(
        ("data", "expected"),
        [
            ('id, text\n1, "a, b"\n 2,  c\n', [("1", "a, b"), ("2", "c")]),
            ('"id"; "text"\n"1"; "a; b"\n', [("1", "a; b")]),
            ('id,text\n1, "a"\n', [("1", ' "a"')]),
            ('sep=;\nid;text\n1;"a; b, c, d"\n', [("1", "a; b, c, d")]),
            ('"sep=\t"\r\n\r\nid\ttext\r\n1\ta,b\r\n', [("1", "a,b")]),
            ("sep=,\n", []),
        ],
    )
    def test_spaces_after_separators_and_the_separator_that_excel_is_told(self, put, data, expected):
        rows = open_source(put("in.csv", data)).rows()
        assert [(row["id"], row["text"]) for _, row in rows] == expected

    @settings(max_examples=50)
    @given(
        st.sampled_from([",", ";"]),
        st.lists(st.text("ab,; ", min_size=1), min_size=2, max_size=4, unique_by=str.strip),
        st.data(),
    )
    def test_the_separator_is_found_if_fields_have_none(self, tmp_path_factory, separator, names, data):
        header = [name.replace(separator, "") + str(number) for number, name in enumerate(names)]
        row = st.lists(st.text("ab ", min_size=1), min_size=len(names), max_size=len(names))
        rows = data.draw(st.lists(row.filter(lambda row: "".join(row).strip()), min_size=1, max_size=4))
        path = tmp_path_factory.mktemp("t") / "in.csv"
        lines = [separator.join(fields) for fields in [header, *rows]]
        path.write_text("".join(f"{line}\n" for line in lines))
        read = [list(row.items()) for _, row in open_source(path).rows()]
        if all(name.startswith(" ") for name in header[1:]):
            rows = [[field.lstrip(" ") for field in fields] for fields in rows]
        stripped = [name.strip() for name in header]
        assert read == [list(zip(stripped, fields, strict=True)) for fields in rows]

    @settings(max_examples=50)
    @given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"])), min_size=1))
    def test_what_the_csv_module_writes_is_read(self, tmp_path_factory, lines):
        import csv

        path = tmp_path_factory.mktemp("t") / "in.csv"
        with path.open("w", encoding="utf-8", newline="") as stream:
            csv.writer(stream).writerows([["id", "text"], *(["1", f"x{line}x"] for line in lines)])
        assert texts(path) == [f"x{line}x" for line in lines]

    def test_line_ends_of_old_macs(self, put):
        assert texts(put("in.csv", 'id,text\r1,a\r2,"b, c"\r')) == ["a", "b, c"]

    def test_line_ends_of_old_macs_beside_line_feeds_are_told(self, put):
        message = fault(put("in.csv", 'id,text\r1,a\r2,"b\nc"\r'))
        assert message.startswith("in.csv:1: the lines end with a carriage return alone, as on old Macs;")
        assert "(e.g. tr '\\r' '\\n' < in.csv > new)" in message

    def test_a_carriage_return_between_two_rows_is_told(self, put):
        assert fault(put("in.csv", "id,text\n1,a\r2,b\n")) == (
            "in.csv:2: the row holds a carriage return outside quotation marks; end all lines with a line feed "
            "(e.g. tr '\\r' '\\n' < in.csv > new)"
        )


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
@pytest.mark.parametrize(
    ("suffix", "data"), [("txt", "a\n"), ("jsonl", '"a"\n'), ("csv", "text\na\n"), ("parquet", "")]
)
def test_the_location_of_a_row_can_be_stored(tmp_path, suffix, data):
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9." + suffix.encode()))
    write(path, data)
    if suffix == "parquet":
        stream = pa.BufferOutputStream()
        pq.write_table(pa.table({"text": ["a"]}), stream)
        path.write_bytes(stream.getvalue().to_pybytes())
    (record,) = read_texts(path)
    assert record.where.startswith(f"caf\\xe9.{suffix}:")


class TestParquet:
    def put(self, path, **columns):
        path.parent.mkdir(exist_ok=True, parents=True)
        pq.write_table(pa.table(columns), path)
        return path

    def test_a_name_of_a_column_that_is_not_utf_8_is_told(self, tmp_path):
        pq.write_table(pa.table({"text": ["a"], "wort": ["b"]}), tmp_path / "in.parquet", store_schema=False)
        data = (tmp_path / "in.parquet").read_bytes()
        (tmp_path / "in.parquet").write_bytes(data.replace(b"wort", b"w\xf6rt"))
        assert (
            f"{tmp_path / 'in.parquet'} cannot be read as Parquet after row 0: 'utf-8' codec can't"
            in fault(tmp_path / "in.parquet")
        )

    def test_texts_and_row_numbers(self, tmp_path):
        path = self.put(tmp_path / "in.parquet", text=["a", None, " b "], id=[1, 2, 3])
        assert list(read_texts(path)) == [TextRecord("a", "in.parquet:1"), TextRecord("b", "in.parquet:3")]

    def test_two_columns_in_turn(self, tmp_path):
        path = self.put(tmp_path / "in.parquet", sentence1=["a", None, "d"], sentence2=["b", "c", " "])
        assert texts(path) == ["a", "d"]
        assert texts(path, columns=["sentence1", "sentence2"]) == ["a", "b", "c", "d"]

    def test_other_string_types(self, tmp_path):
        self.put(tmp_path / "in.parquet", text=pa.array(["a", "b"]).dictionary_encode())
        assert texts(tmp_path / "in.parquet") == ["a", "b"]

    def test_a_column_of_numbers_is_refused(self, tmp_path):
        path = self.put(tmp_path / "in.parquet", text=[1])
        assert fault(path).endswith("in.parquet:1: column 'text' holds a number, not text")
        path = self.put(tmp_path / "in.parquet", text=[b"a"])
        assert fault(path).endswith("in.parquet:1: column 'text' holds bytes, not text")

    def test_decimal_numbers(self, tmp_path):
        path = self.put(
            tmp_path / "in.parquet",
            sentence1=["a", "b"], sentence2=["c", "d"], score=[Decimal("0.50"), Decimal("5")],
        )  # fmt: skip
        assert list(read_pairs(path)) == [GradedPair("a", "c", 0.5), GradedPair("b", "d", 5.0)]
        path = self.put(tmp_path / "in.parquet", text=["a", "b"], label=[Decimal("1.00"), Decimal("0.50")])
        assert read_labelled_texts(str(path)).labels == ["1", "0.5"]
        assert [document.group for document in read_documents(path, group_column="label")] == ["1.00", "0.50"]

    def test_a_file_that_is_not_parquet(self, put):
        message = fault(put("in.parquet", "text"))
        assert "in.parquet cannot be read as Parquet after row 0: " in message
        assert message.endswith("; download or write the file again, or rename it if it is no Parquet file")

    def test_values_that_python_cannot_hold(self, tmp_path):
        path = self.put(tmp_path / "in.parquet", text=["a"], at=pa.array([2**62], pa.timestamp("ms")))
        assert "in.parquet: a value in rows 1 to 1 cannot be read as text, number or date (" in fault(path)
        path = self.put(tmp_path / "in.parquet", text=pa.array([b"\xff"]).view(pa.string()))
        assert "in.parquet: a value in rows 1 to 1 cannot be read as text, number or date (" in fault(path)

    def test_two_columns_of_one_name_are_refused(self, tmp_path):
        pq.write_table(pa.table([["a"], ["b"]], names=["text", "text"]), tmp_path / "in.parquet")
        assert fault(tmp_path / "in.parquet").endswith("its schema names 'text' twice; rename one of them")

    def test_a_dataset_folder(self, tmp_path):
        self.put(tmp_path / "data" / "train-00000.parquet", sentence1=["a"])
        self.put(tmp_path / "data" / "train-00001.parquet", sentence1=["b"])
        self.put(tmp_path / "rejects" / "part-00000.parquet", sentence1=["c"])
        assert texts(tmp_path) == ["a", "b"]
        write(tmp_path / "manifest.json", '{"complete": true}')
        assert texts(tmp_path) == ["a", "b"]

    def test_hidden_files_of_a_dataset_folder_are_not_read(self, tmp_path):
        self.put(tmp_path / "data" / "train-00000.parquet", sentence1=["a"])
        write(tmp_path / "data" / "._train-00000.parquet", "what macOS knows about the file")
        assert texts(tmp_path) == ["a"]

    def test_an_unfinished_dataset_folder(self, tmp_path):
        self.put(tmp_path / "data" / "train-00000.parquet", sentence1=["a"])
        write(tmp_path / "manifest.json", '{"complete": false}')
        assert "is unfinished; rerun the command that writes it" in fault(tmp_path)

    def test_a_broken_manifest(self, tmp_path):
        for broken in ("[]", "[" * 100_000, b"\xff\xfe{"):
            write(tmp_path / "manifest.json", broken)
            assert fault(tmp_path).endswith(
                "manifest.json cannot be read; if pairsmith wrote it, rerun the command that writes the "
                "folder, which restores it"
            )

    def test_a_folder_that_lost_its_manifest(self, tmp_path):
        self.put(tmp_path / "data" / "train-00000.parquet", sentence1=["a"])
        assert texts(tmp_path) == ["a"]
        (tmp_path / "journal").mkdir()
        write(tmp_path / "journal" / "run.json", "{}")
        assert "lacks its manifest.json, which lists its files; rerun the command" in fault(tmp_path)

    def test_a_folder_that_lost_a_file(self, tmp_path):
        names = [f"data/train-0000{number}.parquet" for number in range(3)]
        for name in names:
            self.put(tmp_path / name, sentence1=["a"])
        files = [{"path": name} for name in [*names, "rejects/part-00000.parquet"]]
        write(tmp_path / "manifest.json", json.dumps({"complete": True, "shards": [{"files": files}]}))
        assert texts(tmp_path) == ["a", "a", "a"]
        (tmp_path / names[1]).unlink()
        assert f"lacks {names[1]}, which its manifest.json lists; rerun the command" in fault(tmp_path)
        (tmp_path / names[2]).unlink()
        assert f"lacks {names[1]} and 1 more, which" in fault(tmp_path)


class TestMissing:
    def test_a_link_to_nothing_is_told_as_one(self, tmp_path):
        (tmp_path / "texts.txt").symlink_to("gone.txt")
        assert "texts.txt does not exist; it is a link to gone.txt, which does not exist" in fault(
            tmp_path / "texts.txt"
        )

    def test_a_link_to_itself_is_told_as_one(self, tmp_path):
        (tmp_path / "texts.txt").symlink_to("texts.txt")
        assert fault(tmp_path / "texts.txt").endswith(
            "does not exist; it is a link that leads back to itself"
        )

    def test_a_pipe_is_refused_before_it_is_read(self, tmp_path):
        os.mkfifo(tmp_path / "texts.txt")
        assert (
            "texts.txt: pipes cannot be read, as an input is read more than once; write the data to a file"
            in fault(tmp_path / "texts.txt")
        )
        assert fault("-").startswith("-: pipes cannot be read")
        assert fault("/dev/null") == "/dev/null holds no texts"

    def test_a_file_that_the_shell_did_not_pass(self):
        assert "the shell makes such a file" in fault("/dev/fd/9876")

    def test_an_address_that_cannot_be_fetched(self):
        message = fault("http://127.0.0.1:9/texts.txt")
        assert message.startswith("http://127.0.0.1:9/texts.txt could not be fetched; check the address")


class TestHub:
    @pytest.fixture
    def hub(self, monkeypatch):
        calls = []
        rows = [{"label": 1, "sentence": "a"}, {"label": 0, "sentence": "b"}]

        def stream(name):
            yield rows[0]
            if name == "org/breaks":
                raise ConnectionError("Connection reset")
            yield rows[1]

        def packed():
            raise NotImplementedError("Extraction protocol for this file is not implemented")
            yield

        def load_dataset(name, config=None, *, split, streaming=False):
            calls.append((name, config, split, streaming))
            if name == "org/none" or (name == "org/cached" and streaming):
                raise ConnectionError("Couldn't reach the Hub\nlong story")
            if not streaming:
                return rows
            return packed() if name == "org/packed" else stream(name)

        monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
        return calls

    def test_the_split_is_train_or_what_is_asked_for(self, hub):
        assert next(read_texts("org/name")) == TextRecord("a", "org/name:1")
        assert texts("org/name:validation[:10%]") == ["a", "b"]
        assert hub == [("org/name", None, "train", True), ("org/name", None, "validation[:10%]", False)]

    def test_a_configuration_is_named_behind_the_data_set(self, hub):
        assert texts("org/name/20231101.en:test") == ["a", "b"]
        assert texts("org/name/en:test[:2]") == ["a", "b"]
        assert hub == [
            ("org/name", "20231101.en", "test", True),
            ("org/name", "en", "test[:2]", False),
        ]
        assert model_display_name("org/name/en:test") == "org/name/en:test"
        assert sources_of(data=["org/name/en:test"]).credits[0].hub == "org/name"

    def test_it_is_read_as_a_stream(self, hub):
        rows = open_source("org/breaks").rows()
        assert next(rows) == ("org/breaks:1", {"label": 1, "sentence": "a"})
        with pytest.raises(
            InputError, match=r"org/breaks: the Hub sent no more rows after row 1 \(Connection"
        ):
            next(rows)

    @pytest.mark.parametrize("name", ["org/cached", "org/packed"])
    def test_what_cannot_be_streamed_is_fetched(self, hub, name):
        assert texts(name) == ["a", "b"]
        assert [streaming for *_, streaming in hub] == [True, False]

    def test_a_stream_without_rows_holds_no_texts(self, monkeypatch):
        stand_in = SimpleNamespace(load_dataset=lambda *_, **__: iter([]))
        monkeypatch.setitem(sys.modules, "datasets", stand_in)
        assert fault("org/empty") == "org/empty holds no texts"

    def test_failure_is_one_line(self, hub):
        message = fault("org/none")
        assert message.startswith(
            "org/none: no such file, and no such Hub data set could be loaded (Couldn't reach"
        )
        assert "\n" not in message

    def test_what_can_be_an_id(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "data").mkdir()
        assert is_hub_data("org/name")
        assert is_hub_data("org/name-v1.1:test")
        assert not is_hub_data("name")
        assert not is_hub_data("data/sentences")
        assert not is_hub_data("org/sentences.txt")
        assert not is_hub_data("org/sentences.jsonl.gz")
        assert is_hub_data("org/name/config:test")
        assert not is_hub_data("a/b/c")
        assert not is_hub_data("a/b/c:")
        assert not is_hub_data("a/b/c.txt:test")
        assert not is_hub_data("a/b/c/d:test")
        assert not is_hub_data("data")


class TestPairs:
    def test_all_formats_alike(self, put, tmp_path):
        rows = [
            {"sentence1": "a b", "sentence2": 'c "d"', "score": 0.5},
            {"sentence1": "e", "sentence2": "f", "score": 4},
        ]
        put("in.tsv", 'sentence1\tsentence2\tscore\na b\tc "d"\t0.5\ne\tf\t4\n')
        put("in.csv", 'score,sentence2,sentence1\n0.5,"c ""d""",a b\n4,f,e\n')
        put("in.jsonl", "\n".join(map(json.dumps, rows)))
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "in.parquet")
        expected = [GradedPair("a b", 'c "d"', 0.5), GradedPair("e", "f", 4.0)]
        for name in ("in.tsv", "in.csv", "in.jsonl", "in.parquet"):
            assert list(read_pairs(tmp_path / name)) == expected

    def test_rows_without_gold_are_left_out(self, put):
        path = put("in.tsv", "sentence1\tsentence2\tscore\na\tb\t\nc\td\t2\n")
        assert list(read_pairs(path)) == [GradedPair("c", "d", 2.0)]
        path = put("in.jsonl", '{"sentence1": "a", "sentence2": "b", "score": null}')
        with pytest.raises(InputError, match="holds no graded pairs"):
            list(read_pairs(path))

    @pytest.mark.parametrize("score", ["high", "3,5", "nan", "inf", "1e999"])
    def test_a_score_that_is_no_number(self, put, score):
        path = put("in.tsv", f"sentence1\tsentence2\tscore\na\tb\t{score}\n")
        with pytest.raises(
            InputError, match=rf"in\.tsv:2: the score is '{score}', not a number such as 3\.5"
        ):
            list(read_pairs(path))

    @pytest.mark.parametrize(("row", "name"), [("\tb\t1", "sentence1"), ("a\t \t1", "sentence2")])
    def test_a_blank_text(self, put, row, name):
        path = put("in.tsv", f"sentence1\tsentence2\tscore\n{row}\n")
        with pytest.raises(InputError, match=f"in.tsv:2: {name} is blank"):
            list(read_pairs(path))

    def test_a_missing_column(self, put):
        path = put("in.tsv", "sentence1\tsentence2\tgold\na\tb\t1\n")
        with pytest.raises(InputError, match="has no column 'score'; known: gold, sentence1, sentence2"):
            list(read_pairs(path))


@pytest.mark.parametrize(
    ("read", "column"), [(read_inputs_and_outputs, "Score"), (read_paraphrases, "is_duplicate")]
)
def test_labels_that_the_first_row_lacks_are_not_ignored(put, read, column):
    pair = {"sentence1": "a", "sentence2": "b"}
    path = put("in.jsonl", f"{json.dumps(pair)}\n{json.dumps({**pair, column: 0})}\n")
    with pytest.raises(InputError) as caught:
        list(read(path))
    assert str(caught.value) == (
        f"in.jsonl:2: a column {column}, which the first row lacks; give it in all rows or in none"
    )
