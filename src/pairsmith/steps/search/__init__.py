"""Searching documents with a retriever or BM25: not a step, as nothing is written but what is shown."""
