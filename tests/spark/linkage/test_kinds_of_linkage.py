"""Both kinds of linkage pass the conformance checks of job kinds."""

from __future__ import annotations

import csv
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from benchmarks.harness.synthetic_people import people
from spark_jobs.runner.conformance import (
    SampleJob,
    check_hostile_specs,
    check_interrupted,
    check_spec,
)


def table(path: Path, rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Write rows as CSV; return them as a source."""
    rows = list(rows)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return {"file": str(path)}


def private(scratch: Path) -> SampleJob:
    def encoded(party: str, flips: int) -> Iterable[dict[str, str]]:
        for n in range(1, 9):
            bits = (0x0F1E2D3C4B5A6978 * n) % 2**64 ^ flips
            yield {"id": f"{party}{n}", "clk": b64encode(bits.to_bytes(8)).decode()}

    parties = {
        "left": table(scratch / "left.csv", encoded("l", 0)),
        "right": table(scratch / "right.csv", encoded("r", 0b101)),
    }
    options = {"threshold": "2/3", "filters": ["length", "prefix"], "top_k": 2, "one_to_one": True}
    return SampleJob("linkage.private", {**parties, **options}, ordered=True)


def open_(scratch: Path) -> SampleJob:
    rules = [["phone"], ["surname", {"column": "given_name", "take": "prefix", "length": 2}]]
    jaro_winkler = {"levels": ["exact", {"jaro_winkler": 0.85}], "term_frequency": True}
    spec = {
        "inputs": {"people": table(scratch / "people.csv", people(30, 2, seed=5))},
        "blocking": rules,
        "comparisons": [
            {"columns": ["given_name"], **jaro_winkler},
            {"columns": ["phone"], "levels": ["exact", {"levenshtein": 2}]},
        ],
        "clustering": "components",
    }
    return SampleJob("linkage.open", spec)


def on_spark(scratch: Path) -> SampleJob:
    return SampleJob("linkage.open", {**open_(scratch).spec, "engine": "spark"})


def in_process(scratch: Path) -> SampleJob:
    return SampleJob("linkage.open", {**open_(scratch).spec, "engine": "splink"})


@pytest.fixture(
    params=[private, open_, on_spark, in_process],
    ids=["private", "open", "open on Spark", "in process"],
)
def sample(request: pytest.FixtureRequest, tmp_path: Path) -> SampleJob:
    make: Callable[[Path], SampleJob] = request.param
    return make(tmp_path)


def test_their_specifications(sample: SampleJob) -> None:
    check_spec(sample)
    check_hostile_specs(sample)


@pytest.mark.large  # thirty stages are executed, with a kind's example each time
@pytest.mark.timeout(900)
def test_both_kinds_are_interrupted_and_resumed(
    sample: SampleJob, spark: SparkSession, tmp_path: Path
) -> None:
    check_interrupted(sample, spark, tmp_path / "runs")
