"""A person labels rows by the real command, in a real browser, at the address that the command prints."""

import json
import shutil

import pytest
from playwright.sync_api import expect, sync_playwright
from tests.tools.audit.test_audit import rows_folder
from tests.tools.audit.test_browser import CHROMIUM, QUIET, SEEN
from tests.tools.audit.test_link import SECONDS, address_in, command

from pairsmith.data.schemas import SCORED_PAIR
from pairsmith.data.tasks import load_task
from pairsmith.runs import DatasetFolder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which(str(CHROMIUM)) is None, reason="no Chromium on this machine"),
]

ROWS = 6


def shown_row(page):
    return page.locator("#texts .text").first.text_content().removeprefix("one ")


def label(page, done, act):
    """Label the row that is shown, once it has been seen for long enough, by what ``act`` does."""
    page.clock.fast_forward(SEEN)
    act()
    expect(page.locator("#count")).to_have_text(f"{done} of {ROWS} labelled")


def test_rows_are_labelled_by_keys_and_by_mouse_one_is_undone_and_the_command_ends(tmp_path):
    rows = [
        {"id": str(i), "sentence1": f"one {i}", "sentence2": f"other {i}", "score": i % 3 / 2}
        for i in range(ROWS)
    ]
    settings = {"task": load_task("sts").model_dump(mode="json")}
    rows_folder(tmp_path / "in", SCORED_PAIR, rows, settings)
    out, given = tmp_path / "out", {}
    with command("audit", "--data", tmp_path / "in", "--annotator", "ann", "--out", out) as (process, said):
        address = address_in(said)
        assert "***" not in address
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
            page = browser.new_page()
            page.clock.install()
            page.goto(address)
            expect(page.locator("#question")).to_have_text("How similar in meaning are these two sentences?")
            buttons = page.locator("#labels button")
            expect(buttons).to_have_text(
                [
                    "10Two sentences that are on completely different topics.",
                    "20.5Two sentences that are somewhat similar.",
                    "31Two sentences that mean the same thing.",
                ]
            )
            message = page.locator("#message")
            page.keyboard.press("7")
            expect(message).to_have_text("No label has the key 7: the keys are 1 to 3.")
            # By keys: the second label, undone with the key, then the third.
            row = shown_row(page)
            label(page, 1, lambda: page.keyboard.press("2"))
            expect(message).to_have_text("Saved: 0.5")
            expect(buttons.nth(1)).to_have_class("chosen")
            page.keyboard.press("Backspace")
            expect(message).to_have_text("Undone: you had labelled this row 0.5. Choose its label again.")
            assert shown_row(page) == row
            label(page, 1, lambda: page.keyboard.press("3"))
            given[row] = "1"
            # By mouse, and undone by mouse.
            row = shown_row(page)
            label(page, 2, lambda: buttons.nth(0).click())
            page.click("#back")
            expect(page.locator("#count")).to_have_text(f"1 of {ROWS} labelled")
            label(page, 2, lambda: buttons.nth(1).click())
            given[row] = "0.5"
            for done in range(3, ROWS + 1):
                given[shown_row(page)] = "0"
                label(page, done, lambda: page.keyboard.press("1"))
            expect(page.locator("#question")).to_have_text("All rows are labelled.")
            page.keyboard.press("Enter")  # Finish has the focus
            expect(message).to_contain_text("Writing the results")
            told = f"ann labelled {ROWS} of {ROWS} rows; "
            expect(page.locator("#end")).to_contain_text(told, timeout=1_000 * SECONDS)
            expect(page.locator("#folder")).to_have_text(str(out))
            assert page.locator("#table tr").count() == 4
            # The page says that they are written, so they are.
            assert json.loads((out / "results.json").read_text())["labels"] == given
            assert process.wait(SECONDS) == 0
            browser.close()
        printed = process.stdout.read()
    assert f"results: {out / 'results.json'}" in printed
    assert f"labelled rows: {out / 'labelled'}" in printed
    labelled = DatasetFolder.open(out / "labelled").table().to_pylist()
    assert {row["id"]: row["score"] for row in labelled} == {
        row: float(score) for row, score in given.items()
    }
    answers = [json.loads(line) for line in (out / "answers.jsonl").read_text().splitlines()]
    assert [answer["label"] for answer in answers].count(None) == 2  # those that were undone
    assert len(answers) == ROWS + 4
