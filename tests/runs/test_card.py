import re
import shlex

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from pairsmith.cli.options import settings_from
from pairsmith.core.progress import Silent
from pairsmith.data import kinds
from pairsmith.data.schemas import (
    LABELLED_PAIR,
    LABELLED_TEXT,
    REJECT,
    SCORED_PAIR,
    LabelledPair,
    LabelledText,
    Reject,
    ScoredPair,
    to_table,
)
from pairsmith.runs import Card, FolderWriter, Identity, Run
from pairsmith.runs import card as card_module
from pairsmith.runs.attribution import displayed_options
from pairsmith.runs.card import MEANING, origin_section
from pairsmith.steps.evaluate.classification_settings import EvaluateClassificationSettings
from pairsmith.steps.generate.settings import GenerateSettings
from pairsmith.steps.questions.settings import AskSettings

NASTY = 'x: "y" | `code` \n---\n# [a](b) <script>\x07 \\ *'


def make(out, schema, shards, rejects=(), card=None, **identity):
    work = {"step": "generate", "settings": {}, **identity}
    writer = FolderWriter.start(Run(out, Silent()), Identity.of(**work), schema)
    for shard, tables in enumerate(shards):
        tables = {split: to_table(rows, schema) for split, rows in tables.items()}
        writer.commit(shard, tables, to_table(rejects if shard == 0 else [], REJECT))
    return writer.finish(card or Card("Pairs", "Two sentences and a score."))


def front_matter(text):
    """As the Hub does: what stands between the first line of dashes and the next."""
    match = re.match(r"\A---\n(.*?)\n---\n", text, re.DOTALL)
    return yaml.safe_load(match[1]), text[match.end() :]


def read(folder):
    return front_matter((folder.path / "README.md").read_text(encoding="utf-8"))


def scored(count, split="train"):
    return {split: [ScoredPair(str(n), f"x {n}", f"y {n}", n % 3 / 2) for n in range(count)]}


def test_metadata_for_the_hub(tmp_path):
    folder = make(
        tmp_path / "o", SCORED_PAIR, [scored(5) | scored(2, "validation")], [Reject("a", "f", "r", "{}")]
    )
    assert read(folder)[0] == {
        "pretty_name": "Pairs",
        "tags": ["pairsmith", "synthetic"],
        "task_categories": ["sentence-similarity"],
        "size_categories": ["n<1K"],
        "configs": [
            {
                "config_name": "default",
                "default": True,
                "data_files": [
                    {"split": "train", "path": "data/train-*.parquet"},
                    {"split": "validation", "path": "data/validation-*.parquet"},
                ],
            },
            {
                "config_name": "rejects",
                "data_files": [{"split": "rejects", "path": "rejects/part-*.parquet"}],
            },
        ],
    }


def test_the_text_for_a_reader(tmp_path):
    card = Card(
        "Pairs",
        "Two sentences.",
        task_description='Task: Write two.\nSentence 1: "<X1>"',
        counts={"input texts": 1234},
        citations=["Somebody, 2021"],
        licence="As the inputs.",
    )
    rejects = [Reject("a", "near-copy", "equal: after folding", "{}")] * 2
    folder = make(
        tmp_path / "o",
        SCORED_PAIR,
        [scored(5)],
        rejects,
        card,
        settings={"decay": 100.0, "task": "sts", "labels": ["a"]},
        inputs={"in.txt": "ab12"},
        models={"tiny": "cd34"},
    )
    body = read(folder)[1]
    for part in (
        "# Pairs\n\nTwo sentences.\n",
        '```text\nTask: Write two.\nSentence 1: "<X1>"\n```',
        "| train | 5 |",
        "| left out (see below) | 2 |",
        "| input texts | 1,234 |",
        "load_dataset(",
        "| score | double | how similar",
        "| 0.0 | 2 |\n| 0.5 | 2 |\n| 1.0 | 1 |",
        "| x 0 | y 0 | 0.0 |",
        "| near-copy | equal: after folding | 2 |",
        "no person has checked each of them",
        "| version of the tiny | cd34 |",
        "| SHA-256 of in.txt | ab12 |",
        '| decay | 100.0 |\n| task | sts |\n| labels | \\["a"\\] |',
        "## Please cite\n\n- Somebody, 2021",
        "## Licence\n\nAs the inputs.",
    ):
        assert part in body


def test_sections_with_nothing_to_say_are_left_out(tmp_path):
    body = read(make(tmp_path / "o", SCORED_PAIR, [{"train": []}]))[1]
    for heading in ("Instructions", "Scores", "First rows", "Rows left out", "Please cite", "Licence"):
        assert f"## {heading}" not in body
    assert "left out" not in body
    assert "```sh" not in body  # nobody gave a command


def test_many_scores_are_summed_up(tmp_path):
    rows = [ScoredPair(str(n), "x", "y", n / 40) for n in range(41)]
    body = read(make(tmp_path / "o", SCORED_PAIR, [{"train": rows}]))[1]
    assert "41 different values of `score`, 0.000 to 1.000, mean 0.500." in body


def test_many_labels_are_summed_up(tmp_path):
    rows = [LabelledText(str(n), "x", f"l{n}") for n in range(31)]
    metadata, body = read(make(tmp_path / "o", LABELLED_TEXT, [{"train": rows}]))
    assert "31 different values of `label`." in body
    assert metadata["task_categories"] == ["text-classification"]


def test_columns_kept_from_the_source_are_described_but_not_taken_for_the_steps_own(tmp_path):
    rows = [LabelledText(str(n), "x", "sport") for n in range(3)]
    card = Card(
        "Texts", "Texts.", columns={"text": "a text"}, kept={"label": "the column label of the source"}
    )
    folder = make(tmp_path / "o", LABELLED_TEXT, [{"train": rows}], card=card)
    metadata, body = read(folder)
    assert "| label | string | the column label of the source |" in body
    assert folder.manifest.about.columns == {"text": "a text", "label": "the column label of the source"}
    assert "## Labels" not in body
    assert "task_categories" not in metadata


def test_text_from_outside_cannot_break_the_card(tmp_path):
    row = ScoredPair("a", NASTY, "y" * 500, 1.0)
    card = Card(NASTY, "d", task_description="```\nx\n---\n", citations=[NASTY])
    rejects = [Reject("a", NASTY, NASTY, "{}")]
    folder = make(tmp_path / "o", SCORED_PAIR, [{"train": [row]}], rejects, card, settings={"a": NASTY})
    metadata, body = read(folder)
    assert metadata["pretty_name"] == 'x: "y" | `code` --- # [a](b) <script> \\ *'
    assert len(metadata["configs"]) == 2
    cell = r'x: "y" \| \`code\` --- # \[a\](b) \<script> \\ \*'
    assert f"| {cell} | {'y' * 199}… | 1.0 |" in body
    assert f"| a | {cell} |" in body
    assert "````text\n```\nx\n---\n````" in body


def test_of_a_giant_text_only_the_beginning_is_read(tmp_path, monkeypatch):
    read_lengths, real = [], card_module._line

    def counting(text):
        read_lengths.append(len(text))
        return real(text)

    monkeypatch.setattr(card_module, "_line", counting)
    row = ScoredPair("a", "y" * 1_000_000, f"short{' ' * 1_000_000}", 1.0)
    _, body = read(make(tmp_path / "o", SCORED_PAIR, [{"train": [row]}]))
    assert f"| {'y' * 199}… | short… | 1.0 |" in body
    assert max(read_lengths) == 10_000


@settings(max_examples=40, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_title_leaves_the_metadata_whole(tmp_path_factory, title):
    folder = make(tmp_path_factory.mktemp("c") / "o", SCORED_PAIR, [scored(1)], card=Card(title, title))
    metadata, _ = read(folder)
    assert metadata["configs"][0]["data_files"] == [{"split": "train", "path": "data/train-*.parquet"}]


@pytest.fixture
def load(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import datasets

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()
    return lambda folder, *name, **options: datasets.load_dataset(
        str(folder.path), *name, cache_dir=str(tmp_path / "cache"), **options
    )


@pytest.mark.parametrize(
    ("schema", "row"),
    [
        (SCORED_PAIR, lambda n: ScoredPair(n, "x", "ÿ\n", 0.5)),
        (LABELLED_PAIR, lambda n: LabelledPair(n, "x", "y", "entailment")),
        (LABELLED_TEXT, lambda n: LabelledText(n, "x", "sport")),
    ],
)
def test_datasets_opens_every_schema(tmp_path, load, schema, row):
    """Three shards: full, without training rows, without anything; and a test split that stays empty."""
    rejects = [Reject("r", "copy", "equal", '{"a": 1}')]
    shards = [{"train": [row("a"), row("b")], "validation": [row("c")], "test": []}]
    shards += [{"train": [], "validation": [row("d")], "test": []}, {}, {"train": [row("e")]}]
    folder = make(tmp_path / "o", schema, shards, rejects)
    loaded = load(folder)
    assert {split: data["id"][:] for split, data in loaded.items()} == {
        "train": ["a", "b", "e"],
        "validation": ["c", "d"],
    }
    assert loaded["train"].column_names == schema.names
    assert loaded["train"].data.table.equals(folder.table().cast(loaded["train"].data.schema))
    assert load(folder, "rejects")["rejects"][0] == {
        "id": "r",
        "filter": "copy",
        "reason": "equal",
        "row": '{"a": 1}',
    }


def test_named_labels_of_pairs_are_a_classification(tmp_path):
    folder = make(tmp_path / "o", LABELLED_PAIR, [{"train": [LabelledPair("a", "x", "y", "neutral")]}])
    metadata, body = read(folder)
    assert metadata["task_categories"] == ["text-classification"]
    assert "| label | rows |\n| --- | --- |\n| neutral | 1 |" in body


def test_datasets_opens_a_folder_without_rejects(tmp_path, load):
    assert load(make(tmp_path / "o", SCORED_PAIR, [scored(2)]))["train"].num_rows == 2


def test_datasets_streams_a_folder_without_rows(tmp_path, load):
    """`datasets` has no data set without rows in memory; as a stream it opens."""
    folder = make(tmp_path / "o", SCORED_PAIR, [{"train": []}])
    assert list(load(folder, split="train", streaming=True)) == []


def test_the_card_shows_how_to_open_rows_and_rejects(tmp_path, load):
    """The block of Python works as it stands, with the folder's path; ``load`` keeps the Hub away."""
    folder = make(
        tmp_path / "o", SCORED_PAIR, [{"train": []} | scored(2, "validation")], [Reject("a", "f", "r", "{}")]
    )
    code = re.search(r"```python\n(.*?)```", read(folder)[1], re.DOTALL)[1]
    values = {}
    exec(code.replace("path/to/this/folder", str(folder.path)), values)
    assert values["rows"]["id"][:] == ["0", "1"]
    assert values["left_out"]["filter"][:] == ["f"]


def test_the_command_that_repeats_a_step_has_no_private_paths_and_no_defaults(tmp_path):
    inputs = tmp_path / "my texts.txt"
    inputs.touch()
    given = GenerateSettings(inputs=[str(inputs)], seed=7, device="cpu", until=9)
    options = displayed_options(given)
    assert str(tmp_path) not in options
    assert "--inputs 'my texts.txt'" in options
    assert "--seed 7" in options
    assert "--until 9" in options
    for absent in ("--device", "--workers", "--top-p"):
        assert absent not in options
    text = origin_section("generate", "0.1.0", options)
    assert f"```sh\npairsmith generate {options} --out FOLDER\n```" in text


@pytest.mark.parametrize("text", ["x" * 300, "~", "~no-such-user", "~no-such-user/x", "", ".", "see s://a/b"])
def test_a_text_that_can_be_no_path_is_an_option_like_any_other(text):
    given = EvaluateClassificationSettings(model="pairsmith:tiny", data="x", text_column=text)
    assert f"--text-column {shlex.quote(text)}" in displayed_options(given)


def test_options_name_splits_and_files_in_the_home_folder_without_their_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "task.yaml").touch()
    texts = tmp_path / "texts"
    (texts / "data").mkdir(parents=True)
    given = GenerateSettings(task="~/task.yaml", inputs=[f"{texts}:train", "s3://bucket/more.txt"])
    assert displayed_options(given) == (
        f"--task task.yaml --model {given.model} --inputs texts:train --inputs more.txt"
    )


def test_a_default_that_is_unset_is_unset_by_the_command_too():
    unset = AskSettings(inputs=["x"], model="cloze", max_length=None)
    assert displayed_options(unset) == "--inputs x --model cloze --max-length null"
    assert settings_from(AskSettings, {"inputs": ["x"], "model": "cloze", "max_length": "null"}) == unset


def test_measured_scores_are_no_labels(tmp_path):
    rows = [ScoredPair(str(n), "x", "y", 0.5 + n / 1000) for n in range(4)]
    body = read(make(tmp_path / "o", SCORED_PAIR, [{"train": rows}]))[1]
    assert "## Scores\n\n4 different values of `score`, 0.500 to 0.503, mean 0.501." in body


def test_the_columns_of_every_kind_of_rows_have_a_meaning():
    columns = {name for _, kind in kinds._KINDS for name in kind.schema.names}
    assert columns <= MEANING.keys()
