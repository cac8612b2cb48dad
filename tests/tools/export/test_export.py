"""Rows in the forms of other tools, read back as those tools read them."""

import csv
import json
from datetime import date
from xml.etree import ElementTree

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.steps.mix.test_mix import lines
from tests.tools.report.test_rows import SHARDS, folder

from pairsmith.core.errors import FolderError, InputError, SettingsError
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.schemas import LABELLED_PAIR, MINED_ANSWER, LabelledPair, MinedAnswer, ScoredPair
from pairsmith.data.splits import splits_of
from pairsmith.data.squad import read_questions
from pairsmith.data.tagged import read_tagged
from pairsmith.runs import Run
from pairsmith.tools.export.route import export
from pairsmith.tools.settings import ExportSettings

pytestmark = pytest.mark.slow

TEXTS = ["Paris is the capital of France.", "Rome, the “eternal” city, lies on the Tiber."]


def question(number, text, wording, answer, title):
    answers = {"text": [answer], "answer_start": [TEXTS[text].index(answer)]}
    return {
        "id": f"q{number}",
        "title": title,
        "context": TEXTS[text],
        "question": wording,
        "answers": answers,
    }


QUESTIONS = [
    question(1, 0, "What is the capital?", "Paris", "France"),
    question(2, 1, "On which river does it lie?", "Tiber", "Italy"),
    question(3, 0, "Capital of which country?", "France", "France"),
]


def exported(tmp_path, data, form, out="out"):
    return {
        path.relative_to(tmp_path / out).as_posix(): path.read_text(encoding="utf-8")
        for path in export(ExportSettings(data=str(data), form=form), Run(tmp_path / out, Silent()))
    }


def rows_of(text):
    return [json.loads(line) for line in text.splitlines()]


def test_squad_reads_back_as_it_was(tmp_path):
    source = lines(tmp_path / "q.jsonl", QUESTIONS)
    files = exported(tmp_path, source, "squad")
    written = json.loads(files["train.json"])
    assert [article["title"] for article in written["data"]] == ["France", "Italy"]
    assert [len(article["paragraphs"]) for article in written["data"]] == [1, 1]
    again = sorted(read_questions(str(tmp_path / "out" / "train.json")), key=lambda row: row.id)
    assert again == sorted(read_questions(source), key=lambda row: row.id)


def test_rows_of_no_kind_are_json_lines_as_they_are(tmp_path):
    rows = [{"id": "1", "words": ["One", "."], "sure": True}, {"id": "2", "words": [], "sure": None}]
    files = exported(tmp_path, lines(tmp_path / "a.jsonl", rows), "jsonl")
    assert rows_of(files["train.jsonl"]) == rows


@pytest.mark.parametrize("form", ["squad", "beir", "sentence-transformers", "jsonl"])
def test_questions_without_an_answer_are_left_out_and_that_is_said(tmp_path, form, capsys):
    unanswered = {
        **QUESTIONS[0],
        "id": "none",
        "question": "Why?",
        "answers": {"text": [], "answer_start": []},
    }
    source = lines(tmp_path / "q.jsonl", [*QUESTIONS, unanswered])
    export(ExportSettings(data=source, form=form), Run(tmp_path / "out", Progress()))
    assert "left out 1 row, as there is no answer (none occurs in its context)" in capsys.readouterr().err
    assert all("Why?" not in path.read_text() for path in (tmp_path / "out").rglob("*.*") if path.is_file())


def test_mined_answers_become_squads_too(tmp_path):
    answers = {"text": ["Paris"], "answer_start": [0]}
    mined = MinedAnswer("1", "What is the capital?", "Paris " + TEXTS[0], 1.0, 2.0, TEXTS[0], answers)
    folder(tmp_path / "in", [{"train": [mined]}], MINED_ANSWER)
    exported(tmp_path, tmp_path / "in", "squad")
    (again,) = read_questions(str(tmp_path / "out" / "train.json"))
    assert (again.question, again.answers[0].text) == ("What is the capital?", "Paris")


def test_beir_has_a_corpus_queries_and_judgements(tmp_path):
    files = exported(tmp_path, lines(tmp_path / "q.jsonl", QUESTIONS), "beir")
    corpus = {row["_id"]: row for row in rows_of(files["corpus.jsonl"])}
    queries = {row["_id"]: row["text"] for row in rows_of(files["queries.jsonl"])}
    assert sorted(row["text"] for row in corpus.values()) == sorted(TEXTS)
    assert {row["title"] for row in corpus.values()} == {"France", "Italy"}
    head, *judgements = csv.reader(files["qrels/train.tsv"].splitlines(), delimiter="\t")
    assert head == ["query-id", "corpus-id", "score"]
    assert {(queries[query], corpus[document]["text"], score) for query, document, score in judgements} == {
        (row["question"], row["context"], "1") for row in QUESTIONS
    }


@pytest.mark.filterwarnings("ignore:Using `tqdm.autonotebook`", "ignore::ResourceWarning")
def test_the_package_beir_opens_it(tmp_path):
    from beir.datasets.data_loader import GenericDataLoader

    exported(tmp_path, lines(tmp_path / "q.jsonl", QUESTIONS), "beir")
    corpus, queries, judged = GenericDataLoader(data_folder=str(tmp_path / "out")).load(split="train")
    assert sorted((document["title"], document["text"]) for document in corpus.values()) == [
        ("France", TEXTS[0]),
        ("Italy", TEXTS[1]),
    ]
    assert sorted(queries.values()) == sorted(row["question"] for row in QUESTIONS)
    judgements = {
        (queries[query], corpus[text]["text"]): score
        for query, of in judged.items()
        for text, score in of.items()
    }
    assert judgements == {(row["question"], row["context"]): 1 for row in QUESTIONS}


def test_the_json_loader_of_datasets_opens_a_squad(tmp_path):
    exported(tmp_path, lines(tmp_path / "q.jsonl", QUESTIONS), "squad")
    opened = datasets.load_dataset(
        "json",
        data_files=str(tmp_path / "out" / "train.json"),
        field="data",
        cache_dir=str(tmp_path / "cache"),
    )
    articles = opened["train"].to_list()
    assert {
        (article["title"], paragraph["context"], qa["id"], qa["question"], qa["answers"][0]["text"])
        for article in articles
        for paragraph in article["paragraphs"]
        for qa in paragraph["qas"]
    } == {(q["title"], q["context"], q["id"], q["question"], q["answers"]["text"][0]) for q in QUESTIONS}


def test_columns_as_losses_take_them(tmp_path):
    files = exported(tmp_path, lines(tmp_path / "q.jsonl", QUESTIONS), "sentence-transformers")
    assert rows_of(files["train.jsonl"])[0] == {"anchor": "What is the capital?", "positive": TEXTS[0]}
    folder(tmp_path / "in", SHARDS)
    with pytest.raises(InputError, match="sentence1 is blank"):
        exported(tmp_path, tmp_path / "in", "sentence-transformers", "pairs")


def test_labels_are_numbers_as_losses_take_them(tmp_path, capsys):
    rows = [LabelledPair(str(i), f"one {i}", "two", label) for i, label in enumerate(["b", "c", "a", "b"])]
    folder(tmp_path / "in", [{"train": rows[:2], "validation": rows[2:]}], LABELLED_PAIR)
    settings = ExportSettings(data=str(tmp_path / "in"), form="sentence-transformers")
    export(settings, Run(tmp_path / "out", Progress()))
    assert (
        "labels are written as numbers, as losses take them: 0 for 'a', 1 for 'b', 2 for 'c'"
        in capsys.readouterr().err
    )
    files = {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}
    assert rows_of(files["train.jsonl"])[0] == {"sentence1": "one 0", "sentence2": "two", "label": 1}
    assert [row["label"] for row in rows_of(files["validation.jsonl"])] == [0, 1]
    assert json.loads(files["labels.json"]) == ["a", "b", "c"]
    two = ExportSettings(data=f"{tmp_path / 'in'}:train", form="sentence-transformers")
    export(two, Run(tmp_path / "two", Progress()))
    said = capsys.readouterr().err
    assert "0 for 'b', 1 for 'c'; ContrastiveLoss takes 1 for pairs that are similar, so exchange" in said


def test_labels_that_are_numbers_keep_their_values(tmp_path, capsys):
    rows = [LabelledPair(str(i), f"one {i}", "two", label) for i, label in enumerate(["0.5", "10", "2.0"])]
    folder(tmp_path / "in", [{"train": rows}], LABELLED_PAIR)
    files = exported(tmp_path, tmp_path / "in", "sentence-transformers")
    assert [row["label"] for row in rows_of(files["train.jsonl"])] == [0.5, 10, 2]
    assert "labels.json" not in files
    assert "written as numbers" not in capsys.readouterr().err


def test_each_split_has_its_file(tmp_path):
    rows = [ScoredPair(str(i), f"one {i}", "two\u2028lines\n", i / 4) for i in range(5)]
    folder(tmp_path / "in", [{"train": rows[:2], "validation": rows[4:]}, {"train": rows[2:4]}])
    files = exported(tmp_path, tmp_path / "in", "sentence-transformers")
    assert set(files) == {"train.jsonl", "validation.jsonl"}
    opened = datasets.load_dataset(
        "json",
        data_files={name.partition(".")[0]: str(tmp_path / "out" / name) for name in files},
        cache_dir=str(tmp_path / "cache"),
    )
    assert opened["train"].column_names == ["sentence1", "sentence2", "score"]
    assert opened["train"]["sentence1"][:] == [f"one {i}" for i in range(4)]
    assert opened["validation"]["score"][:] == [1.0]
    files = exported(tmp_path, tmp_path / "in", "jsonl", "plain")
    assert [row["id"] for row in map(json.loads, files["train.jsonl"].split("\n")[:-1])] == [
        "0",
        "1",
        "2",
        "3",
    ]


@pytest.mark.parametrize(
    ("row", "form", "fault"),
    [
        (
            {"text": "a", "label": "b"},
            "squad",
            "--form squad is for questions with answers; these rows are labelled",
        ),
        (
            {"text": "a", "label": "b"},
            "beir",
            "--form beir is for questions with answers, pairs of inputs and",
        ),
        (
            {"text": "a", "label": "b"},
            "sentence-transformers",
            "--form sentence-transformers is for scored pairs, labelled pairs, questions with answers,",
        ),
        ({"sentence1": "a", "sentence2": "b", "score": 1}, "beir", "these rows are scored pairs"),
    ],
)
def test_forms_that_rows_do_not_have_are_refused(tmp_path, row, form, fault):
    with pytest.raises(SettingsError, match=fault):
        exported(tmp_path, lines(tmp_path / "a.jsonl", [row]), form)
    assert not (tmp_path / "out").exists()


def test_it_is_written_again_over_itself_and_over_nothing_else(tmp_path):
    source = lines(tmp_path / "a.jsonl", [{"input": "a", "output": "b"}])
    first = exported(tmp_path, source, "jsonl")
    assert exported(tmp_path, source, "jsonl") == first
    lines(tmp_path / "a.jsonl", [{"input": "a", "output": "c"}])
    with pytest.raises(FolderError, match="on other inputs: input data"):
        exported(tmp_path, source, "jsonl")


def test_begun_afresh_nothing_of_other_data_is_left(tmp_path):
    two = folder(tmp_path / "two", SHARDS)
    export(ExportSettings(data=str(two.path), form="croissant"), Run(tmp_path / "out", Silent()))
    assert len(list((tmp_path / "out" / "data").iterdir())) > 1
    source = lines(tmp_path / "q.jsonl", QUESTIONS)
    export(ExportSettings(data=source, form="jsonl"), Run(tmp_path / "out", Silent(), fresh=True))
    left = {path.name for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert left == {"export.json", "train.jsonl"}


def test_files_that_were_changed_are_not_described(tmp_path):
    dataset = folder(tmp_path / "in", SHARDS)
    (file, *_) = sorted((dataset.path / "data").iterdir())
    whole = file.read_bytes()
    for content, what in ((whole + b" ", "changed"), (None, "missing")):
        if content is None:
            file.unlink()
        else:
            file.write_bytes(content)
        with pytest.raises(FolderError, match=rf"{file.name} \({what}\); run the command that writes it"):
            exported(tmp_path, dataset.path, "croissant")
    assert not (tmp_path / "out").exists()


def test_an_official_file_is_exported_too(tmp_path, capsys):
    exported(tmp_path, lines(tmp_path / "q.jsonl", QUESTIONS), "squad")
    again = ExportSettings(data=str(tmp_path / "out" / "train.json"), form="jsonl")
    export(again, Run(tmp_path / "again", Progress()))
    rows = rows_of((tmp_path / "again" / "train.jsonl").read_text())
    assert {row["id"] for row in rows} == {"q1", "q2", "q3"}
    assert "left out" not in capsys.readouterr().err


def test_lines_of_json_have_all_columns_behind_those_of_the_kind(tmp_path):
    rows = [
        {"url": "a/1", "input": "a", "output": "b", "margin": 1.5, "tags": ["x"], "id": 7},
        {"input": "c", "output": "d", "url": None},
    ]
    written = exported(tmp_path, lines(tmp_path / "p.jsonl", rows), "jsonl")["train.jsonl"]
    assert rows_of(written) == [rows[0] | {"id": "7"}, {"id": "2", **rows[1]}]
    assert list(rows_of(written)[0])[:3] == ["id", "input", "output"]


def test_lines_of_json_have_an_id_once_however_it_is_spelled(tmp_path):
    rows = [{"ID": "a", "text": "t", "label": "l"}, {"id": "b", "ID": "c", "text": "t", "label": "l"}]
    written = exported(tmp_path, lines(tmp_path / "p.jsonl", rows), "jsonl")["train.jsonl"]
    assert rows_of(written) == [{"id": "a", "text": "t", "label": "l"}, rows[1]]


def test_lines_of_json_keep_a_rows_own_columns_where_others_are_skipped_or_come_from_one(tmp_path):
    documents = [{"document": text, "summary": "s", "day": day} for day, text in enumerate(["a", " ", "b"])]
    files = exported(tmp_path, lines(tmp_path / "d.jsonl", documents), "jsonl")
    assert [(row["document"], row["day"]) for row in rows_of(files["train.jsonl"])] == [("a", 0), ("b", 2)]
    spans = {"detected_answers": [{"text": "Ann", "char_spans": [[0, 2]]}], "answers": ["Ann"]}
    mrqa = {"context": "Ann came.", "qas": [{"qid": "1", "question": "Who?", **spans}]}
    files = exported(tmp_path, lines(tmp_path / "m.jsonl", [{"header": {}}, mrqa]), "jsonl", "mrqa")
    (row,) = rows_of(files["train.jsonl"])
    assert (row["id"], row["question"], row["answers"]["text"]) == ("1", "Who?", ["Ann"])


def test_lines_of_json_hold_dates_and_refuse_half_characters(tmp_path):
    data = tmp_path / "in" / "data"
    data.mkdir(parents=True)
    pq.write_table(pa.table({"text": ["a"], "label": ["b"], "day": [date(2021, 1, 2)]}), data / "x.parquet")
    (row,) = rows_of(exported(tmp_path, tmp_path / "in", "jsonl")["train.jsonl"])
    assert row["day"] == "2021-01-02"
    half = lines(tmp_path / "h.jsonl", [{"text": "a", "label": "b", "by": ["\ud800"]}])
    with pytest.raises(InputError, match="train, row 1: column 'by' holds half a character"):
        exported(tmp_path, half, "jsonl", "half")
    assert not (tmp_path / "half").exists()


@pytest.mark.parametrize("content", ["[]", '{"files": null}', '{"files": 3}', "x"])
def test_a_record_that_is_none_of_ours_is_told(tmp_path, content):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "export.json").write_text(content)
    with pytest.raises(FolderError, match=r"export.json"):
        exported(tmp_path, lines(tmp_path / "q.jsonl", QUESTIONS), "squad")


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train-00000", "train"),
        ("test-00000-of-00001-b42a775f407cee45", "test"),
        ("validation", "validation"),
        ("test_sft-00000-of-00001", "test_sft"),
        ("0000", "train"),
        ("part-00000-1f3a.snappy", "train"),
        ("data", "train"),
    ],
)
def test_splits_are_told_by_the_names_of_files(tmp_path, name, split):
    data = tmp_path / "in" / "data"
    data.mkdir(parents=True)
    pq.write_table(pa.table({"text": ["a"], "label": ["b"]}), data / f"{name}.parquet")
    assert list(splits_of(str(tmp_path / "in"))) == [split]


def test_shards_as_the_hub_names_them_are_one_split(tmp_path):
    data = tmp_path / "in" / "data"
    data.mkdir(parents=True)
    for number, split in enumerate(
        ["train-00000-of-00002", "train-00001-of-00002", "validation-00000-of-00001"]
    ):
        row = {"input": f"a {number}", "output": "b"}
        pq.write_table(pa.Table.from_pylist([row]), data / f"{split}.parquet")
    files = exported(tmp_path, tmp_path / "in", "jsonl")
    assert {name: len(rows_of(text)) for name, text in files.items()} == {
        "train.jsonl": 2,
        "validation.jsonl": 1,
    }


AWKWARD = [
    {"id": "1", "text": 'She said "no, never", twice; ', "label": "a,b"},
    {"id": "2", "text": "Three lines:\nthe second\rand a third", "label": "=1+1"},
    {"id": "3", "text": "“Größe” 🙂\tand a tab", "label": "b"},
]


def test_a_table_opens_in_python_and_pandas(tmp_path):
    import pandas

    source = lines(tmp_path / "t.jsonl", AWKWARD)
    files = exported(tmp_path, source, "csv")
    assert list(files) == ["train.csv"]
    with (tmp_path / "out" / "train.csv").open(encoding="utf-8", newline="") as file:
        assert list(csv.DictReader(file)) == AWKWARD
    table = pandas.read_csv(tmp_path / "out" / "train.csv", dtype=str)
    assert table.to_dict("records") == AWKWARD


def test_a_table_has_all_columns_of_any_rows_and_lists_as_json(tmp_path, capsys):
    rows = [{"a": 1, "list": ["x", "y"]}, {"a": 2.5, "b": None, "c": True}]
    source = lines(tmp_path / "t.jsonl", rows)
    export(ExportSettings(data=source, form="csv"), Run(tmp_path / "out", Progress()))
    assert "columns that hold lists or objects are written as JSON: list" in capsys.readouterr().err
    text = (tmp_path / "out" / "train.csv").read_text()
    assert text == 'a,list,b,c\n1,"[""x"", ""y""]",,\n2.5,,,True\n'


def test_a_table_for_each_split_and_for_squad(tmp_path):
    data = tmp_path / "in" / "data"
    data.mkdir(parents=True)
    for split in ("train", "validation"):
        pq.write_table(pa.table({"text": [split], "label": ["b"]}), data / f"{split}-00000.parquet")
    files = exported(tmp_path, tmp_path / "in", "csv")
    assert files == {"train.csv": "text,label\ntrain,b\n", "validation.csv": "text,label\nvalidation,b\n"}
    exported(tmp_path, lines(tmp_path / "q.jsonl", QUESTIONS), "squad", out="squad")
    table = exported(tmp_path, tmp_path / "squad" / "train.json", "csv", out="table")["train.csv"]
    assert [row["id"] for row in csv.DictReader(table.splitlines())] == ["q1", "q3", "q2"]


@pytest.mark.parametrize(
    "row",
    [{"text": "a\ud800", "label": "b"}, {"text": ["a", "\ud800"]}, {"text": {"\ud800": 1}}],
    ids=["text", "list", "object"],
)
def test_a_text_that_no_table_can_hold_is_told_before_anything_is_written(tmp_path, row):
    source = lines(tmp_path / "t.jsonl", [{"text": "a"}, row])
    with pytest.raises(InputError, match="train, row 2: column 'text' holds half a character"):
        exported(tmp_path, source, "csv")
    assert not (tmp_path / "out").exists()


def test_a_table_of_nothing_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text("text,label\n")
    with pytest.raises(InputError, match="has no rows"):
        exported(tmp_path, tmp_path / "t.csv", "csv")


def test_label_studio_gets_a_button_for_each_label_and_the_label_as_a_prediction(tmp_path):
    rows = [{"id": "a", "text": "A <b> & c", "label": "good"}, {"id": "b", "text": "d", "label": 'so "so"'}]
    files = exported(tmp_path, lines(tmp_path / "rows.jsonl", rows), "label-studio")
    assert list(files) == ["label-config.xml", "train.json"]
    view = ElementTree.fromstring(files["label-config.xml"])
    assert [choice.get("value") for choice in view.iter("Choice")] == ["good", 'so "so"']
    assert [(text.get("name"), text.get("value")) for text in view.iter("Text")] == [("text", "$text")]
    first, _ = json.loads(files["train.json"])
    assert first["data"] == {"id": "a", "text": "A <b> & c"}
    (result,) = first["predictions"][0]["result"]
    assert (result["from_name"], result["to_name"], result["type"]) == ("label", "text", "choices")
    assert result["value"] == {"choices": ["good"]}
    assert view.find("Choices").attrib.items() >= {"name": "label", "toName": "text"}.items()


def test_argilla_gets_fields_a_question_and_suggestions(tmp_path):
    rows = [
        {"sentence1": "a", "sentence2": "b", "score": 0.5},
        {"sentence1": "c", "sentence2": "d", "score": 1},
    ]
    files = exported(tmp_path, lines(tmp_path / "rows.jsonl", rows), "argilla")
    settings, records = json.loads(files["settings.json"]), json.loads(files["train.json"])
    assert [field["name"] for field in settings["fields"]] == ["sentence1", "sentence2"]
    (label_question,) = settings["questions"]
    assert [option["value"] for option in label_question["settings"]["options"]] == ["0.5", "1"]
    assert records[0]["fields"] == {"sentence1": "a", "sentence2": "b"}
    assert records[1]["suggestions"] == {"label": {"value": "1", "agent": "pairsmith"}}


def test_rows_without_labels_are_asked_whether_they_fit(tmp_path):
    files = exported(tmp_path, lines(tmp_path / "q.jsonl", QUESTIONS), "argilla")
    settings, records = json.loads(files["settings.json"]), json.loads(files["train.json"])
    assert settings["questions"][0]["title"].startswith("Does the passage answer the question")
    assert records[0]["fields"]["answer"] == "Paris"
    assert "suggestions" not in records[0]


def test_scores_that_are_no_labels_make_no_buttons(tmp_path):
    rows = [{"sentence1": "a", "sentence2": "b", "score": number / 30} for number in range(30)]
    with pytest.raises(
        SettingsError, match="makes a button for each score, but these rows have 30 different"
    ):
        exported(tmp_path, lines(tmp_path / "rows.jsonl", rows), "label-studio")


@pytest.mark.parametrize("words", [["New York"], [""], ["-DOCSTART-"]])
def test_words_that_conll_cannot_hold_are_refused(tmp_path, words):
    (tmp_path / "in.jsonl").write_text(json.dumps({"tokens": words, "ner_tags": ["B-LOC"]}) + "\n")
    with pytest.raises(InputError, match=rf"row 1: a file in CoNLL's format cannot hold {words[0]!r}"):
        exported(tmp_path, tmp_path / "in.jsonl", "conll")


def test_words_and_tags_in_conll_are_read_back(tmp_path):
    rows = [
        {"tokens": ["Ann", "ran"], "ner_tags": ["B-PER", "O"]},
        {"tokens": ["Rome"], "ner_tags": ["B-LOC"]},
    ]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert exported(tmp_path, tmp_path / "in.jsonl", "conll") == {
        "train.conll": "Ann B-PER\nran O\n\nRome B-LOC\n\n"
    }
    read = read_tagged(str(tmp_path / "out" / "train.conll"))
    assert [(list(row.words), list(row.tags)) for row in read] == [
        (row["tokens"], row["ner_tags"]) for row in rows
    ]
