"""A person at a real browser: Debian's Chromium, driven by Playwright."""

import json
import queue
import shutil
import threading
from datetime import datetime, timedelta
from itertools import zip_longest

import pytest
from playwright.sync_api import expect, sync_playwright
from tests.folders import write_folder
from tests.tools.report.test_parts import HOSTILE
from tests.tools.report.test_report import hostile_folder
from tests.tools.report.test_rows import folder

from pairsmith.cli.compare.file import Comparison, EvaluationEntry, TrainingEntry
from pairsmith.cli.compare.outcome import Cost, Score
from pairsmith.cli.compare.page import page as comparison_page
from pairsmith.cli.compare.recipe import Trial
from pairsmith.core.progress import Silent
from pairsmith.data.schemas import LABELLED_PAIR, LabelledPair, ScoredPair, to_table
from pairsmith.runs import DatasetFolder, Run
from pairsmith.tools.audit.app import LONGEST_TEXT
from pairsmith.tools.audit.route import audit
from pairsmith.tools.report.parts import shown_text
from pairsmith.tools.report.route import report
from pairsmith.tools.report.rows import MOST_CHARACTERS
from pairsmith.tools.settings import AuditSettings, ReportSettings

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
QUIET = ["--disable-gpu", "--no-sandbox", "--disable-background-networking", "--disable-component-update",
         "--disable-sync", "--disable-quic", "--no-first-run"]  # fmt: skip

SEEN = 410
"""Milliseconds for which a row is to be seen before it can be labelled."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield started
        started.close()


class Address(Silent):
    """Hears of the page's address."""

    def __init__(self):
        self.found = queue.Queue()

    def link(self, text):
        if text.startswith("open http"):
            self.found.put(text.removeprefix("open "))


def begin(settings, out):
    """The audit in a thread, and its address."""
    heard = Address()
    thread = threading.Thread(target=audit, args=[settings, Run(out, heard)])
    thread.start()
    return thread, heard.found.get(timeout=30)


def open_page(browser, address=None):
    """A page whose clock can be put forward; with the address of an audit, it shows the first row."""
    page = browser.new_page()
    page.clock.install()
    if address:
        page.goto(address)
        page.wait_for_selector("#labels button")
    return page


def audit_of_pairs(browser, path, count):
    """An audit of ``count`` pairs in a thread, and a page that shows the first of them."""
    pairs = [ScoredPair(str(i), f"one {i}", f"other {i}", i % 2 / 1) for i in range(count)]
    folder(path / "in", [{"train": pairs}])
    thread, address = begin(AuditSettings(data=str(path / "in"), rows=count), path / "out")
    return thread, open_page(browser, address)


def press(page, key):
    """Press a key and wait until the page shows the next row."""
    before = page.text_content("#count")
    page.clock.fast_forward(SEEN)
    page.keyboard.press(key)
    expect(page.locator("#count")).not_to_have_text(before)


def row_shown(page):
    return page.locator("#texts .text").first.text_content().removeprefix("one ")


def finish(page, thread):
    page.click("#finish")
    page.locator("#end", has_text="Files that were written").wait_for()
    thread.join(30)
    assert not thread.is_alive()


@pytest.mark.long
def test_two_people_label_a_hundred_pairs_by_keyboard(browser, tmp_path):
    pairs = [ScoredPair(str(i), f"one {i}", f"other {i}", i % 3 / 2) for i in range(150)]
    folder(tmp_path / "in", [{"train": pairs}])
    said = {}
    for name, shift in (("ann", 0), ("bob", 1)):
        settings = AuditSettings(data=str(tmp_path / "in"), annotator=name)
        thread, address = begin(settings, tmp_path / "out")
        page = open_page(browser, address)
        typed = said[name] = {}
        for number in range(100):
            row = row_shown(page)
            key = (int(row) * 7 + shift * (int(row) % 5 == 0)) % 3
            if number == 50:
                page.reload()  # in the middle
                page.wait_for_selector("#labels button")
                assert page.text_content("#count") == "50 of 100 labelled"
                assert page.text_content("#who") == f"by {name}"
                assert row_shown(page) == row
            if number == 60:  # a wrong key, taken back
                press(page, str((key + 1) % 3 + 1))
                press(page, "Backspace")
                assert row_shown(page) == row
            press(page, str(key + 1))
            typed[row] = ("0", "0.5", "1")[key]
        page.wait_for_selector("#finish", state="visible")
        finish(page, thread)
        page.close()
    assert all(len(labels) == 100 for labels in said.values())
    records = json.loads((tmp_path / "out" / "argilla.json").read_text())
    for record in records:
        given = [answer["value"] for answer in record["responses"]["label"]]
        assert given == [said[name][record["id"]] for name in ("ann", "bob")]
    labelled = DatasetFolder.open(tmp_path / "out" / "labelled")
    agreed = {row: float(label) for row, label in said["ann"].items() if said["bob"][row] == label}
    assert {row["id"]: row["score"] for row in labelled.table().to_pylist()} == agreed
    assert labelled.rejects().num_rows == 100 - len(agreed) > 0
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["labelled"] == {"ann": 100, "bob": 100}


def test_digits_of_other_keyboards(browser, tmp_path):
    thread, page = audit_of_pairs(browser, tmp_path, 4)
    keys = "(init) => document.dispatchEvent(new KeyboardEvent('keydown', init))"
    page.clock.fast_forward(SEEN)
    page.evaluate(keys, {"key": "!", "code": "Digit1", "shiftKey": True})
    page.evaluate(keys, {"key": "End", "code": "Numpad1"})  # without Num Lock
    expect(page.locator("#count")).to_have_text("0 of 4 labelled")
    typed = [("&", "Digit1"), ("\u0661", "Digit1"), ("1", "Numpad1"), ("Process", "Digit1")]
    for number, (key, code) in enumerate(typed, start=1):
        page.clock.fast_forward(SEEN)
        page.evaluate(keys, {"key": key, "code": code})
        expect(page.locator("#count")).to_have_text(f"{number} of 4 labelled")
    finish(page, thread)
    page.close()
    labelled = json.loads((tmp_path / "out" / "results.json").read_text())["labelled"]
    assert list(labelled.values()) == [4]


def test_keys_held_down_and_two_windows_label_no_row_unseen(browser, tmp_path):
    pairs = [ScoredPair(str(i), f"one {i}", f"other {i}", i % 2 / 1) for i in range(6)]
    folder(tmp_path / "in", [{"train": pairs}])
    settings = AuditSettings(data=str(tmp_path / "in"), rows=6)
    thread, address = begin(settings, tmp_path / "out")
    one, other = open_page(browser, address), open_page(browser, address)
    row = row_shown(one)
    assert row_shown(other) == row
    one.clock.fast_forward(SEEN)
    one.evaluate(
        "for (let i = 0; i < 5; i++) document.dispatchEvent(new KeyboardEvent('keydown', {key: '1', repeat: i > 0}))"
    )
    one.locator("#count", has_text="1 of 6").wait_for()
    press(other, "2")  # the row that has its label already
    assert "already had a label" in other.text_content("#message")
    assert other.text_content("#count").startswith("1 of 6")
    assert row_shown(other) == row_shown(one) != row
    while one.is_hidden("#finish"):
        press(one, "1")
    finish(one, thread)
    for page in (one, other):
        page.close()
    labels = json.loads((tmp_path / "out" / "results.json").read_text())["labels"]
    assert labels == dict.fromkeys(map(str, range(6)), "0")


def watched(browser):
    """A page, and what went wrong or was loaded in it."""
    page, seen = open_page(browser), []
    page.on("dialog", lambda dialog: (seen.append(dialog.message), dialog.dismiss()))
    page.on("pageerror", lambda error: seen.append(str(error)))
    page.on("request", lambda request: seen.append(request.url))
    return page, seen


TEXTS = [text for text in HOSTILE if text != "\ud800 alone"]
"""Half a character cannot be stored."""


def some(texts, count):
    return [texts[first : first + count] for first in range(0, len(texts), count)]


def holds_still(browser, path):
    """The text of a page in which nothing runs, is loaded, or stands beside the page."""
    page, seen = watched(browser)
    page.goto(path.as_uri())
    assert seen == [path.as_uri()]
    assert (
        page.locator("script, img, iframe, b, form, object, embed, video, base, link, details").count() == 0
    )
    assert page.evaluate("document.body.scrollWidth <= document.documentElement.clientWidth")
    text = page.text_content("body")
    page.close()
    return text


def test_hostile_texts_do_nothing_in_a_report(browser, tmp_path):
    for number, labels in enumerate(some(TEXTS, 19)):  # as many as are told by name
        data, out = tmp_path / f"in-{number}", Run(tmp_path / f"page-{number}", Silent())
        hostile_folder(data, labels)
        path = report(ReportSettings(data=str(data), examples=100), out)
        text = holds_still(browser, path)
        for hostile in TEXTS:
            assert shown_text(hostile[:MOST_CHARACTERS]) in text
        for label in labels:
            assert f"label {shown_text(label, 60)}:" in text


def test_hostile_names_do_nothing_in_a_comparison(browser, tmp_path):
    for number, names in enumerate(some(TEXTS, 20)):
        compared = Comparison.model_construct(
            name=names[0],
            description=names[1],
            seeds=(1, 2),
            labelled=names[-1],
            train=TrainingEntry(step="train-encoder", settings={"base": names[0]}),
            measure=EvaluationEntry(step="evaluate-sts", figure=names[1]),
        )
        scores = [Score(Trial((name,), 9), [9, 9], [50, 52], [1, 1]) for name in names]
        costs = {name: Cost([1.0, 2.0], [7, 7], [9, 9]) for name in names}
        path = tmp_path / f"{number}.html"
        path.write_text(comparison_page(compared, scores, costs), encoding="utf-8")
        text = holds_still(browser, path)
        for name in names:
            assert shown_text(name, 40) in text


def test_hostile_texts_do_nothing_in_an_audit(browser, tmp_path):
    task = {"name": TEXTS[0], "labels": [{"name": TEXTS[1], "instruction": TEXTS[2]}]}
    texts = list(zip_longest(TEXTS[::2], TEXTS[1::2], fillvalue=TEXTS[0]))
    pairs = [LabelledPair(str(i), one, other, TEXTS[1]) for i, (one, other) in enumerate(texts)]
    write_folder(tmp_path / "in", {"train": to_table(pairs, LABELLED_PAIR)}, settings={"task": task})
    labels = [text for text in TEXTS if len(text) <= 300]
    shown_texts, shown_labels, row_count = set(), set(), len(pairs)
    for number, some_labels in enumerate(some(labels, 9)):
        name = next((label for label in some_labels if label.isprintable()), "me")
        settings = AuditSettings(
            data=str(tmp_path / "in"), labels=some_labels, annotator=name[:60], rows=row_count
        )
        thread, address = begin(settings, tmp_path / f"out-{number}")
        window, seen = watched(browser)
        window.goto(address)
        window.wait_for_selector("#labels button")
        shown_labels.update(window.locator("#labels .name").all_text_contents())
        while window.is_hidden("#finish"):
            shown_texts.update(window.locator("#texts .text").all_text_contents())
            assert window.locator("main :is(script, img, svg)").count() == 0
            press(window, "1")
        finish(window, thread)
        assert all(url.startswith(address.partition("?")[0]) for url in seen)
        window.close()
        row_count = 1  # all texts have been shown
    assert {shown_text(text, LONGEST_TEXT) for text in TEXTS} <= shown_texts
    for label in labels:
        assert any(button.endswith(shown_text(label)) for button in shown_labels), label


@pytest.mark.parametrize("pause", [0, 60, 200])
def test_a_double_click_labels_one_row(browser, tmp_path, pause):
    thread, page = audit_of_pairs(browser, tmp_path, 6)
    page.clock.pause_at(datetime.now() + timedelta(hours=1))  # the row is seen; clicks take no time from here
    where = page.locator("#labels button").first.bounding_box()
    page.mouse.move(where["x"] + 5, where["y"] + 5)
    for clicks in (1, 2):  # the second one on the next row
        page.mouse.down(click_count=clicks)
        page.mouse.up(click_count=clicks)
        expect(page.locator("#count")).to_have_text("1 of 6 labelled")
        page.clock.fast_forward(pause)
    page.clock.resume()
    press(page, "1")
    expect(page.locator("#count")).to_have_text("2 of 6 labelled")
    while page.is_hidden("#finish"):
        press(page, "1")
    finish(page, thread)
    page.close()
