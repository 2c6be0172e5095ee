"""The connections of a port: how many there may be, and how long each may keep us waiting.

Nothing is timed while requests go by. Once a second a sweep looks at what each connection
waits for; what has not changed for too many sweeps in a row has come to nothing. A process that
stood still itself sweeps less often, and so blames no client for it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias

from mediator.base.periodic_tasks import PeriodicTask

__all__ = ["BODY_PROGRESS", "Awaited", "Connections", "PortConnection", "PortLimits", "Wait"]

BODY_PROGRESS: Final = 4096
"""Bytes of a body that have to come within its timeout, unless it ends before."""

_SWEEP_EVERY_S: Final = 1.0

Wait: TypeAlias = Literal["head", "body", "response", "idle"]
"""What is waited for: the rest of a head, the rest of a body, that a response is taken, or another
request after the last answer."""

Awaited: TypeAlias = tuple[Wait, int]
"""What is waited for, and a number that changes with every progress."""


@dataclass(frozen=True, slots=True)
class PortLimits:
    """Bounds of one port.

    Attributes:
        head: Seconds in which the head of a request has to come to its end.
        body: Seconds in which `BODY_PROGRESS` bytes of a body have to come, or its end.
        response: Seconds in which something of a response has to be taken.
        connections: Connections at the same time.
        per_peer: Connections from one address at the same time; None: as many as there are.
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
    """A connection, as a sweep sees it."""

    def awaited(self) -> Awaited | None:
        """Return what it waits for; None: for nothing, or it is us who keep the client waiting."""

    def time_out(self, wait: Wait) -> None:
        """End it, as what it waits for does not come."""


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
                seen, sweeps = before.get(connection, (awaited, 0))
                self._count(connection, awaited, sweeps + 1 if seen == awaited else 1)

    def _count(self, connection: PortConnection, awaited: Awaited, sweeps: int) -> None:
        # More than: only then have so many seconds passed, as the first sweep came at some moment.
        if sweeps > self.limits.timeout(awaited[0]):
            connection.time_out(awaited[0])
        else:
            self._sweeps[connection] = awaited, sweeps

    def periodic_task(self) -> PeriodicTask:
        return PeriodicTask("ending connections that wait too long", _SWEEP_EVERY_S, self._swept)

    async def _swept(self) -> None:
        self.sweep()
