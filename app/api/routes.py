"""The routes of the data API, and which of them a raw path names; nothing is normalised."""

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

_READS: Final = {"GET": Scope.READ, "HEAD": Scope.READ}
_WRITES: Final = dict.fromkeys(("POST", "PUT", "PATCH", "DELETE"), Scope.WRITE)
_QUERIES: Final = {"POST": Scope.READ}
_ALL: Final = {**_READS, **_WRITES}
_JOBS: Final = dict.fromkeys(_ALL, Scope.JOBS)
_FLOWS: Final = dict.fromkeys(_ALL, Scope.WRITE)

_VERSION: Final = b"v1"
_CLASS_SEGMENTS: Final = 4
_OBJECT_SEGMENTS: Final = 5
_FLOW_SEGMENTS: Final = 7
_RUN: Final = re.compile(rb"[0-9a-f]{32}")
"""Ids of runs, of flows, of messages and of views."""

_NAME: Final = re.compile(NAME.pattern.encode())
"""Names of event streams."""

_PLAIN_ID: Final = re.compile(rb"[A-Za-z0-9_~-][A-Za-z0-9._~-]{0,511}")
"""Ids that need no decoding, and with which nothing can be wrong."""

_LONGEST_NAME: Final = 256
"""Bytes of a name that is remembered; names have 63 characters, each of three bytes if escaped."""

# Few names of databases and classes are requested again and again.
_cached_name = lru_cache(maxsize=1024)(decode_segment)


def _decode_name(raw: bytes, pointer: str) -> str:
    return (_cached_name if len(raw) <= _LONGEST_NAME else decode_segment)(raw, pointer)


@dataclass(frozen=True, slots=True)
class _Numbered:
    """Routes of what a database has by ids: of all, and by what follows the id those of one.

    `name` is what one of them is called, and `ids` are those that there may be; `of_all` are about
    all of them, by what stands for the id.
    """

    name: str
    whole: Route
    below: Mapping[bytes, Route]
    ids: re.Pattern[bytes] = _RUN
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
        self._numbered = {
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
        numbered = self._numbered.values()
        below = [self._below_class, self._below_database, *(each.below for each in numbered)]
        return (
            self._object,
            self._collection,
            *(each.whole for each in numbered),
            *chain(*(each.of_all.values() for each in numbered)),
            *chain(*(routes.values() for routes in below)),
        )

    def find(self, path: bytes) -> Address:
        """Find the route of a raw path, or raise `HttpError`.

        ``query``, ``import`` and ``export`` are routes only when they are written plainly: an
        object with such an id is reached by percent-encoding a letter.
        """
        parts = path.split(b"/")
        count = len(parts)
        if not _CLASS_SEGMENTS <= count <= _FLOW_SEGMENTS or parts[1] != _VERSION:
            raise _not_found()
        if not all(parts[2:]):
            raise _not_found()
        database, name = _decode_name(parts[2], "database"), parts[3]
        if name in self._numbered:
            return _find_numbered(self._numbered[name], database, parts[4:])
        if count == _CLASS_SEGMENTS:
            route = self._below_database.get(name)
            if route is not None:
                return Address(route, database)
            return Address(self._collection, database, _decode_name(name, "class"))
        if count > _OBJECT_SEGMENTS:
            raise _not_found()
        return self._of_class(database, _decode_name(name, "class"), parts[4])

    def _of_class(self, database: str, class_name: str, segment: bytes) -> Address:
        route = self._below_class.get(segment)
        if route is not None:
            return Address(route, database, class_name)
        if _PLAIN_ID.fullmatch(segment):
            return Address(self._object, database, class_name, segment.decode("ascii"))
        id_ = check_id(decode_segment(segment, "id"), "id")
        return Address(self._object, database, class_name, id_)


def _find_numbered(numbered: _Numbered, database: str, parts: list[bytes]) -> Address:
    """Find a route: of all, of one, of what one has, or of one of its messages."""
    if not parts:
        return Address(numbered.whole, database)
    id_, *rest = parts
    if not rest and id_ in numbered.of_all:
        return Address(numbered.of_all[id_], database)
    below, _, ticket = b"/".join(rest).partition(b"/")
    route = numbered.below.get(below + b"/" if ticket else below)
    if route is None:
        raise _not_found()
    if not numbered.ids.fullmatch(id_) or (ticket and not _RUN.fullmatch(ticket)):
        raise NotFound(f"There is no such {numbered.name}.")
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
        _ALL,
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
        _ALL,
        patch_types=tuple(PATCH_TYPES),
    )


def _below_class(queries: Queries, imports: Imports, exports: Exports) -> dict[bytes, Route]:
    export = {"GET": exports.get, "HEAD": exports.get}
    return {
        b"query": Route("/v1/{database}/{class}/query", {"POST": queries.post}, _QUERIES),
        b"import": Route("/v1/{database}/{class}/import", {"POST": imports.post}, _WRITES),
        b"export": Route("/v1/{database}/{class}/export", export, _READS, offers=NDJSON),
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
    """Make a route below a name of the database, which no version of the schema is pinned for."""
    template = f"/v1/{{database}}/{name}{path}"
    return Route(template, handlers, scopes, streams=streams, is_pinnable=False)


def _jobs(jobs: Jobs, results: RunResults) -> _Numbered:
    route = partial(_unpinnable, "jobs", _JOBS)
    below = {
        b"": route("/{run}", EVENT_STREAM, GET=jobs.get, DELETE=jobs.delete),
        b"resume": route("/{run}/resume", POST=jobs.resume),
        b"results": route("/{run}/results", *FILES, GET=results.get),
    }
    return _Numbered("run", route("", POST=jobs.post, GET=jobs.list), below)


def _flows(flows: MessageFlows) -> _Numbered:
    route = partial(_unpinnable, "message-flows", _FLOWS)
    below = {
        b"": route("/{flow}", GET=flows.get, DELETE=flows.delete),
        b"messages": route("/{flow}/messages", POST=flows.send),
        b"messages/": route("/{flow}/messages/{ticket}", GET=flows.ticket),
        b"results": route("/{flow}/results", EVENT_STREAM, GET=flows.results),
        b"dead-letters": route("/{flow}/dead-letters", GET=flows.dead_letters),
        b"replay": route("/{flow}/replay", POST=flows.replay),
    }
    return _Numbered("message flow", route("", POST=flows.post, GET=flows.list), below)


def _views(views: IncrementalViewRoutes) -> _Numbered:
    route = partial(_unpinnable, "incremental-views", _ALL)
    below = {
        b"": route("/{view}", GET=views.get, DELETE=views.delete),
        b"result": route("/{view}/result", GET=views.result),
        b"deltas": route("/{view}/deltas", EVENT_STREAM, GET=views.deltas),
    }
    return _Numbered("incremental view", route("", POST=views.post, GET=views.list), below)


def _streams(streams: EventStreamRoutes) -> _Numbered:
    # Grants name a stream: the handlers of one authorise it.
    route = partial(_unpinnable, "event-streams", None)
    below = {
        b"": route("/{stream}", GET=streams.get, DELETE=streams.delete),
        b"tuples": route("/{stream}/tuples", EVENT_STREAM, POST=streams.append, GET=streams.tuples),
    }
    whole = _unpinnable("event-streams", _ALL, "", POST=streams.post, GET=streams.list)
    return _Numbered("event stream", whole, below, _NAME)


def _standing(queries: StandingQueryRoutes) -> _Numbered:
    route = partial(_unpinnable, "standing-queries", _ALL)
    below = {
        b"": route("/{query}", GET=queries.get, DELETE=queries.delete),
        b"results": route("/{query}/results", EVENT_STREAM, GET=queries.results),
    }
    of_all = {b"plan": route("/plan", SVG, GET=queries.plan)}
    whole = route("", POST=queries.post, GET=queries.list)
    return _Numbered("standing query", whole, below, of_all=of_all)


def _not_found() -> HttpError:
    return HttpError(ROUTE_NOT_FOUND, "No route of the data API has this path.")
