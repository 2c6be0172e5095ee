"""``GET /v1/{database}/{class}``: objects by their ids, or page by page in an order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import orjson

from app.api.answers import JSON_TYPE, NO_STORE, REVALIDATE, add_wishes, represent
from app.api.calls import Call
from app.api.cursors import Cursors
from app.api.options import DataOptions
from app.api.resources import ClassResource, Selection
from app.api.writes import Planned
from app.http.message import Headers, Response, forbid_body
from app.http.paths import decode_text, parse_query, whole_number
from app.http.problems import INVALID, HttpError
from mediator.errors import Invalid, NotFound, Place
from mediator.operations.model import Get, Outcome
from mediator.planes import DataPlane, Page
from mediator.schema.ids import check_id
from mediator.schema.tree import MISSING, MissingType
from mediator.schema.types import Value

__all__ = ["Listings"]

Order: TypeAlias = tuple[str, Literal["asc", "desc"]]
Position: TypeAlias = tuple[Value | MissingType, str]

_BY_ID: Final = frozenset({"ids", "fields"})
_PAGED: Final = frozenset({"order", "limit", "after", "fields"})
_DEFAULT_LIMIT: Final = 100


@dataclass(frozen=True, slots=True)
class _Query:
    """A listing: what of each object, in which order, from where, how many."""

    selection: Selection
    order: Order | None
    spelled_order: str | None
    after: Position | None
    limit: int


class Listings:
    """Reads of a class."""

    def __init__(self, plane: DataPlane, options: DataOptions) -> None:
        self._plane = plane
        self._options = options
        self._cursors = Cursors(options.cursor_key)

    async def get(self, call: Call) -> Response:
        """Answer ``?ids=`` or a page."""
        forbid_body(call.request)
        parameters = parse_query(call.request.query, _BY_ID | _PAGED)
        selection = call.resource.select(parameters.get("fields"))
        if "ids" in parameters:
            return await self._by_ids(call, selection, parameters)
        return await self._page(call, self._query(call.resource, selection, parameters))

    async def _by_ids(
        self, call: Call, selection: Selection, parameters: dict[str, str]
    ) -> Response:
        beyond = sorted(parameters.keys() - _BY_ID)
        if beyond:
            places = [Place(name, "does not go together with ids") for name in beyond]
            raise Invalid("ids go together with fields only.", places=places)
        ids = _ids(parameters["ids"], self._options.batch_limit)
        resource = call.resource
        gets = [Get(resource.database, resource.name, id_, selection.fields) for id_ in ids]
        call.request.phases.end("parse")
        outcomes = await self._plane.batch(gets)
        call.request.phases.end("store")
        found: list[Outcome] = []
        missing: list[str] = []
        for get, outcome in zip(gets, outcomes, strict=True):
            if isinstance(outcome, Outcome):
                found.append(outcome)
            elif isinstance(outcome, NotFound):
                missing.append(get.id)
            else:
                raise outcome
        return _answer(call, selection, found, {"missing": missing})

    def _query(
        self, resource: ClassResource, selection: Selection, parameters: dict[str, str]
    ) -> _Query:
        spelled = parameters.get("order")
        order = _order(resource, spelled)
        most = self._options.page_limit
        text = parameters.get("limit", str(min(_DEFAULT_LIMIT, most)))
        limit = whole_number(text, "limit", least=1, most=most)
        cursor = parameters.get("after")
        after = None if cursor is None else self._open(resource, order, spelled, cursor)
        return _Query(selection, order, spelled, after, limit)

    def _open(
        self, resource: ClassResource, order: Order | None, spelled: str | None, cursor: str
    ) -> Position:
        query = (resource.database, resource.name, spelled)
        id_, *value = self._cursors.open(query, cursor)
        if order is None or not value:
            return MISSING, id_
        return resource.codec.decode(order[0], value[0], "after"), id_

    async def _page(self, call: Call, query: _Query) -> Response:
        resource = call.resource
        fields = query.selection.fields
        if fields is not None and query.order is not None:
            # The cursor needs the value of the order field, shown or not.
            fields = tuple(sorted({*fields, query.order[0]}))
        call.request.phases.end("parse")
        page = await self._plane.listing(
            resource.database,
            resource.name,
            order=query.order,
            after=query.after,
            limit=query.limit,
            fields=fields,
        )
        call.request.phases.end("store")
        following = {"next": self._next(resource, query, page)}
        return _answer(call, query.selection, page.items, following)

    def _next(self, resource: ClassResource, query: _Query, page: Page) -> str | None:
        if not page.more or not page.items:
            return None
        last = page.items[-1]
        position: list[Any] = [last.id]
        name = query.order[0] if query.order else None
        if name is not None and last.values is not None and name in last.values:
            position.append(resource.codec.encode({name: last.values[name]})[name])
        return self._cursors.seal((resource.database, resource.name, query.spelled_order), position)


def _shown(resource: ClassResource, selection: Selection, outcome: Outcome) -> dict[str, Any]:
    get = Get(resource.database, resource.name, outcome.id, selection.fields)
    return represent(Planned(get, resource, selection, selection.fields), outcome)


def _answer(
    call: Call, selection: Selection, outcomes: Sequence[Outcome], beside: dict[str, Any]
) -> Response:
    headers: Headers = [JSON_TYPE, REVALIDATE if selection.canonical else NO_STORE]
    partial = {group for outcome in outcomes for group in outcome.partial}
    add_wishes(headers, call.preferences, tuple(sorted(partial)))
    items = [_shown(call.resource, selection, outcome) for outcome in outcomes]
    return Response(200, headers, orjson.dumps({"items": items, **beside}))


def _ids(text: str, most: int) -> list[str]:
    """Split the list; each id is percent-encoded in it, so that it may hold a comma."""
    parts = text.split(",")
    if len(parts) > most:
        places = [Place("ids", f"at most {most} are allowed")]
        raise HttpError(INVALID, "There are too many ids.", places=places)
    ids = [decode_text(part.encode(), "ids") if "%" in part else part for part in parts]
    return [check_id(id_, "ids") for id_ in dict.fromkeys(ids)]


def _order(resource: ClassResource, spelled: str | None) -> Order | None:
    if spelled is None:
        return None
    name = spelled.removeprefix("-")
    if name not in resource.schema.fields:
        places = [Place("order", f"{name!r} is no field of {resource.name}")]
        raise Invalid("The order names no field.", places=places)
    return name, "desc" if spelled.startswith("-") else "asc"
