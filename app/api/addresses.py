"""From a raw path to a route and an address; nothing is normalised."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from app.api.routed_request import Address, Route
from app.http.paths import decode_segment
from app.http.problems import ROUTE_NOT_FOUND, HttpError
from mediator.base.errors import NotFound
from mediator.schema.ids import check_id

__all__ = ["Table"]

_VERSION: Final = b"v1"
_CLASS_SEGMENTS: Final = 4
_OBJECT_SEGMENTS: Final = 5
_RUN_SEGMENTS: Final = 6
_RUN: Final = re.compile(rb"[0-9a-f]{32}")

_PLAIN_ID: Final = re.compile(rb"[A-Za-z0-9_~-][A-Za-z0-9._~-]{0,511}")
"""Ids that need no decoding, and with which nothing can be wrong."""

# Few names of databases and classes are asked for again and again.
_decode_name = lru_cache(maxsize=1024)(decode_segment)


@dataclass(frozen=True, slots=True)
class Table:
    """The routes of the data API."""

    object: Route
    collection: Route
    batch: Route
    transactions: Route
    queries: Route
    imports: Route
    exports: Route
    changes: Route
    sketch: Route
    jobs: Route
    run: Route
    resume: Route
    results: Route

    def find(self, path: bytes) -> Address:
        """Find the route of a raw path.

        ``query``, ``import`` and ``export`` are routes only when they are spelled plainly: an
        object of such an id is reached by escaping a letter.

        Raises:
            HttpError: There is none.
            Invalid: The id cannot be one.
        """
        parts = path.split(b"/")
        count = len(parts)
        if not _CLASS_SEGMENTS <= count <= _RUN_SEGMENTS or parts[1] != _VERSION:
            raise _not_found()
        if not all(parts[2:]):
            raise _not_found()
        database = _decode_name(parts[2], "database")
        if parts[3] == b"jobs" or count == _RUN_SEGMENTS:
            return self._job(database, parts[3:])
        if count == _CLASS_SEGMENTS:
            return self._below_database(database, parts[3])
        return self._below_class(database, _decode_name(parts[3], "class"), parts[4])

    def _below_database(self, database: str, segment: bytes) -> Address:
        if segment == b"batch":
            return Address(self.batch, database)
        if segment == b"transactions":
            return Address(self.transactions, database)
        if segment == b"changes":
            return Address(self.changes, database)
        if segment == b"sketch":
            return Address(self.sketch, database)
        return Address(self.collection, database, _decode_name(segment, "class"))

    def _job(self, database: str, parts: list[bytes]) -> Address:
        """Find a route of jobs; it has its run where others have their object."""
        match parts:
            case [b"jobs"]:
                return Address(self.jobs, database)
            case [b"jobs", run]:
                return Address(self.run, database, id=_run_id(run))
            case [b"jobs", run, b"resume"]:
                return Address(self.resume, database, id=_run_id(run))
            case [b"jobs", run, b"results"]:
                return Address(self.results, database, id=_run_id(run))
        raise _not_found()

    def _below_class(self, database: str, class_name: str, segment: bytes) -> Address:
        if segment == b"query":
            return Address(self.queries, database, class_name)
        if segment == b"import":
            return Address(self.imports, database, class_name)
        if segment == b"export":
            return Address(self.exports, database, class_name)
        if _PLAIN_ID.fullmatch(segment):
            return Address(self.object, database, class_name, segment.decode("ascii"))
        id_ = check_id(decode_segment(segment, "id"), "id")
        return Address(self.object, database, class_name, id_)


def _run_id(segment: bytes) -> str:
    if not _RUN.fullmatch(segment):
        raise NotFound("There is no such run.")
    return segment.decode()


def _not_found() -> HttpError:
    return HttpError(ROUTE_NOT_FOUND, "No route of the data API has this path.")
