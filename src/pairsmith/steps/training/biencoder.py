"""The step ``train-biencoder``: a bi-encoder for mining, trained on a hundred pairs (M2, M4, M7, M8)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from pairsmith.core.citations import MINING
from pairsmith.data.documents import read_documents
from pairsmith.data.examples import Example
from pairsmith.data.text import count_words, finder_revision, split_sentences, windows
from pairsmith.methods.dino.encoder import save_encoder
from pairsmith.methods.mining.biencoder import CorpusSample, train_biencoder_on
from pairsmith.methods.mining.sampled_negatives import reservoir_sample
from pairsmith.steps.shared import naming_texts
from pairsmith.steps.training.card import SENTENCE_ENCODER
from pairsmith.steps.training.reading import SeedData, read_seeds, read_validation
from pairsmith.steps.training.settings import TrainBiencoderSettings
from pairsmith.steps.training.step import Trained, TrainingContext, TrainingIdentity, TrainingStep

_USE = """```python
from sentence_transformers import SentenceTransformer

encoder = SentenceTransformer("path/to/this/folder")
inputs = encoder.encode_query(["Who wrote Hamlet?"])
outputs = encoder.encode_document(["Shakespeare: Hamlet is a play by Shakespeare."])
print(encoder.similarity(inputs, outputs))
```"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Data(SeedData[Example]):
    corpus: CorpusSample


def _read(settings: TrainBiencoderSettings, _: int | None) -> _Data:
    seeds = read_seeds(settings.seeds, settings.kind, settings.least_score)
    validation, left_out = read_validation(settings.validation, settings.kind, settings.least_score)
    return _Data(seeds, validation, left_out=left_out, corpus=corpus_sample(settings))


def _train(data: _Data, settings: TrainBiencoderSettings, context: TrainingContext) -> Trained:
    data.report(context["progress"])
    trained = train_biencoder_on(data.seeds.examples, data.validation, data.corpus, settings, **context)
    model = trained.model
    style = model.style_classifier()

    def save(card: str, out: Path) -> None:
        save_encoder(model.encoder, out, card)
        if style:
            style.save(out)

    facts = {
        **data.seeds.facts(),
        "validation examples": len(data.validation),
        "learning rate": trained.learning_rate,
        "style classifier": "yes" if style else "no",
    }
    return Trained(
        "A bi-encoder for mining pairs", _USE, SENTENCE_ENCODER, (model,), save, facts, trained.history
    )


def _identity(settings: TrainBiencoderSettings) -> TrainingIdentity:
    return TrainingIdentity(models=finder_revision(settings.answers) if settings.kind == "reading" else {})


train_biencoder = TrainingStep(
    "train-biencoder",
    ("seeds", "validation", "inputs", "outputs"),
    _read,
    _train,
    MINING,
    _identity,
    alone="its loss compares each output of a batch with all inputs of the batch",
)
"""Trains a bi-encoder on seeds. ``SentenceTransformer`` opens the folder."""


def corpus_sample(settings: TrainBiencoderSettings) -> CorpusSample:
    """A sample of the texts of the corpora that the settings name, in the form of the seeds.

    For kind ``summaries``, these are sentences of documents; for kind ``reading``, questions, and passages of
    ``window`` words; for kind ``pairs``, outputs alone.
    """
    prefer = ("question",) if settings.kind == "reading" else ()
    inputs = reservoir_sample(_texts(settings, "input", prefer), settings.sample, settings.seed, "inputs")
    records = reservoir_sample(_texts(settings, "output"), settings.sample, settings.seed, "outputs")
    if settings.kind == "summaries":
        sentences = [sentence.text for record in records for sentence in split_sentences(record)]
        outputs = reservoir_sample(sentences, settings.sample, settings.seed, "sentences")
        return CorpusSample(outputs, outputs)
    if settings.kind == "reading":
        passages = (windows(record, settings.window, count_words) for record in records)
        return CorpusSample(inputs, [passage.text for passage in chain.from_iterable(passages)])
    return CorpusSample((), records)


def _texts(settings: TrainBiencoderSettings, side: str, prefer: Sequence[str] = ()) -> Iterator[str]:
    """The texts of the corpus of one ``side``, ``input`` or ``output``; ``prefer`` are preferred columns."""
    column, remedy = getattr(settings, f"{side}_column"), naming_texts(f"{side}_column")
    for source in getattr(settings, f"{side}s"):
        for record in read_documents(source, column=column, prefer=prefer, remedy=remedy):
            yield record.text
