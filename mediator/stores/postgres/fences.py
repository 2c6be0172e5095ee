"""Fences: a record that takes no more writes of a token, however late they come (`Store.fence`).

A write with a token passes the record's gate by a function, which waits for the advisory lock and
*then* looks for a fence. A statement cannot do both by itself under READ COMMITTED: it sees by a
snapshot that is taken before it waits. W is the write, F the fence:

- W waits for the lock while F holds it. A look by W's own snapshot, which is older than F's commit,
  finds no fence, and W takes effect after F has said that it does not. The function is VOLATILE,
  so each query in it has a snapshot of its own, and its second query begins when the lock is there:
  F has been committed before its lock went away, so W sees the fence.
- F waits while W holds the lock: until W has been committed, or undone. F reads the versions in a
  statement of its own after that of the lock, so what W did is among them.
- W is still on its way, or in a socket's buffer: when it comes, it sees the fence.
- W's session is frozen in the middle of its statement: F waits until its deadline, and has said
  nothing then.
"""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa

from mediator.stores.port import Fragment
from mediator.stores.postgres.pool import transaction
from mediator.stores.postgres.statements import DIALECT, Statement, constant, parameter
from mediator.stores.postgres.tables import Ledgers, RecordTable

__all__ = ["fence", "gate_function", "passed", "versions_statement"]

_GATE: Final = "_gate"

_FUNCTION: Final = """
CREATE OR REPLACE FUNCTION {gate} (
    key bigint, told text, in_database text, in_class text, in_object text
) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(key);
    RETURN EXISTS (
        SELECT FROM {fences} WHERE token = told
        AND database = in_database AND class = in_class AND object = in_object
    );
END $$
"""

_FENCE: Final = """
INSERT INTO {fences} (token, database, class, object) VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING
"""


def gate_function(ledgers: Ledgers) -> str:
    """Return the statement that makes the function."""
    return _FUNCTION.format(gate=_named(ledgers, _GATE), fences=_fences(ledgers))


def passed(ledgers: Ledgers, records: RecordTable, id_: Any, key: Any) -> sa.ColumnElement[bool]:
    """Pass a record's gate with the statement's token; whether it was fenced before."""
    fragment = records.fragment
    gate: Any = getattr(sa.func, str(ledgers.fences.schema))
    return getattr(gate, _GATE)(  # type: ignore[no-any-return]
        key,
        parameter("token", sa.Text()),
        constant(fragment.database),
        constant(fragment.class_name),
        id_,
        type_=sa.Boolean(),
    )


def versions_statement(records: RecordTable) -> Statement:
    """Build the statement that reads the versions of a record or tombstone (parameter `id`)."""
    id_ = parameter("id", sa.Text())
    return Statement(sa.select(*records.versions.values()).where(records.id == id_))


async def fence(
    connection: Any,
    ledgers: Ledgers,
    statements: tuple[Statement, Statement],
    place: tuple[Fragment, str],
    token: str,
) -> list[Any]:
    """Fence a record; returns the row of its versions, if there is one.

    Args:
        connection: A connection.
        ledgers: The tables of ours.
        statements: What passes the gates of records, and what reads versions.
        place: The record: its fragment and id.
        token: The token.
    """
    lock, versions = statements
    fragment, id_ = place
    async with transaction(connection):
        await connection.fetch(lock.text, *lock.arguments({"ids": [id_]}))
        names = (token, fragment.database, fragment.class_name, id_)
        await connection.execute(_FENCE.format(fences=_fences(ledgers)), *names)
        rows: list[Any] = await connection.fetch(versions.text, *versions.arguments({"id": id_}))
    return rows


def _fences(ledgers: Ledgers) -> str:
    return _named(ledgers, ledgers.fences.name)


def _named(ledgers: Ledgers, name: str) -> str:
    quote = DIALECT.identifier_preparer.quote_identifier
    return f"{quote(str(ledgers.fences.schema))}.{quote(name)}"
