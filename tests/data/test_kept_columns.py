"""Columns of users' records: under which names they are kept, which are missing, and what of them is kept."""

from datetime import date

import pytest

from pairsmith.core.errors import InputError
from pairsmith.data.kept_columns import kept_names, kept_values, refuse_missing_columns


def test_a_column_keeps_its_name_unless_it_is_ours():
    assert kept_names(["url", "id", "original_id"], ["id"]) == {
        "url": "url",
        "id": "original_original_id",
        "original_id": "original_id",
    }
    assert kept_names(["id", "url"], ["id", "input_id"], "input_") == {
        "id": "original_input_id",
        "url": "input_url",
    }


def test_values_are_texts_and_letter_case_does_not_count():
    row = {"URL": " a ", "n": 1.0, "tags": ["ä", None], "day": date(2021, 1, 2), "none": None}
    names = {name: name for name in ("url", "n", "tags", "day", "none", "absent")}
    assert kept_values(row, names, "a:1") == {
        "url": " a ",
        "n": "1.0",
        "tags": '["ä", null]',
        "day": "2021-01-02",
        "none": None,
        "absent": None,
    }
    with pytest.raises(InputError, match="a:1: column 'by' holds half a character"):
        kept_values({"by": ["\ud800"]}, {"by": "by"}, "a:1")


def test_a_column_that_one_of_the_sources_or_a_later_row_has_is_not_missing(tmp_path):
    (tmp_path / "a.txt").write_text("one\n")
    (tmp_path / "b.jsonl").write_text('{"text": "two"}\n{"text": "three", "by": "Ann"}\n')
    sources = [str(tmp_path / "a.txt"), str(tmp_path / "b.jsonl")]
    refuse_missing_columns(("--keep-column", sources, ["by", "text"]), ("--other", ["nowhere.csv"], []))
    with pytest.raises(InputError, match=r"has no column 'url'; it has: text, by$"):
        refuse_missing_columns(("--keep-column", sources, ["by", "url"]))
