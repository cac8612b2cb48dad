"""Corpora: what several steps share to encode, search and judge texts."""
