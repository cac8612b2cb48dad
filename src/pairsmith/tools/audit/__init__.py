"""Audits: people label rows without seeing the labels in the data (D13)."""
