import pyarrow as pa
import pytest
import torch
from sentence_transformers.sentence_transformer import losses

from pairsmith.core.errors import InputError
from pairsmith.methods.dino.encoder import train_encoder_on, validation_spearman
from pairsmith.methods.dino.objectives import contrastive_rows, encode_by_length, loss_of, training_rows
from pairsmith.methods.dino.options import EncoderOptions
from pairsmith.models.sentence_encoder import load_sentence_encoder

pytestmark = pytest.mark.slow


def table(rows):
    first, second, scores = zip(*rows, strict=True)
    return pa.table({"sentence1": list(first), "sentence2": list(second), "score": list(scores)})


PAIRS = table(
    [
        ("a", "a same", 0.9), ("a", "a too", 0.9), ("a", "a near", 0.5), ("a", "a far", 0.1), ("a", "a off", 0.1),
        ("b", "b same", 0.9), ("b", "b near", 0.5),  # nothing of the lowest score
        ("c", "c same", 0.9), ("c", "c near", 0.5), ("c", "c far", 0.1),
    ]
)  # fmt: skip


def test_each_positive_stands_beside_a_text_of_each_low_score():
    assert contrastive_rows(PAIRS, 0.2).to_pylist() == [
        {"anchor": "a", "positive": "a same", "negative_1": "a far"},
        {"anchor": "a", "positive": "a too", "negative_1": "a off"},
        {"anchor": "c", "positive": "c same", "negative_1": "c far"},
    ]


def test_texts_in_between_are_hard_negatives_only_if_asked():
    assert contrastive_rows(PAIRS, 0.5).to_pylist() == [
        {"anchor": "a", "positive": "a same", "negative_1": "a near", "negative_2": "a far"},
        {"anchor": "a", "positive": "a too", "negative_1": "a near", "negative_2": "a off"},
        {"anchor": "c", "positive": "c same", "negative_1": "c near", "negative_2": "c far"},
    ]


def test_first_texts_without_a_positive_or_a_negative_give_no_rows():
    with pytest.raises(InputError, match=r"none of 2 first texts has these \(scores: 0\.9, 0\.1\)"):
        contrastive_rows(table([("a", "b", 0.9), ("c", "d", 0.1)]), 0.2)
    with pytest.raises(InputError, match="raise hard_negatives if the scores are higher"):
        contrastive_rows(table([("a", "b", 0.9), ("a", "d", 0.5)]), 0.2)


def test_simcse_takes_each_first_text_once_and_no_score():
    rows = training_rows(PAIRS, "simcse")
    assert rows.column_names == ["anchor", "positive"]
    assert rows["anchor"].to_pylist() == rows["positive"].to_pylist() == ["a", "b", "c"]


TEXTS = [
    "A man.",
    "A woman is slicing an onion on the beach while two dogs run about.",
    "Dogs",
    "The market fell.",
]


@pytest.mark.parametrize("model", ["tiny_bert", "tiny_gpt2"])
def test_vectors_by_length_are_those_of_each_text_alone(model, request):
    encoder = load_sentence_encoder(str(request.getfixturevalue(model)), device="cpu").eval()
    columns = [encoder.preprocess(TEXTS[:2]), encoder.preprocess(TEXTS[2:])]
    vectors = torch.cat(encode_by_length(encoder, columns))
    alone = torch.cat([encoder(encoder.preprocess([text]))["sentence_embedding"] for text in TEXTS])
    assert [len(column) for column in encode_by_length(encoder, columns)] == [2, 2]
    torch.testing.assert_close(vectors, alone, rtol=1e-5, atol=1e-6)


def test_loss_and_gradients_are_the_librarys(tiny_bert):
    encoder = load_sentence_encoder(str(tiny_bert), device="cpu").eval()
    columns = [encoder.preprocess(TEXTS[:2]), encoder.preprocess(TEXTS[2:])]
    scores = torch.tensor([0.9, 0.1])

    def of(loss):
        encoder.zero_grad()
        value = loss([dict(column) for column in columns], scores)
        value.backward()
        return value.detach(), [p.grad.clone() for p in encoder.parameters() if p.grad is not None]

    actual, theirs = of(loss_of(encoder, "cosine", 20.0)), of(losses.CosineSimilarityLoss(encoder))
    torch.testing.assert_close(actual, theirs, rtol=1e-4, atol=1e-6)


WORDS = (["guitar", "market", "onion", "beach"], ["dog", "weather", "horse", "woman"])
GRADED = table(
    [
        (f"A {one}.", f"The {two}", score)
        for kinds, score in ((WORDS, 0.9), (WORDS[::-1], 0.9))
        for one in kinds[0]
        for two in kinds[0]
        if one != two
    ]
    + [
        (f"A {one}.", f"The {two}", 0.1)
        for kinds in (WORDS, WORDS[::-1])
        for one in kinds[0]
        for two in kinds[1]
    ]
)


def options(**given):
    fast = {"batch_size": 8, "learning_rate": 5e-3, "eval_steps": 50, "dtype": "float32"}
    return EncoderOptions(**(fast | given))


@pytest.mark.parametrize("objective", ["cosent", "angle", "contrastive"])
def test_each_objective_learns_from_scores(objective, tiny_gpt2):
    encoder = load_sentence_encoder(str(tiny_gpt2), device="cpu")
    before = validation_spearman(encoder, GRADED, 64)
    train_encoder_on(encoder, GRADED, None, options(objective=objective, epochs=8))
    assert validation_spearman(encoder, GRADED, 64) > before + 15


def test_simcse_changes_the_encoder_by_dropout_alone(tiny_gpt2):
    encoder = load_sentence_encoder(str(tiny_gpt2), device="cpu")
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    chosen = options(objective="simcse", epochs=3, attention_dropout=0.2)
    train_encoder_on(encoder, GRADED, None, chosen)
    assert any(not torch.equal(before[name], value) for name, value in encoder.state_dict().items())
