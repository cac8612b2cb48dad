"""The route ``mine``: naturally occurring pairs from two raw corpora."""
