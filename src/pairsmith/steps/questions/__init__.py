"""Questions on passages: the steps ``ask``, which generates them, ``relabel`` and ``answer``."""
