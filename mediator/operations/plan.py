"""From an operation to store calls: pure functions of the operation and its class's route."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from mediator.operations.model import Create, Delete, Get, Put, Update, WriteOperation
from mediator.operations.operators import OperatorCall
from mediator.placement.routing import ClassRoute
from mediator.schema.types import Values
from mediator.stores.port import Fragment, Read, Write, WriteKind, WriteResult

__all__ = ["Steps", "plan_read", "plan_write", "resource_groups", "with_birth"]


@dataclass(frozen=True, slots=True)
class Steps:
    """The writes of one operation, one for each system; the first one decides.

    The first step carries every condition. Once it has been applied the others follow without
    conditions, now or when the redo record is rolled forward.
    """

    first: Write
    rest: tuple[Write, ...] = ()

    @property
    def all(self) -> tuple[Write, ...]:
        """Every write, the deciding one first."""
        return (self.first, *self.rest)


def resource_groups(route: ClassRoute, fields: tuple[str, ...] | None) -> tuple[str, ...]:
    """Name the cache groups that a resource shows, in order; all of them without `fields`."""
    if fields is None:
        return tuple(route.groups)
    return tuple(sorted({route.group_of[name] for name in fields}))


def plan_read(route: ClassRoute, operation: Get) -> tuple[Read, ...]:
    """Plan one read for each system that holds a part of the resource; the anchor first."""
    fields = operation.fields
    if fields is None:
        return tuple([Read(fragment, operation.id) for fragment in route.fragments])
    return tuple(
        Read(fragment, operation.id, tuple(name for name in fields if name in fragment.fields))
        for fragment in _touched(route, fields)
    )


def plan_write(route: ClassRoute, operation: WriteOperation, expect: Mapping[str, int]) -> Steps:
    """Plan the writes of an operation.

    Args:
        route: Where the class lives.
        operation: A create, put, update or delete; a revision is planned as the update it computes.
        expect: Versions that the groups of the resource must have.
    """
    match operation:
        case Create() | Put():
            writes = _whole(route, operation)
        case Update():
            writes = _update(route, operation)
        case Delete():
            writes = [_base(f, operation, WriteKind.DELETE) for f in route.fragments]
        case _:
            raise TypeError(f"{type(operation).__name__} cannot be planned")
    first, *rest = writes
    if expect:
        here = {group: v for group, v in expect.items() if group in first.fragment.groups}
        first = replace(first, expect=here)
    if rest and not operation.fingerprint:
        # Rolling forward repeats the steps, so every store must recognise the operation.
        first, *rest = (replace(write, remember="") for write in (first, *rest))
    return Steps(first, tuple(rest))


def with_birth(write: Write, decided: WriteResult) -> Write:
    """Bind a following step to the incarnation that the first step created, kept or ended."""
    if write.kind is WriteKind.UPDATE:
        return write
    return replace(write, birth=decided.birth)


def _touched(route: ClassRoute, fields: Iterable[str]) -> list[Fragment]:
    holders = {id(route.fragment_of[name]) for name in fields}
    return [fragment for fragment in route.fragments if id(fragment) in holders]


def _base(
    fragment: Fragment, operation: WriteOperation, kind: WriteKind, values: Values | None = None
) -> Write:
    return Write(
        fragment=fragment,
        id=operation.id,
        kind=kind,
        operation=operation.operation,
        groups=tuple(fragment.groups),
        values=values or {},
        remember=operation.fingerprint,
        require_present=kind is WriteKind.REPLACE and operation.condition.present is True,
    )


def _whole(route: ClassRoute, operation: Create | Put) -> list[Write]:
    creates = isinstance(operation, Create) or operation.condition.present is False
    first = WriteKind.CREATE if creates else WriteKind.REPLACE
    writes = []
    for fragment in route.fragments:
        kind = first if fragment is route.anchor else WriteKind.REPLACE
        values = {k: v for k, v in operation.values.items() if k in fragment.fields}
        writes.append(_base(fragment, operation, kind, values))
    return writes


def _update(route: ClassRoute, operation: Update) -> list[Write]:
    names = [*operation.values, *operation.unset, *(call.field for call in operation.operators)]
    fragments = _touched(route, names) if len(route.fragments) > 1 else [route.anchor]
    writes = [_update_of(fragment, route, operation) for fragment in fragments or [route.anchor]]
    # What a store may refuse comes first, while nothing has happened yet.
    return sorted(writes, key=lambda write: not write.operators)


def _update_of(fragment: Fragment, route: ClassRoute, operation: Update) -> Write:
    here = fragment.fields
    values = {k: v for k, v in operation.values.items() if k in here}
    unset = tuple([k for k in operation.unset if k in here])
    operators = tuple([call for call in operation.operators if call.field in here])
    touched = (*values, *unset, *[call.field for call in operators])
    groups = tuple(dict.fromkeys([route.group_of[name] for name in touched]))
    return Write(
        fragment=fragment,
        id=operation.id,
        kind=WriteKind.UPDATE,
        operation=operation.operation,
        groups=groups,
        values=values,
        unset=unset,
        operators=operators,
        remember=operation.fingerprint,
        returning=_returning(operation, values, operators),
    )


def _returning(
    operation: Update, values: Values, operators: tuple[OperatorCall, ...]
) -> tuple[str, ...] | None:
    """Ask for what only the store knows; and for everything if the answer is to be remembered."""
    names = [call.field for call in operators]
    if operation.fingerprint:
        names += values
    return tuple(names) if names else None
