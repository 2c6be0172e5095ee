"""Planning store calls for an operation: pure functions of the operation and its route.

Which systems a resource or an update touches depends on names only, so it is computed once for each
combination of names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from mediator.base.errors import Conflict, Location
from mediator.base.immutable import immutable
from mediator.model.operations import Create, Delete, Get, Put, Update, WriteOperation
from mediator.model.operators import FIELD_OF, OperatorCall
from mediator.routing.model import ClassRoute
from mediator.schema.types import Values
from mediator.schema.unique import claims_of
from mediator.stores.port import Claims, Fragment, Read, Write, WriteKind

__all__ = [
    "ResourceFragments",
    "Steps",
    "changed_fragments",
    "completed",
    "is_partial",
    "plan_read",
    "plan_write",
    "reaching",
    "resource_groups",
    "resource_of",
]

CACHED_NAMES = 4096

_NOTHING: Final[Claims] = {}


@immutable
class Steps:
    """The writes of one operation, one for each system that it touches.

    Of several, the first one makes the object if that is what they do; the others need its creation
    version.
    """

    first: Write
    rest: tuple[Write, ...] = ()

    @classmethod
    def of(cls, writes: Iterable[Write]) -> Steps:
        first, *rest = writes
        return cls(first, tuple(rest))

    @property
    def all(self) -> tuple[Write, ...]:
        return (self.first, *self.rest) if self.rest else (self.first,)


@dataclass(frozen=True, slots=True)
class ResourceFragments:
    """What a read of an object, or of some of its fields, touches.

    Attributes:
        fragments: The fragments to read, the anchor first, each with its fields (None: all).
        groups: The cache groups of the resource, in order.
        anchored: Whether the anchor is read, so that it decides whether the object exists.
        systems: The systems of the fragments.
    """

    fragments: tuple[tuple[Fragment, tuple[str, ...] | None], ...]
    groups: tuple[str, ...]
    anchored: bool
    systems: tuple[str, ...]


@lru_cache(CACHED_NAMES)
def resource_of(route: ClassRoute, fields: tuple[str, ...] | None) -> ResourceFragments:
    """Find what a read of `fields` touches; without them, or with none, the object's existence."""
    if fields is None:
        whole = tuple((fragment, None) for fragment in route.fragments)
        return ResourceFragments(whole, tuple(route.groups), True, _systems(route.fragments))
    touched = _fragments_of(route, fields)
    fragments = tuple((f, tuple(name for name in fields if name in f.fields)) for f in touched)
    groups = tuple(sorted({route.group_of[name] for name in fields}))
    return ResourceFragments(fragments, groups, touched[0] is route.anchor, _systems(touched))


def reaching(
    route: ClassRoute, fields: tuple[str, ...] | None, fragment: Fragment
) -> tuple[str, ...] | None:
    """Return fields, with one more if reading them would leave a fragment alone; None: all."""
    if fields is None or any(f is fragment for f, _ in resource_of(route, fields).fragments):
        return fields
    more = next(iter(fragment.fields), None)
    return None if more is None else tuple(sorted({*fields, more}))


def resource_groups(route: ClassRoute, fields: tuple[str, ...] | None) -> tuple[str, ...]:
    """Name the cache groups of a resource, in order; all of them without `fields`."""
    return resource_of(route, fields).groups


def plan_read(route: ClassRoute, operation: Get) -> tuple[Read, ...]:
    """Plan one read for each system that has a fragment of the resource; the anchor first."""
    id_ = operation.id
    fragments = resource_of(route, operation.fields).fragments
    return tuple([Read(fragment, id_, fields) for fragment, fields in fragments])


def plan_write(route: ClassRoute, operation: WriteOperation, expect: Mapping[str, int]) -> Steps:
    """Plan the writes of an operation; of a `ReadModifyWrite`, pass the update that it computes.

    `expect` are versions that the groups must have; the first step compares those on its system.
    Joint writes have checked them under their intents.
    """
    match operation:
        case Update():
            writes = _update(route, operation)
        case Create() | Put():
            writes = _whole(route, operation)
        case Delete():
            writes = [_base(f, operation, WriteKind.DELETE, {}) for f in route.fragments]
        case _:
            raise TypeError(f"{type(operation).__name__} cannot be planned")
    if expect:
        here = writes[0].fragment.groups
        writes[0] = replace(writes[0], expect={g: v for g, v in expect.items() if g in here})
    return Steps.of(writes)


def _systems(fragments: Iterable[Fragment]) -> tuple[str, ...]:
    return tuple(fragment.system for fragment in fragments)


def _fragments_of(route: ClassRoute, fields: Sequence[str]) -> tuple[Fragment, ...]:
    route.require(fields)
    holders = {route.fragment_of[name] for name in fields}
    return tuple(f for f in route.fragments if f in holders) or (route.anchor,)


@lru_cache(CACHED_NAMES)
def changed_fragments(
    route: ClassRoute, names: tuple[str, ...]
) -> tuple[tuple[Fragment, tuple[str, ...]], ...]:
    """Find the fragments that hold the named fields, and the groups that change there."""
    fragments = _fragments_of(route, names)
    groups = dict.fromkeys(route.group_of[name] for name in names)
    return tuple(
        (fragment, tuple(group for group in groups if group in fragment.groups))
        for fragment in fragments
    )


def is_partial(route: ClassRoute, update: Update) -> bool:
    """Whether an update touches some, but not all fields of a unique constraint."""
    constraints = route.schema.unique
    if not constraints:
        return False
    touched = set(update.touched)
    return any(0 < len(touched.intersection(names)) < len(names) for names in constraints)


def completed(route: ClassRoute, update: Update, current: Values) -> Update:
    """Add to an update the present values of what else belongs to the constraints that it touches.

    What an object claims follows from all of them, so they must be what they were when it is
    applied: under its intents, or on the condition that the versions are the same.
    """
    if not is_partial(route, update):
        return update
    touched = set(update.touched)
    constraints = [set(names) for names in route.schema.unique if touched.intersection(names)]
    left = sorted(set[str]().union(*constraints) - touched)
    present = {name: current[name] for name in left if name in current}
    missing = tuple(name for name in left if name not in current)
    return replace(update, values={**update.values, **present}, unset=(*update.unset, *missing))


def _claims(fragment: Fragment, values: Values, touched: Sequence[str] | None = None) -> Claims:
    """Return what a record claims from then on; of an update, as far as it changes that."""
    if not fragment.unique:
        return _NOTHING
    return claims_of(fragment.unique, fragment.fields, values, touched)


def _base(fragment: Fragment, operation: WriteOperation, kind: WriteKind, values: Values) -> Write:
    return Write(
        fragment=fragment,
        id=operation.id,
        kind=kind,
        operation=operation.operation,
        groups=tuple(fragment.groups),
        values=values,
        remember=operation.fingerprint,
        claims=_NOTHING if kind is WriteKind.DELETE else _claims(fragment, values),
    )


def _whole(route: ClassRoute, operation: Create | Put) -> list[Write]:
    if not operation.values.keys() <= route.fragment_of.keys():
        route.require(operation.values)
    if len(route.fragments) == 1:
        return [_conditional(route, route.anchor, operation, operation.values)]
    writes = []
    for fragment in route.fragments:
        values = {k: v for k, v in operation.values.items() if k in fragment.fields}
        if fragment is route.anchor:
            writes.append(_conditional(route, fragment, operation, values))
        else:
            write = _base(fragment, operation, WriteKind.REPLACE, values)
            writes.append(_returning_generated(route, operation, write))
    return writes


def _conditional(
    route: ClassRoute, fragment: Fragment, operation: Create | Put, values: Values
) -> Write:
    """Plan the write that checks whether the object may or must exist."""
    present = operation.condition.present
    creates = isinstance(operation, Create) or present is False
    kind = WriteKind.CREATE if creates else WriteKind.REPLACE
    write = _returning_generated(route, operation, _base(fragment, operation, kind, values))
    return replace(write, require_present=True) if present and not creates else write


def _returning_generated(route: ClassRoute, operation: Create | Put, write: Write) -> Write:
    """Request what a retry would generate anew, if the reply is remembered."""
    if not (operation.fingerprint and route.codec.generated):
        return write
    names = tuple(name for name in route.codec.generated if name in write.values)
    return replace(write, returning=names) if names else write


def _update(route: ClassRoute, operation: Update) -> list[Write]:
    if operation.is_empty:
        # Nothing but its answer is written: what each fragment has.
        return [_update_of(f, (), operation, {}, (), ()) for f in route.fragments]
    changed = changed_fragments(route, operation.touched)
    if len(changed) == 1:
        fragment, groups = changed[0]
        values, unset, operators = operation.values, operation.unset, operation.operators
        return [_update_of(fragment, groups, operation, values, unset, operators)]
    return [_update_fragment(fragment, groups, operation) for fragment, groups in changed]


def _update_fragment(fragment: Fragment, groups: tuple[str, ...], operation: Update) -> Write:
    here = fragment.fields
    values = {k: v for k, v in operation.values.items() if k in here}
    unset = tuple([k for k in operation.unset if k in here])
    operators = tuple([call for call in operation.operators if call.field in here])
    return _update_of(fragment, groups, operation, values, unset, operators)


def _update_of(
    fragment: Fragment,
    groups: tuple[str, ...],
    operation: Update,
    values: Values,
    unset: tuple[str, ...],
    operators: tuple[OperatorCall, ...],
) -> Write:
    if operators and fragment.unique:
        _check_claims(fragment, operators)
    return Write(
        fragment,
        operation.id,
        WriteKind.UPDATE,
        operation.operation,
        groups,
        values,
        unset,
        operators,
        remember=operation.fingerprint,
        returning=_returning(operation, values, operators),
        claims=_claims(fragment, values, (*values, *unset)),
    )


def _check_claims(fragment: Fragment, operators: tuple[OperatorCall, ...]) -> None:
    """Refuse operators whose results would have to be claimed: only the store knows these.

    Requests that name such a field are refused when they are read; this one was read before.

    Raises:
        Conflict: A field has become part of a unique constraint meanwhile; nothing was done.
    """
    unique = frozenset[str]().union(*fragment.unique)
    claimed = sorted(unique.intersection(map(FIELD_OF, operators)))
    if claimed:
        raise Conflict(
            f"{', '.join(claimed)} of {fragment.class_name} takes no operators any more: its schema"
            " was changed meanwhile.",
            locations=[Location(f"/{name}", "is unique now: set its value") for name in claimed],
        )


def _returning(
    operation: Update, values: Values, operators: tuple[OperatorCall, ...]
) -> tuple[str, ...] | None:
    """Request what only the store knows; and all that is set, if the reply is remembered.

    Of an update that changes nothing the reply is the object as it is.
    """
    if operation.whole or operation.is_empty:
        return ()
    names = tuple(map(FIELD_OF, operators))
    if operation.fingerprint:
        names += tuple(values)
    return names or None
