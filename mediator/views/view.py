"""An incremental view, parsed and validated against its schema: plain immutable data.

Its *sources* are its class and the classes joined with it. Every value of a source has a global
path: its own path in the first source, below the alias in joined sources.
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
        filter: A condition on their own fields; None: all objects.
        values: The used values by global path, resolved by their own paths.
    """

    class_name: str
    filter: Filter | None
    values: Mapping[Path, ResolvedPath]


@dataclass(frozen=True, slots=True)
class ViewJoin:
    """An equi-join with another source.

    Attributes:
        outer: Global paths in the sources joined before.
        inner: The corresponding global paths in this source.
        is_anti: Whether it is an antijoin: keeps tuples without a partner, and adds no partners.
    """

    source: Source
    outer: tuple[Path, ...]
    inner: tuple[Path, ...]
    is_anti: bool


@dataclass(frozen=True, slots=True)
class View:
    """A view.

    Attributes:
        filter: The residual condition on several sources; None: none.
        aggregate: Computed over the joined tuples; None: each tuple is a row.
        columns: The columns of the result, by name; of an aggregate, first its groups, then its
            computed values.
        document: The view in JSON, as it was sent.
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
        """The numbers of the sources, with the antijoined sources first.

        Otherwise, tuples that they exclude would be made and counted before they are removed.
        """
        antijoined = [number for number, join in enumerate(self.joins, 1) if join.is_anti]
        return [*antijoined, *(n for n in range(len(self.joins) + 1) if n not in antijoined)]

    @property
    def class_names(self) -> frozenset[str]:
        return frozenset(source.class_name for source in self.sources)
