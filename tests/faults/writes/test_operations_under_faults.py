"""Operations of all kinds while everything breaks: nothing acknowledged is lost, nothing is torn.

Two replicas serve objects on one, two and three systems; operations of half of the classes share
store calls. The answers are held against what can have been (`tests.faults.writes.history`,
`tests.faults.writes.transfers`), during it and at the end.
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
from tests.faults.writes.clients import DATABASE, MADE, Client, Load, RequestClient
from tests.faults.writes.fault_injection import Faults
from tests.faults.writes.history import History
from tests.faults.writes.transfers import BANKS, Auditor, Ledger, Teller
from tests.faults.writes.writes import BATCHED, CLASSES, TWO, look
from tests.process.service import field_on

log = logging.getLogger(__name__)

CLIENTS, TELLERS, AUDITORS = 24, 6, 2
THROUGHPUT = [
    {"metric": f"{direction}_throughput", "goal": 1000, "weight": 1e-6}
    for direction in ("read", "write")
]
"""What batching needs; it decides nothing of where a field is."""
SCHEMA: dict[str, dict[str, Any]] = {
    **CLASSES,
    **BANKS,
    **dict.fromkeys(MADE, TWO),
    "transfers": {"from": field_on("redis"), "to": field_on("redis")},
}


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize(
    ("operations", "kills", "others", "longest_s"),
    [
        (3_000, 5, 4, 3.0),
        pytest.param(100_000, 16, 34, 20.0, marks=pytest.mark.large),
    ],
)
async def test_nothing_acknowledged_is_lost_and_nothing_is_torn(
    operations: int, kills: int, others: int, longest_s: float
) -> None:
    rng = random.Random(seed := os.environ.get("PORTOLAN_TEST_SEED", "1"))
    async with cluster() as stage:
        await _set_up(stage)
        load, ledger = Load(stage.replicas, operations), Ledger()
        faults = Faults(stage, rng, longest_s)
        drawn = faults.draw(kills, others)
        log.info("seed %s", seed)
        with closing(RequestClient(load, 0)) as client:
            await asyncio.gather(load.begin(), ledger.begin(client))
            async with asyncio.TaskGroup() as group:
                for worker in _workers(load, ledger, seed):
                    group.create_task(worker.run())
                for number, name in enumerate(drawn, 1):
                    await load.reach(number * operations // (len(drawn) + 1))
                    log.info("%s after %s", name, dict(load.outcomes))
                    await faults.inject(name)
                load.faults_are_over = True
            await _resolved(stage.catalogue_url)
            await _check(load, ledger)
        log.info("%s, %s", load, ledger)
        assert not load.broken
        assert load.outcomes["unknown"], "no fault interrupted anything"
        assert ledger.audits, "no audit stood"


async def _set_up(stage: Cluster) -> None:
    await stage.replicas[0].favour()
    schema: dict[str, dict[str, Any]] = {
        name: {"fields": fields, "annotations": THROUGHPUT} for name, fields in SCHEMA.items()
    }
    for name, members in schema.items():
        if name.startswith(BATCHED):
            members["batching"] = {"max_wait_s": 0.02}
    placed = await stage.replicas[0].put_schema(DATABASE, schema)
    assert len({placed[f"on_three.{name}"] for name in ("left", "middle", "right")}) == 3
    assert len({placed[f"{bank}.balance"] for bank in BANKS}) == 3


def _workers(load: Load, ledger: Ledger, seed: str) -> list[Client | Teller | Auditor]:
    rngs = (random.Random(f"{seed} {number}") for number in range(CLIENTS + TELLERS + AUDITORS))
    return [
        *(Client(load, next(rngs), number) for number in range(CLIENTS)),
        *(Teller(load, ledger, next(rngs), number) for number in range(TELLERS)),
        *(Auditor(load, ledger, next(rngs), number) for number in range(AUDITORS)),
    ]


async def _resolved(catalogue_url: str) -> None:
    """Wait until every write over several systems has been rolled forward, or dropped."""
    connection = await asyncpg.connect(catalogue_url)

    async def empty() -> bool:
        return not await connection.fetchval(
            "SELECT count(*) FROM portolan_catalogue.transactions"
            " WHERE state <> 'done' AND database <> ''"  # what was refused is kept for a while
        )

    try:
        await eventually(empty)
    finally:
        await connection.close()


async def _check(load: Load, ledger: Ledger) -> None:
    """Look at everything that there is, through each of the replicas."""
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
    answer = await client.request("GET", history.name)
    seen = look(history, attempt, answer)
    return seen == "whole" or (answer is not None and answer.status == 404)


async def _check_created(load: Load, client: RequestClient) -> None:
    """Each request without an id has created exactly one object."""
    found: dict[str, tuple[int, int]] = {}
    for class_name in MADE:
        export = await client.request("GET", f"{class_name}/export")
        assert export is not None
        found |= {line["id"]: (line["left"], line["right"]) for line in export.lines()}
    numbers = [left for left, _ in found.values()]
    assert all(left == right for left, right in found.values()), "one is torn"
    assert len(numbers) == len(set(numbers)), "one request has created two objects"
    expected = {id_: (number, number) for number, id_ in load.created.items()}
    assert expected.items() <= found.items(), "one is lost"
