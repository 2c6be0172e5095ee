"""Random histories of transactions and plain writes; coordinators may be killed at any step."""

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
MOST_STEPS = 30


@dataclass
class Attempt:
    """A transaction that is about to be sent: enough to find out what became of it.

    Attributes:
        operation: Its name.
        began: When it began to read.
        reads: The version of every item that it read.
        touched: Class, id and groups of what it writes, in its order.
        acknowledged: When it was acknowledged, if it was.
    """

    operation: str
    began: float
    reads: dict[Item, int | None]
    touched: list[tuple[str, str, list[str]]]
    acknowledged: float | None = None

    def written(self, versions: Sequence[Mapping[str, int]]) -> dict[Item, int]:
        """Return the items that it wrote, given the versions that each write was answered with."""
        written: dict[Item, int] = {}
        for (class_name, id_, groups), of in zip(self.touched, versions, strict=True):
            assert of.keys() >= set(groups), f"{self.operation} has not written {class_name}/{id_}"
            written |= {(class_name, id_, group): of[group] for group in groups}
        return written


@dataclass
class History:
    """Workers on a few objects, and what they have done.

    Attributes:
        mediator: What they work with.
        database: Where the objects are.
        draw: Decides what they do.
        objects: Class and id of the objects.
        executed: What was executed.
        complaints: What went wrong while it was done.
        killed: How many coordinators were killed.
        aborted: Transactions and writes that were refused.
        kill_point: The crash point of coordinators that have no other.
        notify: Is called with each transaction before it is sent, and when it is acknowledged.
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
                self._did(began, {}, _items(class_name, id_, created.versions))

    async def work(self, count: int) -> None:
        """Execute so many operations one after the other."""
        for _ in range(count):
            kind = self.draw.random()
            if kind < 0.25:
                await self._write_plainly()
            else:
                await self.transact(crashable=kind > 0.8)
            await asyncio.sleep(0)

    async def _write_plainly(self) -> None:
        class_name, id_ = self.draw.choice(self.objects)
        reads, condition, began = {}, Condition(), now()
        if self.draw.random() < 0.5:
            seen = await self.mediator.get(self.database, class_name, id_)
            if seen.partial:
                return
            reads = _items(class_name, id_, seen.versions)
            condition = Condition(versions=(seen.versions,))
        write = self._update(class_name, id_, condition=condition)
        try:
            done = await self.mediator.mediator.data.write(write)
        except (Locked, PreconditionFailed):
            self.aborted += 1
            return
        _, _, groups = _touched(write)
        assert done.versions.keys() >= set(groups), f"{class_name}/{id_} is not written as a whole"
        writes = {(class_name, id_, group): done.versions[group] for group in groups}
        self._did(began, reads if len(reads) == 1 else {}, writes)

    def _did(
        self, began: float, reads: Mapping[Item, int | None], writes: Mapping[Item, Any]
    ) -> None:
        self.executed.append(Executed(unique("deed"), began, now(), reads, writes))

    async def transact(self, *, crashable: bool) -> None:
        """Read some objects, and write some if they still stand."""
        most = min(5, len(self.objects))
        began, some = now(), self.draw.sample(self.objects, self.draw.randrange(1, most))
        reads: dict[Item, int | None] = {}
        seen = []
        for class_name, id_ in some:
            outcome = await self.mediator.get(self.database, class_name, id_)
            reads |= _items(class_name, id_, outcome.versions)
            seen.append(ReadSetEntry(class_name, id_, outcome.versions))
        written = self.draw.sample(some, self.draw.randrange(len(some) + 1))
        if self.draw.random() < 0.3:
            written.append(self.draw.choice([o for o in self.objects if o not in some]))
        writes = tuple(self._update(*one, fingerprint="f") for one in written)
        attempt = Attempt(unique("tx"), began, reads, [_touched(write) for write in writes])
        request = CommitRequest(self.database, attempt.operation, tuple(seen), writes, "f")
        crash = CrashPoint(self.draw.randrange(MOST_STEPS), after=self.draw.random() < 0.5)
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
            self._note(attempt, [outcome.versions for outcome in outcomes])

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
                    self._note(attempt, [answer["versions"] for answer in entry.answer or ()])
                    return
                await log.postpone(entry.intent, 0)
                await transactions.resolver.recover()
                await asyncio.sleep(0.01)
        if attempt.acknowledged is not None:
            assert not attempt.touched, f"{attempt.operation} was acknowledged and is lost"
            self._note(attempt, [])

    def _note(self, attempt: Attempt, versions: Sequence[Mapping[str, int]]) -> None:
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
        """Nothing that was acknowledged is lost: the last versions are those that stand."""
        for class_name, id_ in self.objects:
            outcome = await self.mediator.get(self.database, class_name, id_)
            assert not outcome.partial
            for item, version in _items(class_name, id_, outcome.versions).items():
                last = max(each.writes[item] for each in self.executed if item in each.writes)
                assert version == last, item


def now() -> float:
    """Return the time of a clock that all processes of the machine share."""
    return time.monotonic()


def _touched(write: Update) -> tuple[str, str, list[str]]:
    groups = {"m" if name == "m" else "main" for name in write.values}
    return write.class_name, write.id, sorted(groups)


def _items(class_name: str, id_: str, versions: Mapping[str, int | None]) -> dict[Item, Any]:
    return {(class_name, id_, group): version for group, version in versions.items()}
