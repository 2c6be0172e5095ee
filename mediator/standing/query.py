"""A standing query of a service: aliased relations, which are event streams or classes.

Queries that read the same stream under different aliases share it, so plans name a relation by its
source, not by an alias.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, Self, TypeAlias

from mediator.standing.model import Join

__all__ = ["Destination", "Source", "SourceKind", "StandingQuery", "feeds_itself", "names_of"]

SourceKind: TypeAlias = Literal["stream", "class"]

_PREFIX: Final = "class:"


class Source(NamedTuple):
    """The source of a relation's tuples."""

    kind: SourceKind
    name: str

    @property
    def relation(self) -> str:
        """The relation's name in plans, which tells a stream from a class of the same name."""
        return self.name if self.kind == "stream" else f"{_PREFIX}{self.name}"

    @classmethod
    def of(cls, relation: str) -> Self:
        if relation.startswith(_PREFIX):
            return cls("class", relation.removeprefix(_PREFIX))
        return cls("stream", relation)


def names_of(relations: Iterable[str], kind: SourceKind) -> list[str]:
    """Return the names of the streams, or of the classes, among relations."""
    return [source.name for source in map(Source.of, relations) if source.kind == kind]


class Destination(NamedTuple):
    """The destination of results: an event stream to append to, or a class for their objects.

    Attributes:
        values: By attribute, the alias and the attribute that supply its value.
    """

    target: Source
    values: Mapping[str, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class StandingQuery:
    """A standing query.

    Attributes:
        sources: By alias.
        join: Over the relations of the sources.
        lateness_s: How long after a later tuple a tuple can still arrive, in seconds.
        into: Additional destination of results; None: none.
        max_lag: Maximum lag behind its relations, in tuples.
        document: The query in JSON, as it was sent.
    """

    sources: Mapping[str, Source]
    join: Join
    lateness_s: float
    into: Destination | None
    max_lag: int
    document: Mapping[str, Any]

    @property
    def reads_classes(self) -> bool:
        return any(source.kind == "class" for source in self.sources.values())


def feeds_itself(query: StandingQuery, other_queries: Iterable[StandingQuery]) -> bool:
    """Whether results of a query return to it, directly or through other queries."""
    if query.into is None:
        return False
    queries, reached = [query, *other_queries], {query.into.target}
    while more := {
        reader.into.target
        for reader in queries
        if reader.into is not None
        and not reached.isdisjoint(reader.sources.values())
        and reader.into.target not in reached
    }:
        reached |= more
    return not reached.isdisjoint(query.sources.values())
