"""The pages together: their menu, their templates, their files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import orjson
from fastapi import APIRouter, FastAPI, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from app.admin.pages import (
    admission,
    coherence,
    data,
    feed,
    jobs,
    keys,
    overview,
    queries,
    schema_editor,
    schema_map,
    streams,
    systems,
    what_if,
)
from app.admin.pages.page import Page
from app.admin.pages.sizes import Sizes
from app.http.problems import ROUTE_NOT_FOUND, HttpError
from mediator.placement.figures import NONE, metric, name_of, number, seconds, share

__all__ = ["FILTERS", "MAX_LENGTH", "PAGES", "Assets", "mount_pages"]

PAGES: Final[tuple[Page, ...]] = (
    overview.PAGE,
    systems.PAGE,
    schema_map.PAGE,
    schema_editor.PAGE,
    what_if.PAGE,
    data.PAGE,
    queries.PAGE,
    feed.PAGE,
    streams.PAGE,
    coherence.PAGE,
    jobs.PAGE,
    admission.PAGE,
    keys.PAGE,
)
"""Every page, in the order of the menu; a further one is added here."""


def mount_pages(app: FastAPI, pages: Sequence[Page] = PAGES) -> None:
    site = _Site(pages)
    app.state.site, app.state.sizes = site, Sizes()
    app.include_router(site.assets.router())
    for page in pages:
        app.include_router(page.router)


class _Site:
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
        """Render a template to text; `path` belongs to its page."""
        # Whole segments are compared, and the longest path wins: "/" is a prefix of every page.
        page = max(
            (page for page in self._pages if (path + "/").startswith(page.path.rstrip("/") + "/")),
            key=lambda page: len(page.path),
            default=self._pages[0],
        )
        return self._environment.get_template(template).render(page=page, **context)


_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class Assets:
    """The files of a folder, read once.

    All share one digest: modules import one another by relative addresses.
    """

    def __init__(self, folder: Path) -> None:
        files = (path for path in sorted(folder.rglob("*")) if path.suffix in _TYPES)
        self._files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
        digest = blake2b(digest_size=8)
        for name, content in self._files.items():
            digest.update(b"%b\0%d\0%b" % (name.encode(), len(content), content))
        self._digest = digest.hexdigest()

    def address(self, name: str) -> str:
        if name not in self._files:
            raise KeyError(name)
        return f"/static/{self._digest}/{name}"

    def router(self) -> APIRouter:
        router = APIRouter(include_in_schema=False)
        router.get("/static/{digest}/{name:path}")(self._serve)
        return router

    async def _serve(self, digest: str, name: str) -> Response:
        # Caches keep this for a year: another release's digest would name the wrong file.
        content = self._files.get(name) if digest == self._digest else None
        if content is None:
            raise HttpError(ROUTE_NOT_FOUND, "There is no such file.")
        headers = {
            "cache-control": "public, max-age=31536000, immutable",
            "x-content-type-options": "nosniff",
        }
        return Response(content, headers=headers, media_type=_TYPES[Path(name).suffix])


MAX_LENGTH: Final = 160
"""Characters shown of a value; a longer one is cut, and its length shown."""


def moment(value: str | float | None) -> str:
    """Format a time, given in seconds since 1970 or in RFC 3339, in UTC."""
    if value is None:
        return NONE
    time = datetime.fromtimestamp(value, UTC) if isinstance(value, int | float) else None
    time = time or datetime.fromisoformat(str(value))
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def json(value: Any) -> str:
    return orjson.dumps(value, default=str).decode()


def cut(value: Any) -> str:
    """Format a JSON value, and cut it if it is long."""
    text = value if isinstance(value, str) else json(value)
    if len(text) <= MAX_LENGTH:
        return text
    return f"{text[:MAX_LENGTH]}… ({len(text):,} characters)"


FILTERS: Final[dict[str, Callable[..., str]]] = {
    "seconds": seconds,
    "number": number,
    "share": share,
    "words": name_of,
    "metric": metric,
    "moment": moment,
    "cut": cut,
    "json": json,
}
