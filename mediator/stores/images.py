"""Images: what a change says of its fields before and after, read from what a store kept of it.

A change may be older than the schema it is read by, so fields that are gone, or of another type by
now, are left out: nothing that was written once may hold up the changes behind it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

from mediator.schema.scalars import Encoder
from mediator.schema.tree import Field
from mediator.schema.types import FieldType, Value
from mediator.schema.values import encoder
from mediator.stores.port import Fragment

__all__ = ["UNREADABLE", "image_of"]

log = logging.getLogger(__name__)

UNREADABLE: Final = (ValueError, LookupError, TypeError, ArithmeticError)
"""What is raised by reading a text that is not what it should be."""

_FORMS: Final[Mapping[FieldType, type]] = {
    FieldType.STRING: str,
    FieldType.REFERENCE: str,
    FieldType.INTEGER: int,
    FieldType.FLOAT: float,
    FieldType.DECIMAL: Decimal,
    FieldType.BOOLEAN: bool,
    FieldType.TIMESTAMP: datetime,
    FieldType.BINARY: bytes,
    FieldType.DOCUMENT: dict,
    FieldType.LIST: list,
    FieldType.SET: list,
    FieldType.MAP: dict,
}


def image_of(
    fragment: Fragment,
    kept: Iterable[tuple[str, Any]],
    read: Callable[[str, Any], Value],
) -> dict[str, Any]:
    """Return fields in their JSON form.

    Args:
        fragment: The class as it is now.
        kept: Names of fields, and what was kept of each.
        read: Returns the value of what was kept of a field that the fragment has.
    """
    encoders, image = _encoders(fragment), dict[str, Any]()
    for name, some in kept:
        if name not in encoders:
            continue
        try:
            value = read(name, some)
        except UNREADABLE:
            _tell(fragment, name)
            continue
        if value is None:
            image[name] = None
        elif _fits(fragment.fields[name], value):
            encode = encoders[name]
            image[name] = value if encode is None else encode(value)
        else:
            _tell(fragment, name)
    return image


def _fits(field: Field, value: Any) -> bool:
    if type(value) is not _FORMS[field.type]:
        return False
    if field.items is None:
        return True
    form = _FORMS[field.items]
    return all(type(member) is form for member in _members(value))


def _members(collection: Any) -> Iterable[Any]:
    return collection.values() if isinstance(collection, dict) else collection


@lru_cache(maxsize=512)
def _encoders(fragment: Fragment) -> Mapping[str, Encoder | None]:
    return {name: encoder(field) for name, field in fragment.fields.items()}


@lru_cache(maxsize=512)  # so that it is told once, however many changes are concerned
def _tell(fragment: Fragment, name: str) -> None:
    log.warning(
        "%s: changes tell values of %s/%s.%s that are not of its type; they are left out",
        fragment.system,
        fragment.database,
        fragment.class_name,
        name,
    )
