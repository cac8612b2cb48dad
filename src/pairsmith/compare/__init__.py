"""Ways to make training rows, compared on one task with one model."""
