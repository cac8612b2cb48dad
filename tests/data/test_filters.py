"""The filters that several steps share are listed in the documentation."""

import re
from pathlib import Path

from pairsmith.data import filters

PAGE = Path(__file__).parents[2] / "docs" / "running.md"


def test_the_page_on_running_lists_the_filters_of_several_steps():
    section = PAGE.read_text().partition("## Rows that are not kept")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `([a-z ]+)` \|", section, re.MULTILINE)
    assert sorted(listed) == sorted(value for name, value in vars(filters).items() if name.isupper())
