"""Labelled training data from instructions, seed pairs or questions, and the small models trained on it."""

__version__ = "0.1.0"

__all__ = ["__version__"]
