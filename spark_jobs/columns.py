"""Columns by their names, whatever characters these have."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as f

__all__ = ["quoted"]


def quoted(name: str) -> Column:
    """Return a column by its name; a dot in it would otherwise lead into a structure."""
    return f.col("`" + name.replace("`", "``") + "`")
