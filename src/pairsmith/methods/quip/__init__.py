"""QUIP (Jia, Lewis and Zettlemoyer 2021): token vectors learned from questions and answers."""
