"""The search of documents with a retriever or BM25; it is not a step, as it only prints its results."""
