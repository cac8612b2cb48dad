import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml
from pydantic import ValidationError
from tests.tiny_bart import bart_tokenizer, document, make_bart, summary, weights, write_documents
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from pairsmith.core.errors import FolderError, InputError, MissingExtra, ModelError
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.examples import Example, read_examples
from pairsmith.methods.mining import summarizer
from pairsmith.methods.mining.options import SummarizerOptions
from pairsmith.methods.mining.summarizer import rouge_l, train_summarizer_on
from pairsmith.models.added_tokens import add_marker
from pairsmith.models.text_generator import (
    BEAMS,
    SUMMARY_TOKENS,
    generate_outputs,
    load_text_generator,
)
from pairsmith.runs import Run
from pairsmith.steps.evaluate.settings import EvaluateSummariesSettings
from pairsmith.steps.training.settings import TrainSummarizerSettings
from pairsmith.steps.training.summarizer import added_examples, train_summarizer
from pairsmith.training import chunks
from pairsmith.training.best_step import BestStepCallback
from pairsmith.training.generators import EncoderDecoderWithLoss, generator_rows, sequence_losses

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def bart(tmp_path_factory):
    return make_bart(tmp_path_factory.mktemp("base") / "bart")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Seeds 0 to 3, validation 2 and 3, and mined pairs 4 to 7 with the columns of mine."""
    folder = tmp_path_factory.mktemp("files")
    return {
        "seeds": write_documents(folder / "seeds.jsonl", range(4)),
        "validation": write_documents(folder / "validation.jsonl", (2, 3)),
        "added": write_documents(folder / "added.jsonl", range(4, 8), document="input", summary="output"),
    }


def settings(base, files, *, added=False, validation=False, **rest):
    fast = {"batch_size": 4, "learning_rate": 1e-2, "steps": 8, "eval_steps": 4, "beams": 2, "device": "cpu"}
    sources = {"seeds": files["seeds"]}
    sources |= {"added": files["added"]} if added else {}
    sources |= {"validation": files["validation"]} if validation else {}
    return TrainSummarizerSettings(base=str(base), **(sources | fast | rest))


# What is learned.


@pytest.fixture(scope="module")
def learned(bart, files, tmp_path_factory):
    """Trained until four documents are known by heart; what is measured on two of them says so."""
    out = tmp_path_factory.mktemp("learned") / "summarizer"
    given = settings(
        bart, files, added=True, validation=True, extra=1, steps=150, eval_steps=50, batch_size=5
    )
    train_summarizer(given, Run(out, Silent()))
    return out


def test_a_model_learns_four_documents_by_heart(learned, bart):
    documents, expected = [document(n) for n in range(4)], [summary(n) for n in range(4)]
    assert generate_outputs(load_text_generator(str(learned), device="cpu"), documents) == expected
    assert generate_outputs(load_text_generator(str(bart), device="cpu"), documents) != expected


def test_the_folder_opens_with_transformers_and_writes_as_it_was_measured(learned):
    model = AutoModelForSeq2SeqLM.from_pretrained(learned)
    tokenizer = AutoTokenizer.from_pretrained(learned)
    ids = model.generate(**tokenizer(document(1), return_tensors="pt"))
    assert tokenizer.decode(ids[0], skip_special_tokens=True) == summary(1)
    assert (model.generation_config.num_beams, model.generation_config.max_length) == (2, 62)
    assert model.model.shared.num_embeddings == len(tokenizer) == 331


def test_documents_are_cut_as_they_were_learned_unless_told_otherwise(bart, files, tmp_path):
    train_summarizer(settings(bart, files, max_length=16), Run(tmp_path / "out", Silent()))
    summarizer = load_text_generator(str(tmp_path / "out"), device="cpu")
    assert (summarizer.max_length, summarizer.context) == (16, 64)
    ids = AutoTokenizer.from_pretrained(tmp_path / "out")(document(0) * 9, truncation=True)["input_ids"]
    assert len(ids) == 16  # as the card says
    assert load_text_generator(str(tmp_path / "out"), device="cpu", max_length=64).max_length == 64


def test_the_marker_is_one_special_token_of_the_saved_tokenizer(learned):
    tokenizer = AutoTokenizer.from_pretrained(learned)
    ids = tokenizer("<mined>" + document(4))["input_ids"]
    assert ids[1] == 330
    assert ids[2:] == tokenizer(document(4))["input_ids"][1:]
    assert tokenizer.decode(ids, skip_special_tokens=True) == document(4)


def test_the_record_and_the_card_say_how_it_went(learned):
    record = json.loads((learned / "training.json").read_text())
    assert [point["step"] for point in record["validation"]] == [0, 50, 100, 150]
    assert record["validation"][0]["rougeL"] < 20
    best = next(point for point in record["validation"] if point["step"] == record["best_step"])
    assert best["rougeL"] == 100.0
    assert set(record["inputs"]) == {"seeds", "validation", "added 1"}
    text = (learned / "README.md").read_text()
    _, head, body = text.split("---\n", 2)
    assert yaml.safe_load(head) == {
        "library_name": "transformers",
        "license": "unknown",
        "pipeline_tag": "summarization",
        "tags": ["pairsmith"],
    }
    assert "| seeds | 4 |" in body
    assert "| added examples | 1 |" in body
    assert "| marker before added inputs | `<mined>` |" in body
    assert "chosen by the ROUGE-L (×100)" in body
    assert "AutoModelForSeq2SeqLM" in body


def test_the_step_with_the_best_summaries_is_kept(bart, files, tmp_path):
    given = settings(bart, files, validation=True, steps=12, eval_steps=3)
    train_summarizer(given, Run(tmp_path / "out", Silent()))
    record = json.loads((tmp_path / "out/training.json").read_text())
    kept = load_text_generator(str(tmp_path / "out"), device="cpu")
    figures = {point["step"]: point["rougeL"] for point in record["validation"]}
    best = max(figure for step, figure in figures.items() if step)
    assert figures[record["best_step"]] == best
    assert rouge_l(kept, read_examples(files["validation"], "summaries"), given) == pytest.approx(
        best, abs=1e-3
    )


def test_summaries_in_another_script_are_told_apart(monkeypatch):
    """ROUGE of the package's own words is 0 for all of them, so that every step would be the best."""
    pytest.importorskip("rouge_score")
    examples = [Example("東京で大雨が降った。", "東京で雨"), Example("大阪は晴れた。", "大阪は晴れ")]
    options = SimpleNamespace(beams=1, summary_tokens=9, kind="summaries")
    figures = []
    for written in (["犬が", "猫と"], ["東京の雨", "大阪は晴れ"]):
        monkeypatch.setattr(summarizer, "generate_outputs", lambda *_, written=written, **__: written)
        figures.append(rouge_l(None, examples, options))
    assert figures == [0.0, pytest.approx((75.0 + 100.0) / 2)]


def test_the_loss_by_hand():
    # Uniform over 4 tokens, but for the second, whose right token has 3/6. The third is padding.
    logits = torch.tensor([[[0.0] * 4, [0.0, 0.0, 0.0, np.log(3)], [9.0, 0.0, 0.0, 0.0]], [[0.0] * 4] * 3])
    labels = torch.tensor([[1, 3, -100], [-100, -100, 2]])
    expected = [np.log(4) + np.log(2), np.log(4)]
    assert sequence_losses(logits, labels).tolist() == pytest.approx(expected)
    # Smoothed by 0.4, a token's loss is 0.6 of its own and 0.1 of every token's.
    expected[0] = np.log(4) + 0.6 * np.log(2) + 0.1 * (3 * np.log(6) + np.log(2))
    assert sequence_losses(logits, labels, 0.4).tolist() == pytest.approx(expected)
    assert sequence_losses(logits.bfloat16(), labels).dtype == torch.float32


def test_a_batch_has_the_mean_loss_of_its_tokens_however_it_is_cut(bart, monkeypatch):
    summarizer = load_text_generator(str(bart), device="cpu")
    table = summarizer.model.get_input_embeddings().weight
    examples = [Example(document(0), summary(0)), Example("A bell.", "Bell."), Example(document(3), "Lute.")]
    rows = generator_rows(summarizer, examples, [], "", 62)
    tokens = sum(len(row.target) for row in rows)
    expected = 0.0
    for row in rows:  # each alone, by the library's own loss
        ids, labels = torch.tensor([row.input]), torch.tensor([row.target])
        loss = summarizer.model(input_ids=ids, labels=labels).loss * len(row.target) / tokens
        loss.backward()
        expected += loss.item()
    gradient, model = table.grad, EncoderDecoderWithLoss(summarizer, 0.0).eval()
    for at_once, count in ((2048, 1), (64, 2)):
        monkeypatch.setattr(chunks, "tokens_at_once", lambda _, most=at_once: most)
        table.grad = None
        batch = model.batch(rows)
        assert len(batch["pairs"]["chunks"]) == count
        loss = model(**batch)["loss"]
        loss.backward()
        assert loss.item() == pytest.approx(expected, rel=1e-5)
        assert torch.allclose(table.grad, gradient, atol=1e-6)


# What is put into it.


def test_only_added_documents_get_the_marker(bart):
    summarizer = load_text_generator(str(bart), device="cpu", max_length=16)
    add_marker(summarizer, "<mined>")
    seed, added = Example(document(0), summary(0)), Example(document(4), summary(4))
    rows = generator_rows(summarizer, [seed], [added], "<mined>", 8)
    assert rows[0].input[:2] == bart_tokenizer()(document(0))["input_ids"][:2]
    assert rows[1].input[1] == 330
    assert 330 not in rows[0].input
    assert [len(row.input) for row in rows] == [16, 16]
    assert [len(row.target) for row in rows] == [8, 8]
    assert [row.target[-1] for row in rows] == [2, 2]


@pytest.mark.parametrize(
    ("given", "size"),
    [
        ({"added": False}, 330),
        ({"added": True, "extra": 0}, 330),
        ({"added": True, "marker": ""}, 330),
        ({"added": True, "marker": "[m]"}, 331),
    ],
)
def test_the_table_grows_only_when_a_marker_is_needed(bart, files, tmp_path, given, size):
    train_summarizer(settings(bart, files, steps=1, **given), Run(tmp_path / "out", Silent()))
    assert AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out").config.vocab_size == size
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert ("[m]" in tokenizer.get_vocab()) == (size == 331)


def test_added_documents_come_in_their_order_once_and_never_from_seeds_or_validation(files, tmp_path):
    more = write_documents(tmp_path / "more.jsonl", (6, 1, 3, 0, 5, 6))
    known = [Example(document(n), "other") for n in (1, 3)]
    both = settings("b", files).model_copy(update={"added": [more, files["added"]]})
    kept, repeats, *_ = added_examples(both, known)
    assert [example.output for example in kept] == [summary(n) for n in (6, 0, 5, 4, 7)]
    assert repeats == 5  # 1 and 3 are known, and 6 comes three times, 5 twice
    few = both.model_copy(update={"extra": 2})
    kept, repeats, *_ = added_examples(few, known)
    assert ([example.input for example in kept], repeats) == ([document(6), document(0)], 2)
    assert added_examples(few.model_copy(update={"extra": 0}), known) == ([], 0, 0, 0)


def test_more_asked_for_than_there_are_is_said(bart, files, tmp_path, capsys):
    given = settings(bart, files, added=True, extra=500, steps=1)
    train_summarizer(given, Run(tmp_path / "out", Progress()))
    said = capsys.readouterr().err
    assert "--added has 4 new documents, fewer than --extra 500; all are used" in said
    assert "only 4 seeds" in said
    assert said.splitlines()[-1] == f"wrote {tmp_path}/out: the last of 1 step"


# Stopped and gone on.


class Stopped(Exception):  # noqa: N818 - it is no error
    pass


def stop_at(monkeypatch, count, seen):
    """Have training end after so many steps in all; ``seen`` gets the number of each."""
    real = BestStepCallback.on_step_end

    def stopping(self, args, state, control, **kwargs):
        seen.append(state.global_step)
        if len(seen) == count:
            raise Stopped
        real(self, args, state, control, **kwargs)

    monkeypatch.setattr(BestStepCallback, "on_step_end", stopping)


def assert_same_weights(one, other):
    one, other = weights(one), weights(other)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    ("added", "step"), [pytest.param(True, 2, marks=pytest.mark.long), (False, 7), (True, 9)]
)
def test_a_stopped_training_goes_on_to_the_same_weights(
    bart, files, tmp_path, monkeypatch, capsys, added, step
):
    # 9 steps, a look every 4, a checkpoint every 3; BART has dropout and shares its word vectors.
    given = settings(bart, files, added=added, validation=True, steps=9, checkpoint_steps=3)
    train_summarizer(given, Run(tmp_path / "whole", Silent()))
    with monkeypatch.context() as patch:
        stop_at(patch, step, [])
        with pytest.raises(Stopped):
            train_summarizer(given, Run(tmp_path / "stopped", Silent()))
    train_summarizer(given, Run(tmp_path / "stopped", Progress()))
    begun = {2: None, 7: 6, 9: 6}[step]
    assert (f"resuming from checkpoint-{begun}" in capsys.readouterr().err) == (begun is not None)
    assert_same_weights(tmp_path / "whole", tmp_path / "stopped")
    records = [json.loads((tmp_path / name / "training.json").read_text()) for name in ("whole", "stopped")]
    assert records[0]["validation"] == records[1]["validation"]
    assert not list((tmp_path / "stopped").glob(".pairsmith*"))


@pytest.mark.long
def test_of_several_rates_the_best_is_kept_and_a_stop_changes_nothing(
    bart, files, tmp_path, monkeypatch, capsys
):
    given = settings(bart, files, validation=True, steps=60, eval_steps=60, learning_rate=[1e-6, 1e-2])
    train_summarizer(given, Run(tmp_path / "whole", Progress()))
    assert "learning rate 1e-06: best step 60" in capsys.readouterr().err
    assert "| learning rate | 0.01 |" in (tmp_path / "whole/README.md").read_text()
    seen = []
    with monkeypatch.context() as patch:
        stop_at(patch, 70, seen)  # in the second training, ten steps after the first
        with pytest.raises(Stopped):
            train_summarizer(given, Run(tmp_path / "stopped", Silent()))
    with monkeypatch.context() as patch:
        seen.clear()
        stop_at(patch, 1000, seen)
        train_summarizer(given, Run(tmp_path / "stopped", Silent()))
    assert seen == [*range(1, 61)]  # the first was not done again
    assert_same_weights(tmp_path / "whole", tmp_path / "stopped")


def test_the_same_training_is_not_done_again_and_another_is_refused(bart, files, tmp_path, capsys):
    train_summarizer(settings(bart, files, steps=1), Run(tmp_path / "out", Silent()))
    train_summarizer(settings(bart, files, steps=1), Run(tmp_path / "out", Progress()))
    assert "already trained with these settings; nothing to do" in capsys.readouterr().err
    with pytest.raises(FolderError, match="seed: 1 there, 2 here"):
        train_summarizer(settings(bart, files, steps=1, seed=2), Run(tmp_path / "out", Silent()))
    with pytest.raises(FolderError, match=r"input added 1 \(.*added.jsonl\): absent there"):
        train_summarizer(settings(bart, files, steps=1, added=True), Run(tmp_path / "out", Silent()))


# What is refused.


def test_rows_of_nothing_cannot_be_counted(bart, files):
    with pytest.raises(ValidationError, match="extra limits the rows of --added, which is missing"):
        settings(bart, files, extra=5)


@pytest.mark.parametrize("blank", ["seeds", "validation", "added"])
def test_a_blank_summary_is_named(bart, files, tmp_path, blank):
    path = tmp_path / "blank.jsonl"
    path.write_text(json.dumps({"document": "A horn was heard.", "summary": " "}) + "\n")
    given = settings(bart, files | {blank: str(path)}, added=True, validation=True)
    with pytest.raises(InputError, match=r"blank\.jsonl:1: the summary is blank or missing"):
        train_summarizer(given, Run(tmp_path / "out", Silent()))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("marker", ["lute", "Gus"])
def test_a_marker_that_stands_in_a_text_is_refused(bart, files, tmp_path, marker):
    given = settings(bart, files, added=True, marker=marker)
    with pytest.raises(InputError, match=rf"the marker '{marker}' occurs in the document that begins"):
        train_summarizer(given, Run(tmp_path / "out", Silent()))


def test_without_examples_there_is_nothing_to_learn(bart):
    with pytest.raises(InputError, match="no documents with summaries to learn from"):
        train_summarizer_on([], [], [], SummarizerOptions(base=str(bart)))


def test_without_rouge_a_validation_is_refused_at_the_start(files, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "rouge_score.rouge_scorer", None)
    with pytest.raises(MissingExtra, match=r"pip install 'pairsmith\[eval\]'"):
        train_summarizer(settings("no/such", files, validation=True), Run(tmp_path / "out", Silent()))


def test_what_is_read_is_not_written_over(bart, files, tmp_path):
    given = settings(bart, files, added=True)
    with pytest.raises(FolderError, match="is what --base reads"):
        train_summarizer(given, Run(bart, Silent()))
    folder = tmp_path / "mined"
    with pytest.raises(FolderError, match="is what --added reads"):
        train_summarizer(given.model_copy(update={"added": [str(folder)]}), Run(folder, Silent()))


def test_a_base_of_another_kind_is_refused(silent_model, files, tmp_path):
    with pytest.raises(ModelError, match="no continuation for models of type distilbert"):
        train_summarizer(settings(silent_model, files), Run(tmp_path / "out", Silent()))


def test_a_base_that_transformers_cannot_shift_summaries_for_is_refused(bart, files, tmp_path):
    from transformers import M2M100Config, M2M100ForConditionalGeneration

    folder = make_bart(tmp_path / "m2m")
    size = {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 64}
    config = M2M100Config(vocab_size=330, d_model=16, **size, **heads)
    M2M100ForConditionalGeneration(config).save_pretrained(folder)
    with pytest.raises(ModelError, match="models of type m2m_100 cannot be trained as summarisers here"):
        train_summarizer(settings(folder, files), Run(tmp_path / "out", Silent()))


@pytest.mark.parametrize(
    "wrong", [{"beams": 0}, {"extra": -1}, {"max_length": 4}, {"summary_tokens": 1}, {"label_smoothing": 1.0}]
)
def test_settings_refuse_what_makes_no_sense(wrong):
    with pytest.raises(ValidationError):
        TrainSummarizerSettings(base="b", seeds="s", **wrong)


def test_defaults_are_those_of_the_paper_and_of_bart_for_xsum():
    training = TrainSummarizerSettings(base="b", seeds="s")
    evaluation = EvaluateSummariesSettings(model="m", data="d")
    assert (training.steps, training.marker, training.label_smoothing) == (200, "<mined>", 0.0)
    for given in (training, evaluation):
        assert (given.beams, given.summary_tokens, given.max_length) == (BEAMS, SUMMARY_TOKENS, None)
