"""Language models: what the routes ask of them, and the decoder that steers by several prompts at once."""
