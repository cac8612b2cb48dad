"""What a test asks about the memory of its process."""

import re
from pathlib import Path

import pytest

MAPPINGS = Path("/proc/self/smaps")

tells_what_is_in_memory = pytest.mark.skipif(
    not MAPPINGS.exists(), reason="only Linux tells what is in memory"
)


def kilobytes_in_memory(file):
    """How much of a mapped file is in the memory of this process."""
    _, mapping = MAPPINGS.read_text().split(f" {file}\n")
    return int(re.search(r"Rss: +(\d+) kB", mapping)[1])
