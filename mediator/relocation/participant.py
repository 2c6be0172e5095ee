"""A participant of a cluster in a process: takes messages, handles them, and commits the step."""

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

_STEP_ENTRIES: Final = 500
"""Entries of a log that a split reads in a step."""

_RESTORE_PAGE: Final = 5_000
"""Entries of a log read at once to restore a state."""

_MAX_WAITING: Final = 64
"""Frames in a queue at which a split stops reading."""

_WAIT_S: Final = 1.0
_RETRY_S: Final = 0.05
_RESTART_S: Final = 1.0
"""Delay after Redis did not respond, or another process was ahead with the same participant."""

_TRIM_INTERVAL: Final = 1_000
"""In entries."""


def addresses(cluster: Cluster) -> list[str]:
    """Return the participants that some process must run."""
    splits = [split_address(name) for name in cluster.layout.attributes]
    return [MANAGER, *splits, *cluster.layout.workers]


class Participant:
    """Runs a split, a worker or the manager; only its commits are durable."""

    def __init__(self, store: ClusterStore, cluster: Cluster, address: str) -> None:
        self._store = store
        self._cluster = cluster
        self._address = address
        self._machine = self._create_machine()
        self._senders = [sender for sender in [*addresses(cluster), OPERATOR] if sender != address]
        self._steps = 0
        self._committed: dict[str, bytes] = {}
        self._trimmed = 0

    async def run(self, stopping: asyncio.Event) -> None:
        """Execute steps until the event is set; raises `ClusterGone`."""
        while not stopping.is_set():
            try:
                await self.begin()
                while not stopping.is_set():
                    await self.step()
            except (TakenOver, Unavailable):
                # It is unknown whether the last step was committed: the record tells.
                await asyncio.sleep(_RESTART_S)

    async def begin(self) -> None:
        """Continue from the last commit."""
        self._steps, record = await self._store.recorded(self._address)
        self._machine = machine = self._create_machine()
        if record:
            match machine:
                case Split():
                    machine.restore(record, await self._log(machine.relation))
                case Worker():
                    relations = self._cluster.layout.attributes
                    machine.restore(record, {name: await self._log(name) for name in relations})
                case Manager():
                    machine.restore(record)
        self._committed = {name: orjson.dumps(value) for name, value in record.items()}

    async def step(self, wait_s: float = _WAIT_S) -> bool:
        """Handle available messages and entries, waiting for some; return whether there were any.

        Raises:
            TakenOver: Another process runs this participant and is ahead.
        """
        machine = self._machine
        log = None
        if isinstance(machine, Split):
            # The split waits for workers that are behind; the log keeps arriving tuples.
            workers = self._cluster.layout.workers
            if await self._store.waiting(self._address, workers) < _MAX_WAITING:
                log = (machine.relation, machine.position)
            else:
                wait_s = _RETRY_S
        frames = await self._store.frames(self._address, self._senders, log, wait_s)
        positions = {}
        for frame in frames:
            for message in frame.messages:
                machine.handle(message)
            positions[frame.sender] = frame.position
        entries: list[LogEntry] = []
        if isinstance(machine, Split) and log is not None:
            entries = await self._store.log(*log, _STEP_ENTRIES)
            for entry in entries:
                machine.read(entry)
            machine.send_watermark()
        if not frames and not entries:
            return False
        await self._commit(positions)
        if isinstance(machine, Split):
            await self._trim(machine)
        return True

    async def _commit(self, positions: Mapping[str, str]) -> None:
        machine = self._machine
        record = {name: orjson.dumps(value) for name, value in machine.record().items()}
        changes: dict[str, bytes | None] = {
            name: text for name, text in record.items() if self._committed.get(name) != text
        }
        changes |= dict.fromkeys(self._committed.keys() - record.keys())
        results = machine.results if isinstance(machine, Worker) else []
        documents = [_encode_result(result) for result in results]
        commit = Commit(
            self._address, self._steps + 1, positions, machine.outbox, changes, documents
        )
        await self._store.commit(commit)
        self._steps += 1
        self._committed = record
        machine.outbox.clear()
        results.clear()

    async def _log(self, relation: str) -> list[LogEntry]:
        entries: list[LogEntry] = []
        while True:
            page = await self._store.log(
                relation, entries[-1].number if entries else 0, _RESTORE_PAGE
            )
            entries += page
            if len(page) < _RESTORE_PAGE:
                return entries

    async def _trim(self, split: Split) -> None:
        """Drop log entries that no window reaches any more, at any worker.

        Not while tuples are buffered: then a group may be in transit, which its next owner must be
        able to recompute.
        """
        if split.position - self._trimmed < _TRIM_INTERVAL or split.is_buffering:
            return
        self._trimmed = split.position
        horizons = await self._store.field(self._cluster.layout.workers, "horizon_s")
        if None not in horizons:
            await self._store.trim(split.relation, min(horizons))

    def _create_machine(self) -> Split | Worker | Manager:
        if self._address == MANAGER:
            return self._cluster.manager()
        if self._address in self._cluster.layout.workers:
            return self._cluster.worker(self._address)
        _, _, relation = self._address.partition(":")
        return self._cluster.split(relation)


def _encode_result(result: Result) -> dict[str, Any]:
    """Return a result as JSON, with the tuples' numbers, which identify it."""
    numbers = {
        name: item.number for name, item in result.tuples.items() if isinstance(item, NumberedTuple)
    }
    return {**result.to_json(), "numbers": numbers}
