"""Replicas without stores that follow one catalogue, and the cost of following it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from sqlalchemy import delete, event, insert, select, text, update

from mediator.base.clock import SystemClock
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.schemas import CatalogueSchemas
from mediator.catalogue.stored_databases import StoredDatabase
from mediator.catalogue.tables import databases, epoch, schema_changes, systems
from mediator.control.follower import Follower
from mediator.control.layout import route_of
from mediator.data_plane.executor import Executor
from mediator.model.guard import NullGuard
from mediator.operations.calls import StoreCalls
from mediator.query.budget import Limits
from mediator.stores.systems import Systems

__all__ = ["Replica", "World", "make_database", "open_world"]

LAYOUT = {
    "version": 1,
    "generation": "1",
    "made_us": 0,
    "left": {},
    "names": {},
    "freed": [],
    "dropped": [],
    "erasing": [],
    "view": None,
    "groups": {"main": {"system": "redis", "fields": ["title"]}},
    "order": ["main"],
}


def make_database(name: str, version: int = 1, *classes: str) -> StoredDatabase:
    """Return a stored database; each class has one field."""
    class_names = classes or ("notes",)
    document = {c: {"fields": {"title": {"type": "string"}}} for c in class_names}
    return StoredDatabase(
        name, f"{name}_1", version, {"classes": document}, dict.fromkeys(class_names, LAYOUT)
    )


class Replica:
    """A replica: its follower, and the executor, which asks the follower for unknown classes."""

    def __init__(self, catalogue: CatalogueSchemas) -> None:
        clock, unused = SystemClock(), None
        calls = StoreCalls(Systems(), NullGuard(), clock)
        none: Any = unused
        self.executor = Executor(calls, none, self._refresh, Limits(), clock, none)
        self.catalogue = catalogue
        self.follower = Follower(catalogue, self.executor, calls)

    @property
    def stored(self) -> list[StoredDatabase]:
        """The databases in force on this replica."""
        assert [d.name for d in self.follower.all()] == sorted(self.executor.model.databases)
        return self.follower.all()

    async def put(self, database: StoredDatabase) -> None:
        """Set a schema as `Schemas` does."""
        route = route_of(database)
        moment, put = await self.catalogue.put(database)
        self.follower.adopt_put(moment, put, route)

    async def remove(self, name: str) -> None:
        """Drop a database as `Schemas` does."""
        stored = self.follower.stored(name)
        if stored is not None:
            self.follower.adopt_removal(await self.catalogue.remove(stored), name)

    async def _refresh(self) -> None:
        await self.follower.look()


class World:
    """A catalogue that replicas follow; counts queries and parsed databases."""

    def __init__(self, catalogue: Catalogue, patched: pytest.MonkeyPatch) -> None:
        self._catalogue = catalogue
        self.schemas = CatalogueSchemas(catalogue)
        self.queries: list[str] = []
        self.parsed: list[str] = []

        def count_parse(stored: StoredDatabase) -> Any:
            self.parsed.append(stored.name)
            return route_of(stored)

        patched.setattr("mediator.control.follower.route_of", count_parse)

    def replica(self) -> Replica:
        """Return a replica that has not read the catalogue yet."""
        return Replica(self.schemas)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count queries and parsed databases from now on."""
        engine = self._catalogue.engine.sync_engine

        def record(_c: object, _k: object, statement: str, *_: object) -> None:
            self.queries.append(statement)

        self.queries.clear()
        self.parsed.clear()
        event.listen(engine, "before_cursor_execute", record)
        try:
            yield
        finally:
            event.remove(engine, "before_cursor_execute", record)

    async def stored(self) -> list[StoredDatabase]:
        """The databases in the catalogue."""
        return list((await self.schemas.snapshot()).databases.values())

    async def put_without_note(self, database: StoredDatabase) -> None:
        """Set a schema without listing the change."""
        async with self.changing(database):
            pass

    async def has_waiter(self) -> bool:
        """Return whether a session waits for a lock in the catalogue."""
        query = text(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        async with self._catalogue.begin() as connection:
            return bool((await connection.execute(query)).scalar_one())

    @asynccontextmanager
    async def changing(self, database: StoredDatabase) -> AsyncIterator[None]:
        """Set a schema at the end of the block, without listing the change."""
        values = {"document": database.document, "layout": database.layout, "id": database.id}
        async with self._catalogue.begin() as connection:
            await connection.execute(update(epoch).values(epoch=epoch.c.epoch + 1))
            await connection.execute(delete(databases).where(databases.c.name == database.name))
            row = insert(databases).values(name=database.name, version=database.version, **values)
            await connection.execute(row)
            yield

    async def backup(self) -> dict[str, list[dict[str, Any]]]:
        """Return the schemas in the catalogue."""
        async with self._catalogue.begin() as connection:
            return {
                table.name: [dict(r) for r in (await connection.execute(select(table))).mappings()]
                for table in (epoch, databases, schema_changes)
            }

    async def restore(self, backup: dict[str, list[dict[str, Any]]]) -> None:
        """Restore a backup."""
        async with self._catalogue.begin() as connection:
            for table in (epoch, databases, schema_changes):
                await connection.execute(delete(table))
                for row in backup[table.name]:
                    await connection.execute(insert(table).values(row))


@asynccontextmanager
async def open_world(url: str) -> AsyncIterator[World]:
    """Open a catalogue for replicas."""
    catalogue = Catalogue(url)
    await catalogue.open()
    async with catalogue.begin() as connection:
        system = {"name": "redis", "position": 1, "registration": {}, "findings": {}}
        await connection.execute(insert(systems).values(system))
    with pytest.MonkeyPatch.context() as patched:
        yield World(catalogue, patched)
    await catalogue.close()
