"""The step ``train-crossencoder``: a model that reads both texts of a pair together to score it (M6)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from heapq import nlargest
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from pairsmith.core.errors import ModelError
from pairsmith.core.model_files import pick_device
from pairsmith.core.model_names import model_revision
from pairsmith.data.examples import Example
from pairsmith.data.text import finder_revision
from pairsmith.methods.mining.crossencoder import train_crossencoder_on
from pairsmith.methods.mining.pairable import unpairable
from pairsmith.methods.mining.sampled_negatives import in_window, overlaps, positive_answers, positive_outputs
from pairsmith.models.encode import encode_texts
from pairsmith.models.sentence_encoder import load_sentence_encoder
from pairsmith.runs import DatasetFolder, hash_source
from pairsmith.steps.training.reading import SeedData, read_seeds, read_validation
from pairsmith.steps.training.settings import TrainCrossencoderSettings
from pairsmith.steps.training.step import Trained, TrainingContext, TrainingIdentity, TrainingStep

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_USE = """```python
from sentence_transformers import CrossEncoder
from torch.nn import Identity

model = CrossEncoder("path/to/this/folder", activation_fn=Identity())  # not the library's sigmoid
# Give the two texts as they are: {between}.
print(model.predict([("Who wrote Hamlet?", "Shakespeare: Hamlet is a play by Shakespeare.")]))
```"""

_SPARE = 50
"""Additional outputs to retrieve from each shard, as some may be positives or, of a document, its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Data(SeedData[Example]):
    mined: DatasetFolder | None
    """The mined outputs with their vectors, among which hard negatives are looked for."""


def _read(settings: TrainCrossencoderSettings, _: int | None) -> _Data:
    seeds = read_seeds(settings.seeds, settings.kind, settings.least_score)
    cut = [in_window(example, settings.window) for example in seeds.examples]
    validation = [in_window(example, settings.window) for example in read_validation(settings)]
    mined = DatasetFolder.open(_outputs_of(settings.mined)) if settings.mined else None
    encoder = settings.encoder
    if mined and encoder and mined.manifest.models.get("encoder") != model_revision(encoder):
        raise ModelError(
            f"model {encoder}: {mined.path} was encoded by another model, or by other weights of this "
            "one; give the same --encoder as to mine"
        )
    return _Data(replace(seeds, examples=cut), validation, mined=mined)


def _train(data: _Data, settings: TrainCrossencoderSettings, context: TrainingContext) -> Trained:
    data.tell(context["progress"])
    every = [*data.seeds.examples, *data.validation]
    negatives = _hard_negatives(every, data.mined, settings, context) if data.mined else None
    trained = train_crossencoder_on(data.seeds.examples, data.validation, negatives, settings, **context)
    facts = {**data.seeds.facts(), "validation": len(data.validation)}
    return Trained.transformer("A cross-encoder that scores pairs", _USE, trained, facts)


def _identity(settings: TrainCrossencoderSettings) -> TrainingIdentity:
    mined, encoder = settings.mined, settings.encoder
    return TrainingIdentity(
        inputs={"mined outputs": hash_source(DatasetFolder.open(_outputs_of(mined)).path)} if mined else {},
        models=({"encoder": model_revision(encoder)} if encoder else {})
        | (finder_revision(settings.answers) if settings.kind == "reading" else {}),
        made_with=(mined,) if mined else (),
    )


train_crossencoder = TrainingStep(
    "train-crossencoder",
    TrainCrossencoderSettings,
    ("seeds", "validation"),
    _read,
    _train,
    _identity,
)
"""Trains a cross-encoder on seeds. The folder opens with ``AutoModelForSequenceClassification``."""


def _outputs_of(mined: str) -> str:
    """The folder with the vectors of a mined folder's outputs."""
    return f"{mined.rstrip('/')}/outputs"


def _hard_negatives(
    examples: Sequence[Example],
    outputs: DatasetFolder,
    settings: TrainCrossencoderSettings,
    context: TrainingContext,
) -> list[list[str]]:
    """The hard negatives of each example: outputs near its input, by the bi-encoder, that are not its own."""
    assert settings.encoder is not None  # it is given whenever ``mined`` is
    read = outputs.manifest.settings["max_length"]  # as for the outputs; the encoder may allow more
    encoder = load_sentence_encoder(
        settings.encoder,
        device=pick_device(settings.device),
        max_length=read if isinstance(read, int) else None,
    )
    with context["progress"].task("find negatives", len(examples), "inputs") as bar:
        return retrieved(examples, outputs, encoder, settings.retrieved, bar.advance)


def retrieved(
    examples: Sequence[Example],
    outputs: DatasetFolder,
    encoder: "SentenceTransformer",
    count: int,
    advance: Callable[[int], None] = lambda _: None,
) -> list[list[str]]:
    """The ``count`` distinct outputs nearest to each example's input, nearest first, without positives.

    Positives are the outputs of all examples with the same input, their answers in any passage, and what
    overlaps these answers in the example's own passage. Outputs that stand in the input, such as a document's
    own sentences, and those whose answer does, are no candidates of ``mine`` either (M5).

    ``outputs`` are encoded by ``encoder``, as ``mine`` leaves them in its folder; ``advance`` is called with
    the number of inputs that were encoded.
    """
    inputs = [example.input for example in examples]
    queries = encode_texts(encoder, inputs, side="query", advance=advance)
    x = torch.nn.functional.normalize(torch.from_numpy(queries), dim=1)
    nearest: list[dict[str, float]] = [{} for _ in examples]
    right = list(zip(positive_outputs(examples), positive_answers(examples), strict=True))
    for table in outputs.shards("train", ["text", "answer", "context", "vector"]):
        if not table.num_rows:
            continue
        table = table.take(_first_of_each(table["text"]))  # duplicates would displace other texts
        vectors = torch.tensor(table["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False))
        vectors = vectors.view(table.num_rows, -1).float()
        values, places = (x @ vectors.T).topk(min(count + _SPARE, table.num_rows), dim=1)
        wanted = np.unique(places.numpy())
        known = dict(zip(wanted.tolist(), table.drop("vector").take(wanted).to_pylist(), strict=True))
        for number, example in enumerate(examples):
            hits = zip(values[number].tolist(), (known[i] for i in places[number].tolist()), strict=True)
            best = nearest[number]
            for value, row in hits:
                copied = unpairable(example.input, row["text"], row["answer"])
                if not copied and not _is_positive(row, example, *right[number]):
                    best[row["text"]] = max(value, best.get(row["text"], value))
            kept = nlargest(count, ((value, text) for text, value in best.items()))
            nearest[number] = {text: value for value, text in kept}
    return [list(best) for best in nearest]


def _first_of_each(texts: pa.ChunkedArray) -> NDArray[np.int64]:
    """The row of each text's first occurrence."""
    codes = texts.combine_chunks().dictionary_encode().indices.to_numpy()
    return np.sort(np.unique(codes, return_index=True)[1])


def _is_positive(
    row: dict[str, Any], example: Example, outputs: frozenset[str], answers: frozenset[str]
) -> bool:
    """Whether an output is, or overlaps with, one of an example's own ``outputs`` and ``answers``."""
    if row["text"] in outputs:
        return True
    if row["answer"] is None or example.context is None:
        return False
    own = row["context"] in example.context or example.context in row["context"]
    return row["answer"].casefold() in answers or (own and overlaps(row["answer"], answers))
