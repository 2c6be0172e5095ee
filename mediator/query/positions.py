"""Positions as JSON, for cursors; a missing value, a null and a value differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mediator.base.errors import Invalid, Location
from mediator.model.query import Position
from mediator.query.paths import ResolvedPath
from mediator.schema.errors import InvalidValue
from mediator.schema.tree import MISSING, MissingType
from mediator.schema.types import Value

__all__ = ["decode_position", "encode_position"]


def encode_position(levels: Sequence[ResolvedPath], position: Position) -> list[Any]:
    """Return a position as JSON: the id, then for each level an array with the value, if any."""
    pairs = zip(levels, position.values, strict=True)
    return [position.id, *(_written(level, value) for level, value in pairs)]


def decode_position(levels: Sequence[ResolvedPath], json: Sequence[Any]) -> Position:
    """Return the position that `encode_position` wrote for the same levels.

    Raises:
        Invalid: A level was of another type when it was written.
    """
    id_, *values = json
    pairs = zip(levels, values, strict=True)
    try:
        return Position(tuple([_read(level, value) for level, value in pairs]), id_)
    except InvalidValue:
        locations = [Location("after", "belongs to an earlier schema")]
        raise Invalid("The cursor does not belong to this query.", locations=locations) from None


def _written(level: ResolvedPath, value: Value | MissingType) -> list[Any]:
    return [] if isinstance(value, MissingType) else [level.to_json(value)]


def _read(level: ResolvedPath, json: list[Any]) -> Value | MissingType:
    if not json:
        return MISSING
    value: Value = level.from_json(json[0])
    return value
