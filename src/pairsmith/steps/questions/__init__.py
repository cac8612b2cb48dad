"""Questions about texts: generated on passages (`ask`), answered by a teacher (`relabel`)."""
