"""Evaluations of trained models on human-labelled data."""
