"""Settling transactions: applying what is committed, and dropping what will not be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final, Protocol

from mediator.errors import MediatorError, NotFound, OutcomeUnknown, Unavailable
from mediator.operations.calls import StoreCalls
from mediator.operations.marks import Marker
from mediator.operations.model import Get, Outcome
from mediator.placement.routing import ClassRoute, RoutingModel
from mediator.stores.port import Fragment
from mediator.transactions.applying import Applier, dump_outcome, load_work
from mediator.transactions.log import Entry, State, TransactionLog
from mediator.transactions.places import Target, unlock_all
from mediator.transactions.preparing import Work

__all__ = ["Plane", "Settler"]

CATALOGUE_S: Final = 6.0
"""What a lease allows for the catalogue, beside the deadlines of the stores."""

ROUND_TRIPS: Final = 4
"""Round trips to stores, one after the other, that a lease allows for."""

RECOVERED_AT_ONCE: Final = 50
RETRY_S: Final = 1.0


class Plane(Protocol):
    """What transactions need of the plane that carries out single operations."""

    @property
    def model(self) -> RoutingModel:
        """The routing model in force."""

    async def route(self, database: str, class_name: str) -> ClassRoute:
        """Find where a class lives."""

    async def newest(self) -> RoutingModel:
        """Look for a newer routing model."""

    async def read_now(self, route: ClassRoute, operation: Get) -> Outcome:
        """Read one object as the systems hold it now."""

    async def unsettled(self, database: str, class_name: str, ids: Sequence[str]) -> set[str]:
        """Return those of the objects that a write over several systems is under way on."""

    async def remove_copy(self, route: ClassRoute, id_: str, died: int) -> None:
        """Remove the primary's copy of an object that was deleted."""


class Settler:
    """Settles transactions, those of coordinators that have gone included; see `Marks`.

    Args:
        plane: Carries out single operations.
        calls: Sends store calls.
        log: The log of transactions.
    """

    def __init__(self, plane: Plane, calls: StoreCalls, log: TransactionLog) -> None:
        self._plane = plane
        self._systems = calls.systems
        self._log = log
        self.marker = Marker(calls.systems)
        self._applier = Applier(calls, self.marker, plane.remove_copy)

    @property
    def lease_s(self) -> float:
        """More seconds than a live coordinator needs, as a rule."""
        deadlines = [guarded.store.config.deadline_s for guarded in self._systems]
        return CATALOGUE_S + ROUND_TRIPS * max(deadlines, default=0.0)

    async def recover(self) -> int:
        """Settle transactions whose coordinators have gone; returns how many were."""
        entries = await self._log.take(RECOVERED_AT_ONCE, self.lease_s)
        if entries:
            await self._plane.newest()
        settled = 0
        for entry in entries:
            with suppress(MediatorError):
                await self._settle(entry)
                settled += 1
        return settled

    async def take_over(self, mark: str) -> None:
        """Settle a transaction whose lease has passed, unless somebody else does."""
        if claimed := await self._log.claim(mark, self.lease_s):
            await self._plane.newest()
            await self._settle(claimed)

    async def look_after(self, fragment: Fragment, id_: str, mark: str) -> None:
        """See to it that a mark that is over does not stay; see `Marks.look_after`."""
        entry = await self._log.find(mark)
        if entry is None or entry.state in (State.DONE, State.ABORTED):
            await self.marker.unlock(fragment, id_, mark)
        elif entry.overdue:
            await self.take_over(mark)

    async def roll_forward(self, entry: Entry) -> list[Outcome]:
        """Apply what a transaction has committed; returns the outcomes."""
        targets = await self._targets(entry)
        routes = {target.route.schema.name: target.route for target in targets}
        redo = entry.redo or ()
        works = [load_work(routes.get(told["class"]), told, entry.mark) for told in redo]
        return await self.apply(entry.mark, works, targets)

    async def apply(
        self, mark: str, works: Sequence[Work], targets: Sequence[Target]
    ) -> list[Outcome]:
        """Apply committed work, and note that it is done.

        Raises:
            OutcomeUnknown: A system does not answer; the rest follows.
        """
        try:
            outcomes = await self._applier.apply(works, targets, mark)
        except Unavailable as error:
            with suppress(Unavailable):
                if await self.outdated(t.route for t in targets) and (
                    entry := await self._log.find(mark)
                ):
                    return await self.roll_forward(entry)
                await self._log.postpone(mark, RETRY_S)
            detail = "The transaction is committed; its writes follow once all systems answer."
            raise OutcomeUnknown(detail, system=error.system) from error
        # All of it is applied and remembered: an entry left behind is repeated without effect.
        with suppress(Unavailable):
            await self._log.finish(mark, [dump_outcome(outcome) for outcome in outcomes])
        return outcomes

    async def drop(self, mark: str, targets: Sequence[Target]) -> None:
        """Take away the marks of a transaction that will not happen, and forget it."""
        await unlock_all(self.marker, targets, mark)
        await self._log.remove(mark)

    async def abandon(self, entry: Entry, targets: Sequence[Target]) -> None:
        """Drop a transaction that will not happen, wherever its objects live by now."""
        try:
            await self.drop(entry.mark, targets)
        except Unavailable:
            if not await self.outdated(target.route for target in targets):
                raise
            await self.drop(entry.mark, await self._targets(entry))

    async def outdated(self, routes: Iterable[ClassRoute]) -> bool:
        """Whether routes are of an older model than the newest: their places may be gone."""
        databases = (await self._plane.newest()).databases
        for route in routes:
            database = databases.get(route.anchor.database)
            if database is None or database.classes.get(route.schema.name) is not route:
                return True
        return False

    async def _settle(self, entry: Entry) -> None:
        try:
            if entry.state is not State.COMMITTED and await self._log.abort(entry.mark):
                await self.drop(entry.mark, await self._targets(entry))
            elif current := await self._log.find(entry.mark):
                await self.roll_forward(current)
        except Unavailable:
            await self._log.postpone(entry.mark, RETRY_S)
            raise

    async def _targets(self, entry: Entry) -> list[Target]:
        targets = []
        for class_name, id_ in entry.places:
            with suppress(NotFound):
                targets.append(Target(await self._plane.route(entry.database, class_name), id_))
        return targets
