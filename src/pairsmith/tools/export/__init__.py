"""Export rows in formats that other tools read."""
