"""The step ``classify``: labels texts with a text classifier."""
