"""Rows of several routes become one training set."""
