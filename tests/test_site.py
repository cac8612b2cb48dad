"""The documentation site: what is generated is current, it builds without a warning, and it loads nothing from elsewhere."""

import functools
import html
import importlib.util
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from pairsmith.cli.steps import STEPS
from pairsmith.core.settings import option_name

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
LOADING = (
    "stylesheet",
    "preload",
    "prefetch",
    "preconnect",
    "dns-prefetch",
    "icon",
    "modulepreload",
    "manifest",
)


@pytest.fixture(scope="module")
def make_docs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_docs", ROOT / "scripts" / "make_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.cited = functools.cache(module.cited)  # it reads all of src
    return module


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as ``make docs`` builds it."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not re.search("warn|error|not found|unrecognized", done.stdout + done.stderr, re.IGNORECASE), (
        done.stderr
    )
    return folder


# what is generated


def test_the_generated_pages_are_up_to_date(make_docs: ModuleType) -> None:
    written = {path.name: path.read_text(encoding="utf-8") for path in make_docs.FOLDER.glob("*.md")}
    remedy = "run: python scripts/make_docs.py"
    pages = make_docs.pages()
    stale = sorted(name for name in {*written, *pages} if written.get(name) != pages.get(name))
    assert not stale, f"{', '.join(stale)} of docs/commands: {remedy}"
    assert make_docs.CODE.read_text(encoding="utf-8") == make_docs.code_page(), remedy
    architecture = make_docs.ARCHITECTURE.read_text(encoding="utf-8")
    assert architecture == make_docs.layers(architecture), remedy
    listed = make_docs.SITE.read_text(encoding="utf-8")
    assert listed == make_docs.site(listed), remedy


def test_every_command_has_a_page_with_every_option() -> None:
    index = (DOCS / "commands" / "index.md").read_text(encoding="utf-8")
    for name, step in STEPS.items():
        page = (DOCS / "commands" / f"{name}.md").read_text(encoding="utf-8")
        assert all(f"| `{option_name(field)}`" in page for field in step.settings.model_fields)
        assert f"]({name}.md)" in index
    for name in ("run", "plan", "status", "tasks"):
        assert f"]({name}.md)" in index


def test_every_step_has_a_guide(make_docs: ModuleType) -> None:
    """``site`` tells dead links, also to headings."""
    wrong = make_docs._GUIDES.keys() ^ STEPS.keys()
    assert not wrong, f"_GUIDES of scripts/make_docs.py lacks, or need not have: {', '.join(sorted(wrong))}"


def test_docstrings_cite_entries_that_there_are(make_docs: ModuleType) -> None:
    entries = {
        number for number, _ in make_docs.ENTRY.findall((DOCS / "methods.md").read_text(encoding="utf-8"))
    }
    assert len(entries) == 14 + 11 + 11
    assert set(make_docs.cited()) <= entries
    assert entries - set(make_docs.cited()) == {"M10"}  # numbers of steps: settings of recipes


def test_the_code_page_names_what_cites_a_number(make_docs: ModuleType) -> None:
    assert make_docs.cited()["D7"]["methods/dino/training_set.py"] == [
        "make_training_set",
        "label_set",
        "smooth",
    ]
    assert (
        "| D7 | label smoothing | `methods/dino/options.py` (`TrainingSetOptions`), `methods/dino/training_set.py` (`make_training_set`, `label_set`, `smooth`) |"
        in make_docs.code_page()
    )


def test_all_raw_figures_are_accounted_for() -> None:
    """Each file of figures is named after a benchmark that the results name, or is one of its parts."""
    named = set(re.findall(r"benchmarks/(\w+)\.py", (DOCS / "results.md").read_text(encoding="utf-8")))
    scripts = {path.stem for path in (ROOT / "benchmarks").glob("*.py")}
    for path in (ROOT / "benchmarks" / "results").glob("*.json"):
        parts = re.split(r"[-_]", path.stem)
        stems = {joined.join(parts[:end]) for joined in "_-" for end in range(1, len(parts) + 1)}
        made_by = max(stems & scripts, key=len)
        assert made_by in named, f"docs/results.md says nothing of {path.name}"


# the site


def test_every_page_is_in_the_list_of_pages(site: Path) -> None:
    listed = set(re.findall(r"\S+\.md$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert listed == {page for page in pages if not page.startswith("decisions/")}
    assert all((site / page).with_suffix(".html").is_file() for page in pages)


class Assets(HTMLParser):
    """What a page loads by itself: all addresses but those of links that somebody clicks on."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Note the addresses of a tag."""
        given = {name: value or "" for name, value in attributes}
        self.found += [given[name] for name in ("src", "srcset", "data", "poster") if name in given]
        if tag == "link" and set(given.get("rel", "").split()) & set(LOADING):
            self.found.append(given.get("href", ""))
        self.found += re.findall(r"url\(([^)]*)\)", given.get("style", ""))


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 45
    seen = 0
    for page in pages:
        for address in Assets(page.read_text(encoding="utf-8")).found:
            assert not re.match(r"[\"']?(\w+:)?//", address), f"{page.name} loads {address}"
            seen += 1
        assert "fonts.g" not in page.read_text(encoding="utf-8")
    assert seen > len(pages)
    styles = list(site.rglob("*.css"))
    assert styles
    assert not [
        path for path in styles if re.search(r"(url\([\"']?|@import [\"']?)(https?:)?//", path.read_text())
    ]


def test_assets_are_found() -> None:
    page = '<link rel="stylesheet" href="//a/b.css"><script src="https://c/d.js"></script><a href="https://e">f</a>'
    assert Assets(page).found == ["//a/b.css", "https://c/d.js"]


def test_equations_are_set_as_they_are_written_and_need_no_script(site: Path) -> None:
    page = (site / "methods.html").read_text(encoding="utf-8")
    assert not re.search("mathjax|katex", page, re.IGNORECASE)
    kept = html.unescape(re.sub("<[^>]+>", "", "\n".join(re.findall(r"<pre>.*?</pre>", page, re.DOTALL))))
    for line in (
        "delta(x) = p(x) − max of q(x) over the counter-labels\n",
        "p'(x) = p(x) · max(floor, exp(decay · delta(x)))   where delta(x) < 0\n",
        "−log( exp(s · cos(x, y)) / sum over z of exp(s · cos(x, z)) )\n",
        "score(x, y) = cos(x, y) / ( sum over N(x) of cos(x, z) / 2k + sum over N(y) of cos(z, y) / 2k )\n",
        "p(start = i) ∝ exp( r(c)_i · f_start(q) ), and p(end = i) alike with f_end\n",
    ):
        assert line in kept
    entries = re.findall(r"<li>\s*(?:<p>)?<strong>([DMQ]\d+), ", page)
    assert len(entries) == len(set(entries)) == 14 + 11 + 11


def test_lists_tables_and_fences_are_taken_for_what_they_are(site: Path) -> None:
    """The site's Markdown wants a blank line before a list, and four spaces for what belongs to its items."""
    for page in site.rglob("*.html"):
        for paragraph in re.findall(r"<p>(.*?)</p>", page.read_text(encoding="utf-8"), re.DOTALL):
            assert not re.search(r"^ *(-|\d\.|\||```|#+) ?", paragraph, re.MULTILINE), (
                f"{page.name}: {paragraph}"
            )


def test_nothing_needs_a_service() -> None:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    assert settings["strict"] is True
    assert settings["theme"]["font"] is False
    assert not {"extra_javascript", "extra_css"} & set(settings)
    assert settings["plugins"] == ["search"]  # which looks into an index that lies beside the pages
