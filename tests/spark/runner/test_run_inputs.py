"""Unfit inputs, limits and dry runs: each is reported in a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.runner.attempt import Ending, RunAttempt
from spark_jobs.runner.control import Control
from spark_jobs.runner.job import parse_job
from spark_jobs.runner.port import Forecast
from spark_jobs.runner.results import ResultFiles
from spark_jobs.runner.run_directory import RunDirectory
from spark_jobs.runner.run_session import stage_overhead_s
from spark_jobs.session import LazySession
from spark_jobs.sources.reading import read_input

NO_ROWS = ("There are no rows: the result will have none.",)


def execute(
    spark: SparkSession, file: Path, *, dry_run: bool = False, **members: Any
) -> tuple[Ending, RunDirectory]:
    spec = {"records": {"file": str(file)}, "field": "city"}
    job = parse_job({"kind": "example.count", "spec": spec, **members})
    directory = RunDirectory(file.parent / "run")
    run = RunAttempt(job, directory, LazySession.of(spark), read_input, Control(), dry_run=dry_run)
    return run.execute(), directory


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("p.csv", "id,town\n1,Ulm\n", "records has no column city; it has: id, town."),
        ("p.csv", "city\nUlm\n", "records has no column id; it has: city."),
        ("p.csv", "id,city\n1,Ulm\n1,Bonn\n", "records: the id '1' is duplicated."),
        ("p.csv", "id,city\n,Ulm\n", "records: a row has no id."),
        ("p.csv", "", "records has no column id, city; it has: ."),
        ("p.json", '{"id": 1, "city"\n', "An input has a malformed record"),
        ("p.parquet", "no", "An input file is not in its declared format."),
    ],
)
def test_unfit_inputs_are_reported(
    spark: SparkSession, tmp_path: Path, name: str, text: str, reason: str
) -> None:
    file = tmp_path / name
    file.write_text(text)
    ending, directory = execute(spark, file)
    assert ending.state == "failed"
    assert reason in ending.reasons[0]
    assert directory.stages == {}


def test_a_missing_file_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    ending, _ = execute(spark, tmp_path / "p.csv")
    assert ending.reasons == (f"records: {tmp_path / 'p.csv'} cannot be read.",)


@pytest.mark.parametrize(
    ("name", "text"),
    [("p.json", '{{"id": 1, "city": "{}"}}\n'), ("p.csv", 'id,a,city\n1,"x\ny",{}\n')],
)
def test_a_path_is_not_a_glob_pattern(
    spark: SparkSession, tmp_path: Path, name: str, text: str
) -> None:
    for folder, city in (("run1", "Bonn"), ("run[1]{a,b}*?", "Ulm")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(text.format(city))
    ending, directory = execute(spark, tmp_path / "run[1]{a,b}*?" / name)
    assert (ending.state, ending.rows, ending.reasons) == ("done", 1, ())
    rows, _ = ResultFiles(directory.frame("count")).page((0, 0), 2)
    assert [row["value"] for row in rows] == ["Ulm"]


def test_an_empty_input_gives_an_empty_result(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("id,city\n")
    ending, _ = execute(spark, tmp_path / "p.csv")
    assert (ending.state, ending.rows) == ("done", 0)


def test_limits_stop_a_run_before_its_first_stage(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("id,city\n1,Ulm\n2,Ulm\n")
    ending, directory = execute(spark, tmp_path / "p.csv", limits={"rows": 1})
    assert ending.state == "stopped"
    assert ending.reasons == ("rows: 2 are expected, and 1 are allowed.",)
    assert "count" not in directory.stages


def test_a_forecast_includes_the_overhead_of_stages(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("id,city\n")
    ending, directory = execute(spark, tmp_path / "p.csv", limits={"time_s": 1e-9})
    assert (ending.state, ending.forecast is not None) == ("stopped", True)
    assert ending.reasons[0].startswith("time_s: ")
    overhead_s = stage_overhead_s(spark, tmp_path / "not measured again")
    assert ending.forecast == Forecast({"records": 0}, time_s=2 * overhead_s, notes=NO_ROWS)
    directories = {stage.directory for stage in directory.stages.values()}
    assert {path.name for path in (directory.path / "stages").iterdir()} == directories - {None}


def test_a_dry_run_ends_with_the_forecast(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text('{"id": 1, "city": "Ulm"}\n{"id": 2}\n')
    ending, directory = execute(spark, tmp_path / "p.json", dry_run=True)
    assert (ending.state, ending.result) == ("done", None)
    assert ending.forecast is not None
    assert ending.forecast.rows == {"records": 2}
    assert ending.forecast.heaviest[0].records == 1
    assert "count" not in directory.stages
