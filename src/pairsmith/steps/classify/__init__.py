"""The steps ``classify`` and ``tag``: each text gets a label, or its named entities."""
