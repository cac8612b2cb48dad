"""What the cards of models tell the Hub, and whose licences and works they name."""

import pytest
from huggingface_hub import ModelCard
from tests.runs.test_attribution import card

from pairsmith.core.citations import CITATION, MINING, QUIP, RETRIEVAL
from pairsmith.runs import sources_of
from pairsmith.runs.identity import Identity
from pairsmith.steps.training.biencoder import train_biencoder
from pairsmith.steps.training.card import SENTENCE_ENCODER, HubModel, training_card
from pairsmith.steps.training.crossencoder import train_crossencoder
from pairsmith.steps.training.encoder import train_encoder
from pairsmith.steps.training.question_generator import train_question_generator
from pairsmith.steps.training.reader import train_reader
from pairsmith.steps.training.retriever import train_retriever
from pairsmith.steps.training.settings import TrainReaderSettings
from pairsmith.steps.training.step import Trained
from pairsmith.steps.training.student import infuse
from pairsmith.steps.training.summarizer import train_summarizer
from pairsmith.steps.training.teacher import train_teacher
from pairsmith.training.best_step import TrainingHistory
from pairsmith.training.folder import ModelFolder

TRAINING = TrainingHistory(steps=3, best_step=3, validation={}, seconds=1.0, metric="f1")


def card_text(tmp_path, base, *data, hub=SENTENCE_ENCODER):
    sources = sources_of(models=[base], data=data, papers=[MINING])
    folder = ModelFolder(tmp_path / "out", Identity.of("train-reader", {}, {}, {}), sources)
    trained = Trained("A model", "Use it.", hub, (), lambda card, out: None, {"seeds": 3}, TRAINING)
    return training_card(trained, TrainReaderSettings(seeds="s", base=base), folder)


def test_a_card_says_what_opens_the_model_and_whom_to_cite(tmp_path):
    read = ModelCard(card_text(tmp_path, "pairsmith:tiny", hub=HubModel("keras", "text-ranking", ("new",))))
    assert (read.data.library_name, read.data.pipeline_tag) == ("keras", "text-ranking")
    assert read.data.tags == ["pairsmith", "new"]
    assert f"- {MINING}\n" in read.text
    assert read.data.license == "apache-2.0"
    assert read.data.base_model is None


@pytest.mark.parametrize(
    ("step", "paper"),
    [
        (train_encoder, CITATION),
        (train_biencoder, MINING),
        (train_crossencoder, MINING),
        (train_reader, MINING),
        (train_summarizer, MINING),
        (train_question_generator, QUIP),
        (train_teacher, QUIP),
        (infuse, QUIP),
        (train_retriever, RETRIEVAL),
    ],
)
def test_each_training_cites_the_paper_of_its_method(step, paper):
    assert step.paper == paper


def test_validation_examples_that_could_choose_no_step_are_not_denied(tmp_path):
    text = card_text(tmp_path, "pairsmith:tiny")
    assert "No validation examples chose a step; the weights are those of the last one.\n" in text


def test_bases_data_and_licences_are_named(tmp_path):
    base = card(tmp_path / "base", "license: mit\nbase_model: org/first\n", "## Citation\n\n- First (2019)")
    text = card_text(tmp_path, base, "rajpurkar/squad", "/home/anna/seeds.jsonl")
    read = ModelCard(text)
    assert read.data.base_model == "org/first"
    assert read.data.datasets == ["rajpurkar/squad"]
    assert read.data.license == "unknown"
    assert "- First (2019)\n" in text
    assert "| base | model | mit |" in text
    assert (
        "| rajpurkar/squad | data | unknown: look at https://huggingface.co/datasets/rajpurkar/squad |"
        in text
    )
    assert "| seeds.jsonl | data | unknown: look at the place" in text
    assert "It is `base`, trained further with data from `rajpurkar/squad`, `seeds.jsonl`. " in text
    assert "/home/anna" not in text


def test_a_base_from_the_hub(tmp_path):
    assert ModelCard(card_text(tmp_path, "org/first")).data.base_model == "org/first"
    embedded = ModelCard(card_text(tmp_path, "embedded:all-minilm-l6-v2"))
    assert embedded.data.base_model == "sentence-transformers/all-MiniLM-L6-v2"
    assert "It is `embedded:all-minilm-l6-v2`, trained further" in embedded.text
    assert "Sentence-BERT" in embedded.text


def test_a_base_in_a_gguf_file(tmp_path):
    embedded = ModelCard(card_text(tmp_path, "embedded:smollm2-135m-instruct"))
    assert embedded.data.base_model == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert embedded.data.license == "apache-2.0"
    assert "arXiv:2502.02737" in embedded.text
    assert "Sentence-BERT" not in embedded.text
    hub = ModelCard(card_text(tmp_path, "org/first:first.Q8_0.gguf"))
    assert hub.data.base_model == "org/first"
    assert "| org/first | model | unknown: look at https://huggingface.co/org/first |" in hub.text
    (tmp_path / "mine.gguf").touch()
    file = ModelCard(card_text(tmp_path, str(tmp_path / "mine.gguf")))
    assert file.data.base_model is None
    assert "| mine.gguf | model | unknown: look at the place where it is from" in file.text
    assert str(tmp_path) not in file.text
