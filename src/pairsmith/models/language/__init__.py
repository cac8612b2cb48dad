"""Language models: the interface that routes use, and the decoder that steers by several prompts at once."""
