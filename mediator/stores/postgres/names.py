"""Identifiers in PostgreSQL: from names of users to names that fit, without collisions.

Every name of ours holds a character that no name of a user may hold (``.``, ``~`` or a leading
``_``), so the two never meet; SQLAlchemy quotes all of them.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

__all__ = ["column_name", "fitting", "index_name", "retired_name", "table_name", "version_name"]

_LONGEST: Final = 63
"""NAMEDATALEN - 1: PostgreSQL cuts longer identifiers silently, which would make them collide."""

_SYSTEM_COLUMNS: Final = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid", "id"})


def fitting(name: str) -> str:
    """Return the name if it fits, else its beginning with 96 bits of its hash."""
    if len(name.encode()) <= _LONGEST:
        return name
    head = name.encode()[:38].decode(errors="ignore")
    return f"{head}~{sha256(name.encode()).hexdigest()[:24]}"


def table_name(database: str, stored_as: str) -> str:
    """Name the table of a class."""
    return fitting(f"{database}.{stored_as}")


def column_name(field: str) -> str:
    """Name the column of a field; every table has system columns that a field must not hide."""
    return f"{field}." if field in _SYSTEM_COLUMNS else field


def version_name(group: str) -> str:
    """Name the version column of a cache group."""
    return fitting(f"_v.{group}")


def index_name(table: str, purpose: str) -> str:
    """Name an index of a table; indexes share the tables' name space, hence the ``~``."""
    return fitting(f"{table}~{purpose}")


def retired_name(field: str, schema_version: int) -> str:
    """Name the column that keeps the values of a field that was removed from the schema."""
    return fitting(f"{field}.before.{schema_version}")
