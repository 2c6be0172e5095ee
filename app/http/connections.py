"""The connections of a port: their number, and their timeouts.

Requests set no timers. Once a second a sweep checks what each connection waits for, and ends a
connection that made no progress for too many sweeps in a row. A stalled process sweeps less often,
so it does not blame its clients.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias

from mediator.base.periodic_tasks import PeriodicTask

__all__ = ["BODY_PROGRESS", "Awaited", "Connections", "PortConnection", "PortLimits", "Wait"]

BODY_PROGRESS: Final = 4096
"""Bytes of a body that must arrive within its timeout, unless it ends before."""

_SWEEP_EVERY_S: Final = 1.0

Wait: TypeAlias = Literal["head", "body", "response", "idle"]
"""The awaited event: the end of a head or body, the client's reading of a response, or the next
request on an idle connection."""

Awaited: TypeAlias = tuple[Wait, int]
"""The awaited event, and a number that changes with every progress."""


@dataclass(frozen=True, slots=True)
class PortLimits:
    """Bounds of one port.

    Attributes:
        head: Seconds in which the head of a request must be complete.
        body: Seconds in which `BODY_PROGRESS` bytes of a body, or its end, must arrive.
        response: Seconds in which the client must read some of a response.
        connections: Connections at the same time.
        per_peer: Connections from one address at the same time; None: unlimited.
        idle: Seconds that a connection is kept after its last answer.
    """

    head: int = 20
    body: int = 30
    response: int = 60
    connections: int = 4096
    per_peer: int | None = None
    idle: int = 75

    def timeout(self, wait: Wait) -> int:
        seconds: int = getattr(self, wait)
        return seconds


class PortConnection(Protocol):
    """The part of a connection that a sweep uses."""

    def awaited(self) -> Awaited | None:
        """Return what the client must do next; None: nothing, or the client waits for us."""

    def time_out(self, wait: Wait) -> None:
        """End the connection, because the client made no progress."""


class Connections:
    def __init__(self, limits: PortLimits) -> None:
        self.limits = limits
        self._per_peer: Counter[str] = Counter()
        self._open: dict[PortConnection, str] = {}
        self._sweeps: dict[PortConnection, tuple[Awaited, int]] = {}

    def admit(self, connection: PortConnection, peer: str) -> bool:
        """Count a connection, until `leave`; False if there are too many."""
        limits = self.limits
        if len(self._open) >= limits.connections:
            return False
        if limits.per_peer is not None and self._per_peer[peer] >= limits.per_peer:
            return False
        self._open[connection] = peer
        self._per_peer[peer] += 1
        return True

    def leave(self, connection: PortConnection) -> None:
        self._sweeps.pop(connection, None)
        peer = self._open.pop(connection, None)
        if peer is not None:
            self._per_peer[peer] -= 1
            if not self._per_peer[peer]:
                del self._per_peer[peer]

    def sweep(self) -> None:
        before, self._sweeps = self._sweeps, {}
        for connection in tuple(self._open):
            awaited = connection.awaited()
            if awaited is not None:
                previous, sweeps = before.get(connection, (awaited, 0))
                self._count(connection, awaited, sweeps + 1 if previous == awaited else 1)

    def _count(self, connection: PortConnection, awaited: Awaited, sweeps: int) -> None:
        # Greater, not equal: the first sweep can come less than a second after the wait began.
        if sweeps > self.limits.timeout(awaited[0]):
            connection.time_out(awaited[0])
        else:
            self._sweeps[connection] = awaited, sweeps

    def periodic_task(self) -> PeriodicTask:
        return PeriodicTask(
            "ending connections that wait too long", _SWEEP_EVERY_S, self._sweep_async
        )

    async def _sweep_async(self) -> None:
        self.sweep()
