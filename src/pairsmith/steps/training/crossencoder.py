"""The step ``train-crossencoder``: a model that scores a pair by reading both texts together (M6)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from heapq import nlargest
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from pairsmith.core.citations import MINING
from pairsmith.core.errors import FolderError, ModelError
from pairsmith.core.model_files import pick_device
from pairsmith.core.model_names import model_revision
from pairsmith.core.paths import is_folder, place
from pairsmith.data.examples import Example
from pairsmith.data.text import finder_revision
from pairsmith.methods.mining.candidates import unpairable
from pairsmith.methods.mining.crossencoder import train_crossencoder_on
from pairsmith.methods.mining.sampled_negatives import in_window, overlaps, positive_answers, positive_outputs
from pairsmith.models.encode import encode_texts
from pairsmith.models.sentence_encoder import load_sentence_encoder
from pairsmith.runs import DatasetFolder, hash_source
from pairsmith.steps.training.card import HubModel
from pairsmith.steps.training.reading import SeedData, read_seeds, read_validation
from pairsmith.steps.training.settings import TrainCrossencoderSettings
from pairsmith.steps.training.step import Trained, TrainingContext, TrainingIdentity, TrainingStep

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_USE = """```python
from sentence_transformers import CrossEncoder
from torch.nn import Identity

model = CrossEncoder("path/to/this/folder", activation_fn=Identity())  # not the library's sigmoid
print(model.predict([("Who wrote Hamlet?", "Shakespeare: Hamlet is a play by Shakespeare.")]))
```"""

_SPARE = 50
"""Number of additional outputs to retrieve from each shard, as some may be positives or copies of inputs."""

_HUB = HubModel("sentence-transformers", "text-ranking", ("sentence-transformers", "cross-encoder"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Data(SeedData[Example]):
    mined: DatasetFolder | None
    """The outputs that ``mine`` encoded, with their vectors; hard negatives are retrieved from them."""


def _read(settings: TrainCrossencoderSettings, _: int | None) -> _Data:
    seeds = read_seeds(settings.seeds, settings.kind, settings.least_score)
    examples = [in_window(example, settings.window) for example in seeds.examples]
    validation, left_out = read_validation(settings.validation, settings.kind, settings.least_score)
    validation = [in_window(example, settings.window) for example in validation]
    mined = DatasetFolder.open(_outputs_of(settings.mined)) if settings.mined else None
    encoder = settings.encoder
    if mined and encoder and mined.manifest.models.get("encoder") != model_revision(encoder):
        raise ModelError(
            f"model {encoder}: {mined.path} was encoded by another model, or by other weights of this "
            "model; give the same --encoder as to mine"
        )
    return _Data(replace(seeds, examples=examples), validation, left_out=left_out, mined=mined)


def _train(data: _Data, settings: TrainCrossencoderSettings, context: TrainingContext) -> Trained:
    data.report(context["progress"])
    examples = [*data.seeds.examples, *data.validation]
    negatives = _hard_negatives(examples, data.mined, settings, context) if data.mined else None
    trained = train_crossencoder_on(data.seeds.examples, data.validation, negatives, settings, **context)
    facts = {**data.seeds.facts(), "validation examples": len(data.validation)}
    return Trained.transformer("A cross-encoder that scores pairs", _USE, _HUB, trained, facts)


def _identity(settings: TrainCrossencoderSettings) -> TrainingIdentity:
    mined, encoder = settings.mined, settings.encoder
    return TrainingIdentity(
        inputs={"mined outputs": hash_source(DatasetFolder.open(_outputs_of(mined)).path)} if mined else {},
        models=({"encoder": model_revision(encoder)} if encoder else {})
        | (finder_revision(settings.answers) if settings.kind == "reading" else {}),
        made_with=(mined,) if mined else (),
    )


train_crossencoder = TrainingStep(
    "train-crossencoder", ("seeds", "validation"), _read, _train, MINING, _identity
)
"""Trains a cross-encoder on seeds. ``AutoModelForSequenceClassification`` opens the folder."""


def _outputs_of(mined: str) -> str:
    """The folder inside a folder of ``mine`` that has the vectors of the outputs.

    Raises a ``FolderError`` if a folder has none, as one that ``filter`` wrote.
    """
    if is_folder(place(mined)) and not is_folder(place(mined) / "outputs"):
        raise FolderError(
            f"{mined} has no folder outputs with the vectors of the outputs; give the folder that mine "
            "wrote, not one that was made of it"
        )
    return f"{mined.rstrip('/')}/outputs"


def _hard_negatives(
    examples: Sequence[Example],
    outputs: DatasetFolder,
    settings: TrainCrossencoderSettings,
    context: TrainingContext,
) -> list[list[str]]:
    """The hard negatives of each example: the outputs nearest to its input under the bi-encoder (M6)."""
    assert settings.encoder is not None  # the settings require it with ``mined``
    # The same as for the outputs, also if the encoder can read longer texts.
    max_length = outputs.manifest.settings["max_length"]
    encoder = load_sentence_encoder(
        settings.encoder,
        device=pick_device(settings.device),
        max_length=max_length if isinstance(max_length, int) else None,
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

    Positives are the outputs of all examples with the same input, their answers in any passage, and texts
    that overlap with these answers in the example's own passage. Outputs that occur in the input, such as the
    sentences of a document, or whose answer occurs in it, are left out, as ``mine`` does not pair them (M5).

    Args:
        examples: the examples with their inputs.
        outputs: the folder of outputs with vectors by ``encoder``, as ``mine`` writes it.
        encoder: the bi-encoder, which encodes the inputs.
        count: the number of outputs for each example; there may be fewer.
        advance: called with the number of inputs that were encoded.
    """
    inputs = [example.input for example in examples]
    queries = encode_texts(encoder, inputs, side="query", advance=advance)
    x = torch.nn.functional.normalize(torch.from_numpy(queries), dim=1)
    nearest: list[dict[str, float]] = [{} for _ in examples]
    positives = list(zip(positive_outputs(examples), positive_answers(examples), strict=True))
    for table in outputs.shards("train", ["text", "answer", "context", "vector"]):
        if not table.num_rows:
            continue
        table = table.take(_first_occurrences(table["text"]))  # duplicates would displace other texts
        vectors = torch.tensor(table["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False))
        vectors = vectors.view(table.num_rows, -1).float()
        similarities, indices = (x @ vectors.T).topk(min(count + _SPARE, table.num_rows), dim=1)
        needed = np.unique(indices.numpy())
        row_at = dict(zip(needed.tolist(), table.drop("vector").take(needed).to_pylist(), strict=True))
        for number, example in enumerate(examples):
            rows = [row_at[index] for index in indices[number].tolist()]
            best = nearest[number]
            for similarity, row in zip(similarities[number].tolist(), rows, strict=True):
                copied = unpairable(example.input, row["text"], row["answer"])
                if not copied and not _is_positive(row, example, *positives[number]):
                    best[row["text"]] = max(similarity, best.get(row["text"], similarity))
            kept = nlargest(count, ((similarity, text) for text, similarity in best.items()))
            nearest[number] = {text: similarity for similarity, text in kept}
    return [list(best) for best in nearest]


def _first_occurrences(texts: pa.ChunkedArray) -> NDArray[np.int64]:
    """The row numbers, ascending, at which each distinct text occurs first."""
    codes = texts.combine_chunks().dictionary_encode().indices.to_numpy()
    return np.sort(np.unique(codes, return_index=True)[1])


def _is_positive(
    row: dict[str, Any], example: Example, outputs: frozenset[str], answers: frozenset[str]
) -> bool:
    """Whether an output, a row of a mined folder, is a positive of an example.

    It is if its text is one of ``outputs``, if its answer is one of ``answers``, or if its answer overlaps
    with one of these and both are in the same passage.
    """
    if row["text"] in outputs:
        return True
    if row["answer"] is None or example.context is None:
        return False
    same_passage = row["context"] in example.context or example.context in row["context"]
    return row["answer"].casefold() in answers or (same_passage and overlaps(row["answer"], answers))
