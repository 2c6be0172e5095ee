"""Operations of all kinds under faults: no acknowledged write is lost, no object is torn.

Two replicas serve objects on one, two and three systems; operations of half of the classes share
store calls. The responses are checked for consistency (`tests.faults.writes.history`,
`tests.faults.writes.transfers`), during the faults and at the end.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from contextlib import closing
from functools import partial
from typing import Any

import asyncpg
import pytest

from tests.faults.cluster import Cluster, cluster
from tests.faults.conditions import eventually
from tests.faults.writes.clients import DATABASE, GENERATED_ID_CLASSES, Client, Load, RequestClient
from tests.faults.writes.fault_injection import Faults
from tests.faults.writes.history import History
from tests.faults.writes.transfers import BANKS, Auditor, Ledger, Teller
from tests.faults.writes.writes import BATCHED, CLASSES, TWO, record_response
from tests.process.service import field_on

log = logging.getLogger(__name__)

CLIENTS, TELLERS, AUDITORS = 24, 6, 2
THROUGHPUT = [
    {"metric": f"{direction}_throughput", "goal": 1000, "weight": 1e-6}
    for direction in ("read", "write")
]
"""Annotations that batching needs; their weight is too low to decide a placement."""
SCHEMA: dict[str, dict[str, Any]] = {
    **CLASSES,
    **BANKS,
    **dict.fromkeys(GENERATED_ID_CLASSES, TWO),
    "transfers": {"from": field_on("redis"), "to": field_on("redis")},
}


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize(
    ("operation_count", "kill_count", "other_count", "max_hang_s"),
    [
        (3_000, 5, 4, 3.0),
        pytest.param(100_000, 16, 34, 20.0, marks=pytest.mark.large),
    ],
)
async def test_nothing_acknowledged_is_lost_and_nothing_is_torn(
    operation_count: int, kill_count: int, other_count: int, max_hang_s: float
) -> None:
    rng = random.Random(seed := os.environ.get("PORTOLAN_TEST_SEED", "1"))
    async with cluster() as deployment:
        await _set_up(deployment)
        load, ledger = Load(deployment.replicas, operation_count), Ledger()
        faults = Faults(deployment, rng, max_hang_s)
        names = faults.draw(kill_count, other_count)
        log.info("seed %s", seed)
        with closing(RequestClient(load, 0)) as client:
            await asyncio.gather(load.create_objects(), ledger.open_accounts(client))
            async with asyncio.TaskGroup() as group:
                for worker in _workers(load, ledger, seed):
                    group.create_task(worker.run())
                for number, name in enumerate(names, 1):
                    await load.wait_for(number * operation_count // (len(names) + 1))
                    log.info("%s after %s", name, dict(load.outcomes))
                    await faults.inject(name)
                load.faults_are_over = True
            await _wait_until_resolved(deployment.catalogue_url)
            await _check(load, ledger)
        log.info("%s, %s", load, ledger)
        assert not load.server_errors
        assert load.outcomes["unknown"], "no fault interrupted anything"
        assert ledger.audits, "no audit was committed"


async def _set_up(deployment: Cluster) -> None:
    await deployment.replicas[0].favour()
    schema: dict[str, dict[str, Any]] = {
        name: {"fields": fields, "annotations": THROUGHPUT} for name, fields in SCHEMA.items()
    }
    for name, members in schema.items():
        if name.startswith(BATCHED):
            members["batching"] = {"max_wait_s": 0.02}
    placements = await deployment.replicas[0].put_schema(DATABASE, schema)
    assert len({placements[f"on_three.{name}"] for name in ("left", "middle", "right")}) == 3
    assert len({placements[f"{bank}.balance"] for bank in BANKS}) == 3


def _workers(load: Load, ledger: Ledger, seed: str) -> list[Client | Teller | Auditor]:
    rngs = (random.Random(f"{seed} {number}") for number in range(CLIENTS + TELLERS + AUDITORS))
    return [
        *(Client(load, next(rngs), number) for number in range(CLIENTS)),
        *(Teller(load, ledger, next(rngs), number) for number in range(TELLERS)),
        *(Auditor(load, ledger, next(rngs), number) for number in range(AUDITORS)),
    ]


async def _wait_until_resolved(catalogue_url: str) -> None:
    """Wait until every write over several systems is rolled forward or dropped."""
    connection = await asyncpg.connect(catalogue_url)

    async def is_empty() -> bool:
        return not await connection.fetchval(
            "SELECT count(*) FROM portolan_catalogue.transactions"
            " WHERE state <> 'done' AND database <> ''"  # refused transactions are kept for a while
        )

    try:
        await eventually(is_empty)
    finally:
        await connection.close()


async def _check(load: Load, ledger: Ledger) -> None:
    """Check all objects through each of the replicas."""
    for number in range(len(load.replicas)):
        with closing(RequestClient(load, number)) as client:
            for history in load.histories.values():
                await eventually(partial(_is_whole, client, history))
            await _check_created(load, client)
            await ledger.check(client)
    for history in load.histories.values():
        history.check()


async def _is_whole(client: RequestClient, history: History) -> bool:
    attempt = history.attempt()
    response = await client.request("GET", history.name)
    completeness = record_response(history, attempt, response)
    return completeness == "whole" or (response is not None and response.status == 404)


async def _check_created(load: Load, client: RequestClient) -> None:
    """Require that each request without an id created exactly one object."""
    objects: dict[str, tuple[int, int]] = {}
    for class_name in GENERATED_ID_CLASSES:
        export = await client.request("GET", f"{class_name}/export")
        assert export is not None
        objects |= {line["id"]: (line["left"], line["right"]) for line in export.lines()}
    numbers = [left for left, _ in objects.values()]
    assert all(left == right for left, right in objects.values()), "an object is torn"
    assert len(numbers) == len(set(numbers)), "a request created two objects"
    expected = {id_: (number, number) for number, id_ in load.created.items()}
    assert expected.items() <= objects.items(), "an object is lost"
