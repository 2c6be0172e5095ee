"""A process's part in a cluster: takes messages, has them handled, and commits the step."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import orjson

from mediator.base.errors import Unavailable
from mediator.relocation.cluster import Cluster
from mediator.relocation.join_states import NumberedTuple
from mediator.relocation.manager import Manager
from mediator.relocation.messages import MANAGER, OPERATOR, split_address
from mediator.relocation.port import ClusterStore, Commit, TakenOver
from mediator.relocation.split import LogEntry, Split
from mediator.relocation.worker import Worker
from mediator.standing.runtime import Result

__all__ = ["Participant", "addresses"]

_ENTRIES: Final = 500
"""Of a log that a split reads in a step."""

_PAGE: Final = 5_000
"""Of a log that are read at once for a state to be made anew."""

_MOST_WAITING: Final = 64
"""Frames in a queue beyond which a split reads no further."""

_WAIT_S: Final = 1.0
_RETRY_S: Final = 0.05
_AGAIN_S: Final = 1.0
"""After Redis did not answer, or another process was further with the same participant."""

_TRIM_EVERY: Final = 1_000
"""Entries."""


def addresses(cluster: Cluster) -> list[str]:
    """Return who takes part, and has to be run by some process."""
    splits = [split_address(name) for name in cluster.layout.attributes]
    return [MANAGER, *splits, *cluster.layout.workers]


class Participant:
    """Plays a split, a worker or the manager; what it commits is all that lasts."""

    def __init__(self, store: ClusterStore, cluster: Cluster, address: str) -> None:
        self._store = store
        self._cluster = cluster
        self._address = address
        self._machine = self._new()
        self._senders = [each for each in [*addresses(cluster), OPERATOR] if each != address]
        self._steps = 0
        self._written: dict[str, bytes] = {}
        self._trimmed = 0

    async def run(self, stopping: asyncio.Event) -> None:
        """Take step after step until the event is set; raises `ClusterGone`."""
        while not stopping.is_set():
            try:
                await self.begin()
                while not stopping.is_set():
                    await self.step()
            except (TakenOver, Unavailable):
                # Whether the last step was committed is not known: the record says it.
                await asyncio.sleep(_AGAIN_S)

    async def begin(self) -> None:
        """Go on where the last commit was."""
        self._steps, record = await self._store.recorded(self._address)
        self._machine = machine = self._new()
        if record:
            match machine:
                case Split():
                    machine.restore(record, await self._log(machine.relation))
                case Worker():
                    relations = self._cluster.layout.attributes
                    machine.restore(record, {name: await self._log(name) for name in relations})
                case Manager():
                    machine.restore(record)
        self._written = {name: orjson.dumps(each) for name, each in record.items()}

    async def step(self, wait_s: float = _WAIT_S) -> bool:
        """Handle what there is, waiting for some of it; say whether there was anything.

        Raises:
            TakenOver: Another process runs this participant, and is further.
        """
        machine = self._machine
        log = None
        if isinstance(machine, Split):
            # Workers that are behind are waited for, and the log keeps what arrives.
            workers = self._cluster.layout.workers
            if await self._store.waiting(self._address, workers) < _MOST_WAITING:
                log = (machine.relation, machine.position)
            else:
                wait_s = _RETRY_S
        frames = await self._store.frames(self._address, self._senders, log, wait_s)
        taken = {}
        for frame in frames:
            for message in frame.messages:
                machine.handle(message)
            taken[frame.sender] = frame.position
        entries: list[LogEntry] = []
        if isinstance(machine, Split) and log is not None:
            entries = await self._store.log(*log, _ENTRIES)
            for entry in entries:
                machine.read(entry)
            machine.send_watermark()
        if not frames and not entries:
            return False
        await self._commit(taken)
        if isinstance(machine, Split):
            await self._trim(machine)
        return True

    async def _commit(self, taken: Mapping[str, str]) -> None:
        machine = self._machine
        record = {name: orjson.dumps(each) for name, each in machine.record().items()}
        changed: dict[str, bytes | None] = {
            name: text for name, text in record.items() if self._written.get(name) != text
        }
        changed |= dict.fromkeys(self._written.keys() - record.keys())
        results = machine.results if isinstance(machine, Worker) else []
        emitted = [_emitted(each) for each in results]
        commit = Commit(self._address, self._steps + 1, taken, machine.outbox, changed, emitted)
        await self._store.commit(commit)
        self._steps += 1
        self._written = record
        machine.outbox.clear()
        results.clear()

    async def _log(self, relation: str) -> list[LogEntry]:
        found: list[LogEntry] = []
        while True:
            page = await self._store.log(relation, found[-1].number if found else 0, _PAGE)
            found += page
            if len(page) < _PAGE:
                return found

    async def _trim(self, split: Split) -> None:
        """Drop what no window reaches any more, at any worker.

        Not while tuples are buffered: then a group may be on its way, which its next owner has to
        be able to make anew.
        """
        if split.position - self._trimmed < _TRIM_EVERY or split.is_buffering:
            return
        self._trimmed = split.position
        horizons = await self._store.field(self._cluster.layout.workers, "horizon_s")
        if None not in horizons:
            await self._store.trim(split.relation, min(horizons))

    def _new(self) -> Split | Worker | Manager:
        if self._address == MANAGER:
            return self._cluster.manager()
        if self._address in self._cluster.layout.workers:
            return self._cluster.worker(self._address)
        _, _, relation = self._address.partition(":")
        return self._cluster.split(relation)


def _emitted(result: Result) -> dict[str, Any]:
    """Return a result as JSON, with the number of each tuple, which says which one it is."""
    numbers = {
        name: each.number for name, each in result.tuples.items() if isinstance(each, NumberedTuple)
    }
    return {**result.to_json(), "numbers": numbers}
