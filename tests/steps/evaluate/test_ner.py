import itertools
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from pydantic import ValidationError
from seqeval.metrics import f1_score
from tests.planned import planned
from tests.resamples import loop_interval
from tests.tagged_sentences import SENTENCES, make_student

from pairsmith.core.errors import FolderError, InputError, ModelError, SettingsError
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.tagged import TaggedSentence, as_bio, read_tagged
from pairsmith.methods.quip import names
from pairsmith.methods.quip.tagger_options import TaggerOptions
from pairsmith.models.token_vectors import load_token_encoder
from pairsmith.runs import Run
from pairsmith.steps.evaluate import ner
from pairsmith.steps.evaluate.ner import evaluate_ner, ner_table, training_and_test_sentences
from pairsmith.steps.evaluate.transfer_settings import EvaluateNerSettings
from pairsmith.steps.training.tagger import questions_of

pytestmark = pytest.mark.slow

ALL_CORRECT = {
    "f1": 100.0,
    "f1_ci": [100.0, 100.0],
    "error": 0.0,
    "splits": {"0": 100.0, "1": 100.0},
    "splits_ci": {"0": [100.0, 100.0], "1": [100.0, 100.0]},
}


@pytest.fixture(scope="module")
def student(tiny_bert, tmp_path_factory):
    return make_student(tiny_bert, tmp_path_factory.mktemp("students"))


def write(folder, name):
    (folder / f"{name}.words").write_text("".join(" ".join(sentence.words) + "\n" for sentence in SENTENCES))
    (folder / f"{name}.ner").write_text("".join(" ".join(sentence.tags) + "\n" for sentence in SENTENCES))


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "few"
    folder.mkdir()
    for name in ("few_shot_5_0", "few_shot_5_1", "test"):
        write(folder, name)
    return str(folder)


def settings(model, data="", **rest):
    fast = {"epochs": 120, "learning_rate": 1e-2, "splits": [0, 1], "device": "cpu"}
    return EvaluateNerSettings(model=model, data=data, **(fast | rest))


def test_two_sentences_are_learned_by_heart_from_either_start(student, data):
    given, out = settings(student, data, epochs=60), Path(data) / "out"  # only files of sentences are hashed
    results = evaluate_ner(given, Run(out, Silent()))
    for start in ("random", "questions"):
        assert results[start] == ALL_CORRECT
    assert (results["count"], results["trained_on"]) == (2, 2)
    lines = [json.loads(line) for line in (out / "predictions.jsonl").read_text().splitlines()]
    for start, split in itertools.product(("random", "questions"), ("0", "1")):
        predicted = [line["predicted"][start][split] for line in lines]
        assert list(map(tuple, predicted)) == [sentence.tags for sentence in SENTENCES]
    assert evaluate_ner(given, Run(out, Silent())) == results


def test_intervals_are_those_of_test_sentences_drawn_one_by_one(student, tmp_path, capsys):
    others = [
        TaggedSentence(("Two", "men", "run", "."), ("O", "B-PER", "O", "O")),
        TaggedSentence(("A", "man", "on", "the", "beach"), ("B-PER", "I-PER", "O", "B-LOC", "I-LOC")),
        TaggedSentence(("It", "is", "cold", "."), ("O", "O", "O", "O")),
    ]
    files = [
        conll(tmp_path / f"{name}.conll", rows)
        for name, rows in (("test", [*SENTENCES, *others] * 3), ("train", SENTENCES))
    ]
    some = settings(
        student, files[0], train=files[1], shots=1, epochs=12, start=["random"], bootstrap=40, seed=7
    )
    results = evaluate_ner(some, Run(tmp_path / "out", Progress()))
    figures, gold, by_split = results["random"], [], {"0": [], "1": []}
    for line in (tmp_path / "out" / "predictions.jsonl").read_text().splitlines():
        row = json.loads(line)
        gold.append(row["tags"])
        for split, tags in by_split.items():
            tags.append(row["predicted"]["random"][split])

    def f1(rows, splits):
        chosen = [gold[row] for row in rows]
        return np.mean(
            [f1_score(chosen, [by_split[n][row] for row in rows], zero_division=0) for n in splits]
        )

    for split in by_split:
        limits = loop_interval(15, lambda rows, split=split: f1(rows, [split]), draws=40, seed=7)
        assert figures["splits_ci"][split] == pytest.approx(limits, abs=1e-4)
    assert figures["f1_ci"] == pytest.approx(
        loop_interval(15, lambda rows: f1(rows, by_split), draws=40, seed=7), abs=1e-4
    )
    assert figures["f1_ci"][0] < figures["f1"] < figures["f1_ci"][1]
    shown = capsys.readouterr().out
    low, high = figures["f1_ci"]
    assert f"{figures['f1']:.2f} ± {figures['error']:.2f}  [{low:.2f}, {high:.2f}]" in shown
    assert "±: standard error over the splits; brackets: 95 % interval over the sentences" in shown


def test_defaults_are_those_of_the_paper():
    defaults = EvaluateNerSettings(model="m", data="d")
    assert (defaults.shots, defaults.splits) == (5, [0, 1, 2, 3, 4])
    assert (defaults.epochs, defaults.learning_rate, defaults.batch_size) == (200, 2e-5, 8)


def test_one_split_has_an_interval_and_no_error_and_without_resamples_there_is_none(student, data, tmp_path):
    one = evaluate_ner(
        settings(student, data, splits=[1], start=["random"], epochs=1), Run(tmp_path / "one", Silent())
    )
    assert one["random"]["error"] is None
    assert one["random"]["f1_ci"] == one["random"]["splits_ci"]["1"]
    assert ner_table(one).endswith(
        "\nbrackets: 95 % interval over the sentences\n2 of the 2 sentences are also training sentences of a split: F1 is better than it would be on other sentences"
    )
    none = evaluate_ner(
        settings(student, data, start=["random"], epochs=1, bootstrap=0), Run(tmp_path / "none", Silent())
    )
    assert none["random"]["f1_ci"] is None
    assert none["random"]["splits_ci"] == {"0": None, "1": None}
    assert "\n±: standard error over the splits\n" in ner_table(none)
    assert "[" not in ner_table(none)


def test_a_split_that_is_given_twice_is_refused():
    with pytest.raises(ValidationError, match="split 4 is given twice, and would count twice in the mean"):
        settings("model", splits=[4, 4])


def test_corrected_tags_are_another_evaluation(student, data, tmp_path):
    some = settings(student, data, epochs=1)
    evaluate_ner(some, Run(tmp_path / "out", Silent()))
    tags = Path(data, "test.ner")
    tags.write_text(tags.read_text().replace("B-PER", "B-LOC"))
    with pytest.raises(FolderError, match="test, tags"):
        evaluate_ner(some, Run(tmp_path / "out", Silent()))


def test_the_progress_counts_what_is_learned_and_what_is_tagged(student, data, tmp_path, capsys):
    evaluate_ner(settings(student, data, epochs=3), Run(tmp_path / "out", Progress()))
    whole = 2 * 2 * (3 * 2 + 2)  # starts, splits, epochs of two sentences and two that are tagged
    assert f"learn and tag: {whole}/{whole} sentences · 100 %" in capsys.readouterr().err


def test_each_split_has_a_seed_of_its_own_and_both_tags_of_a_type(student, data, tmp_path, monkeypatch):
    seen = []

    def tag(encoder, train, test, questions, options, *, seed, advance):
        seen.append(seed)
        return [list(sentence.tags) for sentence in test]

    monkeypatch.setattr(ner, "tag_after_training", tag)
    evaluate_ner(settings(student, data, start=["random"]), Run(tmp_path / "out", Silent()))
    assert seen == [0, 1]
    monkeypatch.undo()
    taggers = []
    begun = [TaggedSentence(("Ann", "ran"), ("B-PER", "O"))]
    for seed in (0, 1):
        encoder = load_token_encoder(student, device="cpu")
        taggers.append(names.train_on_sentences(encoder, begun, None, TaggerOptions(epochs=1), seed=seed))
    assert [tagger.tags for tagger in taggers] == [["O", "B-PER", "I-PER"]] * 2
    assert not torch.equal(taggers[0].rows, taggers[1].rows)


def test_all_sentences_may_be_learned_from(student, tmp_path):
    files = [conll(tmp_path / f"{name}.conll", SENTENCES * 3) for name in ("test", "train")]
    some = settings(student, files[0], train=files[1], whole=True)
    few, test = training_and_test_sentences(some)
    assert [len(split) for split in few] == [len(test)] * 2 == [6, 6]
    with pytest.raises(ValidationError, match="shots has no effect with whole"):
        settings(student, files[0], train=files[1], whole=True, shots=2)
    with pytest.raises(
        InputError, match="--train .*train.conll: there are 3 sentences with the type LOC .* 4 are"
    ):
        training_and_test_sentences(settings(student, files[0], train=files[1], shots=4))
    with pytest.raises(ValidationError, match="whole has no effect without train"):
        settings(student, files[0], whole=True)


def test_types_without_a_question_are_told_and_can_get_one(student, data, tmp_path):
    some = [TaggedSentence(("Jazz",), ("B-genre",))]
    with pytest.raises(
        SettingsError, match="no question for the type 'genre'; known: .*; write one in --questions FILE"
    ):
        questions_of(some, None)
    path = tmp_path / "questions.yaml"
    path.write_text("genre: What is a genre ?\nperson-actor: Who is an actor ?\n")
    actor = [TaggedSentence(("Gabin",), ("B-Person-Actor",))]
    assert questions_of(actor, str(path))["Person-Actor"] == "Who is an actor ?"
    assert questions_of(some, str(path))["genre"] == "What is a genre ?"
    path.write_text("genre: [1]\n")
    with pytest.raises(SettingsError, match="as text"):
        questions_of(some, str(path))
    path.write_text("genre: What is a genre ?\ngenre: Which genre ?\n")
    with pytest.raises(SettingsError, match=r"is given twice \(lines 1 and 2\)"):
        questions_of(some, str(path))


def test_a_model_without_heads_begins_at_random_only(tiny_bert, data, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(ner, "tag_after_training", lambda *_, **__: pytest.fail("trained for nothing"))
        with pytest.raises(ModelError, match="has no heads for questions.* infuse wrote, or --start random"):
            evaluate_ner(settings(str(tiny_bert), data, epochs=1), Run(tmp_path / "out", Silent()))
    results = evaluate_ner(
        settings(str(tiny_bert), data, epochs=1, start=["random"]), Run(tmp_path / "out", Silent())
    )
    assert "questions" not in results


def test_test_sentences_without_an_entity_are_refused(student, tmp_path):
    train = conll(tmp_path / "train.conll", SENTENCES)
    test = conll(tmp_path / "test.conll", [TaggedSentence(("It", "rains"), ("O", "O"))])
    with pytest.raises(InputError, match="test.conll: no sentence has an entity"):
        training_and_test_sentences(settings(student, test, train=train, shots=1))


def test_types_that_no_training_sentence_has_are_told(student, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        ner, "tag_after_training", lambda _, __, test, *___, **____: [list(s.tags) for s in test]
    )
    files = [conll(tmp_path / f"{name}.conll", SENTENCES) for name in ("test", "train")]
    Path(files[1]).write_text(Path(files[1]).read_text().replace("-PER", "-PERSON"))
    some = settings(student, files[0], train=files[1], shots=1, start=["random"])
    evaluate_ner(some, Run(tmp_path / "out", Progress()))
    assert "no training sentence has the type PER, which test sentences have" in capsys.readouterr().err


def conll(path, sentences):
    lines = (
        "".join(f"{word}\t{tag}\n" for word, tag in zip(s.words, s.tags, strict=True)) for s in sentences
    )
    path.write_text("\n".join(lines))
    return str(path)


@pytest.mark.long
def test_sentences_are_drawn_from_others_that_are_learned_by_heart(student, tmp_path):
    files = [conll(tmp_path / f"{name}.conll", SENTENCES) for name in ("test", "train")]
    some = settings(student, files[0], train=files[1], shots=1)
    results = evaluate_ner(some, Run(tmp_path / "out", Silent()))
    assert results["questions"] == ALL_CORRECT
    assert results["count"] == 2
    assert set(results["about"]["inputs"]) == {"train", "test"}
    assert evaluate_ner(some, Run(tmp_path / "out", Silent())) == results
    conll(Path(files[1]), SENTENCES * 2)
    with pytest.raises(FolderError, match="input train"):
        evaluate_ner(some, Run(tmp_path / "out", Silent()))
    assert evaluate_ner.plan(some, {}).seconds > 0


def test_rows_of_tokens_and_tags(tmp_path):
    rows = [{"tokens": sentence.words, "ner_tags": sentence.tags} for sentence in SENTENCES]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"tokens": [], "ner_tags": []}]))
    assert read_tagged(path) == SENTENCES
    path.write_text(json.dumps({"words": ["A", "man"], "tags": ["I-PER", "I-PER"]}) + "\n")
    assert read_tagged(path) == [TaggedSentence(("A", "man"), ("B-PER", "I-PER"))]
    for row, message in (
        (
            {"words": ["A"], "tags": [1]},
            "rows.jsonl:1: the tag '1' is not a BIO tag .*; write the names of tags",
        ),
        ({"words": "A man", "tags": ["O"]}, "have to be lists"),
        ({"words": ["A", None], "tags": ["O", "O"]}, "rows.jsonl:1: words holds null in place of a text"),
        (
            {"words": ["A", ["man"]], "tags": ["O", "O"]},
            "rows.jsonl:1: words holds a list in place of a text",
        ),
        ({"words": ["A", "\ud800"], "tags": ["O", "O"]}, "column 'words' holds half a character"),
        ({"words": ["A"], "tags": ["B-\ud800"]}, "column 'tags' holds half a character"),
        ({"words": ["A"], "tags": ["O", "O"]}, "1 words and 2 tags"),
        ({"words": [], "tags": ["O"]}, "0 words and 1 tags"),
        ({"text": "A man"}, "lacks the columns tokens or words"),
        ({"tokens": ["A"]}, "columns ner_tags, tags, ner; rename the column that holds them to one of these"),
    ):
        path.write_text(json.dumps(row) + "\n")
        with pytest.raises(InputError, match=message):
            read_tagged(path)


def rows_with_class_numbers():
    """The sentences as `datasets` holds them: tags are numbers, whose names are stored with the columns."""
    import datasets

    tags = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
    return datasets.Dataset.from_dict(
        {
            "tokens": [list(sentence.words) for sentence in SENTENCES],
            "ner_tags": [[tags.index(tag) for tag in sentence.tags] for sentence in SENTENCES],
        },
        features=datasets.Features(
            {
                "tokens": datasets.List(datasets.Value("string")),
                "ner_tags": datasets.List(datasets.ClassLabel(names=tags)),
            }
        ),
    )


def test_parquet_files_name_what_their_numbers_stand_for(tmp_path):
    rows = rows_with_class_numbers()
    (tmp_path / "data").mkdir()
    file = tmp_path / "data" / "train-00000-of-00001.parquet"
    rows.to_parquet(file)
    for source in (file, tmp_path, f"{tmp_path}:train"):
        assert read_tagged(source) == SENTENCES
    pq.write_table(rows.data.table.replace_schema_metadata(None), file)
    with pytest.raises(InputError, match="is not a BIO tag .*; write the names of tags in place of their"):
        read_tagged(file)


def test_a_hub_data_set_names_what_its_numbers_stand_for(student, tmp_path, monkeypatch):
    rows = rows_with_class_numbers()
    requests = []

    def load(*named, split, streaming):
        requests.append((*named, split))
        return rows.to_iterable_dataset() if streaming else rows

    monkeypatch.setattr("datasets.load_dataset", load)
    assert read_tagged("org/names:test") == SENTENCES
    assert set(requests) == {("org/names", "test")}
    assert read_tagged("org/names/small:test") == SENTENCES
    assert requests[-1] == ("org/names", "small", "test")
    results = evaluate_ner(
        settings(student, "org/names:test", train="org/names", shots=1, start=["random"]),
        Run(tmp_path / "out", Silent()),
    )
    assert results["random"]["f1"] == 100.0


def test_a_folder_that_is_called_like_a_hub_data_set_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = pa.table({"tokens": [["Ann", "sings"]], "ner_tags": [["B-PER", "O"]]})
    (tmp_path / "my" / "names" / "data").mkdir(parents=True)
    pq.write_table(rows, tmp_path / "my" / "names" / "data" / "train-00000.parquet")
    monkeypatch.setattr("datasets.load_dataset", lambda *_, **__: pytest.fail("the Hub was asked"))
    sentences = [TaggedSentence(("Ann", "sings"), ("B-PER", "O"))]
    assert read_tagged("my/names") == read_tagged("my/names:train") == sentences


def test_a_file_to_test_on_wants_one_to_learn_from(student, tmp_path):
    file = conll(tmp_path / "test.conll", SENTENCES)
    remedy = "; give tagged sentences to train on as --train"
    for source, fault in (
        (file, f"^{file} is no folder with splits"),
        (str(tmp_path), "_0.words does not exist"),
    ):
        with pytest.raises(InputError, match=fault + remedy):
            evaluate_ner(settings(student, source), Run(tmp_path / "out", Silent()))


def test_missing_splits_are_named(student, data, tmp_path):
    with pytest.raises(InputError, match="few_shot_5_7.words does not exist"):
        evaluate_ner(settings(student, data, splits=[7]), Run(tmp_path / "out", Silent()))


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("I-PER I-PER O I-LOC", "B-PER I-PER O B-LOC"),
        ("I-PER I-LOC", "B-PER B-LOC"),
        ("I-PER B-PER I-PER", "B-PER B-PER I-PER"),
        ("O O", "O O"),
    ],
)
def test_entities_of_iob1_begin_with_b(tags, expected):
    assert as_bio(tags.split()) == expected.split()


def test_the_form_of_conll(tmp_path):
    path = tmp_path / "eng.testa"
    path.write_text("-DOCSTART- -X- O O\n\nA DT B-NP I-PER\nman NN I-NP I-PER\n\nruns\tO\n")
    assert read_tagged(path) == [
        TaggedSentence(("A", "man"), ("B-PER", "I-PER")),
        TaggedSentence(("runs",), ("O",)),
    ]


@pytest.mark.parametrize("last", [("E", "S"), ("L", "U")], ids=["BIOES", "BILOU"])
def test_tags_of_bioes_and_bilou_are_those_of_bio(tmp_path, last):
    end, single = last
    words = ["New", "York", "City", "Ann", "Bob", "runs", "S-Bahn"]
    tags = ["B-LOC", "I-LOC", f"{end}-LOC", f"{single}-PER", f"{single}-PER", "O", f"{single}-B-S-X"]
    lines = "".join(f"{word}\t{tag}\n" for word, tag in zip(words, tags, strict=True))
    (tmp_path / "a.conll").write_text(lines)
    expected = ("B-LOC", "I-LOC", "I-LOC", "B-PER", "B-PER", "O", "B-B-S-X")
    assert read_tagged(tmp_path / "a.conll") == [TaggedSentence(tuple(words), expected)]


def test_white_space_at_the_end_of_a_line_is_no_part_of_a_tag(tmp_path):
    (tmp_path / "a.conll").write_text("Ann B-PER\xa0\nruns O \n", encoding="utf-8")
    assert read_tagged(tmp_path / "a.conll") == [TaggedSentence(("Ann", "runs"), ("B-PER", "O"))]


def test_a_no_break_space_is_part_of_a_word(tmp_path):
    (tmp_path / "a.conll").write_text("10\xa0000\tO\n\xa0\tO\nAnn\tB-PER\n\xa0\nruns O\n", encoding="utf-8")
    assert read_tagged(tmp_path / "a.conll") == [
        TaggedSentence(("10\xa0000", "\xa0", "Ann"), ("O", "O", "B-PER")),
        TaggedSentence(("runs",), ("O",)),
    ]


def test_types_without_a_prefix_are_io(tmp_path):
    (tmp_path / "io.conll").write_text("Ann PER\nLee PER\nin O\nNew art-film\nYork LOC\n\nBo PER\n")
    assert read_tagged(tmp_path / "io.conll") == [
        TaggedSentence(("Ann", "Lee", "in", "New", "York"), ("B-PER", "I-PER", "O", "B-art-film", "B-LOC")),
        TaggedSentence(("Bo",), ("B-PER",)),
    ]
    row = {"tokens": ["Ann", "runs"], "ner_tags": ["PER", "O"]}
    (tmp_path / "io.jsonl").write_text(json.dumps(row) + "\n")
    assert read_tagged(tmp_path / "io.jsonl") == [TaggedSentence(("Ann", "runs"), ("B-PER", "O"))]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A I-PER\nman person\n", "eng:1: the tag 'person' is not a BIO tag"),
        ("A M-PER\n", "the tag 'M-PER' is not a BIO tag"),
        ("A PER\nman B-PER\nis O\n", "'PER' is not a BIO tag .*; types without B- and I- are read only if"),
        (
            "A DT\nman NN\n",
            "'DT' is not a BIO tag .* only if the data has the tag O and no tag with a prefix",
        ),
        ("A B\nman I\nis O\n", "the tag 'B' is not a BIO tag such as O, B-PERSON"),
        (
            "tokens,ner_tags\n",
            "a word and its tag .*; give a file in CoNLL's format, or JSON Lines or Parquet",
        ),
        ("A I-PER\nman\n", "eng:2: a word and its tag"),
        ("\n", "no tagged sentences"),
    ],
)
def test_faults_are_told_with_their_place(tmp_path, text, message):
    (tmp_path / "eng").write_text(text)
    with pytest.raises(InputError, match=message):
        read_tagged(tmp_path / "eng")


def test_words_and_tags_have_to_be_as_many(data, tmp_path):
    words = tmp_path / "few" / "test.words"
    words.write_text("A man\n")
    with pytest.raises(InputError, match="1 lines, and test.ner has 2"):
        read_tagged(words)
    words.write_text("A man\nTwo dogs\n")
    with pytest.raises(InputError, match="test.words:1: 2 words and 5 tags"):
        read_tagged(words)
    words.write_text(" \n\n")
    with pytest.raises(InputError, match="test.words:1: 0 words and 5 tags"):
        read_tagged(words)
    with pytest.raises(InputError, match="does not exist"):
        read_tagged(tmp_path / "none.words")


def test_a_plan_trains_for_some_epochs(student, data, tiny_bert):
    estimate = evaluate_ner.plan(settings(student, data), {})
    assert estimate.seconds > 0
    later = planned("evaluate-ner", settings("@later", data), {"@later": estimate}, str(tiny_bert))
    assert later.disk == estimate.disk
