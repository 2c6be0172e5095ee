"""The shape of a write: what its statement depends on, and nothing of its values.

Writes of one shape on one fragment share a statement. Shapes are hashable, so that statements can
be kept in a bounded cache.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from mediator.model.operators import Operator
from mediator.stores.port import Fragment, StoreRefused, Write, WriteKind
from mediator.stores.postgres.codec import Codec

__all__ = ["WriteShape", "check", "encoded", "shape_of"]


class WriteShape(NamedTuple):
    """What the statement of a write depends on."""

    fragment: Fragment
    kind: WriteKind
    groups: tuple[str, ...]
    values: tuple[str, ...]
    unset: tuple[str, ...]
    operators: tuple[tuple[str, Operator], ...]
    expect: tuple[str, ...]
    require_present: bool
    creation_version: bool
    remember: bool
    returning: tuple[str, ...] | None
    has_token: bool
    has_intent: bool

    @property
    def whole(self) -> bool:
        """Whether the write makes the record exactly what it says."""
        return self.kind in (WriteKind.CREATE, WriteKind.REPLACE)

    @property
    def touched(self) -> tuple[str, ...]:
        """The fields that the write may change."""
        if self.kind is not WriteKind.UPDATE:
            return tuple(self.fragment.fields)
        return (*self.values, *self.unset, *(name for name, _ in self.operators))


def shape_of(call: Write, token: str) -> WriteShape:
    """Return the shape of a write."""
    fragment, whole = call.fragment, call.kind is not WriteKind.UPDATE
    return WriteShape(
        fragment,
        call.kind,
        tuple(fragment.groups) if whole else call.groups,
        () if whole else tuple(call.values),
        call.unset,
        tuple([(operator.field, operator.operator) for operator in call.operators]),
        tuple(call.expect),
        call.require_present,
        call.creation_version is not None,
        call.remember is not None,
        tuple(fragment.fields) if call.returning == () else call.returning,
        bool(token),
        bool(call.intent),
    )


def check(shape: WriteShape) -> None:
    """Refuse unknown names: they would become part of a statement."""
    fragment = shape.fragment
    fields = {*shape.touched, *(shape.returning or ())}
    groups = {*shape.groups, *shape.expect}
    if fields - fragment.fields.keys() or groups - fragment.groups.keys():
        raise StoreRefused(f"{fragment.system}: a write names a field or group that is not there")


def encoded(codec: Codec, value: Any) -> Any:
    """Return what asyncpg takes for a value."""
    return value if value is None or codec.encode is None else codec.encode(value)
