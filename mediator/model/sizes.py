"""Estimated sizes of values in memory: characters of texts, bytes, and a little for all else.

They are computed without encoding, and only of fields that may be large.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any, Final

from mediator.base.offload import offload
from mediator.schema.tree import Field
from mediator.schema.types import SCALARS, FieldType

__all__ = ["large_fields", "sizes_of"]

_SMALL: Final = 1_000
"""Characters or bytes up to which a value counts as small."""

_SCALAR: Final = 8

_TEXTS: Final = frozenset({FieldType.STRING, FieldType.BINARY})

_MAX_INLINE: Final = 5_000
"""Elements of lists, maps and documents that are counted in about a millisecond."""


def large_fields(fields: Mapping[str, Field], names: Iterable[str] | None) -> tuple[str, ...]:
    """Return the fields among `names` (None: among all) whose values may be large."""
    candidates = fields.keys() if names is None else names
    return tuple([name for name in candidates if name in fields and _may_be_large(fields[name])])


def _may_be_large(field: Field) -> bool:
    if field.type not in SCALARS:
        return True
    is_text = field.type in _TEXTS and not field.enum
    return is_text and (field.max_length is None or field.max_length > _SMALL)


async def sizes_of(objects: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[int]:
    """Return the sizes in memory, in bytes, of the values of objects under some names."""
    if not names:
        return [0] * len(objects)
    sizes = _sizes(objects, names, _MAX_INLINE)
    if sizes is None:
        sizes = await offload(True, _sizes, objects, names, inf)
        assert sizes is not None  # no number of elements is too many
    return sizes


def _sizes(
    objects: Sequence[Mapping[str, Any]], names: Sequence[str], max_elements: float
) -> list[int] | None:
    """Return the sizes of objects; None: their values have more than `max_elements` elements."""
    sizes = []
    for object_values in objects:
        size, pending = 0, []
        for name in names:
            value = object_values.get(name)
            if type(value) is str:  # as most are
                size += len(value)
            elif value is not None:
                pending.append(value)
        while pending:
            value = pending.pop()
            if isinstance(value, str | bytes):
                size += len(value)
                continue
            if not isinstance(value, list | dict):
                size += _SCALAR
                continue
            max_elements -= len(value)
            if max_elements < 0:
                return None
            pending += value
            if isinstance(value, dict):
                pending += value.values()
        sizes.append(size)
    return sizes
