"""The cost of ``classify``: some texts are encoded, timed and extrapolated."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice

import pyarrow as pa

from pairsmith.core.model_names import MINILM
from pairsmith.data.labelled_texts import read_text_rows
from pairsmith.data.readers import TEXT_COLUMNS
from pairsmith.data.schemas import CLASSIFIED_TEXT
from pairsmith.models.encode import encode_texts
from pairsmith.models.sentence_encoder import load_sentence_encoder
from pairsmith.runs.estimate import Before, Estimate
from pairsmith.steps.classify.settings import ClassifySettings
from pairsmith.steps.planning import counted, sample_of, sample_texts, sharded, timed
from pairsmith.steps.shared import load_options

CALIBRATION_TEXTS = 256
_ROW_BYTES = 40
"""Of a label and a confidence."""


def plan_classify(settings: ClassifySettings, before: Before, base: str = MINILM) -> Estimate:
    """Encode some of the texts, as if all were kept; ``base`` stands in for a classifier not yet trained."""
    sample = sample_of(settings.data, before)
    if sample is not None:
        names = [settings.text_column] if settings.text_column else TEXT_COLUMNS
        texts = sample_texts(sample, names, settings.data)
        count = counted(settings.data, before, len(texts))
    else:
        rows = (row.text for row in read_text_rows(settings.data, settings.text_column) if row.text)
        texts = list(islice(rows, CALIBRATION_TEXTS))
        count = len(texts) + sum(1 for _ in rows)
    texts = texts[:CALIBRATION_TEXTS]
    model = base if settings.model in before else settings.model

    def load() -> Callable[[Sequence[str]], object]:
        encoder = load_sentence_encoder(model, **load_options(settings))
        return partial(encode_texts, encoder, batch_size=settings.batch_size)

    loading, per_text, _ = timed(load, texts)
    size = sum(len(text.encode()) + _ROW_BYTES for text in texts) * count // max(1, len(texts))
    labelled = [
        {"id": str(number), "text": text, "label": "", "confidence": 0.0} for number, text in enumerate(texts)
    ]
    return sharded(
        loading=loading,
        shared=per_text * count,
        size=size,
        rows=count,
        shards=-(-count // settings.shard_size),
        sample=pa.Table.from_pylist(labelled, schema=CLASSIFIED_TEXT),
    )
