"""The routes of the data API, found by raw paths, which are not normalised."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import chain
from typing import Final

from app.api.batch import Batches
from app.api.changes import ChangesRoute
from app.api.creation import Creation
from app.api.cursors import Cursors
from app.api.database_documents import DatabaseDocuments
from app.api.event_streams import EventStreamRoutes
from app.api.filtered_writes import FilteredWrites
from app.api.following import Followers
from app.api.incremental_views import IncrementalViewRoutes
from app.api.jobs.results import RunResults
from app.api.jobs.rights import RunRights
from app.api.jobs.runs import Jobs
from app.api.keyed_upserts import KeyedUpserts
from app.api.message_flows import MessageFlows
from app.api.objects import PATCH_TYPES, Objects
from app.api.options import DataOptions, DataServices
from app.api.queries import Queries
from app.api.resources import Directory
from app.api.routed_request import Address, Handler, Route
from app.api.sketch import Sketches
from app.api.standing_queries import StandingQueryRoutes
from app.api.transactions import TransactionRoute
from app.api.transfer import Exports, Imports
from app.http.idempotency import OperationIds
from app.http.negotiation import EVENT_STREAM, FILES, JSON, NDJSON, SKETCH, SVG
from app.http.paths import decode_segment
from app.http.problems import ROUTE_NOT_FOUND, HttpError
from mediator.access.model import Scope
from mediator.base.errors import NotFound
from mediator.schema.ids import NAME, check_id

__all__ = ["RouteTable"]

_READ_SCOPES: Final = {"GET": Scope.READ, "HEAD": Scope.READ}
_WRITE_SCOPES: Final = dict.fromkeys(("POST", "PUT", "PATCH", "DELETE"), Scope.WRITE)
_QUERY_SCOPES: Final = {"POST": Scope.READ}
_ALL_SCOPES: Final = {**_READ_SCOPES, **_WRITE_SCOPES}
_JOB_SCOPES: Final = dict.fromkeys(_ALL_SCOPES, Scope.JOBS)
_FLOW_SCOPES: Final = dict.fromkeys(_ALL_SCOPES, Scope.WRITE)

_VERSION: Final = b"v1"
_CLASS_SEGMENTS: Final = 4
_OBJECT_SEGMENTS: Final = 5
_FLOW_SEGMENTS: Final = 7
_HEX_ID: Final = re.compile(rb"[0-9a-f]{32}")
"""Ids of runs, of flows, of messages and of views."""

_NAME: Final = re.compile(NAME.pattern.encode())
"""Names of event streams."""

_PLAIN_ID: Final = re.compile(rb"[A-Za-z0-9_~-][A-Za-z0-9._~-]{0,511}")
"""Ids that are valid and need no decoding."""

_MAX_CACHED_NAME_BYTES: Final = 256
"""Bytes of a cached name; names have 63 characters, each of three bytes if escaped."""

# The same few names of databases and classes recur.
_cached_name = lru_cache(maxsize=1024)(decode_segment)


def _decode_name(raw: bytes, pointer: str) -> str:
    return (_cached_name if len(raw) <= _MAX_CACHED_NAME_BYTES else decode_segment)(raw, pointer)


@dataclass(frozen=True, slots=True)
class _CollectionRoutes:
    """Routes of a collection of a database, and of its members, such as runs.

    `name` is the term for a member, and `ids` matches ids; `below` has the routes of a member, by
    the path after its id, and `of_all` other routes of the collection, by the segment after it.
    """

    name: str
    collection: Route
    below: Mapping[bytes, Route]
    ids: re.Pattern[bytes] = _HEX_ID
    of_all: Mapping[bytes, Route] = field(default_factory=dict)


class RouteTable:
    """The routes of the data API, also those of services that are absent."""

    def __init__(self, directory: Directory, options: DataOptions, services: DataServices) -> None:
        ids, cursors, limit = OperationIds(), Cursors(options.cursor_key), options.max_body_bytes
        reads = services.caches.reads if services.caches else None
        queries, creation = Queries(options, cursors, reads), Creation(options, ids)
        self._object = _object(Objects(limit, ids, reads))
        writes = FilteredWrites(options, ids, KeyedUpserts(options, ids))
        self._collection = _collection(queries, creation, writes)
        exports = Exports(options.chunk_lines)
        self._below_class = _below_class(queries, Imports(options, ids), exports)
        self._below_database = _below_database(
            Batches(directory, options, ids),
            TransactionRoute(services.transact, directory, limit, ids),
            ChangesRoute(directory, services.subscriptions),
            Sketches(directory, reads, round(options.sketch_valid_s * 1000)),
            DatabaseDocuments(directory),
        )
        followers = self.followers = Followers()
        rights = RunRights(directory)
        jobs = Jobs(directory, rights, services.job_backend, cursors, ids, limit, followers)
        results = RunResults(directory, rights, services.job_backend, cursors, options.page_limit)
        self._collections_by_name = {
            b"jobs": _jobs(jobs, results),
            b"message-flows": _flows(
                MessageFlows(directory, services.flows, ids, limit, followers)
            ),
            b"incremental-views": _views(
                IncrementalViewRoutes(directory, services.views, limit, followers)
            ),
            b"event-streams": _streams(
                EventStreamRoutes(directory, services.event_streams, ids, limit, followers)
            ),
            b"standing-queries": _standing(
                StandingQueryRoutes(directory, services.standing, limit, followers)
            ),
        }

    @property
    def routes(self) -> Iterable[Route]:
        collections = self._collections_by_name.values()
        below = [self._below_class, self._below_database, *(routes.below for routes in collections)]
        return (
            self._object,
            self._collection,
            *(routes.collection for routes in collections),
            *chain(*(routes.of_all.values() for routes in collections)),
            *chain(*(routes.values() for routes in below)),
        )

    def find(self, path: bytes) -> Address:
        """Find the route of a raw path, or raise `HttpError`.

        ``query``, ``import`` and ``export`` are routes only if unescaped: for an object with such
        an id, percent-encode a letter.
        """
        segments = path.split(b"/")
        count = len(segments)
        if not _CLASS_SEGMENTS <= count <= _FLOW_SEGMENTS or segments[1] != _VERSION:
            raise _not_found()
        if not all(segments[2:]):
            raise _not_found()
        database, name = _decode_name(segments[2], "database"), segments[3]
        if name in self._collections_by_name:
            return _find_in_collection(self._collections_by_name[name], database, segments[4:])
        if count == _CLASS_SEGMENTS:
            route = self._below_database.get(name)
            if route is not None:
                return Address(route, database)
            return Address(self._collection, database, _decode_name(name, "class"))
        if count > _OBJECT_SEGMENTS:
            raise _not_found()
        return self._of_class(database, _decode_name(name, "class"), segments[4])

    def _of_class(self, database: str, class_name: str, segment: bytes) -> Address:
        route = self._below_class.get(segment)
        if route is not None:
            return Address(route, database, class_name)
        if _PLAIN_ID.fullmatch(segment):
            return Address(self._object, database, class_name, segment.decode("ascii"))
        id_ = check_id(decode_segment(segment, "id"), "id")
        return Address(self._object, database, class_name, id_)


def _find_in_collection(routes: _CollectionRoutes, database: str, segments: list[bytes]) -> Address:
    """Find a route of a collection, of a member, of its subresources, or of a flow's message."""
    if not segments:
        return Address(routes.collection, database)
    id_, *subpath = segments
    if not subpath and id_ in routes.of_all:
        return Address(routes.of_all[id_], database)
    below, _, ticket = b"/".join(subpath).partition(b"/")
    route = routes.below.get(below + b"/" if ticket else below)
    if route is None:
        raise _not_found()
    if not routes.ids.fullmatch(id_) or (ticket and not _HEX_ID.fullmatch(ticket)):
        raise NotFound(f"There is no such {routes.name}.")
    return Address(route, database, id=id_.decode(), ticket=ticket.decode())


def _object(objects: Objects) -> Route:
    return Route(
        "/v1/{database}/{class}/{id}",
        {
            "GET": objects.get,
            "HEAD": objects.get,
            "PUT": objects.put,
            "PATCH": objects.patch,
            "DELETE": objects.delete,
        },
        _ALL_SCOPES,
        patch_types=tuple(PATCH_TYPES),
    )


def _collection(queries: Queries, creation: Creation, writes: FilteredWrites) -> Route:
    return Route(
        "/v1/{database}/{class}",
        {
            "GET": queries.get,
            "HEAD": queries.get,
            "POST": creation.post,
            "PATCH": writes.patch,
            "DELETE": writes.delete,
        },
        _ALL_SCOPES,
        patch_types=tuple(PATCH_TYPES),
    )


def _below_class(queries: Queries, imports: Imports, exports: Exports) -> dict[bytes, Route]:
    export = {"GET": exports.get, "HEAD": exports.get}
    return {
        b"query": Route("/v1/{database}/{class}/query", {"POST": queries.post}, _QUERY_SCOPES),
        b"import": Route("/v1/{database}/{class}/import", {"POST": imports.post}, _WRITE_SCOPES),
        b"export": Route("/v1/{database}/{class}/export", export, _READ_SCOPES, offers=NDJSON),
    }


def _below_database(
    batches: Batches,
    transactions: TransactionRoute,
    changes: ChangesRoute,
    sketches: Sketches,
    documents: DatabaseDocuments,
) -> dict[bytes, Route]:
    path, stream = "/v1/{database}/", (EVENT_STREAM,)
    sketch = {"GET": sketches.get, "HEAD": sketches.get}
    document = {"GET": documents.get, "HEAD": documents.get}
    return {
        b"batch": Route(f"{path}batch", {"POST": batches.post}, None),
        b"transactions": Route(f"{path}transactions", {"POST": transactions.post}, None),
        b"changes": Route(f"{path}changes", {"GET": changes.get}, None, streams=stream),
        b"sketch": Route(f"{path}sketch", sketch, None, offers=SKETCH, streams=(JSON,)),
        b"openapi.json": Route(f"{path}openapi.json", document, None, is_pinnable=False),
    }


def _unpinnable(
    name: str, scopes: Mapping[str, Scope] | None, path: str, *streams: str, **handlers: Handler
) -> Route:
    """Create a route below a name of the database, whose requests cannot be pinned."""
    template = f"/v1/{{database}}/{name}{path}"
    return Route(template, handlers, scopes, streams=streams, is_pinnable=False)


def _jobs(jobs: Jobs, results: RunResults) -> _CollectionRoutes:
    route = partial(_unpinnable, "jobs", _JOB_SCOPES)
    below = {
        b"": route("/{run}", EVENT_STREAM, GET=jobs.get, DELETE=jobs.delete),
        b"resume": route("/{run}/resume", POST=jobs.resume),
        b"results": route("/{run}/results", *FILES, GET=results.get),
    }
    return _CollectionRoutes("run", route("", POST=jobs.post, GET=jobs.list), below)


def _flows(flows: MessageFlows) -> _CollectionRoutes:
    route = partial(_unpinnable, "message-flows", _FLOW_SCOPES)
    below = {
        b"": route("/{flow}", GET=flows.get, DELETE=flows.delete),
        b"messages": route("/{flow}/messages", POST=flows.send),
        b"messages/": route("/{flow}/messages/{ticket}", GET=flows.ticket),
        b"results": route("/{flow}/results", EVENT_STREAM, GET=flows.results),
        b"dead-letters": route("/{flow}/dead-letters", GET=flows.dead_letters),
        b"replay": route("/{flow}/replay", POST=flows.replay),
    }
    return _CollectionRoutes("message flow", route("", POST=flows.post, GET=flows.list), below)


def _views(views: IncrementalViewRoutes) -> _CollectionRoutes:
    route = partial(_unpinnable, "incremental-views", _ALL_SCOPES)
    below = {
        b"": route("/{view}", GET=views.get, DELETE=views.delete),
        b"result": route("/{view}/result", GET=views.result),
        b"deltas": route("/{view}/deltas", EVENT_STREAM, GET=views.deltas),
    }
    return _CollectionRoutes("incremental view", route("", POST=views.post, GET=views.list), below)


def _streams(streams: EventStreamRoutes) -> _CollectionRoutes:
    # Grants name a stream: the handlers of a stream authorise requests.
    route = partial(_unpinnable, "event-streams", None)
    below = {
        b"": route("/{stream}", GET=streams.get, DELETE=streams.delete),
        b"tuples": route("/{stream}/tuples", EVENT_STREAM, POST=streams.append, GET=streams.tuples),
    }
    collection = _unpinnable("event-streams", _ALL_SCOPES, "", POST=streams.post, GET=streams.list)
    return _CollectionRoutes("event stream", collection, below, _NAME)


def _standing(queries: StandingQueryRoutes) -> _CollectionRoutes:
    route = partial(_unpinnable, "standing-queries", _ALL_SCOPES)
    below = {
        b"": route("/{query}", GET=queries.get, DELETE=queries.delete),
        b"results": route("/{query}/results", EVENT_STREAM, GET=queries.results),
    }
    of_all = {b"plan": route("/plan", SVG, GET=queries.plan)}
    collection = route("", POST=queries.post, GET=queries.list)
    return _CollectionRoutes("standing query", collection, below, of_all=of_all)


def _not_found() -> HttpError:
    return HttpError(ROUTE_NOT_FOUND, "No route of the data API has this path.")
