"""Writes that nobody ended: what stands of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mediator.guard import guard_key
from mediator.operations.calls import StoreCalls
from mediator.placement.routing import ClassRoute, RoutingModel
from mediator.stores.port import Fragment, Read

__all__ = ["Settlement"]


class Settlement:
    """Finds out what an orphaned write came to.

    Args:
        calls: Sends store calls.
        model: Returns the routing model in force.
    """

    def __init__(self, calls: StoreCalls, model: Callable[[], RoutingModel]) -> None:
        self._calls = calls
        self._model = model

    async def settle(self, database: str, keys: Sequence[str], token: str) -> dict[str, int]:  # noqa: ARG002 - names what is to be fenced
        """Return the versions that stand, by guard key; what is not there any more has none.

        Raises:
            Unavailable: A system does not answer.
        """
        reads = self._reads(database, keys)
        records = await self._calls.read(reads) if reads else []
        return {
            guard_key(read.fragment.class_name, read.id, group): version
            for read, record in zip(reads, records, strict=True)
            if record is not None
            for group, version in record.versions.items()
        }

    def _reads(self, database: str, keys: Sequence[str]) -> list[Read]:
        route = self._model().databases.get(database)
        wanted: dict[tuple[Fragment, str], Read] = {}
        for key in keys if route else ():
            class_name, _, rest = key.partition("/")
            id_, _, group = rest.rpartition("#")
            fragment = _holder(route.classes.get(class_name), group) if route else None
            if fragment is not None:
                wanted[fragment, id_] = Read(fragment, id_, ())
        return list(wanted.values())


def _holder(route: ClassRoute | None, group: str) -> Fragment | None:
    if route is None:
        return None
    return next((f for f in route.fragments if group in f.groups), None)
