"""Models by name: language models and their decoder, encoders, cross-encoders, readers, generators."""
