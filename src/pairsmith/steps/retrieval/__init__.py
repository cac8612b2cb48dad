"""Retrievers for documents of one's own: chunks of documents, and queries that lead back to their chunks."""
