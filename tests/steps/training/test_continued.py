"""Decoder-only models as summarisers: they continue a document and a cue."""

import json
import re
import shutil

import pytest
import torch
from safetensors.torch import load_file
from tests.conftest import make_llama
from tests.steps.mine.test_filter import folder_of
from tests.tiny_bart import document, summary, write_documents
from tests.training.stopping import Stopped, stopped_at
from transformers import AutoModelForCausalLM, AutoTokenizer

from pairsmith.core.errors import ModelError
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.examples import Example
from pairsmith.data.schemas import MINED_PAIR, MinedPair
from pairsmith.methods.mining.options import SummarizerOptions
from pairsmith.methods.mining.summarizer import DecoderOnlyWithLoss, train_summarizer_on
from pairsmith.methods.quip.generator_training import train_question_generator_on
from pairsmith.methods.quip.training_options import QuestionGeneratorOptions
from pairsmith.models.added_tokens import add_marker
from pairsmith.models.text_generator import (
    encode_inputs,
    encode_targets,
    generate_outputs,
    input_features,
    load_text_generator,
    search_settings,
)
from pairsmith.runs import Run
from pairsmith.steps.evaluate.settings import EvaluateSummariesSettings
from pairsmith.steps.evaluate.summaries import evaluate_summaries
from pairsmith.steps.mine.rewrite import rewrite
from pairsmith.steps.mine.settings import RewriteSettings
from pairsmith.steps.training.question_generator import train_question_generator
from pairsmith.steps.training.settings import TrainQuestionGeneratorSettings, TrainSummarizerSettings
from pairsmith.steps.training.summarizer import train_summarizer
from pairsmith.training import chunks
from pairsmith.training.generators import IGNORED, generator_rows

pytestmark = pytest.mark.slow

END = 0
DOCUMENTS = [document(0), document(1)[:20], document(2) * 4, document(3)[:40]]


@pytest.fixture
def summarizer(tiny_llama):
    return load_text_generator(str(tiny_llama), device="cpu")


def tokens_of(summarizer, text):
    return summarizer.tokenizer(text, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("command", ["train-summarizer", "train-asker"])
@pytest.mark.parametrize("changed", [{"is_causal": False}, {"use_bidirectional_attention": True}])
def test_a_base_whose_tokens_see_those_after_them_is_refused_by_name_before_data_are_read(
    command, changed, tiny_llama, tmp_path
):
    """Such as an encoder of ``train-encoder --attention bidirectional``."""
    shutil.copytree(tiny_llama, tmp_path / "encoder")
    config = json.loads((tmp_path / "encoder" / "config.json").read_text())
    (tmp_path / "encoder" / "config.json").write_text(json.dumps(config | changed))
    (tmp_path / "broken.jsonl").write_text("{\n")
    base, data = str(tmp_path / "encoder"), str(tmp_path / "broken.jsonl")
    step, given = {
        "train-summarizer": (train_summarizer, TrainSummarizerSettings(base=base, seeds=data)),
        "train-asker": (train_question_generator, TrainQuestionGeneratorSettings(base=base, data=[data])),
    }[command]
    with pytest.raises(ModelError, match=rf"^model {re.escape(base)}: cannot learn to write"):
        step(given, Run(tmp_path / "out", Silent()))
    assert not (tmp_path / "out").exists()
    train, options = {
        "train-summarizer": (train_summarizer_on, (SummarizerOptions(base=base),)),
        "train-asker": (train_question_generator_on, (QuestionGeneratorOptions(base=base),)),
    }[command]
    few = [Example("a text", "an output")]
    validation = ([], []) if command == "train-summarizer" else ([],)
    with pytest.raises(ModelError, match="cannot learn to write"):
        train(few, *validation, *options)


# What is read and written.


@pytest.mark.parametrize(("kind", "cue"), [("summaries", "\nTL;DR:"), ("reading", "\nQuestion:")])
def test_a_document_is_followed_by_a_cue_and_a_summary_by_the_end(tiny_llama, kind, cue):
    model = load_text_generator(str(tiny_llama), kind, device="cpu")
    assert model.cue == cue
    (read,) = encode_inputs(model, ["A horn was heard."])
    assert read == [*tokens_of(model, "A horn was heard."), *tokens_of(model, cue)]
    (written,) = encode_targets(model, [" Hal played.\n"], 62)
    assert written == [*tokens_of(model, " Hal played."), END]
    assert model.tokenizer.decode(read + written[:-1]) == f"A horn was heard.{cue} Hal played."


@pytest.mark.parametrize("written", [16, 100])
def test_a_document_is_cut_so_that_cue_and_summary_fit(tiny_llama, written):
    model = load_text_generator(str(tiny_llama), device="cpu", max_length=200)
    cue, text = tokens_of(model, model.cue), tokens_of(model, document(2) * 9)
    (read,) = encode_inputs(model, [document(2) * 9], written)
    room = min(200, 256 - len(cue) - written)
    assert read == [*text[:room], *cue]
    assert len(read) + written <= 256
    (summary_,) = encode_targets(model, [document(2) * 9], written)
    assert summary_ == [*tokens_of(model, " " + document(2) * 9)[: written - 1], END]


def test_the_start_token_of_a_tokenizer_stands_first_and_an_end_token_does_not_stay(tmp_path):
    model = load_text_generator(str(make_llama(tmp_path / "llama", starts=True)), device="cpu")
    add_marker(model, "<mined>")
    rows = generator_rows(model, [Example("A horn.", "Hal.")], [Example("A lute.", "Fin.")], "<mined>", 62)
    cue = tokens_of(model, model.cue)
    assert rows[0].input == [300, *tokens_of(model, "A horn."), *cue]
    assert rows[1].input == [300, 301, *tokens_of(model, "A lute."), *cue]
    from tokenizers.processors import TemplateProcessing

    model.tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="$A <|endoftext|>", special_tokens=[("<|endoftext|>", END)]
    )
    assert encode_inputs(model, ["A horn."]) == [[*tokens_of(model, "A horn."), *cue]]


def test_documents_are_padded_on_the_left(summarizer):
    rows = encode_inputs(summarizer, DOCUMENTS[:2])
    features = input_features(summarizer, rows)
    missing = len(rows[0]) - len(rows[1])
    assert features["input_ids"].tolist() == [rows[0], [END] * missing + rows[1]]
    assert features["attention_mask"].tolist() == [[1] * len(rows[0]), [0] * missing + [1] * len(rows[1])]


def test_the_loss_is_that_of_the_summaries_tokens_alone(summarizer, monkeypatch):
    examples = [Example(document(0), summary(0)), Example("A bell.", "Bell."), Example(document(3), "Lute.")]
    rows = generator_rows(summarizer, examples, [], "", 62)
    model = DecoderOnlyWithLoss(summarizer, 0.0).eval()
    total, count = 0.0, 0
    for row in rows:  # each alone, by the library's own loss, which is a mean
        ids = torch.tensor([[*row.input, *row.target]])
        labels = torch.tensor([[*[IGNORED] * len(row.input), *row.target]])
        with torch.no_grad():
            total += float(summarizer.model(input_ids=ids, labels=labels).loss) * len(row.target)
        count += len(row.target)
    for at_once, expected in ((2048, 1), (64, 3)):
        monkeypatch.setattr(chunks, "tokens_at_once", lambda _, most=at_once: most)
        batch = model.batch(rows)
        assert len(batch["pairs"]["chunks"]) == expected
        assert model(**batch)["loss"].item() == pytest.approx(total / count, rel=1e-5)


# How summaries are searched for.


def likeliest(summarizer, text, longest, shortest):
    """The likeliest token each time, without three tokens of the summary twice, written out step by step."""
    read = encode_inputs(summarizer, [text], longest)[0]
    ids = []
    while len(ids) < longest and END not in ids:
        with torch.no_grad():
            logits = summarizer.model(torch.tensor([read + ids])).logits[0, -1]
        for at in range(len(ids) - 2):
            if ids[at : at + 2] == ids[-2:]:
                logits[ids[at + 2]] = -torch.inf
        if len(ids) < shortest - 1:
            logits[END] = -torch.inf
        logits[300] = -torch.inf  # the start token
        ids.append(int(logits.argmax()))
    return summarizer.tokenizer.decode(ids, skip_special_tokens=True).strip()


def test_with_one_beam_the_likeliest_token_is_taken(summarizer):
    expected = [likeliest(summarizer, text, 24, 11) for text in DOCUMENTS]
    assert generate_outputs(summarizer, DOCUMENTS, beams=1, output_tokens=24) == expected
    assert any(expected)


def test_summaries_are_the_same_in_any_batch(summarizer):
    alone = [generate_outputs(summarizer, [text], beams=3)[0] for text in DOCUMENTS]
    for batch_size in (3, 8):
        assert generate_outputs(summarizer, DOCUMENTS, beams=3, batch_size=batch_size) == alone


def test_three_tokens_of_the_document_may_come_again(learned):
    model = load_text_generator(str(learned), device="cpu")
    text = generate_outputs(model, [document(0)], beams=2)[0]
    (read,), (written,) = (
        encode_inputs(model, [document(0) + " " + text]),
        encode_targets(model, [text], 62),
    )
    triples = [read[n : n + 3] for n in range(len(read))]
    assert any(written[n : n + 3] in triples for n in range(len(written) - 3))
    assert generate_outputs(model, [document(0) + " " + text], beams=2)  # nothing of it is forbidden


def test_how_summaries_are_written_counts_no_start_token(summarizer):
    how = search_settings(summarizer, 6, 62)
    assert (how.num_beams, how.max_new_tokens, how.min_new_tokens) == (6, 62, 10)
    assert (how.no_repeat_ngram_size, how.eos_token_id, how.pad_token_id) == (None, [END], END)
    assert search_settings(summarizer, 1, 62, 1).min_new_tokens == 0
    assert how.suppress_tokens == [300]  # special tokens but for the end
    add_marker(summarizer, "<mined>")
    assert search_settings(summarizer, 6, 62).suppress_tokens == [300, 301]


# Whole steps.


def settings(base, folder, **rest):
    fast = {"batch_size": 5, "learning_rate": 5e-3, "steps": 9, "eval_steps": 4, "beams": 2, "device": "cpu"}
    return TrainSummarizerSettings(
        **{
            "base": str(base),
            "seeds": write_documents(folder / "seeds.jsonl", range(4)),
            "validation": write_documents(folder / "validation.jsonl", (2, 3)),
            "added": [write_documents(folder / "added.jsonl", (4, 5), document="input", summary="output")],
            **fast,
            **rest,
        }
    )


@pytest.fixture(scope="module")
def learned(tiny_llama, tmp_path_factory):
    """Trained until four documents are known by heart, and one that is marked."""
    folder = tmp_path_factory.mktemp("learned")
    given = settings(tiny_llama, folder, extra=1, steps=150, eval_steps=50)
    train_summarizer(given, Run(folder / "out", Silent()))
    return folder / "out"


def test_a_model_learns_four_documents_by_heart_and_reads_the_marker_as_one_token(learned):
    model = load_text_generator(str(learned), device="cpu")
    documents, expected = [document(n) for n in range(4)], [summary(n) for n in range(4)]
    assert generate_outputs(model, documents) == expected
    tokenizer = AutoTokenizer.from_pretrained(learned)
    assert tokenizer("<mined>" + document(4))["input_ids"][0] == 301
    assert AutoModelForCausalLM.from_pretrained(learned).config.vocab_size == 302
    cue = tokenizer(model.cue, add_special_tokens=False)["input_ids"]
    # Documents leave room for the cue and the summary, also where the card's example cuts them.
    assert tokenizer.model_max_length == model.context - len(cue) - 62
    assert "| marker before added inputs | `<mined>` |" in (learned / "README.md").read_text()


def test_what_the_card_says_to_do_writes_a_summary(learned, capsys):
    code = re.search(r"```python\n(.*?)```", (learned / "README.md").read_text(), re.DOTALL)[1]
    code = code.replace("path/to/this/folder", str(learned)).replace("A long document …", document(1))
    exec(code, {})
    assert capsys.readouterr().out.strip() == summary(1)


def test_a_trained_folder_is_evaluated(learned, tmp_path):
    data = write_documents(tmp_path / "data.jsonl", range(4))
    given = EvaluateSummariesSettings(model=str(learned), data=data, device="cpu", beams=2, bootstrap=50)
    assert evaluate_summaries(given, Run(tmp_path / "out", Silent()))["rougeL"] == 100.0


def test_a_trained_folder_rewrites_summaries(learned, tmp_path):
    pairs = [MinedPair(f"s{n}", document(n), f"mined {n}", 1.2, 0.5) for n in range(4)]
    folder_of(tmp_path / "pairs", pairs, MINED_PAIR)
    given = RewriteSettings(
        kind="summaries", pairs=str(tmp_path / "pairs"), model=str(learned), tokens=62, device="cpu"
    )
    rows = rewrite(given, Run(tmp_path / "out", Silent())).table().to_pylist()
    assert [row["output"] for row in rows] == [summary(n) for n in range(4)]


def test_questions_are_learned_after_their_own_cue(tiny_llama, tmp_path):
    rows = [
        {
            "question": f"Who played number {n}?",
            "context": document(n),
            "answers": {"text": ["town"], "answer_start": [document(n).index("town")]},
        }
        for n in range(2)
    ]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = TrainSummarizerSettings(
        base=str(tiny_llama), kind="reading", seeds=str(tmp_path / "q.jsonl"), steps=2, device="cpu"
    )
    train_summarizer(given, Run(tmp_path / "out", Silent()))
    card = (tmp_path / "out/README.md").read_text()
    assert r'tokenizer("\nQuestion:", add_special_tokens=False)' in card
    assert "pipeline_tag: text-generation" in card


@pytest.mark.parametrize("step", [pytest.param(2, marks=pytest.mark.long), 7])
def test_a_stopped_training_goes_on_to_the_same_weights(tiny_llama, tmp_path, monkeypatch, capsys, step):
    given = settings(tiny_llama, tmp_path, checkpoint_steps=3)
    train_summarizer(given, Run(tmp_path / "whole", Silent()))
    with monkeypatch.context() as patch:
        stopped_at(patch, step)
        with pytest.raises(Stopped):
            train_summarizer(given, Run(tmp_path / "stopped", Silent()))
    train_summarizer(given, Run(tmp_path / "stopped", Progress()))
    assert ("resuming from checkpoint-6" in capsys.readouterr().err) == (step == 7)
    whole, stopped = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "stopped"))
    assert whole.keys() == stopped.keys()
    assert all(torch.equal(whole[name], stopped[name]) for name in whole)


# What is refused.


def test_a_context_too_short_for_a_document_is_an_error(tmp_path):
    folder = make_llama(tmp_path / "short", max_position_embeddings=40)
    model = load_text_generator(str(folder), device="cpu")
    with pytest.raises(ModelError, match=r"reads 40 tokens, of which its cue takes \d and its output 62; "):
        generate_outputs(model, [document(0)])
    with pytest.raises(ModelError, match="have it write fewer tokens, or give a model that reads more"):
        train_summarizer(settings(folder, tmp_path), Run(tmp_path / "out", Silent()))


def test_a_model_whose_texts_have_no_end_is_refused(tiny_llama, tmp_path):
    AutoModelForCausalLM.from_pretrained(tiny_llama).save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tiny_llama)
    tokenizer.pad_token, tokenizer.eos_token = "<s>", None
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(
        ModelError, match=r"has no end token, .* name one as eos_token in its tokenizer_config"
    ):
        load_text_generator(str(tmp_path), device="cpu")


def test_all_tokens_that_end_the_models_texts_end_a_summary(tiny_llama, tmp_path):
    model = AutoModelForCausalLM.from_pretrained(tiny_llama)
    model.generation_config.eos_token_id = [7, 0]
    model.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(tiny_llama).save_pretrained(tmp_path)
    assert load_text_generator(str(tmp_path), device="cpu").model.generation_config.eos_token_id == [0, 7]
