"""Open linkage of catalogues without a description: from inputs to links."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from benchmarks.harness.synthetic_catalogue import catalogues
from spark_jobs.linkage.open.spec import OpenSpec
from tests.spark.stage_context import FolderContext, frame

INPUTS = {name: {"file": f"{name}.csv"} for name in ("first", "second")}


def linked(spark: SparkSession, folder: Path, **changes: Any) -> FolderContext:
    tables = dict(zip(INPUTS, catalogues(500, 1.0, seed=6), strict=True))
    context = FolderContext(spark, folder, {name: frame(spark, tables[name]) for name in INPUTS})
    context.execute(
        OpenSpec.parse({"inputs": INPUTS, "zero_config": True, "truth": "entity", **changes})
    )
    return context


@pytest.fixture(scope="module")
def linked_catalogues(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> FolderContext:
    return linked(spark, tmp_path_factory.mktemp("catalogues"))


def test_products_are_linked_without_any_description(linked_catalogues: FolderContext) -> None:
    evaluation = linked_catalogues.reports["evaluation"]["pairwise"]
    assert evaluation["precision"] > 0.9
    assert evaluation["f1"] > 0.85


def test_precision_is_estimated_without_labels(linked_catalogues: FolderContext) -> None:
    trust = linked_catalogues.reports["trust"]
    precision = linked_catalogues.reports["evaluation"]["pairwise"]["precision"]
    assert abs(trust["estimated_precision"] - precision) < 0.06
    assert trust["warnings"] == []


def test_two_catalogues_in_one_table_are_not_trusted(spark: SparkSession, tmp_path: Path) -> None:
    products = [product for catalogue in catalogues(1_000, 1.0, seed=6) for product in catalogue]
    context = FolderContext(spark, tmp_path, {"all": frame(spark, products)})
    spec = {"inputs": {"all": {"file": "all.csv"}}, "zero_config": True, "truth": "entity"}
    context.execute(OpenSpec.parse(spec))
    trust = context.reports["trust"]
    precision = context.reports["evaluation"]["pairwise"]["precision"]
    assert precision < 0.2
    assert trust["estimated_precision"] < 0.3
    assert any("cannot be trusted" in warning for warning in trust["warnings"])


def test_every_link_has_an_explanation(linked_catalogues: FolderContext) -> None:
    rows = linked_catalogues.rows("pairs")
    assert rows
    for row in rows:
        assert "similar by" in row["why"]
        assert row["probability"] >= 0.9
        assert row["together"]


def test_the_proposal_executed_on_spark_gives_the_same_result(
    spark: SparkSession, tmp_path: Path, linked_catalogues: FolderContext
) -> None:
    spec = linked_catalogues.reports["proposal"]["spec"]
    repeated = linked(spark, tmp_path, zero_config=False, engine="spark", **spec)
    for stage in ("compare", "pairs", "clusters"):
        assert _sorted(repeated.rows(stage)) == _sorted(linked_catalogues.rows(stage))
    assert repeated.reports["similarity"] == linked_catalogues.reports["similarity"]
    assert repeated.reports["trust"] == linked_catalogues.reports["trust"]


def _sorted(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(map(repr, rows))


def test_a_forecast_names_the_comparisons(spark: SparkSession, tmp_path: Path) -> None:
    tables = dict(zip(INPUTS, catalogues(50, 1.0, seed=6), strict=True))
    context = FolderContext(spark, tmp_path, {name: frame(spark, tables[name]) for name in INPUTS})
    spec = OpenSpec.parse({"inputs": INPUTS, "zero_config": True, "truth": "entity"})
    forecast = context.forecast(spec)
    assert forecast.pairs == 100 * 10
    assert any("Whole records" in note for note in forecast.notes)
