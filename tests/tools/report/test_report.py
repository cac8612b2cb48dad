"""The step report."""

import json

import pyarrow as pa
import pytest
from tests.folders import write_folder
from tests.tools.report.test_parts import ALLOWED, HOSTILE, read
from tests.tools.report.test_rows import SHARDS, folder

from pairsmith.cli.app import main
from pairsmith.cli.recipes import load_recipe
from pairsmith.cli.running import run_recipe
from pairsmith.core.errors import FolderError
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.schemas import (
    LABELLED_TEXT,
    MINED_PAIR,
    REJECT,
    TAGGED_TEXT,
    LabelledText,
    MinedPair,
    Reject,
    ScoredPair,
    to_table,
)
from pairsmith.runs import DatasetFolder, Run
from pairsmith.runs.status import status_lines
from pairsmith.steps.step import command_of
from pairsmith.steps.table import STEPS
from pairsmith.tools.report.models import MEANINGS
from pairsmith.tools.report.origin import seconds
from pairsmith.tools.report.parts import shown_text
from pairsmith.tools.report.route import report
from pairsmith.tools.settings import ReportSettings

pytestmark = pytest.mark.slow


def page_of(data, out, **settings):
    path = report(ReportSettings(data=str(data), **settings), Run(out, Silent()))
    return path.read_text(encoding="utf-8")


def text_of(page):
    return " ".join("".join(read(page).text).split())


def warnings_in(out):
    return json.loads((out / "report.json").read_text())["warnings"]


def test_a_data_set(tmp_path):
    folder(tmp_path / "in", SHARDS)
    against = tmp_path / "eval.txt"
    against.write_text("One two three four\nanother sentence of some length\n")
    page = page_of(tmp_path / "in", tmp_path / "out", against=str(against))
    reader = read(page)
    assert reader.tags <= ALLOWED
    text = text_of(page)
    assert "4 rows: 3 in train, 1 in validation." in text
    assert "1 of 4 (25.0 %)" in text
    assert "one two three four" in text
    assert warnings_in(tmp_path / "out") == [
        "1 of 4 rows contain a text of eval.txt, or 8 consecutive words of a text; figures measured on this data may be too good"
    ]
    assert "No row was rejected." in text


def test_tagged_texts_of_another_step_have_their_entities_listed(tmp_path):
    row = {
        "id": "a", "text": "Anna sings.", "entities": [{"text": "Anna", "type": "PER", "start": 0, "end": 4}],
        "tokens": ["Anna", "sings", "."], "ner_tags": ["B-PER", "O", "O"],
    }  # fmt: skip
    write_folder(tmp_path / "in", {"train": pa.Table.from_pylist([row], TAGGED_TEXT)}, step="remove")
    assert "Most frequent entities of each type" in text_of(page_of(tmp_path / "in", tmp_path / "out"))


def test_the_licences_of_the_sources_are_named(tmp_path):
    folder(tmp_path / "in", SHARDS)
    path = tmp_path / "in" / "manifest.json"
    record = json.loads(path.read_text())
    record["about"]["credits"] = [
        {"name": "news.txt", "role": "data", "licences": ["cc-by-4.0", "mit"]},
        {"name": "org/model", "role": "model"},
    ]
    path.write_text(json.dumps(record))
    text = text_of(page_of(tmp_path / "in", tmp_path / "out"))
    assert "licences, as far as they are knownnews.txt: cc-by-4.0, mit; org/model: unknown" in text


LONG = "the quick brown fox jumps over the lazy dog today and tomorrow"


def test_rows_that_share_text_with_evaluation_data_count_once_and_the_sentence_says_so(tmp_path):
    rows = [
        ScoredPair("both", LONG, LONG.upper(), 0.0),  # two of its texts, each whole and in many runs of words
        ScoredPair("run", "nothing", f"It is said: {LONG[10:]}!", 0.0),
        ScoredPair("whole", "one two three four", "nothing", 0.0),
        ScoredPair("short", "one two", "too short to tell", 0.0),
        *(ScoredPair(str(i), f"text {i}", "nothing like it", 0.0) for i in range(1_200)),
    ]
    folder(tmp_path / "in", [{"train": rows[:2]}, {"train": rows[3:], "validation": [rows[2]]}])
    graded, other = tmp_path / "graded-pairs.tsv", tmp_path / "other.txt"
    graded.write_text(f"sentence1\tsentence2\tscore\n{LONG}\tOne, two three FOUR!\t0.5\none two\t{LONG}\t1\n")
    other.write_text("a sentence that stands nowhere else in the world\n")
    against = [str(graded), str(other)]
    page = page_of(tmp_path / "in", tmp_path / "out", against=against, sample=1, examples=2)
    text = text_of(page)
    sentence = "3 of 1,204 rows contain a text of graded-pairs.tsv, or 8 consecutive words of a text"
    assert f"{sentence}." in text
    assert "0 of 1,204 rows contain a text of other.txt, or 8 consecutive words of a text." in text
    assert "graded-pairs.tsv2 of 1,204 (0.2 %)2 of 1,204 (0.2 %)" in text
    assert "other.txt0 of 1,204 (0.0 %)0 of 1,204 (0.0 %)" in text
    shown_rows = text[text.index("The first rows that share text with graded-pairs.tsv:") :]
    assert "It is said: " in shown_rows
    assert "share text with other.txt" not in text
    assert warnings_in(tmp_path / "out") == [f"{sentence}; figures measured on this data may be too good"]


def test_evaluation_data_of_one_name_are_told_apart(tmp_path):
    folder(tmp_path / "in", SHARDS)
    against = [tmp_path / name / "eval.txt" for name in ("a", "b")]
    for path in against:
        path.parent.mkdir()
        path.write_text("one two three four\n")
    page = page_of(tmp_path / "in", tmp_path / "out", against=[str(path) for path in against])
    for path in against:
        assert f"1 of 4 rows contain a text of {shown_text(str(path), 100)}, or" in text_of(page)


def test_near_copies_and_alike_labels_are_warned_of(tmp_path):
    rows = [ScoredPair(str(i), f"text {i}", f"Text {i}!", i % 2 / 1) for i in range(60)]
    folder(tmp_path / "in", [{"train": rows}])
    page_of(tmp_path / "in", tmp_path / "out")
    assert warnings_in(tmp_path / "out") == [
        "100.0 % of the pairs are near-copies",
        "pairs labelled 0 and 1 hardly differ in their share of words in common: if one pair of each label is "
        "drawn, the one labelled 1 is more similar in 50 % of cases",
    ]


def test_rows_of_one_label_and_openings_are_warned_of(tmp_path):
    rows = [
        LabelledText(str(i), f"This is a {word}", "good" if i else "bad")
        for i, word in enumerate(["day", "dog"] * 40)
    ]
    folder(tmp_path / "in", [{"train": rows}], LABELLED_TEXT)
    page = page_of(tmp_path / "in", tmp_path / "out")
    assert warnings_in(tmp_path / "out") == [
        "the label bad has only 1 row; the label good has 79",
        "100.0 % of the texts in text begin with “this is a”",
    ]
    assert "fewer than two labels have at least 20 rows" in text_of(page)


def test_pairs_are_compared_by_an_encoder_too(tmp_path, tiny_bert):
    rows = [ScoredPair(str(i), "a dog", "a dog" if i % 2 else "the cat runs", i % 2 / 1) for i in range(60)]
    folder(tmp_path / "in", [{"train": rows}])
    text = text_of(page_of(tmp_path / "in", tmp_path / "out", encoder=str(tiny_bert), device="cpu"))
    assert "cosine" in text
    assert "score 1, cosine 1.00" in text


def test_mined_pairs_are_ranked(tmp_path):
    rows = [MinedPair(str(i), f"question {i}", f"answer {i}", 1.0, i / 7) for i in range(30)]
    folder(tmp_path / "in", [{"train": rows}], MINED_PAIR)
    text = text_of(page_of(tmp_path / "in", tmp_path / "out", examples=1))
    assert "Rows with the highest score: score 4.143" in text
    assert "Rows with the lowest score: score 0.000" in text


def test_few_mined_pairs_are_ranked_and_each_is_shown_once(tmp_path):
    rows = [MinedPair(str(i), f"question {i}", f"answer {i}", 1.0, i / 7) for i in range(3)]
    folder(tmp_path / "in", [{"train": rows}], MINED_PAIR)
    text = text_of(page_of(tmp_path / "in", tmp_path / "out", examples=2))
    assert "The rows have scores in place of labels." in text
    assert "Rows with each label" not in text
    assert [text.count(f"score {score}") for score in ("0.286", "0.143", "0.000")] == [1, 1, 1]


@pytest.mark.parametrize(
    ("step", "settings"),
    [("mine", {}), ("filter", {"judge": "margin"}), ("filter", {"judge": "margin", "rank_by": []})],
)
def test_pairs_that_were_ranked_by_their_margin_are_shown_in_this_order(tmp_path, step, settings):
    rows = [MinedPair(str(i), f"question {i}", f"answer {i}", 2 - i / 30, i / 30) for i in range(30)]
    write_folder(tmp_path / "in", {"train": to_table(rows, MINED_PAIR)}, step=step, settings=settings)
    text = text_of(page_of(tmp_path / "in", tmp_path / "out", examples=1))
    assert "Rows with the highest margin: margin 2.000" in text
    assert "Rows with the lowest margin: margin 1.033" in text


def test_pairs_that_other_columns_ranked_are_shown_by_their_score(tmp_path):
    rows = [MinedPair(str(i), f"question {i}", f"answer {i}", 2 - i / 30, i / 30) for i in range(30)]
    given = {"judge": "margin", "rank_by": ["fluency"]}
    write_folder(tmp_path / "in", {"train": to_table(rows, MINED_PAIR)}, step="filter", settings=given)
    text = text_of(page_of(tmp_path / "in", tmp_path / "out", examples=1))
    assert "Rows with the highest score: score 0.967" in text


def hostile_folder(path, labels=HOSTILE):
    """Each hostile text once, with labels that take turns."""
    settings = {"task": {"name": HOSTILE[0], "labels": [{"name": HOSTILE[1], "instruction": HOSTILE[2]}]}}
    texts = [text for text in HOSTILE if text != "\ud800 alone"]
    labels = [label for label in labels if label in texts]
    rows = [LabelledText(str(i), text, labels[-1 - i % len(labels)]) for i, text in enumerate(texts)]
    rejects = [Reject.of("1", texts[0], texts[1], {texts[2]: texts[3]}), Reject("2", "f", "r", "<b>no JSON")]
    tables, rejected = {"train": to_table(rows, LABELLED_TEXT)}, to_table(rejects, REJECT)
    return write_folder(path, tables, settings=settings, rejects=rejected)


def test_hostile_texts_labels_reasons_and_settings(tmp_path):
    hostile_folder(tmp_path / "in")
    page = page_of(tmp_path / "in", tmp_path / "out")
    reader = read(page)
    assert reader.tags <= ALLOWED
    assert not {name for name in reader.names if name.startswith("on")}
    whole = "".join(reader.text)
    assert "<script>alert(1)</script>" in whole
    assert "<b>no JSON" in whole
    assert "{{ 7 * 7 }}" in whole
    assert len(page) < 200_000


def test_a_reject_of_megabytes_is_shown_with_the_length_that_it_had(tmp_path):
    row = LabelledText("1", "some text", "a")
    rejects = [Reject.of("2", "too long", "more tokens than the model reads", {"text": "word " * 500_000})]
    table = to_table([row], LABELLED_TEXT)
    write_folder(tmp_path / "in", {"train": table}, rejects=to_table(rejects, REJECT))
    assert "… (2,500,000 characters)" in page_of(tmp_path / "in", tmp_path / "out")


def test_an_empty_data_set(tmp_path):
    folder(tmp_path / "in", [{"train": []}])
    page_of(tmp_path / "in", tmp_path / "out")
    assert warnings_in(tmp_path / "out") == ["the data set has no rows"]


def test_a_model_of_several_learning_rates_shows_the_curve_of_each(tmp_path):
    curves = {1e-5: [30.0, 35.0], 3e-5: [30.0, 40.5]}
    rates = [
        {
            "learning_rate": rate,
            "validation": [{"step": step, "F1": value} for step, value in enumerate(curve)],
        }
        for rate, curve in curves.items()
    ]
    record = {"step": "train-reader", "steps": 1, "validation": rates[1]["validation"], "rates": rates}
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "training.json").write_text(json.dumps(record))
    page = page_of(tmp_path / "model", tmp_path / "out")
    assert page.count("<polyline") == 2
    text = text_of(page)
    assert "learning rate 1e-05" in text
    assert "learning rate 3e-05" in text
    assert "Measured on the validation data: F1." in text


def test_the_time_of_a_run_that_was_started_over_is_not_counted(tmp_path):
    path = tmp_path / "data"
    folder(path, SHARDS)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["created"] = "2026-01-02T00:00:00+00:00"
    (path / "manifest.json").write_text(json.dumps(manifest))
    moments = [
        *[("01T10:00:00.000", "start"), ("01T10:05:00.000", "shard")],  # before --fresh
        *[("02T00:00:00.500", "start"), ("02T00:00:30.500", "shard"), ("02T00:00:40.500", "shard")],
        *[("02T02:00:00.000", "start"), ("02T02:00:05.000", "shard")],  # continued after a stop
    ]
    events = [{"time": f"2026-01-{moment}+00:00", "event": event} for moment, event in moments]
    (path / "log.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    assert seconds(DatasetFolder.open(path)) == 30 + 10 + 5


def test_a_model_and_an_evaluation(tmp_path):
    model, evaluation = tmp_path / "model", tmp_path / "evaluation"
    model.mkdir()
    (model / "training.json").write_text(
        json.dumps(
            {
                "step": "train-reader",
                "settings": {"batch_size": 3},
                "seconds": 61.0,
                "steps": 9,
                "best_step": 6,
                "validation": [{"step": 0, "F1": None}, {"step": 6, "F1": 40.5}, {"step": 9, "F1": 39.0}],
            }
        )
    )
    text = text_of(page_of(model, tmp_path / "one"))
    assert "time taken1 min 01 s" in text
    assert "9; step 6 was kept" in text
    assert "Measured on the validation data: F1." in text
    assert warnings_in(tmp_path / "one") == ["the training had only 9 steps, too few to learn much"]
    evaluation.mkdir()
    (evaluation / "results.json").write_text(
        json.dumps(
            {
                "f1": 40.0,
                "f1_ci": [38.0, 42.5],
                "layers": {"1": 3},
                "splits": {"13": 41.0},
                "splits_ci": {"13": [37.0, 44.5]},
                "count": 7,
                "negatives": "sampled",
                "by_program": True,
                "graded": {"all": 50.0, "pairs": 99},
                "large": {"all": 50.0, "pairs": 100},
                "about": {"step": "evaluate qa"},
            }
        )
    )
    text = text_of(page_of(evaluation, tmp_path / "two"))
    assert "f140.0038.00 to 42.50" in text
    assert "layers · 13" in text
    assert "splits · 1341.0037.00 to 44.50" in text
    assert "negativessampled" in text
    assert warnings_in(tmp_path / "two") == [
        "measured on only 7 rows, too few for reliable figures",
        "graded: measured on only 99 pairs, too few for reliable figures",
        "measured on texts that a program wrote",
    ]


def test_a_run_shows_each_of_its_steps(tmp_path):
    run = tmp_path / "run"
    folder(run / "pairs", SHARDS)
    (run / "run.json").write_text(
        json.dumps(
            {"recipe": "mine", "planned": ["pairs", "later"], "spent": {"pairs": 5.0}, "steps": {"pairs": {}}}
        )
    )
    (run / "results.json").write_text(json.dumps({"f1": 7.25, "seconds": 1}))
    page = page_of(run, tmp_path / "out")
    assert 'href="#part-2"' in page
    text = text_of(page)
    assert "f17.25" in text
    assert "1 finished step, 5 s in all." in text
    assert "4 rows: 3 in train, 1 in validation." in text
    assert warnings_in(tmp_path / "out") == ["the step later is not finished"]


def test_it_is_made_anew_with_other_settings(tmp_path):
    folder(tmp_path / "in", SHARDS)
    first = page_of(tmp_path / "in", tmp_path / "out", examples=0)
    second = page_of(tmp_path / "in", tmp_path / "out", examples=3)
    assert len(second) > len(first)
    assert page_of(tmp_path / "in", tmp_path / "out", examples=3) == second


def test_faults_are_named(tmp_path):
    (tmp_path / "empty").mkdir()
    for name, expected in (
        ("nowhere", "there is no such folder; give a folder that a step or a recipe wrote"),
        ("empty", "the folder has none of the records run.json, manifest.json, training.json, results.json"),
    ):
        with pytest.raises(FolderError, match=expected):
            page_of(tmp_path / name, tmp_path / "out")
    folder(tmp_path / "in", SHARDS)
    with pytest.raises(FolderError, match="is what --data reads"):
        page_of(tmp_path / "in", tmp_path / "in")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "training.json").write_text("{")
    with pytest.raises(FolderError, match="training.json cannot be read"):
        page_of(tmp_path / "broken", tmp_path / "out")


def test_a_comparison_has_a_page_of_its_own(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "comparison.html").write_text("<p>")
    with pytest.raises(FolderError, match=r"the folder of a comparison: read its page, comparison.html"):
        page_of(tmp_path / "in", tmp_path / "out")


def test_what_is_left_of_a_comparison_is_named(tmp_path):
    for seed in (1, 2, 3):
        (tmp_path / f"seed-{seed}" / "run").mkdir(parents=True)
        (tmp_path / f"seed-{seed}" / "recipe.yaml").write_text("name: c\n")
    (tmp_path / "seed-1" / "run" / "results.json").write_text("{}")
    message = r"comparison that is not finished \(left to do: seed-2, seed-3\); .* such as .*seed-1.run$"
    with pytest.raises(FolderError, match=message):
        page_of(tmp_path, tmp_path / "out")


def test_the_figures_of_every_evaluation_are_explained():
    evaluations = {command_of(name) for name in STEPS if name.startswith("evaluate-")}
    wrong = MEANINGS.keys() ^ evaluations
    assert not wrong, (
        f"MEANINGS of tools/report/models.py lacks, or need not have: {', '.join(sorted(wrong))}"
    )


def test_the_command_says_where_the_page_is(tmp_path, capfd):
    folder(tmp_path / "in", SHARDS)
    with pytest.raises(SystemExit) as stop:
        main(["report", "--data", str(tmp_path / "in"), "--out", str(tmp_path / "out")])
    assert stop.value.code == 0
    assert f"wrote {tmp_path / 'out' / 'report.html'}" in capfd.readouterr().err


def test_a_run_without_a_terminal_needs_no_progress(tmp_path):
    folder(tmp_path / "in", SHARDS)
    assert report(ReportSettings(data=str(tmp_path / "in")), Run(tmp_path / "out", Progress())).exists()


def test_a_recipe_may_end_with_a_page(tmp_path):
    folder(tmp_path / "in", SHARDS)
    path = tmp_path / "recipe.yaml"
    path.write_text("name: one\nsteps:\n  - {name: page, step: report, settings: {data: ./in}}\n")
    run_recipe(load_recipe(path), tmp_path / "run", Silent())
    assert (tmp_path / "run" / "page" / "report.html").exists()
    assert status_lines(tmp_path / "run")[1:] == ["page: report, finished"]
    run_recipe(load_recipe(path), tmp_path / "run", Silent())


def test_rows_with_holes(tmp_path):
    rows = [ScoredPair(str(i), f"one {i}", f"other {i}", (None, 0.0, 1.0)[i % 3]) for i in range(90)]
    folder(tmp_path / "few", [{"train": rows}])
    assert "–" in text_of(page_of(tmp_path / "few", tmp_path / "a"))
    rows = [
        ScoredPair(str(i), None if i == 3 else f"one {i}", "", None if i == 5 else i / 50) for i in range(50)
    ]
    folder(tmp_path / "many", [{"train": rows}])
    assert "Rows with the lowest score" in text_of(page_of(tmp_path / "many", tmp_path / "b"))


@pytest.mark.parametrize("highest", [0.3, 3e-5, 1.0000000000000002, 1e9])
def test_numbers_of_any_width(tmp_path, highest):
    low = 1.0 if 1 < highest < 2 else 0.0
    rows = [
        MinedPair(str(i), f"q {i}", f"a {i}", low + (highest - low) * i / 29, low + (highest - low) * i / 29)
        for i in range(30)
    ]
    folder(tmp_path / "in", [{"train": rows}], MINED_PAIR)
    assert "Number of rows by the value of margin." in text_of(page_of(tmp_path / "in", tmp_path / "out"))


def test_texts_without_words_have_no_classifier(tmp_path):
    rows = [LabelledText(str(i), "👍😡"[i % 2], "ab"[i % 2]) for i in range(60)]
    folder(tmp_path / "in", [{"train": rows}], LABELLED_TEXT)
    assert "fewer than two labels have at least 20 rows" in text_of(
        page_of(tmp_path / "in", tmp_path / "out")
    )


def test_pairs_that_disagree_most_come_first_whatever_the_order(tmp_path):
    rows = [
        ScoredPair(f"{score}-{i}", f"a b c d {i}", f"a b c d {i}" if score else "x y", float(score))
        for score in (0, 1)
        for i in range(300)
    ]
    rows[450] = ScoredPair("odd", "nothing at all", "in common", 1.0)
    folder(tmp_path / "in", [{"train": rows}])
    text = text_of(page_of(tmp_path / "in", tmp_path / "out", examples=1))
    at = text.index("disagree most:")
    assert "nothing at all" in text[at : at + 150]


def test_a_run_that_holds_a_page_and_a_damaged_step(tmp_path):
    run = tmp_path / "run"
    for name in ("pairs", "gone", "page"):
        folder(run / name, SHARDS)
    report(ReportSettings(data=str(run / "pairs")), Run(run / "own", Silent()))
    (run / "gone" / "data" / "train-00000.parquet").unlink()
    record = {
        "recipe": "r",
        "planned": ["pairs", "own", "gone"],
        "spent": {},
        "steps": {key: {} for key in ("pairs", "own", "gone")},
    }
    (run / "run.json").write_text(json.dumps(record))
    page_of(run, tmp_path / "out")
    (warning,) = warnings_in(tmp_path / "out")
    assert warning.startswith("gone: ")
    assert "train-00000.parquet" in warning


def test_what_is_not_finished_is_said_to_be_so(tmp_path):
    for name, content in (("training", {"complete": False}), ("results", {"about": {"complete": False}})):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.json").write_text(json.dumps(content))
        page_of(tmp_path / name, tmp_path / f"page-{name}")
        (warning,) = warnings_in(tmp_path / f"page-{name}")
        assert warning.endswith("is not finished")


def test_a_kill_before_the_record_is_whole_does_not_block_the_folder(tmp_path, monkeypatch):
    folder(tmp_path / "in", SHARDS)

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("pairsmith.tools.report.route.render_page", killed)
    with pytest.raises(KeyboardInterrupt):
        page_of(tmp_path / "in", tmp_path / "out")
    monkeypatch.undo()
    assert page_of(tmp_path / "in", tmp_path / "out")


def test_a_page_of_very_long_rows_stays_small(tmp_path):
    rows = [LabelledText(str(i), "\u202e\u2066 wort " * 2_500, f"label {i % 10}") for i in range(60)]
    folder(tmp_path / "in", [{"train": rows}], LABELLED_TEXT)
    assert len(page_of(tmp_path / "in", tmp_path / "out", examples=5).encode()) < 200_000


def test_remnants_of_markup_are_warned_of(tmp_path):
    texts = ["It is 3 &nbsp;o'clock", "<p>It rains", "if a < b and c > d", "R&D; no <3", "He said <hello>"]
    for name, count in (("in", 5), ("clean", 3)):
        rows = [LabelledText(str(i), text, "good") for i, text in enumerate(texts[-count:])]
        folder(tmp_path / name, [{"train": rows}], LABELLED_TEXT)
        page_of(tmp_path / name, tmp_path / f"page-{name}")
    assert warnings_in(tmp_path / "page-in") == ["40.0 % of text hold remnants of HTML, such as “&nbsp;”"]
    assert warnings_in(tmp_path / "page-clean") == []


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        (1, "The checks found nothing wrong, but 1 row proves little: make at least 100"),
        (99, "The checks found nothing wrong, but 99 rows prove little: make at least 100"),
        (100, "The checks found no reason not to train on these rows."),
    ],
)
def test_few_rows_get_no_green_verdict(tmp_path, rows, verdict):
    words = ("dog", "cat", "horse", "bird", "fish")
    pairs = [ScoredPair(str(n), f"{words[n % 5]} {n}", f"{n * 7} walks", 0.0) for n in range(rows)]
    folder(tmp_path / "in", [{"train": pairs}])
    page = page_of(tmp_path / "in", tmp_path / "out")
    assert warnings_in(tmp_path / "out") == []
    assert verdict in text_of(page)
    assert ('class="verdict warned"' in page) == (rows < 100)
