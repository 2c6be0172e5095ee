"""Compaction of changes: however often an object was changed, it is copied once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from mediator.model.change import Change
from mediator.routing.model import ClassRoute

__all__ = ["PendingCopies", "compact_changes"]


@dataclass(slots=True)
class PendingCopies:
    """What has to be done at the copy of one class.

    Attributes:
        deleted: The versions of deletions, by id. These copies are removed first: an object created
            anew has a later creation version, so its copy stays.
        dirty: Ids of objects that may have to be copied, in the order of their first changes.
    """

    deleted: dict[str, int] = field(default_factory=dict)
    dirty: dict[str, None] = field(default_factory=dict)

    def add(self, change: Change, anchored: Mapping[str, object]) -> None:
        """Add a change; `anchored` are the groups that decide whether an object exists."""
        if change.kind == "delete" and change.group in anchored:
            self.deleted[change.object_id] = max(
                change.version, self.deleted.get(change.object_id, change.version)
            )
        else:
            self.dirty[change.object_id] = None


def compact_changes(
    pages: Iterable[Iterable[Change]], routes: Mapping[str, ClassRoute]
) -> dict[str, PendingCopies]:
    """Return what has to be copied and removed, by class; of classes that have a copy."""
    work: dict[str, PendingCopies] = {}
    for change in _all(pages):
        route = routes.get(change.class_name)
        if route is not None and route.copy is not None:
            work.setdefault(change.class_name, PendingCopies()).add(change, route.anchor.groups)
    return work


def _all(pages: Iterable[Iterable[Change]]) -> Iterator[Change]:
    for page in pages:
        yield from page
