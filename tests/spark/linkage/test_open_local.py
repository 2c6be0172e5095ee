"""Open linkage without Spark: every stage gives what it gives on Spark, or Spark does it."""

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

pytestmark = pytest.mark.timeout(900)  # whole runs, on a machine that may be busy
LARGE = pytest.mark.large  # whole runs on Spark, a minute each

Row = dict[str, Any]

PEOPLE: list[Row] = list(people(60, 2, seed=5))
FILE = {"file": "people.csv"}
EXACT: dict[str, Any] = {"levels": ["exact"]}
KNOWN = [
    {"id": row["id"], "cluster": f"old {at % 7}", "source": "people", "record": row["id"]}
    for at, row in enumerate(PEOPLE[:30])
]
GIVEN: dict[str, Any] = {
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
    "pairs": {**GIVEN, "result": "pairs"},
    "nothing given": {"inputs": {"people": FILE}, "zero_config": True, "truth": "entity"},
    "two tables": {**GIVEN, "inputs": {"people": FILE, "others": FILE}},
    "heavy blocks": {**GIVEN, "limits": {"block_pairs": 20}, "clustering": "components"},
    "known clusters": {**GIVEN, "known": FILE},
}
ROWS = ("values", "records", "roots")
KEYS = {**dict.fromkeys(ROWS, ("row",)), "compare": ("l", "r")}


def executed(spark: SparkSession, folder: Path, spec: Mapping[str, Any]) -> FolderContext:
    rows = {"people": PEOPLE, "others": PEOPLE[::3], "known": KNOWN}
    inputs = {name: frame(spark, own) for name, own in rows.items()}
    context = FolderContext(spark, folder, inputs)
    context.execute(OpenSpec.parse(spec))
    return context


def kept(context: FolderContext, stage: str) -> list[tuple[Any, ...]]:
    """What a stage kept, in one order of rows and columns."""
    table = context.output_table(stage)
    keys = KEYS.get(stage, ("id",))
    rows = table.sort_by([(key, "ascending") for key in keys]).to_pylist()
    return [tuple(rounded(row[name]) for name in sorted(row)) for row in rows]


def rounded(document: Any) -> Any:
    """The document without the last digits of its numbers, which depend on the order of sums."""
    if isinstance(document, dict):
        return {name: rounded(member) for name, member in document.items()}
    if isinstance(document, list):
        return [rounded(member) for member in document]
    return round(document, 9) if isinstance(document, float) else document


def types(context: FolderContext, stage: str) -> dict[str, str]:
    """The types of columns, in words; Spark also knows which of them have no null."""
    schema = context.output_table(stage).schema
    return {field.name: str(field.type).replace(" not null", "") for field in schema}


@pytest.mark.parametrize(
    "name",
    [
        "pairs",
        "known clusters",
        *(
            pytest.param(one, marks=LARGE)
            for one in ("nothing given", "two tables", "heavy blocks")
        ),
    ],
)
def test_every_stage_keeps_what_it_keeps_on_spark(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    """So a run can be continued by another engine than the one that began it."""
    spec = SPECS[name]
    here = executed(spark, tmp_path / "here", {**spec, "engine": "local"})
    there = executed(spark, tmp_path / "there", {**spec, "engine": "spark"})
    assert rounded(here.reports) == rounded(there.reports)
    assert here.counters == there.counters
    for stage in OpenLinkage().stages(OpenSpec.parse({**spec, "engine": "local"})):
        if stage.name in {"plan", "model"}:  # documents, which are compared as reports
            continue
        assert types(here, stage.name) == types(there, stage.name), stage
        assert kept(here, stage.name) == kept(there, stage.name), stage
    assert here.reports["evaluation"]["pairs"]["found"] > 0


@pytest.mark.large
def test_the_same_records_are_sampled_as_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Of tables that are larger than what is sampled of each."""
    every = list(people(10_200, 1, seed=5))
    rows = {"people": every[:5_100], "others": every[5_100:]}
    inputs = {name: frame(spark, own) for name, own in rows.items()}
    models = []
    for engine in ("local", "spark"):
        context = FolderContext(spark, tmp_path / engine, inputs)
        spec = {**SPECS["two tables"], "blocking": [["phone"]], "engine": engine}
        context.execute(OpenSpec.parse(spec), until="model")
        models.append(rounded(context.reports["model"]))
    assert models[0] == models[1]


@pytest.mark.parametrize("name", ["nothing given", "two tables", "heavy blocks"])
def test_a_forecast_counts_what_spark_counts(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    rows = {"people": PEOPLE, "others": PEOPLE[::3]}
    context = FolderContext(spark, tmp_path, {n: frame(spark, own) for n, own in rows.items()})
    here, there = (
        context.forecast(OpenSpec.parse({**SPECS[name], "engine": engine}))
        for engine in ("local", "spark")
    )
    assert (here.rows, here.pairs, here.heaviest) == (there.rows, there.pairs, there.heaviest)
    assert here.notes[0] == f"Engine local: {here.pairs:,} pairs fit one process."
    assert here.notes[1:] == there.notes[1:]
    assert here.time_s < there.time_s


@pytest.mark.parametrize("obstacle", [pytest.param("records", marks=LARGE), "pairs", "types"])
def test_what_does_not_fit_one_process_is_done_by_spark_or_refused(
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
    note, *_ = context.forecast(OpenSpec.parse(GIVEN)).notes
    assert note.startswith("Engine spark: ")
    assert reason in note
    context.execute(OpenSpec.parse(GIVEN))
    assert context.reports["engine"]["engine"] == "spark"
    assert len(context.rows("clusters")) == len(PEOPLE)
    with pytest.raises(InputUnfit, match=f'^/engine: .*{reason}.* Or let engine be "auto"'):
        context.forecast(OpenSpec.parse({**GIVEN, "engine": "local"}))


@pytest.mark.parametrize("rows", [PEOPLE[:1], [{**PEOPLE[0], "id": str(at)} for at in range(3)]])
def test_single_records_and_copies_form_clusters(
    spark: SparkSession, tmp_path: Path, rows: Sequence[Row]
) -> None:
    context = FolderContext(spark, tmp_path, {"people": frame(spark, rows)})
    context.forecast(OpenSpec.parse(GIVEN))
    found = context.execute(OpenSpec.parse(GIVEN))
    assert context.reports["engine"]["engine"] == "local"
    assert len(found) == len(rows)
