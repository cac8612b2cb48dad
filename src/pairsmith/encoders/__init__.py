"""Sentence encoders: their names, loading, pooling, similarity, and the GloVe baseline."""
