"""Clients that write objects in every way and record the responses."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from tests.faults.caching.http_client import Answer, Connection, Unanswered, Unreachable
from tests.faults.service import Service
from tests.faults.writes.history import History
from tests.faults.writes.writes import (
    BATCHED,
    CLASSES,
    JOINT_FIELDS,
    UPDATE,
    Write,
    record_response,
    result_of,
)

__all__ = ["DATABASE", "GENERATED_ID_CLASSES", "Client", "Load", "RequestClient"]

DATABASE = "news"
OBJECTS = 40
"""Objects per class; every second one is only incremented, never replaced or deleted."""
BATCH = 50
PAUSE_S = 0.02
MERGE = {"content-type": "application/merge-patch+json"}
HALVES = ("left", "right")
RETRYABLE = {503, 409}
GENERATED_ID_CLASSES = ("made", f"{BATCHED}made")
"""Classes whose object ids the service generates."""


@dataclass
class Load:
    """The state that all clients share.

    Attributes:
        replicas: The replicas that receive the requests.
        size: The number of operations to send.
        histories: The history of each object.
        created: Generated ids, by request number.
        outcomes: The number of acknowledged, refused and unknown operations.
        partial: The number of reads reported as partial.
        server_errors: Responses with status 500.
        faults_are_over: While false, clients go on beyond `size`.
    """

    replicas: tuple[Service, ...]
    size: int
    histories: dict[str, History] = field(default_factory=dict)
    created: dict[int, str] = field(default_factory=dict)
    outcomes: Counter[str] = field(default_factory=Counter)
    partial: int = 0
    server_errors: list[Answer] = field(default_factory=list)
    faults_are_over: bool = False
    numbers: count[int] = field(default_factory=lambda: count(1))
    _milestones: dict[int, asyncio.Event] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for class_name in CLASSES:
            for number in range(OBJECTS):
                history = History(f"{class_name}/o{number}", is_permanent=number % 2 == 0)
                self.histories[history.name] = history

    def __str__(self) -> str:
        incomplete = sum(history.incomplete for history in self.histories.values())
        return f"{dict(self.outcomes)}, {self.partial} partial reads, {incomplete} without versions"

    @property
    def is_done(self) -> bool:
        """Whether faults are over and `size` operations have finished."""
        return self.faults_are_over and self.outcomes.total() >= self.size

    def count(self, outcome: str, number: int = 1) -> None:
        """Count finished operations."""
        self.outcomes[outcome] += number
        for size, milestone in self._milestones.items():
            if self.outcomes.total() >= size:
                milestone.set()

    def record_server_error(self, response: Answer) -> Answer | None:
        """Return a response; record one of status 500 and return None."""
        if response.status != 500:
            return response
        self.server_errors.append(response)
        return None

    async def wait_for(self, size: int) -> None:
        """Wait until `size` operations have finished."""
        await self._milestones.setdefault(size, asyncio.Event()).wait()

    async def create_objects(self) -> None:
        """Create all objects."""
        with closing(Client(self, random.Random(0), 0)) as client:
            histories = list(self.histories.values())
            for start in range(0, len(histories), BATCH):
                batch = histories[start : start + BATCH]
                await client.send_batch(
                    [Write.put(history, next(self.numbers)) for history in batch]
                )
        assert self.outcomes["acknowledged"] == len(self.histories)


class RequestClient:
    """Connections to all replicas.

    Args:
        load: The replicas and the recorded errors.
        number: The replica that receives the first request.
    """

    def __init__(self, load: Load, number: int) -> None:
        self._number = number
        self._load = load
        self._connections = [Connection(replica.data) for replica in load.replicas]

    async def request(
        self,
        method: str,
        target: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        offset: int = 0,
    ) -> Answer | None:
        """Send a request once, to the replica at `offset`; None if unanswered."""
        index = (self._number + offset) % len(self._connections)
        while True:
            await self._load.replicas[index].up.wait()
            try:
                response = await self._connections[index].request(
                    method, f"/v1/{DATABASE}/{target}", body, headers
                )
                return self._load.record_server_error(response)
            except Unanswered:
                return None
            except Unreachable:
                await asyncio.sleep(PAUSE_S)

    async def request_until_answered(
        self, method: str, target: str, body: Any, headers: Mapping[str, str]
    ) -> Answer:
        """Send a request with its idempotency key to one replica after the other until answered."""
        offset = 0
        while True:
            response = await self.request(method, target, body, headers, offset)
            if response is not None and response.status not in RETRYABLE:
                return response
            offset += 1
            await asyncio.sleep(PAUSE_S)

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections:
            connection.close()


class Client:
    """Sends one operation after the other.

    Args:
        load: The state that all clients share.
        rng: Draws the operations.
        number: The number of this client.
    """

    def __init__(self, load: Load, rng: random.Random, number: int) -> None:
        self._load = load
        self._rng = rng
        self._histories = list(load.histories.values())
        self._permanent = [history for history in self._histories if history.is_permanent]
        self._client = RequestClient(load, number)
        self.close = self._client.close
        self._steps: dict[Callable[[History], Awaitable[None]], int] = {
            self._write: 50,
            self._increment_extra: 6,
            self._increment_once: 8,
            self._increment_if_match: 10,
            self._create_once: 2,
            self._read: 16,
            self._batch: 10,
            self._batch_once: 2,
        }

    async def run(self) -> None:
        """Send operations until the load is done."""
        steps, weights = zip(*self._steps.items(), strict=True)
        with closing(self):
            while not self._load.is_done:
                [step] = self._rng.choices(steps, weights)
                await step(self._rng.choice(self._histories))

    async def send_batch(self, writes: list[Write]) -> None:
        """Send a batch, whose operations are acknowledged individually."""
        body = {"operations": [write.operation for write in writes]}
        response = await self._client.request("POST", "batch", body)
        results = response.json() if response is not None and response.status == 200 else []
        for write, result in zip(writes, results or [None] * len(writes), strict=True):
            self._load.count(write.note(result))

    async def _batch(self, _: History) -> None:
        histories = self._rng.sample(self._histories, BATCH)
        await self.send_batch([self._draw_write(history) for history in histories])

    async def _batch_once(self, _: History) -> None:
        """Retry a batch with an Idempotency-Key until all is answered; each write applies once."""
        writes = [Write.update(history) for history in self._rng.sample(self._permanent, BATCH)]
        body = {"operations": [write.operation for write in writes]}
        headers = {"idempotency-key": f"batch-{next(self._load.numbers)}"}
        results: list[dict[str, Any]] = []
        while not results or any(result["status"] in RETRYABLE for result in results):
            results = (
                await self._client.request_until_answered("POST", "batch", body, headers)
            ).json()
        for write, result in zip(writes, results, strict=True):
            self._load.count(write.note(result))

    def _draw_write(self, history: History) -> Write:
        """Draw a write; permanent objects are only incremented."""
        if history.is_permanent or self._rng.random() < 0.6:
            return Write.update(history)
        if self._rng.random() < 0.6:
            return Write.put(history, next(self._load.numbers))
        return Write.delete(history)

    async def _write(self, history: History) -> None:
        await self._send(self._draw_write(history), UPDATE)

    async def _increment_extra(self, _: History) -> None:
        class_name = self._rng.choice(("on_three", f"{BATCHED}on_three"))
        history = self._load.histories[f"{class_name}/o{self._rng.randrange(OBJECTS)}"]
        await self._send(Write.update_extra(history), UPDATE)

    async def _increment_once(self, _: History) -> None:
        """Retry an increment with an Idempotency-Key until answered; it applies once."""
        history = self._rng.choice(self._permanent)
        write = Write.update(history)
        headers = {**UPDATE, "idempotency-key": f"add-{next(self._load.numbers)}"}
        response = await self._client.request_until_answered(
            "PATCH", history.name, write.body, headers
        )
        self._load.count(write.note(result_of(response)))

    async def _increment_if_match(self, history: History) -> None:
        """Read, then write the values plus one with If-Match."""
        target = f"{history.name}?fields={','.join(sorted(JOINT_FIELDS[history.class_name]))}"
        response = await self._get(history, target)
        if response is not None:
            write = Write.update_if_match(history, response.json(), response.headers["etag"])
            headers = {**MERGE, "if-match": response.headers["etag"]}
            await self._send(write, headers, target)

    async def _create_once(self, _: History) -> None:
        """Retry a creation with an Idempotency-Key until answered; it applies once."""
        number = next(self._load.numbers)
        body, headers = dict.fromkeys(HALVES, number), {"idempotency-key": f"make-{number}"}
        response = await self._client.request_until_answered(
            "POST", self._rng.choice(GENERATED_ID_CLASSES), body, headers
        )
        assert response.status == 201, response
        self._load.created[number] = response.json()["id"]
        self._load.count("acknowledged")

    async def _read(self, history: History) -> None:
        await self._get(history, history.name)

    async def _get(self, history: History, target: str) -> Answer | None:
        """Read an object; return the response if it shows the whole object."""
        headers = {"prefer": "consistency=strong"} if self._rng.random() < 0.2 else {}
        attempt = history.attempt()
        response = await self._client.request("GET", target, None, headers)
        completeness = record_response(history, attempt, response)
        self._load.partial += completeness == "partial"
        self._load.count(
            "unknown" if response is None or response.status == 503 else "acknowledged"
        )
        return response if completeness == "whole" else None

    async def _send(self, write: Write, headers: Mapping[str, str], target: str = "") -> None:
        request_headers = headers if write.kind == "update" else {}
        target = target or write.history.name
        response = await self._client.request(write.method, target, write.body, request_headers)
        self._load.count(outcome := write.note(result_of(response)))
        if outcome == "unknown":
            await asyncio.sleep(PAUSE_S)
