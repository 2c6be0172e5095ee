"""Open linkage by Splink in this process: Spark's results, or a refusal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from pyspark.sql import SparkSession
from splink import Linker

from benchmarks.harness.synthetic_people import people
from spark_jobs.linkage.open import plan as choosing
from spark_jobs.linkage.open.in_process.comparing import compare_pairs as in_process
from spark_jobs.linkage.open.in_process.comparing import load_records
from spark_jobs.linkage.open.in_process.duck import in_memory_database, splink_api
from spark_jobs.linkage.open.in_process.settings import settings
from spark_jobs.linkage.open.model import Model
from spark_jobs.linkage.open.plan import SPARE_CODES
from spark_jobs.linkage.open.spec import OpenSpec
from spark_jobs.runner.port import InputUnfit, StageContext
from tests.spark.stage_context import FolderContext, frame

pytestmark = pytest.mark.timeout(900)  # whole runs, perhaps on a busy machine
LARGE = pytest.mark.large  # whole runs of both engines, a minute and more

Row = dict[str, Any]

PEOPLE: list[Row] = list(people(150, 2, seed=5))
FILE = {"file": "people.csv"}
MIN_F1 = 0.97
SQL = "name\"'); DROP TABLE t0; --"
DOCUMENT: dict[str, Any] = {
    "inputs": {"people": FILE},
    "blocking": [
        ["phone"],
        ["surname", {"column": "given_name", "take": "prefix", "length": 2}],
        ["date_of_birth"],
    ],
    "comparisons": [
        {
            "columns": ["given_name"],
            "levels": ["exact", {"jaro_winkler": 0.85}],
            "term_frequency": True,
        },
        {"columns": ["surname"], "levels": ["exact", {"levenshtein": 1}], "term_frequency": True},
        {"columns": ["street"], "levels": [{"jaccard": 0.9}, {"jaccard": 0.5}]},
        {"columns": ["phone"], "levels": ["exact", {"levenshtein": 2}, {"number": 1_000}]},
        {"columns": ["date_of_birth"], "levels": ["exact", {"days": 40}]},
    ],
    "truth": "entity",
    "engine": "spark",
}


def parsed(**changes: Any) -> OpenSpec:
    return OpenSpec.parse({**DOCUMENT, **changes})


def execute_all(
    spark: SparkSession, folder: Path, spec: OpenSpec, **inputs: Sequence[Row]
) -> FolderContext:
    context = FolderContext(
        spark, folder, {name: frame(spark, rows) for name, rows in inputs.items()}
    )
    context.forecast(spec)
    context.execute(spec)
    return context


@pytest.fixture(scope="module")
def by_spark(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> FolderContext:
    return execute_all(spark, tmp_path_factory.mktemp("spark"), parsed(), people=PEOPLE)


@pytest.fixture(scope="module")
def by_splink(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> FolderContext:
    folder = tmp_path_factory.mktemp("splink")
    return execute_all(spark, folder, parsed(engine="splink"), people=PEOPLE)


def compared(context: FolderContext) -> set[tuple[Any, ...]]:
    return {
        (row["l"], row["r"], row["pattern"], round(row["rarity"], 9))
        for row in context.rows("compare")
    }


def together(context: FolderContext) -> set[tuple[str, str]]:
    cluster = {row["id"]: row["cluster"] for row in context.rows("clusters")}
    return {
        (left, right)
        for left, right in combinations(sorted(cluster), 2)
        if cluster[left] == cluster[right]
    }


@LARGE
def test_both_engines_compare_the_same_pairs_with_the_same_result(
    by_spark: FolderContext, by_splink: FolderContext
) -> None:
    assert compared(by_splink) == compared(by_spark)


@LARGE
def test_both_engines_reach_the_same_quality(
    by_spark: FolderContext, by_splink: FolderContext
) -> None:
    """F1 against the labelled data, and of one engine against the other."""
    for context in (by_spark, by_splink):
        assert context.reports["evaluation"]["pairwise"]["f1"] >= MIN_F1
    spark_pairs, splink_pairs = together(by_spark), together(by_splink)
    assert 2 * len(spark_pairs & splink_pairs) / (len(spark_pairs) + len(splink_pairs)) >= MIN_F1


@LARGE
def test_a_score_equals_that_of_splink(by_splink: FolderContext) -> None:
    """With the run's model, Splink gives every pair the run's weight."""
    spec, context = parsed(), cast("StageContext", by_splink)
    model = Model.of_json(by_splink.reports["model"], spec.comparisons)
    document = settings(spec).create_settings_dict("duckdb")
    document["probability_two_random_records_match"] = model.estimate.share
    for k, comparison in enumerate(document["comparisons"]):
        for index, level in enumerate(comparison["comparison_levels"][1:], start=1):
            level["m_probability"] = model.estimate.m[k][index]
            level["u_probability"] = model.estimate.u[k][index]
    with in_memory_database() as duck:
        names = load_records(spec, context).create_tables(duck)
        linker = Linker(names, document, splink_api(duck), set_up_basic_logging=False)
        predicted = linker.inference.predict().as_record_dict()
    weights = {frozenset((row["unique_id_l"], row["unique_id_r"])): row for row in predicted}
    rows = by_splink.rows("compare")
    bits = model.pattern_bits(np.array([row["pattern"] for row in rows]))
    assert len(weights) == len(rows)
    for row, base in zip(rows, bits, strict=True):
        weight = weights[frozenset((row["l"], row["r"]))]["match_weight"]
        assert base + row["rarity"] == pytest.approx(weight, abs=1e-6)


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> FolderContext:
    """Two tables with known records, multi-byte letters and a column name that is SQL."""
    rows: dict[str, list[Row]] = {"left": [], "right": []}
    for n, person in enumerate(PEOPLE[:120]):
        name = (person["given_name"] or "").replace("o", "ł").replace("a", "я") or None
        row = {"id": person["id"], SQL: name, "surname": person["surname"]}
        rows["left" if n % 2 else "right"].append(row)
    known = [
        {"id": row["id"], "cluster": "old", "source": source, "record": row["id"]}
        for source in rows
        for row in rows[source][:10]
    ]
    inputs = {name: frame(spark, table) for name, table in {**rows, "known": known}.items()}
    return FolderContext(spark, tmp_path_factory.mktemp("tables"), inputs)


@pytest.mark.parametrize("within", [False, True])
def test_both_engines_support_tables_known_clusters_and_any_letters(
    tables: FolderContext, *, within: bool
) -> None:
    spec = parsed(
        inputs={"left": FILE, "right": FILE},
        within=within,
        known=FILE,
        truth=SQL,
        blocking=[["surname"], [{"column": SQL, "take": "prefix", "length": 1}]],
        comparisons=[
            {
                "columns": [SQL],
                "levels": [
                    "exact",
                    {"levenshtein": 1},
                    {"jaro_winkler": 0.9},
                    {"jaro_winkler": 0.7},
                ],
            },
            {"columns": ["surname", SQL], "levels": ["exact", {"jaccard": 0.4}]},
        ],
    )
    tables.execute(spec, until="compare")
    compared_rows = in_process(spec, cast("StageContext", tables)).collect()
    columns = ("l", "r", "pattern", "rarity")
    assert {tuple(row[name] for name in columns) for row in compared_rows} == {
        tuple(row[name] for name in columns) for row in tables.rows("compare")
    }
    assert len(compared_rows) == tables.output("compare").count() > 0


def test_inputs_that_splink_does_not_support_are_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    characters = "".join(chr(code) for code in range(0x4E00, 0x4E00 + len(SPARE_CODES) + 1))
    too_many_characters: list[Row] = [*PEOPLE[:3], {**PEOPLE[3], "surname": characters}]
    spec = parsed(engine="splink")

    def check_refused(rows: Sequence[Row], reason: str) -> None:
        context = FolderContext(spark, tmp_path, {"people": frame(spark, rows)})
        with pytest.raises(InputUnfit, match=f"^/engine: .*{reason}"):
            context.forecast(spec)

    check_refused(too_many_characters, "characters beyond a to z")
    monkeypatch.setattr(choosing, "IN_PROCESS_PAIRS", -1)
    check_refused(PEOPLE[:3], "one process is given -1")
    monkeypatch.setattr(choosing, "find_spec", lambda _: None)
    check_refused(PEOPLE[:3], r'pip install "portolan\[linkage\]"')


def test_a_single_record_is_processed_by_splink_and_forms_its_cluster(
    spark: SparkSession, tmp_path: Path
) -> None:
    context = execute_all(spark, tmp_path, parsed(engine="splink"), people=PEOPLE[:1])
    (row,) = context.rows("clusters")
    assert row["cluster"] == f"people/{PEOPLE[0]['id']}"
