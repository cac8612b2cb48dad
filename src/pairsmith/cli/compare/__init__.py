"""Comparisons of ways to make training rows, on one task with one model."""
