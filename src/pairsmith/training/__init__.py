"""Training loops, and the model folders they write."""
