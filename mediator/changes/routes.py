"""What the routing model says of one system: the databases it has a part in, and its fragments."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence

from mediator.routing.model import RoutingModel
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
        self._found: dict[tuple[str, str], Fragment] = {}
        self._databases: list[str] = []

    def fragments(self) -> Iterator[Fragment]:
        """Return what the system holds; copies are not among it."""
        for database in self._model().databases.values():
            for route in database.classes.values():
                yield from (f for f in route.fragments if f.system == self.system)

    def databases(self) -> Sequence[str]:
        """Return the ids of the databases that the system has a part in."""
        self._look()
        return self._databases

    def fragment_of(self, database_id: str, class_name: str) -> Fragment | None:
        """Return what the system holds of a class."""
        self._look()
        return self._found.get((database_id, class_name))

    def _look(self) -> None:
        """Find everything anew if another model is in force than before."""
        model = self._model()
        if model is not self._seen:
            self._seen = model
            self._found = {(f.database_id, f.class_name): f for f in self.fragments()}
            self._databases = sorted({database_id for database_id, _ in self._found})

    async def refresh(self) -> None:
        """Look for a newer model: another replica may just have made a class."""
        await self._refresh()
