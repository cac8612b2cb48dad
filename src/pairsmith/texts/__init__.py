"""Splitting plain text: sentences, windows of whole sentences, and the names and numbers in it."""

from pairsmith.texts.entities import Entity, entity_finder, finder_revision
from pairsmith.texts.sentences import Sentence, split_sentences
from pairsmith.texts.windows import Window, count_words, windows

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
