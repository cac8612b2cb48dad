"""The width of texts in a terminal, where Chinese letters and emoji take two columns, and accents none."""


def columns(text: str) -> int:
    """The number of a terminal's columns that a text without control characters takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # a slow import, only needed here

    return cell_len(text)


def left(text: str, width: int) -> str:
    """A text with spaces after it, so that it takes ``width`` columns; a wider one is returned as it is."""
    return text + " " * (width - columns(text))


def right(text: str, width: int) -> str:
    """A text with spaces before it, so that it takes ``width`` columns; a wider one is returned as it is."""
    return " " * (width - columns(text)) + text


def cut_line(line: str, width: int) -> str:
    """The line, cut to ``width`` columns of a terminal; a line that is cut ends in …."""
    if columns(line) <= width:
        return line
    room = width - 1
    for at, character in enumerate(line):
        room -= columns(character)
        if room < 0:
            return f"{line[:at]}…"
    return line
