"""Random histories of transactions and plain writes; coordinators can be killed at any step."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mediator.base.errors import Locked, PreconditionFailed, TransactionAborted
from mediator.model.operations import Condition, Update
from mediator.transactions.log import State
from mediator.transactions.model import CommitRequest, ReadSetEntry
from tests.process.service import Service, field_on, unique
from tests.process.transactions.crashable import CRASH_POINT, CrashPoint, Killed
from tests.process.transactions.serializability import Executed, Item

__all__ = ["CLASSES", "Attempt", "History", "now"]

CLASSES: dict[str, Any] = {
    "users": {"fields": {"n": field_on("postgres", "integer", default=0)}},
    "carts": {"fields": {"n": field_on("redis", "integer", default=0)}},
    "notes": {"fields": {"n": field_on("mongo", "integer", default=0)}},
    "pairs": {
        "fields": {
            "n": field_on("postgres", "integer", default=0),
            "m": field_on("redis", "integer", default=0, group="m"),
        }
    },
}
MAX_STEPS = 30


@dataclass
class Attempt:
    """A transaction to be sent, with all that is needed to find its outcome.

    Attributes:
        operation: Its name.
        began: When it began to read.
        reads: The version of every item that it read.
        touched: Class, id and groups of its writes, in their order.
        acknowledged: When it was acknowledged, if it was.
    """

    operation: str
    began: float
    reads: dict[Item, int | None]
    touched: list[tuple[str, str, list[str]]]
    acknowledged: float | None = None

    def written(self, versions: Sequence[Mapping[str, int]]) -> dict[Item, int]:
        """Return the items that it wrote, given the resulting versions of each write."""
        items: dict[Item, int] = {}
        for (class_name, id_, groups), group_versions in zip(self.touched, versions, strict=True):
            assert group_versions.keys() >= set(groups), (
                f"{self.operation} has not written {class_name}/{id_}"
            )
            items |= {(class_name, id_, group): group_versions[group] for group in groups}
        return items


@dataclass
class History:
    """Workers on a few objects, and their executed operations.

    Attributes:
        mediator: The mediator that they use.
        database: The database of the objects.
        draw: Decides what they do.
        objects: Class and id of the objects.
        executed: The executed operations.
        complaints: Errors during the execution.
        killed: How many coordinators were killed.
        aborted: The number of refused transactions and writes.
        kill_point: The crash point of coordinators without another one.
        notify: Called with each transaction before it is sent, and when it is acknowledged.
    """

    mediator: Service
    database: str
    draw: random.Random
    objects: list[tuple[str, str]] = field(default_factory=list)
    executed: list[Executed] = field(default_factory=list)
    complaints: list[BaseException] = field(default_factory=list)
    killed: int = 0
    aborted: int = 0
    kill_point: CrashPoint | None = None
    notify: Callable[[Attempt], None] = lambda _: None

    async def begin(self, per_class: int) -> None:
        """Create the objects."""
        for class_name in CLASSES:
            for _ in range(per_class):
                id_, began = unique(), now()
                values = {"n": 0, "m": 0} if class_name == "pairs" else {"n": 0}
                created = await self.mediator.create(self.database, class_name, id_, **values)
                self.objects.append((class_name, id_))
                self._record(began, {}, _items(class_name, id_, created.versions))

    async def work(self, count: int) -> None:
        """Execute `count` operations one after the other."""
        for _ in range(count):
            kind = self.draw.random()
            if kind < 0.25:
                await self._write_single()
            else:
                await self.transact(crashable=kind > 0.8)
            await asyncio.sleep(0)

    async def _write_single(self) -> None:
        class_name, id_ = self.draw.choice(self.objects)
        reads, condition, began = {}, Condition(), now()
        if self.draw.random() < 0.5:
            current = await self.mediator.get(self.database, class_name, id_)
            if current.partial:
                return
            reads = _items(class_name, id_, current.versions)
            condition = Condition(versions=(current.versions,))
        write = self._update(class_name, id_, condition=condition)
        try:
            outcome = await self.mediator.mediator.data.write(write)
        except (Locked, PreconditionFailed):
            self.aborted += 1
            return
        _, _, groups = _touched(write)
        assert outcome.versions.keys() >= set(groups), (
            f"{class_name}/{id_} is not written as a whole"
        )
        writes = {(class_name, id_, group): outcome.versions[group] for group in groups}
        self._record(began, reads if len(reads) == 1 else {}, writes)

    def _record(
        self, began: float, reads: Mapping[Item, int | None], writes: Mapping[Item, Any]
    ) -> None:
        self.executed.append(Executed(unique("deed"), began, now(), reads, writes))

    async def transact(self, *, crashable: bool) -> None:
        """Read some objects, and write some if they are unchanged."""
        limit = min(5, len(self.objects))
        began, objects = now(), self.draw.sample(self.objects, self.draw.randrange(1, limit))
        reads: dict[Item, int | None] = {}
        read_set = []
        for class_name, id_ in objects:
            outcome = await self.mediator.get(self.database, class_name, id_)
            reads |= _items(class_name, id_, outcome.versions)
            read_set.append(ReadSetEntry(class_name, id_, outcome.versions))
        written_objects = self.draw.sample(objects, self.draw.randrange(len(objects) + 1))
        if self.draw.random() < 0.3:
            written_objects.append(self.draw.choice([o for o in self.objects if o not in objects]))
        writes = tuple(self._update(*object_, fingerprint="f") for object_ in written_objects)
        attempt = Attempt(unique("tx"), began, reads, [_touched(write) for write in writes])
        request = CommitRequest(self.database, attempt.operation, tuple(read_set), writes, "f")
        crash = CrashPoint(self.draw.randrange(MAX_STEPS), after=self.draw.random() < 0.5)
        await self._send(attempt, request, crash if crashable else self.kill_point)

    async def _send(
        self, attempt: Attempt, request: CommitRequest, crash: CrashPoint | None
    ) -> None:
        self.notify(attempt)
        try:
            outcomes = await asyncio.create_task(self._run(request, crash))
        except TransactionAborted:
            self.aborted += 1
        except Killed:
            self.killed += 1
            await self.find_out(attempt)
        else:
            attempt.acknowledged = now()
            self.notify(attempt)
            self._record_attempt(attempt, [outcome.versions for outcome in outcomes])

    async def _run(self, request: CommitRequest, crash: CrashPoint | None) -> Any:
        CRASH_POINT.set(crash)
        return await self.mediator.mediator.transactions.run(request)

    async def find_out(self, attempt: Attempt) -> None:
        """Find the outcome of a transaction whose coordinator was killed."""
        transactions = self.mediator.mediator.transactions
        log = transactions.log
        async with asyncio.timeout(60):
            while entry := await log.find_operation(attempt.operation):
                if entry.state is State.DONE:
                    self._record_attempt(
                        attempt, [answer["versions"] for answer in entry.answer or ()]
                    )
                    return
                await log.postpone(entry.intent, 0)
                await transactions.resolver.recover()
                await asyncio.sleep(0.01)
        if attempt.acknowledged is not None:
            assert not attempt.touched, f"{attempt.operation} was acknowledged and is lost"
            self._record_attempt(attempt, [])

    def _record_attempt(self, attempt: Attempt, versions: Sequence[Mapping[str, int]]) -> None:
        writes = attempt.written(versions)
        name, began, acknowledged = attempt.operation, attempt.began, attempt.acknowledged
        self.executed.append(Executed(name, began, acknowledged, attempt.reads, writes))

    def _update(self, class_name: str, id_: str, **more: Any) -> Update:
        number = self.draw.randrange(10**9)
        values: dict[str, Any] = {"n": number}
        if class_name == "pairs":
            values = self.draw.choice([{"n": number}, {"m": number}, {"n": number, "m": number}])
        return Update(self.database, class_name, id_, unique("op"), values=values, **more)

    async def check_end(self) -> None:
        """No acknowledged write is lost: the last versions are the current ones."""
        for class_name, id_ in self.objects:
            outcome = await self.mediator.get(self.database, class_name, id_)
            assert not outcome.partial
            for item, version in _items(class_name, id_, outcome.versions).items():
                last = max(
                    execution.writes[item]
                    for execution in self.executed
                    if item in execution.writes
                )
                assert version == last, item


def now() -> float:
    """Return the time of a clock that all processes of the machine share."""
    return time.monotonic()


def _touched(write: Update) -> tuple[str, str, list[str]]:
    groups = {"m" if name == "m" else "main" for name in write.values}
    return write.class_name, write.id, sorted(groups)


def _items(class_name: str, id_: str, versions: Mapping[str, int | None]) -> dict[Item, Any]:
    return {(class_name, id_, group): version for group, version in versions.items()}
