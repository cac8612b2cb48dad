import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pairsmith.core.errors import ModelError
from pairsmith.data.paraphrases import Paraphrase
from pairsmith.metrics.bertscore import BertScorer, bertscore
from pairsmith.models.token_vectors import load_token_encoder

PAIRS = [
    ("A man is playing.", "A woman is slicing an onion."),
    ("Two dogs run on the beach.", "Two dogs run on the beach."),
    ("They said.", "The stock market fell again today; the weather was not good, they said."),
]


def there(*counts, longest):
    return torch.arange(longest) < torch.tensor(counts)[:, None]


def test_two_tokens_and_three_by_hand():
    first = torch.tensor([[[2.0, 0.0], [0.0, 3.0]]])
    second = torch.tensor([[[1.0, 0.0], [3.0, 4.0], [-1.0, 0.0]]])
    # Cosines: 1, 0.6, -1 and 0, 0.8, 0. Row maxima 1 and 0.8; column maxima 1, 0.8 and 0.
    one, other = 0.9, 0.6
    scores = bertscore(first, second, there(2, longest=2), there(3, longest=3))
    assert scores.tolist() == pytest.approx([2 * one * other / (one + other)])


def test_tokens_that_are_not_counted_can_still_be_the_nearest():
    first = torch.tensor([[[2.0, 0.0], [0.0, 3.0]]])
    second = torch.tensor([[[1.0, 0.0], [3.0, 4.0], [-1.0, 0.0]]])
    counted = torch.tensor([[True, False]]), torch.tensor([[False, True, True]])
    scores = bertscore(first, second, there(2, longest=2), there(3, longest=3), *counted)
    one, other = 1.0, 0.4  # 0.8 and 0 by way of the first text's second token and its first
    assert scores.tolist() == pytest.approx([2 * one * other / (one + other)])


def test_means_that_add_up_to_nothing_give_nothing():
    first, second = torch.tensor([[[1.0, 0.0]]]), torch.tensor([[[0.0, 1.0]]])
    assert bertscore(first, second, there(1, longest=1), there(1, longest=1)).tolist() == [0.0]


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="expected"):
        bertscore(torch.ones(1, 2, 3), torch.ones(1, 2, 4), there(2, longest=2), there(2, longest=2))
    with pytest.raises(ValueError, match="expected"):
        bertscore(torch.ones(1, 2, 3), torch.ones(1, 2, 3), there(2, longest=3), there(2, longest=2))


def slowly(first, second):
    """One pair, by loops."""

    def cosine(u, v):
        return float(np.dot(u, v) / (np.linalg.norm(u) * np.linalg.norm(v)))

    one = np.mean([max(cosine(u, v) for v in second) for u in first])
    other = np.mean([max(cosine(u, v) for u in first) for v in second])
    return 2 * one * other / (one + other)


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=4),
    st.integers(1, 3),
    st.integers(0, 99),
)
def test_several_layers_and_padding_change_nothing(lengths, layers, seed):
    rng = np.random.default_rng(seed)
    shape = layers, len(lengths), 5, 3
    # Padding is as large as can be: it shall not be looked at.
    first, second = (torch.from_numpy(rng.random(shape)).float() for _ in range(2))
    masks = [there(*counts, longest=5) for counts in zip(*lengths, strict=True)]
    scores = bertscore(first, second, *masks)
    for layer in range(layers):
        for pair, (a, b) in enumerate(lengths):
            expected = slowly(first[layer, pair, :a].numpy(), second[layer, pair, :b].numpy())
            assert float(scores[layer, pair]) == pytest.approx(expected, abs=1e-5)


def test_scores_of_pairs_are_those_of_each_alone_by_each_layer(tiny_bert):
    encoder = load_token_encoder(str(tiny_bert), device="cpu")
    scores = BertScorer(encoder).scores([Paraphrase(*pair, None) for pair in PAIRS], [0, 2])
    assert scores.shape == (3, 2)
    for row, (first, second) in enumerate(PAIRS):
        states = [
            encoder.model(**encoder.features([text]), output_hidden_states=True) for text in (first, second)
        ]
        for column, layer in enumerate((0, 2)):
            vectors = [output.hidden_states[layer][0].detach().numpy() for output in states]
            assert scores[row, column] == pytest.approx(slowly(*vectors), abs=1e-5)
    assert scores[1] == pytest.approx([1.0, 1.0], abs=1e-6)  # a text and itself


def test_without_special_tokens_begin_and_end_do_not_count(tiny_bert):
    encoder = load_token_encoder(str(tiny_bert), device="cpu")
    first, second = PAIRS[0]
    scores = BertScorer(encoder, special_tokens=False).scores([Paraphrase(first, second, None)], [1])
    states = [
        encoder.model(**encoder.features([text]), output_hidden_states=True).hidden_states[1][0].detach()
        for text in (first, second)
    ]
    a, b = (torch.nn.functional.normalize(state, dim=-1) for state in states)
    cosines = a @ b.T
    one, other = cosines.amax(dim=1)[1:-1].mean(), cosines.amax(dim=0)[1:-1].mean()
    assert scores[0, 0] == pytest.approx(float(2 * one * other / (one + other)), abs=1e-5)


def test_vectors_that_are_not_finite_are_refused(tiny_bert):
    encoder = load_token_encoder(str(tiny_bert), device="cpu")
    with torch.no_grad():
        encoder.model.encoder.layer[1].output.dense.weight.fill_(torch.nan)
    pairs = [Paraphrase(*pair, None) for pair in PAIRS]
    assert BertScorer(encoder).scores(pairs, [1]).shape == (3, 1)
    with pytest.raises(ModelError, match="the encoder gives vectors that are not finite"):
        BertScorer(encoder).scores(pairs, [1, 2])
