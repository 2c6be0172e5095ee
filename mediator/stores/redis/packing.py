"""Writes as arguments of the scripts that do them.

Writes of one form (kind, groups, fields, operators) share a *shape*, which is packed once; each
write then adds a *row*. One call of a script has one shape; for ``write.lua``::

    shape  kind, [names: creation version and versions of all groups], [groups written], [groups
           expected], flags (remembers, given creation version, must exist, has collections,
           returns, has a token, has an intent), [names returned] if it returns, number of changes,
           then for each change: field, group, code, limit, arity (0, 1 or n)
    row    id, operation, token?, intent?, fingerprint?, creation version?, expected versions...,
           arguments of the changes...

``[list]`` is a count and so many texts; a group is told by its position among the names, from 1.
A change's code says what becomes of the field (scripts/operators.lua). What ``update.lua`` can do
goes there: it is much quicker.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import attrgetter
from typing import Any

from mediator.model.operators import Operator, OperatorCall
from mediator.schema.types import FieldType
from mediator.stores.port import StoreRefused, Write, WriteKind
from mediator.stores.redis.arguments import (
    Change,
    Pack,
    Row,
    absence,
    change_of_operator,
    change_of_value,
    listed,
)
from mediator.stores.redis.commands import words
from mediator.stores.redis.lua import UPDATE, WRITE, Script
from mediator.stores.redis.plan import REMEMBER_MS, TOMBSTONE_MS, Plan

__all__ = ["MOST_ENTRIES", "Form", "form_of", "pack"]

MOST_ENTRIES = 1_000_000
"""About how many entries an outbox keeps; beyond, the oldest go, relayed or not."""

_OPERATION = attrgetter("field", "operator")
_LIMITS = (TOMBSTONE_MS, REMEMBER_MS, MOST_ENTRIES)

MOST_FORMS = 4096
MOST_WORDS = 1_000_000
"""A Redis server closes the connection on a command of more than 1,048,576 arguments."""

MOST_SIMPLE = 100
"""Changes of one update that `UPDATE` does at most: Lua's stack holds them with ease."""


@dataclass(frozen=True, slots=True)
class Form:
    """What writes of one form have in common.

    Attributes:
        script: The script that does them.
        returned: Fields whose values `UPDATE` answers.
    """

    script: Script
    shape: bytes
    words: int
    of_values: tuple[tuple[str, Pack], ...]
    of_operators: tuple[Pack, ...]
    returned: tuple[str, ...] = ()

    def add(self, rows: Row, write: Write, token: str) -> None:
        """Add what is particular to one write, under the token of the form or without one."""
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
        for name, pack in self.of_values:
            pack(rows, write.values[name])
        for pack, call in zip(self.of_operators, write.operators, strict=True):
            pack(rows, call.argument)


def pack(plan: Plan, partition: int, form: Form, rows: Row) -> bytes:
    """Pack the call that does writes of one form in one partition, in their order."""
    count, opening = _opening(plan, partition, form.script)
    count += form.words + len(rows)
    if count > MOST_WORDS:
        raise StoreRefused("the write has more members than one command of Redis can carry")
    return b"".join((b"*%d\r\n" % count, opening, form.shape, words(*rows)))


def _opening(plan: Plan, partition: int, script: Script) -> tuple[int, bytes]:
    known: tuple[int, bytes] | None = plan.openings.get((script.name, partition))
    if known is not None:
        return known
    keys = (plan.prefixes[partition], plan.outboxes[partition])
    texts: tuple[Any, ...] = ("EVALSHA", script.sha, len(keys), *keys)
    texts += (MOST_ENTRIES,) if script is UPDATE else (plan.what, *_LIMITS)
    made = plan.openings[script.name, partition] = (len(texts), words(*texts))
    return made


def form_of(plan: Plan, write: Write, *, has_token: bool) -> Form:
    """Return the form of a write, made when it is first seen."""
    key = _key(plan, write, has_token)
    latest: tuple[Any, Form] = plan.latest_form
    if latest[0] == key:
        return latest[1]  # the hash of a key takes longer than to compare it
    form: Form | None = plan.forms.get(key)
    if form is None:
        if len(plan.forms) >= MOST_FORMS:
            plan.forms.clear()
        form = plan.forms[key] = _made(plan, write, has_token)
    plan.latest_form = key, form
    return form


def _key(plan: Plan, write: Write, has_token: bool) -> Any:
    return (
        None if write.kind is WriteKind.UPDATE else write.kind,  # the hash of a member is slow
        write.groups,
        tuple(write.values),
        _collections(plan, write) if plan.collections and write.values else (),
        write.unset,
        tuple(map(_OPERATION, write.operators)),
        tuple(write.expect),
        write.remember is None,
        write.creation_version is None,
        write.require_present,
        write.returning,
        has_token,
        bool(write.intent),
    )


def _collections(plan: Plan, write: Write) -> tuple[str, ...]:
    """Name the collections that are set to something."""
    return tuple([name for name in plan.collections if write.values.get(name) is not None])


def _made(plan: Plan, write: Write, has_token: bool) -> Form:
    fields = plan.fragment.fields
    values = [change_of_value(fields[name], write.values[name]) for name in write.values]
    operators = [change_of_operator(fields[call.field], call) for call in write.operators]
    of_values = tuple((change.field, change.pack) for change in values)
    of_operators = tuple(change.pack for change in operators)
    if _is_simple(plan, write, changes := [*values, *operators]):
        shape = _simple_shape(plan, write, changes, has_token)
        returned = write.returning or ()
        return Form(UPDATE, words(*shape), len(shape), of_values, of_operators, returned)
    changes += map(absence, _absent(plan, write))
    shape = _shape(plan, write, changes, has_token)
    return Form(WRITE, words(*shape), len(shape), of_values, of_operators)


def _shape(plan: Plan, write: Write, changes: Sequence[Change], has_token: bool) -> tuple[Any, ...]:
    position = plan.positions
    has_collections = any(change.field in plan.collections for change in changes)
    return (
        write.kind.name.lower(),
        *listed(plan.head),
        *listed([position[group] for group in write.groups]),
        *listed([position[group] for group in write.expect]),
        _flags(write, has_collections, has_token),
        *(() if write.returning is None else listed(write.returning)),
        len(changes),
        *(text for change in changes for text in _described(plan, change)),
    )


def _is_simple(plan: Plan, write: Write, changes: Sequence[Change]) -> bool:
    """Whether `UPDATE` can do it."""
    touched = [change.field for change in changes]
    if write.kind is not WriteKind.UPDATE or not 0 < len(touched) <= MOST_SIMPLE:
        return False
    if (
        write.unset
        or write.expect
        or write.remember is not None
        or write.creation_version is not None
    ):
        return False
    if write.intent:
        return False
    if write.returning == () or not {*(write.returning or ())} <= {*touched}:
        return False
    return plan.collections.isdisjoint(touched) and all(map(_is_sum, write.operators, repeat(plan)))


def _is_sum(call: OperatorCall, plan: Plan) -> bool:
    integer = plan.fragment.fields[call.field].type is FieldType.INTEGER
    return integer and call.operator is Operator.INC


def _simple_shape(
    plan: Plan, write: Write, changes: Sequence[Change], has_token: bool
) -> tuple[Any, ...]:
    touched, position = [change.field for change in changes], plan.positions
    returned = [touched.index(name) + 1 for name in write.returning or ()]
    sizes = (len(plan.groups), len(changes), len(write.groups), len(returned))
    return (
        *sizes,
        3 if has_token else 2,
        *plan.head,
        *touched,
        "!m",
        *(change.code for change in changes),
        *(position[plan.group_of[name]] for name in touched),
        *(f"-{name}" for name in touched),
        *(f"+{name}" for name in touched),
        *(position[group] for group in write.groups),
        *(f"{plan.what}/{group}/update" for group in write.groups),
        *returned,
    )


def _absent(plan: Plan, write: Write) -> Iterable[str]:
    if write.kind is WriteKind.UPDATE:
        return write.unset
    return (name for name in plan.fragment.fields if name not in write.values)


def _flags(write: Write, has_collections: bool, has_token: bool) -> str:
    flags = (
        write.remember is not None,
        write.creation_version is not None,
        write.require_present,
        has_collections,
        write.returning is not None,
        has_token,
        bool(write.intent),
    )
    return "".join("1" if flag else "0" for flag in flags)


def _described(plan: Plan, change: Change) -> tuple[Any, ...]:
    group = plan.positions[plan.group_of[change.field]]
    return (change.field, group, change.code, change.limit, change.arity)
