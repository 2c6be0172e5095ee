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
    forms = _forms(fragment)
    image: dict[str, Any] = {}
    for name, some in kept:
        if name not in forms:
            continue
        form, items, encode = forms[name]
        try:
            value = read(name, some)
        except UNREADABLE:
            _tell(fragment, name)
            continue
        if value is None:
            image[name] = None
        elif type(value) is form and (items is None or _all_are(items, value)):
            image[name] = value if encode is None else encode(value)
        else:
            _tell(fragment, name)
    return image


def _all_are(form: type, collection: Any) -> bool:
    members = collection.values() if isinstance(collection, dict) else collection
    return all(type(member) is form for member in members)


@lru_cache(maxsize=512)
def _forms(fragment: Fragment) -> Mapping[str, tuple[type, type | None, Encoder | None]]:
    """Return for each field the types of its values and of their items, and its encoder."""
    return {
        name: (_FORMS[field.type], _FORMS[field.items] if field.items else None, encoder(field))
        for name, field in fragment.fields.items()
    }


@lru_cache(maxsize=512)  # so that it is told once, however many changes are concerned
def _tell(fragment: Fragment, name: str) -> None:
    log.warning(
        "%s: changes tell values of %s/%s.%s that are not of its type; they are left out",
        fragment.system,
        fragment.database,
        fragment.class_name,
        name,
    )
