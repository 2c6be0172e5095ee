"""A write as one statement: conditions, change, outbox and remembered operation in one round trip.

::

    WITH lock AS (SELECT pg_advisory_xact_lock(…)),        -- one writer at a time for a record
         old AS (SELECT … FROM lock … WHERE id = $1 FOR UPDATE),   -- the row as it is, locked
         new AS (UPDATE … FROM old WHERE <conditions on old> RETURNING …),   -- or INSERT, see below
         outbox AS (INSERT INTO _outbox SELECT … FROM old, new),
         remember AS (INSERT INTO _operations SELECT … FROM new)
    SELECT … FROM old LEFT JOIN new                          -- always one row: the outcome

Why this is right under READ COMMITTED, when others write the same row:

- `lock` keeps the outbox in order. Waiting for a row's lock, a transaction may get its id before it
  gets the row (heap_lock_tuple follows the row's updates under its own id), and so write after
  another with a higher id: (xid, seq) would not be the order of versions. An advisory lock needs no
  transaction id, so ids of writers of one record are given in the order in which they write.
- `old` waits for the row's lock and then, if the row was changed meanwhile, tests its condition on
  the newest row and returns that one (EvalPlanQual). From then on nobody else can change it.
- `UPDATE … FROM old` finds the row by the statement's snapshot, which may be older. PostgreSQL then
  goes to the newest row and tests the join again *with the same row of* `old` (rows of a CTE are
  copied, not read again). As conditions and new values are computed from `old` alone, which is the
  newest row and locked, the second test has the same answer.
- A row that was inserted after the snapshot is not seen: `old` is empty, hence MISSING; the write
  is then ordered before that insert, with which it ran concurrently.
- CREATE and REPLACE insert, and on conflict update the row that is there, *provided that* `old` saw
  one. If it did not (a concurrent insert won), neither a row before nor a row after is returned,
  nothing was done, and the caller tries again. If it did, the row is locked, so `old` is what the
  conflicting row still holds.
- An intent (`_intent`, see `Lockable`) and the fences (`_fences`, see `fences`) are in the row, so
  that they are read as conditions are: from the newest row, locked. Setting an
  intent and fencing make a row for a record that is absent.
- What a record claims is in its row, under a unique index: of two that claim the same, one fails,
  which undoes its whole statement. A write under an intent first removes the reservations of its
  record (see `claims`), which claim the same. The count of them makes it wait for that.
- Many writes may be one statement (`multi_row`), each to another record: what is said here holds
  for each row of `given`. `lock` then locks all records in one order, and counts them, so that all
  are locked before the first row is.
- Of two executions of one operation id, both may pass the look into `_operations`; the second then
  fails on its primary key, which undoes its whole statement, and finds the remembered operation
  when it is retried.
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
    """Lock the records of a column of ids, in the order of their keys, and count them."""
    keys = sa.select(_lock_key(records, id_).label("key")).distinct().order_by("key").subquery()
    return sa.select(sa.func.count(sa.func.pg_advisory_xact_lock(keys.c["key"])).label("locked"))


def _lock_key(records: RecordTable, id_: Any) -> Any:
    table = sa.func.hashtextextended(constant(str(records.table.fullname)), number(0))
    return sa.func.hashtextextended(id_, table, type_=sa.BigInteger())


def recall_statement(fragment: Fragment, namespace_tables: NamespaceTables) -> Statement:
    """Find a remembered operation (parameters `operation`, `id`); `recalled` reads it."""
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
    """Builds the parts of one statement, which refer to each other."""

    def __init__(
        self, shape: WriteShape, records: RecordTable, namespace_tables: NamespaceTables
    ) -> None:
        self.shape, self.records, self.namespace_tables = shape, records, namespace_tables
        self.remembered: sa.CTE | None = None
        if shape.remember:
            self.remembered = _remembered(shape.fragment, namespace_tables).cte("remembered")
        self.lock = self._lock().cte("lock")
        self.old = self._old()
        # A clock of its own where there may be no old row to carry it; read behind the lock as
        # well.
        clock = sa.select(sa.func.clock_timestamp().label("_at"))
        self.clock = clock.select_from(self.lock).cte("clock")
        self.at = (self.clock if shape.whole else self.old).c["_at"]
        self.was_live = sa.and_(self.old.c["id"].is_not(None), self.old.c["_deleted"].is_(None))
        self.released = self._released()
        self.new = (self._inserted() if shape.whole else self._updated()).cte("new")

    def build(self) -> sa.Select[Any]:
        """Put the parts together."""
        answer = self._outcome()
        for name, entry in self._entries().items():
            answer = answer.add_cte(entry.cte(name))
        return answer

    def given(self, name: str, type_: Any) -> Any:
        """Return a value that comes with the write."""
        return parameter(name, type_)

    @property
    def id(self) -> Any:
        return self.given("id", sa.Text())

    def _lock(self) -> sa.Select[Any]:
        key = _lock_key(self.records, self.id)
        return sa.select(sa.func.pg_advisory_xact_lock(key).label("locked"))

    def _outcome(self) -> sa.Select[Any]:
        one = sa.select(number(1).label("one")).subquery("one")
        source: Any = one.outerjoin(self.old, sa.true()).outerjoin(self.new, sa.true())
        if self.remembered is not None:
            source = source.outerjoin(self.remembered, sa.true())
        return sa.select(*self._answer()).select_from(source)

    def _written(self) -> Any:
        """Return the rows written, with what they were."""
        if self.shape.whole:
            return self.new.join(self.clock, sa.true()).outerjoin(self.old, sa.true())
        return self.new.join(self.old, sa.true())

    def _entries(self) -> dict[str, Any]:
        source = self._written()
        entries = {"outbox": self._changes(source)} if self.shape.groups else {}
        if self.shape.remember:
            entries["remember"] = self._operation(source)
        return entries

    def _changes(self, source: Any) -> Any:
        """Insert one outbox row for each group written; the change id is `operation:group`."""
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
        if shape.whole:
            before, before_nulls = (sa.case((self.was_live, x)) for x in (before, before_nulls))
        if shape.kind is WriteKind.DELETE:
            after, after_nulls = sa.cast(sa.null(), JSONB), sa.cast(sa.null(), NULLS)
        operation = self.given("operation", sa.Text())
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
        """Insert the operation with its result, so that a retry returns the same."""
        shape, new = self.shape, self.new.c
        versions = {group: new[v.name] for group, v in self.records.versions.items()}
        latest = sa.func.greatest(*versions.values(), type_=sa.BigInteger())
        columns = (
            self.given("operation", sa.Text()),
            constant(shape.fragment.database),
            constant(shape.fragment.stored_as),
            self.id,
            self.given("fingerprint", sa.Text()),
            sa.not_(self.was_live) if shape.whole else sa.false(),
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

    def _answer(self) -> list[Any]:
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
        fenced = [old["_fenced"]] if shape.has_token else []
        # Labelled by position: fields may be named like each other's columns, or like ours.
        columns = [*head, *remembered, *fenced, *versions, *values]
        return [column.label(f"c{i}") for i, column in enumerate(columns)]

    def _versions(self) -> list[sa.Column[Any]]:
        return list(self.records.versions.values())

    def _not_remembered(self) -> list[Any]:
        if self.remembered is None:
            return []
        return [~sa.exists(sa.select(number(1)).select_from(self.remembered))]

    def _old(self) -> sa.CTE:
        records, shape = self.records, self.shape
        own = [
            records.table.c[n] for n in ("id", "_creation_version", "_deleted", "_nulls", "_intent")
        ]
        touched = [records.columns[name] for name in shape.touched]
        conditions = [records.id == self.id, *self._not_remembered()]
        clock = [] if shape.whole else [sa.func.clock_timestamp().label("_at")]
        columns = [*own, *self._fenced(), *self._versions(), *touched, self._refusal(), *clock]
        return (
            sa.select(*columns, *self._carried())
            .select_from(records.table.join(self._incoming(), sa.true()))
            .where(*conditions)
            .with_for_update(of=records.table)
            .cte("old")
        )

    def _incoming(self) -> Any:
        return self.lock

    def _carried(self) -> list[Any]:
        """Return what of `_incoming` is needed behind `old`."""
        return []

    def _fenced(self) -> list[Any]:
        """Whether the record is fenced against the token; null if it has no fences at all."""
        if not self.shape.has_token:
            return []
        fences, token = self.records.table.c["_fences"], parameter("token", sa.Text())
        return [fences.has_key(token).label("_fenced")]

    def _refusal(self) -> Any:
        """Return the position of the first operator that is refused, and why: one text."""
        tests = [
            (condition, constant(f"{i} {reason}"))
            for i, applied in enumerate(self._applied(self.records.table.c))
            for reason, condition in applied.refused.items()
        ]
        refusal = sa.case(*tests) if tests else sa.cast(sa.null(), sa.Text())
        return refusal.label("_refusal")

    def _applied(self, row: Any) -> list[Any]:
        fields, columns = self.shape.fragment.fields, self.records.columns
        applied = []
        for i, (name, operator) in enumerate(self.shape.operators):
            codec = operator_codec(fields[name], operator)
            argument = None if codec is None else self.given(f"a{i}", codec.type)
            applied.append(apply(fields[name], operator, row[columns[name].name], argument))
        return applied

    def _next_version(self, group: str) -> Any:
        """Return the next version of a group: max(previous + 1, clock in us)."""
        previous = self.old.c[self.records.versions[group].name]
        us = sa.cast(sa.extract("epoch", self.at) * number(1_000_000), sa.BigInteger())
        return sa.func.greatest(previous + number(1), us, type_=sa.BigInteger())

    def _admitted(self) -> list[Any]:
        """Require the write's intent, or none, and no fence against its token."""
        old, shape = self.old.c, self.shape
        own_intent = old["_intent"] == parameter("intent", sa.Text())
        intent = own_intent if shape.has_intent else old["_intent"].is_(None)
        return [intent, *([old["_fenced"].is_not(sa.true())] if shape.has_token else [])]

    def _released(self) -> list[Any]:
        """Remove the reservations of the record: a condition that holds once that is done."""
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

    def _expected(self) -> list[Any]:
        return [
            self.old.c[self.records.versions[group].name] == self.given(f"e{i}", sa.BigInteger())
            for i, group in enumerate(self.shape.expect)
        ]

    def _returned(self) -> list[Any]:
        names = dict.fromkeys((*self.shape.touched, *(self.shape.returning or ())))
        own = [self.records.table.c[name] for name in ("id", "_creation_version", "_nulls")]
        return [*own, *self._versions(), *(self.records.columns[name] for name in names)]

    def _updated(self) -> Any:
        table, old, shape = self.records.table, self.old.c, self.shape
        conditions = [table.c["id"] == self.id, table.c["id"] == old["id"], self.was_live]
        conditions += [*self._admitted(), *self._expected(), *self.released]
        if shape.operators:
            conditions.append(old["_refusal"].is_(None))
        if shape.creation_version:
            conditions.append(
                old["_creation_version"] <= parameter("creation_version", sa.BigInteger())
            )
        values = self._tombstone() if shape.kind is WriteKind.DELETE else self._changed()
        values |= self._claims()
        values |= {
            self.records.versions[group].name: self._next_version(group) for group in shape.groups
        }
        if shape.has_intent:
            values |= {"_intent": sa.null(), "_redo": sa.null()}
            values["_joint"] = parameter("intent", sa.Text())
        return sa.update(table).values(values).where(*conditions).returning(*self._returned())

    def _tombstone(self) -> dict[str, Any]:
        nothing: dict[str, Any] = {c.name: sa.null() for c in self.records.columns.values()}
        return nothing | {"_deleted": self.at, "_nulls": sa.cast(constant("{}"), NULLS)}

    def _changed(self) -> dict[str, Any]:
        shape, columns = self.shape, self.records.columns
        applied = self._applied(self.old.c)
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
        return self.given(f"v_{name}", self.records.codecs[name].type)

    def _nulls_after(self) -> Any:
        removing = {name for name, operator in self.shape.operators if operator in REMOVING}
        nulls: Any = self.old.c["_nulls"]
        for name in self.shape.touched:
            if name not in removing:
                nulls = sa.func.array_remove(nulls, constant(name), type_=NULLS)
        if not self.shape.values:
            return nulls
        return nulls.op("||", return_type=NULLS)(self._nulls_given())

    def _nulls_given(self) -> Any:
        """Name the values that are null; each of an update has a parameter, null or not."""
        names = [sa.case((self._value(n).is_(None), constant(n))) for n in self.shape.values]
        null = sa.cast(sa.null(), sa.Text())
        return sa.func.array_remove(array(names), null, type_=NULLS)

    def _inserted(self) -> Any:
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
        conditions = [*self._admitted(), *self._conditions(), *self._not_remembered()]
        conditions += self.released
        statement = insert(records.table).from_select(list(row), source.where(*conditions))
        changes = {name: statement.excluded[name] for name in row if name != "id"}
        return statement.on_conflict_do_update(
            index_elements=["id"],
            set_=changes | dict.fromkeys(("_deleted", "_intent", "_redo"), sa.null()),
            where=sa.exists(sa.select(number(1)).select_from(self.old)),
        ).returning(*self._returned())

    def _creation_version(self) -> Any:
        if self.shape.creation_version:
            return parameter("creation_version", sa.BigInteger())
        first = sa.func.greatest(
            *map(self._next_version, self.records.versions), type_=sa.BigInteger()
        )
        return sa.case((self.was_live, self.old.c["_creation_version"]), else_=first)

    def _conditions(self) -> list[Any]:
        if self.shape.kind is WriteKind.CREATE:
            # A record that is absent has no version that could be expected.
            return [sa.not_(self.was_live), *([sa.false()] if self.shape.expect else [])]
        present = [self.was_live] if self.shape.require_present or self.shape.expect else []
        return [*present, *self._expected()]


def _row(columns: Iterable[Any]) -> sa.Select[Any]:
    return sa.select(*(column.label(f"o{i}") for i, column in enumerate(columns)))
