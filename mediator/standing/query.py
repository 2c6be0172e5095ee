"""A standing query of a service: relations under aliases, which are event streams or classes.

Queries that read the same stream under different aliases share it, so plans know relations by what
they are, and not by an alias.
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
    """Where the tuples of a relation come from."""

    kind: SourceKind
    name: str

    @property
    def relation(self) -> str:
        """The name of the relation in plans: a stream may have the name of a class."""
        return self.name if self.kind == "stream" else f"{_PREFIX}{self.name}"

    @classmethod
    def of(cls, relation: str) -> Self:
        if relation.startswith(_PREFIX):
            return cls("class", relation.removeprefix(_PREFIX))
        return cls("stream", relation)


def names_of(relations: Iterable[str], kind: SourceKind) -> list[str]:
    """Return the names of the streams, or of the classes, among relations."""
    return [each.name for each in map(Source.of, relations) if each.kind == kind]


class Destination(NamedTuple):
    """Where results go: the event stream that they are appended to, or the class of their objects.

    Attributes:
        values: For its attributes, the alias and the attribute that each is taken from.
    """

    target: Source
    values: Mapping[str, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class StandingQuery:
    """A standing query.

    Attributes:
        sources: By alias.
        join: Over the relations of the sources.
        lateness_s: How long after a later tuple a tuple may still arrive, in seconds.
        into: Where results go, too; None: nowhere.
        max_lag: Tuples of its relations that it should not be further behind than.
        document: The query as JSON, as it was sent.
    """

    sources: Mapping[str, Source]
    join: Join
    lateness_s: float
    into: Destination | None
    max_lag: int
    document: Mapping[str, Any]

    @property
    def reads_classes(self) -> bool:
        return any(each.kind == "class" for each in self.sources.values())


def feeds_itself(query: StandingQuery, others: Iterable[StandingQuery]) -> bool:
    """Whether results of a query come back to it, through others or not."""
    if query.into is None:
        return False
    queries, reached = [query, *others], {query.into.target}
    while more := {
        each.into.target
        for each in queries
        if each.into is not None
        and not reached.isdisjoint(each.sources.values())
        and each.into.target not in reached
    }:
        reached |= more
    return not reached.isdisjoint(query.sources.values())
