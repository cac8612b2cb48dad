"""Training data for retrieval: chunks of documents, queries for them, and which of these are kept."""
