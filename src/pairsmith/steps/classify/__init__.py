"""The step ``classify``: texts without labels get them from a text classifier."""
