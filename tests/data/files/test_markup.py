import codecs
from contextlib import suppress
from encodings.aliases import aliases

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairsmith.data.files.markup import TITLE_WORDS, read_html, read_markdown
from pairsmith.data.files.parsed import Section, Unreadable


def html(page: str) -> list[Section]:
    return list(read_html(page.encode()).sections)


def markdown(text: str) -> list[Section]:
    return list(read_markdown(text.encode()).sections)


def test_headings_of_a_page_are_titles():
    page = """<!DOCTYPE html><html><head><title>Manual - Acme</title><style>p {}</style></head><body>
      <nav>Home | <a href=/>Up</a></nav>
      <h1>The <em>Manual</em></h1><p>It is
      short.<p>And &amp; good.
      <h2>Install</h2><div>Run it.<script>run()</script> Twice.</div>
      <h3>On a Mac</h3>Nothing.
      <h2>Use</h2><ul><li>First<li>Second</ul></body></html>"""
    assert html(page) == [
        Section("The Manual", "It is short.\nAnd & good."),
        Section("The Manual › Install", "Run it. Twice."),
        Section("The Manual › Install › On a Mac", "Nothing."),
        Section("The Manual › Use", "First\nSecond"),
    ]


def test_a_page_with_several_first_headings_has_its_own_title():
    page = "<title>Book</title><h1>One</h1>a<h1>Two</h1>b"
    assert html(page) == [Section("Book › One", "a"), Section("Book › Two", "b")]


def test_only_the_main_part_is_read():
    page = "<title>T</title><header>Top</header><main><p>Text</p></main> <footer>Bottom</footer>"
    assert html(page) == [Section("T", "Text")]


def test_tables_have_a_line_for_each_row_and_program_texts_keep_their_lines():
    page = "<table><tr><th>Name<th>Age<tr><td>Ann<td>7</table><pre>a = 1\n  b = 2\n</pre>c<br>d"
    assert html(page) == [Section("", "Name | Age\nAnn | 7\na = 1\n  b = 2\nc\nd")]


def test_a_heading_as_long_as_a_paragraph_is_one():
    words = " ".join(["word"] * (TITLE_WORDS + 1))
    assert html(f"<h1>{words}</h1><p>Text") == [Section("", f"{words}\nText")]


@pytest.mark.parametrize("page", ["", "  \n", "<!-- nothing -->", "<html></html>", "<h1>Only a heading</h1>"])
def test_a_page_without_text_has_no_sections(page):
    assert html(page) == []


def test_very_deep_pages_are_read():
    assert html("<div>" * 1_500 + "deep" + "</div>" * 1_500) == [Section("", "deep")]


def test_what_is_lost_of_a_page_is_told():
    parsed = read_html(b"<p>Before" + b"<div>" * 5_000 + b"too deep")
    assert parsed.sections == [Section("", "Before")]
    (fault,) = parsed.faults
    assert (fault.filter, fault.reason) == ("damaged HTML", "not all of it can be read")
    assert "depth" in fault.details["error"]


def test_a_page_declares_its_encoding():
    page = '<meta charset="iso-8859-1"><p>café €'
    assert read_html(page.encode("cp1252")).sections == [Section("", "café €")]
    declared = '<?xml version="1.0" encoding="latin-1"?><meta http-equiv=x content="text/html; charset=koi8-r"><p>Привет'
    assert read_html(declared.encode("koi8-r")).sections == [Section("", "Привет")]
    # A byte order mark counts for more, and an unknown name for nothing.
    assert read_html(codecs.BOM_UTF8 + "<meta charset=koi8-r>é".encode()).sections == [Section("", "é")]
    assert read_html("<meta charset=nonsense>é".encode()).sections == [Section("", "é")]
    with pytest.raises(Unreadable, match="not UTF-8: byte 0xe9"):
        read_html(b"<p>caf\xe9")


@pytest.mark.parametrize(
    "name", ["base64", "hex", "idna", "undefined", "unicode_escape", "utf-16", "utf-32", "utf-7"]
)
def test_what_no_page_is_written_in_is_read_as_utf_8(name):
    assert read_html(f'<meta charset="{name}"><p>a\\x41+2AA-é'.encode()).sections == [
        Section("", "a\\x41+2AA-é")
    ]


@pytest.mark.parametrize("name", sorted(set(aliases.values())))
def test_any_declared_encoding_is_one_of_texts_or_not_used(name):
    data = f"<meta charset={name}><p>".encode() + bytes(range(1, 256))
    with suppress(Unreadable):
        read_html(data)


def test_headings_of_markdown_are_titles():
    text = """# Guide

A *first* paragraph
on two lines.

## Steps

1. Do `this`.
2. Do [that](x.html).

Setext
------

| a | b |
|---|---|
| 1 | 2 |

```
# no heading
```
"""
    assert markdown(text) == [
        Section("Guide", "A first paragraph on two lines."),
        Section("Guide › Steps", "Do this.\nDo that."),
        Section("Guide › Setext", "a | b\n1 | 2\n# no heading"),
    ]


def test_front_matter_has_the_title_and_is_no_text():
    assert markdown("---\ntitle: Rules\ntags: [a]\n---\nText.\n\n## Part\n\nMore.") == [
        Section("Rules", "Text."),
        Section("Rules › Part", "More."),
    ]
    assert markdown("---\ntitle: null\n---\nText.") == [Section("", "Text.")]
    assert markdown("---\ntitle: [a, list]\n---\nText.") == [Section("", "Text.")]
    assert markdown("A line\n\n---\n\nText.") == [Section("", "A line\nText.")]


DEEP = 1_000  # as deep as Python calls functions; PyYAML's time grows with the square


@pytest.mark.parametrize(
    ("front", "title"),
    [
        ("date: 2024-02-30\ntitle: Day", "Day"),
        ("d: 2024-01-01T25:00:00Z\ntitle: Hour", "Hour"),
        (f"deep: {'[' * DEEP}{']' * DEEP}\ntitle: Lists", "Lists"),
        ('title: "a\\ud800b"', "ab"),
        ('title: "a \\ud83d\\ude00"', "a 😀"),
        ('title: "a\\0b\\x01c"', "abc"),
        ("title: 2024-01-01", "2024-01-01"),
    ],
)
def test_the_title_is_read_whatever_else_is_in_the_front_matter(front, title):
    assert markdown(f"---\n{front}\n---\nText.") == [Section(title, "Text.")]


@pytest.mark.parametrize(
    "front",
    [
        "Some prose that is no list of properties.",
        "Winter is coming: beware.\nIt is cold.",
        "- an item",
        ": - [",
        "title: " + "[" * DEEP,
        'title: "\\U00110000"',
    ],
)
def test_what_is_no_front_matter_is_text(front):
    (section,) = markdown(f"---\n{front}\n---\nText.")
    assert section.title == ""
    assert section.text.split() == f"{front.removeprefix('- ')} Text.".split()


@given(st.text(st.sampled_from("title:\n -[]{}\"'\\x0ud8|>&*!%@#2024.")))
def test_no_front_matter_stops_the_reader_or_takes_the_text(front):
    sections = markdown(f"---\n{front}\n---\n\nThe text.")
    "\n".join(f"{section.title}\n{section.text}" for section in sections).encode()
    assert "The text." in sections[-1].text


def test_programs_and_styles_in_a_heading_are_no_part_of_the_title():
    page = "<h1>The <b>end</b><script>var a=1</script> of<style>b {}</style> it</h1><p>Text<h2>x<script>1</script>"
    assert html(page) == [Section("The end of it", "Text")]
    assert html(f"{page}</h2>More")[1] == Section("The end of it › x", "More")


def test_a_line_break_in_a_heading_is_a_space():
    assert html("<p>Before<h1>One<br>Two</h1>Text") == [
        Section("One Two", "Before"),
        Section("One Two", "Text"),
    ]
