"""The network of one view: a chain of nodes, from the inputs to the production."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

import orjson

from mediator.model.evaluate import Lookup
from mediator.model.filters import Path
from mediator.query.paths import row_document
from mediator.views.cells import Tuple, unbox
from mediator.views.nodes import (
    AggregationNode,
    AntijoinNode,
    Delta,
    InputNode,
    JoinNode,
    ProductionNode,
    ProjectionNode,
    RowChange,
    SelectionNode,
    too_large,
)
from mediator.views.view import View

__all__ = ["MAX_CHANGE_TUPLES", "MAX_TUPLES", "Network"]

MAX_TUPLES: Final = 200_000
"""Maximum tuples in the memories of a view's joins."""

MAX_CHANGE_TUPLES: Final = 20_000
"""Maximum joined tuples for one change of one object: nothing else runs meanwhile."""

_Join: TypeAlias = JoinNode | AntijoinNode


class Network:
    """Follows the objects of a view's sources; unusable after any method raises `Invalid`."""

    def __init__(self, view: View) -> None:
        self.view = view
        self._inputs = [InputNode(source) for source in view.sources]
        layout: dict[Path, int] = {path: i for i, path in enumerate(view.source.values)}
        self._joins: list[_Join] = []
        for join in view.joins:
            left = [layout[path] for path in join.outer]
            right = [list(join.source.values).index(path) for path in join.inner]
            self._joins.append((AntijoinNode if join.is_anti else JoinNode)(left, right))
            if not join.is_anti:
                layout |= {path: len(layout) + i for i, path in enumerate(join.source.values)}
        self._selection = SelectionNode(view.filter, layout) if view.filter is not None else None
        self._aggregation: AggregationNode | None = None
        self._projection: ProjectionNode | None = None
        self._production = ProductionNode(self._encode)
        self._tuple_count = 0
        if view.aggregate is not None:
            self._aggregation = AggregationNode(view.aggregate, layout)
            self._production.apply(self._aggregation.initial())
        else:
            columns = view.columns.values()
            self._projection = ProjectionNode([layout[target.path] for target in columns])

    def update(self, source: int, before: Lookup | None, after: Lookup | None) -> None:
        """Apply the change of an object of a source, given by its number.

        A class that is used as several sources is updated in each, in order.
        """
        delta: Delta = self._inputs[source].change(before, after)
        if not delta:
            return
        self._tuple_count = 0
        if source:
            delta = self._count(self._joins[source - 1].right(delta))
        for join in self._joins[source:]:
            delta = self._count(join.left(delta))
        if self._selection is not None:
            delta = self._selection.apply(delta)
        if self._aggregation is not None:
            delta = self._aggregation.apply(delta)
        if self._projection is not None:
            delta = self._projection.apply(delta)
        self._production.apply(delta)
        if sum(join.size for join in self._joins) > MAX_TUPLES:
            raise too_large(f"its joins remember more than {MAX_TUPLES} tuples")

    def take(self) -> list[RowChange]:
        """Return the changes of the result since the last call."""
        return self._production.take()

    @property
    def rows(self) -> dict[bytes, int]:
        return self._production.rows

    def _count(self, delta: Delta) -> Iterator[tuple[Tuple, int]]:
        for entry in delta:
            self._tuple_count += 1
            if self._tuple_count > MAX_CHANGE_TUPLES:
                raise too_large(f"one change concerns more than {MAX_CHANGE_TUPLES} tuples")
            yield entry

    def _encode(self, row: Tuple) -> bytes:
        return orjson.dumps(row_document(self.view.columns, map(unbox, row)))
