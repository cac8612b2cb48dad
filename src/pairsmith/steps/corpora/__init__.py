"""Corpora that several steps encode, search and judge."""
