"""Admission of writes: refused for classes that are being placed anew, and without a lease."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from math import inf
from typing import Final
from weakref import WeakSet

from mediator.base.clock import Clock
from mediator.base.errors import OutcomeUnknown, Unavailable
from mediator.stores.port import Fragment

__all__ = ["WriteAdmission"]

_NO_LEASE: Final = (
    "This replica has not reached the catalogue for so long that it may not write; try another one."
)


class WriteAdmission:
    """Admits the writes of this replica.

    A write over several systems is admitted as a whole: once begun, it may end.

    Attributes:
        lease_until: The monotonic time until which this replica may write; see
            `mediator.control.membership`.
        refused: The fragments that take no writes.
    """

    def __init__(self, clock: Clock) -> None:
        self.lease_until = inf
        self._clock = clock
        # Weak: a fragment refused for good goes with the last route that has it.
        self.refused = WeakSet[Fragment]()
        self._busy: dict[Fragment, int] = {}
        self._joint: dict[str, Collection[Fragment]] = {}
        self._left = asyncio.Event()

    def refuse(self, fragments: Collection[Fragment]) -> None:
        """Refuse further writes to fragments, for good unless they are admitted again."""
        self.refused.update(fragments)

    def admit(self, fragments: Collection[Fragment]) -> None:
        """Admit writes to fragments again: they were not placed anew."""
        self.refused.difference_update(fragments)

    def refusal_of(self, fragment: Fragment, intent: str = "") -> Unavailable | None:
        """Return the error of a write to a fragment that refuses writes; None if admitted.

        The steps of a joint write, which have its `intent`, are admitted once it has begun.
        """
        if self.refused and fragment in self.refused and intent not in self._joint:
            return Unavailable("The class is being placed anew.", system=fragment.system)
        return None

    def check(self, fragments: Iterable[Fragment], intent: str = "") -> None:
        """Raise `Unavailable` if no write to these fragments may begin."""
        for fragment in fragments if self.refused else ():
            if refusal := self.refusal_of(fragment, intent):
                raise refusal
        if self._clock.monotonic() >= self.lease_until:
            raise Unavailable(_NO_LEASE, system="catalogue")

    def enter(self, fragments: Collection[Fragment], intent: str = "") -> None:
        """Begin a write; raises `Unavailable` if it is refused. Call `leave` when it has ended."""
        self.check(fragments, intent)
        for fragment in fragments:
            self._busy[fragment] = self._busy.get(fragment, 0) + 1

    def begin(self, intent: str, fragments: Collection[Fragment]) -> None:
        """Begin a joint write; raises `Unavailable` if it is refused. Call `end` in any case."""
        self.enter(fragments)
        self._joint[intent] = fragments

    def end(self, intent: str) -> None:
        """End a joint write, if it has begun."""
        if (fragments := self._joint.pop(intent, None)) is not None:
            self.leave(fragments)

    def leave(self, fragments: Collection[Fragment]) -> None:
        for fragment in fragments:
            self._busy[fragment] -= 1
            if not self._busy[fragment]:
                del self._busy[fragment]
        self._left.set()

    def confirm(self) -> None:
        """Raise `OutcomeUnknown` if the lease has ended while a write was under way.

        The class may have been taken for empty, and placed anew, before the write took effect.
        """
        if self._clock.monotonic() >= self.lease_until:
            raise OutcomeUnknown(_NO_LEASE, system="catalogue")

    async def drained(self) -> None:
        """Wait for the writes in flight to refused fragments."""
        while not self._busy.keys().isdisjoint(self.refused):
            # No await between the check and this: a write that leaves afterwards sets it again.
            self._left.clear()
            await self._left.wait()
