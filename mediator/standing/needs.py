"""The queries of a database that can be executed, and what they need of its streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mediator.base.errors import Invalid
from mediator.event_streams.port import EventStream
from mediator.routing.model import DatabaseRoute
from mediator.standing.closed import closed_class
from mediator.standing.model import Join
from mediator.standing.query import Source, StandingQuery
from mediator.standing.query_parser import parse_query
from mediator.standing.results import (
    BEHIND,
    BUILDING,
    STOPPED,
    QueryState,
    StoredQuery,
)

__all__ = ["Needs", "needs_of", "stopped", "stream_into"]

_ANEW: Final = (
    "The stream {name} was removed and declared anew, so results do not go into it any more. Create"
    " the query again if they should go into the present one."
)

_CLOSED: Final = (
    "Objects of {name} have owners, or had since the query was created, if that was noted, and its"
    " results go where others find them. An administrator of the class can create the query again."
)


@dataclass(frozen=True, slots=True)
class Needs:
    """Queries, and what they need.

    Attributes:
        queries: By id.
        states: Of each of them.
        refused: Those that the schema or the streams do not allow, with the reason.
    """

    queries: Mapping[str, StandingQuery]
    states: Mapping[str, QueryState] = field(default_factory=dict)
    refused: Mapping[str, QueryState] = field(default_factory=dict)

    @property
    def joins(self) -> dict[str, Join]:
        return {id_: each.join for id_, each in self.queries.items()}

    @property
    def new(self) -> frozenset[str]:
        """Those that no holder has executed yet."""
        return frozenset(id_ for id_, each in self.states.items() if each.name == BUILDING)

    @property
    def behind(self) -> dict[str, QueryState]:
        """Those that the others are ahead of, as a rule has paused them; they need the same."""
        return {id_: each for id_, each in self.states.items() if each.name in BEHIND}

    @property
    def missed(self) -> frozenset[str]:
        """Relations of which a query has missed tuples, or will: it is behind."""
        return frozenset(each for id_ in self.behind for each in self.queries[id_].join.relations)

    @property
    def executed(self) -> dict[str, Join]:
        """The joins of those that each batch is executed for."""
        return {id_: each for id_, each in self.joins.items() if id_ not in self.behind}

    @property
    def sources(self) -> frozenset[Source]:
        return frozenset(at for each in self.queries.values() for at in each.sources.values())

    @property
    def window_s(self) -> float:
        """The longest window: for so long tuples are kept behind the watermark."""
        return max((each.join.window_s for each in self.queries.values()), default=0.0)

    @property
    def lateness_s(self) -> float:
        """How late tuples may be: as the most patient query says."""
        return max((each.lateness_s for each in self.queries.values()), default=0.0)

    @property
    def reach_s(self) -> float:
        """How far before the latest tuple others are kept that are not late."""
        return self.window_s + self.lateness_s

    @property
    def state(self) -> tuple[frozenset[Source], float, float]:
        """What the state in memory depends on, whatever the plan is."""
        return self.sources, self.window_s, self.lateness_s


def needs_of(
    stored: Mapping[str, StoredQuery], database: DatabaseRoute, streams: Mapping[str, EventStream]
) -> Needs:
    """Read the queries that were not stopped."""
    queries: dict[str, StandingQuery] = {}
    refused: dict[str, QueryState] = {}
    for id_, each in stored.items():
        if each.state.name != STOPPED:
            try:
                query = parse_query(each.document, database.schema, streams)
            except Invalid as error:
                refused[id_] = stopped(_reason(error))
            else:
                if (detail := _obstacle(each, query, database, streams)) is None:
                    queries[id_] = query
                else:
                    refused[id_] = stopped(detail)
    return Needs(queries, {id_: stored[id_].state for id_ in queries}, refused)


def _obstacle(
    stored: StoredQuery,
    query: StandingQuery,
    database: DatabaseRoute,
    streams: Mapping[str, EventStream],
) -> str | None:
    """Return why results may not go where they are to go; None: they may."""
    if stored.into != stream_into(query, streams):
        return _ANEW.format(name=stored.document["into"]["stream"])
    name = closed_class(stored, database)
    return None if name is None else _CLOSED.format(name=name)


def stream_into(query: StandingQuery, streams: Mapping[str, EventStream]) -> str | None:
    """Return the id of the event stream that results go to; None: they go to none."""
    if query.into is None or query.into.target.kind != "stream":
        return None
    stream = streams.get(query.into.target.name)
    return None if stream is None else stream.id


def stopped(detail: str) -> QueryState:
    return QueryState(STOPPED, detail)


def _reason(error: Invalid) -> str:
    first: Any = error.locations[0]
    return f"The streams or the schema no longer allow the query: {first.pointer} {first.detail}."
