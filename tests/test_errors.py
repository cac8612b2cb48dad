import pytest

from pairsmith.errors import first_line, nearby


def test_what_is_called_nearly_so_is_named(tmp_path):
    (tmp_path / "sentences.txt").touch()
    assert nearby(tmp_path / "sentnces.txt") == f"; did you mean {tmp_path / 'sentences.txt'}?"
    assert nearby(tmp_path / "zzz") == ""
    assert nearby(tmp_path / "no" / "zzz") == f"; there is no folder {tmp_path / 'no'} either"


@pytest.mark.parametrize(
    ("error", "line"),
    [(ValueError("one\ntwo"), "one"), (KeyError(), "KeyError"), (ValueError("x" * 201), f"{'x' * 199}…")],
)
def test_the_first_line_of_an_error(error, line):
    assert first_line(error) == line
