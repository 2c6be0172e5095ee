"""Unique constraints: what an object claims by its values, so that no other object may have them.

A claim is a hash of the values, each in its one JSON form: so that equal decimals make one claim,
and values of any length take the same room.
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
"""Types whose values are compared exactly, and alike on every system."""

_CLAIM_BYTES: Final = 32
"""Bytes of a claim: it takes 2^128 attempts to find other values with the same one."""


def constraint_name(names: Sequence[str]) -> str:
    """Name the unique constraint of some fields: no name of a field has a comma."""
    return ",".join(names)


def constraint_fields(name: str) -> list[str]:
    """Return the fields of the constraint that `constraint_name` named."""
    return name.split(",")


def claims_of(
    constraints: Iterable[Sequence[str]],
    fields: Mapping[str, Field],
    values: Values,
    touched: Iterable[str] | None = None,
) -> dict[str, str | None]:
    """Return what an object claims, by the names of the constraints; None: nothing.

    With `touched`, only those constraints that have one of these fields, whose values are given
    all or none.
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
