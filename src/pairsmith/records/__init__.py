"""Row types with their Arrow schemas, and readers of the formats people have."""

from pairsmith.records.readers import TextRecord, read_pairs, read_texts, text_id
from pairsmith.records.schemas import (
    LABELLED_PAIR,
    LABELLED_TEXT,
    MINED_PAIR,
    REJECT,
    SCORED_PAIR,
    GradedPair,
    LabelledPair,
    LabelledText,
    MinedPair,
    Reject,
    ScoredPair,
    as_columns,
    from_table,
    to_table,
)
from pairsmith.records.sts import STS_SUITES, StsSuite, read_sts

__all__ = [
    "LABELLED_PAIR",
    "LABELLED_TEXT",
    "MINED_PAIR",
    "REJECT",
    "SCORED_PAIR",
    "STS_SUITES",
    "GradedPair",
    "LabelledPair",
    "LabelledText",
    "MinedPair",
    "Reject",
    "ScoredPair",
    "StsSuite",
    "TextRecord",
    "as_columns",
    "from_table",
    "read_pairs",
    "read_sts",
    "read_texts",
    "text_id",
    "to_table",
]
