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
    require_stream,
    required,
)
from app.api.following import Followed, Followers, Item, Page, last_event_id, stopped_event
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

_LARGEST_QUERY: Final = 2**14
_SVG_TYPE: Final = (b"content-type", SVG.encode())
_NO_SCRIPTS: Final = (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'")


@dataclass(eq=False)
class StandingQueryRoutes:
    """The routes of standing queries.

    Who asks for a query has to see every change of each class that it reads since its creation, and
    to read each stream. Who creates one has to write what results go into: all objects of a class.
    """

    _directory: Directory
    _queries: StandingQueries | None
    _limit: int
    _followers: Followers

    async def post(self, routed: RoutedRequest) -> Response:
        """Create a query."""
        queries = self._service()
        body, _ = await routed.json_body(min(_LARGEST_QUERY, self._limit))
        database = await self._directory.database(routed.database)
        streams = await queries.streams(database)
        query = parse_standing_query(body, database.schema, streams)
        for name in names_of(query.join.relations, "class"):
            routed.access.require_changes(routed.database, name)
        _require_streams(routed, names_of(query.join.relations, "stream"))
        if query.into is not None:
            _require_target(routed, query.into.target)
        id_, stored = await queries.create(database, query, _administered(routed, query))
        path = f"{routed.database}/standing-queries/{id_}"
        new = load_document(StandingLoad(0, query.max_lag, None))
        return answer_created(path, {**_report(id_, stored), **new})

    async def list(self, routed: RoutedRequest) -> Response:
        refuse_content(routed)
        database = await self._directory.database(routed.database)
        found = await self._service().of_database(database)
        return answer_json(200, {"items": [query_document(*each) for each in found.items()]})

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
        begin = last_event_id(routed, RESULT_POSITION) or parameters.after
        if begin is None:
            position = await queries.last_result(database, routed.id)
        else:
            position = ResultPosition.parse(begin)

        async def read(after: ResultPosition, limit: int, wait_s: float) -> Page[ResultPosition]:
            found = await queries.results(database, routed.id, after, limit, wait_s)
            return Page([*map(_item, found)], found[-1].position if found else after)

        async def check() -> bytes:
            stored = await queries.find(database, routed.id)
            _require(routed, stored)
            return stopped_event(stored.state.detail) if stored.state.name == STOPPED else b""

        followed = Followed("result", ("results", "after"), read, check)
        return await self._followers.answer(
            routed, followed, position, parameters.limit, parameters.wait
        )

    async def plan(self, routed: RoutedRequest) -> Response:
        """Answer the plan of all queries, which shows each of them, as JSON or as a drawing."""
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
        return required(self._queries, "are no standing queries")

    async def _find_any(
        self, routed: RoutedRequest, *, with_parameters: bool = False
    ) -> tuple[StandingQueries, DatabaseRoute, StoredQuery]:
        """Find the query of a request without a body, whose sender may see its definition."""
        refuse_content(routed, with_parameters=with_parameters)
        queries = self._service()
        database, stored = await find_dependent(self._directory, routed, queries.find)
        _require_streams(routed, stored.stream_names)
        return queries, database, stored


def _require(routed: RoutedRequest, stored: StoredQuery) -> None:
    """Return if the request may see what a query has found since it was created."""
    require_objects(routed, stored)
    _require_streams(routed, stored.stream_names)


def _require_streams(routed: RoutedRequest, names: Iterable[str]) -> None:
    for name in names:
        require_stream(routed, Scope.READ, name)


def _require_target(routed: RoutedRequest, target: Source) -> None:
    if target.kind == "stream":
        require_stream(routed, Scope.WRITE, target.name)
        return
    # Objects are not written in the name of who creates the query, whose own they would be.
    routed.access.require(Scope.WRITE, routed.database, target.name)
    routed.access.require_changes(routed.database, target.name)
    if routed.access.meter.room <= 0:
        raise routed.access.meter.full()


def _administered(routed: RoutedRequest, query: StandingQuery) -> list[str]:
    """Return the classes of a query that its creator may administer."""
    used = {*query.sources.values(), *([query.into.target] if query.into else ())}
    names = [each.name for each in used if each.kind == "class"]
    return [name for name in names if routed.access.may_administer(routed.database, name)]


def _item(result: StoredResult) -> Item:
    """Show a result with its number."""
    document = b'{"id":%d,%b' % (result.number, result.document.removeprefix(b"{"))
    return Item(str(result.position), document)


def _report(id_: str, stored: StoredQuery) -> dict[str, Any]:
    return {**query_document(id_, stored), "query": stored.document}
