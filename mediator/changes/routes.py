"""What the routing model says of one system: the databases it has a part in, and its fragments."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence

from mediator.placement.routing import RoutingModel
from mediator.stores.port import Fragment

__all__ = ["SystemRoutes"]


class SystemRoutes:
    """The routing model in force, as seen from one system.

    Args:
        system: Name of the system.
        model: Returns the model in force.
        refresh: Looks for a newer one.
    """

    def __init__(
        self,
        system: str,
        model: Callable[[], RoutingModel],
        refresh: Callable[[], Awaitable[object]],
    ) -> None:
        self.system = system
        self._model = model
        self._refresh = refresh
        self._seen: RoutingModel | None = None
        self._found: dict[tuple[str, str], Fragment | None] = {}
        self._databases: list[str] = []

    def fragments(self) -> Iterator[Fragment]:
        """Return what the system holds; copies are not among it."""
        for database in self._model().databases.values():
            for route in database.classes.values():
                yield from (f for f in route.fragments if f.system == self.system)

    def databases(self) -> Sequence[str]:
        """Return the databases that the system has a part in."""
        self._look()
        return self._databases

    def fragment_of(self, database: str, class_name: str) -> Fragment | None:
        """Return what the system holds of a class."""
        model = self._look()
        place = (database, class_name)
        if place not in self._found:
            self._found[place] = self._find(model, database, class_name)
        return self._found[place]

    def _look(self) -> RoutingModel:
        """Return the model in force; of another one than before, find everything anew."""
        model = self._model()
        if model is not self._seen:
            self._seen, self._found = model, {}
            self._databases = sorted({fragment.database for fragment in self.fragments()})
        return model

    def _find(self, model: RoutingModel, database: str, class_name: str) -> Fragment | None:
        found = model.databases.get(database)
        route = found.classes.get(class_name) if found else None
        fragments = route.fragments if route else ()
        return next((f for f in fragments if f.system == self.system), None)

    async def refresh(self) -> None:
        """Look for a newer model: another replica may just have made a class."""
        await self._refresh()
