import json

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from pairsmith.core.errors import InputError, SettingsError
from pairsmith.core.progress import Silent
from pairsmith.data.paraphrases import Paraphrase
from pairsmith.metrics.pair_scores import pair_scores
from pairsmith.models.token_vectors import load_token_encoder
from pairsmith.runs import Run
from pairsmith.steps.evaluate import paraphrase
from pairsmith.steps.evaluate.few_shot_paraphrase import SCALE, Head, drawn, f1, last_layers, tune
from pairsmith.steps.evaluate.paraphrase import evaluate_paraphrase, usual_layer, with_negatives
from pairsmith.steps.evaluate.plan import plan_evaluate_paraphrase
from pairsmith.steps.evaluate.settings import EvaluateParaphraseSettings

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
    found = run(tmp_path, tiny_bert, data=data)
    assert found["auroc"] == 100.0
    assert (found["count"], found["positives"], found["layer"]) == (10, 5, 2)
    assert found["negatives"] == "people"
    lines = [json.loads(line) for line in (tmp_path / "out" / "predictions.jsonl").read_text().splitlines()]
    assert lines[0]["score"] == pytest.approx(1.0, abs=1e-6)
    assert lines[0]["label"] is True
    assert run(tmp_path, tiny_bert, data=data) == found  # it lies there


@pytest.mark.parametrize("layer", [1, 2])
def test_the_layer_is_the_one_that_people_agree_with(tmp_path, tiny_bert, data, layer):
    encoder = load_token_encoder(str(tiny_bert), device="cpu")
    pairs = [(TEXTS[0], each) for each in TEXTS[1:]]
    every = pair_scores(encoder, pairs, [1, 2]).astype(float)
    people = every[:, layer - 1] - 0.9 * every[:, 2 - layer]
    path = tmp_path / "judged.tsv"
    rows = [f"{a}\t{b}\t{score}\n" for (a, b), score in zip(pairs, people.tolist(), strict=True)]
    path.write_text("".join(["sentence1\tsentence2\tscore\n", *rows]))
    found = run(tmp_path, tiny_bert, data=data, judgements=str(path))
    assert found["layer"] == layer
    expected = [round(100 * np.corrcoef(column, people)[0, 1], 2) for column in every.T]
    assert list(found["layers"].values()) == pytest.approx(expected)


def test_judgements_that_are_all_equal_choose_nothing(tmp_path, tiny_bert, data):
    path = tmp_path / "judged.tsv"
    path.write_text(f"sentence1\tsentence2\tscore\n{TEXTS[0]}\t{TEXTS[1]}\t1\n{TEXTS[0]}\t{TEXTS[2]}\t1\n")
    with pytest.raises(InputError, match="all scores are equal"):
        run(tmp_path, tiny_bert, data=data, judgements=str(path))


def test_the_usual_layer_is_five_sixths_of_the_way_up():
    assert [usual_layer(layers) for layers in (24, 12, 6, 1)] == [20, 10, 5, 1]


def test_a_layer_that_is_not_there_is_refused(tmp_path, tiny_bert, data):
    with pytest.raises(SettingsError, match="has 2 layers"):
        run(tmp_path, tiny_bert, data=data, layer=3)


def test_pairs_of_one_label_are_refused(tmp_path, tiny_bert):
    data = write(tmp_path / "pairs.tsv", [(text, text, 1) for text in TEXTS])
    with pytest.raises(InputError, match="all 5 pairs have the label 1"):
        run(tmp_path, tiny_bert, data=data)


def test_without_labels_negatives_are_sampled_and_said_to_be(tmp_path, tiny_bert):
    pairs = [(f"{text} {number}", f"{text} {number} again") for number, text in enumerate(TEXTS)]
    found = run(tmp_path, tiny_bert, data=write(tmp_path / "pairs.tsv", pairs, label=False))
    assert (found["count"], found["positives"], found["negatives"]) == (10, 5, "sampled")


def test_a_sampled_negative_is_near_and_never_a_known_paraphrase():
    pairs = [Paraphrase(f"word{n} common", f"word{n} shared", None) for n in range(200)]
    pairs.append(Paraphrase("word0 common", "word1 shared", None))
    found = with_negatives(pairs, seed=1)
    known = {(pair.sentence1, pair.sentence2) for pair in pairs}
    assert [pair.label for pair in found] == [True] * 201 + [False] * 201
    assert all((pair.sentence1, pair.sentence2) not in known for pair in found[201:])
    assert found == with_negatives(pairs, seed=1) != with_negatives(pairs, seed=2)


def test_a_few_examples_of_equal_and_of_other_texts_teach_to_tell_them_apart(tmp_path, tiny_bert, data):
    found = run(tmp_path, tiny_bert, data=data, train=data, shots=3, splits=[1, 2], tune=True)["few_shot"]
    assert found["frozen"]["f1"] == 100.0
    assert found["frozen"]["error"] == 0.0
    assert set(found["tuned"]["splits"]) == {"1", "2"}
    assert found["tuned"]["shots"] == 3
    with pytest.raises(InputError, match="5 pairs with the label 0, but 6"):
        run(tmp_path, tiny_bert, "more", data=data, train=data, shots=6)


def test_too_few_examples_are_told_before_anything_is_scored(tmp_path, tiny_bert, data, monkeypatch):
    monkeypatch.setattr(paraphrase, "load_token_encoder", lambda *_, **__: pytest.fail("loaded"))
    with pytest.raises(InputError, match="5 pairs with the label 0, but 6"):
        run(tmp_path, tiny_bert, data=data, train=data, shots=6)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tune": True}, "tune does nothing without train"),
        ({"shots": 4}, "shots does nothing without train"),
        ({"splits": [1]}, "splits does nothing without train"),
        ({"layer": 2, "judgements": "j.tsv"}, "both choose the layer"),
    ],
)
def test_settings_that_would_do_nothing_are_refused(given, message):
    with pytest.raises(ValidationError, match=message):
        EvaluateParaphraseSettings(model="some", data="d.tsv", **given)


def test_examples_are_drawn_of_each_class_and_by_the_seed():
    pairs = [Paraphrase(str(n), str(n), n % 3 == 0) for n in range(60)]
    found = drawn(pairs, 4, seed=13)
    assert [pair.label for pair in found] == [False] * 4 + [True] * 4
    assert found == drawn(pairs, 4, seed=13) != drawn(pairs, 4, seed=21)


def test_tuning_moves_the_encoder_and_leaves_it_able(tiny_bert):
    encoder = load_token_encoder(str(tiny_bert), device="cpu")
    before = {name: value.clone() for name, value in encoder.model.state_dict().items()}
    pairs = [Paraphrase(a, b, a == b) for a in TEXTS[:3] for b in TEXTS[:3]]
    settings = EvaluateParaphraseSettings(model="", data="")
    head = tune(encoder, pairs, last_layers(encoder), settings, seed=1)
    after = encoder.model.state_dict()
    assert any(not torch.equal(before[name], after[name]) for name in before)
    assert not encoder.model.training
    assert not head.training
    assert bool(head.weights.weight.detach().any())


def test_the_head_standardises_and_starts_at_nothing():
    head = Head(2)
    features = torch.tensor([[1.0, 5.0], [3.0, 9.0]])
    assert head(features).tolist() == [0.0, 0.0]
    with torch.no_grad():
        head.weights.weight[:] = torch.tensor([[1.0, 0.0]])
    assert head(features).tolist() == pytest.approx([-SCALE, SCALE], rel=1e-4)


def test_f1_by_hand():
    found = np.array([True, True, False, False])
    assert f1(found, np.array([True, False, True, False])) == 0.5
    assert f1(~found & found, found) == 0.0


def test_a_plan_scores_some_pairs_and_tunes_for_one_pass(tiny_bert, data):
    settings = EvaluateParaphraseSettings(
        model=str(tiny_bert), data=data, train=data, shots=3, splits=[1], tune=True, device="cpu"
    )
    found = plan_evaluate_paraphrase(settings, {})
    assert found.seconds > 0
    assert found.disk > 4096
    trained = settings.model_copy(update={"model": "@later"})
    assert plan_evaluate_paraphrase(trained, {"@later": found}, str(tiny_bert)).disk == found.disk


def test_too_few_texts_for_negatives_are_told():
    for pairs in ([("a", "b")], [("a", "b"), ("c", "b")]):
        with pytest.raises(InputError, match="too few texts"):
            with_negatives([Paraphrase(*pair, None) for pair in pairs], seed=1)


def test_a_layer_that_judges_all_alike_agrees_with_nobody(tmp_path, tiny_bert, data):
    path = tmp_path / "judged.tsv"
    rows = [f"{TEXTS[0]}\t{TEXTS[1]}\t{score}\n" for score in (1, 2)]
    path.write_text("".join(["sentence1\tsentence2\tscore\n", *rows]))
    found = run(tmp_path, tiny_bert, data=data, judgements=str(path))
    assert found["layers"] == {"1": None, "2": None}
