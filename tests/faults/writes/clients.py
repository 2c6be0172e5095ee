"""Clients that write objects in all ways that there are, and note the answers."""

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
from tests.faults.writes.writes import BATCHED, CLASSES, TOGETHER, UPDATE, Write, look, result_of

__all__ = ["DATABASE", "MADE", "Client", "Load", "RequestClient"]

DATABASE = "news"
OBJECTS = 40
"""Of each class; every other one is only added to, and never put again or deleted."""
BATCH = 50
PAUSE_S = 0.02
MERGE = {"content-type": "application/merge-patch+json"}
HALVES = ("left", "right")
PASSING = {503, 409}
MADE = ("made", f"{BATCHED}made")
"""Classes whose objects the service names."""


@dataclass
class Load:
    """What all clients have done.

    Attributes:
        replicas: The replicas that receive the requests.
        size: Operations that there are to be.
        histories: What is known of each object.
        created: Ids that the service chose, by the number of the request.
        outcomes: How many operations were acknowledged, refused, or left unknown.
        partial: Reads whose answers report that they are partial.
        broken: Answers that must never be given.
        faults_are_over: Until then there are more operations, however many there were.
    """

    replicas: tuple[Service, ...]
    size: int
    histories: dict[str, History] = field(default_factory=dict)
    created: dict[int, str] = field(default_factory=dict)
    outcomes: Counter[str] = field(default_factory=Counter)
    partial: int = 0
    broken: list[Answer] = field(default_factory=list)
    faults_are_over: bool = False
    numbers: count[int] = field(default_factory=lambda: count(1))
    _reached: dict[int, asyncio.Event] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for class_name in CLASSES:
            for number in range(OBJECTS):
                history = History(f"{class_name}/o{number}", is_kept=number % 2 == 0)
                self.histories[history.name] = history

    def __str__(self) -> str:
        incomplete = sum(history.incomplete for history in self.histories.values())
        return f"{dict(self.outcomes)}, {self.partial} partial reads, {incomplete} without versions"

    @property
    def is_done(self) -> bool:
        """Whether there were as many operations as there are to be."""
        return self.faults_are_over and self.outcomes.total() >= self.size

    def count(self, outcome: str, number: int = 1) -> None:
        """Count operations that are over."""
        self.outcomes[outcome] += number
        for size, reached in self._reached.items():
            if self.outcomes.total() >= size:
                reached.set()

    def unless_broken(self, answer: Answer) -> Answer | None:
        """Return an answer; write down one of an error of the service's own, and return nothing."""
        if answer.status != 500:
            return answer
        self.broken.append(answer)
        return None

    async def reach(self, size: int) -> None:
        """Wait until so many operations are over."""
        await self._reached.setdefault(size, asyncio.Event()).wait()

    async def begin(self) -> None:
        """Make all objects."""
        with closing(Client(self, random.Random(0), 0)) as client:
            histories = list(self.histories.values())
            for first in range(0, len(histories), BATCH):
                batch = histories[first : first + BATCH]
                await client.send_batch([Write.put(each, next(self.numbers)) for each in batch])
        assert self.outcomes["acknowledged"] == len(self.histories)


class RequestClient:
    """Connections to all replicas.

    Args:
        load: The replicas, and what has gone wrong.
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
        """Send a request once, to the replica at `offset`; None if it is not answered."""
        index = (self._number + offset) % len(self._connections)
        while True:
            await self._load.replicas[index].up.wait()
            try:
                answer = await self._connections[index].request(
                    method, f"/v1/{DATABASE}/{target}", body, headers
                )
                return self._load.unless_broken(answer)
            except Unanswered:
                return None
            except Unreachable:
                await asyncio.sleep(PAUSE_S)

    async def insist(
        self, method: str, target: str, body: Any, headers: Mapping[str, str]
    ) -> Answer:
        """Send a request with its key, to one replica after the other, until it is answered."""
        offset = 0
        while True:
            answer = await self.request(method, target, body, headers, offset)
            if answer is not None and answer.status not in PASSING:
                return answer
            offset += 1
            await asyncio.sleep(PAUSE_S)

    def close(self) -> None:
        """Close them."""
        for line in self._connections:
            line.close()


class Client:
    """Does one operation after the other.

    Args:
        load: What the clients have in common.
        chance: Draws what is done.
        number: Which of the clients it is.
    """

    def __init__(self, load: Load, rng: random.Random, number: int) -> None:
        self._load = load
        self._rng = rng
        self._all = list(load.histories.values())
        self._kept = [history for history in self._all if history.is_kept]
        self._client = RequestClient(load, number)
        self.close = self._client.close
        self._steps: dict[Callable[[History], Awaitable[None]], int] = {
            self._write: 50,
            self._add_alone: 6,
            self._add_once: 8,
            self._add_if_match: 10,
            self._make_once: 2,
            self._read: 16,
            self._batch: 10,
            self._batch_once: 2,
        }

    async def run(self) -> None:
        """Work until the load is done."""
        steps, weights = zip(*self._steps.items(), strict=True)
        with closing(self):
            while not self._load.is_done:
                [step] = self._rng.choices(steps, weights)
                await step(self._rng.choice(self._all))

    async def send_batch(self, writes: list[Write]) -> None:
        """Send a batch: each of its operations is acknowledged, or not, by itself."""
        body = {"operations": [write.operation for write in writes]}
        answer = await self._client.request("POST", "batch", body)
        results = answer.json() if answer is not None and answer.status == 200 else []
        for write, result in zip(writes, results or [None] * len(writes), strict=True):
            self._load.count(write.note(result))

    async def _batch(self, _: History) -> None:
        histories = self._rng.sample(self._all, BATCH)
        await self.send_batch([self._some(history) for history in histories])

    async def _batch_once(self, _: History) -> None:
        """Send a batch under an Idempotency-Key until each of its operations is answered: once."""
        writes = [Write.update(history) for history in self._rng.sample(self._kept, BATCH)]
        body = {"operations": [write.operation for write in writes]}
        headers = {"idempotency-key": f"batch-{next(self._load.numbers)}"}
        results: list[dict[str, Any]] = []
        while not results or any(result["status"] in PASSING for result in results):
            results = (await self._client.insist("POST", "batch", body, headers)).json()
        for write, result in zip(writes, results, strict=True):
            self._load.count(write.note(result))

    def _some(self, history: History) -> Write:
        """Draw a write; what is kept is only added to."""
        if history.is_kept or self._rng.random() < 0.6:
            return Write.update(history)
        if self._rng.random() < 0.6:
            return Write.put(history, next(self._load.numbers))
        return Write.delete(history)

    async def _write(self, history: History) -> None:
        await self._send(self._some(history), UPDATE)

    async def _add_alone(self, _: History) -> None:
        class_name = self._rng.choice(("on_three", f"{BATCHED}on_three"))
        history = self._load.histories[f"{class_name}/o{self._rng.randrange(OBJECTS)}"]
        await self._send(Write.alone(history), UPDATE)

    async def _add_once(self, _: History) -> None:
        """Add under an Idempotency-Key until it is answered: once."""
        history = self._rng.choice(self._kept)
        write = Write.update(history)
        headers = {**UPDATE, "idempotency-key": f"add-{next(self._load.numbers)}"}
        answer = await self._client.insist("PATCH", history.name, write.body, headers)
        self._load.count(write.note(result_of(answer)))

    async def _add_if_match(self, history: History) -> None:
        """Write what was read, and one more, on condition that it has not changed."""
        target = f"{history.name}?fields={','.join(sorted(TOGETHER[history.class_name]))}"
        answer = await self._look(history, target)
        if answer is not None:
            write = Write.follow(history, answer.json(), answer.headers["etag"])
            headers = {**MERGE, "if-match": answer.headers["etag"]}
            await self._send(write, headers, target)

    async def _make_once(self, _: History) -> None:
        """Make an object under an Idempotency-Key until it is answered: once."""
        number = next(self._load.numbers)
        body, headers = dict.fromkeys(HALVES, number), {"idempotency-key": f"make-{number}"}
        answer = await self._client.insist("POST", self._rng.choice(MADE), body, headers)
        assert answer.status == 201, answer
        self._load.created[number] = answer.json()["id"]
        self._load.count("acknowledged")

    async def _read(self, history: History) -> None:
        await self._look(history, history.name)

    async def _look(self, history: History, target: str) -> Answer | None:
        """Read an object; return the answer if it shows all of it."""
        strong = {"prefer": "consistency=strong"} if self._rng.random() < 0.2 else {}
        attempt = history.attempt()
        answer = await self._client.request("GET", target, None, strong)
        seen = look(history, attempt, answer)
        self._load.partial += seen == "part"
        self._load.count("unknown" if answer is None or answer.status == 503 else "acknowledged")
        return answer if seen == "whole" else None

    async def _send(self, write: Write, headers: Mapping[str, str], target: str = "") -> None:
        fitting = headers if write.kind == "update" else {}
        target = target or write.history.name
        answer = await self._client.request(write.method, target, write.body, fitting)
        self._load.count(outcome := write.note(result_of(answer)))
        if outcome == "unknown":
            await asyncio.sleep(PAUSE_S)
