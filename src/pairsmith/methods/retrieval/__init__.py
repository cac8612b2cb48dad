"""Retrievers: documents cut into chunks, and queries filtered for training."""
