"""An incremental view, parsed and validated against its schema: plain immutable data.

Its *sources* are the class it is about, and the classes that are joined with it. Every value of a
source has a global path: as it is in the first source, below the alias in those that are joined.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mediator.model.filters import Filter, Path
from mediator.model.query import Aggregate
from mediator.query.paths import ResolvedPath

__all__ = ["Source", "View", "ViewJoin"]


@dataclass(frozen=True, slots=True)
class Source:
    """Objects of a class that a view reads.

    Attributes:
        filter: Which of them, by their own fields; None: all.
        values: What is used of each: what their own paths lead to, by global path.
    """

    class_name: str
    filter: Filter | None
    values: Mapping[Path, ResolvedPath]


@dataclass(frozen=True, slots=True)
class ViewJoin:
    """An equi-join with a further source.

    Attributes:
        outer: Global paths of what was joined before.
        inner: Global paths in the source, one for each of them.
        is_anti: Whether it keeps what has no partner, instead of adding the partners.
    """

    source: Source
    outer: tuple[Path, ...]
    inner: tuple[Path, ...]
    is_anti: bool


@dataclass(frozen=True, slots=True)
class View:
    """A view.

    Attributes:
        filter: A condition on what was joined that is not about one source alone; None: none.
        aggregate: Computed over what was joined; None: each of it is a row.
        columns: What a row of the result has, by name; with an aggregate first its groups, then
            what it computes.
        document: The view as JSON, as it was sent.
    """

    name: str
    source: Source
    joins: tuple[ViewJoin, ...]
    filter: Filter | None
    aggregate: Aggregate | None
    columns: Mapping[str, ResolvedPath]
    document: Mapping[str, Any]

    @property
    def sources(self) -> tuple[Source, ...]:
        return (self.source, *(join.source for join in self.joins))

    @property
    def loading_order(self) -> list[int]:
        """The numbers of the sources, those first whose objects exclude others.

        Otherwise what they exclude would be made, and counted, before it is taken away again.
        """
        excluding = [number for number, join in enumerate(self.joins, 1) if join.is_anti]
        return [*excluding, *(n for n in range(len(self.joins) + 1) if n not in excluding)]

    @property
    def class_names(self) -> frozenset[str]:
        return frozenset(source.class_name for source in self.sources)
