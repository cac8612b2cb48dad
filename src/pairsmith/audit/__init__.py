"""People look at rows, blind, and say which label they would give them (D13)."""
