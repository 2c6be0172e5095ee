"""The connections of a port: how many there may be, and how long each may keep us waiting.

Nothing is timed while requests go by. Once a second each connection is asked what its client owes
it; what has not changed for too many looks in a row has come to nothing. A process that stood still
itself looks less often, and so blames nobody for it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias

from mediator.control.watch import Duty

__all__ = ["BODY_PROGRESS", "Connection", "Connections", "Limits", "Owed", "Wait"]

BODY_PROGRESS: Final = 4096
"""Bytes of a body that have to come within its timeout, unless it ends before."""

_LOOK_EVERY_S: Final = 1.0

Wait: TypeAlias = Literal["head", "body", "response"]
"""What is waited for: the rest of a head, the rest of a body, or that a response is taken."""

Owed: TypeAlias = tuple[Wait, int]
"""What is waited for, and a number that changes with every progress."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one port.

    Attributes:
        head: Seconds in which the head of a request has to come to its end.
        body: Seconds in which `BODY_PROGRESS` bytes of a body have to come, or its end.
        response: Seconds in which something of a response has to be taken.
        connections: Connections at the same time.
        per_peer: Connections from one address at the same time; None: as many as there are.
    """

    head: int = 20
    body: int = 30
    response: int = 60
    connections: int = 4096
    per_peer: int | None = None

    def of(self, wait: Wait) -> int:
        """Return how many seconds are waited."""
        return {"head": self.head, "body": self.body, "response": self.response}[wait]


class Connection(Protocol):
    """What a connection tells, and does."""

    def owed(self) -> Owed | None:
        """Return what its client owes; None if nothing, or if it is us who keep it waiting."""

    def give_up(self, wait: Wait) -> None:
        """End, as what is waited for does not come."""


class Connections:
    """The connections of a port.

    Args:
        limits: Its bounds.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._of: Counter[str] = Counter()
        self._open: dict[Connection, str] = {}
        self._looks: dict[Connection, tuple[Owed, int]] = {}

    def admit(self, connection: Connection, peer: str) -> bool:
        """Take in a connection, until `leave`; False if there are too many."""
        limits = self.limits
        if len(self._open) >= limits.connections:
            return False
        if limits.per_peer is not None and self._of[peer] >= limits.per_peer:
            return False
        self._open[connection] = peer
        self._of[peer] += 1
        return True

    def leave(self, connection: Connection) -> None:
        """Forget a connection, if it was taken in."""
        self._looks.pop(connection, None)
        peer = self._open.pop(connection, None)
        if peer is not None:
            self._of[peer] -= 1
            if not self._of[peer]:
                del self._of[peer]

    def look(self) -> None:
        """Look at every connection once, and end those whose clients owe too long."""
        before, self._looks = self._looks, {}
        for connection in tuple(self._open):
            owed = connection.owed()
            if owed is not None:
                seen, looks = before.get(connection, (owed, 0))
                self._seen(connection, owed, looks + 1 if seen == owed else 1)

    def _seen(self, connection: Connection, owed: Owed, looks: int) -> None:
        if looks > self.limits.of(owed[0]):
            connection.give_up(owed[0])
        else:
            self._looks[connection] = owed, looks

    def duty(self) -> Duty:
        """Return what is to be done again and again."""
        return Duty("ending connections that owe too long", _LOOK_EVERY_S, self._looked)

    async def _looked(self) -> None:
        self.look()
