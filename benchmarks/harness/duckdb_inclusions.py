"""Inclusion dependencies by DuckDB: the distinct values of each column, and a difference per pair.

It shares only the equality of values with Portolan: numbers without trailing zeros, as text.
"""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from time import perf_counter

import duckdb

__all__ = ["duckdb_inclusions"]


def duckdb_inclusions(folder: Path) -> tuple[set[tuple[str, str]], float]:
    """Return the pairs ``table.column`` in a folder of Parquet files, and the seconds it took."""
    started = perf_counter()
    with duckdb.connect() as connection:
        distinct = _distinct_values(connection, folder)
        pairs = {
            (a.replace("__", "."), b.replace("__", "."))
            for a, b in permutations(distinct, 2)
            if 0 < distinct[a] <= distinct[b] and _is_included(connection, a, b)
        }
    return pairs, perf_counter() - started


def _distinct_values(connection: duckdb.DuckDBPyConnection, folder: Path) -> dict[str, int]:
    distinct = {}
    for file in sorted(folder.glob("*.parquet")):
        for name, type_, *_ in connection.execute(f"DESCRIBE FROM '{file}'").fetchall():
            text = f'CAST("{name}" AS VARCHAR)'
            if type_.startswith("DECIMAL"):
                text = f"rtrim(rtrim({text}, '0'), '.')"
            column = f"{file.stem}__{name}"
            values = connection.from_parquet(str(file)).select(f"{text} AS v").distinct()
            values.filter("v IS NOT NULL").create(column)
            [(distinct[column],)] = connection.table(column).count("*").fetchall()
    return distinct


def _is_included(connection: duckdb.DuckDBPyConnection, a: str, b: str) -> bool:
    # Most pairs differ in the first values, so these are checked first.
    for rows in (f'(FROM "{a}" LIMIT 100)', f'"{a}"'):
        query = f'FROM {rows} AS x ANTI JOIN "{b}" AS y ON x.v = y.v LIMIT 1'
        if connection.execute(query).fetchone() is not None:
            return False
    return True
