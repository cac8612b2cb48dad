"""Row types with their Arrow schemas, and readers of common formats."""

from pairsmith.data.documents import DOCUMENT, Document, read_documents
from pairsmith.data.examples import FEW, Example, answer_in_passage, each_example, read_examples
from pairsmith.data.readers import TextRecord, read_pairs, read_texts, text_id
from pairsmith.data.schemas import (
    LABELLED_PAIR,
    LABELLED_TEXT,
    MINED_ANSWER,
    MINED_PAIR,
    REJECT,
    SCORED_PAIR,
    GradedPair,
    LabelledPair,
    LabelledText,
    MinedAnswer,
    MinedPair,
    Reject,
    ScoredPair,
    as_columns,
    from_table,
    to_table,
)
from pairsmith.data.squad import QUESTION, Answer, Question, read_questions, to_question_table
from pairsmith.data.sts import STS_SUITES, StsSuite, read_sts

__all__ = [
    "DOCUMENT",
    "FEW",
    "LABELLED_PAIR",
    "LABELLED_TEXT",
    "MINED_ANSWER",
    "MINED_PAIR",
    "QUESTION",
    "REJECT",
    "SCORED_PAIR",
    "STS_SUITES",
    "Answer",
    "Document",
    "Example",
    "GradedPair",
    "LabelledPair",
    "LabelledText",
    "MinedAnswer",
    "MinedPair",
    "Question",
    "Reject",
    "ScoredPair",
    "StsSuite",
    "TextRecord",
    "answer_in_passage",
    "as_columns",
    "each_example",
    "from_table",
    "read_documents",
    "read_examples",
    "read_pairs",
    "read_questions",
    "read_sts",
    "read_texts",
    "text_id",
    "to_question_table",
    "to_table",
]
