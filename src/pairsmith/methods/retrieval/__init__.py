"""Retrievers for one's own documents: chunks, generated queries and their filter, and the training."""
