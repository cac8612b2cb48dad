"""Nearest neighbours in both directions, exactly or with FAISS, and margin scores."""
