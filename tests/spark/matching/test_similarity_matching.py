"""Similarity matching as a job: on Spark, in partitions, with people's decisions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from benchmarks.harness.matching_data import ROADS_SPEC, TwoSources, accuracy, roads
from spark_jobs.matching.similarity.kind import SimilarityMatching
from spark_jobs.matching.similarity.spec import SimilaritySpec
from spark_jobs.result_ids import result_id
from spark_jobs.runner.conformance import (
    SampleJob,
    check_hostile_specs,
    check_interrupted,
    check_spec,
    run_sample,
)
from spark_jobs.runner.run_directory import RunDirectory
from tests.spark.stage_context import FolderContext

KIND = "matching.similarity"
PEOPLE: dict[str, Any] = {
    "blocking": {"keys": [{"field": "name", "take": "prefix", "length": 1}]},
    "measures": [
        {"measure": "text", "field": "name", "weight": 0.8},
        {"measure": "number", "field": "age", "weight": 0.2, "scale": 5.0, "missing": 0.5},
    ],
    "threshold": 0.6,
    "aggregation": False,
}
ROWS = Sequence[Mapping[str, Any]]
LEFT: ROWS = [{"id": "a1", "name": "Ada", "age": 30}, {"id": "a2", "name": "Ben", "age": "old"}]
RIGHT: ROWS = [{"id": "b1", "name": "Adda", "age": 31}, {"id": "b2", "name": "Otto", "age": 70}]


def table(path: Path, rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Write rows as NDJSON; return them as a source."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"file": str(path)}


def job(
    folder: Path,
    left: Sequence[Mapping[str, Any]] = LEFT,
    right: Sequence[Mapping[str, Any]] = RIGHT,
    **spec: Any,
) -> SampleJob:
    sources = {
        "left": table(folder / "left.json", left),
        "right": table(folder / "right.json", right),
    }
    return SampleJob(KIND, {**PEOPLE, **sources, **spec})


def rows(sample: SampleJob, spark: SparkSession, directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run_sample(sample, spark, RunDirectory(directory))]


def links(matches: Iterable[Mapping[str, Any]]) -> set[tuple[tuple[str, ...], tuple[str, ...]]]:
    return {
        (tuple(row["left"]), tuple(row["right"]))
        for row in matches
        if row["outcome"] != "unmatched"
    }


def road_job(folder: Path, data: TwoSources, **spec: Any) -> SampleJob:
    return job(folder, data.left, data.right, **{**ROADS_SPEC, "aggregation": True, **spec})


def test_its_specification(tmp_path: Path) -> None:
    sample = job(tmp_path, must=[["a1", "b1"]], references=[{"field": "age"}])
    check_spec(sample)
    check_hostile_specs(sample)
    check_hostile_specs(road_job(tmp_path, roads(30, 1)))


@pytest.mark.large  # each stage is executed four times, with a kind's example each time
@pytest.mark.timeout(900)
def test_it_is_interrupted_and_resumed(spark: SparkSession, tmp_path: Path) -> None:
    check_interrupted(job(tmp_path, partition=1), spark, tmp_path / "runs")


@pytest.mark.connect
def test_every_object_is_in_one_row_with_a_reason(spark: SparkSession, tmp_path: Path) -> None:
    matched = rows(job(tmp_path), spark, tmp_path / "run")
    assert {row["id"]: row["outcome"] for row in matched} == {
        result_id("left", "a1"): "similarity",
        result_id("left", "a2"): "unmatched",
        result_id("right", "b2"): "unmatched",
    }
    linked = next(row for row in matched if row["outcome"] == "similarity")
    assert linked["similarity"] == pytest.approx(0.8 * 0.75 + 0.2 * 0.8)
    assert linked["terms"] == [
        {"measure": "text(name)", "similarity": 0.75},
        {"measure": "number(age)", "similarity": 0.8},
    ]
    assert "above 0.6" in linked["why"]


def test_partitions_give_the_links_of_the_whole(spark: SparkSession, tmp_path: Path) -> None:
    data = roads(240, 3)
    unpartitioned = links(rows(road_job(tmp_path, data), spark, tmp_path / "whole"))
    partitioned = links(rows(road_job(tmp_path, data, partition=60), spark, tmp_path / "cut"))
    assert len(unpartitioned & partitioned) >= 0.99 * len(unpartitioned)
    for side in range(2):
        ids = [id_ for link in partitioned for id_ in link[side]]
        assert len(ids) == len({*ids}), "an object is linked twice"
    assert min(accuracy(partitioned, data.truth)) >= 0.95


def test_people_decide(spark: SparkSession, tmp_path: Path) -> None:
    lists = table(
        tmp_path / "lists.json",
        [
            {"id": "1", "left": "a1", "right": "b1", "decision": "cannot"},
            {"id": "2", "left": "gone", "right": "b1", "decision": "must"},
        ],
    )
    sample = job(tmp_path, must=[["a2", "b2"]], lists=lists)
    matched = rows(sample, spark, tmp_path / "run")
    assert {row["id"]: row["outcome"] for row in matched} == {
        result_id("left", "a1"): "unmatched",
        result_id("left", "a2"): "must",
        result_id("right", "b1"): "unmatched",
    }


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"must": [["a1", "b1"]], "cannot": [["a1", "b1"]]}, "contradict"),
        ({"limits": {"partition_objects": 1}}, "partition_objects"),
        ({"limits": {"pairs": 1}, "blocking": {"keys": [{"field": "same"}]}}, "limits.pairs"),
        ({"limits": {"block_pairs": 1}, "blocking": {"keys": [{"field": "same"}]}}, "block"),
    ],
)
def test_inputs_that_cannot_be_matched_are_refused(
    spec: Mapping[str, Any], reason: str, spark: SparkSession, tmp_path: Path
) -> None:
    left, right = ([{**row, "same": 1} for row in source] for source in (LEFT, RIGHT))
    with pytest.raises(AssertionError, match=reason):
        rows(job(tmp_path, left, right, **spec), spark, tmp_path / "run")


def test_roads_are_divided_before_they_are_matched(spark: SparkSession, tmp_path: Path) -> None:
    undivided = [
        {"id": "a", "line": [[0, 0], [100, 0]], "name": "High"},
        {"id": "b", "line": [[40, -50], [40, 50]], "name": "Low"},
    ]
    divided = [
        {"id": "p", "line": [[0, 1], [40, 1]], "name": "High"},
        {"id": "q", "line": [[40, 1], [100, 1]], "name": "High"},
        {"id": "r", "line": [[40, -50], [40, 1]], "name": "Low"},
        {"id": "s", "line": [[40, 1], [40, 50]], "name": "Low"},
    ]
    spec = {**ROADS_SPEC, "aggregation": False, "roads": {"snap": 2.0}}
    sample = job(tmp_path, undivided, divided, **spec)
    check_hostile_specs(sample)
    assert links(rows(sample, spark, tmp_path / "run")) == {
        (("a/1",), ("p",)),
        (("a/2",), ("q",)),
        (("b/1",), ("r",)),
        (("b/2",), ("s",)),
    }


def test_a_forecast_counts_candidates_and_possible_crossings(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Thirty lines that cross each other: four cells each with the buffer; one line in one cell."""
    lines = [
        {"id": str(n), "line": [[0.0, n / 30], [1.0, 1 - n / 30]], "name": ""} for n in range(30)
    ]
    inputs = {"left": spark.createDataFrame(lines), "right": spark.createDataFrame(lines[:1])}

    def memory(**changes: Any) -> int:
        sample = road_job(tmp_path, TwoSources([], [], frozenset()), **changes)
        spec = SimilaritySpec.parse(sample.spec)
        forecast = SimilarityMatching().forecast(spec, FolderContext(spark, tmp_path, inputs))
        assert forecast.pairs == 30
        return forecast.memory_bytes

    roads_ = {"roads": {"snap": 0.0}}
    assert memory(**roads_) - memory() == 2_000 * 4 * (30 * 29 // 2)
    assert memory(**roads_, limits={"pairs": 50}) - memory() == 2_000 * 50
    assert memory() - memory(partition=5) == (31 - 10) * 20_000 + (30 - 9) * 800


def test_weights_are_learned_from_labels(spark: SparkSession, tmp_path: Path) -> None:
    names = ["Ada", "Ben", "Cora", "Dan", "Eva", "Finn"]
    left = [{"id": f"a{n}", "name": name, "age": 7 * n % 5} for n, name in enumerate(names)]
    right = [{"id": f"b{n}", "name": name, "age": 3 * n % 5} for n, name in enumerate(names)]
    labelled_pairs = [
        {"id": f"{n}{m}", "left": f"a{n}", "right": f"b{m}", "match": n == m}
        for n in range(4)
        for m in range(4)
    ]
    labels = {"labels": table(tmp_path / "labels.json", labelled_pairs)}
    blocking = {"keys": [{"field": "name", "take": "prefix", "length": 1}]}
    sample = job(tmp_path, left, right, learning=labels, blocking=blocking)
    assert len(links(rows(sample, spark, tmp_path / "run"))) == len(names)


def test_labels_of_one_kind_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    labelled_pairs = [{"id": "1", "left": "a1", "right": "b1", "match": True}]
    labels = {"labels": table(tmp_path / "labels.json", labelled_pairs)}
    with pytest.raises(AssertionError, match="2 matches"):
        rows(job(tmp_path, learning=labels), spark, tmp_path / "run")


@pytest.mark.timeout(900)  # three runs of several partitions, perhaps on a busy machine
def test_a_run_reuses_a_former_result(spark: SparkSession, tmp_path: Path) -> None:
    """The decisions are edited: the result equals a full run's, and most of it is reused."""
    data = roads(400, 3)
    before = rows(road_job(tmp_path, data, partition=60), spark, tmp_path / "before")
    linked = next(row for row in before if row["outcome"] == "similarity")
    edited = {"cannot": [[linked["left"][0], linked["right"][0]]], "partition": 60}
    sample = road_job(tmp_path, data, **edited)
    full = rows(sample, spark, tmp_path / "whole")
    former = table(tmp_path / "former.json", before)
    incremental = SampleJob(KIND, {**sample.spec, "former": former})
    assert rows(incremental, spark, tmp_path / "again") == full
    report = RunDirectory(tmp_path / "again").stages["report"].reports["former"]
    assert report["matched"] + report["reused"] == len(data.left) + len(data.right)
    assert report["reused"] > 0
    assert report["reasons"] == {"decisions": report["matched"]}
