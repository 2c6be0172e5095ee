"""Static files under an address that names their content, so that browsers may keep them."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import Final

from fastapi import APIRouter, Response

from app.http.problems import ROUTE_NOT_FOUND, HttpError

__all__ = ["Assets"]

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
        """Return the address of a file."""
        if name not in self._files:
            raise KeyError(name)
        return f"/static/{self._digest}/{name}"

    def router(self) -> APIRouter:
        """Return the route that serves them."""
        router = APIRouter(include_in_schema=False)
        router.get("/static/{digest}/{name:path}")(self._serve)
        return router

    async def _serve(self, digest: str, name: str) -> Response:
        content = self._files.get(name) if digest == self._digest else None
        if content is None:
            raise HttpError(ROUTE_NOT_FOUND, "There is no such file.")
        headers = {
            "cache-control": "public, max-age=31536000, immutable",
            "x-content-type-options": "nosniff",
        }
        return Response(content, headers=headers, media_type=_TYPES[Path(name).suffix])
