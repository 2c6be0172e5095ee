"""Plans the store calls of an operation: pure functions of the operation and its route.

The systems that a resource or an update touches depend only on names, so they are computed once for
each combination of names.
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

_NO_CLAIMS: Final[Claims] = {}


@immutable
class Steps:
    """The writes of one operation, one for each system that it touches.

    If there are several and they create the object, the first one does; the others need its
    creation version.
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
    """The fragments that a read of an object, or of some of its fields, touches.

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
    """Return what a read of `fields` (None: all) touches; without any, the object's existence."""
    if fields is None:
        all_fragments = tuple((fragment, None) for fragment in route.fragments)
        return ResourceFragments(
            all_fragments, tuple(route.groups), True, _systems(route.fragments)
        )
    touched_fragments = _fragments_of(route, fields)
    fragments = tuple(
        (f, tuple(name for name in fields if name in f.fields)) for f in touched_fragments
    )
    groups = tuple(sorted({route.group_of[name] for name in fields}))
    return ResourceFragments(
        fragments, groups, touched_fragments[0] is route.anchor, _systems(touched_fragments)
    )


def reaching(
    route: ClassRoute, fields: tuple[str, ...] | None, fragment: Fragment
) -> tuple[str, ...] | None:
    """Return fields, with one more if they would not reach a fragment; None: all."""
    if fields is None or any(f is fragment for f, _ in resource_of(route, fields).fragments):
        return fields
    extra = next(iter(fragment.fields), None)
    return None if extra is None else tuple(sorted({*fields, extra}))


def resource_groups(route: ClassRoute, fields: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the cache groups of a resource, in order; all of them without `fields`."""
    return resource_of(route, fields).groups


def plan_read(route: ClassRoute, operation: Get) -> tuple[Read, ...]:
    """Plan one read for each system that has a fragment of the resource; the anchor first."""
    id_ = operation.id
    fragments = resource_of(route, operation.fields).fragments
    return tuple([Read(fragment, id_, fields) for fragment, fields in fragments])


def plan_write(route: ClassRoute, operation: WriteOperation, expect: Mapping[str, int]) -> Steps:
    """Plan the writes of an operation; for a `ReadModifyWrite`, pass the update that it computes.

    `expect` are versions that the groups must have; the first step compares those on its system.
    Joint writes have checked them under their intents.
    """
    match operation:
        case Update():
            writes = _plan_update(route, operation)
        case Create() | Put():
            writes = _plan_whole(route, operation)
        case Delete():
            writes = [_base_write(f, operation, WriteKind.DELETE, {}) for f in route.fragments]
        case _:
            raise TypeError(f"{type(operation).__name__} cannot be planned")
    if expect:
        first_groups = writes[0].fragment.groups
        writes[0] = replace(
            writes[0], expect={g: v for g, v in expect.items() if g in first_groups}
        )
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
    """Return the fragments that hold the named fields, and their changed groups."""
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
    """Add to an update the present values of all fields of the constraints that it touches.

    The object's claims follow from all of them, so they must be unchanged when it is applied: under
    its intents, or on the condition that the versions are the same.
    """
    if not is_partial(route, update):
        return update
    touched = set(update.touched)
    constraints = [set(names) for names in route.schema.unique if touched.intersection(names)]
    added_names = sorted(set[str]().union(*constraints) - touched)
    present = {name: current[name] for name in added_names if name in current}
    missing = tuple(name for name in added_names if name not in current)
    return replace(update, values={**update.values, **present}, unset=(*update.unset, *missing))


def _claims(fragment: Fragment, values: Values, touched: Sequence[str] | None = None) -> Claims:
    """Return the future claims of a record; of an update, only those that it changes."""
    if not fragment.unique:
        return _NO_CLAIMS
    return claims_of(fragment.unique, fragment.fields, values, touched)


def _base_write(
    fragment: Fragment, operation: WriteOperation, kind: WriteKind, values: Values
) -> Write:
    return Write(
        fragment=fragment,
        id=operation.id,
        kind=kind,
        operation=operation.operation,
        groups=tuple(fragment.groups),
        values=values,
        remember=operation.fingerprint,
        claims=_NO_CLAIMS if kind is WriteKind.DELETE else _claims(fragment, values),
    )


def _plan_whole(route: ClassRoute, operation: Create | Put) -> list[Write]:
    if not operation.values.keys() <= route.fragment_of.keys():
        route.require(operation.values)
    if len(route.fragments) == 1:
        return [_conditional_write(route, route.anchor, operation, operation.values)]
    writes = []
    for fragment in route.fragments:
        values = {k: v for k, v in operation.values.items() if k in fragment.fields}
        if fragment is route.anchor:
            writes.append(_conditional_write(route, fragment, operation, values))
        else:
            write = _base_write(fragment, operation, WriteKind.REPLACE, values)
            writes.append(_returning_generated(route, operation, write))
    return writes


def _conditional_write(
    route: ClassRoute, fragment: Fragment, operation: Create | Put, values: Values
) -> Write:
    """Plan the write that checks whether the object may or must exist."""
    present = operation.condition.present
    creates = isinstance(operation, Create) or present is False
    kind = WriteKind.CREATE if creates else WriteKind.REPLACE
    write = _returning_generated(route, operation, _base_write(fragment, operation, kind, values))
    return replace(write, require_present=True) if present and not creates else write


def _returning_generated(route: ClassRoute, operation: Create | Put, write: Write) -> Write:
    """Request values that a retry would generate again, if the reply is remembered."""
    if not (operation.fingerprint and route.codec.generated):
        return write
    names = tuple(name for name in route.codec.generated if name in write.values)
    return replace(write, returning=names) if names else write


def _plan_update(route: ClassRoute, operation: Update) -> list[Write]:
    if operation.is_empty:
        # Write only its reply: the present values of each fragment.
        return [_update_write(f, (), operation, {}, (), ()) for f in route.fragments]
    changes = changed_fragments(route, operation.touched)
    if len(changes) == 1:
        fragment, groups = changes[0]
        values, unset, operators = operation.values, operation.unset, operation.operators
        return [_update_write(fragment, groups, operation, values, unset, operators)]
    return [_update_fragment(fragment, groups, operation) for fragment, groups in changes]


def _update_fragment(fragment: Fragment, groups: tuple[str, ...], operation: Update) -> Write:
    fields = fragment.fields
    values = {k: v for k, v in operation.values.items() if k in fields}
    unset = tuple([k for k in operation.unset if k in fields])
    operators = tuple([call for call in operation.operators if call.field in fields])
    return _update_write(fragment, groups, operation, values, unset, operators)


def _update_write(
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
    """Refuse operators whose results would have to be claimed: only the store knows them.

    Requests that name such a field are refused by the parser; this one was parsed before.

    Raises:
        Conflict: A field has joined a unique constraint meanwhile; the request had no effect.
    """
    unique = frozenset[str]().union(*fragment.unique)
    claimed = sorted(unique.intersection(map(FIELD_OF, operators)))
    if claimed:
        raise Conflict(
            f"{', '.join(claimed)} of {fragment.class_name} no longer takes operators: its schema"
            " was changed meanwhile.",
            locations=[Location(f"/{name}", "is unique now: set its value") for name in claimed],
        )


def _returning(
    operation: Update, values: Values, operators: tuple[OperatorCall, ...]
) -> tuple[str, ...] | None:
    """Request values that only the store knows; and all set ones, if the reply is remembered.

    The reply of an update without changes is the present object.
    """
    if operation.whole or operation.is_empty:
        return ()
    names = tuple(map(FIELD_OF, operators))
    if operation.fingerprint:
        names += tuple(values)
    return names or None
