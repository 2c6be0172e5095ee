"""Prepared writes: the arguments that writes of one kind share are packed once.

Writes that agree in kind, groups, fields and operators have one prepared write: its *shape* is
constant, and each write adds a *row*. A call of a script has one shape; for ``write.lua``::

    shape  kind, [names: creation version and versions of all groups], [groups written], [groups
           expected], flags (remembers, given creation version, must exist, has collections,
           returns, has a token, has an intent, changes claims), [names returned] if it returns,
           [unique constraints] if it changes claims, number of changes, then for each change:
           field, group, code, limit, arity (0, 1 or n)
    row    id, operation, token?, intent?, fingerprint?, creation version?, expected versions...,
           claims..., arguments of the changes...

``[list]`` is a count and so many texts; a group stands as its position among the names, from 1.
A change's code says what becomes of the field (scripts/operators.lua). Updates that ``update.lua``
can do go there, with a shape that it describes: it takes a fifth of the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from mediator.model.operators import Operator, OperatorCall
from mediator.schema.types import FieldType
from mediator.stores.port import Write, WriteKind
from mediator.stores.redis.layout import RETENTION_MS, TOMBSTONE_MS, Layout
from mediator.stores.redis.scripts import UPDATE, WRITE
from mediator.stores.redis.write.arguments import (
    AddArgument,
    FieldChange,
    Row,
    absence,
    change_of_operator,
    change_of_value,
    listed,
)
from redis_connection.commands import arguments
from redis_connection.scripts import Script

__all__ = ["MOST_ENTRIES", "PreparedWrite", "opening", "prepare"]

MOST_ENTRIES: Final = 1_000_000
"""About how many entries an outbox keeps; beyond, the oldest go, relayed or not."""

_OPERATION = attrgetter("field", "operator")
_LIMITS = (TOMBSTONE_MS, RETENTION_MS, MOST_ENTRIES)

_MOST_PREPARED: Final = 4096
_SAFE_DIGITS: Final = 15

_MOST_CHANGES: Final = 100
"""Changes of one update on the fast path: Lua's stack holds them with ease."""


@dataclass(frozen=True, slots=True)
class PreparedWrite:
    """What writes that differ in ids and arguments alone have in common.

    Attributes:
        script: The script that does them.
        shape: The packed arguments that say what they are.
        size: How many arguments those are.
        of_values: What adds the argument of each field that is set.
        of_operators: What adds the argument of each operator.
        claims: The unique constraints whose claims it changes.
        returned: Fields whose values `UPDATE` returns.
    """

    script: Script
    shape: bytes
    size: int
    of_values: tuple[tuple[str, AddArgument], ...]
    of_operators: tuple[AddArgument, ...]
    claims: tuple[str, ...] = ()
    returned: tuple[str, ...] = ()

    def add(self, rows: Row, write: Write, token: str) -> None:
        """Add the row of a write, under a token if those of `prepare` have one."""
        rows += (write.id, write.operation)
        if token:
            rows.append(token)
        if write.intent:
            rows.append(write.intent)
        if write.remember is not None:
            rows.append(write.remember)
        if write.creation_version is not None:
            rows.append(write.creation_version)
        if write.expect:
            rows.extend(write.expect.values())
        for constraint in self.claims:
            rows.append(write.claims.get(constraint) or "")
        for name, add_argument in self.of_values:
            add_argument(rows, write.values[name])
        for add_argument, call in zip(self.of_operators, write.operators, strict=True):
            add_argument(rows, call.argument)


def opening(layout: Layout, partition: int, script: Script) -> tuple[int, bytes]:
    """Return the number of words and the bytes that calls of a script begin with."""
    known = layout.openings.get((script.sha, partition))
    if known is not None:
        return known
    keys: tuple[str, ...] = (layout.prefixes[partition], layout.outboxes[partition])
    if layout.constraints and script is WRITE:
        keys += (layout.claims_key,)
    words: tuple[Any, ...] = ("EVALSHA", script.sha, len(keys), *keys)
    words += (MOST_ENTRIES,) if script is UPDATE else (layout.what, *_LIMITS)
    packed = layout.openings[script.sha, partition] = (len(words), arguments(*words))
    return packed


def prepare(layout: Layout, write: Write, *, has_token: bool) -> PreparedWrite:
    """Return the prepared write that a write belongs to, prepared when it is first seen."""
    key = _key(layout, write, has_token)
    latest: tuple[Any, PreparedWrite] = layout.latest_prepared
    if latest[0] == key:
        return latest[1]  # the hash of a key takes longer than to compare it
    prepared: PreparedWrite | None = layout.prepared.get(key)
    if prepared is None:
        if len(layout.prepared) >= _MOST_PREPARED:
            layout.prepared.clear()
        prepared = layout.prepared[key] = _prepare(layout, write, has_token)
    layout.latest_prepared = key, prepared
    return prepared


def _key(layout: Layout, write: Write, has_token: bool) -> Any:
    return (
        None if write.kind is WriteKind.UPDATE else write.kind,  # the hash of a member is slow
        write.groups,
        # In their order, in which a row has the arguments.
        tuple(write.values),
        _collections(layout, write) if layout.collections and write.values else (),
        write.unset,
        tuple(map(_OPERATION, write.operators)),
        tuple(write.expect),
        write.remember is None,
        write.creation_version is None,
        write.require_present,
        write.returning,
        has_token,
        bool(write.intent),
        tuple(write.claims),
    )


def _collections(layout: Layout, write: Write) -> tuple[str, ...]:
    """Name the collections that are set to something."""
    return tuple([name for name in layout.collections if write.values.get(name) is not None])


def _prepare(layout: Layout, write: Write, has_token: bool) -> PreparedWrite:
    fields = layout.fragment.fields
    values = [change_of_value(fields[name], write.values[name]) for name in write.values]
    operators = [change_of_operator(fields[call.field], call) for call in write.operators]
    of_values = tuple((change.field, change.add_argument) for change in values)
    of_operators = tuple(change.add_argument for change in operators)
    changes = [*values, *operators]
    claims, returned = _claims(layout, write), write.returning or ()
    if _is_fast(layout, write, changes):
        shape = _fast_shape(layout, write, changes, has_token)
        packed = arguments(*shape)
        return PreparedWrite(UPDATE, packed, len(shape), of_values, of_operators, (), returned)
    changes += map(absence, _absent(layout, write))
    shape = _shape(layout, write, changes, claims, has_token)
    return PreparedWrite(WRITE, arguments(*shape), len(shape), of_values, of_operators, claims)


def _claims(layout: Layout, write: Write) -> tuple[str, ...]:
    """Name the unique constraints whose claims a write changes."""
    return tuple(write.claims) if write.kind is WriteKind.UPDATE else layout.constraints


def _shape(
    layout: Layout,
    write: Write,
    changes: Sequence[FieldChange],
    claims: tuple[str, ...],
    has_token: bool,
) -> tuple[Any, ...]:
    position = layout.positions
    has_collections = any(change.field in layout.collections for change in changes)
    return (
        write.kind.name.lower(),
        *listed(layout.head),
        *listed([position[group] for group in write.groups]),
        *listed([position[group] for group in write.expect]),
        _flags(write, has_collections, has_token, bool(claims)),
        *(() if write.returning is None else listed(write.returning)),
        *(listed(claims) if claims else ()),
        len(changes),
        *(text for change in changes for text in _described(layout, change)),
    )


def _is_fast(layout: Layout, write: Write, changes: Sequence[FieldChange]) -> bool:
    """Whether `UPDATE` can do it."""
    touched = {change.field for change in changes}
    return (
        write.kind is WriteKind.UPDATE
        and 0 < len(changes) <= _MOST_CHANGES
        and not (write.unset or write.expect or write.intent or write.claims)
        and write.remember is None
        and write.creation_version is None
        and write.returning != ()
        and touched.issuperset(write.returning or ())
        and touched.isdisjoint(layout.collections)
        and all(_is_sum(layout, call) for call in write.operators)
        and all(map(_has_short_bounds, changes))
    )


def _is_sum(layout: Layout, call: OperatorCall) -> bool:
    integer = layout.fragment.fields[call.field].type is FieldType.INTEGER
    return integer and call.operator is Operator.INC


def _has_short_bounds(change: FieldChange) -> bool:
    """Whether the script compares with the bounds exactly, though as doubles."""
    return all(len(bound) <= _SAFE_DIGITS for bound in str(change.limit).split())


def _fast_shape(
    layout: Layout, write: Write, changes: Sequence[FieldChange], has_token: bool
) -> tuple[Any, ...]:
    touched, position = [change.field for change in changes], layout.positions
    returned = [touched.index(name) + 1 for name in write.returning or ()]
    sizes = (len(layout.groups), len(changes), len(write.groups), len(returned))
    return (
        *sizes,
        # The arguments of a row before those of its changes: id, operation, token.
        3 if has_token else 2,
        *layout.head,
        *touched,
        "!m",
        *(change.code for change in changes),
        *(position[layout.group_of[name]] for name in touched),
        *(f"-{name}" for name in touched),
        *(f"+{name}" for name in touched),
        *(change.limit for change in changes),
        *(position[group] for group in write.groups),
        *(f"{layout.what}/{group}/update" for group in write.groups),
        *returned,
    )


def _absent(layout: Layout, write: Write) -> Iterable[str]:
    if write.kind is WriteKind.UPDATE:
        return write.unset
    return (name for name in layout.fragment.fields if name not in write.values)


def _flags(write: Write, has_collections: bool, has_token: bool, has_claims: bool) -> str:
    flags = (
        write.remember is not None,
        write.creation_version is not None,
        write.require_present,
        has_collections,
        write.returning is not None,
        has_token,
        bool(write.intent),
        has_claims,
    )
    return "".join("1" if flag else "0" for flag in flags)


def _described(layout: Layout, change: FieldChange) -> tuple[Any, ...]:
    group = layout.positions[layout.group_of[change.field]]
    return (change.field, group, change.code, change.limit, change.arity)
