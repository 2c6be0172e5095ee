"""A standing query of a service: relations under aliases, which are event streams or classes.

Queries that read the same stream under different aliases share it, so plans know relations by what
they are, and not by an alias.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, Self, TypeAlias

from mediator.standing.model import Join

__all__ = ["Source", "SourceKind", "StandingQuery"]

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


@dataclass(frozen=True, slots=True)
class StandingQuery:
    """A standing query.

    Attributes:
        sources: By alias.
        join: Over the relations of the sources.
        lateness_s: How long after a later tuple a tuple may still arrive, in seconds.
        document: The query as JSON, as it was sent.
    """

    sources: Mapping[str, Source]
    join: Join
    lateness_s: float
    document: Mapping[str, Any]
