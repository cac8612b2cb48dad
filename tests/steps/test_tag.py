"""The steps train-tagger and tag, on a small student that learns two sentences by heart."""

import json
import re
import shutil
from pathlib import Path

import pytest
from tests.heard import Heard
from tests.planned import planned
from tests.tagged_sentences import SENTENCES, make_student

from pairsmith.cli.app import main
from pairsmith.core.errors import InputError, ModelError, SettingsError
from pairsmith.core.progress import Silent
from pairsmith.data.tagged import TaggedSentence, read_tagged
from pairsmith.models.tagger import load_tagger
from pairsmith.runs import DatasetFolder, Run
from pairsmith.runs.estimate import Estimate
from pairsmith.steps.texts.settings import TagSettings
from pairsmith.steps.texts.tag import tag
from pairsmith.steps.training.settings import TrainTaggerSettings
from pairsmith.steps.training.tagger import train_tagger
from pairsmith.tools.report.route import report
from pairsmith.tools.settings import ReportSettings

pytestmark = pytest.mark.slow

TEXTS = ["A man is playing.", "Two dogs run on the beach. A man is playing.", "", "Two dogs."]


def write(file, sentences=SENTENCES):
    blocks = (
        "".join(f"{word} {tag}\n" for word, tag in zip(sentence.words, sentence.tags, strict=True))
        for sentence in sentences
    )
    file.write_text("\n".join(blocks), encoding="utf-8")
    return str(file)


@pytest.fixture(scope="module")
def student(tiny_bert, tmp_path_factory):
    return make_student(tiny_bert, tmp_path_factory.mktemp("students"))


def learning(base, data, **more):
    fast = {"epochs": 60, "learning_rate": 1e-2, "device": "cpu"}
    return TrainTaggerSettings(base=base, data=data, **(fast | more))


@pytest.fixture(scope="module")
def tagger(student, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tagger")
    train_tagger(learning(student, write(folder / "few.conll")), Run(folder / "model", Silent()))
    return str(folder / "model")


def of(model, data, **more):
    return TagSettings(**{"model": model, "data": str(data), "device": "cpu", **more})


def test_the_tagger_that_is_saved_has_learned_the_sentences(tagger):
    found = load_tagger(tagger, device="cpu")
    assert found.tag_words([row.words for row in SENTENCES]) == [list(row.tags) for row in SENTENCES]
    card = (Path(tagger) / "README.md").read_text()
    assert "pipeline_tag: token-classification" in card
    assert "| the layer that predicts tags began | from questions |" in card
    assert "| types of entities | LOC, PER |" in card


def test_each_text_gets_its_entities_and_keeps_its_columns(tagger, tmp_path):
    rows = [{"mail": text, "from": n, "label": "x"} for n, text in enumerate(TEXTS)]
    (tmp_path / "in.jsonl").write_text("\ufeff" + "".join(json.dumps(row) + "\n" for row in rows))
    folder = tag(
        of(tagger, tmp_path / "in.jsonl", text_column="mail", shard_size=2), Run(tmp_path / "out", Silent())
    )
    table = folder.table().to_pylist()
    assert [row["text"] for row in table] == [text for text in TEXTS if text]
    assert [row["from"] for row in table] == ["0", "1", "3"]
    second = table[1]
    assert second["entities"] == [
        {"text": "the beach", "type": "LOC", "start": 16, "end": 25},
        {"text": "A man", "type": "PER", "start": 27, "end": 32},
    ]
    assert second["tokens"] == [*SENTENCES[1].words, *SENTENCES[0].words]
    assert second["ner_tags"] == [*SENTENCES[1].tags, *SENTENCES[0].tags]
    assert folder.rejects()["filter"].to_pylist() == ["empty"]
    assert "## Labels" not in (tmp_path / "out" / "README.md").read_text()
    read = read_tagged(str(tmp_path / "out"))
    assert list(read[1].tags) == second["ner_tags"]


def test_a_stopped_run_goes_on_and_several_workers_give_the_same(tagger, tmp_path):
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in TEXTS * 3))
    whole = tag(of(tagger, tmp_path / "in.txt", shard_size=2), Run(tmp_path / "whole", Silent()))
    wide = tag(of(tagger, tmp_path / "in.txt", shard_size=2, workers=2), Run(tmp_path / "wide", Silent()))
    shutil.copytree(tmp_path / "whole", tmp_path / "half")
    (tmp_path / "half" / "data" / "train-00001.parquet").unlink()
    half = tag(of(tagger, tmp_path / "in.txt", shard_size=2), Run(tmp_path / "half", Silent()))
    assert whole.table().equals(wide.table())
    assert whole.table().equals(half.table())


def test_the_commands_from_sentences_to_a_conll_file(student, tmp_path, capsys):
    data = write(tmp_path / "few.conll")
    (tmp_path / "in.txt").write_text("A man is playing.\n")
    commands = [
        ["train-tagger", "--base", student, "--data", data, "--epochs", "60", "--learning-rate", "0.01"],
        ["tag", "--model", str(tmp_path / "0"), "--data", str(tmp_path / "in.txt")],
        ["export", "--data", str(tmp_path / "1"), "--form", "conll"],
    ]
    for number, command in enumerate(commands):
        with pytest.raises(SystemExit, match="0"):
            main([*command, "--out", str(tmp_path / str(number))])
    said = capsys.readouterr().err
    assert "2 sentences with entities of the types LOC, PER" in said
    assert f"next: pairsmith tag --model {tmp_path / '0'} --data TEXTS.txt" in said
    assert re.search(r"type PER +1 entity$", said, re.MULTILINE)
    lines = (tmp_path / "2" / "train.conll").read_text().splitlines()
    assert lines == ["A B-PER", "man I-PER", "is O", "playing O", ". O", ""]
    assert DatasetFolder.open(tmp_path / "1").rows == 1
    with pytest.raises(SystemExit, match="0"):
        main([*commands[0], "--out", str(tmp_path / "0")])
    assert "nothing to do" in capsys.readouterr().err


def test_what_cannot_be_learned_or_used_is_refused_before_anything_is_written(student, tiny_bert, tmp_path):
    data = write(tmp_path / "few.conll")
    out = tmp_path / "no"
    with pytest.raises(ModelError, match="or --start random for any encoder"):
        train_tagger(learning(str(tiny_bert), data, start="questions"), Run(out, Silent()))
    with pytest.raises(ValueError, match="questions has no effect with start random"):
        learning(student, data, start="random", questions="q.yaml")
    (tmp_path / "none.conll").write_text("A O\n")
    with pytest.raises(InputError, match="no sentence has an entity to learn"):
        train_tagger(learning(student, str(tmp_path / "none.conll")), Run(out, Silent()))
    (tmp_path / "dish.conll").write_text("Pizza B-dish\n")
    with pytest.raises(SettingsError, match="no question for the type 'dish'; .* --questions FILE"):
        train_tagger(learning(student, str(tmp_path / "dish.conll")), Run(out, Silent()))
    (tmp_path / "in.txt").write_text("A man.\n")
    (tmp_path / "words.jsonl").write_text(json.dumps({"tokens": ["Two", "dogs"]}))
    with pytest.raises(InputError, match="column 'tokens' holds a list, not text"):
        tag(of(str(tiny_bert), tmp_path / "words.jsonl", text_column="tokens"), Run(out, Silent()))
    with pytest.raises(ModelError, match="has no head for token classification"):
        tag(of(str(tiny_bert), tmp_path / "in.txt"), Run(tmp_path / "never", Silent()))
    assert not out.exists()


def test_a_row_that_is_too_long_to_be_one_sentence_is_told(student, tmp_path):
    heard = Heard()
    long = TaggedSentence(("man",) * 40, ("B-PER",) * 40)
    data = write(tmp_path / "few.conll", [*SENTENCES, long])
    train_tagger(learning(student, data, epochs=1, max_length=16), Run(tmp_path / "out", heard))
    assert any(line.startswith("of 1 sentence only the beginning is learned") for line in heard.lines)


def test_any_encoder_begins_at_random_and_own_questions_are_used(student, tiny_bert, tmp_path):
    data = write(tmp_path / "few.conll")
    train_tagger(learning(str(tiny_bert), data, epochs=1), Run(tmp_path / "random", Silent()))
    assert "| at random |" in (tmp_path / "random" / "README.md").read_text()
    (tmp_path / "q.yaml").write_text("PER: Who is it ?\n")
    given = learning(student, data, epochs=1, questions=str(tmp_path / "q.yaml"))
    train_tagger(given, Run(tmp_path / "own", Silent()))
    train_tagger(learning(student, data, epochs=1), Run(tmp_path / "built-in", Silent()))
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("own", "built-in")]
    assert weights[0] != weights[1]


def test_both_steps_can_be_planned(student, tagger, tmp_path):
    estimate = planned("train-tagger", learning(student, write(tmp_path / "few.conll"), epochs=2), {})
    assert estimate.seconds > 0
    assert estimate.disk > 10_000
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    settings = TagSettings(model="@tagger", data=str(tmp_path / "in.txt"), device="cpu")
    found = planned("tag", settings, {"@tagger": Estimate(1.0, 1, 1, {})}, tagger)
    assert found.rows == {"train": 3}
    (tmp_path / "in.jsonl").write_text(json.dumps({"text": TEXTS[0], "url": "u"}))
    assert planned("tag", of(tagger, tmp_path / "in.jsonl"), {}).sample["url"].to_pylist() == ["u"]


def test_the_page_about_tagged_texts_shows_their_entities(tagger, tmp_path):
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    tag(of(tagger, tmp_path / "in.txt"), Run(tmp_path / "out", Silent()))
    report(ReportSettings(data=str(tmp_path / "out")), Run(tmp_path / "page", Silent()))
    page = (tmp_path / "page" / "report.html").read_text(encoding="utf-8")
    assert "the beach (LOC), A man (PER)" in page
    assert "Entities of each type" in page
    assert "Most frequent entities of each type" in page
    assert re.search("<bdi>PER</bdi>.{0,60}<bdi>A man</bdi></td><td[^>]*><bdi>2</bdi>", page)
    assert "Texts and labels" not in page
