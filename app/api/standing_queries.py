"""``/v1/{database}/standing-queries``: joins of streams, their results, and their plan."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from app.api.dependents import (
    find_dependent,
    refuse_content,
    require_objects,
    require_service,
    require_stream,
)
from app.api.following import EventFeed, Followers, Item, Page, last_event_id, stopped_event
from app.api.models.common import RESULT_POSITION
from app.api.models.standing import PlanParameters, ResultsParameters
from app.api.resources import Directory
from app.api.responses import NO_STORE, answer_created, answer_json
from app.api.routed_request import RoutedRequest
from app.http.message import Response
from app.http.negotiation import SVG, accepts_by_name
from app.http.validation import parse_parameters
from mediator.access.model import Scope
from mediator.model.result_position import ResultPosition
from mediator.routing.model import DatabaseRoute
from mediator.standing.drawing import drawing
from mediator.standing.query import Source, StandingQuery, names_of
from mediator.standing.query_parser import parse_query as parse_standing_query
from mediator.standing.results import STOPPED, StoredQuery, StoredResult
from mediator.standing.service import (
    StandingLoad,
    StandingQueries,
    load_document,
    query_document,
)

__all__ = ["StandingQueryRoutes"]

_MAX_QUERY_BYTES: Final = 2**14
_SVG_TYPE: Final = (b"content-type", SVG.encode())
_NO_SCRIPTS: Final = (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'")


@dataclass(eq=False)
class StandingQueryRoutes:
    """The routes of standing queries.

    The sender must have the permission to see every change, since the query's creation, of each of
    its classes, and to read its streams. Creating a query also needs the permission to write its
    target, all objects of a class or a stream.
    """

    _directory: Directory
    _queries: StandingQueries | None
    _limit: int
    _followers: Followers

    async def post(self, routed: RoutedRequest) -> Response:
        """Create a query."""
        queries = self._service()
        body, _ = await routed.json_body(min(_MAX_QUERY_BYTES, self._limit))
        database = await self._directory.database(routed.database)
        streams = await queries.streams(database)
        query = parse_standing_query(body, database.schema, streams)
        for name in names_of(query.join.relations, "class"):
            routed.access.require_changes(routed.database, name)
        _require_streams(routed, names_of(query.join.relations, "stream"))
        if query.into is not None:
            _require_target(routed, query.into.target)
        id_, stored = await queries.create(database, query, _administrable_classes(routed, query))
        path = f"{routed.database}/standing-queries/{id_}"
        new = load_document(StandingLoad(0, query.max_lag, None))
        return answer_created(path, {**_report(id_, stored), **new})

    async def list(self, routed: RoutedRequest) -> Response:
        refuse_content(routed)
        database = await self._directory.database(routed.database)
        queries = await self._service().of_database(database)
        return answer_json(200, {"items": [query_document(*entry) for entry in queries.items()]})

    async def get(self, routed: RoutedRequest) -> Response:
        queries, database, stored = await self._find_any(routed)
        loads = await queries.loads(database.id, {routed.id: stored})
        return answer_json(200, {**_report(routed.id, stored), **load_document(loads[routed.id])})

    async def delete(self, routed: RoutedRequest) -> Response:
        queries, database, _ = await self._find_any(routed)
        await queries.drop(database, routed.id)
        return Response(204, [NO_STORE])

    async def results(self, routed: RoutedRequest) -> Response:
        """Answer results: as server-sent events, or by long polling."""
        parameters = parse_parameters(ResultsParameters, routed.request.query)
        queries, database, stored = await self._find_any(routed, with_parameters=True)
        _require(routed, stored)
        start = last_event_id(routed, RESULT_POSITION) or parameters.after
        if start is None:
            position = await queries.last_result(database, routed.id)
        else:
            position = ResultPosition.parse(start)

        async def read(after: ResultPosition, limit: int, wait_s: float) -> Page[ResultPosition]:
            results = await queries.results(database, routed.id, after, limit, wait_s)
            return Page([*map(_item, results)], results[-1].position if results else after)

        async def check() -> bytes:
            stored = await queries.find(database, routed.id)
            _require(routed, stored)
            return stopped_event(stored.state.detail) if stored.state.name == STOPPED else b""

        feed = EventFeed("result", ("results", "after"), read, check)
        return await self._followers.answer(
            routed, feed, position, parameters.limit, parameters.wait
        )

    async def plan(self, routed: RoutedRequest) -> Response:
        """Answer the plan of all queries, as JSON or as a drawing; it reveals each query."""
        refuse_content(routed, with_parameters=True)
        parameters = parse_parameters(PlanParameters, routed.request.query)
        database = await self._directory.database(routed.database)
        require = partial(_require, routed)
        document = await self._service().plan(database, parameters.mode, require)
        if accepts_by_name(routed.request.headers.get(b"accept", ""), SVG):
            body = drawing(document, document["names"]).encode()
            return Response(200, [_SVG_TYPE, _NO_SCRIPTS, NO_STORE], body)
        return answer_json(200, document)

    def _service(self) -> StandingQueries:
        return require_service(self._queries, "are no standing queries")

    async def _find_any(
        self, routed: RoutedRequest, *, with_parameters: bool = False
    ) -> tuple[StandingQueries, DatabaseRoute, StoredQuery]:
        """Find the query of a bodiless request, if the sender may see its definition."""
        refuse_content(routed, with_parameters=with_parameters)
        queries = self._service()
        database, stored = await find_dependent(self._directory, routed, queries.find)
        _require_streams(routed, stored.stream_names)
        return queries, database, stored


def _require(routed: RoutedRequest, stored: StoredQuery) -> None:
    """Require the permission to see all results of a query since its creation."""
    require_objects(routed, stored)
    _require_streams(routed, stored.stream_names)


def _require_streams(routed: RoutedRequest, names: Iterable[str]) -> None:
    for name in names:
        require_stream(routed, Scope.READ, name)


def _require_target(routed: RoutedRequest, target: Source) -> None:
    if target.kind == "stream":
        require_stream(routed, Scope.WRITE, target.name)
        return
    # The query does not write on behalf of its creator: the objects are not the creator's own.
    routed.access.require(Scope.WRITE, routed.database, target.name)
    routed.access.require_changes(routed.database, target.name)
    if routed.access.meter.room <= 0:
        raise routed.access.meter.full()


def _administrable_classes(routed: RoutedRequest, query: StandingQuery) -> list[str]:
    """Return the classes of a query that its creator may administer."""
    sources = {*query.sources.values(), *([query.into.target] if query.into else ())}
    names = [source.name for source in sources if source.kind == "class"]
    return [name for name in names if routed.access.may_administer(routed.database, name)]


def _item(result: StoredResult) -> Item:
    """Return the item of a result, with its number."""
    document = b'{"id":%d,%b' % (result.number, result.document.removeprefix(b"{"))
    return Item(str(result.position), document)


def _report(id_: str, stored: StoredQuery) -> dict[str, Any]:
    return {**query_document(id_, stored), "query": stored.document}
