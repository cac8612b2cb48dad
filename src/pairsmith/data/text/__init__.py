"""Splitting plain text: sentences, windows of whole sentences, and the names and numbers in it."""

from pairsmith.data.text.entities import Entity, entity_finder, finder_revision
from pairsmith.data.text.sentences import Sentence, split_sentences
from pairsmith.data.text.windows import Window, count_words, windows

__all__ = [
    "Entity",
    "Sentence",
    "Window",
    "count_words",
    "entity_finder",
    "finder_revision",
    "split_sentences",
    "windows",
]
