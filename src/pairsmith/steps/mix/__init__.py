"""Combine rows of several routes into one training set."""
