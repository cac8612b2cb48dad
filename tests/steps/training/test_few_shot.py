"""The steps train-biencoder and train-crossencoder, on random models."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from tests.conftest import make_bert
from tests.folders import write_folder
from tests.tiny_bart import make_bart
from tests.training.few import MAKERS, PEOPLE, PLAYS, document, passage, write
from tests.training.stopping import Stopped, stopped_at
from transformers import AutoModelForSequenceClassification

from pairsmith.core.errors import FolderError, InputError, ModelError
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.examples import Example
from pairsmith.data.text import entity_finder
from pairsmith.methods.mining.biencoder import BiEncoder, contrastive_row_maker
from pairsmith.methods.mining.crossencoder import negatives_for
from pairsmith.methods.mining.options import CrossencoderOptions
from pairsmith.methods.mining.sampled_negatives import answer_negatives
from pairsmith.methods.mining.style import load_style_classifier
from pairsmith.methods.quip.training_options import TeacherOptions
from pairsmith.models.cross_encoder import load_cross_encoder, score_pairs
from pairsmith.models.encode import encode_texts
from pairsmith.runs import DatasetFolder, Run
from pairsmith.steps.corpora.encoded import encoded_schema
from pairsmith.steps.mine.route import mine
from pairsmith.steps.mine.settings import MineSettings
from pairsmith.steps.training.biencoder import train_biencoder
from pairsmith.steps.training.crossencoder import retrieved, train_crossencoder
from pairsmith.steps.training.reader import train_reader
from pairsmith.steps.training.reading import read_question_seeds, read_seeds, read_validation_questions
from pairsmith.steps.training.settings import (
    TrainBiencoderSettings,
    TrainCrossencoderSettings,
    TrainReaderSettings,
    TrainSummarizerSettings,
)
from pairsmith.steps.training.summarizer import train_summarizer
from pairsmith.training.best_step import BestStepCallback
from pairsmith.training.contrastive import side_features, side_vectors

pytestmark = pytest.mark.slow

FAST = {
    "steps": 12,
    "batch_size": 4,
    "learning_rate": 3e-3,
    "eval_steps": 4,
    "checkpoint_steps": 4,
    "device": "cpu",
}


@pytest.fixture
def corpora(tmp_path):
    """Corpora in which may be mined: inputs and outputs of each kind."""
    questions = [f"where is the {play}?" for play in PLAYS] + [f"who plays the {play}?" for play in PLAYS]
    write(tmp_path / "questions.jsonl", [{"question": text} for text in questions])
    write(tmp_path / "passages.jsonl", [{"text": passage(n)} for n in range(12)])
    write(
        tmp_path / "documents.jsonl",
        [{"document": document(n), "day": f"2020-01-0{1 + n % 3}"} for n in range(12)],
    )
    return tmp_path


def biencoder(folder, base, kind="reading", **changes):
    seeds = MAKERS[kind](folder / "seeds.jsonl", range(8))
    validation = MAKERS[kind](folder / "validation.jsonl", range(8, 12))
    inputs, outputs = {
        "reading": ("questions.jsonl", "passages.jsonl"),
        "summaries": ("documents.jsonl", "documents.jsonl"),
        "pairs": ("questions.jsonl", "passages.jsonl"),
    }[kind]
    return TrainBiencoderSettings(
        base=str(base),
        kind=kind,
        **{
            "seeds": seeds,
            "validation": validation,
            **({"inputs": str(folder / inputs)} if kind == "reading" else {}),
            "outputs": str(folder / outputs),
            **FAST,
            **changes,
        },
    )


def weights(folder):
    return {path.relative_to(folder): load_file(path) for path in sorted(folder.rglob("*.safetensors"))}


def same_weights(one, other):
    a, b = weights(one), weights(other)
    assert a.keys() == b.keys()
    return all(torch.equal(a[file][name], b[file][name]) for file in a for name in a[file])


@pytest.fixture(scope="module")
def tiny_bart(tmp_path_factory):
    """With an encoder and a decoder, whose last token is what its head for classification sees."""
    return make_bart(tmp_path_factory.mktemp("bases") / "bart", max_position_embeddings=128)


@pytest.mark.parametrize(("base", "width"), [("tiny_bert", 16), ("tiny_bart", 32)])
@pytest.mark.parametrize("kind", ["reading", "summaries", "pairs"])
def test_a_bi_encoder_of_each_kind(kind, base, width, corpora, request):
    model = request.getfixturevalue(base)
    train_biencoder(biencoder(corpora, model, kind), Run(corpora / "out", Silent()))
    encoder = SentenceTransformer(str(corpora / "out"), device="cpu")
    assert encoder.encode_query(["who?"]).shape == (1, width)
    record = json.loads((corpora / "out/training.json").read_text())
    assert [point["step"] for point in record["validation"]] == [0, 4, 8, 12]
    assert all(0 <= point["accuracy"] <= 100 for point in record["validation"])
    assert (load_style_classifier(str(corpora / "out")) is None) == (kind == "pairs")
    assert "| seeds | 8 |" in (corpora / "out/README.md").read_text()


def test_training_brings_pairs_together_and_tells_the_style(corpora, tiny_bert):
    given = biencoder(corpora, tiny_bert, steps=60, validation=None, learning_rate=1e-2)
    train_biencoder(given, Run(corpora / "out", Silent()))
    encoder = SentenceTransformer(str(corpora / "out"), device="cpu")
    x = encoder.encode([f"who plays the {play}?" for play in PLAYS[:8]])
    y = encoder.encode([f"{PEOPLE[n]}: {passage(n)}" for n in range(8)])
    right = (torch.from_numpy(x) @ torch.from_numpy(y).T).argmax(dim=1) == torch.arange(8)
    before = SentenceTransformer(str(tiny_bert), device="cpu")
    x, y = (torch.nn.functional.normalize(torch.tensor(before.encode(t))) for t in (
        [f"who plays the {play}?" for play in PLAYS[:8]], [f"{PEOPLE[n]}: {passage(n)}" for n in range(8)]
    ))  # fmt: skip
    was_right = (x @ y.T).argmax(dim=1) == torch.arange(8)
    assert right.sum() > was_right.sum()
    style = load_style_classifier(str(corpora / "out"))
    who = style.probability(encoder.encode([f"who plays the {play}?" for play in PLAYS]))
    where = style.probability(encoder.encode([f"where is the {play}?" for play in PLAYS]))
    assert np.mean(who) > np.mean(where) + 0.2


def test_two_towers(corpora, tiny_bert):
    train_biencoder(biencoder(corpora, tiny_bert, towers="two"), Run(corpora / "out", Silent()))
    encoder = SentenceTransformer(str(corpora / "out"), device="cpu")
    assert not np.allclose(encoder.encode_query(["who?"]), encoder.encode_document(["who?"]))
    mine(
        MineSettings(
            kind="reading",
            inputs=str(corpora / "questions.jsonl"),
            outputs=str(corpora / "passages.jsonl"),
            encoder=str(corpora / "out"),
            max_length=32,
            style=0,
        ),
        Run(corpora / "mined", Silent()),
    )


@pytest.mark.parametrize(
    ("step", "nth"),
    [pytest.param(3, 1, marks=pytest.mark.long), pytest.param(9, 1, marks=pytest.mark.long), (6, 2)],
)
def test_a_stopped_training_at_two_rates_goes_on_to_the_same_weights(
    corpora, tiny_bert, monkeypatch, step, nth, capsys
):
    given = biencoder(corpora, tiny_bert, learning_rate=[1e-3, 3e-3])
    train_biencoder(given, Run(corpora / "whole", Silent()))
    with monkeypatch.context() as patch:
        stopped_at(patch, step, nth)
        with pytest.raises(Stopped):
            train_biencoder(given, Run(corpora / "stopped", Silent()))
    begun = []
    real = BestStepCallback.on_step_end

    def counting(self, args, state, control, **kwargs):
        begun.append(state.global_step)
        real(self, args, state, control, **kwargs)

    monkeypatch.setattr(BestStepCallback, "on_step_end", counting)
    train_biencoder(given, Run(corpora / "stopped", Progress()))
    assert len(begun) == {(3, 1): 24, (9, 1): 4 + 12, (6, 2): 8}[step, nth]
    assert same_weights(corpora / "whole", corpora / "stopped")
    assert "learning rate 0.001: best step" in capsys.readouterr().err
    assert not list((corpora / "stopped").glob(".pairsmith*"))


@pytest.fixture
def mined(corpora, tiny_bert):
    settings = MineSettings(
        kind="reading",
        inputs=str(corpora / "questions.jsonl"),
        outputs=str(corpora / "passages.jsonl"),
        encoder=str(tiny_bert),
        dtype="float32",
    )
    mine(settings, Run(corpora / "mined", Silent()))
    return corpora


def crossencoder(folder, base, kind="reading", **changes):
    return TrainCrossencoderSettings(
        base=str(base),
        kind=kind,
        **{
            "seeds": MAKERS[kind](folder / "seeds.jsonl", range(8)),
            "validation": MAKERS[kind](folder / "validation.jsonl", range(8, 12)),
            **({"retrieved": 5} if "mined" in changes else {}),
            **FAST,
            **changes,
        },
    )


@pytest.mark.parametrize("base", ["tiny_bert", "tiny_bart", "tiny_llama"])
@pytest.mark.parametrize("loss", ["binary", "listwise"])
def test_a_cross_encoder_with_what_the_search_found(mined, tiny_bert, base, loss, request):
    model = request.getfixturevalue(base)
    given = crossencoder(mined, model, mined=str(mined / "mined"), encoder=str(tiny_bert), loss=loss)
    train_crossencoder(given, Run(mined / "out", Silent()))
    assert AutoModelForSequenceClassification.from_pretrained(mined / "out").config.num_labels == 1
    cross = load_cross_encoder(str(mined / "out"), device="cpu")
    outputs = [f"{PEOPLE[n]}: {passage(n)}" for n in range(8)]
    inputs = [f"who plays the {play}?" for play in PLAYS[:8]]
    together = score_pairs(cross, inputs, outputs)
    one_by_one = [score_pairs(cross, [x], [y])[0] for x, y in zip(inputs, outputs, strict=True)]
    assert together == pytest.approx(one_by_one, abs=1e-5)


@pytest.mark.parametrize("base", ["tiny_bert", "tiny_llama"])
def test_pairs_are_judged_at_the_length_at_which_they_were_learned(mined, base, request):
    given = crossencoder(mined, request.getfixturevalue(base), steps=1, max_length=16)
    train_crossencoder(given, Run(mined / "out", Silent()))
    cross = load_cross_encoder(str(mined / "out"), device="cpu")
    assert cross.token_counts([passage(0) * 5], [passage(1) * 5]) == [16]
    assert load_cross_encoder(str(mined / "out"), device="cpu", max_length=20).max_length == 20


@pytest.mark.parametrize("base", ["tiny_bert", "tiny_llama"])
def test_what_the_card_says_to_do_scores_a_pair_as_here(mined, base, request, capsys):
    train_crossencoder(crossencoder(mined, request.getfixturevalue(base)), Run(mined / "out", Silent()))
    code = re.search(r"```python\n(.*?)```", (mined / "out/README.md").read_text(), re.DOTALL)[1]
    exec(code.replace("path/to/this/folder", str(mined / "out")), {})
    pair = "Who wrote Hamlet?", "Shakespeare: Hamlet is a play by Shakespeare."
    score = score_pairs(load_cross_encoder(str(mined / "out"), device="cpu"), [pair[0]], [pair[1]])[0]
    assert float(capsys.readouterr().out.strip(" []\n")) == pytest.approx(score, abs=1e-5)


def test_the_outputs_of_another_encoder_are_refused(mined, tiny_bert, tmp_path):
    other = make_bert(tmp_path / "other", seed=5)
    given = crossencoder(mined, tiny_bert, mined=str(mined / "mined"), encoder=str(other))
    with pytest.raises(ModelError, match="was encoded by another model"):
        train_crossencoder(given, Run(mined / "out", Silent()))


def test_a_folder_without_the_vectors_of_the_outputs_is_refused(tiny_bert, tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    given = crossencoder(tmp_path, tiny_bert, mined=str(kept), encoder=str(tiny_bert))
    with pytest.raises(FolderError, match="kept has no folder outputs .*; give the folder that mine wrote"):
        train_crossencoder(given, Run(tmp_path / "out", Silent()))


def test_training_puts_the_encoders_prompts_before_texts(corpora, tiny_bert):
    encoder = SentenceTransformer(
        str(tiny_bert), device="cpu", prompts={"query": "ask: ", "document": "text: "}
    )
    model = BiEncoder(encoder, scale=20, style=None, style_weight=0).eval()
    with torch.no_grad():
        vectors = side_vectors(
            model.encoder, side_features(model.encoder, ["who plays?", "it is"], "query"), "query"
        )
    expected = encode_texts(encoder, ["who plays?", "it is"], side="query")
    assert vectors.numpy() == pytest.approx(expected, abs=1e-5)
    assert expected != pytest.approx(
        encode_texts(encoder, ["who plays?", "it is"], side="document"), abs=1e-3
    )


def test_without_validation_the_first_rate_is_kept_and_that_is_said(corpora, tiny_bert, capsys):
    given = biencoder(corpora, tiny_bert, learning_rate=[1e-3, 2e-3], validation=None, steps=1)
    train_biencoder(given, Run(corpora / "out", Progress()))
    said = capsys.readouterr().err
    first = said.index("without validation examples the first of the 2 learning rates is kept, however well")
    assert first < said.index("learning rate 0.001: ")
    assert "no validation figure to choose a learning rate by" not in said  # which would say it again


def test_shortened_vectors_and_what_looks_like_a_special_token(tiny_bert):
    encoder = SentenceTransformer(str(tiny_bert), device="cpu", truncate_dim=8)
    assert encode_texts(encoder, ["a", "b c"]).shape == (2, 8)
    cross = load_cross_encoder(str(tiny_bert), device="cpu", fresh_head=True)
    assert np.isfinite(score_pairs(cross, ["a [SEP] b"], ["[CLS] c"])).all()
    special = cross.tokenizer.sep_token_id
    assert (cross.features(["a [SEP] b"], ["c"])["input_ids"] == special).sum() == 2
    assert score_pairs(cross, [], []).shape == (0,)


def test_a_cross_encoder_learns_what_is_right(mined, tiny_bert):
    given = crossencoder(mined, tiny_bert, steps=80, learning_rate=1e-2, validation=None)
    train_crossencoder(given, Run(mined / "out", Silent()))
    cross = load_cross_encoder(str(mined / "out"), device="cpu")
    inputs = [f"who plays the {play}?" for play in PLAYS[:8]]
    right = score_pairs(cross, inputs, [f"{PEOPLE[n]}: {passage(n)}" for n in range(8)])
    wrong = score_pairs(cross, inputs, [f"Rome: {passage(n)}" for n in range(8)])
    assert (right > wrong).mean() >= 0.75


def test_a_cross_encoder_learns_the_scores_that_people_gave(tmp_path, tiny_bert, monkeypatch):
    def scored(name, numbers):
        rows = [
            {"sentence1": f"the {PLAYS[n % 12]}", "sentence2": f"a {PLAYS[(n + step) % 12]}", "score": score}
            for n in numbers
            for step, score in ((0, 1.0), (1, 0.0))
        ]
        write(tmp_path / name, rows)
        return str(tmp_path / name)

    given = TrainCrossencoderSettings(
        kind="scored",
        seeds=scored("seeds.jsonl", range(8)),
        validation=scored("seeds.jsonl", range(8)),
        base=str(tiny_bert),
        **{**FAST, "steps": 80, "eval_steps": 20, "learning_rate": 1e-2},
    )
    train_crossencoder(given, Run(tmp_path / "out", Silent()))
    curve = json.loads((tmp_path / "out" / "training.json").read_text())["validation"]
    assert curve[0]["Spearman"] < 50 < 80 < curve[-1]["Spearman"] <= 100
    write(tmp_path / "five.jsonl", [{"sentence1": "a", "sentence2": "b", "score": 5}])
    with pytest.raises(
        InputError, match=r"five.jsonl:\d: the score is 5; scores have to lie between 0 .* divide"
    ):
        train_crossencoder(
            given.model_copy(update={"seeds": str(tmp_path / "five.jsonl")}), Run(tmp_path / "no", Silent())
        )


def test_a_cross_encoder_of_summaries_learns_from_a_search(mined, corpora, tiny_bert):
    settings = MineSettings(
        kind="summaries",
        inputs=str(corpora / "documents.jsonl"),
        outputs=str(corpora / "documents.jsonl"),
        encoder=str(tiny_bert),
    )
    mine(settings, Run(corpora / "news", Silent()))
    given = crossencoder(mined, tiny_bert, "summaries", mined=str(mined / "news"), encoder=str(tiny_bert))
    train_crossencoder(given, Run(mined / "out", Silent()))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mined": "m"}, "mined and --encoder have to be given together"),
        ({"encoder": "e"}, "mined and --encoder have to be given together"),
        ({"kind": "summaries"}, "mined is missing"),
        ({"kind": "scored", "loss": "listwise"}, "loss listwise is for positives and negatives"),
        ({"kind": "scored", "mined": "m", "encoder": "e"}, "mined is for positives and negatives"),
        ({"kind": "scored", "negatives": 5}, "negatives has no effect with kind scored"),
        ({"window": 60}, "window has no effect with --kind pairs"),
        ({"retrieved": 5}, "retrieved has no effect without mined"),
    ],
)
def test_settings_that_do_not_go_together_are_told_before_anything_runs(changes, message):
    with pytest.raises(ValidationError, match=message):
        TrainCrossencoderSettings(seeds="s", base="b", **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inputs": "i"}, "inputs has no effect with --kind pairs"),
        ({"style_weight": 2.0}, "style_weight has no effect with kind pairs"),
        ({"kind": "summaries", "inputs": "i"}, "inputs has no effect with --kind summaries"),
        ({"kind": "summaries", "answers": "spacy:m"}, "answers has no effect with kind summaries"),
        ({"negatives": 2}, "negatives has no effect without outputs"),
        ({"batch_size": 1}, "batch_size 1 leaves a pair without negatives"),
        ({"batch_size": 1, "outputs": "o", "negatives": 0}, "batch_size 1 leaves a pair without negatives"),
        (
            {"batch_size": 1, "kind": "reading", "negatives": 0},
            "batch_size 1 leaves a pair without negatives",
        ),
    ],
)
def test_settings_that_would_do_nothing_are_told(changes, message):
    with pytest.raises(ValidationError, match=message):
        TrainBiencoderSettings(seeds="s", base="b", **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"style": 0.9}, "style has no effect with --kind pairs"),
        ({"kind": "summaries", "window": 60}, "window has no effect with --kind summaries"),
        ({"kind": "reading", "min_sentences": 2}, "min_sentences has no effect with --kind reading"),
        ({"recall": 0.9}, "recall has no effect without index"),
    ],
)
def test_settings_of_mining_that_would_do_nothing_are_told(changes, message):
    with pytest.raises(ValidationError, match=message):
        MineSettings(inputs="i", outputs="o", encoder="e", **changes)


def test_a_batch_of_one_has_the_wrong_outputs_of_the_corpus():
    TrainBiencoderSettings(seeds="s", base="b", batch_size=1, outputs=["o"])
    TrainBiencoderSettings(seeds="s", base="b", batch_size=1, kind="reading")


def test_what_is_turned_off_may_be_said():
    TrainBiencoderSettings(seeds="s", base="b", style_weight=0, negatives=0)
    MineSettings(inputs="i", outputs="o", encoder="e", style=0)


TWO_ANSWERS = [
    Example("q", "Ann: Ann met Bob Lee.", "Ann met Bob Lee.", "Ann", 0),
    Example("q", "Bob Lee: Ann met Bob Lee.", "Ann met Bob Lee.", "Bob Lee", 8),
    Example("r", "Cid: Cid is away.", "Cid is away.", "Cid", 0),
]


def test_what_is_right_of_the_same_input_is_not_drawn_as_wrong(monkeypatch):
    pairs = [Example("q", "a"), Example("q", "b"), Example("r", "c")]
    given = CrossencoderOptions(base="b", negatives=4)
    wrong = negatives_for(pairs, [["a", "b", "c", "d"]] * 3, given)
    assert {*wrong(0, np.random.default_rng(0))} == {"c", "d"}
    assert {*wrong(2, np.random.default_rng(0))} == {"a", "b", "d"}
    draw = contrastive_row_maker(pairs, lambda *_: ["b"], ())
    monkeypatch.setattr("pairsmith.methods.mining.biencoder.side_features", lambda _, texts, side: texts)
    model = SimpleNamespace(encoder=None, side=None)
    batch = BiEncoder.batch(model, [draw(number, 0, np.random.default_rng(0)) for number in range(3)])
    assert batch["outputs"] == ["a", "b", "c", "b", "b", "b"]
    assert batch["same"].int().tolist() == [[1, 1, 0, 1, 1, 1], [1, 1, 0, 1, 1, 1], [0, 0, 1, 0, 0, 0]]
    draw = answer_negatives(TWO_ANSWERS, (), entity_finder("rule"), 5)
    assert not [text for text in draw(0, np.random.default_rng(0)) if text.endswith("Ann met Bob Lee.")]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_what_the_search_found_is_wrong_once_and_never_right(tmp_path, tiny_bert, dtype):
    passage_, far = "Ann met Bob Lee.", "Bob was there."
    texts = [
        ("Ann", passage_), ("Bob", passage_), ("Lee", passage_), ("met", passage_), ("Bob", far), ("Ann", far),
        *[("there", far)] * 20,
    ]  # fmt: skip
    vector = [1.0] + [0.0] * 15
    rows = [
        {"id": f"{n}", "text": f"{answer}: {context}", "group": "", "context": context, "answer": answer,
         "answer_start": 0, "vector": [component * (1 - n * 1e-3) for component in vector]}
        for n, (answer, context) in enumerate(texts)
    ]  # fmt: skip
    shards = (pa.Table.from_pylist(some, encoded_schema(dtype)) for some in (rows[:10], rows[10:]))
    folder = write_folder(tmp_path / "outputs", *({"train": shard} for shard in shards), step="encode")
    encoder = SentenceTransformer(str(tiny_bert), device="cpu")
    negatives = retrieved(TWO_ANSWERS, folder, encoder, 3)
    assert sorted(negatives[0]) == [f"Bob: {far}", f"met: {passage_}", f"there: {far}"]
    assert negatives[0] == negatives[1]


def test_a_documents_own_sentences_are_no_hard_negatives(tmp_path, tiny_bert):
    own = [f"Ann saw {play}." for play in PLAYS]
    seed = Example(" ".join(own), "People like plays.")
    texts = [*own, seed.output, "Bob saw nothing.", "It rained all day."]
    rows = [
        {"id": f"{n}", "text": text, "group": "", "context": None, "answer": None, "answer_start": None,
         "vector": [1.0] + [0.0] * 15}
        for n, text in enumerate(texts)
    ]  # fmt: skip
    table = pa.Table.from_pylist(rows, encoded_schema("float32"))
    folder = write_folder(tmp_path / "outputs", {"train": table}, step="encode")
    encoder = SentenceTransformer(str(tiny_bert), device="cpu")
    (negatives,) = retrieved([seed], folder, encoder, 5)
    assert sorted(negatives) == ["Bob saw nothing.", "It rained all day."]


def test_a_stopped_cross_encoder_goes_on_to_the_same_weights(mined, tiny_bert, monkeypatch):
    given = crossencoder(mined, tiny_bert, mined=str(mined / "mined"), encoder=str(tiny_bert))
    train_crossencoder(given, Run(mined / "whole", Silent()))
    with monkeypatch.context() as patch:
        stopped_at(patch, 6)
        with pytest.raises(Stopped):
            train_crossencoder(given, Run(mined / "stopped", Silent()))
    train_crossencoder(given, Run(mined / "stopped", Silent()))
    assert same_weights(mined / "whole", mined / "stopped")


def test_pairs_without_a_search_and_a_head_that_is_there(corpora, tiny_bert):
    train_crossencoder(crossencoder(corpora, tiny_bert, "pairs"), Run(corpora / "one", Silent()))
    train_crossencoder(
        crossencoder(corpora, corpora / "one", "pairs", steps=1, learning_rate=1e-9),
        Run(corpora / "two", Silent()),
    )
    one, two = (load_file(corpora / name / "model.safetensors") for name in ("one", "two"))
    assert torch.allclose(one["classifier.weight"], two["classifier.weight"], atol=1e-6)  # it went on
    with pytest.raises(ModelError, match="has no head for classification"):
        load_cross_encoder(str(tiny_bert), device="cpu")


def test_the_same_training_is_not_done_again_and_another_is_refused(corpora, tiny_bert, capsys):
    train_biencoder(biencoder(corpora, tiny_bert), Run(corpora / "out", Silent()))
    train_biencoder(biencoder(corpora, tiny_bert), Run(corpora / "out", Progress()))
    assert "nothing to do" in capsys.readouterr().err
    with pytest.raises(FolderError, match="scale: 20"):
        train_biencoder(biencoder(corpora, tiny_bert, scale=1.0), Run(corpora / "out", Silent()))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [{"question": "who?", "context": " ", "answers": {"text": ["a"], "answer_start": [0]}}],
            "context is blank",
        ),
        ([{"question": "who?", "answers": []}], "no column 'context'"),
        (
            [{"question": "who?", "context": "Ann.", "answers": {"text": ["Ann"], "answer_start": [0]}}],
            "two or more",
        ),
        (
            [{"question": "who?", "context": "Ann.", "answers": {"text": ["Bob"], "answer_start": [0]}}],
            "does not occur",
        ),
    ],
)
def test_seeds_that_cannot_be_used_are_said(corpora, tiny_bert, rows, message):
    seeds = write(corpora / "bad.jsonl", rows)
    with pytest.raises(InputError, match=message):
        train_biencoder(biencoder(corpora, tiny_bert, seeds=seeds), Run(corpora / "out", Silent()))


def test_few_seeds_are_said_and_the_same_seed_counts_once(corpora, tiny_bert, capsys):
    given = biencoder(corpora, tiny_bert, seeds=MAKERS["reading"](corpora / "few.jsonl", [0, 1, 1, 0]))
    train_biencoder(given, Run(corpora / "out", Progress()))
    said = capsys.readouterr().err
    assert "2 of 4 seeds are duplicates and are left out" in said
    assert "only 2 seeds" in said
    card = (corpora / "out/README.md").read_text()
    assert "| seeds | 2 |\n| duplicate seeds left out | 2 |" in card


@pytest.mark.parametrize("trains", ["biencoder", "reader"])
def test_seeds_without_an_answer_are_counted(corpora, tiny_bert, trains, capsys):
    seeds = MAKERS["reading"](corpora / "some.jsonl", [0, 1, 2, 3])
    rows = [json.loads(line) for line in Path(seeds).read_text().splitlines()]
    rows[2]["answers"] = {"text": [], "answer_start": []}
    write(Path(seeds), rows)
    out = corpora / "out"
    if trains == "biencoder":
        train_biencoder(biencoder(corpora, tiny_bert, seeds=str(seeds)), Run(out, Progress()))
    else:
        given = TrainReaderSettings(
            seeds=str(seeds), base=str(tiny_bert), steps=1, batch_size=2, device="cpu"
        )
        train_reader(given, Run(out, Progress()))
    assert "1 of 4 seeds has no answer and is left out" in capsys.readouterr().err
    assert "| seeds | 3 |\n| seeds without an answer left out | 1 |" in (out / "README.md").read_text()


@pytest.mark.parametrize("name", ["biencoder", "crossencoder"])
def test_validation_questions_without_an_answer_are_counted(tmp_path, tiny_bert, name, capsys):
    train, model, _ = TWICE[name]
    validation = Path(MAKERS["reading"](tmp_path / "validation.jsonl", [0, 1, 1, 2]))
    rows = [json.loads(line) for line in validation.read_text().splitlines()]
    write(validation, [*rows[:3], {**rows[3], "answers": {"text": [], "answer_start": []}}])
    seeds = MAKERS["reading"](tmp_path / "seeds.jsonl", [3, 4])
    given = model(
        base=str(tiny_bert),
        seeds=str(seeds),
        validation=str(validation),
        kind="reading",
        steps=1,
        device="cpu",
    )
    train(given, Run(tmp_path / "out", Progress()))
    assert "1 of 4 validation questions has no answer and is left out" in capsys.readouterr().err


TWICE = {
    "biencoder": (train_biencoder, TrainBiencoderSettings, "pairs"),
    "crossencoder": (train_crossencoder, TrainCrossencoderSettings, "pairs"),
    "reader": (train_reader, TrainReaderSettings, "reading"),
    "summarizer": (train_summarizer, TrainSummarizerSettings, "summaries"),
}


@pytest.mark.parametrize("name", TWICE)
def test_a_seed_that_stands_there_twice_counts_once_for_every_training(name, tmp_path, tiny_bert, capsys):
    train, model, kind = TWICE[name]
    base = make_bart(tmp_path / "bart") if name == "summarizer" else tiny_bert
    for file, numbers in {"once": [0, 1, 2], "twice": [0, 1, 0, 2, 1]}.items():
        seeds = MAKERS[kind](tmp_path / f"{file}.jsonl", numbers)
        given = model(base=str(base), seeds=seeds, steps=2, batch_size=2, device="cpu")
        train(given, Run(tmp_path / file, Progress()))
        said, card = capsys.readouterr().err, (tmp_path / file / "README.md").read_text()
        assert ("2 of 5 seeds are duplicates" in said) == (file == "twice")
        assert ("| duplicate seeds left out | 2 |" in card) == (file == "twice")
        assert "only 3 seeds" in said
        assert "| seeds | 3 |" in card
    assert same_weights(tmp_path / "once", tmp_path / "twice")


def test_questions_are_the_same_by_their_text_passage_and_answers(tmp_path):
    rows = [
        {
            "id": str(n),
            "question": question,
            "context": "Ann and Bob.",
            "answers": {"text": [gold], "answer_start": [at]},
        }
        for n, (question, gold, at) in enumerate(
            [("who?", "Ann", 0), ("who?", "Bob", 8), ("who?", "Ann", 0), ("Who?", "Ann", 0)]
        )
    ]
    seeds = read_question_seeds(write(tmp_path / "seeds.jsonl", rows))
    assert [example.id for example in seeds.examples] == ["0", "1", "3"]
    assert seeds.repeated == 1


@pytest.mark.parametrize("read", [read_question_seeds, read_validation_questions])
def test_a_reader_is_told_all_faulty_rows_at_once(tmp_path, read):
    rows = [
        {"question": "who?", "context": "Ann and Bob.", "answers": gold} for gold in ("Eve", "Ann", "Kim")
    ]
    with pytest.raises(InputError, match=r"2 of 3 rows have a fault:\nseeds.jsonl:1: (.*)\nseeds.jsonl:3: "):
        read(write(tmp_path / "seeds.jsonl", rows))


def test_a_summary_that_is_missing_is_said(corpora, tiny_bert):
    seeds = write(
        corpora / "bad.jsonl", [{"document": "One. Two.", "summary": "x"}, {"document": "A.", "summary": ""}]
    )
    with pytest.raises(InputError, match=r"bad.jsonl:2: the summary is blank"):
        train_biencoder(
            biencoder(corpora, tiny_bert, "summaries", seeds=seeds), Run(corpora / "out", Silent())
        )


def test_the_folder_of_the_outputs_is_what_mine_left(mined):
    assert DatasetFolder.open(mined / "mined" / "outputs").table().num_rows > 12


def test_steps_are_given_or_follow_from_the_times_through_the_examples():
    few = CrossencoderOptions(base="b", steps=7, batch_size=4)
    assert few.steps_of(100) == 7
    many = TeacherOptions(base="b", epochs=1.5, batch_size=4)
    assert [many.steps_of(count) for count in (1, 8, 9, 100)] == [1, 3, 4, 38]
    assert many.model_copy(update={"max_steps": 10}).steps_of(100) == 10


SCORED = [
    *(
        {"sentence1": f"who plays {play}?", "sentence2": f"a part in {play}", "score": 0.9}
        for play in PLAYS[:6]
    ),
    *({"sentence1": f"who plays {play}?", "sentence2": "rain falls", "score": 0.1} for play in PLAYS[:4]),
]


@pytest.mark.parametrize("train", ["biencoder", "crossencoder"])
@pytest.mark.parametrize("column", ["score", "label"])
def test_pairs_scored_low_are_no_positives(corpora, tiny_bert, capsys, train, column):
    rows = [{**row, column: row["score"]} for row in SCORED]
    if column == "label":
        rows = [{name: value for name, value in row.items() if name != "score"} for row in rows]
    seeds = write(corpora / "scored.jsonl", rows)
    given = {"seeds": seeds, "validation": seeds, "base": str(tiny_bert), **FAST, "steps": 1}
    step, model = TWICE[train][:2]
    step(model(**given), Run(corpora / "out", Progress()))
    said = capsys.readouterr().err
    assert "4 of 10 pairs have a score below --least-score" in said
    assert "4 of 10 validation pairs have a score below --least-score and are left out" in said
    card = (corpora / "out/README.md").read_text()
    assert "| seeds | 6 |\n| pairs below the least score left out | 4 |" in card
    assert "| validation examples | 6 |" in card


def test_how_high_a_positive_is_scored_can_be_set(corpora, tiny_bert):
    seeds = write(corpora / "scored.jsonl", SCORED)
    assert len(read_seeds(seeds, "pairs", 0.05).examples) == 10
    assert {pair.score for pair in read_seeds(seeds, "pairs", 0.05).examples} == {1.0}
    with pytest.raises(InputError, match=r"none of the 10 pairs has a score of 0.95 or more.*--least-score"):
        read_seeds(seeds, "pairs", 0.95)
    high = write(corpora / "high.jsonl", [{**row, "score": 5 * row["score"]} for row in SCORED])
    with pytest.raises(InputError, match=r"high.jsonl.*the score is 4.5.*between 0 and 1"):
        read_seeds(high, "pairs", 0.7)
    named = write(corpora / "named.jsonl", [{**SCORED[0], "score": "entailment"}])
    with pytest.raises(InputError, match="the score is 'entailment', not a number"):
        read_seeds(named, "pairs", 0.7)
    capital = write(corpora / "capital.jsonl", [{k.title(): v for k, v in row.items()} for row in SCORED])
    assert len(read_seeds(capital, "pairs", 0.7).examples) == 6
    lacking = write(corpora / "lacking.jsonl", [SCORED[0], {"sentence1": "a", "sentence2": "b"}])
    with pytest.raises(InputError, match="the score is 'None'"):
        read_seeds(lacking, "pairs", 0.7)
    mined = write(corpora / "mined.jsonl", [{"input": "who?", "output": "he", "score": 0.2, "margin": 1.1}])
    assert [pair.score for pair in read_seeds(mined, "pairs", 0.7).examples] == [1.0]  # a program's, no grade
    with pytest.raises(ValidationError, match="least_score"):
        biencoder(corpora, tiny_bert, least_score=0.5)


@pytest.mark.parametrize("rates", [[1e-12], [0.9, 0.8]])
def test_a_base_that_is_better_than_every_step_is_kept_when_asked(corpora, tiny_bert, capsys, rates):
    given = {"learning_rate": rates, "steps": 4, "eval_steps": 2}
    train_biencoder(biencoder(corpora, tiny_bert, keep_base=True, **given), Run(corpora / "out", Progress()))
    assert "the base, as no step was better: validation accuracy" in capsys.readouterr().err
    assert json.loads((corpora / "out/training.json").read_text())["best_step"] == 0
    before, after = (
        SentenceTransformer(str(path), device="cpu").encode(["who plays Hamlet?"])
        for path in (tiny_bert, corpora / "out")
    )
    assert np.array_equal(before, after)


def test_without_validation_there_is_nothing_to_keep_the_base_by(corpora, tiny_bert):
    with pytest.raises(ValidationError, match="keep_base"):
        biencoder(corpora, tiny_bert, keep_base=True, validation=None)
