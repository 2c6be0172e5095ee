"""``GET /v1/{database}/sketch``: the filter that tells clients which copies to revalidate."""

from __future__ import annotations

from dataclasses import dataclass

from app.api.models.reads import SketchParameters
from app.api.resources import Directory
from app.api.routed_request import RoutedRequest
from app.coherence.cached_reads import CachedReads
from app.http.caching import NO_STORE
from app.http.message import Headers, Response, forbid_body
from app.http.negotiation import JSON, SKETCH, accepts_by_name
from app.http.validation import parse_parameters
from mediator.access.model import Scope
from mediator.base.errors import Unavailable
from mediator.routing.model import DatabaseRoute
from sketch.protocol.port import FilterSnapshot, Partition, SketchUnavailable
from sketch.protocol.wire import FilterDocument, encode, encode_json

__all__ = ["Sketches"]


@dataclass(eq=False)
class Sketches:
    _directory: Directory
    _reads: CachedReads | None
    _valid_for_ms: int

    async def get(self, routed: RoutedRequest) -> Response:
        forbid_body(routed.request)
        class_names = self._class_names(routed)
        if self._reads is None:
            detail = "There is no cache sketch here: PORTOLAN_SKETCH is off."
            raise Unavailable(detail, system="sketch", retry_after_s=60)
        database = await self._directory.database(routed.database)
        for name in class_names or ():
            await self._directory.find(routed.database, name, routed.access)
        names = tuple(database.classes) if class_names is None else class_names
        routed.request.phases.end("parse")
        try:
            snapshot = await self._reads.snapshot(
                [Partition(routed.database, name) for name in names]
            )
        except SketchUnavailable as error:
            raise Unavailable("The cache sketch does not answer.", system="sketch") from error
        routed.request.phases.end("sketch")
        return self._answer(routed, snapshot, _map(database, names))

    @staticmethod
    def _class_names(routed: RoutedRequest) -> tuple[str, ...] | None:
        """Return the requested classes, or all readable ones; None: all classes."""
        requested = parse_parameters(SketchParameters, routed.request.query).class_names
        if requested is None:
            return routed.access.readable(routed.database)
        names = tuple(sorted(set(requested.split(","))))
        for name in names:
            routed.access.require(Scope.READ, routed.database, name)
            routed.access.require_all(routed.database, name)
        return names

    def _answer(
        self,
        routed: RoutedRequest,
        snapshot: FilterSnapshot,
        groups: dict[str, dict[str, tuple[str, ...]]],
    ) -> Response:
        client_filter = FilterDocument(snapshot, self._valid_for_ms, groups)
        as_json = accepts_by_name(routed.request.headers.get(b"accept", ""), JSON)
        encoding_tag = "j" if as_json else "b"
        tag = (
            f'"{snapshot.generation}-{snapshot.revision}-{client_filter.map_digest}-{encoding_tag}"'
        )
        headers: Headers = [
            (b"etag", tag.encode()),
            (b"portolan-sketch-time", b"%d" % snapshot.time_us),
            NO_STORE,
        ]
        if routed.preconditions().not_modified(tag):
            return Response(304, headers)
        headers.append((b"content-type", (JSON if as_json else SKETCH).encode()))
        body = encode_json(client_filter) if as_json else encode(client_filter)
        return Response(200, headers, body)


def _map(database: DatabaseRoute, names: tuple[str, ...]) -> dict[str, dict[str, tuple[str, ...]]]:
    routes = database.classes
    return {name: dict(routes[name].groups) for name in names if name in routes}
