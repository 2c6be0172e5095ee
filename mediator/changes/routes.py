"""The context of relays in a replica: routes of each system, the replica's name and observer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from mediator.base.clock import Clock
from mediator.base.observation import Observer
from mediator.routing.model import RoutingModel
from mediator.stores.port import Fragment
from mediator.stores.systems import Systems

__all__ = ["RelayContext", "SystemRoutes"]


class SystemRoutes:
    def __init__(
        self,
        system: str,
        model: Callable[[], RoutingModel],
        refresh: Callable[[], Awaitable[object]],
    ) -> None:
        self.system = system
        self._model = model
        self.refresh = refresh
        """Loads a newer model: another replica may have just created a class."""
        self._indexed_model: RoutingModel | None = None
        self._fragments: dict[tuple[str, str], Fragment] = {}
        self._databases: list[str] = []

    def fragments(self) -> Iterator[Fragment]:
        """Yield the fragments on the system, excluding copies."""
        for database in self._model().databases.values():
            for route in database.classes.values():
                yield from (f for f in route.fragments if f.system == self.system)

    def databases(self) -> Sequence[str]:
        self._update_index()
        return self._databases

    def fragment_of(self, database_id: str, class_name: str) -> Fragment | None:
        self._update_index()
        return self._fragments.get((database_id, class_name))

    def _update_index(self) -> None:
        model = self._model()
        # Models are immutable and are only replaced.
        if model is not self._indexed_model:
            self._indexed_model = model
            self._fragments = {(f.database_id, f.class_name): f for f in self.fragments()}
            self._databases = sorted({database_id for database_id, _ in self._fragments})


@dataclass(frozen=True, slots=True)
class RelayContext:
    """The context of all relays of a replica; `routes` returns the routes of a system."""

    systems: Systems
    routes: Callable[[str], SystemRoutes]
    replica: str
    observe: Observer
    clock: Clock
