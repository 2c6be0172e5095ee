"""Unique constraints: the claims that an object's values make, which exclude all other objects.

A claim is a hash of the values, each in its canonical JSON form: so equal decimals make one claim,
and values of any length take the same space.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Final

import orjson

from mediator.schema.scalars import SCALAR_ENCODERS
from mediator.schema.tree import Field
from mediator.schema.types import SCALARS, FieldType, Values

__all__ = ["UNIQUE_TYPES", "claim_of", "claims_of", "constraint_fields", "constraint_name"]

UNIQUE_TYPES: Final = SCALARS - {FieldType.FLOAT}
"""Types whose values every system compares exactly, with the same result."""

_CLAIM_BYTES: Final = 32
"""Bytes of a claim: finding other values with the same claim takes 2^128 attempts."""


def constraint_name(names: Sequence[str]) -> str:
    """Return the name of the unique constraint of some fields: field names have no comma."""
    return ",".join(names)


def constraint_fields(name: str) -> list[str]:
    """Return the fields of a constraint by its `constraint_name`."""
    return name.split(",")


def claims_of(
    constraints: Iterable[Sequence[str]],
    fields: Mapping[str, Field],
    values: Values,
    touched: Iterable[str] | None = None,
) -> dict[str, str | None]:
    """Return the claims of an object, by the names of the constraints; None: no claim.

    With `touched`, only the constraints that have one of these fields, whose values are given all
    or none.
    """
    names = None if touched is None else frozenset(touched)
    return {
        constraint_name(constraint): claim_of(fields, constraint, values)
        for constraint in constraints
        if names is None or not names.isdisjoint(constraint)
    }


def claim_of(fields: Mapping[str, Field], names: Sequence[str], values: Values) -> str | None:
    """Return the claim of the values of a constraint; None: one is null or missing."""
    documents = []
    for name in names:
        value = values.get(name)
        if value is None:
            return None
        encode = SCALAR_ENCODERS.get(fields[name].type)
        documents.append(value if encode is None else encode(value))
    return blake2b(orjson.dumps(documents), digest_size=_CLAIM_BYTES).hexdigest()
