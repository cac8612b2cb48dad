import numpy as np
import pytest
import torch
from sentence_transformers.sentence_transformer import losses
from tests.heard import Heard

from pairsmith.core.errors import InputError, SettingsError
from pairsmith.data.tuples import RetrievalExample
from pairsmith.methods.retrieval.example_store import KnownPositives
from pairsmith.methods.retrieval.retriever import (
    Retriever,
    base_retriever,
    check_retrieval_examples,
    ndcg_of,
    retriever_row_maker,
    train_retriever_on,
)
from pairsmith.methods.retrieval.retriever_options import RetrieverOptions
from pairsmith.models.encode import encode_texts
from pairsmith.runs.seeds import generator
from pairsmith.steps.training.settings import TrainRetrieverSettings
from pairsmith.training import chunks

pytestmark = pytest.mark.slow

EXAMPLES = [
    RetrievalExample(
        "who plays the horn?", "Ann plays the horn.", ("A horn.", "The market."), (4.0, 2.0, -1.0)
    ),
    RetrievalExample(
        "who plays the lute?", "Bob does.", ("A lute was heard again.", "A dog."), (3.0, 3.5, 0.0)
    ),
    RetrievalExample("and the bell?", "Cid plays it, they said.", ("Bells.", "An onion."), (0.5, 0.0, -3.0)),
]


def options(base, **more):
    return RetrieverOptions(base=str(base), device="cpu", attention_dropout=0.0, **more)


@pytest.fixture
def model_and_batch(tiny_bert):
    """Makes a retriever, and the batch of ``EXAMPLES``."""

    def make(examples=EXAMPLES, **more):
        given = options(tiny_bert, **more)
        model = Retriever(base_retriever(given), given).eval()
        draw = retriever_row_maker(examples, KnownPositives(examples), given.negatives)
        rows = [draw(number, 0, generator(0, number)) for number in range(len(examples))]
        return model, model.batch(rows)

    return make


def columns(encoder):
    """The vectors of the queries, positives and negatives, a tensor for each column."""
    texts = [[example.query for example in EXAMPLES], [example.positive for example in EXAMPLES],
             *([example.negatives[n] for example in EXAMPLES] for n in (0, 1))]  # fmt: skip
    return [torch.from_numpy(encode_texts(encoder, column)) for column in texts]


def gradients(model):
    return torch.cat([w.grad.flatten() for w in model.parameters() if w.grad is not None])


@pytest.mark.parametrize("matryoshka", [[], [4, 8]])
@pytest.mark.parametrize("objective", ["ranking", "margin-mse", "kl"])
def test_the_loss_is_that_of_sentence_transformers(model_and_batch, objective, matryoshka):
    model, batch = model_and_batch(objective=objective, matryoshka=matryoshka, scale=7.0, **(
        {} if objective == "ranking" else {"temperature": 2.0}
    ))  # fmt: skip
    loss = model(**batch)["loss"]

    def similarity(x, y):
        return 7.0 * torch.nn.functional.cosine_similarity(x, y)

    theirs = {
        "ranking": losses.MultipleNegativesRankingLoss(model.encoder, scale=7.0),
        "margin-mse": losses.MarginMSELoss(model.encoder, similarity),
        "kl": losses.DistillKLDivLoss(model.encoder, similarity),
    }[objective]
    if matryoshka:
        theirs = losses.MatryoshkaLoss(model.encoder, theirs, [16, *matryoshka])
    features = [
        model.encoder.preprocess(column)
        for column in (
            [example.query for example in EXAMPLES],
            [example.positive for example in EXAMPLES],
            *([example.negatives[n] for example in EXAMPLES] for n in (0, 1)),
        )
    ]
    labels = None if objective == "ranking" else torch.tensor([example.scores for example in EXAMPLES]) / 2.0
    expected = theirs(features, labels)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    loss.backward()
    gradient = gradients(model)
    model.zero_grad()
    expected.backward()
    torch.testing.assert_close(gradient, gradients(model), rtol=1e-4, atol=1e-5)


def test_the_ranking_loss_by_hand(model_and_batch):
    model, batch = model_and_batch(scale=3.0)
    x, *y = (torch.nn.functional.normalize(vectors, dim=1) for vectors in columns(model.encoder))
    logits = 3.0 * x @ torch.cat([y[0], *torch.stack(y[1:], dim=1)]).T
    expected = -(logits.diagonal() - logits.logsumexp(dim=1)).mean()
    assert model(**batch)["loss"].item() == pytest.approx(expected.item(), rel=1e-5)


def test_other_positives_of_a_query_are_none_of_its_negatives(model_and_batch):
    again = RetrievalExample(EXAMPLES[0].query, "Ann, who else?", ("The lute.",))
    wrong = RetrievalExample(EXAMPLES[1].query, EXAMPLES[1].positive, ("Ann, who else?",))
    model, batch = model_and_batch([EXAMPLES[0], again, wrong])
    positives = ["Ann plays the horn.", "Ann, who else?", "Bob does."]
    documents = [*positives, "A horn.", "The market.", "The lute.", "Ann, who else?"]
    assert batch["same"].tolist() == [
        [text in right for text in documents] for right in (positives[:2], positives[:2], positives[2:])
    ]
    assert model(**batch)["loss"].isfinite()


@pytest.mark.parametrize("room", [0, chunks.KEPT_BYTES])
def test_a_batch_in_many_chunks_has_the_same_loss_and_gradients(model_and_batch, monkeypatch, room):
    monkeypatch.setattr(chunks, "KEPT_BYTES", room)
    recomputed = []
    usual = chunks.checkpoint
    monkeypatch.setattr(chunks, "checkpoint", lambda *a, **k: recomputed.append(1) or usual(*a, **k))
    model, batch = model_and_batch()
    model(**batch)["loss"].backward()
    whole = gradients(model)
    monkeypatch.setattr(chunks, "tokens_at_once", lambda _: 24)
    again, parts = model_and_batch()
    assert len(parts["documents"]["chunks"]) > 2
    again(**parts)["loss"].backward()
    torch.testing.assert_close(gradients(again), whole, rtol=1e-4, atol=1e-5)
    assert bool(recomputed) == (room == 0)


def test_some_negatives_are_drawn_anew_with_their_scores():
    draw = retriever_row_maker(EXAMPLES, KnownPositives(EXAMPLES), 1)
    seen = {
        (tuple(row.negatives), tuple(row.scores))
        for turn in range(20)
        for row in [draw(0, turn, np.random.default_rng(turn))]
    }
    assert seen == {(("A horn.",), (4.0, 2.0)), (("The market.",), (4.0, -1.0))}
    whole = retriever_row_maker(EXAMPLES, KnownPositives(EXAMPLES), None)(0, 0, np.random.default_rng(0))
    assert (tuple(whole.negatives), tuple(whole.scores)) == (EXAMPLES[0].negatives, EXAMPLES[0].scores)
    none = retriever_row_maker(EXAMPLES, KnownPositives(EXAMPLES), 0)(0, 0, np.random.default_rng(0))
    assert none.negatives == []


def test_the_validation_figure(tiny_bert):
    encoder = base_retriever(options(tiny_bert))
    texts = [
        "The horn.",
        "A dog.",
        "The lute.",
        "An onion.",
        "A market.",
        "Women.",
        "Horses.",
        "Weather.",
        "Beach.",
    ]
    texts += ["They said.", "Again.", "Today."]
    # Each query is one of the documents, so that it is nearest to itself.
    assert ndcg_of(encoder, [RetrievalExample(text, text) for text in texts]) == 100.0
    x = torch.nn.functional.normalize(torch.from_numpy(encode_texts(encoder, texts)), dim=1)
    order = (x[0] @ x.T).argsort(descending=True).tolist()
    third, last = texts[order[2]], texts[order[11]]
    one = RetrievalExample(texts[0], third, tuple(text for text in texts if text != third))
    assert ndcg_of(encoder, [one]) == pytest.approx(100 / np.log2(4))
    # A second relevant document, which is not among the first ten.
    two = [one, RetrievalExample(texts[0], last)]
    assert ndcg_of(encoder, two) == pytest.approx(100 / np.log2(4) / (1 + 1 / np.log2(3)))
    with torch.no_grad():
        next(encoder.parameters()).fill_(torch.nan)
    assert ndcg_of(encoder, two) is None


def test_prompts_are_saved_and_cosines_compared(tiny_bert, tmp_path):
    from sentence_transformers import SentenceTransformer

    encoder = base_retriever(options(tiny_bert, query_prompt="ask: "))
    encoder.save(str(tmp_path / "saved"), create_model_card=False)
    saved = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    assert (saved.prompts["query"], saved.prompts["document"]) == ("ask: ", "")
    assert saved.similarity_fn_name == "cosine"
    assert np.allclose(saved.encode_query(["horn"]), saved.encode(["ask: horn"]))


def test_what_cannot_be_learned_from_is_refused(tiny_bert):
    few = RetrievalExample("q", "p", ("a",), (1.0, 0.0))
    given = options(tiny_bert, objective="kl")
    with pytest.raises(
        InputError, match=r"a row has 1 negative \(query 'q'\), another 2; .* so give negatives 1"
    ):
        check_retrieval_examples([*EXAMPLES, few], given)
    check_retrieval_examples([*EXAMPLES, few], options(tiny_bert, objective="kl", negatives=1))
    check_retrieval_examples([*EXAMPLES, few], options(tiny_bert))
    alone = RetrievalExample("q", "p")
    with pytest.raises(
        InputError, match="in a batch of one row without negatives there is no text to distinguish"
    ):
        check_retrieval_examples([alone], options(tiny_bert))
    with pytest.raises(InputError, match="a batch of one row"):
        check_retrieval_examples(EXAMPLES, options(tiny_bert, batch_size=1, negatives=0))
    check_retrieval_examples(EXAMPLES, options(tiny_bert, batch_size=1))
    with pytest.raises(
        SettingsError, match="matryoshka 16: the base's vectors have 16 numbers, all of which are"
    ):
        base_retriever(options(tiny_bert, matryoshka=[8, 16]))
    with pytest.raises(ValueError, match="temperature has no effect with the objective ranking"):
        options(tiny_bert, temperature=2.0)
    with pytest.raises(ValueError, match="negatives 0 leaves the objective kl nothing to learn"):
        options(tiny_bert, objective="kl", negatives=0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"learning_rate": [1e-5, 2e-5]}, "validation rows choose among several learning rates"),
        ({"matryoshka": [8, 8]}, "matryoshka holds a number twice: 8, 8"),
    ],
)
def test_settings_that_would_cost_hours_for_nothing_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        TrainRetrieverSettings(base="x", data=["y"], **given)


def test_a_single_document_of_validation_cannot_choose_a_step_and_that_is_said(tiny_bert):
    alone = [RetrievalExample("a horn?", "A horn.", (), ()), RetrievalExample("horns?", "A horn.", (), ())]
    heard, given = Heard(), options(tiny_bert, max_steps=2, eval_steps=1, batch_size=2)
    history = train_retriever_on(EXAMPLES, alone, given, progress=heard).history
    assert (history.best_step, history.validation) == (2, {})
    said = "2 validation examples cannot choose the best step: two or more different documents are needed"
    assert any(line.startswith(said) for line in heard.lines)
