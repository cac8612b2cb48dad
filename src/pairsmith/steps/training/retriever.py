"""The step ``train-retriever``: a sentence encoder that retrieves the documents that answer a query."""

from functools import partial

from pairsmith.core.citations import RETRIEVAL
from pairsmith.data.tuples import read_tuples
from pairsmith.methods.dino.encoder import save_encoder
from pairsmith.methods.retrieval.example_store import ExampleStore
from pairsmith.methods.retrieval.retriever import train_retriever_on
from pairsmith.steps.training.card import SENTENCE_ENCODER
from pairsmith.steps.training.reading import TrainingData, duplicates_left_out, items_of
from pairsmith.steps.training.settings import TrainRetrieverSettings
from pairsmith.steps.training.step import Trained, TrainingContext, TrainingStep

_USE = """```python
from sentence_transformers import SentenceTransformer

encoder = SentenceTransformer("path/to/this/folder")
queries = encoder.encode_query(["Who wrote Hamlet?"])
documents = encoder.encode_document(["Hamlet is a play by Shakespeare.", "Rome is a city."])
print(encoder.similarity(queries, documents))
```

In a terminal, `pairsmith search --model path/to/this/folder --corpus CHUNKS "Who wrote Hamlet?"` searches
the documents in `CHUNKS`: a folder that `pairsmith chunk` wrote, or a file with `id`, `title` and `text`."""


def _read(settings: TrainRetrieverSettings, most: int | None) -> TrainingData[ExampleStore]:
    read = partial(read_tuples, scored=settings.objective != "ranking")
    rows, unread = items_of(settings.data, read, most)
    examples = ExampleStore(rows)
    validation = list(read_tuples(settings.validation)) if settings.validation else []
    return TrainingData(examples, examples.read, unread, validation)


def _train(
    data: TrainingData[ExampleStore], settings: TrainRetrieverSettings, context: TrainingContext
) -> Trained:
    duplicates = data.rows - data.examples
    if duplicates:
        context["progress"].say(duplicates_left_out(duplicates, data.rows, "rows"))
    trained = train_retriever_on(data.training, data.validation, settings, **context)
    retriever = trained.model
    facts = {
        "training rows": data.examples,
        "duplicate rows left out": duplicates,
        "negatives of all rows": sum(len(example.negatives) for example in data.training),
        "objective": settings.objective,
        "validation examples": len(data.validation),
        "learning rate": trained.learning_rate,
    }
    return Trained(
        "A retriever of documents for queries",
        _USE,
        SENTENCE_ENCODER,
        (retriever,),
        lambda card, out: save_encoder(retriever.encoder, out, card),
        facts,
        trained.history,
    )


train_retriever = TrainingStep(
    "train-retriever",
    ("data", "validation"),
    _read,
    _train,
    RETRIEVAL,
    alone="its loss compares each document of a batch with all queries of the batch",
)
"""Trains a retriever on queries and documents. ``SentenceTransformer`` opens the folder."""
