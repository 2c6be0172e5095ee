"""DuckDB in a worker's process: no access to files and network, and it can be interrupted."""

from __future__ import annotations

from random import Random
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from splink.internals.dialects import DuckDBDialect

from spark_jobs.linkage.open.agreement import Columns, vectors
from spark_jobs.linkage.open.in_process.duck import in_memory_database, run_steps
from spark_jobs.linkage.open.in_process.settings import level_of
from spark_jobs.linkage.open.spec import AgreementLevel, FieldComparison
from spark_jobs.runner.port import RunCancelled

ENDLESS = "SELECT count(*) FROM range(1_000_000_000) a, range(1_000_000_000) b WHERE a < b"


class CancelledContext:
    """A context whose run is cancelled after its first step."""

    def __init__(self) -> None:
        self.reported: list[tuple[int, int]] = []

    def progress(self, done: int, total: int) -> None:
        self.reported.append((done, total))
        if done == 1:
            raise RunCancelled


def test_a_running_query_is_interrupted() -> None:
    context: Any = CancelledContext()
    ended: list[str] = []

    def endless(duck: duckdb.DuckDBPyConnection) -> None:
        try:
            duck.sql(ENDLESS).fetchall()
        except duckdb.InterruptException:
            ended.append("interrupted")
            raise

    with in_memory_database() as duck, pytest.raises(RunCancelled):
        run_steps(context, duck, [lambda duck: duck.sql("SELECT 1").fetchall(), endless, endless])
    assert ended == ["interrupted"]
    assert context.reported[-1] == (1, 3)


def test_a_failing_step_is_reported() -> None:
    with in_memory_database() as duck, pytest.raises(duckdb.CatalogException):
        run_steps(CancelledContext(), duck, [lambda duck: duck.sql("SELECT * FROM nothing")])  # type: ignore[arg-type]  # only its progress is used


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_csv('pyproject.toml')",
        "COPY (SELECT 1) TO 'copied.csv'",
        "ATTACH 'other.db'",
        "INSTALL httpfs",
        "SET enable_external_access = true",
    ],
)
def test_duckdb_has_no_access_to_files_and_network(query: str) -> None:
    with in_memory_database() as duck, pytest.raises(duckdb.Error):
        duck.execute(query)


@pytest.mark.parametrize(
    "level",
    [AgreementLevel(jaro_winkler=limit) for limit in (0.6, 0.7, 0.8, 0.82, 0.83, 0.9)]
    + [AgreementLevel(jaccard=limit) for limit in (0.3, 0.5, 1.0)]
    + [AgreementLevel(levenshtein=1.0)],
    ids=lambda level: level.name,
)
def test_duckdb_measures_equal_those_of_our_kernels(level: AgreementLevel) -> None:
    """Many short strings with common prefixes; DuckDB's own Jaro-Winkler differs up to 0.82."""
    random, count = Random(3), 20_000
    left = ["".join(random.choices("abc ", k=random.randint(1, 8))) for _ in range(count)]
    left = [" ".join(text.split()) or "a" for text in left]
    suffixes = ("".join(random.choices("abcd", k=random.randint(1, 5))) for _ in range(count))
    prefixes = (text[: random.randint(0, 5)] for text in left)
    right = [
        " ".join((prefix + suffix).split())
        for prefix, suffix in zip(prefixes, suffixes, strict=True)
    ]
    columns, i = Columns(pa.table({"c0": left + right})), np.arange(count)
    ours = (
        vectors([FieldComparison(columns=("name",), levels=(level,))], columns, i, i + count)[:, 0]
        == 1
    )
    dialect = DuckDBDialect()  # type: ignore[no-untyped-call]  # Splink has no types for it
    condition = level_of(0, level).create_sql(dialect)
    selected = ", ".join(
        f"c0_{side}, list_distinct(string_split(c0_{side}, ' ')) AS w0_{side}" for side in "lr"
    )
    with in_memory_database() as duck:
        duck.register("pairs", pa.table({"c0_l": left, "c0_r": right}))
        rows = duck.sql(f"SELECT {condition} FROM (SELECT {selected} FROM pairs)").fetchall()
    assert ours.any()
    assert [row[0] for row in rows] == ours.tolist()
