"""Columns by name, with any characters."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as f

__all__ = ["quoted"]


def quoted(name: str) -> Column:
    """Return a column by its name; unquoted, a dot would select a member of a structure."""
    return f.col("`" + name.replace("`", "``") + "`")
