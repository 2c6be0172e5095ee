"""Schemas of databases, by the admin API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from portolan_client.calls import Call, JsonObject, Reply
from portolan_client.encoding import encode_json, path_of
from portolan_client.objects import JSON

__all__ = ["Schema", "drop_database", "put_schema", "schema"]


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema in force, or as it would be.

    Attributes:
        version: Counts the changes of the schema.
        document: The schema, with all defaults.
        placements: The system of each node (``products.stock``), and why.
        moves: Data that the change would move.
        violations: Constraints that existing objects break.
        notes: Further notes, in sentences.
    """

    database: str
    version: int
    document: JsonObject
    placements: Mapping[str, JsonObject]
    moves: Sequence[JsonObject]
    violations: Sequence[JsonObject]
    notes: Sequence[str]


def schema(database: str) -> Call[Schema]:
    """Read the schema of a database; raises `NotFound` if there is none."""
    return Call("GET", _path(database), _schema)


def put_schema(
    database: str,
    document: Mapping[str, Any],
    *,
    dry_run: bool = False,
    if_version: int | None = None,
    drop: Iterable[str] = (),
    backfill: bool = False,
    unchecked: bool = False,
) -> Call[Schema]:
    """Put a whole schema in force, and place it on the systems.

    Args:
        database: Its name.
        document: The schema.
        dry_run: Only report its effects.
        if_version: The version that it replaces; 0: there must be none.
        drop: Classes that leave it, with all their objects.
        backfill: Give objects that lack a required field its default.
        unchecked: Put constraints in force although existing objects may break them.

    Raises:
        Invalid: The schema has mistakes, or no system can serve it.
        PreconditionFailed: The version is not `if_version`.
        ConstraintViolated: Existing objects break a constraint.
        Conflict: Data would move.
    """
    flags = {"dry_run": dry_run, "backfill": backfill, "unchecked": unchecked}
    parameters = [(name, "true") for name, is_set in flags.items() if is_set]
    query = urlencode([*parameters, *(("drop", name) for name in drop)])
    path = f"{_path(database)}?{query}" if query else _path(database)
    headers = JSON if if_version is None else {**JSON, "If-Match": f'"{if_version}"'}
    # Without an Idempotency-Key a second attempt might overwrite what another client has put.
    return Call("PUT", path, _schema, headers, encode_json(document), repeatable=dry_run)


def drop_database(database: str, *, dry_run: bool = False) -> Call[Mapping[str, int]]:
    """Drop a database with all its objects, and return how many each class had."""
    path = f"{_path(database)}{'?dry_run=true' if dry_run else ''}"
    return Call("DELETE", path, _counts, repeatable=dry_run)


def _path(database: str) -> str:
    return path_of("schemas", database)


def _schema(reply: Reply) -> Schema:
    body = reply.json_object()
    return Schema(
        body["database"],
        body["version"],
        body["schema"],
        body["placements"],
        body["moves"],
        body["violations"],
        body["notes"],
    )


def _counts(reply: Reply) -> Mapping[str, int]:
    counts: dict[str, int] = reply.json_object()["objects"]
    return counts
