"""The step summarize, on a small random BART."""

import json
import re

import pytest
from tests.heard import Heard
from tests.planned import planned
from tests.tiny_bart import document, make_bart

from pairsmith.cli.app import main
from pairsmith.core.errors import FolderError, InputError, ModelError, SettingsError
from pairsmith.core.progress import Silent
from pairsmith.data.files.reading import SourceDocument
from pairsmith.models.text_generator import generate_outputs, load_text_generator
from pairsmith.runs import DatasetFolder, Run
from pairsmith.steps.texts import summarize as summarizing
from pairsmith.steps.texts.settings import SummarizeSettings
from pairsmith.steps.texts.summarize import summarize

pytestmark = pytest.mark.slow

TEXTS = [document(number) for number in range(4)]
LONG = " ".join(TEXTS)


@pytest.fixture(scope="module")
def bart(tmp_path_factory):
    return str(make_bart(tmp_path_factory.mktemp("summaries") / "bart", init_std=0.3))


@pytest.fixture(scope="module")
def written(bart):
    return generate_outputs(
        load_text_generator(bart, device="cpu"), [*TEXTS, LONG], beams=2, output_tokens=14
    )


def of(model, data, **more):
    fast = {"beams": 2, "summary_tokens": 14, "device": "cpu"}
    return SummarizeSettings(**{"model": model, "data": str(data), **fast, **more})


def table(folder, rows):
    folder.mkdir(exist_ok=True)
    (folder / "in.jsonl").write_text("\ufeff" + "".join(json.dumps(row) + "\n" for row in rows))
    return folder / "in.jsonl"


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*.parquet"))}


def test_each_text_gets_its_summary_and_keeps_its_columns(bart, written, tmp_path):
    rows = [
        {"article": text, "summary": "a person's", "day": n, "label": "x"}
        for n, text in enumerate([*TEXTS, " ", LONG])
    ]
    heard = Heard()
    folder = summarize(of(bart, table(tmp_path, rows), shard_size=2), Run(tmp_path / "out", heard))
    summaries = folder.table().to_pylist()
    assert [row["text"] for row in summaries] == [*TEXTS, LONG]
    assert [row["summary"] for row in summaries] == written
    assert [row["id"] for row in summaries] == ["1", "2", "3", "4", "6"]
    assert [row["day"] for row in summaries] == ["0", "1", "2", "3", "5"]
    assert {row["original_summary"] for row in summaries} == {"a person's"}
    assert [row["truncated"] for row in summaries] == [False] * 4 + [True]
    assert "longer than the model reads: 1 of 5 texts" in "\n".join(heard.lines)
    assert folder.rejects()["filter"].to_pylist() == ["empty"]
    card = (tmp_path / "out/README.md").read_text()
    assert "| original_summary | string | the column summary of the source |" in card
    assert "| truncated | bool | whether the model read only the beginning of the text |" in card
    assert "## Labels" not in card
    assert re.search(r"^\| A guitar was heard .* \| false \| ", card, re.M)


def test_paragraphs_are_one_text(bart, tmp_path):
    data = table(tmp_path, [{"id": "a", "paragraphs": TEXTS[:2]}])
    rows = summarize(of(bart, data), Run(tmp_path / "out", Silent())).table().to_pylist()
    assert [(row["id"], row["text"]) for row in rows] == [("a", f"{TEXTS[0]}\n{TEXTS[1]}")]


def test_the_documents_of_a_folder_are_summarised(bart, written, tmp_path):
    (tmp_path / "letters/old").mkdir(parents=True)
    (tmp_path / "letters/b.txt").write_text("\ufeff" + TEXTS[1])
    (tmp_path / "letters/old/c.html").write_text(f"<h1>News</h1><p>{TEXTS[2]}</p>")
    (tmp_path / "letters/empty.md").write_text("\n")
    (tmp_path / "letters/d.docx").write_bytes(b"PK\x03\x04")
    heard = Heard()
    folder = summarize(of(bart, tmp_path / "letters", shard_size=1), Run(tmp_path / "out", heard))
    rows = folder.table().to_pylist()
    assert [(row["id"], row["text"]) for row in rows] == [("b.txt", TEXTS[1]), ("old/c.html", TEXTS[2])]
    assert [row["summary"] for row in rows] == written[1:3]
    rejects = [(row["id"], row["filter"]) for row in folder.rejects().to_pylist()]
    assert sorted(rejects) == [("d.docx", "unknown kind"), ("empty.md", "empty")]
    assert "files of kinds that are not read: 1 .docx" in "\n".join(heard.lines)


def test_a_text_file_is_one_document(bart, tmp_path):
    (tmp_path / "letter.txt").write_text(f"{TEXTS[0]}\n\n{TEXTS[1]}\n")
    rows = summarize(of(bart, tmp_path / "letter.txt"), Run(tmp_path / "out", Silent())).table().to_pylist()
    assert [row["id"] for row in rows] == ["letter.txt"]
    assert rows[0]["text"].split("\n") == [TEXTS[0], "", TEXTS[1]]


def test_each_document_is_read_once_and_only_when_it_is_summarised(bart, tmp_path, monkeypatch):
    (tmp_path / "letters").mkdir()
    for number, text in enumerate(TEXTS):
        (tmp_path / f"letters/{number}.txt").write_text(text)
    read, real = [], SourceDocument.read

    def counting(document):
        read.append(document.name)
        return real(document)

    monkeypatch.setattr(SourceDocument, "read", counting)
    summarize(of(bart, tmp_path / "letters", shard_size=2), Run(tmp_path / "out", Silent()))
    assert sorted(read) == ["0.txt", "1.txt", "2.txt", "3.txt"]


def test_a_document_that_was_listed_and_is_missing_stops_the_run(bart, tmp_path, monkeypatch):
    (tmp_path / "letters").mkdir()
    for number, text in enumerate(TEXTS[:3]):
        (tmp_path / f"letters/{number}.txt").write_text(text)
    given = of(bart, tmp_path / "letters", shard_size=1)
    summarize(given, Run(tmp_path / "whole", Silent()))
    real = summarizing._load

    def load(settings):
        (tmp_path / "letters/0.txt").unlink(missing_ok=True)  # as on a machine that does not share the folder
        return real(settings)

    monkeypatch.setattr(summarizing, "_load", load)
    with pytest.raises(InputError, match=r"0\.txt was listed, but is missing"):
        summarize(given, Run(tmp_path / "out", Silent()))
    monkeypatch.undo()
    (tmp_path / "letters/0.txt").write_text(TEXTS[0])
    summarize(given, Run(tmp_path / "out", Silent()))
    assert files(tmp_path / "out") == files(tmp_path / "whole")


def test_where_nothing_is_written_the_text_is_a_reject(bart, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "pairsmith.models.text_generator.generate_outputs", lambda _, texts, **__: ["", *texts[1:]]
    )
    data = table(tmp_path, [{"id": n, "text": text} for n, text in enumerate(TEXTS[:2])])
    folder = summarize(of(bart, data), Run(tmp_path / "out", Silent()))
    assert folder.table()["id"].to_pylist() == ["1"]
    assert folder.rejects()["reason"].to_pylist() == ["the model wrote nothing"]


def test_stopped_it_goes_on_to_the_same_bytes(bart, tmp_path, monkeypatch):
    data = table(tmp_path, [{"text": text} for text in TEXTS])
    summarize(of(bart, data, shard_size=1), Run(tmp_path / "whole", Silent()))
    calls, real = [], summarizing._summarized

    def failing(*arguments):
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(summarizing, "_summarized", failing)
    with pytest.raises(KeyboardInterrupt):
        summarize(of(bart, data, shard_size=1), Run(tmp_path / "stopped", Silent()))
    monkeypatch.undo()
    summarize(of(bart, data, shard_size=1), Run(tmp_path / "stopped", Silent()))
    assert files(tmp_path / "stopped") == files(tmp_path / "whole")
    assert DatasetFolder.open(tmp_path / "stopped").table().num_rows == 4


def test_a_plan_counts_texts_and_files(bart, tmp_path):
    data = table(tmp_path, [{"text": text} for text in TEXTS])
    estimate = planned("summarize", of(bart, data), {})
    assert estimate.rows == {"train": 4}
    (tmp_path / "letters").mkdir()
    for number, text in enumerate(TEXTS[:3]):
        (tmp_path / f"letters/{number}.txt").write_text(text)
    assert planned("summarize", of(bart, tmp_path / "letters"), {}).rows == {"train": 3}
    only_blank = table(tmp_path, [{"text": " "}, {"text": None}])
    assert planned("summarize", of(bart, only_blank), {}).rows == {"train": 2}


def test_later_steps_of_a_plan_see_the_kept_columns(bart, tmp_path):
    data = table(tmp_path, [{"text": TEXTS[0], "summary": "a person's"}, {"text": TEXTS[1], "url": "u"}])
    sample = planned("summarize", of(bart, data), {}).sample
    assert sample.column_names == ["id", "text", "summary", "truncated", "original_summary", "url"]
    assert sample["url"].to_pylist() == [None, "u"]


def test_what_cannot_be_summarised_is_named(bart, tmp_path):
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters/a.docx").write_bytes(b"PK\x03\x04")
    with pytest.raises(InputError, match=re.escape("no document can be read: 1 .docx")):
        summarize(of(bart, tmp_path / "letters"), Run(tmp_path / "out", Silent()))
    (tmp_path / "letters/b.txt").write_text(TEXTS[0])
    with pytest.raises(FolderError, match="is inside --data"):
        summarize(of(bart, tmp_path / "letters"), Run(tmp_path / "letters/out", Silent()))


def test_a_model_that_cannot_write_is_refused_before_anything_is_written(bart, tiny_bert, tmp_path):
    data = table(tmp_path, [{"text": TEXTS[0]}])
    with pytest.raises(ModelError, match="an encoder without a decoder, which writes no summaries"):
        summarize(of(str(tiny_bert), data), Run(tmp_path / "out", Silent()))
    assert not (tmp_path / "out").exists()


def test_documents_have_no_column(bart, tmp_path):
    (tmp_path / "letter.txt").write_text(TEXTS[0])
    given = of(bart, tmp_path / "letter.txt", text_column="body")
    with pytest.raises(SettingsError, match="--text-column"):
        summarize(given, Run(tmp_path / "out", Silent()))


def test_a_missing_column_costs_two_lines(bart, tmp_path, capsys):
    data = table(tmp_path, [{"words": TEXTS[0]}])
    with pytest.raises(SystemExit) as stopped:
        main(["summarize", "--model", bart, "--data", str(data), "--out", str(tmp_path / "out")])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert "--text-column" in error
    assert "Traceback" not in error


def test_the_beginning_of_a_text_is_told_from_the_whole(bart):
    summarizer = load_text_generator(bart, device="cpu")
    exact = TEXTS[0]
    tokens = len(summarizer.tokenizer(exact)["input_ids"])
    fits = load_text_generator(bart, device="cpu", max_length=tokens)
    short = load_text_generator(bart, device="cpu", max_length=tokens - 1)
    assert fits.is_truncated([exact, LONG]) == [False, True]
    assert short.is_truncated([exact, "Two."]) == [True, False]
    assert (short.is_truncated([]), short.summarize([])) == ([], [])
    with pytest.raises(SettingsError, match="summary_tokens must be at least 4, not 3"):
        fits.summarize([exact], summary_tokens=3)
