import gzip
import itertools
import json

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError
from sklearn.metrics import f1_score
from tests.planned import planned
from tests.resamples import loop_interval

from pairsmith.core.errors import FolderError, InputError, SettingsError
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.paraphrases import Paraphrase, paraphrase_pairs, with_negatives
from pairsmith.metrics.bertscore import BertScorer
from pairsmith.models.token_vectors import load_token_encoder
from pairsmith.runs import Run
from pairsmith.runs.estimate import Estimate
from pairsmith.steps.evaluate import paraphrase
from pairsmith.steps.evaluate.paraphrase import evaluate_paraphrase, paraphrase_table
from pairsmith.steps.evaluate.training_splits import training_splits
from pairsmith.steps.evaluate.transfer_settings import EvaluateParaphraseSettings

pytestmark = pytest.mark.slow

TEXTS = ["A man is playing.", "A woman is slicing an onion.", "Two dogs run.", "They said so.", "It is cold."]


def write(path, pairs, label=True):
    head = "sentence1\tsentence2" + ("\tlabel" if label else "")
    path.write_text("\n".join([head, *("\t".join(map(str, row)) for row in pairs)]) + "\n")
    return str(path)


@pytest.fixture
def data(tmp_path):
    same = [(text, text, 1) for text in TEXTS]
    other = [(text, TEXTS[number - 1], 0) for number, text in enumerate(TEXTS)]
    return write(tmp_path / "pairs.tsv", same + other)


def run(tmp_path, tiny_bert, name="out", fresh=False, **settings):
    return evaluate_paraphrase(
        EvaluateParaphraseSettings(model=str(tiny_bert), device="cpu", bootstrap=20, **settings),
        Run(tmp_path / name, Silent(), fresh),
    )


def test_equal_texts_are_above_all_others(tmp_path, tiny_bert, data):
    results = run(tmp_path, tiny_bert, data=data)
    assert results["auroc"] == 100.0
    assert (results["count"], results["positives"], results["layer"]) == (10, 5, 2)
    assert results["negatives"] == "people"
    lines = [json.loads(line) for line in (tmp_path / "out" / "predictions.jsonl").read_text().splitlines()]
    assert lines[0]["score"] == pytest.approx(1.0, abs=1e-6)
    assert lines[0]["label"] is True
    assert run(tmp_path, tiny_bert, data=data) == results  # it lies there


@pytest.mark.parametrize("layer", [1, 2])
def test_the_layer_is_the_one_that_people_agree_with(tmp_path, tiny_bert, data, layer):
    encoder = load_token_encoder(str(tiny_bert), device="cpu")
    pairs = [(TEXTS[0], text) for text in TEXTS[1:]]
    every = BertScorer(encoder).scores([Paraphrase(*pair, None) for pair in pairs], [1, 2])
    people = every[:, layer - 1] - 0.9 * every[:, 2 - layer]
    path = tmp_path / "judged.tsv"
    rows = [f"{a}\t{b}\t{score}\n" for (a, b), score in zip(pairs, people.tolist(), strict=True)]
    path.write_text("".join(["sentence1\tsentence2\tscore\n", *rows]))
    results = run(tmp_path, tiny_bert, data=data, judgements=str(path))
    assert results["layer"] == layer
    expected = [round(100 * np.corrcoef(column, people)[0, 1], 2) for column in every.T]
    assert list(results["layers"].values()) == pytest.approx(expected)
    assert results["correlation"] == pytest.approx(max(expected))
    line = f"correlation of layer {layer} with the human scores, ×100: {max(expected):.2f}"
    assert line in paraphrase_table(results).splitlines()


def test_each_language_counts_alike_in_the_choice_of_the_layer(tmp_path, tiny_bert, data):
    """The mean of the languages' correlations, not the correlation over all rows (Q8)."""
    encoder = load_token_encoder(str(tiny_bert), device="cpu")
    pairs = [(a, b) for a in TEXTS for b in TEXTS if a != b]
    every = BertScorer(encoder).scores([Paraphrase(*pair, None) for pair in pairs], [1, 2])
    languages = ["de-en"] * 15 + ["fi-en"] * 5
    people = np.concatenate([every[:15, 0], 50 + 30 * every[15:, 1]])  # on another scale
    path = tmp_path / "judged.tsv"
    rows = [
        f"{a}\t{b}\t{score}\t{lp}\n"
        for (a, b), score, lp in zip(pairs, people.tolist(), languages, strict=True)
    ]
    path.write_text("".join(["sentence1\tsentence2\tscore\tlp\n", *rows]))
    results = run(tmp_path, tiny_bert, data=data, judgements=str(path))
    expected = [
        100 * np.mean([np.corrcoef(column[part], people[part])[0, 1] for part in (slice(15), slice(15, 20))])
        for column in every.T
    ]
    assert list(results["layers"].values()) == pytest.approx(expected, abs=0.01)
    assert abs(expected[0] - 100 * np.corrcoef(every[:, 0], people)[0, 1]) > 1


def test_judgements_that_are_all_equal_choose_nothing(tmp_path, tiny_bert, data):
    path = tmp_path / "judged.tsv"
    path.write_text(f"sentence1\tsentence2\tscore\n{TEXTS[0]}\t{TEXTS[1]}\t1\n{TEXTS[0]}\t{TEXTS[2]}\t1\n")
    with pytest.raises(InputError, match="all scores are equal"):
        run(tmp_path, tiny_bert, data=data, judgements=str(path))


def test_a_layer_that_is_not_there_is_refused(tmp_path, tiny_bert, data):
    with pytest.raises(SettingsError, match=r"model .*bert: layer is 3, but the encoder has 2 layers"):
        run(tmp_path, tiny_bert, data=data, layer=3)


def test_data_that_cannot_be_read_leave_no_folder(tmp_path, tiny_bert):
    (tmp_path / "pairs.tsv").write_text("sentence1\tother\na\tb\n")
    settings = EvaluateParaphraseSettings(model=str(tiny_bert), data=str(tmp_path / "pairs.tsv"))
    with pytest.raises(InputError, match="sentence2"):
        evaluate_paraphrase(settings, Run(tmp_path / "out", Silent()))
    assert not (tmp_path / "out").exists()


def test_pairs_of_one_label_are_refused(tmp_path, tiny_bert):
    data = write(tmp_path / "pairs.tsv", [(text, text, 1) for text in TEXTS])
    with pytest.raises(InputError, match="all 5 pairs have the label 1"):
        run(tmp_path, tiny_bert, data=data)


def test_without_labels_negatives_are_sampled_and_said_to_be(tmp_path, tiny_bert):
    pairs = [(f"{text} {number}", f"{text} {number} again") for number, text in enumerate(TEXTS)]
    results = run(tmp_path, tiny_bert, data=write(tmp_path / "pairs.tsv", pairs, label=False))
    assert (results["count"], results["positives"], results["negatives"]) == (10, 5, "sampled")


def test_labels_in_a_column_of_another_name_are_not_passed_over_in_silence(tmp_path, tiny_bert, capsys):
    rows = "".join(f"{text}\t{text} again\t{number % 2}\n" for number, text in enumerate(TEXTS))
    (tmp_path / "pairs.tsv").write_text(f"sentence1\tsentence2\tgold\n{rows}")
    settings = EvaluateParaphraseSettings(model=str(tiny_bert), device="cpu", data=f"{tmp_path}/pairs.tsv")
    evaluate_paraphrase(settings, Run(tmp_path / "out", Progress()))
    assert (
        "pairs.tsv: has no column label or is_duplicate or Quality, so all pairs count as paraphrases"
    ) in capsys.readouterr().err


def test_a_sampled_negative_is_near_and_never_a_known_paraphrase():
    pairs = [Paraphrase(f"word{n} common", f"word{n} shared", None) for n in range(200)]
    pairs.append(Paraphrase("word0 common", "word1 shared", None))
    labelled_pairs = with_negatives(pairs, seed=1)
    known = {(pair.sentence1, pair.sentence2) for pair in pairs}
    assert [pair.label for pair in labelled_pairs] == [True] * 201 + [False] * 201
    assert all((pair.sentence1, pair.sentence2) not in known for pair in labelled_pairs[201:])
    assert labelled_pairs == with_negatives(pairs, seed=1) != with_negatives(pairs, seed=2)


def test_a_few_examples_of_equal_and_of_other_texts_teach_to_tell_them_apart(tmp_path, tiny_bert, data):
    figures = run(tmp_path, tiny_bert, data=data, train=data, shots=3, splits=[1, 2], tune=True)["few_shot"]
    lines = [json.loads(line) for line in (tmp_path / "out" / "predictions.jsonl").read_text().splitlines()]
    for way, split in itertools.product(("frozen", "tuned"), ("1", "2")):
        f1 = f1_score([line["label"] for line in lines], [line[way][split] for line in lines])
        assert figures[way]["splits"][split] == pytest.approx(100 * f1, abs=1e-4)
    assert figures["frozen"]["f1"] == 100.0
    assert figures["frozen"]["error"] == 0.0
    assert set(figures["tuned"]["splits"]) == {"1", "2"}
    assert figures["tuned"]["shots"] == 3
    with pytest.raises(InputError, match="--train .*pairs.tsv: there are 5 pairs with the label 0, but 6"):
        run(tmp_path, tiny_bert, "more", data=data, train=data, shots=6)


def test_intervals_of_few_shot_f1_are_those_of_pairs_drawn_one_by_one(tmp_path, tiny_bert, data):
    rows = [(a, b, int(n % 3 == 0)) for n, (a, b) in enumerate(itertools.combinations(TEXTS, 2))]
    rows += [(text, text, int(n != 2)) for n, text in enumerate(TEXTS)]
    test = write(tmp_path / "test.tsv", rows)
    results = run(tmp_path, tiny_bert, data=test, train=data, shots=2, splits=[1, 2], tune=True, seed=3)
    lines = [json.loads(line) for line in (tmp_path / "out" / "predictions.jsonl").read_text().splitlines()]

    def f1(rows, way, splits):
        gold = [lines[row]["label"] for row in rows]
        return np.mean(
            [f1_score(gold, [lines[row][way][n] for row in rows], zero_division=0) for n in splits]
        )

    for way, figures in results["few_shot"].items():

        def limits(splits, way=way):
            return loop_interval(len(rows), lambda drawn: f1(drawn, way, splits), draws=20, seed=3)

        assert figures["f1_ci"] == pytest.approx(limits(["1", "2"]), abs=1e-4)
        assert figures["splits_ci"] == {n: pytest.approx(limits([n]), abs=1e-4) for n in ("1", "2")}
        low, high = figures["f1_ci"]
        assert low < figures["f1"] < high
        line = f"{way}: {figures['f1']:.2f} ± {figures['error']:.2f}  [{low:.2f}, {high:.2f}]"
        assert line in paraphrase_table(results)
    assert (
        "±: standard error over the splits; brackets: 95 % interval over the pairs"
        in paraphrase_table(results).splitlines()
    )


def test_results_of_an_earlier_version_have_no_intervals_of_f1(tmp_path, tiny_bert, data):
    results = run(tmp_path, tiny_bert, data=data, train=data, shots=2, splits=[1, 2])
    frozen = results["few_shot"]["frozen"]
    del frozen["f1_ci"], frozen["splits_ci"]
    (tmp_path / "out" / "results.json").write_text(json.dumps(results))
    assert run(tmp_path, tiny_bert, data=data, train=data, shots=2, splits=[1, 2]) == results
    shown = f"frozen: {frozen['f1']:.2f} ± {frozen['error']:.2f}\n±: standard error over the splits\n"
    assert shown in paraphrase_table(results)


def test_pairs_that_a_split_learned_are_counted_and_one_split_has_no_error(tmp_path, tiny_bert, data):
    train = [(TEXTS[2].upper(), TEXTS[2], 1), ("Cats sleep.", "Cats sleep.", 1)]
    train += [
        (TEXTS[0], TEXTS[1], 0),
        ("Cats sleep.", TEXTS[0], 0),
    ]  # the first stands in the data turned round
    results = run(tmp_path, tiny_bert, data=data, train=write(tmp_path / "t.tsv", train), shots=2, splits=[5])
    assert results["trained_on"] == 2
    assert results["few_shot"]["frozen"]["error"] is None
    table = paraphrase_table(results)
    assert "±" not in table
    assert table.endswith(
        "2 of the 10 pairs are also training pairs of a split: F1 is better than it would be on other pairs"
    )


def test_too_few_examples_are_told_before_anything_is_scored(tmp_path, tiny_bert, data, monkeypatch):
    monkeypatch.setattr(paraphrase, "load_token_encoder", lambda *_, **__: pytest.fail("loaded"))
    with pytest.raises(InputError, match="--train .*pairs.tsv: there are 5 pairs with the label 0, but 6"):
        run(tmp_path, tiny_bert, data=data, train=data, shots=6)


def test_defaults_are_those_of_the_paper():
    defaults = EvaluateParaphraseSettings(model="m", data="d", train="t")
    assert (defaults.shots, defaults.splits) == (16, [13, 21, 42, 87, 100])
    assert defaults.special_tokens


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tune": True}, "tune has no effect without train"),
        ({"shots": 4}, "shots has no effect without train"),
        ({"splits": [1]}, "splits has no effect without train"),
        ({"ids": "folder"}, "ids has no effect without train"),
        ({"layer": 2, "judgements": "j.tsv"}, "both choose the layer"),
        ({"train": "t.tsv", "splits": [3, 1, 3]}, "split 3 is given twice"),
    ],
)
def test_settings_that_would_do_nothing_are_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        EvaluateParaphraseSettings(model="some", data="d.tsv", **settings)


def split_files(folder, name, lines_of, shots=2, splits=(13, 21)):
    for split in splits:
        (folder / f"{shots}-{split}").mkdir(parents=True)
        (folder / f"{shots}-{split}" / name).write_text("".join(lines_of(split)))
    return str(folder)


def given(train, **more):
    return EvaluateParaphraseSettings(model="m", data="d", train=train, shots=2, splits=[13, 21], **more)


def test_splits_may_be_files_as_gao_et_al_give_them(tmp_path):
    """Each has a header and is as GLUE's files are, e.g. MRPC's."""

    def rows(split):
        yield "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
        yield from (f"{n % 2}\t{n}\t{n}\tfirst {split} {n}\tsecond\n" for n in range(4))

    folder = split_files(tmp_path / "MRPC", "train.tsv", rows)
    splits = training_splits(given(folder))
    assert splits.negatives == "people"
    assert {n: [(pair.sentence1, pair.label) for pair in pairs] for n, pairs in splits.pairs.items()} == {
        split: [(f"first {split} {n}", bool(n % 2)) for n in range(4)] for split in (13, 21)
    }
    with pytest.raises(InputError, match="2-42/train.tsv does not exist; expected a file 2-N/train.tsv"):
        training_splits(given(folder).model_copy(update={"splits": [42]}))


def test_splits_may_be_lists_of_ids_as_for_paws(tmp_path):
    rows = ["id\tsentence1\tsentence2\tlabel\n", *(f"{10 * n}\ta{n}\tb\t{n % 2}\n" for n in range(6))]
    (tmp_path / "train.tsv").write_text("".join(rows))
    ids = split_files(tmp_path / "ids", "train_ids.tsv", lambda split: [f"{split % 4 * 10}\n", "40\n", "\n"])
    splits = training_splits(given(str(tmp_path / "train.tsv"), ids=ids))
    assert {n: [pair.sentence1 for pair in pairs] for n, pairs in splits.pairs.items()} == {
        13: ["a1", "a4"],
        21: ["a1", "a4"],
    }
    (tmp_path / "ids" / "2-13" / "train_ids.tsv").write_text("10\n30\n")
    with pytest.raises(
        InputError, match="2-13/train_ids.tsv: all rows with these ids have label 1; both are"
    ):
        training_splits(given(str(tmp_path / "train.tsv"), ids=ids))
    with pytest.raises(SettingsError, match="--ids has no effect with a folder of splits"):
        training_splits(given(ids, ids=ids))
    (tmp_path / "ids" / "2-13" / "train_ids.tsv").write_text("10\n40\n")
    (tmp_path / "ids" / "2-21" / "train_ids.tsv").write_text("7\n")
    with pytest.raises(InputError, match="train_ids.tsv: .*train.tsv has no row with the id '7'"):
        training_splits(given(str(tmp_path / "train.tsv"), ids=ids))
    (tmp_path / "ids" / "2-21" / "train_ids.tsv").write_bytes("10\né\n".encode("latin1"))
    with pytest.raises(InputError, match="train_ids.tsv:2: not UTF-8"):
        training_splits(given(str(tmp_path / "train.tsv"), ids=ids))


def test_lists_of_ids_may_be_compressed_and_begin_with_a_mark(tmp_path):
    rows = ["id\tsentence1\tsentence2\tlabel\n", *(f"{n}\ta{n}\tb\t{n % 2}\n" for n in range(2))]
    (tmp_path / "train.tsv").write_text("".join(rows))
    ids = split_files(tmp_path / "ids", "train_ids.tsv", lambda _: ["\ufeff0\n1\n"])
    for split in (13, 21):
        file = tmp_path / "ids" / f"2-{split}" / "train_ids.tsv"
        file.with_name("train_ids.tsv.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    splits = training_splits(given(str(tmp_path / "train.tsv"), ids=ids))
    assert [pair.sentence1 for pair in splits.pairs[21]] == ["a0", "a1"]


def test_what_is_finished_reads_no_pairs_again(tmp_path, tiny_bert, data, monkeypatch):
    results = run(tmp_path, tiny_bert, data=data)
    monkeypatch.setattr(paraphrase, "paraphrase_pairs", pytest.fail)
    assert run(tmp_path, tiny_bert, data=data) == results


def test_changed_splits_are_another_evaluation(tmp_path, tiny_bert, data):
    def rows(split):
        yield "sentence1\tsentence2\tlabel\n"
        yield from (f"{TEXTS[n]}\t{TEXTS[n - n % 2]}\t{1 - n % 2}\n" for n in range(4))

    folder = split_files(tmp_path / "splits", "train.tsv", rows)
    few = {"data": data, "train": folder, "shots": 2, "splits": [13, 21]}
    results = run(tmp_path, tiny_bert, **few)
    assert set(results["about"]["inputs"]) == {"data", "train, 13", "train, 21"}
    assert list(results["few_shot"]["frozen"]["splits"]) == ["13", "21"]
    path = tmp_path / "splits" / "2-13" / "train.tsv"
    path.write_text(path.read_text().replace(TEXTS[0], "Another."))
    with pytest.raises(FolderError, match="train, 13"):
        run(tmp_path, tiny_bert, **few)


def test_a_plan_scores_some_pairs_and_tunes_for_one_pass(tiny_bert, data):
    settings = EvaluateParaphraseSettings(
        model=str(tiny_bert), data=data, train=data, shots=3, splits=[1], tune=True, device="cpu"
    )
    estimate = evaluate_paraphrase.plan(settings, {})
    assert estimate.seconds > 0
    assert estimate.disk > 4096
    trained = settings.model_copy(update={"model": "@later"})
    later = planned("evaluate-paraphrase", trained, {"@later": estimate}, str(tiny_bert))
    assert later.disk == estimate.disk


@pytest.mark.parametrize(("labels", "times"), [({"label": ["1", "0"]}, 1), ({}, 2)])
def test_a_plan_reads_pairs_that_an_earlier_step_will_make(tiny_bert, labels, times):
    """Each pair takes 80 bytes and its ten letters; pairs without labels get as many negatives."""
    sample = pa.table({"sentence1": ["A man", "Cold!"], "sentence2": ["A dog", "Warm!"], **labels})
    before = {"@pairs": Estimate(1.0, 1, 1, {"train": 30}, sample=sample)}
    settings = EvaluateParaphraseSettings(model=str(tiny_bert), data="@pairs", device="cpu")
    assert planned("evaluate-paraphrase", settings, before).disk == 4096 + times * 30 * 90


def test_too_few_texts_for_negatives_are_told(tmp_path):
    for pairs in ([("a", "b")], [("a", "b"), ("c", "b")]):
        with pytest.raises(InputError, match="too few texts"):
            with_negatives([Paraphrase(*pair, None) for pair in pairs], seed=1)
    (tmp_path / "few.csv").write_text("sentence1,sentence2\na,b\n")
    with pytest.raises(InputError, match=r"few.csv: there are too few texts"):
        paraphrase_pairs(str(tmp_path / "few.csv"), seed=1)


def test_a_layer_that_judges_all_alike_agrees_with_nobody(tmp_path, tiny_bert, data):
    path = tmp_path / "judged.tsv"
    rows = [f"{TEXTS[0]}\t{TEXTS[1]}\t{score}\n" for score in (1, 2)]
    path.write_text("".join(["sentence1\tsentence2\tscore\n", *rows]))
    results = run(tmp_path, tiny_bert, data=data, judgements=str(path))
    assert results["layers"] == {"1": None, "2": None}
    assert results["correlation"] is None
    assert "correlation" not in paraphrase_table(results)
