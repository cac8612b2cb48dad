"""The mining route's trainings from Python: examples in, a model out, and no files."""

from dataclasses import replace

import pytest
from tests.heard import Heard

from pairsmith.data.examples import Example
from pairsmith.methods.mining.biencoder import CorpusSample, train_biencoder_on
from pairsmith.methods.mining.crossencoder import train_crossencoder_on
from pairsmith.methods.mining.options import (
    BiencoderOptions,
    CrossencoderOptions,
    ReaderOptions,
    SummarizerOptions,
)
from pairsmith.models.cross_encoder import score_pairs
from pairsmith.models.encode import encode_texts

pytestmark = pytest.mark.slow

PLAYS = ("horn", "lute", "bell", "drum")
SEEDS = [Example(f"who plays the {play}?", f"a {play} was heard") for play in PLAYS]
FAST = {"steps": 2, "batch_size": 2, "device": "cpu"}


def test_a_biencoder_is_trained_on_pairs(tiny_bert):
    options = BiencoderOptions(base=str(tiny_bert), **FAST)
    trained = train_biencoder_on(SEEDS, SEEDS[:2], CorpusSample(outputs=("a dog", "the market")), options)
    assert trained.history.steps == 2
    assert encode_texts(trained.model.encoder, ["who?"], side="query").shape[0] == 1


def test_a_crossencoder_is_trained_on_pairs(tiny_bert):
    options = CrossencoderOptions(base=str(tiny_bert), negatives=1, **FAST)
    trained = train_crossencoder_on(SEEDS, (), None, options)
    assert trained.history.steps == 2
    assert len(score_pairs(trained.model, ["who plays the horn?"], ["a horn was heard"])) == 1


def test_defaults_are_those_of_the_paper_for_squad():
    """M9 and M10; the recipe for XSum gives its own numbers of steps."""
    all_options = (BiencoderOptions, CrossencoderOptions, ReaderOptions, SummarizerOptions)
    assert [options(base="b").steps for options in all_options] == [200, 1_000, 200, 200]
    assert [options(base="b").max_length for options in all_options] == [None] * 4  # texts are read whole


@pytest.mark.parametrize(
    ("options", "given", "message"),
    [
        (BiencoderOptions, {"style_weight": 2.0}, "style_weight has no effect with kind pairs"),
        (BiencoderOptions, {"seeds": "pairs.jsonl"}, "Extra inputs are not permitted"),
        (CrossencoderOptions, {"kind": "scored", "loss": "listwise"}, "loss listwise is for positives"),
        (
            CrossencoderOptions,
            {"kind": "scored", "negatives": 2},
            "negatives has no effect with kind scored",
        ),
    ],
)
def test_options_that_would_do_nothing_are_refused(options, given, message):
    with pytest.raises(ValueError, match=message):
        options(base="b", **given)


@pytest.mark.parametrize(
    ("kind", "validation", "message"),
    [
        ("pairs", SEEDS[:1], "1 validation example cannot choose the best step: none has a negative"),
        ("pairs", [SEEDS[0]] * 3, "3 validation examples cannot choose the best step: none has a negative"),
        (
            "scored",
            SEEDS[:2],
            "2 validation examples cannot choose the best step: Spearman needs two or more",
        ),
        ("pairs", SEEDS[:2], None),
    ],
)
def test_a_crossencoder_says_so_if_validation_cannot_choose_a_step(kind, validation, message, tiny_bert):
    options = CrossencoderOptions(base=str(tiny_bert), kind=kind, eval_steps=1, **FAST)
    heard = Heard()
    trained = train_crossencoder_on(SEEDS, validation, None, options, progress=heard)
    assert [
        line for line in heard.lines if "validation" in line and message and line.startswith(message)
    ] or (message is None and trained.history.validation)
    assert trained.history.best_step == 2 or message is None


@pytest.mark.parametrize(
    ("validation", "corpus", "counted"),
    [
        (SEEDS[:1], CorpusSample(), "1 validation example "),
        ([replace(seed, output="one") for seed in SEEDS[:3]], CorpusSample(), "3 validation examples "),
        ([replace(seed, output="one") for seed in SEEDS[:3]], CorpusSample(outputs=["other"]), ""),
        (SEEDS[:2], CorpusSample(), ""),
        (
            [*(replace(SEEDS[0], output=output) for output in ("a", "b")), replace(SEEDS[1], output="a")],
            CorpusSample(),
            "",
        ),
    ],
)
def test_a_biencoder_says_so_if_validation_cannot_choose_a_step(validation, corpus, counted, tiny_bert):
    options = BiencoderOptions(base=str(tiny_bert), kind="pairs", **FAST)
    heard = Heard()
    trained = train_biencoder_on(SEEDS, validation, corpus, options, progress=heard)
    assert bool(trained.history.validation) == (not counted)
    told = [line for line in heard.lines if "cannot choose the best step: two or more with" in line]
    assert [line.startswith(counted) for line in told] == [True] * bool(counted)
