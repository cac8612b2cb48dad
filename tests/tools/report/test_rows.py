"""What is counted in rows."""

import json

import numpy as np
import pyarrow as pa
import pytest
from tests.folders import write_folder

from pairsmith.core.errors import InputError
from pairsmith.data.schemas import (
    LABELLED_TEXT,
    MINED_PAIR,
    NEGATIVES,
    SCORED_PAIR,
    LabelledText,
    MinedPair,
    ScoredPair,
    label_column,
    to_table,
)
from pairsmith.tools.report.giveaways import giveaways
from pairsmith.tools.report.overlap import Overlap, ReferenceTexts, count_overlap, reference_texts
from pairsmith.tools.report.rows import (
    OTHERS,
    digest,
    shown_label,
    summarize,
    with_sample,
    words,
)
from pairsmith.tools.report.similarity import classifier_accuracy, cosines, shared_words, similar_labels


def folder(path, shards, schema=SCORED_PAIR):
    """A dataset folder; each shard maps splits to rows."""
    tables = [{split: to_table(rows, schema) for split, rows in splits.items()} for splits in shards]
    return write_folder(path, *tables)


SHARDS = [
    {
        "train": [
            ScoredPair("1", "a dog runs", "a cat", 0.0),
            ScoredPair("2", "a dog runs", "the dog runs", 1.0),
        ]
    },
    {
        "train": [ScoredPair("3", "one two three four", "one two", 0.5)],
        "validation": [ScoredPair("4", "", "x", 1.0)],
    },
]


def test_all_rows_are_counted(tmp_path):
    dataset = folder(tmp_path / "in", SHARDS)
    counts = summarize(dataset, sample=10, seed=0)
    assert counts.columns == ["sentence1", "sentence2"]
    assert counts.label == "score"
    assert counts.splits == {"train": 3, "validation": 1}
    assert counts.labels == {"train": {"0": 1, "1": 1, "0.5": 1}, "validation": {"1": 1}}
    assert {name: lengths.tolist() for name, lengths in counts.lengths.items()} == {
        "sentence1": [3, 3, 4, 0],
        "sentence2": [2, 3, 2, 1],
    }
    assert counts.distinct == {"sentence1": 3, "sentence2": 4}
    whole = frozenset({digest(words("One, two three FOUR!"))})
    references = {
        "eval": ReferenceTexts(whole, frozenset()),
        "other": ReferenceTexts(frozenset(), frozenset()),
    }
    overlaps = count_overlap(dataset, counts.columns, references, 0)
    assert overlaps == {"eval": Overlap(whole_texts=1, rows=1), "other": Overlap()}
    assert [row["id"] for row in counts.rows] == ["1", "2", "3", "4"]


def test_the_sample_is_drawn_evenly_and_follows_the_seed(tmp_path):
    rows = [ScoredPair(str(i), f"text {i}", "b", 0.0) for i in range(1000)]
    dataset = folder(tmp_path / "in", [{"train": rows[:300]}, {"train": rows[300:]}])
    one, same, other = (summarize(dataset, sample=200, seed=seed) for seed in (1, 1, 2))
    ids = [int(row["id"]) for row in one.rows]
    assert len(set(ids)) == 200
    assert ids == sorted(ids)
    assert [row["id"] for row in same.rows] == [row["id"] for row in one.rows]
    assert [row["id"] for row in other.rows] != [row["id"] for row in one.rows]
    assert np.mean(ids) == pytest.approx(500, abs=80)


def test_scores_of_many_values_are_numbers_and_no_labels(tmp_path):
    rows = [ScoredPair(str(i), "a", "b", i / 100) for i in range(100)]
    counts = summarize(folder(tmp_path / "in", [{"train": rows}]), sample=5, seed=0)
    assert counts.label is None
    assert counts.labels == {}
    assert counts.numbers["score"].tolist() == [i / 100 for i in range(100)]


def test_measured_scores_are_no_labels_however_few(tmp_path):
    rows = [MinedPair(str(i), f"a {i}", "b", 1.0, i / 7) for i in range(3)]
    counts = summarize(folder(tmp_path / "in", [{"train": rows}], MINED_PAIR), sample=5, seed=0)
    assert (counts.label, counts.labels) == (None, {})
    assert counts.numbers["score"].tolist() == [0, 1 / 7, 2 / 7]
    assert label_column(NEGATIVES) is None
    assert label_column(pa.schema([*MINED_PAIR, ("label", pa.string())])) == "label"
    assert label_column(pa.schema([*MINED_PAIR, ("label", pa.list_(pa.string()))])) is None


def test_of_many_labels_the_commonest_are_told(tmp_path):
    rows = [LabelledText(f"{i}-{j}", "t", f"label {i:02}") for i in range(30) for j in range(40 - i)]
    dataset = folder(tmp_path / "in", [{"train": rows[:500]}, {"test": rows[500:]}], LABELLED_TEXT)
    counts = summarize(dataset, sample=len(rows), seed=0)
    assert counts.label == "label"
    every = counts.labels["train"] + counts.labels["test"]
    assert len(every) == 20
    assert [every[f"label {i:02}"] for i in (0, 18, 19)] == [40, 22, 0]
    assert every[OTHERS] == sum(40 - i for i in range(19, 30))
    assert {counts.label_of(row) for row in counts.rows} == set(every)


def test_a_text_in_the_place_of_a_label_is_not_counted_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr("pairsmith.tools.report.rows._MOST_COUNTED", 30)
    rows = [LabelledText(str(i), "t", f"a text {i}") for i in range(100)]
    counts = summarize(folder(tmp_path / "in", [{"train": rows}], LABELLED_TEXT), sample=5, seed=0)
    assert len(counts.labels["train"]) == 20
    assert counts.labels["train"][OTHERS] == 81


def test_rows_are_read_some_at_a_time_whatever_the_shards(tmp_path):
    rows = [LabelledText(str(i), f"t {i}", "a") for i in range(11_000)]
    dataset = folder(tmp_path / "in", [{"train": rows}], LABELLED_TEXT)
    sizes = [table.num_rows for _, table, _ in with_sample(dataset, 100, np.random.default_rng(0))]
    assert sizes == [5_000, 5_000, 1_000]
    drawn = [row for _, _, own in with_sample(dataset, 100, np.random.default_rng(0)) for row in own]
    assert len({row["id"] for row in drawn}) == 100


def test_labels_are_written_without_needless_digits():
    assert [shown_label(label) for label in (0.5, 1.0, "news", 3, True)] == ["0.5", "1", "news", "3", "True"]


def test_shared_words_by_hand():
    similarity = shared_words([("A dog runs.", "the dog RUNS"), ("x", "x!"), ("a", "b"), ("", "")])
    assert similarity.values.tolist() == [0.5, 1.0, 0.0, 1.0]


def test_labels_that_look_alike_are_named():
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.normal(0, 1, 300), rng.normal(0, 1, 300), rng.normal(5, 1, 300)])
    labels = ["0"] * 300 + ["0.5"] * 300 + ["1"] * 300
    ((low, high, area),) = similar_labels(values, labels)
    assert (low, high) == ("0", "0.5")
    assert area == pytest.approx(0.5, abs=0.06)


def test_a_smoothed_label_is_compared_with_the_next_that_claims_something_else():
    labels = ["0"] * 30 + ["0.1"] * 30 + ["0.9"] * 30
    assert similar_labels(np.repeat([0.0, 0.0, 1.0], 30), labels) == []
    assert [pair[:2] for pair in similar_labels(np.zeros(90), labels)] == [("0", "0.9"), ("0.1", "0.9")]


def test_of_few_rows_nothing_is_said():
    assert similar_labels(np.zeros(38), ["0"] * 19 + ["1"] * 19) == []
    assert classifier_accuracy(["a"] * 30, ["x"] * 30, 0) is None


def test_words_that_give_a_label_away_are_counted_once_for_a_text():
    own = ["I like it, I do"] * 16 + ["it rains"] * 4
    others = ["It rains."] * 39 + ["I rest"]
    clues = giveaways(own + others, ["own"] * 20 + ["others"] * 40)
    assert [(clue.word, clue.count, clue.of, clue.elsewhere, clue.of_others) for clue in clues] == [
        ("rains", 39, 40, 4, 20),
        ("do", 16, 20, 0, 40),
        ("like", 16, 20, 0, 40),
        ("i", 16, 20, 1, 40),
    ]
    assert [clue.suffices for clue in clues] == [False, True, True, True]
    assert giveaways(["a"] * 19 + ["b"] * 40, ["x"] * 19 + ["y"] * 40) == []


def test_words_of_other_scripts():
    assert words("हिन्दी भाषा।") == "हिन्दी भाषा"
    assert words("Mu\u0308ller’s") == words("Müller's") == "müller s"
    assert words("東京 Tower") == "東 京 tower"
    own, others = ["とても好きです"] * 20, ["雨です"] * 20
    clues = giveaways(own + others, ["own"] * 20 + ["others"] * 20)
    assert {clue.word for clue in clues if clue.label == "others"} == {"雨で"}
    texts = [f"{'好き' if i % 2 else '嫌い'}な映画{i}" for i in range(100)]
    assert classifier_accuracy(texts, ["good" if i % 2 else "bad" for i in range(100)], 0) == (1.0, 0.5)


def test_a_classifier_finds_labels_that_differ_and_none_that_do_not():
    rng = np.random.default_rng(0)
    names = ["good", "bad"] * 100
    different = [f"{name} film number {i}" for i, name in enumerate(names)]
    alike = [f"film number {rng.integers(9)}" for _ in names]
    right, commonest = classifier_accuracy(different, names, 0)
    assert (right, commonest) == (1.0, 0.5)
    assert classifier_accuracy(alike, names, 0)[0] < 0.65


def test_cosines_of_blank_texts_are_unknown(tiny_bert):
    from pairsmith.models.sentence_encoder import load_sentence_encoder

    encoder = load_sentence_encoder(str(tiny_bert), device="cpu")
    similarities = cosines([("a dog", "a dog"), ("a dog", " "), ("dogs run", "a cat")], encoder).values
    assert similarities[0] == pytest.approx(1, abs=1e-5)
    assert np.isnan(similarities[1])
    assert -1 <= similarities[2] <= 1
    assert np.isnan(cosines([("", "")], encoder).values).all()


def test_texts_of_evaluation_data_are_found_whole_and_in_part(tmp_path):
    source = tmp_path / "eval.jsonl"
    text = "the quick brown fox jumps over the lazy dog today"
    source.write_text(json.dumps({"id": "7", "question": text, "label": "x"}) + "\n")
    whole, grams = reference_texts(str(source))
    assert whole == {digest(text)}
    assert len(grams) == 3  # ten words
    texts = [
        "It is said that QUICK brown fox jumps, over the lazy dog!",
        "the quick brown fox jumps over a lazy dog",
        None,
        text.upper(),
    ]
    rows = [LabelledText(str(i), content, "x") for i, content in enumerate(texts)]
    dataset = folder(tmp_path / "in", [{"train": rows}], LABELLED_TEXT)
    overlap = count_overlap(dataset, ["text"], {"eval": ReferenceTexts(whole, grams)}, 1)["eval"]
    assert (overlap.whole_texts, overlap.ngrams, overlap.rows) == (1, 2, 2)
    assert [row["id"] for row in overlap.first] == ["0"]


def test_a_row_that_shares_text_counts_once_whatever_its_texts_and_the_shards(tmp_path):
    source = tmp_path / "eval.txt"
    source.write_text("one two three four\na b c d e f g h i j k l\n")
    references = {"eval": reference_texts(str(source))}
    rows = [
        ScoredPair("both", "one two three four", "a b c d e f g h i j k l", 0.0),
        ScoredPair("twice", "x a b c d e f g h", "a b c d e f g h i j y", 0.0),
        ScoredPair("none", "one two three", "four", 0.0),
    ]
    shards = [{"train": rows}, {"validation": rows}]
    dataset = folder(tmp_path / "in", shards)
    overlap = count_overlap(dataset, ["sentence1", "sentence2"], references, 3)["eval"]
    assert (overlap.whole_texts, overlap.ngrams, overlap.rows) == (2, 4, 4)
    assert [row["id"] for row in overlap.first] == ["both", "twice", "both"]


def test_text_that_is_shared_behind_the_first_characters_is_found_too(tmp_path):
    source = tmp_path / "eval.txt"
    source.write_text("a b c d e f g h i j k l\n")
    rows = [LabelledText("1", "word " * 4_000 + "b c d e f g h i", "x")]
    dataset = folder(tmp_path / "in", [{"train": rows}], LABELLED_TEXT)
    overlap = count_overlap(dataset, ["text"], {"eval": reference_texts(str(source))}, 1)["eval"]
    assert (overlap.whole_texts, overlap.ngrams, overlap.rows) == (0, 1, 1)
    assert len(overlap.first[0]["text"]) == 4_000


PASSAGE = "the quick brown fox jumps over the lazy dog today"
ASKED = "who jumps over the lazy dog"
ANSWERS = [{"text": "the quick brown fox", "answer_start": 0}]


def squad_file(path):
    paragraph = {"context": PASSAGE, "qas": [{"id": "1", "question": ASKED, "answers": ANSWERS}]}
    path.write_text(json.dumps({"version": "1", "data": [{"title": "t", "paragraphs": [paragraph]}]}))


def mrqa_file(path):
    spans = [{"text": "the quick brown fox", "char_spans": [[0, 18]], "token_spans": [[0, 3]]}]
    qa = {"qid": "1", "question": ASKED, "answers": ["the quick brown fox"], "detected_answers": spans}
    rows = [{"header": {"dataset": "x"}}, {"context": PASSAGE, "qas": [qa]}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def question_rows(path):
    answers = {"text": [ANSWERS[0]["text"]], "answer_start": [0]}
    path.write_text(json.dumps({"context": PASSAGE, "question": ASKED, "answers": answers}) + "\n")


def stsb_file(path):
    path.write_text(f"main\ttest\t2016\t1\t5.0\t{PASSAGE}\t{ASKED}\n")


def mrpc_file(path):
    path.write_text(f"Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\t{PASSAGE}\t{ASKED}\n")


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("dev.json", squad_file),
        ("dev.jsonl", mrqa_file),
        ("rows.jsonl", question_rows),
        ("sts-test.csv", stsb_file),
        ("stsb/sts-test.csv", stsb_file),
        ("msr_paraphrase_test.txt", mrpc_file),
    ],
)
def test_evaluation_data_are_read_in_their_own_forms(tmp_path, name, write):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    write(path)
    whole, grams = reference_texts(str(path.parent if "/" in name else path))
    assert {digest(PASSAGE), digest(ASKED)} <= whole
    assert digest("the quick brown fox jumps over the lazy") in grams


def test_evaluation_data_without_texts_are_refused(tmp_path):
    source = tmp_path / "eval.jsonl"
    source.write_text('{"text": "too short"}\n')
    with pytest.raises(InputError, match=r"--against .*eval.jsonl: no text in it has 4 words"):
        reference_texts(str(source))


def test_labelled_texts(tmp_path):
    rows = [LabelledText(str(i), f"t {i}", "news" if i % 2 else "sport") for i in range(4)]
    counts = summarize(folder(tmp_path / "in", [{"train": rows}], LABELLED_TEXT), sample=9, seed=0)
    assert (counts.label, counts.columns) == ("label", ["text"])
    assert counts.labels == {"train": {"news": 2, "sport": 2}}


def test_scripts_without_blanks_are_taken_by_the_character(tmp_path):
    assert words("巴黎是法国的首都。") == "巴 黎 是 法 国 的 首 都"
    assert words("The 東京 tower") == "the 東 京 tower"
    source = tmp_path / "eval.jsonl"
    source.write_text(json.dumps({"text": "巴黎是法国的首都。"}) + "\n")
    whole, grams = reference_texts(str(source))
    assert (len(whole), len(grams)) == (1, 1)


def test_of_long_texts_the_beginning_is_kept(tmp_path):
    dataset = folder(tmp_path / "in", [{"train": [LabelledText("1", "word " * 4_000, "a")]}], LABELLED_TEXT)
    counts = summarize(dataset, sample=1, seed=0)
    assert len(counts.rows[0]["text"]) == 4_000
    assert counts.lengths["text"].tolist() == [4_000]
