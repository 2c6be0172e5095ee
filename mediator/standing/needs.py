"""The executable queries of a database, and their requirements on its streams."""

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

__all__ = ["Needs", "needs_of", "stopped_state", "stream_into"]

_STREAM_REPLACED: Final = (
    "The stream {name} was removed and declared anew, so results do not go into it any more. Create"
    " the query again if they should go into the present one."
)

_CLASS_CLOSED: Final = (
    "Objects of {name} have owners, or had since the query was created, if that was noted, and its"
    " results go where others find them. An administrator of the class can create the query again."
)


@dataclass(frozen=True, slots=True)
class Needs:
    """Queries, and their requirements.

    Attributes:
        queries: By id.
        states: By id.
        refused: By id, queries that the schema or the streams do not allow, with the reason.
    """

    queries: Mapping[str, StandingQuery]
    states: Mapping[str, QueryState] = field(default_factory=dict)
    refused: Mapping[str, QueryState] = field(default_factory=dict)

    @property
    def joins(self) -> dict[str, Join]:
        return {id_: query.join for id_, query in self.queries.items()}

    @property
    def new(self) -> frozenset[str]:
        """Ids of queries that no holder has executed yet."""
        return frozenset(id_ for id_, state in self.states.items() if state.name == BUILDING)

    @property
    def behind(self) -> dict[str, QueryState]:
        """States of queries behind the others, as a rule has paused them; their needs stay."""
        return {id_: state for id_, state in self.states.items() if state.name in BEHIND}

    @property
    def missed(self) -> frozenset[str]:
        """Relations of which a query that is behind has missed tuples, or will."""
        return frozenset(
            relation for id_ in self.behind for relation in self.queries[id_].join.relations
        )

    @property
    def executed(self) -> dict[str, Join]:
        """The joins of the queries that every batch executes, by id."""
        return {id_: join for id_, join in self.joins.items() if id_ not in self.behind}

    @property
    def sources(self) -> frozenset[Source]:
        return frozenset(
            source for query in self.queries.values() for source in query.sources.values()
        )

    @property
    def window_s(self) -> float:
        """The longest window: how long tuples are kept behind the watermark, in seconds."""
        return max((query.join.window_s for query in self.queries.values()), default=0.0)

    @property
    def lateness_s(self) -> float:
        """The longest lateness of all queries, in seconds."""
        return max((query.lateness_s for query in self.queries.values()), default=0.0)

    @property
    def reach_s(self) -> float:
        """How far before the latest tuple others are kept, in seconds."""
        return self.window_s + self.lateness_s

    @property
    def state(self) -> tuple[frozenset[Source], float, float]:
        """The parameters on which the state in memory depends, whatever the plan."""
        return self.sources, self.window_s, self.lateness_s


def needs_of(
    definitions: Mapping[str, StoredQuery],
    database: DatabaseRoute,
    streams: Mapping[str, EventStream],
) -> Needs:
    """Parse the queries that were not stopped."""
    queries: dict[str, StandingQuery] = {}
    refused: dict[str, QueryState] = {}
    for id_, definition in definitions.items():
        if definition.state.name != STOPPED:
            try:
                query = parse_query(definition.document, database.schema, streams)
            except Invalid as error:
                refused[id_] = stopped_state(_reason(error))
            else:
                if (detail := _obstacle(definition, query, database, streams)) is None:
                    queries[id_] = query
                else:
                    refused[id_] = stopped_state(detail)
    return Needs(queries, {id_: definitions[id_].state for id_ in queries}, refused)


def _obstacle(
    definition: StoredQuery,
    query: StandingQuery,
    database: DatabaseRoute,
    streams: Mapping[str, EventStream],
) -> str | None:
    """Return why results cannot go to their destination; None: they can."""
    if definition.into != stream_into(query, streams):
        return _STREAM_REPLACED.format(name=definition.document["into"]["stream"])
    name = closed_class(definition, database)
    return None if name is None else _CLASS_CLOSED.format(name=name)


def stream_into(query: StandingQuery, streams: Mapping[str, EventStream]) -> str | None:
    """Return the id of the event stream that results go to; None: they go to no stream."""
    if query.into is None or query.into.target.kind != "stream":
        return None
    stream = streams.get(query.into.target.name)
    return None if stream is None else stream.id


def stopped_state(detail: str) -> QueryState:
    return QueryState(STOPPED, detail)


def _reason(error: Invalid) -> str:
    first: Any = error.locations[0]
    return f"The streams or the schema no longer allow the query: {first.pointer} {first.detail}."
