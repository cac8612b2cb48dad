"""Plain tables of figures, for the command line."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pairsmith.core.text_width import left_aligned, right_aligned, text_width


def results_table(figures: Mapping[str, Any]) -> str:
    """``figures`` as a plain table with a line for each figure."""
    return plain_table([(name, _number(value)) for name, value in figures.items()])


def plain_table(lines: Sequence[Sequence[str]]) -> str:
    """Lines of equally many cells as text, the first column left-aligned and the others right-aligned."""
    widths = [max(map(text_width, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            right_aligned(text, width) if column else left_aligned(text, width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _number(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return json.dumps(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
