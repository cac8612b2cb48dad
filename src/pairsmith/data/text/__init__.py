"""Splits plain text into sentences and windows of whole sentences, and finds candidate answers in it."""

from pairsmith.data.text.entities import Entity, entities_of_texts, entity_finder, finder_revision
from pairsmith.data.text.windows import TextPart, split_sentences, windows, with_full_stop
from pairsmith.data.text.words import count_words

__all__ = [
    "Entity",
    "TextPart",
    "count_words",
    "entities_of_texts",
    "entity_finder",
    "finder_revision",
    "split_sentences",
    "windows",
    "with_full_stop",
]
