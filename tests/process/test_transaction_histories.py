"""Random histories of transactions, of plain writes, and of coordinators that are killed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from mediator.errors import Locked, PreconditionFailed, TransactionAborted
from mediator.operations.model import Condition, Update
from mediator.transactions import coordinator
from mediator.transactions.log import State
from mediator.transactions.model import Seen, Transaction
from mediator.transactions.validation import validate
from tests.process.mortal import FATE, Fate, Killed, make_mortal
from tests.process.serializability import Deed, Item, cycle_in
from tests.process.service import Service, field_on, unique

CLASSES = {
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
WORKERS, DEEDS = 6, 12
MOST_STEPS = 30


@dataclass
class History:
    """Workers on a few objects, and what they have done."""

    mediator: Service
    database: str
    draw: random.Random
    objects: list[tuple[str, str]] = field(default_factory=list)
    deeds: list[Deed] = field(default_factory=list)
    killed: int = 0
    aborted: int = 0

    async def begin(self, per_class: int) -> None:
        for class_name in CLASSES:
            for _ in range(per_class):
                id_, began = unique(), _now()
                values = {"n": 0, "m": 0} if class_name == "pairs" else {"n": 0}
                made = await self.mediator.create(self.database, class_name, id_, **values)
                self.objects.append((class_name, id_))
                self._note(began, writes=_items(class_name, id_, made.versions))

    async def work(self) -> None:
        for _ in range(DEEDS):
            kind = self.draw.random()
            if kind < 0.25:
                await self._write_plainly()
            else:
                await self._transact(mortal=kind > 0.8)
            await asyncio.sleep(0)

    async def _write_plainly(self) -> None:
        class_name, id_ = self.draw.choice(self.objects)
        reads, condition, began = {}, Condition(), _now()
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
        written = _items(class_name, id_, done.versions)
        touched = {"m" if name == "m" else "main" for name in write.values}
        writes = {item: v for item, v in written.items() if item[2] in touched}
        self._note(began, reads=reads if len(reads) == 1 else {}, writes=writes)

    async def _transact(self, *, mortal: bool) -> None:
        began, some = _now(), self.draw.sample(self.objects, self.draw.randrange(1, 5))
        reads: dict[Item, int | None] = {}
        seen = []
        for class_name, id_ in some:
            outcome = await self.mediator.get(self.database, class_name, id_)
            reads |= _items(class_name, id_, outcome.versions)
            seen.append(Seen(class_name, id_, outcome.versions))
        written = self.draw.sample(some, self.draw.randrange(len(some) + 1))
        if self.draw.random() < 0.3:
            written.append(self.draw.choice([o for o in self.objects if o not in some]))
        operation = unique("tx")
        writes = tuple(self._update(*one, fingerprint="f") for one in written)
        wanted = Transaction(self.database, operation, tuple(seen), writes, "f")
        fate = Fate(self.draw.randrange(MOST_STEPS), after=self.draw.random() < 0.5)
        try:
            outcomes = await asyncio.create_task(self._run(wanted, fate if mortal else None))
        except TransactionAborted:
            self.aborted += 1
        except Killed:
            self.killed += 1
            await self._find_out(wanted, began, reads)
        else:
            versions = [outcome.versions for outcome in outcomes]
            self._note(began, reads, _written(writes, versions), operation)

    async def _run(self, wanted: Transaction, fate: Fate | None) -> Any:
        FATE.set(fate)
        return await self.mediator.mediator.transactions.run(wanted)

    async def _find_out(
        self, wanted: Transaction, began: float, reads: Mapping[Item, int | None]
    ) -> None:
        """See what became of a transaction whose coordinator is dead."""
        transactions = self.mediator.mediator.transactions
        log = transactions._log
        async with asyncio.timeout(60):
            while entry := await log.find_operation(wanted.operation):
                if entry.state is State.DONE:
                    versions = [told["versions"] for told in entry.answer or ()]
                    writes = _written(wanted.writes, versions)
                    self._note(began, reads, writes, wanted.operation, acknowledged=False)
                    return
                await log.postpone(entry.mark, 0)
                await transactions.recover()
                await asyncio.sleep(0.01)

    def _update(self, class_name: str, id_: str, **more: Any) -> Update:
        number = self.draw.randrange(10**9)
        values: dict[str, Any] = {"n": number}
        if class_name == "pairs":
            values = self.draw.choice([{"n": number}, {"m": number}, {"n": number, "m": number}])
        return Update(self.database, class_name, id_, unique("op"), values=values, **more)

    def _note(
        self,
        began: float,
        reads: Mapping[Item, int | None] | None = None,
        writes: Mapping[Item, Any] | None = None,
        name: str = "",
        *,
        acknowledged: bool = True,
    ) -> None:
        deed = Deed(name or unique("deed"), began, _now(), reads or {}, writes or {})
        if not acknowledged:
            deed.acknowledged = None
        self.deeds.append(deed)

    async def check_end(self) -> None:
        """Nothing that was acknowledged is lost: the last versions are those that stand."""
        for class_name, id_ in self.objects:
            outcome = await self.mediator.get(self.database, class_name, id_)
            assert not outcome.partial
            for item, version in _items(class_name, id_, outcome.versions).items():
                last = max(deed.writes[item] for deed in self.deeds if item in deed.writes)
                assert version == last, item


def _now() -> float:
    return asyncio.get_running_loop().time()


def _items(class_name: str, id_: str, versions: Mapping[str, int | None]) -> dict[Item, Any]:
    return {(class_name, id_, group): version for group, version in versions.items()}


def _written(writes: Any, versions: Any) -> dict[Item, Any]:
    found: dict[Item, Any] = {}
    for write, of in zip(writes, versions, strict=True):
        touched = {"m" if name == "m" else "main" for name in write.values}
        items = _items(write.class_name, write.id, of)
        found |= {item: v for item, v in items.items() if item[2] in touched}
    return found


@pytest.fixture(scope="module")
async def paper(mediator: Service) -> str:
    database = await mediator.put_schema(CLASSES)
    assert mediator.systems_of(database, "pairs") == ("postgres", "redis")
    return database


@pytest.fixture
def mortal(mediator: Service) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        make_mortal(mediator.mediator, patched)
        yield


async def _history(mediator: Service, database: str, seed: int) -> History:
    history = History(mediator, database, random.Random(seed))
    await history.begin(per_class=2)
    await asyncio.gather(*(history.work() for _ in range(WORKERS)))
    return history


@pytest.mark.parametrize("seed", range(6))
async def test_histories_are_serializable(
    mediator: Service, paper: str, mortal: None, seed: int
) -> None:
    history = await _history(mediator, paper, seed)
    assert cycle_in(history.deeds) is None
    await history.check_end()
    assert history.killed
    assert len(history.deeds) > WORKERS * DEEDS // 4


async def _nothing(*_: Any) -> list[Any]:
    return []


async def _ignoring_marks(*args: Any) -> list[Any]:
    await validate(*args)
    return []


MUTANTS = {
    "the read set is not looked at": (coordinator, "validate", _nothing),
    "marks on what is read are ignored": (coordinator, "validate", _ignoring_marks),
}


@pytest.mark.parametrize("mutant", MUTANTS)
async def test_without_a_step_they_are_not(
    mediator: Service, paper: str, monkeypatch: pytest.MonkeyPatch, mutant: str
) -> None:
    """The checker sees it."""
    monkeypatch.setattr(*MUTANTS[mutant])
    for seed in range(30):
        history = await _history(mediator, paper, seed)
        if cycle_in(history.deeds) is not None:
            return
    pytest.fail("no history had a cycle")


def test_the_checker_knows_the_textbook() -> None:
    x, y = ("c", "x", "main"), ("c", "y", "main")
    start = Deed("start", 0, 0.5, {}, {x: 1, y: 1})
    skew = [Deed("a", 1, 2, {y: 1}, {x: 2}), Deed("b", 1, 2, {x: 1}, {y: 2})]
    assert cycle_in([start, *skew]) is not None
    lost = [Deed("a", 1, 2, {x: 1}, {x: 2}), Deed("b", 1, 2, {x: 1}, {x: 3})]
    assert cycle_in([start, *lost]) is not None
    late = [Deed("a", 1, 2, {}, {x: 2}), Deed("b", 3, 4, {x: 1}, {})]
    assert cycle_in([start, *late]) is not None
    well = [Deed("a", 1, 2, {y: 1}, {x: 2}), Deed("b", 1, 3, {x: 2}, {y: 2})]
    assert cycle_in([start, *well]) is None
    with pytest.raises(AssertionError):
        cycle_in([start, Deed("a", 1, 2, {x: 7}, {})])
