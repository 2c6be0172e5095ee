"""SIGKILL of the service during mixed operations: what was acknowledged is there, exactly once."""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.faults.service import Service

CLIENTS = 16
OPERATIONS = 10_000
KILLS = 10
COUNTERS = 50
UPDATE = {"content-type": "application/vnd.portolan.update+json"}

# Articles are split over two systems; what each group asks for, only one of them has.
SCHEMA: dict[str, Any] = {
    "classes": {
        "articles": {
            "fields": {
                "title": {"type": "string", "annotations": [{"require": "full_text_search"}]},
                "hits": {
                    "type": "integer",
                    "default": 0,
                    "index": True,
                    "group": "hits",
                    "annotations": [{"require": "elasticity"}],
                },
            }
        },
        "notes": {
            "annotations": [{"require": "joins"}],
            "fields": {"text": {"type": "string"}, "likes": {"type": "integer", "default": 0}},
        },
    }
}
DECLARED = {"redis": ["elasticity"], "postgres": ["full_text_search"], "mongo": ["joins"]}


@dataclass
class Ledger:
    """What clients were told, and what they were not told about."""

    sent: int = 0
    acknowledged: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    uncertain: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    objects: dict[str, str] = field(default_factory=dict)
    doubtful: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    data_dir = Path(tempfile.mkdtemp(prefix="portolan-kill-"))
    running = Service(data_dir)
    await running.start()
    try:
        yield running
    finally:
        await running.stop()
        shutil.rmtree(data_dir, ignore_errors=True)


@pytest.mark.timeout(600)
async def test_what_was_acknowledged_survives_kills(service: Service) -> None:
    await _prepare(service)
    ledger, tickets = Ledger(), count()
    clients = [asyncio.create_task(_client(service, ledger, tickets, n)) for n in range(CLIENTS)]
    for kill in range(1, KILLS + 1):
        await _reached(ledger, kill * OPERATIONS // (KILLS + 1), clients)
        service.kill()
        await service.gone()
        await service.start()
    await asyncio.gather(*clients)
    await _check(service, ledger)


async def _prepare(service: Service) -> None:
    async with httpx.AsyncClient(timeout=30) as http:
        for name, declared in DECLARED.items():
            url = f"{service.admin}/admin/v1/systems/{name}"
            (await http.patch(url, json={"declared": declared})).raise_for_status()
        url = f"{service.admin}/admin/v1/schemas/news"
        answer = (await http.put(url, json=SCHEMA)).raise_for_status().json()
        assert answer["placements"]["articles.hits"]["system"] == "redis"
        assert answer["placements"]["articles.title"]["system"] == "postgres"
        assert answer["placements"]["notes"]["system"] == "mongo"
        for class_name in ("articles", "notes"):
            body = [{"id": f"counter{n}"} for n in range(COUNTERS)]
            created = await http.post(f"{service.data}/v1/news/{class_name}", json=body)
            assert all(item["status"] == 201 for item in created.json())


async def _reached(ledger: Ledger, sent: int, clients: list[asyncio.Task[None]]) -> None:
    while ledger.sent < sent and not all(client.done() for client in clients):
        await asyncio.sleep(0.005)


async def _client(service: Service, ledger: Ledger, tickets: count[int], number: int) -> None:
    chance = random.Random(number)
    limits = httpx.Limits(max_connections=1)
    async with httpx.AsyncClient(timeout=20, limits=limits) as http:
        while (ticket := next(tickets)) < OPERATIONS:
            ledger.sent += 1
            await _operate(service, http, ledger, chance, ticket)


async def _operate(
    service: Service, http: httpx.AsyncClient, ledger: Ledger, chance: random.Random, ticket: int
) -> None:
    draw = chance.random()
    if draw < 0.35:
        await _increment(service, http, ledger, chance, "articles", "hits")
    elif draw < 0.6:
        await _increment(service, http, ledger, chance, "notes", "likes")
    elif draw < 0.7:
        await _increment_once(service, http, ledger, chance, ticket)
    elif draw < 0.9 or not ledger.objects:
        await _put(service, http, ledger, f"a{ticket}")
    else:
        await _delete(service, http, ledger, chance)


async def _increment(
    service: Service,
    http: httpx.AsyncClient,
    ledger: Ledger,
    chance: random.Random,
    class_name: str,
    field_name: str,
) -> None:
    name = (class_name, f"counter{chance.randrange(COUNTERS)}")
    url = f"{service.data}/v1/news/{name[0]}/{name[1]}"
    status = await _try(http, "PATCH", url, json={field_name: {"inc": 1}}, headers=UPDATE)
    if status == 200:
        ledger.acknowledged[name] += 1
    else:
        ledger.uncertain[name] += 1


async def _increment_once(
    service: Service, http: httpx.AsyncClient, ledger: Ledger, chance: random.Random, ticket: int
) -> None:
    """Increment with an Idempotency-Key, again and again until it is acknowledged: once."""
    name = ("articles", f"counter{chance.randrange(COUNTERS)}")
    url = f"{service.data}/v1/news/{name[0]}/{name[1]}"
    headers = {**UPDATE, "idempotency-key": f"once-{ticket}"}
    while await _try(http, "PATCH", url, json={"hits": {"inc": 1}}, headers=headers) != 200:
        await asyncio.sleep(0.05)
    ledger.acknowledged[name] += 1


async def _put(service: Service, http: httpx.AsyncClient, ledger: Ledger, id_: str) -> None:
    """Write an object whose parts live on two systems."""
    ledger.doubtful.add(id_)
    body = {"title": f"title of {id_}", "hits": len(id_)}
    if await _try(http, "PUT", f"{service.data}/v1/news/articles/{id_}", json=body) == 201:
        ledger.doubtful.discard(id_)
        ledger.objects[id_] = body["title"]  # type: ignore[assignment]  # the title is a str


async def _delete(
    service: Service, http: httpx.AsyncClient, ledger: Ledger, chance: random.Random
) -> None:
    id_ = chance.choice(list(ledger.objects))
    del ledger.objects[id_]
    ledger.doubtful.add(id_)
    if await _try(http, "DELETE", f"{service.data}/v1/news/articles/{id_}") in (204, 200):
        ledger.doubtful.discard(id_)
        ledger.deleted.add(id_)


async def _try(http: httpx.AsyncClient, method: str, url: str, **request: Any) -> int:
    """Send a request; 0 if the service was killed meanwhile."""
    try:
        return (await http.request(method, url, **request)).status_code
    except httpx.TransportError:
        return 0


async def _check(service: Service, ledger: Ledger) -> None:
    async with httpx.AsyncClient(timeout=30) as http:
        for class_name, field_name in (("articles", "hits"), ("notes", "likes")):
            for n in range(COUNTERS):
                name = (class_name, f"counter{n}")
                url = f"{service.data}/v1/news/{name[0]}/{name[1]}"
                value = (await http.get(url)).raise_for_status().json()[field_name]
                least = ledger.acknowledged[name]
                assert least <= value <= least + ledger.uncertain[name], name
        await _check_objects(service, http, ledger)


async def _check_objects(service: Service, http: httpx.AsyncClient, ledger: Ledger) -> None:
    for id_, title in ledger.objects.items():
        answer = await http.get(f"{service.data}/v1/news/articles/{id_}")
        assert answer.status_code == 200, id_
        assert answer.json() == {"id": id_, "title": title, "hits": len(id_)}
        assert "portolan-partial" not in answer.headers
    for id_ in ledger.deleted:
        assert (await http.get(f"{service.data}/v1/news/articles/{id_}")).status_code == 404, id_
    for id_ in ledger.doubtful:
        await _check_whole(service, http, id_)


async def _check_whole(service: Service, http: httpx.AsyncClient, id_: str) -> None:
    """An object that nobody was told about is there whole, or not at all, once recovery is done."""
    async with asyncio.timeout(60):
        while True:
            answer = await http.get(f"{service.data}/v1/news/articles/{id_}")
            if answer.status_code == 404 or "portolan-partial" not in answer.headers:
                break
            await asyncio.sleep(0.5)
    if answer.status_code == 200:
        assert answer.json() == {"id": id_, "title": f"title of {id_}", "hits": len(id_)}
