"""Open linkage without Spark: every stage gives Spark's result, or Spark executes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from benchmarks.harness.synthetic_people import people
from spark_jobs.linkage.open import plan as choosing
from spark_jobs.linkage.open.kind import OpenLinkage
from spark_jobs.linkage.open.spec import OpenSpec
from spark_jobs.runner.port import InputUnfit
from tests.spark.stage_context import FolderContext, frame

pytestmark = pytest.mark.timeout(900)  # whole runs, perhaps on a busy machine
LARGE = pytest.mark.large  # whole runs on Spark, a minute each

Row = dict[str, Any]

PEOPLE: list[Row] = list(people(60, 2, seed=5))
FILE = {"file": "people.csv"}
EXACT: dict[str, Any] = {"levels": ["exact"]}
KNOWN = [
    {"id": row["id"], "cluster": f"old {n % 7}", "source": "people", "record": row["id"]}
    for n, row in enumerate(PEOPLE[:30])
]
DOCUMENT: dict[str, Any] = {
    "inputs": {"people": FILE},
    "blocking": [
        ["phone"],
        [{"column": "surname", "take": "soundex"}],
        [{"column": "street", "take": "word", "length": -1}, {"column": "city", "take": "sorted"}],
        [{"column": "date_of_birth", "take": "year"}],
        [{"column": "date_of_birth", "take": "month_day"}],
        [{"column": "given_name", "take": "suffix", "length": 3}],
        [{"column": "given_name", "take": "prefix", "length": 2}],
    ],
    "comparisons": [
        {"columns": ["given_name"], "levels": ["exact", {"jaro_winkler": 0.85}]},
        {"columns": ["surname"], "levels": ["exact", {"levenshtein": 1}], "term_frequency": True},
        {"columns": ["street", "city"], "levels": [{"jaccard": 0.9}, {"jaccard": 0.5}]},
        {"columns": ["phone"], "levels": ["exact", {"number": 1_000}]},
        {"columns": ["date_of_birth"], "levels": ["exact", {"days": 40}]},
    ],
    "truth": "entity",
}
SPECS: dict[str, dict[str, Any]] = {
    "pairs": {**DOCUMENT, "result": "pairs"},
    "nothing given": {"inputs": {"people": FILE}, "zero_config": True, "truth": "entity"},
    "two tables": {**DOCUMENT, "inputs": {"people": FILE, "others": FILE}},
    "heavy blocks": {**DOCUMENT, "limits": {"block_pairs": 20}, "clustering": "components"},
    "known clusters": {**DOCUMENT, "known": FILE},
}
ROWS = ("values", "records", "roots")
KEYS = {**dict.fromkeys(ROWS, ("row",)), "compare": ("l", "r")}


def executed(spark: SparkSession, folder: Path, spec: Mapping[str, Any]) -> FolderContext:
    rows = {"people": PEOPLE, "others": PEOPLE[::3], "known": KNOWN}
    inputs = {name: frame(spark, table) for name, table in rows.items()}
    context = FolderContext(spark, folder, inputs)
    context.execute(OpenSpec.parse(spec))
    return context


def output_rows(context: FolderContext, stage: str) -> list[tuple[Any, ...]]:
    """Return a stage's output with rows and columns sorted."""
    table = context.output_table(stage)
    keys = KEYS.get(stage, ("id",))
    rows = table.sort_by([(key, "ascending") for key in keys]).to_pylist()
    return [tuple(rounded(row[name]) for name in sorted(row)) for row in rows]


def rounded(document: Any) -> Any:
    """Round a document's numbers, whose last digits depend on the order of summation."""
    if isinstance(document, dict):
        return {name: rounded(member) for name, member in document.items()}
    if isinstance(document, list):
        return [rounded(member) for member in document]
    return round(document, 9) if isinstance(document, float) else document


def types(context: FolderContext, stage: str) -> dict[str, str]:
    """Return the columns' types as text, without Spark's "not null"."""
    schema = context.output_table(stage).schema
    return {field.name: str(field.type).replace(" not null", "") for field in schema}


@pytest.mark.parametrize(
    "name",
    [
        "pairs",
        "known clusters",
        *(
            pytest.param(name, marks=LARGE)
            for name in ("nothing given", "two tables", "heavy blocks")
        ),
    ],
)
def test_every_stage_has_the_same_output_as_on_spark(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    """Thus one engine can continue a run that another engine started."""
    spec = SPECS[name]
    local = executed(spark, tmp_path / "here", {**spec, "engine": "local"})
    on_spark = executed(spark, tmp_path / "there", {**spec, "engine": "spark"})
    assert rounded(local.reports) == rounded(on_spark.reports)
    assert local.counters == on_spark.counters
    for stage in OpenLinkage().stages(OpenSpec.parse({**spec, "engine": "local"})):
        if stage.name in {"plan", "model"}:  # documents, compared as reports
            continue
        assert types(local, stage.name) == types(on_spark, stage.name), stage
        assert output_rows(local, stage.name) == output_rows(on_spark, stage.name), stage
    assert local.reports["evaluation"]["pairs"]["found"] > 0


@pytest.mark.large
def test_the_same_records_are_sampled_as_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    """The tables are larger than their samples."""
    records = list(people(10_200, 1, seed=5))
    rows = {"people": records[:5_100], "others": records[5_100:]}
    inputs = {name: frame(spark, table) for name, table in rows.items()}
    models = []
    for engine in ("local", "spark"):
        context = FolderContext(spark, tmp_path / engine, inputs)
        spec = {**SPECS["two tables"], "blocking": [["phone"]], "engine": engine}
        context.execute(OpenSpec.parse(spec), until="model")
        models.append(rounded(context.reports["model"]))
    assert models[0] == models[1]


@pytest.mark.parametrize("name", ["nothing given", "two tables", "heavy blocks"])
def test_a_forecast_counts_the_same_as_on_spark(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    rows = {"people": PEOPLE, "others": PEOPLE[::3]}
    context = FolderContext(spark, tmp_path, {n: frame(spark, table) for n, table in rows.items()})
    local, on_spark = (
        context.forecast(OpenSpec.parse({**SPECS[name], "engine": engine}))
        for engine in ("local", "spark")
    )
    assert (local.rows, local.pairs, local.heaviest) == (
        on_spark.rows,
        on_spark.pairs,
        on_spark.heaviest,
    )
    assert local.notes[0] == f"Engine local: {local.pairs:,} pairs fit one process."
    assert local.notes[1:] == on_spark.notes[1:]
    assert local.time_s < on_spark.time_s


@pytest.mark.parametrize("obstacle", [pytest.param("records", marks=LARGE), "pairs", "types"])
def test_inputs_too_large_for_one_process_are_processed_by_spark_or_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, obstacle: str
) -> None:
    people_ = frame(spark, PEOPLE)
    reason = f"There are {len(PEOPLE)} records; one process is given 10 at most."
    match obstacle:
        case "records":
            monkeypatch.setattr(choosing, "MAX_LOCAL_RECORDS", 10)
        case "pairs":
            monkeypatch.setattr(choosing, "IN_PROCESS_PAIRS", 10)
            reason = "one process is given 10 at most."
        case _:
            people_ = people_.withColumn("tags", f.array("city"))
            reason = "people has values of type list"
    context = FolderContext(spark, tmp_path, {"people": people_})
    note, *_ = context.forecast(OpenSpec.parse(DOCUMENT)).notes
    assert note.startswith("Engine spark: ")
    assert reason in note
    context.execute(OpenSpec.parse(DOCUMENT))
    assert context.reports["engine"]["engine"] == "spark"
    assert len(context.rows("clusters")) == len(PEOPLE)
    with pytest.raises(InputUnfit, match=f'^/engine: .*{reason}.* Or let engine be "auto"'):
        context.forecast(OpenSpec.parse({**DOCUMENT, "engine": "local"}))


@pytest.mark.parametrize("rows", [PEOPLE[:1], [{**PEOPLE[0], "id": str(n)} for n in range(3)]])
def test_single_records_and_copies_form_clusters(
    spark: SparkSession, tmp_path: Path, rows: Sequence[Row]
) -> None:
    context = FolderContext(spark, tmp_path, {"people": frame(spark, rows)})
    context.forecast(OpenSpec.parse(DOCUMENT))
    clusters = context.execute(OpenSpec.parse(DOCUMENT))
    assert context.reports["engine"]["engine"] == "local"
    assert len(clusters) == len(rows)
