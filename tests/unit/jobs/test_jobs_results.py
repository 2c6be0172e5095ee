"""Results: complete in every format, and the same page by page."""

from __future__ import annotations

import io
import sys
import tracemalloc
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.runner.port import ColumnType
from spark_jobs.runner.results import ResultFiles


def write(directory: Path, *sizes: int, group: int = 3) -> pa.Table:
    """Write files with the given numbers of rows, numbered continuously."""
    tables, first = [], 0
    for number, rows in enumerate(sizes):
        table = pa.table({"n": pa.array(range(first, first + rows), pa.int64())})
        pq.write_table(table, directory / f"part-{number:05d}.parquet", row_group_size=group)
        tables.append(table)
        first += rows
    return pa.concat_tables(tables)


@given(
    sizes=st.lists(st.integers(0, 10), min_size=1, max_size=4),
    limit=st.integers(1, 12),
    group=st.integers(1, 4),
)
def test_pages_together_are_the_complete_result(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], limit: int, group: int
) -> None:
    directory = tmp_path_factory.mktemp("result")
    write(directory, *sizes, group=group)
    files = ResultFiles(directory)
    numbers: list[int] = []
    after: tuple[int, int] | None = (0, 0)
    while after is not None:
        rows, after = files.page(after, limit)
        assert len(rows) <= limit
        numbers += [row["n"] for row in rows]
    assert numbers == list(range(sum(sizes)))


def test_rows_before_a_page_are_not_decoded(tmp_path: Path) -> None:
    write(tmp_path, 8_000, group=8_000)
    files = ResultFiles(tmp_path)
    assert files.page((0, 0), 1) == ([{"n": 0}], (0, 1))
    tracemalloc.start()
    try:
        rows, _ = files.page((0, 7_998), 1)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert rows == [{"n": 7_998}]
    assert peak_bytes < 8_000 * sys.getsizeof({}), "bytes: less than an empty object per row"


@pytest.mark.parametrize("format_", ["parquet", "arrow", "csv", "json"])
def test_every_format_has_the_complete_result(tmp_path: Path, format_: str) -> None:
    table = write(tmp_path, 5, 0, 20_000)
    data = b"".join(ResultFiles(tmp_path).stream(format_))  # type: ignore[arg-type]  # by parameter
    decoded = {
        "parquet": lambda: pq.read_table(io.BytesIO(data)),
        "arrow": lambda: pa.ipc.open_stream(data).read_all(),
        "csv": lambda: pa_csv.read_csv(io.BytesIO(data)),
        "json": lambda: pa.table({"n": [int(line[5:-1]) for line in data.splitlines()]}),
    }[format_]()
    assert decoded.equals(table)


def test_values_without_a_json_type(tmp_path: Path) -> None:
    row = {
        "at": datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
        "price": Decimal("1.50"),
        "bits": b"\x00\xff",
        "tags": ["a", None],
        "gap": None,
        "odd": float("nan"),
    }
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "part-0.parquet")
    files = ResultFiles(tmp_path)
    plain = files.page((0, 0), 1)[0][0]
    assert plain | {"odd": None} == {
        "at": "2026-01-02T03:04:05.000006Z",
        "price": "1.50",
        "bits": "AP8=",
        "tags": ["a", None],
        "gap": None,
        "odd": None,
    }
    assert b'"odd":null' in b"".join(files.stream("json"))
    lines = b"".join(files.stream("csv")).decode().splitlines()
    assert lines[0] == '"at","price","bits","tags","gap","odd"'
    assert '"AP8=","[""a"",null]"' in lines[1]


def test_a_missing_result(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ResultFiles(tmp_path)


JSON_TYPES: dict[type, ColumnType] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    list: "array",
    dict: "object",
}


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        ("x", pa.string()),
        (b"x", pa.binary()),
        (Decimal("1.5"), pa.decimal128(10, 2)),
        (datetime(2024, 1, 2, tzinfo=UTC), pa.timestamp("us", "UTC")),
        (1, pa.int32()),
        (1, pa.int64()),
        (0.5, pa.float32()),
        (0.5, pa.float64()),
        (True, pa.bool_()),
        ([1], pa.list_(pa.int64())),
        ([("a", 1)], pa.map_(pa.string(), pa.int64())),
        ({"a": 1}, pa.struct({"a": pa.int64()})),
    ],
    ids=str,
)
def test_columns_have_the_json_types_of_their_values(
    tmp_path: Path, value: object, type_: pa.DataType
) -> None:
    table = pa.table({"column": pa.array([value], type_)})
    pq.write_table(table, tmp_path / "part-0.parquet")
    files = ResultFiles(tmp_path)
    ((row,), _) = files.page((0, 0), 1)
    assert files.columns == {"column": JSON_TYPES[type(row["column"])]}
