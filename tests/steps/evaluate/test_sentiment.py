import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from pydantic import ValidationError
from sklearn.metrics import accuracy_score, roc_auc_score
from tests.planned import planned
from tests.resamples import loop_interval
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

import pairsmith
from pairsmith.core.errors import InputError, ModelError
from pairsmith.core.progress import Silent
from pairsmith.data.sentiment import Opinion, read_opinions
from pairsmith.methods.quip.sentiment import NEUTRAL, PROMPTS, Judged
from pairsmith.models.reader import load_reader
from pairsmith.models.span_encoder import SpanEncoder
from pairsmith.models.span_heads import SpanHeads, save_heads
from pairsmith.runs import Run
from pairsmith.runs.estimate import Estimate
from pairsmith.steps.evaluate import sentiment as module
from pairsmith.steps.evaluate.sentiment import evaluate_sentiment, judge, sentiment_figures
from pairsmith.steps.evaluate.transfer_settings import EvaluateSentimentSettings

pytestmark = pytest.mark.slow

TEXTS = ["A man is playing.", "The weather was not good, they said.", "Two dogs run on the beach."]


@pytest.fixture(scope="module")
def student(tiny_bert, tmp_path_factory):
    copy = shutil.copytree(tiny_bert, tmp_path_factory.mktemp("students") / "student")
    save_heads(SpanHeads(16, "questions", seed=4), copy)
    return str(copy)


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "dev.tsv"
    path.write_text("sentence\tlabel\n" + "".join(f"{text}\t{n % 2}\n" for n, text in enumerate(TEXTS)))
    return str(path)


def settings(model, data="", **rest):
    return EvaluateSentimentSettings(model=model, data=data, device="cpu", **rest)


def test_the_ranking_tells_classes_apart_that_a_bias_hides():
    """Each text gets a larger negative score, the negative one the most."""
    scores = np.array([[[5.0, 1.0], [5.0, 3.0], [5.0, 2.0]]])
    judged, gold = Judged(scores, np.zeros((1, 2)), [""] * 3), np.array([False, True, True])
    assert not judged.positive("plain").any()
    assert sentiment_figures(judged, gold, bootstrap=20)["ranking"] == {
        "auroc": 100.0, "auroc_ci": [100.0, 100.0], "error": None, "prompts": [100.0],
        "prompts_ci": [[100.0, 100.0]],
    }  # fmt: skip


def test_intervals_are_those_of_texts_drawn_one_by_one():
    """Centred scores are centred anew in each resample."""
    rng = np.random.default_rng(0)
    judged, gold = (
        Judged(rng.normal(size=(6, 20, 2)), rng.normal(size=(6, 2)), [""] * 20),
        rng.random(20) < 0.5,
    )
    figures, leads = sentiment_figures(judged, gold, bootstrap=15, seed=3), judged.leads()
    bias = judged.neutral[:, 1] - judged.neutral[:, 0]

    def accuracy(rows, prompt, calibration):
        scores = leads[prompt, rows]
        bound = {"plain": 0, "calibrated": bias[prompt], "centred": scores.mean()}[calibration]
        return accuracy_score(gold[rows], scores > bound)

    def area(rows, prompt, _):
        return roc_auc_score(gold[rows], leads[prompt, rows]) if len(set(gold[rows])) == 2 else np.nan

    for calibration in ("plain", "calibrated", "centred", "ranking"):
        name, measure = ("auroc", area) if calibration == "ranking" else ("accuracy", accuracy)

        def of(prompts, measure=measure, calibration=calibration):
            return loop_interval(
                20,
                lambda rows: np.mean([measure(rows, prompt, calibration) for prompt in prompts]),
                draws=15,
                seed=3,
            )

        own = figures[calibration]
        assert own[f"{name}_ci"] == pytest.approx(of(range(6)), abs=1e-4)
        assert own["prompts_ci"] == [pytest.approx(of([prompt]), abs=1e-4) for prompt in range(6)]
    assert figures["plain"]["fifth_prompt_ci"] == figures["plain"]["prompts_ci"][4]


def test_scores_are_those_of_direct_computation_and_rationales_stand_in_the_texts(student):
    judged = judge(settings(student), Silent())(TEXTS)
    assert judged.scores.shape == (6, 3, 2)
    encoder = pairsmith.load_student(student, device="cpu")

    def vectors(text):
        return encoder.token_vectors(encoder.tokens.features([text]))[0]

    def score(text, question):
        start, end = encoder.heads(vectors(question)[:1])
        tokens = vectors(text)
        return float(((tokens @ start[0]).max() + (tokens @ end[0]).max()).detach())

    for prompt in (0, 3):
        for side in (0, 1):
            question = PROMPTS[prompt][side].format(item="movie")
            assert judged.scores[prompt, 1, side] == pytest.approx(score(TEXTS[1], question), rel=1e-4)
            expected = np.mean([score(word, question) for word in NEUTRAL])
            assert judged.neutral[prompt, side] == pytest.approx(expected, rel=1e-4)
    assert all(
        rationale and rationale in text for rationale, text in zip(judged.rationales, TEXTS, strict=True)
    )


def test_results_and_a_line_for_each_text(student, data, tmp_path, capsys):
    from pairsmith.core.progress import Progress

    results = evaluate_sentiment(settings(student, data), Run(tmp_path / "out", Progress()))
    assert results["count"] == 3
    for name in ("calibrated", "centred", "plain", "ranking"):
        assert len(results[name]["prompts"]) == 6
    lines = [json.loads(line) for line in (tmp_path / "out" / "predictions.jsonl").read_text().splitlines()]
    assert [line["positive"] for line in lines] == [False, True, False]
    assert all(len(line["taken_for_positive"]) == 6 for line in lines)
    gold = [line["positive"] for line in lines]
    for prompt in range(6):
        leads = [line["scores"][prompt][1] - line["scores"][prompt][0] for line in lines]
        ranked, right = roc_auc_score(gold, leads), accuracy_score(gold, [lead > 0 for lead in leads])
        assert results["ranking"]["prompts"][prompt] == pytest.approx(100 * ranked, abs=1e-4)
        assert results["plain"]["prompts"][prompt] == pytest.approx(100 * right, abs=1e-4)
    shown, plain = capsys.readouterr().out, results["plain"]
    low, high = plain["accuracy_ci"]
    assert f"plain       {plain['accuracy']:.2f} ± {plain['error']:.2f}  [{low:.2f}, {high:.2f}]" in shown
    assert "calibrated" in shown
    assert "AUROC" in shown
    assert "±: standard error over the prompts; brackets: 95 % interval over the texts" in shown
    assert evaluate_sentiment(settings(student, data), Run(tmp_path / "out", Silent())) == results


def test_rows_with_a_blank_text_are_counted(masked, data, tmp_path, capsys):
    from pairsmith.core.progress import Progress

    given, run = settings(masked, data, method="mask"), Run(tmp_path / "out", Progress())
    with Path(data).open("a") as file:
        file.write(" \t1\n")
    results = evaluate_sentiment(given, run)
    assert (results["count"], results["blank"]) == (3, 1)
    assert "1 row is left out: the text is blank" in capsys.readouterr().err


def test_a_rationale_answers_the_fifth_question_of_the_side_that_it_takes_the_text_for(quick_bert, tmp_path):
    student = str(shutil.copytree(quick_bert, tmp_path / "student"))
    save_heads(SpanHeads(16, "questions", seed=4), tmp_path / "student")
    words = " ".join(TEXTS).replace(".", "").split()
    texts = [" ".join(words[place:] + words[:place]) for place in range(len(words))]
    path = tmp_path / "rows.tsv"
    path.write_text("sentence\tlabel\n" + "".join(f"{text}\t{n % 2}\n" for n, text in enumerate(texts)))
    evaluate_sentiment(settings(student, str(path)), Run(tmp_path / "out", Silent()))
    lines = [json.loads(line) for line in (tmp_path / "out" / "predictions.jsonl").read_text().splitlines()]
    assert {line["rationale_side"] for line in lines} == {"positive", "negative"}
    encoder, by_sides = pairsmith.load_student(student, device="cpu"), set()
    questions = [question.format(item="movie") for question in PROMPTS[4]]
    for line in lines:
        assert line["rationale_side"] == ("positive" if line["taken_for_positive"][4] else "negative")
        bad, good = pairsmith.answer_with_student(encoder, questions, [line["text"]] * 2, max_answer_tokens=5)
        assert line["rationale"] == (good if line["rationale_side"] == "positive" else bad).text
        by_sides.add(bad.text == good.text)
    assert False in by_sides  # the other side's would be another one


def test_a_reader_scores_the_tokens_of_a_text_after_each_question(tiny_bert):
    given = settings(str(tiny_bert), method="reader")
    with pytest.raises(ModelError, match="question answering"):
        judge(given, Silent())(TEXTS)
    reader = load_reader(str(tiny_bert), device="cpu", fresh_head=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "load_reader", lambda *_, **__: reader)
        judged = judge(given, Silent())([*TEXTS, " "])
    question = PROMPTS[4][1].format(item="movie")
    both = reader.tokenizer(question, TEXTS[1], return_tensors="pt")
    of_text = torch.tensor([part == 1 for part in both.sequence_ids(0)])
    with torch.inference_mode():
        outputs = reader.model(**both)
    expected = outputs.start_logits[0, of_text].max() + outputs.end_logits[0, of_text].max()
    assert judged.scores[4, 1, 1] == pytest.approx(float(expected), rel=1e-5)
    assert judged.scores[:, 3].tolist() == [[0.0, 0.0]] * 6
    assert all(rationale in text for rationale, text in zip(judged.rationales[:3], TEXTS, strict=True))
    assert judged.rationales[3] == ""


def test_as_much_is_read_at_once_as_was_said(student, monkeypatch):
    read = []
    whole = SpanEncoder.token_vectors
    monkeypatch.setattr(
        SpanEncoder,
        "token_vectors",
        lambda self, features: read.append(len(features["input_ids"])) or whole(self, features),
    )
    judge(settings(student, batch_tokens=1), Silent())(TEXTS)
    assert read[-len(TEXTS) :] == [1] * len(TEXTS)


def test_the_baseline_knows_no_item():
    with pytest.raises(ValidationError, match="item has no effect with --method mask"):
        settings("some", method="mask", item="product")


def test_texts_of_one_label_are_refused(student, tmp_path):
    path = tmp_path / "dev.tsv"
    path.write_text("sentence\tlabel\nA man.\t1\n")
    with pytest.raises(InputError, match="the same label"):
        evaluate_sentiment(settings(student, str(path)), Run(tmp_path / "out", Silent()))


def test_an_encoder_without_heads_cannot_judge_by_questions(tiny_bert):
    with pytest.raises(
        ModelError, match="no heads for questions; give .* infuse wrote, or choose --method reader"
    ):
        judge(settings(str(tiny_bert)), Silent())(TEXTS)


@pytest.fixture(scope="module")
def masked(tmp_path_factory):
    """A random BERT with a head for masks, whose vocabulary has both words."""
    folder = tmp_path_factory.mktemp("masked")
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "it",
        "was",
        ".",
        "great",
        "terrible",
        "a",
        "man",
        "the",
    ]
    (folder / "vocab.txt").write_text("\n".join(words))
    from transformers import BertTokenizerFast

    tokenizer = BertTokenizerFast(vocab=dict(zip(words, range(len(words)), strict=True)), model_max_length=32)
    tokenizer.save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=32,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        BertForMaskedLM(config).save_pretrained(folder)
    return str(folder)


def test_the_baseline_is_the_probability_of_both_words_at_the_mask(masked):
    texts = ["a man", "the man was great [MASK] " * 20, ""]
    judged = judge(settings(masked, method="mask"), Silent())(texts)
    assert judged.scores.shape == (1, 3, 2)
    model, tokenizer = BertForMaskedLM.from_pretrained(masked), AutoTokenizer.from_pretrained(masked)
    given = tokenizer("a man It was [MASK].", return_tensors="pt")
    with torch.inference_mode():
        likely = model.eval()(**given).logits[0, 5].log_softmax(dim=0)
    words = tokenizer.convert_tokens_to_ids(["terrible", "great"])
    assert judged.scores[0, 0].tolist() == pytest.approx(likely[words].tolist(), rel=1e-5)
    assert np.isfinite(judged.scores).all()


def test_a_mask_that_is_left_when_one_is_taken_out_is_none(masked):
    plain = ["the [MA SK] man", "a man"]
    judged = [
        judge(settings(masked, method="mask"), Silent())(texts).scores
        for texts in (["the [MA[MASK]SK] man", "a [MASK]man"], plain)
    ]
    assert np.allclose(*judged)


def test_the_baseline_leaves_out_the_names_of_all_special_tokens(masked):
    plain, named = (
        judge(settings(masked, method="mask"), Silent())([text]).scores
        for text in ("a  man was", "a [SEP] man[PAD][CLS]was")
    )
    assert np.allclose(plain, named)


def test_the_baseline_wants_a_model_with_masks_and_both_words(tiny_bert, student):
    with pytest.raises(ModelError, match="masked language modelling"):
        judge(settings(str(tiny_bert), method="mask"), Silent())(TEXTS)


def test_opinions_in_two_files_or_in_one(tmp_path):
    (tmp_path / "rt.pos.txt").write_text("good\n\nfine\n")
    (tmp_path / "rt.neg.txt").write_text("bad\n")
    assert list(read_opinions(tmp_path)) == [
        Opinion("good", True),
        Opinion("fine", True),
        Opinion("bad", False),
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text(
        '{"text": "good", "label": "positive"}\n{"text": " ", "label": 0}\n{"text": "bad", "label": 0}\n'
    )
    assert list(read_opinions(path)) == [Opinion("good", True), Opinion("bad", False)]
    path.write_text(
        '{"text": "a", "label": 1.0}\n{"text": "b", "label": "0.0"}\n{"text": "c", "label": false}\n'
    )
    assert [opinion.positive for opinion in read_opinions(path)] == [True, False, False]
    path.write_text('{"text": "good", "stars": 3}\n')
    with pytest.raises(
        InputError, match="columns label, sentiment; rename the column that holds them to one"
    ):
        list(read_opinions(path))
    path.write_text('{"text": "good", "label": 3}\n')
    with pytest.raises(InputError, match=r"rows.jsonl:1: label is '3'"):
        list(read_opinions(path))
    (tmp_path / "none.tsv").write_text("text\tlabel\n")
    with pytest.raises(InputError, match="no texts"):
        list(read_opinions(tmp_path / "none.tsv"))


def test_a_plan_reads_some_texts(student, masked, data, tiny_bert):
    for some in (settings(student, data), settings(masked, data, method="mask")):
        estimate = evaluate_sentiment.plan(some, {})
        assert estimate.seconds > 0
        assert estimate.disk > 4096
    later = planned("evaluate-sentiment", settings("@later", data), {"@later": estimate}, str(tiny_bert))
    assert later.disk == estimate.disk


def test_a_plan_reads_texts_that_an_earlier_step_will_make(student):
    sample = pa.table({"id": ["1", "2"], "text": ["A man", "Cold!"], "label": ["0", "1"]})
    before = {"@texts": Estimate(1.0, 1, 1, {"train": 30}, sample=sample)}
    assert planned("evaluate-sentiment", settings(student, "@texts"), before).disk == 4096 + 30 * (5 + 400)


def test_a_text_without_tokens_is_judged_by_its_special_ones(student):
    judged = judge(settings(student), Silent())(["\u200b", TEXTS[0]])
    assert np.isfinite(judged.scores).all()
    assert judged.scores[:, 0].all()
    assert judged.rationales[0] == ""
    assert judged.rationales[1]


def test_the_baseline_has_no_rationales_and_so_no_side_of_one(masked, data, tmp_path):
    evaluate_sentiment(settings(masked, data, method="mask"), Run(tmp_path / "out", Silent()))
    for line in (tmp_path / "out" / "predictions.jsonl").read_text().splitlines():
        assert (json.loads(line)["rationale"], json.loads(line)["rationale_side"]) == ("", "")
