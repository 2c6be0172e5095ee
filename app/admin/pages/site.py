"""The pages together: their menu, their templates, their files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from app.admin.pages import coherence, data, jobs, overview, schema_map, what_if
from app.admin.pages.assets import Assets
from app.admin.pages.formatting import FILTERS
from app.admin.pages.page import Page

__all__ = ["PAGES", "mount_pages"]

PAGES: Final[tuple[Page, ...]] = (
    overview.PAGE,
    schema_map.PAGE,
    what_if.PAGE,
    coherence.PAGE,
    jobs.PAGE,
    data.PAGE,
)
"""Every page, in the order of the menu; a further one is added here."""


def mount_pages(app: FastAPI, pages: Sequence[Page] = PAGES) -> None:
    """Serve pages and their files."""
    site = _Site(pages)
    app.state.site = site
    app.include_router(site.assets.router())
    for page in pages:
        app.include_router(page.router)


class _Site:
    """Renders templates, with the menu around them."""

    def __init__(self, pages: Sequence[Page]) -> None:
        self.assets = Assets(Path(__file__).parent / "static")
        self._pages = tuple(pages)
        self._environment = Environment(
            loader=FileSystemLoader(list(dict.fromkeys(page.templates for page in pages))),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(FILTERS)
        self._environment.globals.update(static=self.assets.address, pages=self._pages)

    def render(self, path: str, template: str, **context: Any) -> str:
        """Return a template as text; `path` is of the page that it belongs to."""
        page = max(
            (page for page in self._pages if (path + "/").startswith(page.path.rstrip("/") + "/")),
            key=lambda page: len(page.path),
            default=self._pages[0],
        )
        return self._environment.get_template(template).render(page=page, **context)
