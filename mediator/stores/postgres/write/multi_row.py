"""Multi-row writes: updates or deletions of one shape, to different records, as one statement.

Starting a statement costs the server more than changing a row, so concurrent writes share one: the
one of `statement`, over rows of parameters that are sent as arrays. Several writes to one record
need several statements (`rounds`), one after the other in a pipeline.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from mediator.stores.port import Write
from mediator.stores.postgres.layout import NamespaceTables, RecordTable
from mediator.stores.postgres.sql import Statement, parameter
from mediator.stores.postgres.write.operators import operator_codec
from mediator.stores.postgres.write.prepared import PreparedWrite, WriteShape
from mediator.stores.postgres.write.statement import WriteBuilder, lock_of

__all__ = ["MultiRowWrite", "rounds", "takes_rows"]

_POSITION: Final = "position"


class MultiRowWrite:
    """The statement for many writes of a shape; it returns a row for each, in order."""

    __slots__ = ("_names", "_prepared", "statement")

    def __init__(
        self, prepared: PreparedWrite, records: RecordTable, namespace_tables: NamespaceTables
    ) -> None:
        builder = _MultiRowBuilder(prepared.shape, records, namespace_tables)
        self._prepared, self._names = prepared, tuple(builder.types)
        self.statement = Statement(builder.build())

    def arguments(self, calls: Sequence[Write], token: str) -> list[Any]:
        """Return the parameters for writes to different records."""
        rows = [self._prepared.parameters(call, token) for call in calls]
        columns = {name: [parameters[name] for parameters in rows] for name in self._names}
        return self.statement.arguments({**columns, "token": token})


def takes_rows(shape: WriteShape, records: RecordTable) -> bool:
    """Whether many writes of a shape can be one statement.

    Writes that insert, claim or remember cannot: a faster concurrent write would roll back the
    statement. Nor can writes of arrays: SQL's arrays of arrays need elements of equal length.
    """
    needs_own_statement = shape.is_full or shape.claims or shape.has_intent or shape.remember
    types = argument_types(shape, records).values()
    return not (
        needs_own_statement or shape.creation_version or any(isinstance(t, ARRAY) for t in types)
    )


def argument_types(shape: WriteShape, records: RecordTable) -> dict[str, Any]:
    """Return the types of each write's arguments, by the names that `argument` takes."""
    types: dict[str, Any] = {"id": sa.Text(), "operation": sa.Text()}
    for i, (name, operator) in enumerate(shape.operators):
        codec = operator_codec(shape.fragment.fields[name], operator)
        if codec is not None:
            types[f"a{i}"] = codec.type
    types |= {f"v_{name}": records.codecs[name].type for name in shape.values}
    return types | {f"e{i}": sa.BigInteger() for i in range(len(shape.expect))}


def rounds(calls: Sequence[Write]) -> list[list[int]]:
    """Divide calls, by position, into rounds with at most one call for each record.

    Calls on one record are in consecutive rounds, in order.
    """
    positions_by_round: list[list[int]] = []
    counts: defaultdict[str, int] = defaultdict(int)
    for position, call in enumerate(calls):
        number = counts[call.id]
        counts[call.id] += 1
        if number == len(positions_by_round):
            positions_by_round.append([])
        positions_by_round[number].append(position)
    return positions_by_round


class _MultiRowBuilder(WriteBuilder):
    def __init__(
        self, shape: WriteShape, records: RecordTable, namespace_tables: NamespaceTables
    ) -> None:
        self.types = argument_types(shape, records)
        # By position: columns of `old` can have the names of fields.
        self._columns = {name: f"_g{i}" for i, name in enumerate(self.types)}
        columns = [sa.column(self._columns[name], type_) for name, type_ in self.types.items()]
        arrays = [parameter(name, ARRAY(type_)) for name, type_ in self.types.items()]
        table = sa.func.unnest(*arrays).table_valued(*columns, with_ordinality=_POSITION)
        self._rows = sa.select(table.render_derived("row")).cte("given")
        self._source: Any = self._rows
        super().__init__(shape, records, namespace_tables)

    def argument(self, name: str, type_: Any) -> Any:
        """Return a column of the argument rows, or of `old`, once that carries them."""
        del type_
        return self._source.c[self._columns[name]]

    def _lock(self) -> sa.Select[Any]:
        return lock_of(self.records, self._rows.c[self._columns["id"]])

    def _locked_source(self) -> Any:
        return self._rows.join(self.lock, sa.true())

    def _carried_columns(self) -> list[Any]:
        return [self._rows.c[name] for name in self._columns.values()]

    def _old(self) -> sa.CTE:
        old = super()._old()
        self._source = old
        return old

    def _written_rows(self) -> Any:
        return self.new.join(self.old, self.new.c["id"] == self.old.c["id"])

    def _outcome(self) -> sa.Select[Any]:
        id_ = self._rows.c[self._columns["id"]]
        source: Any = self._rows.outerjoin(self.old, self.old.c["id"] == id_)
        source = source.outerjoin(self.new, self.new.c["id"] == id_)
        return (
            sa.select(*self._result_columns()).select_from(source).order_by(self._rows.c[_POSITION])
        )
