"""Few-shot mining (Joshi et al. 2022): pairs found in two raw corpora by the margin of their vectors."""
