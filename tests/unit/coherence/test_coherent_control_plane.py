"""The coherent control plane: its calls of the sketch when schemas change."""

from __future__ import annotations

from typing import Any

import pytest

from app.coherence.control_plane import CoherentControlPlane
from mediator.base.errors import Conflict, Unavailable
from mediator.catalogue.schema_revisions import Author
from mediator.control.port import (
    CAREFUL,
    AfterChange,
    BeforeChange,
    ChangeOptions,
    SchemaChange,
)
from sketch.protocol.port import Partition

OPTIONS = ChangeOptions(unchecked=True, backfill=True)
AUTHOR = Author("acme", "ann")


class World:
    """A control plane, a sketch, a guard and a catalogue, which record their calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []
        self.schemas: dict[str, list[str]] = {"news": ["articles", "authors"]}
        self.proposals: dict[str, str] = {}
        self.refused = False
        self.sketch_is_away = False
        world: Any = self
        self.control = CoherentControlPlane(world, world, world, self.propose)

    async def databases(self) -> list[dict[str, Any]]:
        return [{"name": name, "classes": classes} for name, classes in self.schemas.items()]

    async def set_schema(
        self,
        database: str,
        document: Any,
        *,
        dry_run: bool = False,
        version: int | None = None,
        before: BeforeChange | None = None,
        after: AfterChange | None = None,
        options: ChangeOptions = CAREFUL,
        author: Author | None = None,
    ) -> SchemaChange:
        assert (version, options) == (7, OPTIONS)
        assert author == (None if dry_run else AUTHOR)
        if self.refused:
            raise Conflict("It would move data.")
        if not dry_run:
            if before is not None:
                await before(document["classes"])
            self.calls.append(("set", database))
            self.schemas[database] = list(document["classes"])
            if after is not None:
                await after(document["classes"])
            self.calls.append(("checked", database))
        return SchemaChange(database, 8, 1, document, {})

    async def delete_schema(
        self, database: str, *, dry_run: bool = False, version: int | None = None
    ) -> dict[str, Any]:
        if not dry_run:
            del self.schemas[database]
        return {"deleted": 1}

    async def systems(self) -> list[dict[str, Any]]:
        return [{"name": "redis"}]

    async def propose(self, name: str, proposal: str) -> str:
        return self.proposals.setdefault(name, proposal)

    async def create(self, partition: Partition) -> None:
        self.note("create", partition.class_name)

    async def adopt_layout(self, _database: str, class_name: str) -> None:
        self.note("adopt", class_name)

    async def invalidate_results(self, _database: str, class_name: str) -> None:
        self.note("results", class_name)

    async def invalidate_class(self, _database: str, class_name: str) -> None:
        self.note("invalidate", class_name)

    def note(self, *call: str) -> None:
        if self.sketch_is_away:
            raise Unavailable("The cache sketch does not answer.", system="sketch")
        self.calls.append(call)


@pytest.fixture
def world() -> World:
    return World()


async def test_classes_are_created_before_and_invalidated_after_a_change(
    world: World,
) -> None:
    change = await world.control.set_schema(
        "news",
        {"classes": {"articles": {}, "notes": {}}},
        version=7,
        options=OPTIONS,
        author=AUTHOR,
    )
    assert change.version == 8
    assert sorted(world.calls[:2]) == [("create", "articles"), ("create", "notes")]
    assert world.calls[2:] == [
        ("set", "news"),
        ("invalidate", "authors"),
        ("adopt", "articles"),
        ("results", "articles"),
        ("adopt", "notes"),
        ("results", "notes"),
        ("checked", "news"),
    ]


async def test_a_class_is_created_by_one_replica_only(world: World) -> None:
    world.proposals["sketch:news/articles"] = "of another replica"
    for _ in range(2):
        await world.control.set_schema(
            "news", {"classes": {"articles": {}}}, version=7, options=OPTIONS, author=AUTHOR
        )
    assert ("create", "articles") not in world.calls


async def test_a_refused_change_or_a_dry_run_changes_nothing(world: World) -> None:
    await world.control.set_schema(
        "news", {"classes": {"notes": {}}}, version=7, options=OPTIONS, author=AUTHOR, dry_run=True
    )
    await world.control.delete_schema("news", dry_run=True)
    world.refused = True
    with pytest.raises(Conflict):
        await world.control.set_schema(
            "news", {"classes": {"notes": {}}}, version=7, options=OPTIONS, author=AUTHOR
        )
    assert world.calls == []


async def test_the_classes_of_a_dropped_database_are_invalidated(world: World) -> None:
    assert await world.control.delete_schema("news") == {"deleted": 1}
    assert sorted(world.calls) == [("invalidate", "articles"), ("invalidate", "authors")]


async def test_a_schema_is_set_while_the_sketch_is_away(world: World) -> None:
    world.sketch_is_away = True
    await world.control.set_schema(
        "news", {"classes": {"notes": {}}}, version=7, options=OPTIONS, author=AUTHOR
    )
    assert world.calls == [("set", "news"), ("checked", "news")]
    await world.control.delete_schema("news")


async def test_the_hook_of_the_caller_runs_before_the_change(world: World) -> None:
    names: list[str] = []

    async def before(classes: Any) -> None:
        names.extend(classes)

    await world.control.set_schema(
        "news", {"classes": {"notes": {}}}, version=7, options=OPTIONS, author=AUTHOR, before=before
    )
    assert names == ["notes"]


async def test_other_calls_are_delegated(world: World) -> None:
    assert await world.control.systems() == [{"name": "redis"}]
