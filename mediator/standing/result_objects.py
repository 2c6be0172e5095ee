"""Results as objects of a class: each is created once, however often and by whom it is written.

The id identifies the result, so a repetition meets its own object. The store remembers the
operation for a day (`RETENTION_S`), even if the object was deleted; later the id is taken, or free
again. A creation changes no existing object: changes by clients stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import orjson

from mediator.model.operations import Create
from mediator.routing.model import DatabaseRoute
from mediator.standing.query import Destination
from mediator.standing.results import QueryKey, StoredResult

__all__ = ["creation_of", "values_of"]


def creation_of(
    route: DatabaseRoute, key: QueryKey, into: Destination, result: StoredResult
) -> Create:
    """Return the write of a result.

    Raises:
        Invalid: The class does not accept the values.
    """
    _, values = values_of(result, into)
    # Null leaves a field out, so that it gets its default.
    present = {name: value for name, value in values.items() if value is not None}
    id_ = f"{key.query}-{result.number}"
    return Create(
        route.schema.database,
        into.target.name,
        id_,
        _digest(f"standing:{id_}".encode()),
        # Another result with this number is not a repetition: the coordination Redis rolled back.
        fingerprint=_digest(result.document),
        values=route.classes[into.target.name].codec.decode_object(present, "/into/values"),
    )


def values_of(result: StoredResult, into: Destination) -> tuple[float, Mapping[str, Any]]:
    """Return the time of a result (s), and its values for the destination."""
    document: dict[str, Any] = orjson.loads(result.document)
    tuples = document["tuples"]
    values = {
        name: tuples[alias].get(attribute) for name, (alias, attribute) in into.values.items()
    }
    return document["time_s"], values


def _digest(text: bytes) -> str:
    return blake2b(text, digest_size=16).hexdigest()
