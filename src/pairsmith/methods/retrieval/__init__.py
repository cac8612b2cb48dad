"""Retrievers for documents of one's own: chunks, queries for them, which are kept, and the training."""
