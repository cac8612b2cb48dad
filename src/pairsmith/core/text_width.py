"""How wide a text is in a terminal: Chinese letters and emoji take two columns, and accents none."""


def text_width(text: str) -> int:
    """The number of columns that a text takes in a terminal; the text has no control characters."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # a slow import, only needed here

    return cell_len(text)


def left_aligned(text: str, width: int) -> str:
    """``text`` with spaces after it, ``width`` columns wide; a wider text is returned unchanged."""
    return text + " " * (width - text_width(text))


def right_aligned(text: str, width: int) -> str:
    """``text`` with spaces before it, ``width`` columns wide; a wider text is returned unchanged."""
    return " " * (width - text_width(text)) + text


def cut_line(line: str, width: int) -> str:
    """``line``, shortened to ``width`` columns of a terminal; a shortened line ends in …."""
    if text_width(line) <= width:
        return line
    room = width - 1
    for position, character in enumerate(line):
        room -= text_width(character)
        if room < 0:
            return f"{line[:position]}…"
    return line
