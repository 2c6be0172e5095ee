"""SIGKILL of the service during transfers between accounts on three systems."""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.faults.conditions import eventually
from tests.faults.service import Service
from tests.faults.stores import Stores
from tests.faults.wire import Answer, Connection, Unanswered, Unreachable
from tests.process.service import field_on

CLIENTS, AUDITORS = 8, 2
TRANSFERS, KILLS = 240, 3
ACCOUNTS = 24
OPENING = 100
MERGE = {"content-type": "application/merge-patch+json"}

# The MongoDB stand-in has no exact integers.
CLASSES: dict[str, Any] = {
    "savings": {"fields": {"balance": field_on("postgres", "integer", default=0)}},
    "wallets": {"fields": {"balance": field_on("redis", "integer", default=0)}},
    "loans": {"fields": {"balance": field_on("mongo", "float", default=0)}},
    "transfers": {"fields": {"from": field_on("redis"), "to": field_on("redis")}},
}
BANKS = ("savings", "wallets", "loans")


@dataclass
class Books:
    """What was acknowledged, and what auditors saw."""

    transfers: set[str] = field(default_factory=set)
    doubtful: int = 0
    aborted: int = 0
    audits: int = 0


@pytest.fixture
def data_dir() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="portolan-transfer-"))
    yield directory
    Stores(directory).end()
    shutil.rmtree(directory)


@pytest.fixture
async def service(data_dir: Path) -> AsyncIterator[Service]:
    async with Service.embedded(data_dir).running() as running:
        await running.favour()
        placed = await running.put_schema("bank", CLASSES)
        assert {placed[f"{name}.balance"] for name in BANKS} == {"redis", "mongo", "postgres"}
        async with Connection(running.data) as http:
            for account in _accounts():
                made = await http.request("PUT", f"/v1/bank/{account}", {"balance": OPENING})
                assert made.status == 201, made
        yield running


def _accounts() -> list[str]:
    return [f"{BANKS[n % 3]}/a{n}" for n in range(ACCOUNTS)]


def _family(chance: random.Random) -> list[str]:
    """One account of each bank: coins move within a family, so an audit need not read them all."""
    first = chance.randrange(0, ACCOUNTS, len(BANKS))
    return _accounts()[first : first + len(BANKS)]


@pytest.mark.timeout(600)
async def test_transfers_survive_kills(service: Service) -> None:
    books, tickets = Books(), count()
    marks = {n * TRANSFERS // (KILLS + 1): asyncio.Event() for n in range(1, KILLS + 1)}
    async with asyncio.TaskGroup() as group:
        clients = [
            group.create_task(_transfer(service, books, random.Random(number), tickets, marks))
            for number in range(CLIENTS)
        ]
        auditing = [
            group.create_task(_audit(service, books, random.Random(number), clients))
            for number in range(CLIENTS, CLIENTS + AUDITORS)
        ]
        for mark in marks.values():
            await mark.wait()
            await service.kill()
            await service.start()
    assert all(task.done() for task in auditing)
    async with Connection(service.data) as http:
        for account in _accounts():
            await eventually(partial(_is_free, http, account))
        await _check(http, books)
    assert books.audits, "no audit stood"
    assert books.doubtful, "no kill interrupted anything"


async def _transfer(
    service: Service,
    books: Books,
    chance: random.Random,
    tickets: count[int],
    marks: dict[int, asyncio.Event],
) -> None:
    with closing(Connection(service.data)) as http:
        while (ticket := next(tickets)) < TRANSFERS:
            if ticket in marks:
                marks[ticket].set()
            one, other = chance.sample(_family(chance), 2)
            answer = await _move(service, http, one, other, f"t{ticket}")
            if answer is None:
                books.doubtful += 1
            elif answer.status == 200:
                books.transfers.add(f"t{ticket}")
            elif answer.status == 409:
                books.aborted += 1
            else:
                assert answer.status == 503, answer
                books.doubtful += 1


async def _move(
    service: Service, http: Connection, one: str, other: str, name: str
) -> Answer | None:
    """Move one coin; None: nobody knows."""
    seen = [await _ask(service, http, "GET", f"/v1/bank/{path}") for path in (one, other)]
    if not all(answer is not None and answer.status == 200 for answer in seen):
        return None
    found = [answer for answer in seen if answer is not None]
    body = {
        "reads": [_seen(p, a) for p, a in zip((one, other), found, strict=True)],
        "operations": [
            _patch(one, found[0].json()["balance"] - 1),
            _patch(other, found[1].json()["balance"] + 1),
            {"op": "put", "class": "transfers", "id": name, "body": {"from": one, "to": other}},
        ],
    }
    return await _ask(service, http, "POST", "/v1/bank/transactions", body)


def _seen(path: str, answer: Answer) -> dict[str, Any]:
    class_name, id_ = path.split("/")
    return {"class": class_name, "id": id_, "etag": answer.headers["etag"]}


def _patch(path: str, balance: float) -> dict[str, Any]:
    class_name, id_ = path.split("/")
    return {"op": "patch", "class": class_name, "id": id_, "body": {"balance": balance}}


async def _ask(
    service: Service, http: Connection, method: str, target: str, body: Any = None
) -> Answer | None:
    """Ask once the service is up; None if the connection broke."""
    while True:
        await service.up.wait()
        try:
            return await http.request(method, target, body)
        except Unreachable:
            await asyncio.sleep(0.05)
        except Unanswered:
            return None


async def _audit(
    service: Service, books: Books, chance: random.Random, clients: list[asyncio.Task[None]]
) -> None:
    """Add up a family's accounts; if the reads stand together, no coin is missing."""
    with closing(Connection(service.data)) as http:
        while not all(client.done() for client in clients):
            family = _family(chance)
            answers = [await _ask(service, http, "GET", f"/v1/bank/{a}") for a in family]
            found = [answer for answer in answers if answer is not None]
            if len(found) < len(family) or any(answer.status != 200 for answer in found):
                continue
            body = {"reads": [_seen(p, a) for p, a in zip(family, found, strict=True)]}
            answer = await _ask(service, http, "POST", "/v1/bank/transactions", body)
            if answer is not None and answer.status == 200:
                books.audits += 1
                assert sum(a.json()["balance"] for a in found) == len(family) * OPENING


async def _is_free(http: Connection, account: str) -> bool:
    """Whether no transaction that died holds the account any more."""
    answer = await http.request("PATCH", f"/v1/bank/{account}", {}, MERGE)
    found = await http.request("GET", f"/v1/bank/{account}")
    balance = {"balance": found.json()["balance"]}
    put = await http.request(
        "PUT", f"/v1/bank/{account}", balance, {"if-match": found.headers["etag"]}
    )
    return answer.status == put.status == 200


async def _check(http: Connection, books: Books) -> None:
    listing = await http.request("GET", "/v1/bank/transfers?limit=1000&allow_scan=true")
    assert listing.status == 200, listing
    transfers = {item["id"]: item for item in listing.json()["items"]}
    assert books.transfers <= transfers.keys(), "an acknowledged transfer is lost"
    expected = Counter(dict.fromkeys(_accounts(), OPENING))
    for transfer in transfers.values():
        expected[transfer["from"]] -= 1
        expected[transfer["to"]] += 1
    for account in _accounts():
        found = await http.request("GET", f"/v1/bank/{account}")
        assert found.json()["balance"] == expected[account], account
