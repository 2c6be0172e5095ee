"""Schemas and layouts of all databases, the epoch they belong to, and what each epoch has changed.

A reader that knows the databases as of a moment gets what has changed since, if the catalogue knows
all of it: for each epoch from that moment to now there is a note of its change, and the note of the
moment itself names the change that made it. Otherwise it gets all databases. That is so

- if it is too long ago: only the last `epochs.NOTED` changes are noted;
- if code that takes no notes has changed a schema, in a rolling upgrade: its epochs are missing;
- if the catalogue was restored from a backup, or has lost its last changes in a failover: its epoch
  is the lower one, or has been reached by another change by now.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import uuid4

from sqlalchemy import (
    ColumnElement,
    Row,
    Update,
    case,
    cast,
    delete,
    func,
    literal,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB, JSONPATH, insert
from sqlalchemy.ext.asyncio import AsyncConnection

from mediator.base.errors import Conflict, PreconditionFailed
from mediator.catalogue import schema_revisions
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.epochs import (
    NEWEST,
    keep_unchanged,
    moment_of,
    next_moment,
    notes_since,
    tell_all,
)
from mediator.catalogue.schema_revisions import ChangeRecord, FormerVersion, SchemaRevision
from mediator.catalogue.stored_databases import (
    CatalogueSnapshot,
    Difference,
    Hold,
    Moment,
    StoredDatabase,
)
from mediator.catalogue.tables import (
    databases,
    dropped_databases,
    epoch,
    runs,
    transactions,
    violations,
)
from mediator.catalogue.used_systems import check_registered
from mediator.changes.former_owners import owned_until
from mediator.transactions.log import State

__all__ = ["HOLD_S", "CatalogueSchemas", "LayoutChanged"]

HOLD_S: Final = 30.0
"""Seconds after which a hold ends whose holder does not end it."""

ALONE_WITHIN_S: Final = 20.0
"""How long a replica waits for others that prepare stores for the same database."""

_CLEARED_FOR: Final = timedelta(hours=1)
"""For how long what is left of a dropped database is cleared again: by then no replica is left that
could still write something under its id."""

UNKNOWN: Final = ChangeRecord()
"""The record of a change of which no more is known than the schema that it led to."""

_NOT_HELD: Final = {"hold": None, "held": None, "held_until": None}

_PUT: Final = ("version", "document", "layout", "overrides", "owned_until")

_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)


class LayoutChanged(Conflict):
    """A task of a replica has changed a layout since it was read, and nobody the schema."""


class CatalogueSchemas:
    """Every change locks the row of the epoch, so changes are serial."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    async def moment(self) -> Moment:
        """Return the newest moment, by one small query that waits for no lock."""
        return moment_of(await self._catalogue.execute(NEWEST))

    async def snapshot(self) -> CatalogueSnapshot:
        async with self._catalogue.begin() as connection:
            await keep_unchanged(connection)
            return await _snapshot(connection)

    async def since(self, known: Moment) -> CatalogueSnapshot | Difference:
        """Read what has changed since a moment; everything, if that is not known."""
        async with self._catalogue.begin() as connection:
            at = await keep_unchanged(connection)
            noted = await notes_since(connection, known.epoch)
            if not tell_all(noted, known, at):
                return await _snapshot(connection)
            names = sorted({note.database for note in noted[1:]})
            found = await _read(connection, names) if names else {}
        return Difference(Moment(at, noted[-1].change), {name: found.get(name) for name in names})

    async def hold(
        self, database: StoredDatabase, classes: Collection[str]
    ) -> tuple[Moment, StoredDatabase]:
        """Hold the writes to classes; return the new moment, and the database as it is then.

        The hold ends when the database is put or removed under it, when it is released, or after
        `HOLD_S`, by any replica.

        Raises:
            PreconditionFailed: The schema was changed meanwhile.
            Conflict: Another replica holds writes to the database.
            LayoutChanged: Its layout was changed meanwhile.
        """
        hold = Hold(uuid4().hex, tuple(sorted(classes)))
        until = func.now() + timedelta(seconds=HOLD_S)
        values = {"hold": hold.id, "held": list(hold.classes), "held_until": until}
        async with self._catalogue.begin() as connection:
            new = await next_moment(connection, database.name)
            free = replace(database, hold=None)
            row = await _check(connection, free, database.version, database)
            assert row is not None
            changed = update(databases).where(databases.c.name == database.name)
            await connection.execute(changed.values(**values))
        return new, replace(_database(row), hold=hold)

    async def release(self, hold: Hold) -> None:
        await self._release(databases.c.hold == hold.id)

    async def release_overdue(self) -> None:
        await self._release(databases.c.held_until < func.now())

    async def _release(self, which: ColumnElement[bool]) -> None:
        async with self._catalogue.begin() as connection:
            released = update(databases).where(which).values(**_NOT_HELD)
            # Every change locks the epoch first, then databases: another order could deadlock.
            await connection.execute(select(epoch.c.epoch).with_for_update())
            names = await connection.execute(released.returning(databases.c.name))
            for name in names.scalars().all():
                await next_moment(connection, name)

    @asynccontextmanager
    async def alone(
        self, database: StoredDatabase, version: int, former: StoredDatabase | None
    ) -> AsyncIterator[None]:
        """Keep other replicas from preparing stores for a database while the block runs.

        To prepare them for one change takes away what they have for another one that is not in
        force yet; so none may do it whose change will be refused.

        Raises:
            MediatorError: What follows this version and this layout would be refused, as by `put`.
            Conflict: Another replica is at it all the time.
        """
        lock = self._catalogue.locked(f"schema of {database.name}", ALONE_WITHIN_S)
        async with lock as connection:
            await _check(connection, database, version, former)
            yield

    async def put(
        self,
        database: StoredDatabase,
        change: ChangeRecord = UNKNOWN,
        former: StoredDatabase | None = None,
        history: schema_revisions.SchemaHistory | None = None,
    ) -> tuple[Moment, StoredDatabase]:
        """Store a schema whose version follows the stored one; return the moment and the database.

        Its `hold`, if it has one, must be in force, and ends. The record of the change is kept with
        its revision. `former` is what it was made of; with a `history` it must not exist yet.

        Raises:
            PreconditionFailed: The schema was changed meanwhile, or the database was dropped and
                created again.
            Conflict: The hold has ended before, another replica holds writes to the database, or a
                system that it did not use before is not registered any more.
            LayoutChanged: The layout is another than that of `former`.
        """
        async with self._catalogue.begin() as connection:
            if history is not None:  # first: all others wait for the epoch
                await schema_revisions.keep_all(connection, database.id, history)
            new = await next_moment(connection, database.name)
            seen = 0 if history else database.version - 1
            before = await _check(connection, database, seen, former)
            await check_registered(connection, before.layout if before else {}, database.layout)
            retired = (before or database).retired_before
            until = _owned_until(before, database)
            put = replace(database, hold=None, owned_until=until, retired_before=retired)
            values = {**_NOT_HELD, **{name: getattr(put, name) for name in _PUT}}
            key = {"name": put.name, "id": put.id, "retired_before": put.retired_before}
            inserted = insert(databases).values(**key, **values)
            row = inserted.on_conflict_do_update(index_elements=["name"], set_=values)
            await connection.execute(row)
            if history is None:
                await schema_revisions.keep(connection, put, change)
        return new, put

    async def put_layout(
        self, database: StoredDatabase, former: StoredDatabase
    ) -> tuple[Moment, StoredDatabase]:
        """Store a layout under the schema as it is, in place of the `former` one; raises as `put`.

        As there, its `hold` ends.
        """
        async with self._catalogue.begin() as connection:
            new = await next_moment(connection, database.name)
            await _check(connection, database, database.version, former)
            changed = update(databases).where(databases.c.name == database.name)
            await connection.execute(changed.values(layout=database.layout, **_NOT_HELD))
        return new, replace(database, hold=None)

    async def retire(self, database: StoredDatabase, before: int) -> tuple[Moment, StoredDatabase]:
        """Let no client pin a version before this one from now on; raises as `put`."""
        async with self._catalogue.begin() as connection:
            new = await next_moment(connection, database.name)
            await _check(connection, database, database.version, database)
            changed = update(databases).where(databases.c.name == database.name)
            await connection.execute(changed.values(retired_before=before))
        return new, replace(database, retired_before=before)

    async def revisions(
        self, database_id: str, before: int | None, limit: int
    ) -> Sequence[SchemaRevision]:
        """Return up to `limit` revisions, the newest first, of those before a version."""
        async with self._catalogue.begin() as connection:
            return await schema_revisions.newest(connection, database_id, before, limit)

    async def revision(
        self, database_id: str, version: int
    ) -> tuple[SchemaRevision, dict[str, Any]] | None:
        """Return one revision and its schema; None: it is not kept."""
        async with self._catalogue.begin() as connection:
            return await schema_revisions.read(connection, database_id, version)

    async def former(self, database_id: str, version: int, present: int) -> FormerVersion | None:
        """Return a version and the changes up to the `present` one; None: not all is kept."""
        async with self._catalogue.begin() as connection:
            return await schema_revisions.former(connection, database_id, version, present)

    async def remove(self, database: StoredDatabase) -> Moment:
        """Forget a database with all that the catalogue keeps of it; return the new moment.

        `dropped` lists it for what is left elsewhere. Raises as `put`.
        """
        name, id_ = database.name, database.id
        kept = {"document": database.document, "layout": database.layout}
        async with self._catalogue.begin() as connection:
            new = await next_moment(connection, name)
            await _check(connection, database, database.version)
            await connection.execute(delete(databases).where(databases.c.id == id_))
            dropped = insert(dropped_databases).values(id=id_, name=name, **kept)
            await connection.execute(dropped.on_conflict_do_nothing())
            # Not deleted: the removal of old runs removes their results as well.
            await connection.execute(_ended_runs(id_))
            for table in (transactions, violations):
                await connection.execute(delete(table).where(table.c.database == name))
        return new

    async def dropped(self) -> list[StoredDatabase]:
        """Return databases that were dropped lately, as they were."""
        present = select(databases.c.id)
        # In a restored catalogue, one may exist again.
        gone = select(dropped_databases).where(dropped_databases.c.id.not_in(present))
        rows = await self._catalogue.execute(gone)
        return [StoredDatabase(r.name, r.id, 0, r.document, r.layout) for r in rows]

    async def forget_dropped(self, id_: str) -> None:
        """Forget a database that has been cleared, once no replica can write to it any more."""
        late = dropped_databases.c.at < func.now() - _CLEARED_FOR
        cleared = delete(dropped_databases).where(dropped_databases.c.id == id_, late)
        await self._catalogue.execute(cleared)

    async def are_written(self, database: str, classes: Collection[str]) -> bool:
        named = func.jsonb_path_exists(
            transactions.c.records,
            cast("$[*][0] ? (@ == $classes[*])", JSONPATH),
            literal({"classes": sorted(classes)}, JSONB),
        )
        open_ = select(transactions.c.intent).where(
            transactions.c.database == database,
            transactions.c.state.in_((State.PREPARING, State.STAGED, State.COMMITTED)),
            named,
        )
        return bool((await self._catalogue.execute(select(open_.exists()))).scalar())


async def _snapshot(connection: AsyncConnection) -> CatalogueSnapshot:
    moment = moment_of(await connection.execute(NEWEST))
    return CatalogueSnapshot(moment, await _read(connection))


async def _read(
    connection: AsyncConnection, names: Collection[str] | None = None
) -> dict[str, StoredDatabase]:
    wanted = select(databases).order_by(databases.c.name)
    if names is not None:
        wanted = wanted.where(databases.c.name.in_(names))
    found = [_database(row) for row in await connection.execute(wanted)]
    return {database.name: database for database in found}


def _database(row: Row[Any]) -> StoredDatabase:
    hold = Hold(row.hold, tuple(row.held)) if row.hold else None
    return StoredDatabase(
        row.name,
        row.id,
        row.version,
        row.document,
        row.layout,
        hold,
        row.owned_until,
        row.overrides,
        row.retired_before,
    )


def _owned_until(before: Row[Any] | None, database: StoredDatabase) -> dict[str, str]:
    if before is None:
        return {}
    return owned_until(before.owned_until, before.document, database.document, before.now)


async def _check(
    connection: AsyncConnection,
    database: StoredDatabase,
    version: int,
    former: StoredDatabase | None = None,
) -> Row[Any] | None:
    """Return a database's row and the time; refuse one that has changed, or that others hold."""
    live = (databases.c.held_until > func.now()).label("live")
    now = func.clock_timestamp().label("now")  # the transaction may have waited for the epoch
    found = select(databases, live, now).where(databases.c.name == database.name)
    row = (await connection.execute(found)).first()
    if (row.id, row.version) != (database.id, version) if row else version:
        raise PreconditionFailed(f"The schema of {database.name} was changed meanwhile.")
    # First: a change of the layout has ended the hold under which it was made, which the replica
    # that plans anew may still know.
    if former is not None and row is not None and row.layout != former.layout:
        raise LayoutChanged(f"The layout of {database.name} was changed meanwhile; try again.")
    if database.hold is not None and (row is None or row.hold != database.hold.id):
        raise Conflict(f"To place {database.name} anew took too long; try again.")
    if database.hold is None and row is not None and row.live:
        raise Conflict(f"Somebody else is placing {database.name} anew; try again.")
    return row


def _ended_runs(database_id: str) -> Update:
    """Return the update that ends the runs of a database, long enough ago to be removed."""
    ended = case((runs.c.ended.is_(None), "cancelled"), else_=runs.c.state)
    past = {"state": ended, "ended": _LONG_AGO, "leased_until": None}
    return update(runs).where(runs.c.database_id == database_id).values(**past)
