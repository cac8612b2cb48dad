"""Renders a page as one HTML file without scripts or external resources."""

from importlib import resources

from jinja2 import Environment, StrictUndefined

from pairsmith.tools.report.parts import Page


def render(page: Page) -> str:
    """The page as HTML, with texts escaped and scripts forbidden by a content security policy."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    source = resources.files("pairsmith.tools.report").joinpath("page.html").read_text(encoding="utf-8")
    chapters = [
        (place, section.title) for place, section in enumerate(page.sections, start=1) if section.level == 2
    ]
    return environment.from_string(source).render(page=page, chapters=chapters)
