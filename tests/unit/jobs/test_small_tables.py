"""Files read without Spark: with Spark's result, or left to Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_jobs.runner.port import Input, InputUnfit
from spark_jobs.runner.specification import FileSource
from spark_jobs.sources.tables import read_table

ROWS = 3


def read(path: Path, *fields: str) -> list[dict[str, Any]] | None:
    source = FileSource.parse({"file": str(path)})
    table = read_table(Input("people", source, fields or None, local_rows=ROWS), lambda: None)
    return None if table is None else table.to_pylist()


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("id,a\n1,x\n", [{"id": "1", "a": "x"}]),
        ("a,id\n007,1\n", [{"id": "1", "a": "007"}]),
        ('id,a\n1,\n2,""\n', [{"id": "1", "a": None}, {"id": "2", "a": ""}]),
        ('id,a\n1,"x ""y"",\nz"\r\n', [{"id": "1", "a": 'x "y",\nz'}]),
        ("id,a\n1,NULL\n2,true\n", [{"id": "1", "a": "NULL"}, {"id": "2", "a": "true"}]),
        ("id,a\n", []),
    ],
)
def test_values_of_csv_are_strings(tmp_path: Path, text: str, rows: list[dict[str, Any]]) -> None:
    file = tmp_path / "people.csv"
    file.write_text(text)
    assert read(file) == rows


def test_types_of_json_and_parquet_are_kept(tmp_path: Path) -> None:
    lines, table = tmp_path / "people.json", tmp_path / "people.parquet"
    lines.write_text('{"id": 1, "a": 2, "d": "2024-02-29"}\n{"id": 2, "a": 0.5, "b": true}\n')
    rows = [
        {"id": "1", "a": 2.0, "b": None, "d": "2024-02-29"},
        {"id": "2", "a": 0.5, "b": True, "d": None},
    ]
    assert read(lines) == rows
    pq.write_table(pa.table({"a": [1.5], "id": [7]}), table)
    assert read(table) == [{"id": "7", "a": 1.5}]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p.csv", "id,a\n1,x\n2,y\n3,z\n4,u\n"),
        ("p.csv", "id,a\n1\n"),
        ("p.csv", "id,a,a\n1,x,y\n"),
        ("p.csv", ""),
        ("p.csv", "id,a\n1,\udcff\n"),
        ("p.json", '{"id": 1, "a"\n'),
        ("p.json", '{"id": 1, "a": "x"}\n{"id": 2, "a": 1}\n'),
        ("p.json", '{"id": 1, "a": {"b": 1}}\n'),
        ("p.json", '{"id": 1, "a": null}\n'),
        ("p.json", '{"id": 1, "a": 99999999999999999999}\n'),
        ("p.json", '{"id": 1, "a": 9223372036854775808}\n'),
        ("p.json", "[1]\n"),
        ("p.parquet", "no"),
    ],
)
def test_large_or_unusual_files_are_left_to_spark(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_bytes(text.encode(errors="surrogateescape"))
    assert read(tmp_path / name) is None


def test_paths_that_name_no_file_are_left_to_spark(tmp_path: Path) -> None:
    (tmp_path / "parts.csv").mkdir()
    assert read(tmp_path / "parts.csv") is None
    assert read(tmp_path / "none.csv") is None


def test_requested_fields_are_read_and_missing_ones_reported(tmp_path: Path) -> None:
    file = tmp_path / "people.csv"
    file.write_text("id,a,b\n1,x,y\n")
    assert read(file, "b") == [{"id": "1", "b": "y"}]
    with pytest.raises(InputUnfit, match=r"people has no column c; it has: id, a, b\."):
        read(file, "b", "c")
