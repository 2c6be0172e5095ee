"""Joint writes, over several systems, as the data plane sees them (docs/transactions.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mediator.base.errors import MediatorError
from mediator.model.operations import Outcome, Update, WriteOperation
from mediator.routing.model import ClassRoute
from mediator.stores.port import Status, Write, WriteKind, WriteResult

__all__ = ["JointWrites", "is_joint", "lacks_fragment"]


class JointWrites(Protocol):
    """Carries out writes of objects whose fragments lie on several systems."""

    async def write(self, route: ClassRoute, operation: WriteOperation) -> Outcome:
        """Carry out one write."""

    async def write_each(
        self, operations: Sequence[tuple[ClassRoute, WriteOperation]]
    ) -> list[Outcome | MediatorError]:
        """Carry out writes of different objects of one database; each fails by itself."""


def is_joint(route: ClassRoute, operation: WriteOperation) -> bool:
    """Whether a write, or its condition, concerns several fragments of its object."""
    if len(route.fragments) == 1:
        return False
    if not isinstance(operation, Update) or operation.is_empty:
        return True
    groups = {group for named in operation.condition.versions for group in named}
    names = set(operation.touched)
    concerned = [
        fragment
        for fragment in route.fragments
        if not (names.isdisjoint(fragment.fields) and groups.isdisjoint(fragment.groups))
    ]
    return len(concerned) > 1


def lacks_fragment(route: ClassRoute, write: Write, result: WriteResult) -> bool:
    """Whether an update found no record in a fragment other than the anchor, which decides."""
    return (
        result.status is Status.MISSING
        and write.kind is WriteKind.UPDATE
        and write.fragment is not route.anchor
        and not write.expect
    )
