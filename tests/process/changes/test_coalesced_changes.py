"""Coalesced writes have one change each in the feed, as if they came one after the other."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest

from mediator.base.observation import BatchFinished
from mediator.changes.feed import PARTITIONS
from mediator.model.change import Change, change_id
from mediator.model.operations import Outcome, Update
from mediator.model.operators import Operator, OperatorCall
from mediator.stores.port import SystemConfig
from tests.faults.conditions import eventually
from tests.process.service import (
    Service,
    scratch_catalogue,
    scratch_systems,
    service,
    unique,
)

OBJECTS, WRITES = 5, 40


@pytest.fixture(scope="module")
async def fed(
    redis_config: SystemConfig, postgresql_config: SystemConfig, mongodb_config: SystemConfig
) -> AsyncIterator[Service]:
    """A mediator that relays changes to a feed."""
    async with (
        scratch_systems(redis_config, postgresql_config, mongodb_config) as configs,
        scratch_catalogue(postgresql_config) as url,
        service(configs, url, coordination_url=redis_config.url) as started,
    ):
        yield started


@pytest.mark.parametrize("system", ["redis", "postgres", "mongo"])
async def test_each_write_has_its_change(fed: Service, system: str) -> None:
    database = await fed.put_schema({"articles": _class(system)})
    ids = [unique() for _ in range(OBJECTS)]
    for id_ in ids:
        await fed.create(database, "articles", id_, hits=0, tags=[])
    writes = [_write(database, ids[number % OBJECTS], number) for number in range(WRITES)]
    outcomes = await asyncio.gather(*map(fed.mediator.data.write, writes))
    events = [e for e in fed.observed if isinstance(e, BatchFinished) and e.database == database]
    assert max(event.calls for event in events) > OBJECTS, "nothing shared a call"
    changes: list[Change] = []

    async def all_relayed() -> bool:
        changes[:] = await _changes(fed, database)
        return len(changes) >= WRITES + 2 * OBJECTS

    await eventually(all_relayed)
    assert len(changes) == WRITES + 2 * OBJECTS
    _check_versions(changes, writes, outcomes)
    _check_chains(changes)


def _class(system: str) -> dict[str, object]:
    throughput = [{"metric": "write_throughput", "goal": 1000}]
    fields = {
        "hits": {"type": "integer"},
        "tags": {"type": "set", "items": "string", "group": "tags"},
    }
    batching = {"max_wait_s": 0.02}
    return {"system": system, "annotations": throughput, "batching": batching, "fields": fields}


def _write(database: str, id_: str, number: int) -> Update:
    """Return an increment, or for every fourth number the addition of a tag."""
    operator = OperatorCall("hits", Operator.INC, 1)
    if number % 4 == 0:
        operator = OperatorCall("tags", Operator.ADD_TO_SET, f"t{number}")
    return Update(database, "articles", id_, unique("op"), operators=(operator,))


async def _changes(fed: Service, database: str) -> list[Change]:
    coordination = fed.mediator.coordination
    assert coordination is not None
    id_ = fed.mediator.data.model.databases[database].id
    partitions = [
        await coordination.feed.read(id_, partition, "0", 1_000) for partition in range(PARTITIONS)
    ]
    return [change for partition in partitions for _, change in partition]


def _check_versions(changes: list[Change], writes: list[Update], outcomes: list[Outcome]) -> None:
    """Each outcome has the version of its operation's change."""
    versions = {change.id: change.version for change in changes}
    for write, outcome in zip(writes, outcomes, strict=True):
        [operator] = write.operators
        group = "tags" if operator.field == "tags" else "main"
        assert versions[change_id(write.operation, group)] == outcome.versions[group]


def _check_chains(changes: list[Change]) -> None:
    """Versions rise, and each before image is the previous after image."""
    chains: defaultdict[tuple[str, str], list[Change]] = defaultdict(list)
    for change in changes:
        chains[change.object_id, change.group].append(change)
    for (_, group), chain in chains.items():
        assert [c.version for c in chain] == sorted({c.version for c in chain})
        for before, after in pairwise(chain):
            assert after.before == before.after
        sizes = [
            (c.after or {})["hits"] if group == "main" else len((c.after or {})["tags"])
            for c in chain
        ]
        assert sizes == list(range(len(chain)))
