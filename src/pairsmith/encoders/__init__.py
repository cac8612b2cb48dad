"""Encoders, readers and summarisers: loading, scoring, similarity, search, and the GloVe baseline."""
