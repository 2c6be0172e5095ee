"""Jobs as JSON: parsed strictly and without Spark, with the location of every mistake."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from spark_jobs.runner.job import CostLimits, parse_job
from spark_jobs.runner.port import Forecast
from spark_jobs.runner.specification import ClassSource, SpecInvalid

COUNT: dict[str, Any] = {
    "kind": "example.count",
    "spec": {"records": {"file": "people.csv"}, "field": "city"},
}
BY_CLASS = COUNT | {"spec": {"records": {"class": "people"}, "field": "city"}}


@pytest.mark.parametrize(
    ("document", "pointer"),
    [
        ([], ""),
        ({}, "/kind"),
        ({"kind": 5}, "/kind"),
        ({"kind": "example.none", "spec": {}}, "/kind"),
        ({"kind": "example.count"}, "/spec"),
        ({"kind": "example.count", "spec": 5}, "/spec"),
        (COUNT | {"more": 1}, "/more"),
        (COUNT | {"limits": {"rows": -1}}, "/limits/rows"),
        (COUNT | {"limits": {"pairs": True}}, "/limits/pairs"),
        (COUNT | {"limits": {"time_s": float("nan")}}, "/limits/time_s"),
        (COUNT | {"limits": {"cores": 1}}, "/limits/cores"),
        (COUNT | {"spec": {"records": {"file": "a.csv"}}}, "/spec/field"),
        (COUNT | {"spec": {"records": {"file": "a.xls"}, "field": "x"}}, "/spec/records/format"),
        (COUNT | {"spec": {"records": {"file": ""}, "field": "x"}}, "/spec/records/file"),
        (COUNT | {"spec": {"records": {}, "field": "x"}}, "/spec/records/class"),
        (COUNT | {"spec": COUNT["spec"] | {"a/b~": 1}}, "/spec/a~1b~0"),
        (BY_CLASS, "/spec/records"),
    ],
)
def test_mistakes_are_located(document: Any, pointer: str) -> None:
    with pytest.raises(SpecInvalid) as error:
        parse_job(document)
    assert error.value.pointer == pointer


def test_nesting_is_bounded() -> None:
    deep: Any = {}
    for _ in range(50):
        deep = {"and": [deep]}
    with pytest.raises(SpecInvalid, match="deeper than 32"):
        parse_job(BY_CLASS | {"spec": {"records": {"class": "people", "filter": deep}}}, "club")


def test_over_http_only_classes_of_the_database_are_read() -> None:
    assert parse_job(BY_CLASS, "club").inputs[0].source == ClassSource.parse(
        {"database": "club", "class": "people"}
    )
    for records in ({"file": "/etc/passwd.csv"}, {"class": "people", "database": "others"}):
        with pytest.raises(SpecInvalid) as error:
            parse_job(COUNT | {"spec": {"records": records, "field": "city"}}, "club")
        assert error.value.pointer == "/spec/records"


def test_the_fingerprint_of_a_job_covers_the_input_of_its_stages() -> None:
    fingerprint = parse_job(COUNT).fingerprint
    assert parse_job({**COUNT, "limits": {"rows": 1}}).fingerprint == fingerprint
    assert parse_job(dict(reversed(COUNT.items()))).fingerprint == fingerprint
    other = {"records": {"file": "people.csv"}, "field": "name"}
    assert parse_job(COUNT | {"spec": other}).fingerprint != fingerprint


def test_limits_are_compared_with_the_forecast() -> None:
    forecast = Forecast({"left": 3, "right": 4}, pairs=12, memory_bytes=5, time_s=2.5)
    assert CostLimits().exceeded(forecast) == ()
    assert CostLimits(rows=7, pairs=12, memory_bytes=5, time_s=2.5).exceeded(forecast) == ()
    reasons = CostLimits(rows=6, pairs=11, memory_bytes=4, time_s=2.0).exceeded(forecast)
    assert [reason.partition(":")[0] for reason in reasons] == [
        "rows",
        "pairs",
        "memory_bytes",
        "time_s",
    ]


def test_jobs_are_read_without_spark() -> None:
    code = (
        "import sys; from spark_jobs.runner.job import parse_job; import app.cli;"
        f"parse_job({COUNT!r}); assert 'pyspark' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
