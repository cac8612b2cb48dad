"""Both pages in a browser, narrow and wide, light and dark: axe-core finds no fault, and nothing scrolls sideways.

axe-core looks for what WCAG 2 A and AA ask of a page. Only tests need it.
"""

import json

import pytest
from playwright.sync_api import sync_playwright
from tests.folders import write_folder
from tests.tools.audit.test_browser import CHROMIUM, QUIET, SEEN, begin
from tests.tools.report.test_rows import SHARDS, folder

from pairsmith.core.progress import Silent
from pairsmith.data.schemas import REJECT, SCORED_PAIR, Reject, ScoredPair, to_table
from pairsmith.data.tasks import load_task
from pairsmith.runs import Run
from pairsmith.tools.report.route import report
from pairsmith.tools.settings import AuditSettings, ReportSettings

axe = pytest.importorskip("axe_playwright_python.base", reason="needs axe-playwright-python (extra dev)")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]

ASKED = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}}


@pytest.fixture(scope="module")
def page():
    """A page in which axe-core may be run, whatever the page's own policy says."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield browser.new_context(bypass_csp=True).new_page()
        browser.close()


def looked_at(page):
    """Look at the page as it is, narrow and wide, in light and in dark."""
    page.evaluate("source => { if (!window.axe) (0, eval)(source) }", axe.AXE_SCRIPT)
    for width, scheme in ((400, "light"), (1_400, "dark")):
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme=scheme)
        results = page.evaluate("asked => axe.run(document, asked)", ASKED)
        faults = [
            (fault["id"], fault["impact"], fault["nodes"][0]["html"]) for fault in results["violations"]
        ]
        assert faults == [], f"{width} px, {scheme}"
        assert (
            page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
        )


def scored(path):
    """A data set with all that a page can have: splits, rejects, a task, near-copies, faults."""
    rows = [
        ScoredPair(str(i), f"The dog number {i} runs", f"The dog {'runs' if i % 3 else 'sleeps'}", i % 3 / 2)
        for i in range(90)
    ]
    settings = {"task": load_task("sts").model_dump(mode="json"), "rule": "self-debiasing", "decay": 100.0}
    tables = {"train": to_table(rows[:80], SCORED_PAIR), "validation": to_table(rows[80:], SCORED_PAIR)}
    rejects = to_table([Reject.of("1", "copy", "repeats a text", {"a": "b"})], REJECT)
    return write_folder(path, tables, settings=settings, rejects=rejects)


def a_run(path):
    """The folder of a recipe's run: a data set, a model and two evaluations."""
    scored(path / "pairs")
    steps = ["pairs", "before", "encoder", "after"]
    for name, value in (("before", 40.0), ("after", 60.0)):
        (path / name).mkdir()
        about = {"step": "evaluate sts", "model": name, "data": "graded.tsv", "inputs": {"data": "x"}}
        results = {"graded": {"all": value, "all_ci": [value - 2, value + 2], "pairs": 9}, "about": about}
        (path / name / "results.json").write_text(json.dumps(results))
    (path / "encoder").mkdir()
    course = [{"step": 0, "spearman": 40.0}, {"step": 9, "spearman": 60.0}]
    training = {"step": "train-encoder", "steps": 9, "best_step": 9, "validation": course, "seconds": 3.0}
    (path / "encoder" / "training.json").write_text(json.dumps(training))
    record = {
        "recipe": "r",
        "description": "Pairs, and an encoder of them.",
        "planned": steps,
        "spent": dict.fromkeys(steps, 2.0),
        "steps": {name: {} for name in steps},
    }
    (path / "run.json").write_text(json.dumps(record))
    (path / "results.json").write_text(json.dumps({"spearman_after": 60.0, "seconds": 8.0}))


@pytest.mark.parametrize("name", ["run", pytest.param("run/pairs", marks=pytest.mark.long)])
def test_reports_on_a_run_and_on_rows(page, tmp_path, name):
    a_run(tmp_path / "run")
    against = tmp_path / "graded.txt"
    against.write_text("The dog number 7 runs\n")
    settings = ReportSettings(data=str(tmp_path / name), against=[str(against)], examples=2)
    path = report(settings, Run(tmp_path / "page", Silent()))
    page.goto(path.as_uri())
    looked_at(page)


def test_an_audit_from_the_first_row_to_the_end(page, tmp_path):
    folder(tmp_path / "in", SHARDS)
    settings = AuditSettings(data=str(tmp_path / "in"), labels=["0", "1"], rows=2)
    thread, address = begin(settings, tmp_path / "out")
    page.clock.install()
    page.goto(address)
    page.wait_for_selector("#labels button")
    looked_at(page)
    for done in (1, 2):
        page.clock.fast_forward(SEEN)
        page.keyboard.press("1")
        page.locator("#count", has_text=f"{done} of 2").wait_for()
        looked_at(page)
    page.click("#finish")
    page.locator("#end", has_text="Files that were written").wait_for()
    looked_at(page)
    thread.join(30)
    assert not thread.is_alive()
