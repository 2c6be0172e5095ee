"""SIGKILL of the service during mixed operations: what was acknowledged is there, exactly once."""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import orjson
import pytest

from benchmarks.ledger import Figure, Ledger
from mediator.stores.embedded.postgresql import EmbeddedPostgres
from tests.faults.conditions import eventually
from tests.faults.service import Service
from tests.faults.stores import Stores
from tests.faults.wire import Answer, Connection, Unanswered, Unreachable
from tests.process.service import field_on

CLIENTS = 16
COUNTERS = 50
PAIRS = 300
UPDATE = {"content-type": "application/vnd.portolan.update+json"}
INC = {"inc": 1}
PASSING = {
    f"/problems/{name}"
    for name in ("idempotency-key-in-use", "locked", "unavailable", "outcome-unknown")
}
UNCERTAIN = {409, 503}
"""Locked, by what a dead replica has left, or unavailable."""

# Articles live on two systems, pairs on three; the other classes on one each. Counters of the
# MongoDB stand-in are floats, because it has no exact integers.
CLASSES: dict[str, Any] = {
    "articles": {
        "fields": {
            "title": field_on("postgres"),
            "hits": field_on("redis", "integer", default=0, group="hits"),
        }
    },
    "notes": {"fields": {"likes": field_on("mongo", "float", default=0)}},
    "accounts": {"fields": {"balance": field_on("postgres", "integer", default=0)}},
    "pairs": {
        "fields": {
            "left": field_on("redis", "integer", default=0, group="left"),
            "middle": field_on("mongo", "float", default=0, group="middle"),
            "right": field_on("postgres", "integer", default=0, group="right"),
        }
    },
}
SINGLE = (("articles", "hits"), ("notes", "likes"), ("accounts", "balance"))
SIDES = ("left", "middle", "right")


@pytest.fixture
def data_dir() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="portolan-kill-"))
    yield directory
    Stores(directory).end()
    shutil.rmtree(directory)


@pytest.fixture
async def service(data_dir: Path) -> AsyncIterator[Service]:
    async with Service.embedded(data_dir).running() as running:
        await running.favour()
        placed = await running.put_schema("news", CLASSES)
        assert {placed[f"pairs.{side}"] for side in SIDES} == {"redis", "mongo", "postgres"}
        assert placed["articles.title"] != placed["articles.hits"]
        yield running


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("operations", "kills"), [(2_500, 3), pytest.param(10_000, 10, marks=pytest.mark.large)]
)
async def test_what_was_acknowledged_survives_kills(
    service: Service, data_dir: Path, operations: int, kills: int
) -> None:
    await _create_counters(service)
    ledger, tickets = Ledger(), iter(range(operations))
    marks = {n * operations // (kills + 1): asyncio.Event() for n in range(1, kills + 1)}
    async with asyncio.TaskGroup() as group:
        for number in range(CLIENTS):
            client = _Client(service, ledger, random.Random(number))
            group.create_task(client.run(tickets, marks))
        for mark in marks.values():
            await mark.wait()
            await service.kill()
            await service.start()
    await _settled(data_dir)
    async with Connection(service.data) as http:
        await _check_counters(http, ledger)
        ledger.check_articles(await _articles(http))
        assert ledger.gone
        assert ledger.doubtful, "no kill interrupted anything"


async def _create_counters(service: Service) -> None:
    async with Connection(service.data) as http:
        for class_name, number in (*((name, COUNTERS) for name, _ in SINGLE), ("pairs", PAIRS)):
            body = [{"id": f"counter{n}"} for n in range(number)]
            created = await http.request("POST", f"/v1/news/{class_name}", body)
            assert {item["status"] for item in created.json()} == {201}


class _Client:
    """Sends one operation after the other, and writes down what it is told."""

    def __init__(self, service: Service, ledger: Ledger, chance: random.Random) -> None:
        self._service = service
        self._ledger = ledger
        self._chance = chance
        self._http = Connection(service.data)
        self._operations: dict[Callable[[int], Awaitable[None]], int] = {
            self._increment: 60,
            self._increment_pair: 4,
            self._increment_pair_once: 5,
            self._create_once: 5,
            self._put: 10,
            self._delete: 7,
            self._batch: 5,
            self._batch_once: 4,
        }

    async def run(self, tickets: Iterator[int], marks: dict[int, asyncio.Event]) -> None:
        chosen, weights = zip(*self._operations.items(), strict=True)
        with closing(self._http):
            for ticket in tickets:
                if ticket in marks:
                    marks[ticket].set()
                [operation] = self._chance.choices(chosen, weights)
                await operation(ticket)

    async def _increment(self, _: int) -> None:
        class_name, id_, field = figure = self._single()
        answer = await self._send("PATCH", f"{class_name}/{id_}", {field: INC}, UPDATE)
        self._ledger.incremented(figure, known=_well(answer, 200))

    async def _increment_pair(self, _: int) -> None:
        id_ = f"counter{self._chance.randrange(PAIRS)}"
        answer = await self._send("PATCH", f"pairs/{id_}", dict.fromkeys(SIDES, INC), UPDATE)
        figures = [("pairs", id_, side) for side in SIDES]
        self._ledger.incremented(*figures, known=_well(answer, 200))

    async def _increment_pair_once(self, ticket: int) -> None:
        """Increment with an Idempotency-Key, again and again until it is acknowledged: once."""
        id_ = f"counter{self._chance.randrange(PAIRS)}"
        headers = {**UPDATE, "idempotency-key": f"pair-{ticket}"}
        body = dict.fromkeys(SIDES, INC)
        await self._insist("PATCH", f"pairs/{id_}", body, headers, status=200)
        self._ledger.incremented(*(("pairs", id_, side) for side in SIDES), known=True)

    async def _create_once(self, ticket: int) -> None:
        headers = {"idempotency-key": f"create-{ticket}"}
        body = {"title": f"created by {ticket}", "hits": ticket}
        answer = await self._insist("POST", "articles", body, headers, status=201)
        id_ = answer.json()["id"]
        self._ledger.put(id_, {"id": id_, **body}, known=True)

    async def _put(self, ticket: int) -> None:
        body = _article(f"put-{ticket}")
        answer = await self._send("PUT", f"articles/{body['id']}", body)
        self._ledger.put(body["id"], body, known=_well(answer, 201))

    async def _delete(self, ticket: int) -> None:
        if not self._ledger.there:
            return await self._put(ticket)
        id_ = self._some_article()
        answer = await self._send("DELETE", f"articles/{id_}")
        self._ledger.deleted(id_, known=_well(answer, 204))
        return None

    async def _batch(self, ticket: int) -> None:
        """Send a batch; each of its operations is acknowledged, or not, by itself."""
        figures, body, doomed = self._batch_of(ticket)
        answer = await self._send(
            "POST", "batch", {"operations": _operations(figures, body, doomed)}
        )
        statuses = _statuses(answer)
        for figure, status in zip(figures, statuses, strict=False):
            self._ledger.incremented(figure, known=status == 200)
        self._ledger.put(body["id"], body, known=statuses[3] == 201)
        if doomed:
            self._ledger.deleted(doomed, known=statuses[4] in (200, 204))

    async def _batch_once(self, ticket: int) -> None:
        figures, body, doomed = self._batch_of(ticket)
        batch = {"operations": _operations(figures, body, doomed)}
        headers = {"idempotency-key": f"batch-{ticket}"}
        while True:
            answer = await self._insist("POST", "batch", batch, headers, status=200)
            if UNCERTAIN.isdisjoint(_statuses(answer)):
                break
        self._ledger.incremented(*figures, known=True)
        self._ledger.put(body["id"], body, known=True)
        if doomed:
            self._ledger.deleted(doomed, known=True)

    def _batch_of(self, ticket: int) -> tuple[list[Figure], dict[str, Any], str]:
        figures = [(name, self._counter(), field) for name, field in SINGLE]
        doomed = self._some_article() if self._ledger.there else ""
        return figures, _article(f"batch-{ticket}"), doomed

    def _single(self) -> Figure:
        class_name, field = self._chance.choice(SINGLE)
        return class_name, self._counter(), field

    def _counter(self) -> str:
        return f"counter{self._chance.randrange(COUNTERS)}"

    def _some_article(self) -> str:
        id_ = self._chance.choice(list(self._ledger.there))
        self._ledger.take(id_)
        return id_

    async def _insist(self, *request: Any, status: int) -> Answer:
        """Send a request with its key until it is answered well."""
        while True:
            answer = await self._send(*request)
            if answer is not None and answer.status == status:
                return answer
            assert answer is None or answer.problem()["type"] in PASSING, answer
            await asyncio.sleep(0.02)

    async def _send(
        self, method: str, target: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Answer | None:
        """Send a request once; None if nobody knows what became of it."""
        while True:
            await self._service.up.wait()
            try:
                return await self._http.request(method, f"/v1/news/{target}", body, headers)
            except Unanswered:
                return None
            except Unreachable:
                await asyncio.sleep(0.01)


def _well(answer: Answer | None, status: int) -> bool:
    """Whether a request was acknowledged; what is refused for good is a failure of the test."""
    assert answer is None or answer.status in {status, *UNCERTAIN}, answer
    assert answer is None or answer.status != 409 or _is_locked(answer.problem()), answer
    return answer is not None and answer.status == status


def _statuses(answer: Answer | None) -> list[int]:
    """Return what a batch says of its operations: all are uncertain without an answer."""
    if answer is None or not _well(answer, 200):
        return [503] * 5
    statuses = [result["status"] for result in answer.json()]
    assert set(statuses) <= {200, 201, 204, *UNCERTAIN}, answer
    assert all(_is_locked(r["problem"]) for r in answer.json() if r["status"] == 409), answer
    return statuses


def _is_locked(problem: dict[str, Any]) -> bool:
    return bool(problem["type"] == "/problems/locked")


def _article(id_: str) -> dict[str, Any]:
    return {"id": id_, "title": f"title of {id_}", "hits": len(id_)}


def _operations(figures: list[Figure], body: dict[str, Any], doomed: str) -> list[dict[str, Any]]:
    updates = [
        {"op": "update", "class": name, "id": id_, "body": {field: INC}}
        for name, id_, field in figures
    ]
    put = {"op": "put", "class": "articles", "id": body["id"], "body": body}
    delete = {"op": "delete", "class": "articles", "id": doomed}
    return [*updates, put, *([delete] if doomed else [])]


async def _settled(data_dir: Path) -> None:
    """Wait until every write over several systems has been rolled forward, or dropped."""
    endpoint = await asyncio.to_thread(EmbeddedPostgres(data_dir / "postgresql").start)
    connection = await asyncpg.connect(endpoint.url)

    async def empty() -> bool:
        return not await connection.fetchval(
            "SELECT count(*) FROM portolan_catalogue.transactions"
            " WHERE state <> 'done' AND database <> ''"  # what was refused is kept for a while
        )

    try:
        await eventually(empty)
    finally:
        await connection.close()


async def _check_counters(http: Connection, ledger: Ledger) -> None:
    for class_name, field in SINGLE:
        for n in range(COUNTERS):
            found = await http.request("GET", f"/v1/news/{class_name}/counter{n}")
            ledger.check_counter((class_name, f"counter{n}", field), found.json()[field])
    for n in range(PAIRS):
        pair = (await http.request("GET", f"/v1/news/pairs/counter{n}")).json()
        assert len({pair[side] for side in SIDES}) == 1, pair
        ledger.check_counter(("pairs", f"counter{n}", "left"), pair["left"])


async def _articles(http: Connection) -> dict[str, dict[str, Any]]:
    """Return every article but the counters; none may be there twice."""
    export = await http.request("GET", "/v1/news/articles/export")
    lines = [orjson.loads(line) for line in export.body.splitlines()]
    found = {line["id"]: line for line in lines if not line["id"].startswith("counter")}
    assert len(found) == len(lines) - COUNTERS
    return found
