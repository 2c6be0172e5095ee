"""A write as one statement: conditions, change, outbox and remembered operation in one round trip.

::

    WITH lock AS (SELECT pg_advisory_xact_lock(…)),        -- one writer at a time for a record
         old AS (SELECT … FROM lock … WHERE id = $1 FOR UPDATE),   -- the row as it is, locked
         new AS (UPDATE … FROM old WHERE <conditions on old> RETURNING …),   -- or INSERT, see below
         outbox AS (INSERT INTO _outbox SELECT … FROM old, new),
         remember AS (INSERT INTO _operations SELECT … FROM new)
    SELECT … FROM old LEFT JOIN new                          -- always one row: the outcome

Why this is correct under READ COMMITTED, with concurrent writes to the same row:

- `lock` keeps the outbox in order. Waiting for a row lock, a transaction can get its id before it
  gets the row (heap_lock_tuple follows the row's updates under its own id), and so write after a
  transaction with a higher id: (xid, seq) would not be the order of versions. An advisory lock
  needs no transaction id, so writers of one record get their ids in the order of their writes.
- `old` waits for the row lock and then, if the row was changed meanwhile, tests its condition on
  the newest row and returns that row (EvalPlanQual). From then on no other transaction can change
  it.
- `UPDATE … FROM old` finds the row by the statement's snapshot, which can be older. PostgreSQL then
  goes to the newest row and tests the join again *with the same row of* `old` (rows of a CTE are
  copied, not read again). Conditions and new values are computed from `old` alone, which is the
  newest row and locked, so the second test has the same result.
- A row that was inserted after the snapshot is not visible: `old` is empty, hence MISSING; the
  write is ordered before that concurrent insert.
- CREATE and REPLACE insert, and on conflict update the existing row, *provided that* `old` saw one.
  If it did not (a concurrent insert won), neither an old nor a new row is returned, nothing was
  done, and the caller retries. If it did, the row is locked, so `old` equals the conflicting row.
- An intent (`_intent`, see `Lockable`) and the fences (`_fences`, see `fences`) are in the row, so
  they are read like conditions: from the newest row, locked. Setting an intent and fencing insert a
  row for an absent record.
- A record's claims are in its row, under a unique index: of two writes with the same claim, one
  fails, which rolls back its statement. A write under an intent first removes its record's
  reservations (see `claims`), which have the same claims; it counts them to wait for the removal.
- Many writes can be one statement (`multi_row`), each to another record: the above holds for each
  row of `given`, the arguments. `lock` then locks all records in one order, and counts them, so
  that all are locked before the first row.
- Of two executions of one operation id, both can find nothing in `_operations`; the second then
  fails on the primary key, which rolls back its statement, and its retry finds the remembered
  operation.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, array, insert

from mediator.stores.port import Fragment, WriteKind
from mediator.stores.postgres.codec import json_form
from mediator.stores.postgres.layout import NULLS, NamespaceTables, RecordTable
from mediator.stores.postgres.sql import Statement, constant, json_object, number, parameter
from mediator.stores.postgres.write.operators import REMOVING, apply, operator_codec
from mediator.stores.postgres.write.prepared import WriteShape

__all__ = ["WriteBuilder", "lock_of", "lock_statement", "recall_statement", "write_statement"]


def write_statement(
    shape: WriteShape, records: RecordTable, namespace_tables: NamespaceTables
) -> Statement:
    """Build the statement for a write of a shape; `PreparedWrite` reads its row."""
    return Statement(WriteBuilder(shape, records, namespace_tables).build())


def lock_statement(records: RecordTable) -> Statement:
    """Build the statement that locks many records (parameter `ids`), in one order."""
    id_ = sa.func.unnest(parameter("ids", ARRAY(sa.Text()))).column_valued("id")
    return Statement(lock_of(records, id_))


def lock_of(records: RecordTable, id_: Any) -> sa.Select[Any]:
    """Lock the records with the ids of a column, in the order of their keys, and count them."""
    keys = sa.select(_lock_key(records, id_).label("key")).distinct().order_by("key").subquery()
    return sa.select(sa.func.count(sa.func.pg_advisory_xact_lock(keys.c["key"])).label("locked"))


def _lock_key(records: RecordTable, id_: Any) -> Any:
    table = sa.func.hashtextextended(constant(str(records.table.fullname)), number(0))
    return sa.func.hashtextextended(id_, table, type_=sa.BigInteger())


def recall_statement(fragment: Fragment, namespace_tables: NamespaceTables) -> Statement:
    """Find a remembered operation (parameters `operation`, `id`)."""
    return Statement(_remembered(fragment, namespace_tables))


def _remembered(fragment: Fragment, namespace_tables: NamespaceTables) -> sa.Select[Any]:
    operations = namespace_tables.operations.c
    names = ("fingerprint", "created", "creation_version", "versions", "values", "nulls")
    return sa.select(*(operations[name] for name in names)).where(
        operations["operation"] == parameter("operation", sa.Text()),
        operations["database"] == constant(fragment.database),
        operations["class"] == constant(fragment.stored_as),
        operations["object"] == parameter("id", sa.Text()),
    )


class WriteBuilder:
    """Builds the CTEs of one statement, which refer to each other."""

    def __init__(
        self, shape: WriteShape, records: RecordTable, namespace_tables: NamespaceTables
    ) -> None:
        self.shape, self.records, self.namespace_tables = shape, records, namespace_tables
        self.remembered: sa.CTE | None = None
        if shape.remember:
            self.remembered = _remembered(shape.fragment, namespace_tables).cte("remembered")
        self.lock = self._lock().cte("lock")
        self.old = self._old()
        # A separate clock, because there can be no old row to carry it; it is also read after the
        # lock.
        clock = sa.select(sa.func.clock_timestamp().label("_at"))
        self.clock = clock.select_from(self.lock).cte("clock")
        self.at = (self.clock if shape.is_full else self.old).c["_at"]
        self.was_live = sa.and_(self.old.c["id"].is_not(None), self.old.c["_deleted"].is_(None))
        self.release_conditions = self._release_reservations()
        self.new = (self._insert() if shape.is_full else self._update()).cte("new")

    def build(self) -> sa.Select[Any]:
        """Return the complete statement."""
        query = self._outcome()
        for name, entry in self._entries().items():
            query = query.add_cte(entry.cte(name))
        return query

    def argument(self, name: str, type_: Any) -> Any:
        """Return an argument of the write."""
        return parameter(name, type_)

    @property
    def id(self) -> Any:
        return self.argument("id", sa.Text())

    def _lock(self) -> sa.Select[Any]:
        key = _lock_key(self.records, self.id)
        return sa.select(sa.func.pg_advisory_xact_lock(key).label("locked"))

    def _outcome(self) -> sa.Select[Any]:
        one = sa.select(number(1).label("one")).subquery("one")
        source: Any = one.outerjoin(self.old, sa.true()).outerjoin(self.new, sa.true())
        if self.remembered is not None:
            source = source.outerjoin(self.remembered, sa.true())
        return sa.select(*self._result_columns()).select_from(source)

    def _written_rows(self) -> Any:
        """Return the written rows, joined with the old ones."""
        if self.shape.is_full:
            return self.new.join(self.clock, sa.true()).outerjoin(self.old, sa.true())
        return self.new.join(self.old, sa.true())

    def _entries(self) -> dict[str, Any]:
        source = self._written_rows()
        entries = {"outbox": self._changes(source)} if self.shape.groups else {}
        if self.shape.remember:
            entries["remember"] = self._operation(source)
        return entries

    def _changes(self, source: Any) -> Any:
        """Insert one outbox row for each written group; the change id is `operation:group`."""
        outbox = self.namespace_tables.outbox
        rows = [_row(self._change(group)).select_from(source) for group in self.shape.groups]
        names = [name for name in outbox.c.keys() if name not in ("xid", "seq")]  # noqa: SIM118 - a column collection iterates over columns
        return insert(outbox).from_select(names, rows[0] if len(rows) == 1 else sa.union_all(*rows))

    def _change(self, group: str) -> tuple[Any, ...]:
        shape, old, new = self.shape, self.old.c, self.new.c
        members = set(shape.fragment.groups[group])
        touched = [name for name in shape.touched if name in members]
        before, after = self._fields(old, touched), self._fields(new, touched)
        before_nulls: Any = old["_nulls"]
        after_nulls: Any = new["_nulls"]
        if shape.is_full:
            before, before_nulls = (sa.case((self.was_live, x)) for x in (before, before_nulls))
        if shape.kind is WriteKind.DELETE:
            after, after_nulls = sa.cast(sa.null(), JSONB), sa.cast(sa.null(), NULLS)
        operation = self.argument("operation", sa.Text())
        return (
            operation.op("||", return_type=sa.Text())(constant(f":{group}")),
            constant(shape.fragment.database_id),
            constant(shape.fragment.class_name),
            self.id,
            constant(group),
            new[self.records.versions[group].name],
            constant(shape.kind.name.lower()),
            before,
            before_nulls,
            after,
            after_nulls,
            self.at,
        )

    def _operation(self, source: Any) -> Any:
        """Insert the operation with its result, so that a retry returns the same result."""
        shape, new = self.shape, self.new.c
        versions = {group: new[v.name] for group, v in self.records.versions.items()}
        latest = sa.func.greatest(*versions.values(), type_=sa.BigInteger())
        columns = (
            self.argument("operation", sa.Text()),
            constant(shape.fragment.database),
            constant(shape.fragment.stored_as),
            self.id,
            self.argument("fingerprint", sa.Text()),
            sa.not_(self.was_live) if shape.is_full else sa.false(),
            latest if shape.kind is WriteKind.DELETE else new["_creation_version"],
            json_object(versions.items()),
            self._fields(new, shape.returning or ()),
            new["_nulls"],
            self.at,
        )
        table = self.namespace_tables.operations
        return insert(table).from_select(list(table.c.keys()), _row(columns).select_from(source))

    def _fields(self, row: Any, names: Iterable[str]) -> Any:
        fields, columns = self.shape.fragment.fields, self.records.columns
        return json_object((n, json_form(fields[n], row[columns[n].name])) for n in names)

    def _result_columns(self) -> list[Any]:
        old, new, shape = self.old.c, self.new.c, self.shape
        versions = [sa.func.coalesce(new[v.name], old[v.name]) for v in self._versions()]
        values = [new[self.records.columns[name].name] for name in shape.returning or ()]
        applied = new["id"].is_not(None)
        head = [
            self.was_live,
            applied,
            old["_refusal"],
            new["_creation_version"],
            new["_nulls"],
            old["_intent"],
        ]
        remembered = [] if self.remembered is None else list(self.remembered.c)
        fence_columns = [old["_fenced"]] if shape.has_token else []
        # Labelled by position: names of fields can equal those of other columns.
        columns = [*head, *remembered, *fence_columns, *versions, *values]
        return [column.label(f"c{i}") for i, column in enumerate(columns)]

    def _versions(self) -> list[sa.Column[Any]]:
        return list(self.records.versions.values())

    def _not_remembered(self) -> list[Any]:
        if self.remembered is None:
            return []
        return [~sa.exists(sa.select(number(1)).select_from(self.remembered))]

    def _old(self) -> sa.CTE:
        records, shape = self.records, self.shape
        base = [
            records.table.c[n] for n in ("id", "_creation_version", "_deleted", "_nulls", "_intent")
        ]
        touched = [records.columns[name] for name in shape.touched]
        conditions = [records.id == self.id, *self._not_remembered()]
        clock = [] if shape.is_full else [sa.func.clock_timestamp().label("_at")]
        columns = [
            *base,
            *self._fence_columns(),
            *self._versions(),
            *touched,
            self._refusal(),
            *clock,
        ]
        return (
            sa.select(*columns, *self._carried_columns())
            .select_from(records.table.join(self._locked_source(), sa.true()))
            .where(*conditions)
            .with_for_update(of=records.table)
            .cte("old")
        )

    def _locked_source(self) -> Any:
        return self.lock

    def _carried_columns(self) -> list[Any]:
        """Return the columns of `_locked_source` that are needed after `old`."""
        return []

    def _fence_columns(self) -> list[Any]:
        """Return whether the record is fenced against the token; null if it has no fences."""
        if not self.shape.has_token:
            return []
        fences, token = self.records.table.c["_fences"], parameter("token", sa.Text())
        return [fences.has_key(token).label("_fenced")]

    def _refusal(self) -> Any:
        """Return the position of the first refused operator and its reason, as one text."""
        tests = [
            (condition, constant(f"{i} {reason}"))
            for i, applied in enumerate(self._apply_operators(self.records.table.c))
            for reason, condition in applied.refusals.items()
        ]
        refusal = sa.case(*tests) if tests else sa.cast(sa.null(), sa.Text())
        return refusal.label("_refusal")

    def _apply_operators(self, row: Any) -> list[Any]:
        fields, columns = self.shape.fragment.fields, self.records.columns
        results = []
        for i, (name, operator) in enumerate(self.shape.operators):
            codec = operator_codec(fields[name], operator)
            argument = None if codec is None else self.argument(f"a{i}", codec.type)
            results.append(apply(fields[name], operator, row[columns[name].name], argument))
        return results

    def _next_version(self, group: str) -> Any:
        """Return the next version of a group: max(previous + 1, clock in us)."""
        previous = self.old.c[self.records.versions[group].name]
        us = sa.cast(sa.extract("epoch", self.at) * number(1_000_000), sa.BigInteger())
        return sa.func.greatest(previous + number(1), us, type_=sa.BigInteger())

    def _lock_conditions(self) -> list[Any]:
        """Return the conditions: the write's intent, or none, and no fence against its token."""
        old, shape = self.old.c, self.shape
        own_intent = old["_intent"] == parameter("intent", sa.Text())
        intent = own_intent if shape.has_intent else old["_intent"].is_(None)
        return [intent, *([old["_fenced"].is_not(sa.true())] if shape.has_token else [])]

    def _release_reservations(self) -> list[Any]:
        """Remove the record's reservations; return a condition that holds after the removal."""
        if not (self.shape.has_intent and self.records.claims):
            return []
        table, reserved = self.records.table, parameter("reserved", ARRAY(sa.Text()))
        removed = (
            sa.delete(table)
            .where(
                table.c["id"] == sa.any_(reserved),
                table.c["_intent"] == parameter("intent", sa.Text()),
            )
            .returning(table.c["id"])
            .cte("released")
        )
        count = sa.select(sa.func.count()).select_from(removed).scalar_subquery()
        return [count >= number(0)]

    def _claims(self) -> dict[str, Any]:
        if self.shape.kind is WriteKind.DELETE:
            return {column.name: sa.null() for column in self.records.claims.values()}
        return {
            self.records.claims[constraint].name: parameter(f"u{i}", sa.Text())
            for i, constraint in enumerate(self.shape.claims)
        }

    def _version_conditions(self) -> list[Any]:
        return [
            self.old.c[self.records.versions[group].name] == self.argument(f"e{i}", sa.BigInteger())
            for i, group in enumerate(self.shape.expect)
        ]

    def _returned_columns(self) -> list[Any]:
        names = dict.fromkeys((*self.shape.touched, *(self.shape.returning or ())))
        base = [self.records.table.c[name] for name in ("id", "_creation_version", "_nulls")]
        return [*base, *self._versions(), *(self.records.columns[name] for name in names)]

    def _update(self) -> Any:
        table, old, shape = self.records.table, self.old.c, self.shape
        conditions = [table.c["id"] == self.id, table.c["id"] == old["id"], self.was_live]
        conditions += [
            *self._lock_conditions(),
            *self._version_conditions(),
            *self.release_conditions,
        ]
        if shape.operators:
            conditions.append(old["_refusal"].is_(None))
        if shape.creation_version:
            conditions.append(
                old["_creation_version"] <= parameter("creation_version", sa.BigInteger())
            )
        values = self._tombstone() if shape.kind is WriteKind.DELETE else self._changed_values()
        values |= self._claims()
        values |= {
            self.records.versions[group].name: self._next_version(group) for group in shape.groups
        }
        if shape.has_intent:
            values |= {"_intent": sa.null(), "_redo": sa.null()}
            values["_joint"] = parameter("intent", sa.Text())
        return (
            sa.update(table).values(values).where(*conditions).returning(*self._returned_columns())
        )

    def _tombstone(self) -> dict[str, Any]:
        nulls: dict[str, Any] = {c.name: sa.null() for c in self.records.columns.values()}
        return nulls | {"_deleted": self.at, "_nulls": sa.cast(constant("{}"), NULLS)}

    def _changed_values(self) -> dict[str, Any]:
        shape, columns = self.shape, self.records.columns
        applied = self._apply_operators(self.old.c)
        return {
            **{columns[name].name: self._value(name) for name in shape.values},
            **{columns[name].name: sa.null() for name in shape.unset},
            **{
                columns[name].name: change.value
                for (name, _), change in zip(shape.operators, applied, strict=True)
            },
            "_nulls": self._nulls_after(),
        }

    def _value(self, name: str) -> Any:
        return self.argument(f"v_{name}", self.records.codecs[name].type)

    def _nulls_after(self) -> Any:
        removing = {name for name, operator in self.shape.operators if operator in REMOVING}
        nulls: Any = self.old.c["_nulls"]
        for name in self.shape.touched:
            if name not in removing:
                nulls = sa.func.array_remove(nulls, constant(name), type_=NULLS)
        if not self.shape.values:
            return nulls
        return nulls.op("||", return_type=NULLS)(self._new_nulls())

    def _new_nulls(self) -> Any:
        """Return the names of null values; each value of an update has a parameter, null or not."""
        names = [sa.case((self._value(n).is_(None), constant(n))) for n in self.shape.values]
        null = sa.cast(sa.null(), sa.Text())
        return sa.func.array_remove(array(names), null, type_=NULLS)

    def _insert(self) -> Any:
        records = self.records
        row = {
            "id": self.id,
            **{v.name: self._next_version(group) for group, v in records.versions.items()},
            "_creation_version": self._creation_version(),
            "_nulls": parameter("nulls", NULLS),
            **{column.name: self._value(name) for name, column in records.columns.items()},
            **self._claims(),
        }
        if self.shape.has_intent:
            row["_joint"] = parameter("intent", sa.Text())
        source = sa.select(*(value.label(f"r{i}") for i, value in enumerate(row.values())))
        source = source.select_from(self.clock.outerjoin(self.old, sa.true()))
        conditions = [*self._lock_conditions(), *self._conditions(), *self._not_remembered()]
        conditions += self.release_conditions
        statement = insert(records.table).from_select(list(row), source.where(*conditions))
        changes = {name: statement.excluded[name] for name in row if name != "id"}
        return statement.on_conflict_do_update(
            index_elements=["id"],
            set_=changes | dict.fromkeys(("_deleted", "_intent", "_redo"), sa.null()),
            where=sa.exists(sa.select(number(1)).select_from(self.old)),
        ).returning(*self._returned_columns())

    def _creation_version(self) -> Any:
        if self.shape.creation_version:
            return parameter("creation_version", sa.BigInteger())
        first = sa.func.greatest(
            *map(self._next_version, self.records.versions), type_=sa.BigInteger()
        )
        return sa.case((self.was_live, self.old.c["_creation_version"]), else_=first)

    def _conditions(self) -> list[Any]:
        if self.shape.kind is WriteKind.CREATE:
            # An absent record has no version to expect.
            return [sa.not_(self.was_live), *([sa.false()] if self.shape.expect else [])]
        present = [self.was_live] if self.shape.require_present or self.shape.expect else []
        return [*present, *self._version_conditions()]


def _row(columns: Iterable[Any]) -> sa.Select[Any]:
    return sa.select(*(column.label(f"o{i}") for i, column in enumerate(columns)))
