"""The kind `matching.schema`: small schemas whose correspondences are known, and what it refuses."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.matching.schemas.kind import SchemaMatching
from spark_jobs.matching.schemas.spec import SchemaMatchingSpec
from spark_jobs.runner.attempt import RunAttempt
from spark_jobs.runner.conformance import (
    SampleJob,
    check_hostile_specs,
    check_interrupted,
    check_spec,
    run_sample,
)
from spark_jobs.runner.control import Control
from spark_jobs.runner.local import run_to_end
from spark_jobs.runner.run_directory import RunDirectory
from spark_jobs.sources.reading import read_input

CITIES = ("Ulm", "Bonn", "Köln", "Jena", "Kiel")


def table(path: Path, rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    rows = list(rows)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return {"table": {"file": str(path)}}


def lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return {"file": str(path)}


def text(path: Path, *parts: str) -> dict[str, Any]:
    return lines(path, ({"id": f"{n:03}", "text": part} for n, part in enumerate(parts)))


def people(scratch: Path) -> dict[str, Any]:
    return table(
        scratch / "people.csv",
        (
            {
                "id": n,
                "first_name": f"Ada{n}",
                "date_of_birth": f"19{40 + n % 50}-0{1 + n % 9}-11",
                "city": CITIES[n % 5],
                "telephone": f"+49 731 {5_000 + n}",
                "remark": "",
            }
            for n in range(60)
        ),
    )


def customers(scratch: Path) -> dict[str, Any]:
    return table(
        scratch / "customers.csv",
        (
            {
                "id": f"c{n}",
                "cst_fname": f"Bob{n}",
                "cst_dob": f"19{40 + n % 50}-0{1 + n % 9}-23",
                "cst_town": CITIES[n % 5],
                "cst_mobile": f"+49 170 {7_000 + n}",
                "cst_revenue": f"{n * 17}.50",
            }
            for n in range(60)
        ),
    )


@pytest.fixture
def sample(tmp_path: Path) -> SampleJob:
    spec = {"left": people(tmp_path), "right": customers(tmp_path)}
    return SampleJob("matching.schema", spec, ordered=True)


def matched(
    spec: Mapping[str, Any], spark: SparkSession, folder: Path
) -> dict[tuple[str, str], dict[str, Any]]:
    directory = RunDirectory(folder)
    found = map(json.loads, run_sample(SampleJob("matching.schema", spec), spark, directory))
    return {(row["left"], row["right"]): row for row in found}


def refused(spec: Mapping[str, Any], spark: SparkSession, folder: Path) -> str:
    control, job = Control(lambda: None), SampleJob("matching.schema", spec).job

    attempt = RunAttempt(job, RunDirectory(folder), spark, control, read_input)
    ending = run_to_end(attempt, control, lambda: None)
    assert ending.state == "failed"
    return " ".join(ending.reasons)


def test_its_specification(sample: SampleJob) -> None:
    check_spec(sample)
    check_hostile_specs(sample)
    SchemaMatchingSpec.parse(SchemaMatching.example)


@pytest.mark.connect
def test_it_is_interrupted_and_resumed(
    sample: SampleJob, spark: SparkSession, tmp_path: Path
) -> None:
    check_interrupted(sample, spark, tmp_path / "runs")


def test_tables_are_matched_by_names_and_values(
    sample: SampleJob, spark: SparkSession, tmp_path: Path
) -> None:
    found = matched(sample.spec, spark, tmp_path / "run")
    assert set(found) == {
        ("first_name", "cst_fname"),
        ("date_of_birth", "cst_dob"),
        ("city", "cst_town"),
    } | ({("telephone", "cst_mobile")} & set(found))
    for row in found.values():
        assert set(row) == set(SchemaMatching().columns(SchemaMatchingSpec.parse(sample.spec)))
        assert row["relation"] == "equal"
        assert 0.5 <= row["confidence"] <= 1
    assert "is short for" in found["date_of_birth", "cst_dob"]["evidence"]
    assert "of the values" in found["city", "cst_town"]["evidence"]
