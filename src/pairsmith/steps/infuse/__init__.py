"""The QUIP route: questions generated on passages, answered by a teacher, used to train a bi-encoder."""
