"""The cost of ``classify``: some texts are encoded, timed and extrapolated."""

from functools import partial

import pyarrow as pa

from pairsmith.data.labelled_texts import read_text_rows
from pairsmith.data.schemas import CLASSIFIED_TEXT
from pairsmith.runs.estimate import Before, Estimate
from pairsmith.steps.classify.settings import ClassifySettings
from pairsmith.steps.planning import counted, first_items, load_text_encoder, sharded, timed

CALIBRATION_TEXTS = 256
_ROW_BYTES = 40
"""Of a label and a confidence."""


def plan_classify(settings: ClassifySettings, before: Before) -> Estimate:
    """Encode some of the texts, as if all were kept."""
    rows = (row.text for row in read_text_rows(settings.data, settings.text_column) if row.text)
    texts, number = first_items(rows, CALIBRATION_TEXTS)
    count = counted(settings.data, before, number)
    loading, per_text, _ = timed(partial(load_text_encoder, settings), texts)
    labelled = [  # the label is one that all readers of labels take
        {"id": str(row), "text": text, "label": "0", "confidence": 0.0} for row, text in enumerate(texts)
    ]
    return sharded(
        loading=loading,
        shared=per_text * count,
        size=sum(len(text.encode()) + _ROW_BYTES for text in texts) * count // max(1, len(texts)),
        rows=count,
        shards=-(-count // settings.shard_size),
        sample=pa.Table.from_pylist(labelled, schema=CLASSIFIED_TEXT),
    )
