"""Which writes may be acknowledged only under this replica's lease.

Those that only this replica can relay at first, of classes that have a copy: answers from the copy
state how old it is, and could not know of them.
"""

from __future__ import annotations

from collections.abc import Callable

from mediator.changes.writers import Writers
from mediator.routing.model import RoutingModel
from mediator.stores.port import Fragment, PendingChanges, Store

__all__ = ["LeasedAcknowledging"]


class LeasedAcknowledging:
    """Implements `mediator.operations.calls.Acknowledging`.

    Args:
        writers: This replica's registration.
        model: Returns the routing model in force.
    """

    def __init__(self, writers: Writers, model: Callable[[], RoutingModel]) -> None:
        self._writers = writers
        self._model = model
        self._kinds: dict[type[Store], bool] = {}

    def concerns(self, store: Store, fragment: Fragment) -> bool:
        """Whether a write to a fragment may be acknowledged under the lease only."""
        kind = type(store)
        if kind not in self._kinds:
            self._kinds[kind] = isinstance(store, PendingChanges)
        return self._kinds[kind] and self._has_copy(fragment)

    async def allows(self, fragment: Fragment) -> bool:
        """Whether it may be acknowledged now, or after a short wait."""
        system, database = fragment.system, fragment.database_id
        allowed = self._writers.may_acknowledge(system, database)
        return allowed or await self._writers.wait(system, database)

    def _has_copy(self, fragment: Fragment) -> bool:
        """Whether the class has a copy; one that this replica does not know yet may have."""
        database = self._model().by_id.get(fragment.database_id)
        route = database.classes.get(fragment.class_name) if database else None
        return route is None or route.copy is not None
