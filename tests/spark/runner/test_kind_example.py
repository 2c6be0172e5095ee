"""The worked example passes the conformance checks of job kinds, classic and over Connect."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.runner.conformance import (
    SampleJob,
    check_hostile_specs,
    check_interrupted,
    check_spec,
    run_sample,
)
from spark_jobs.runner.run_directory import RunDirectory


@pytest.fixture
def sample(tmp_path: Path) -> SampleJob:
    people = tmp_path / "people.csv"
    people.write_text('id,city\n1,Ulm\n2,Ulm\n3,"Bonn\nam ""Rhein"""\n4,\n')
    return SampleJob(
        "example.count", {"records": {"file": str(people)}, "field": "city"}, ordered=True
    )


def test_its_specification(sample: SampleJob) -> None:
    check_spec(sample)
    check_hostile_specs(sample)


@pytest.mark.connect
def test_it_is_interrupted_and_resumed(
    sample: SampleJob, spark: SparkSession, tmp_path: Path
) -> None:
    check_interrupted(sample, spark, tmp_path / "runs")


def test_stages_of_another_job_are_not_reused(
    sample: SampleJob, spark: SparkSession, tmp_path: Path
) -> None:
    expected = run_sample(sample, spark, RunDirectory(tmp_path / "run"))
    other = SampleJob(sample.kind, {**sample.spec, "field": "id"})
    with pytest.raises(AssertionError, match="belongs to another job"):
        run_sample(other, spark, RunDirectory(tmp_path / "run"))
    assert run_sample(sample, spark, RunDirectory(tmp_path / "run")) == expected


def test_the_example_counts_values(sample: SampleJob, spark: SparkSession, tmp_path: Path) -> None:
    assert run_sample(sample, spark, RunDirectory(tmp_path / "run")) == [
        '{"value":"Ulm","rows":2,"share":0.5}',
        '{"value":null,"rows":1,"share":0.25}',
        '{"value":"Bonn\\nam \\"Rhein\\"","rows":1,"share":0.25}',
    ]
