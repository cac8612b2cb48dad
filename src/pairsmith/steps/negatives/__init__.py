"""Hard negatives for pairs of a query and a positive, from a corpus."""
