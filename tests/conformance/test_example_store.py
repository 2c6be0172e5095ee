"""The worked example of a store passes the suite, and documents itself correctly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest

from app.settings.main import SystemSettings
from examples.sqlite_store import SqliteStore
from examples.stored_record import StoredRecord, apply_write
from mediator.model.operators import Operator, OperatorCall
from mediator.stores import kinds
from mediator.stores.conformance import CHECKS, CheckStatus, run, run_check
from mediator.stores.conformance.samples import counter
from mediator.stores.conformance.scratch import fragment_of
from mediator.stores.kinds import make_store, store_kinds
from mediator.stores.port import (
    Read,
    Status,
    StoreUnavailable,
    SystemConfig,
    Write,
    WriteKind,
)
from mediator.stores.probe import probe

LITE = {"name": "lite", "kind": "sqlite", "url": "sqlite://"}
NOT_OFFERED = {
    "aggregates",
    "indexes",
    "path_indexes",
    "lifecycle",
    "intents",
    "mirror",
    "queries",
    "query_orders",
    "reservations",
    "unique",
}
FRAGMENT = fragment_of("sqlite", "articles", [counter()])


@pytest.fixture(params=["memory", "file"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SqliteStore]:
    path = "" if request.param == "memory" else f"/{tmp_path}/records.db"
    store = SqliteStore(SystemConfig("sqlite", "sqlite", f"sqlite://{path}"))
    await store.open()
    yield store
    await store.close()


async def test_the_example_conforms(store: SqliteStore) -> None:
    report = await run(store)
    assert report.conforms, [(f.check.name, f.detail) for f in report.having(CheckStatus.FAILED)]
    # Checks that are not offered belong to optional protocols that its page excludes.
    themes = {f.check.name.partition(".")[0] for f in report.having(CheckStatus.NOT_OFFERED)}
    assert themes == NOT_OFFERED, sorted(themes)


@pytest.mark.parametrize("store", ["memory"], indirect=True)
async def test_its_proven_capabilities_are_as_documented(store: SqliteStore) -> None:
    """The probe runs checks of the suite, which a file passes as memory does."""
    states = {c.value: v.state for c, v in (await probe(store)).capabilities.items()}
    assert states["conditional_updates"] == states["atomic_updates"] == "proven"
    assert states["sorting"] == "refuted"


async def test_two_processes_lose_no_update(tmp_path: Path) -> None:
    config = SystemConfig("sqlite", "sqlite", f"sqlite:///{tmp_path}/shared.db", deadline_s=30)
    writers = [SqliteStore(config), SqliteStore(config)]
    for writer in writers:
        await writer.open()
    create = Write(FRAGMENT, "x", WriteKind.REPLACE, "0", ("main",), {"n": 0})
    await writers[0].write([create])

    async def add(writer: SqliteStore, name: str) -> None:
        call = OperatorCall("n", Operator.INC, 1)
        for step in range(20):
            write = Write(
                FRAGMENT, "x", WriteKind.UPDATE, f"{name}{step}", ("main",), operators=(call,)
            )
            [result] = await writer.write([write])
            assert result.status is Status.APPLIED

    await asyncio.gather(add(writers[0], "a"), add(writers[1], "b"))
    [record] = await writers[1].read([Read(FRAGMENT, "x")])
    assert record is not None
    assert record.values == {"n": 40}
    for writer in writers:
        await writer.close()


async def test_written_records_survive_reopening_the_store(tmp_path: Path) -> None:
    config = SystemConfig("sqlite", "sqlite", f"sqlite:///{tmp_path}/kept.db")
    first, second = SqliteStore(config), SqliteStore(config)
    await first.open()
    await first.write([Write(FRAGMENT, "x", WriteKind.CREATE, "0", ("main",), {"n": 1})])
    await first.close()
    await second.open()
    [record] = await second.read([Read(FRAGMENT, "x")])
    assert record is not None
    assert record.values == {"n": 1}
    await second.close()


async def test_failures_become_errors_of_the_port(tmp_path: Path) -> None:
    unreachable = SqliteStore(
        SystemConfig("sqlite", "sqlite", f"sqlite:///{tmp_path}/none/secret.db")
    )
    with pytest.raises(StoreUnavailable, match="SQLITE_CANTOPEN") as caught:
        await unreachable.open()
    assert "secret" not in str(caught.value)
    with pytest.raises(StoreUnavailable, match="not open"):
        await unreachable.ping()
    await unreachable.close()
    with pytest.raises(StoreUnavailable, match="RuntimeError"):
        await unreachable.ping()


class Overwriting(SqliteStore):
    """Overwrites concurrent writes, which the suite has to detect."""

    async def write(self, calls: Any, token: str = "") -> Any:
        for call in calls:
            call.expect = {}
        return await super().write(calls, token)


async def test_the_suite_detects_a_store_that_overwrites() -> None:
    store = Overwriting(SystemConfig("sqlite", "sqlite", "sqlite://"))
    await store.open()
    [check] = [c for c in CHECKS if c.name == "concurrency.one_winner_for_each_version"]
    assert (await run_check(store, check)).status is CheckStatus.FAILED
    await store.close()


def test_an_installed_package_can_add_a_kind_of_store(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="one of redis, postgresql, mongodb is expected"):
        SystemSettings.model_validate(LITE)
    point = EntryPoint("sqlite", "examples.sqlite_store:SqliteStore", kinds.ENTRY_POINTS)

    def select_entry_points(group: str, name: str = point.name) -> EntryPoints:
        return EntryPoints([point]).select(group=group, name=name)

    monkeypatch.setattr(kinds, "entry_points", select_entry_points)
    assert store_kinds() == ("redis", "postgresql", "mongodb", "sqlite")
    settings = SystemSettings.model_validate(LITE)
    assert isinstance(make_store(settings.registration().config), SqliteStore)


def test_a_clock_that_is_set_back_repeats_no_version() -> None:
    record, versions = StoredRecord(), []
    for step, clock_us in enumerate((100, 50, 50, 0)):
        kind = WriteKind.DELETE if step == 1 else WriteKind.REPLACE
        apply_write(record, Write(FRAGMENT, "x", kind, str(step), ("main",)), "", clock_us)
        versions.append(record.versions["main"])
    assert versions == [100, 101, 102, 103]
