"""Schemas and layouts of all databases, their epoch, and the change of each epoch.

A reader that knows the databases as of a moment gets the changes since, if the catalogue has all of
them: a note for each epoch from that moment to now, where the note of the moment names the change
that led to it. Otherwise it gets all databases. That is the case

- if it is too long ago: only the last `epochs.MAX_NOTES` changes are noted;
- if code that takes no notes has changed a schema, in a rolling upgrade: its epochs are missing;
- if the catalogue was restored from a backup, or has lost its last changes in a failover: its epoch
  is lower, or another change has reached it by now.
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
    is_complete,
    lock_epoch,
    moment_of,
    next_moment,
    notes_since,
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
"""Seconds after which a hold expires that its holder does not end."""

PREPARATION_WAIT_S: Final = 20.0
"""Seconds for which a replica waits for others that prepare stores for the same database."""

_CLEARING_PERIOD: Final = timedelta(hours=1)
"""For how long the remains of a dropped database are cleared repeatedly: after that, no replica
can write under its id."""

UNKNOWN: Final = ChangeRecord()
"""The record of a change of which only the resulting schema is known."""

_NO_HOLD: Final = {"hold": None, "held": None, "held_until": None}

_PUT_COLUMNS: Final = ("version", "document", "layout", "overrides", "owned_until")

_LONG_PAST: Final = datetime(1970, 1, 1, tzinfo=UTC)


class LayoutChanged(Conflict):
    """A replica's task has changed a layout since it was read; the schema is unchanged."""


class CatalogueSchemas:
    """Every change locks the row of the epoch, so changes are serial."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    async def moment(self) -> Moment:
        """Return the newest moment, by one small query that waits for no lock."""
        return moment_of(await self._catalogue.execute(NEWEST))

    async def snapshot(self) -> CatalogueSnapshot:
        async with self._catalogue.begin() as connection:
            await lock_epoch(connection)
            return await _snapshot(connection)

    async def since(self, former: Moment) -> CatalogueSnapshot | Difference:
        """Read the changes since a moment; all databases, if they are not known."""
        async with self._catalogue.begin() as connection:
            at = await lock_epoch(connection)
            notes = await notes_since(connection, former.epoch)
            if not is_complete(notes, former, at):
                return await _snapshot(connection)
            names = sorted({note.database for note in notes[1:]})
            stored = await _read(connection, names) if names else {}
        return Difference(Moment(at, notes[-1].change), {name: stored.get(name) for name in names})

    async def hold(
        self, database: StoredDatabase, classes: Collection[str]
    ) -> tuple[Moment, StoredDatabase]:
        """Hold the writes to classes; return the new moment, and the database at that moment.

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
            unheld = replace(database, hold=None)
            row = await _check(connection, unheld, database.version, database)
            assert row is not None
            change = update(databases).where(databases.c.name == database.name)
            await connection.execute(change.values(**values))
        return new, replace(_database(row), hold=hold)

    async def release(self, hold: Hold) -> None:
        await self._release(databases.c.hold == hold.id)

    async def release_overdue(self) -> None:
        await self._release(databases.c.held_until < func.now())

    async def _release(self, condition: ColumnElement[bool]) -> None:
        async with self._catalogue.begin() as connection:
            release = update(databases).where(condition).values(**_NO_HOLD)
            # Every change locks the epoch first, then databases: another order could deadlock.
            await connection.execute(select(epoch.c.epoch).with_for_update())
            names = await connection.execute(release.returning(databases.c.name))
            for name in names.scalars().all():
                await next_moment(connection, name)

    @asynccontextmanager
    async def exclusive(
        self, database: StoredDatabase, version: int, former: StoredDatabase | None
    ) -> AsyncIterator[None]:
        """Keep other replicas from preparing stores for a database while the block runs.

        Preparing them for one change removes preparations for another that is not in force yet; so
        a replica whose change will be refused must not do it.

        Raises:
            MediatorError: A change of this version and this layout would be refused, as by `put`.
            Conflict: Other replicas keep preparing them.
        """
        lock = self._catalogue.locked(f"schema of {database.name}", PREPARATION_WAIT_S)
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

        Its `hold`, if it has one, must be in force, and ends. The record of the change is stored
        with its revision. `former` is the database it was made from; with a `history` it must not
        exist yet.

        Raises:
            PreconditionFailed: The schema was changed meanwhile, or the database was dropped and
                created again.
            Conflict: The hold has ended before, another replica holds writes to the database, or a
                system that it did not use before is no longer registered.
            LayoutChanged: The layout differs from that of `former`.
        """
        async with self._catalogue.begin() as connection:
            if history is not None:  # first: all other changes wait for the epoch
                await schema_revisions.store_history(connection, database.id, history)
            new = await next_moment(connection, database.name)
            seen_version = 0 if history else database.version - 1
            before = await _check(connection, database, seen_version, former)
            await check_registered(connection, before.layout if before else {}, database.layout)
            retired = (before or database).retired_before
            owners_until = _owned_until(before, database)
            stored = replace(database, hold=None, owned_until=owners_until, retired_before=retired)
            values = {**_NO_HOLD, **{name: getattr(stored, name) for name in _PUT_COLUMNS}}
            key = {"name": stored.name, "id": stored.id, "retired_before": stored.retired_before}
            insertion = insert(databases).values(**key, **values)
            row = insertion.on_conflict_do_update(index_elements=["name"], set_=values)
            await connection.execute(row)
            if history is None:
                await schema_revisions.store(connection, stored, change)
        return new, stored

    async def put_layout(
        self, database: StoredDatabase, former: StoredDatabase
    ) -> tuple[Moment, StoredDatabase]:
        """Store a layout under the present schema, in place of the `former` one; raises as `put`.

        As there, its `hold` ends.
        """
        async with self._catalogue.begin() as connection:
            new = await next_moment(connection, database.name)
            await _check(connection, database, database.version, former)
            change = update(databases).where(databases.c.name == database.name)
            await connection.execute(change.values(layout=database.layout, **_NO_HOLD))
        return new, replace(database, hold=None)

    async def retire(self, database: StoredDatabase, before: int) -> tuple[Moment, StoredDatabase]:
        """Stop clients from pinning versions below this one; raises as `put`."""
        async with self._catalogue.begin() as connection:
            new = await next_moment(connection, database.name)
            await _check(connection, database, database.version, database)
            change = update(databases).where(databases.c.name == database.name)
            await connection.execute(change.values(retired_before=before))
        return new, replace(database, retired_before=before)

    async def revisions(
        self, database_id: str, before: int | None, limit: int
    ) -> Sequence[SchemaRevision]:
        """Return up to `limit` revisions before a version, newest first."""
        async with self._catalogue.begin() as connection:
            return await schema_revisions.newest(connection, database_id, before, limit)

    async def revision(
        self, database_id: str, version: int
    ) -> tuple[SchemaRevision, dict[str, Any]] | None:
        """Return one revision and its schema; None: it is not stored."""
        async with self._catalogue.begin() as connection:
            return await schema_revisions.read(connection, database_id, version)

    async def former(self, database_id: str, version: int, present: int) -> FormerVersion | None:
        """Return a version and the changes up to `present`; None: some are not stored."""
        async with self._catalogue.begin() as connection:
            return await schema_revisions.former(connection, database_id, version, present)

    async def remove(self, database: StoredDatabase) -> Moment:
        """Remove a database from the catalogue; return the new moment.

        `dropped` lists it, for the removal of its data elsewhere. Raises as `put`.
        """
        name, id_ = database.name, database.id
        state = {"document": database.document, "layout": database.layout}
        async with self._catalogue.begin() as connection:
            new = await next_moment(connection, name)
            await _check(connection, database, database.version)
            await connection.execute(delete(databases).where(databases.c.id == id_))
            note = insert(dropped_databases).values(id=id_, name=name, **state)
            await connection.execute(note.on_conflict_do_nothing())
            # Not deleted: the removal of old runs removes their results as well.
            await connection.execute(_ended_runs(id_))
            for table in (transactions, violations):
                await connection.execute(delete(table).where(table.c.database == name))
        return new

    async def dropped(self) -> list[StoredDatabase]:
        """Return recently dropped databases, as they were."""
        present = select(databases.c.id)
        # In a restored catalogue, one may exist again.
        query = select(dropped_databases).where(dropped_databases.c.id.not_in(present))
        rows = await self._catalogue.execute(query)
        return [StoredDatabase(r.name, r.id, 0, r.document, r.layout) for r in rows]

    async def forget_dropped(self, id_: str) -> None:
        """Forget a cleared database, once no replica can write to it any more."""
        is_late = dropped_databases.c.at < func.now() - _CLEARING_PERIOD
        deletion = delete(dropped_databases).where(dropped_databases.c.id == id_, is_late)
        await self._catalogue.execute(deletion)

    async def are_written(self, database: str, classes: Collection[str]) -> bool:
        touches_classes = func.jsonb_path_exists(
            transactions.c.records,
            cast("$[*][0] ? (@ == $classes[*])", JSONPATH),
            literal({"classes": sorted(classes)}, JSONB),
        )
        open_entries = select(transactions.c.intent).where(
            transactions.c.database == database,
            transactions.c.state.in_((State.PREPARING, State.STAGED, State.COMMITTED)),
            touches_classes,
        )
        return bool((await self._catalogue.execute(select(open_entries.exists()))).scalar())


async def _snapshot(connection: AsyncConnection) -> CatalogueSnapshot:
    moment = moment_of(await connection.execute(NEWEST))
    return CatalogueSnapshot(moment, await _read(connection))


async def _read(
    connection: AsyncConnection, names: Collection[str] | None = None
) -> dict[str, StoredDatabase]:
    query = select(databases).order_by(databases.c.name)
    if names is not None:
        query = query.where(databases.c.name.in_(names))
    rows = [_database(row) for row in await connection.execute(query)]
    return {database.name: database for database in rows}


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
    query = select(databases, live, now).where(databases.c.name == database.name)
    row = (await connection.execute(query)).first()
    if (row.id, row.version) != (database.id, version) if row else version:
        raise PreconditionFailed(f"The schema of {database.name} was changed meanwhile.")
    # First: a change of the layout has ended its hold, which a replica that plans again may still
    # have.
    if former is not None and row is not None and row.layout != former.layout:
        raise LayoutChanged(f"The layout of {database.name} was changed meanwhile; try again.")
    if database.hold is not None and (row is None or row.hold != database.hold.id):
        raise Conflict(f"Placing {database.name} elsewhere took too long; try again.")
    if database.hold is None and row is not None and row.live:
        raise Conflict(f"Another change is placing {database.name} elsewhere; try again.")
    return row


def _ended_runs(database_id: str) -> Update:
    """Return the update that ends the runs of a database, long enough ago to be removed."""
    state = case((runs.c.ended.is_(None), "cancelled"), else_=runs.c.state)
    values = {"state": state, "ended": _LONG_PAST, "leased_until": None}
    return update(runs).where(runs.c.database_id == database_id).values(**values)
