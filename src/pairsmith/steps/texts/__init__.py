"""Steps that give each text new columns: ``classify``, ``tag`` and ``summarize``."""
