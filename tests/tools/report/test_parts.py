"""Texts, numbers and charts on a page."""

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairsmith.tools.report.charts import _ticks, histogram, lines, ridges
from pairsmith.tools.report.parts import (
    Bars,
    Chart,
    ExampleRows,
    Facts,
    Finding,
    Note,
    Page,
    PageSection,
    Table,
    percent,
    render_page,
    shown_text,
)

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</table></section><script>",
    "{{ 7 * 7 }} {% raw %} ${7*7} #{7*7}",
    "' onmouseover='alert(1)",
    "<!-- --><![CDATA[ ]]>",
    "&lt;b&gt; &amp;amp;",
    "javascript:alert(1)",
    "<svg onload=alert(1)>",
    "</style><style>body{display:none}</style>",
    "\u202egnirts\u202c",
    "\x00\x07\x1b[31m",
    "א" * 50,
    "👩‍👩‍👧‍👦",
    "<iframe srcdoc='<script>alert(1)</script>'>",
    "<a href=javascript:alert(1)>x</a>",
    "<base href=//evil.example>",
    "<meta http-equiv=refresh content=0;url=//evil.example>",
    "<link rel=stylesheet href=//evil.example/x.css>",
    "<object data=//evil.example></object>",
    "<embed src=//evil.example>",
    "<form action=//evil.example><input autofocus onfocus=alert(1)>",
    "<details open ontoggle=alert(1)>",
    "<video><source onerror=alert(1)></video>",
    "<math><mi xlink:href=javascript:alert(1)>x</mi></math>",
    "<body onload=alert(1)>",
    "</body></html>",
    "</title><script>alert(1)</script>",
    "</textarea><script>alert(1)</script>",
    "</svg><script>alert(1)</script>",
    "]]><script>alert(1)</script>",
    "--><script>alert(1)</script>",
    "` onmouseover=alert(1) `",
    '" style="position:fixed;inset:0" x="',
    "' autofocus onfocus='alert(1)",
    "expression(alert(1))",
    "url(javascript:alert(1))",
    "data:text/html,<script>alert(1)</script>",
    "&#60;script&#62;alert(1)&#60;/script&#62;",
    "\\u003cscript\\u003ealert(1)\\u003c/script\\u003e",
    "%3Cscript%3Ealert(1)%3C/script%3E",
    "{% for i in range(9) %}{{ i }}{% endfor %}",
    "{{ ''.__class__.__mro__ }}",
    "<%= 7 * 7 %>",
    "\u2066\u2067\u2068 isolates \u2069",
    "\u200e\u200f marks \ufeff",
    "\u2028 line \u2029 paragraph",
    "zero\u200bwidth",
    "\x85\x9b",
    "\tTab\nline\r\nline",
    "🏳️‍🌈" * 30,
    "\ud800 alone",
    "x" * 20_000,
]
ALLOWED = {
    "html",
    "head",
    "meta",
    "title",
    "style",
    "body",
    "main",
    "h1",
    "h2",
    "h3",
    "ul",
    "li",
    "bdi",
    "nav",
    "a",
    "section",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "p",
    "div",
    "span",
    "figure",
    "g",
    "figcaption",
    "svg",
    "text",
    "rect",
    "path",
    "polyline",
    "circle",
}


class Reader(HTMLParser):
    """The tags and attributes of a page, and what stands between them."""

    def __init__(self):
        super().__init__()
        self.tags, self.names, self.open, self.text = set(), set(), [], []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.names |= {name for name, _ in attrs}
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)
        self.names |= {name for name, _ in attrs}

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def read(page):
    reader = Reader()
    reader.feed(page)
    assert reader.open == []
    return reader


@pytest.mark.parametrize("text", HOSTILE)
def test_whatever_a_text_holds_is_text(text):
    text = shown_text(text)
    blocks = [
        Facts([(text, text)]),
        Table([text, text], [(text, text)], note=text),
        Bars([(text, 3)], text, text),
        Chart(ridges([0, 1], {text: [3]}, text), text),
        Chart(lines({text: [(0, 1)], f"{text} ": [(1, 2)]}, text), text),
        Chart(histogram([0, 1, 2], [3, 4], text), text),
        ExampleRows(text, [(text, [(text, text)])]),
        Note(text),
    ]
    sections = [PageSection(text, blocks, level=2), PageSection(text, blocks)]
    page = render_page(Page(text, sections, [Finding(text, text)], [text], text, text))
    reader = read(page)
    assert reader.tags <= ALLOWED
    assert not {name for name in reader.names if name.startswith("on")}
    assert "href" not in reader.names or 'href="#part-' in page
    whole = "".join(reader.text)
    assert text in whole
    page.encode("utf-8", "replace")


def test_a_page_loads_nothing_and_runs_nothing():
    page = render_page(Page("t", []))
    assert "default-src 'none'" in page
    assert "http:" not in page
    assert "https:" not in page


@given(st.text())
def test_nothing_invisible_is_shown_that_turns_or_ends_a_page(text):
    line = shown_text(text)
    assert not set(line) & set("\x00\x1b\u202a\u202b\u202d\u202e\u2066\u2067\u2068\u200e\u200f\ufeff")


def test_long_texts_are_cut_and_say_how_long_they_were():
    assert shown_text("ab" * 500, 4) == "abab… (1,000 characters)"
    assert shown_text("abcd", 4) == "abcd"
    assert shown_text("a\u202eb\x07") == "a⟨RIGHT-TO-LEFT OVERRIDE⟩b⟨U+0007⟩"
    assert shown_text("क्\u200dष") == "क्\u200dष"  # a joiner is part of the script


def test_shares():
    assert (percent(1, 3), percent(0, 0)) == ("33.3 %", "–")


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 10, [0, 2, 4, 6, 8, 10]),
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (3, 3, [3]),
        (-1, 1, [-1, -0.5, 0, 0.5, 1]),
    ],
)
def test_axes_have_round_numbers(low, high, expected):
    assert _ticks(low, high) == pytest.approx(expected)


@given(st.floats(-1e6, 1e6), st.floats(1, 1e9))
def test_axes_have_some_numbers_within_their_ends(low, width):
    ticks = _ticks(low, low + width)
    assert 3 <= len(ticks) <= 8
    assert all(low - width * 1e-6 <= tick <= low + width * (1 + 1e-6) for tick in ticks)


def test_a_histogram_draws_each_count():
    image = str(histogram([0, 1, 2, 3], [1, 0, 4], "words"))
    assert heights(image) == pytest.approx([176 / 4, 0, 176], abs=0.1)


def heights(image):
    return [float(part.split('height="')[1].split('"')[0]) for part in image.split("<rect ")[1:]]


def test_histograms_below_one_another_have_one_scale_and_their_names():
    image = str(ridges([0, 1, 2], {"score 0": [4, 1], "score 1": [0, 2]}, "cosine"))
    assert heights(image) == pytest.approx([58, 14.5, 0, 29], abs=0.1)
    assert ">score 0</text>" in image
    assert ">score 1</text>" in image


def test_only_whole_numbers_stand_below_whole_numbers():
    image = str(histogram([0.5, 1.5, 2.5], [1, 2], "words", integers=True))
    assert ">1</text>" in image
    assert ">1.5</text>" not in image


def test_bars_have_their_numbers_and_the_longest_is_widest():
    drawn = list(Bars([("a", 1), ("b", 4)], unit=" rows", series=[0, 1]).drawn())
    assert drawn == [("a", "1 row", "17.5", 0), ("b", "4 rows", "70.0", 1)]


@pytest.mark.parametrize("name", ["s0", "s6"])
def test_every_colour_is_there_for_light_and_for_dark(name):
    page = render_page(Page("t", []))
    assert page.count(f"--{name}: #") == 3  # and on paper


def test_every_image_says_what_it_shows():
    for image in (
        histogram([0, 1], [1], "words"),
        ridges([0, 1], {"a": [1]}, "x"),
        lines({"a": [(0, 1)]}, "x"),
    ):
        assert 'role="img" aria-label="' in str(image)


def test_lines_with_nothing_in_them_are_an_empty_image():
    assert read(str(lines({}, "step"))).tags == {"svg"}


def test_lines_are_told_apart_by_numbers_too():
    names = [f"way {place}" for place in range(9)]  # more than there are colours
    image = str(lines({name: [(0.0, 1.0), (place + 1.0, 2.0)] for place, name in enumerate(names)}, "rows"))
    for place, name in enumerate(names, start=1):
        assert f"<span>{place} {name}</span>" in image
        assert image.count(f">{place}</text>") >= 1
    alone = str(lines({"way": [(0.0, 1.5), (1.0, 2.5)]}, "rows"))
    assert "legend" not in alone


@pytest.mark.parametrize("x", [0.0, 5.0, 10.0])
def test_the_numbers_of_lines_that_end_at_one_point_do_not_cover_each_other(x):
    others = {"first": [(0.0, 0.0), (10.0, 2.0)], "lone": [(10.0, 0.0)]}
    series = {f"way {n}": [(x, 1.0 + n / 1000)] for n in range(6)}
    image = str(lines({**others, **series}, "rows"))
    found = re.findall(r'<text x="([\d.]+)" y="([\d.]+)" text-anchor="(\w+)" class="name">(\d)<', image)
    assert [number for *_, number in found] == [str(n) for n in range(1, 9)]
    boxes = [(float(x) - (8 if anchor == "end" else 0), float(y)) for x, y, anchor, _ in found]
    assert all(0 <= left <= 432 and 10 <= high <= 186 for left, high in boxes)
    for number, (left, high) in enumerate(boxes):
        for other_left, other_high in boxes[:number]:
            assert abs(left - other_left) >= 8 or abs(high - other_high) >= 12


@pytest.mark.parametrize("text", ["\u00ad", "\u2028", "\u3164", "\u180e", "\U000e0041", "\ud800", "\u2800"])
def test_characters_that_nobody_sees_are_named(text):
    assert shown_text(f"a{text}b").startswith("a⟨")


def test_texts_are_cut_when_their_marks_are_written_out():
    assert len(shown_text("\u202e" * 1_000)) < 700


@given(st.floats(-5, 5), st.floats(1e-7, 1))
def test_narrow_axes_have_numbers_too(low, width):
    assert 1 <= len(_ticks(low, low + width)) <= 9


def test_a_lead_that_begins_in_arabic_does_not_turn_the_english_after_it_around():
    page = render_page(Page("t", [], lead=["جمل قصيرة. The model wrote them."]))
    assert '<p class="lead"><bdi dir="ltr">جمل قصيرة. The model wrote them.</bdi></p>' in page
