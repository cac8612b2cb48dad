"""The names of the margins and of the retrieval rules; imports none of the libraries that search."""

from typing import Literal

MarginName = Literal["ratio", "distance", "absolute"]
"""The margins of ``margin.margin``."""
RetrievalName = Literal["candidates", "max", "intersection", "forward", "backward"]
"""The retrieval rules of ``selection.select_pairs``."""
