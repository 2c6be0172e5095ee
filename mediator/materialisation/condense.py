"""Condensing changes: however often an object was changed, it is to be copied once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from mediator.model.change import Change
from mediator.routing.model import ClassRoute

__all__ = ["Work", "condense"]


@dataclass(slots=True)
class Work:
    """What changes of one class have left to be done at its copy.

    Attributes:
        dead: The versions at which objects died, by id. They are forgotten first: a later
            generation, which has a later creation version, is spared by that.
        dirty: Ids of objects that may have to be copied, in the order of their first changes.
    """

    dead: dict[str, int] = field(default_factory=dict)
    dirty: dict[str, None] = field(default_factory=dict)

    def add(self, change: Change, anchored: Mapping[str, object]) -> None:
        """Add a change; `anchored` are the groups that decide whether an object is there."""
        if change.kind == "delete" and change.group in anchored:
            self.dead[change.object_id] = max(
                change.version, self.dead.get(change.object_id, change.version)
            )
        else:
            self.dirty[change.object_id] = None


def condense(
    pages: Iterable[Iterable[Change]], routes: Mapping[str, ClassRoute]
) -> dict[str, Work]:
    """Say what changes have left to be done, by class; of classes that have a copy."""
    work: dict[str, Work] = {}
    for change in _all(pages):
        route = routes.get(change.class_name)
        if route is not None and route.copy is not None:
            work.setdefault(change.class_name, Work()).add(change, route.anchor.groups)
    return work


def _all(pages: Iterable[Iterable[Change]]) -> Iterator[Change]:
    for page in pages:
        yield from page
