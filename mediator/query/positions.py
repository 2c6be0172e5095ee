"""Positions as JSON, for cursors; a missing value, a null and a value are told apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mediator.base.errors import Invalid, Location
from mediator.model.query import Position
from mediator.query.paths import Target
from mediator.schema.errors import InvalidValue
from mediator.schema.tree import MISSING, MissingType
from mediator.schema.types import Value

__all__ = ["decode_position", "encode_position"]


def encode_position(levels: Sequence[Target], position: Position) -> list[Any]:
    """Return a position as JSON: the id, then for each level an array with the value, if any."""
    pairs = zip(levels, position.values, strict=True)
    return [position.id, *(_written(level, value) for level, value in pairs)]


def decode_position(levels: Sequence[Target], json: Sequence[Any]) -> Position:
    """Return the position that `encode_position` wrote for the same levels.

    Raises:
        Invalid: A level was of another type when it was written.
    """
    id_, *values = json
    pairs = zip(levels, values, strict=True)
    try:
        return Position(tuple([_read(level, value) for level, value in pairs]), id_)
    except InvalidValue:
        places = [Location("after", "belongs to a schema that is no more")]
        raise Invalid("The cursor does not belong to this query.", locations=places) from None


def _written(level: Target, value: Value | MissingType) -> list[Any]:
    return [] if isinstance(value, MissingType) else [level.to_json(value)]


def _read(level: Target, json: list[Any]) -> Value | MissingType:
    if not json:
        return MISSING
    value: Value = level.from_json(json[0])
    return value
