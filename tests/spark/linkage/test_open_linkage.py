"""Open linkage from inputs to clusters, on synthetic people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from benchmarks.harness.synthetic_people import people
from spark_jobs.linkage.open.kind import OpenLinkage
from spark_jobs.linkage.open.spec import LinkageResult, OpenSpec
from spark_jobs.runner.port import InputUnfit
from spark_jobs.runner.results import ResultFiles
from tests.spark.stage_context import FolderContext, frame

Row = dict[str, Any]

PEOPLE: list[Row] = list(people(300, 2, seed=5))
FILE = {"file": "people.csv"}
DOCUMENT: dict[str, Any] = {
    "inputs": {"people": FILE},
    "blocking": [
        ["phone"],
        ["surname", {"column": "given_name", "take": "prefix", "length": 2}],
        ["date_of_birth"],
    ],
    "comparisons": [
        {"columns": [name], "levels": ["exact", {"jaro_winkler": 0.85}], "term_frequency": True}
        for name in ("given_name", "surname", "street")
    ]
    + [
        {"columns": [name], "levels": ["exact", {"levenshtein": 2}]}
        for name in ("phone", "date_of_birth")
    ],
    "truth": "entity",
    "clustering": "components",
    "engine": "spark",
}


def context_of(
    spark: SparkSession, folder: Path, **inputs: Sequence[Mapping[str, Any]]
) -> FolderContext:
    return FolderContext(spark, folder, {name: frame(spark, rows) for name, rows in inputs.items()})


def parsed(**changes: Any) -> OpenSpec:
    return OpenSpec.parse({**DOCUMENT, **changes})


def partition(rows: Sequence[Row]) -> set[frozenset[tuple[str, str]]]:
    groups: dict[str, set[tuple[str, str]]] = {}
    for row in rows:
        groups.setdefault(row["cluster"], set()).add((row["source"], row["record"]))
    return {frozenset(group) for group in groups.values()}


@pytest.fixture(scope="module")
def deduplicated(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> FolderContext:
    """All people, deduplicated by `DOCUMENT`."""
    context = context_of(spark, tmp_path_factory.mktemp("whole"), people=PEOPLE)
    context.execute(parsed())
    return context


@pytest.fixture(scope="module")
def zero_config(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> FolderContext:
    """All people, deduplicated without a description."""
    context = context_of(spark, tmp_path_factory.mktemp("proposed"), people=PEOPLE)
    spec = {"inputs": {"people": FILE}, "zero_config": True, "truth": "entity"}
    context.execute(OpenSpec.parse({**spec, "engine": "spark"}))
    return context


@pytest.mark.parametrize("result", LinkageResult)
def test_results_have_the_declared_columns(
    deduplicated: FolderContext, tmp_path: Path, result: LinkageResult
) -> None:
    kind, spec = OpenLinkage(), parsed(result=result)
    deduplicated.output(kind.stages(spec)[-1].name).write.parquet(str(tmp_path / "result"))
    assert ResultFiles(tmp_path / "result").columns == kind.columns(spec)


def test_proposed_settings_reach_the_required_quality(zero_config: FolderContext) -> None:
    assert zero_config.reports["evaluation"]["pairwise"]["f1"] > 0.95
    assert zero_config.reports["evaluation"]["blocking_recall"] > 0.97


def test_a_proposal_has_reasons_and_is_a_specification(zero_config: FolderContext) -> None:
    proposal = zero_config.reports["proposal"]
    spec = OpenSpec.parse({"inputs": {"people": FILE}, **proposal["spec"]})
    assert spec.is_complete
    for column in spec.columns:
        assert any(column in reason for reason in proposal["reasons"])
    assert "entity" not in spec.columns


@pytest.mark.connect
def test_pairs_are_those_of_the_blocks_without_duplicates(deduplicated: FolderContext) -> None:
    rows = {(row["l"], row["r"]) for row in deduplicated.rows("compare")}
    assert len(rows) == deduplicated.output("compare").count()
    ids = {row["row"]: row["id"] for row in deduplicated.rows("records")}
    pairs = {frozenset((ids[left], ids[right])) for left, right in rows}

    def together(a: Row, b: Row) -> bool:
        has_names = a["surname"] and a["given_name"] and b["given_name"]
        return bool(
            (a["phone"] and a["phone"] == b["phone"])
            or (
                has_names
                and a["surname"] == b["surname"]
                and a["given_name"][:2] == b["given_name"][:2]
            )
            or (a["date_of_birth"] and a["date_of_birth"] == b["date_of_birth"])
        )

    assert pairs == {
        frozenset((a["id"], b["id"])) for a, b in combinations(PEOPLE, 2) if together(a, b)
    }


@pytest.mark.connect
def test_an_evaluation_equals_plain_counts(deduplicated: FolderContext) -> None:
    cluster = {row["record"]: row["cluster"] for row in deduplicated.rows("clusters")}
    entity = {person["id"]: person["entity"] for person in PEOPLE}
    pairs = list(combinations(entity, 2))
    found_pairs = {pair for pair in pairs if cluster[pair[0]] == cluster[pair[1]]}
    true_pairs = {pair for pair in pairs if entity[pair[0]] == entity[pair[1]]}
    evaluation = deduplicated.reports["evaluation"]
    assert evaluation["pairs"] == {
        "found": len(found_pairs),
        "true": len(true_pairs),
        "both": len(found_pairs & true_pairs),
    }
    assert evaluation["pairwise"]["precision"] == pytest.approx(
        len(found_pairs & true_pairs) / len(found_pairs)
    )
    assert evaluation["b3"]["recall"] == pytest.approx(b3(entity, cluster))


def b3(groups: Mapping[str, str], compared: Mapping[str, str]) -> float:
    shares = []
    for record in groups:
        group = [member for member in groups if groups[member] == groups[record]]
        shares.append(sum(compared[member] == compared[record] for member in group) / len(group))
    return sum(shares) / len(shares)


def test_links_have_an_explanation(deduplicated: FolderContext) -> None:
    links = deduplicated.rows("pairs")
    assert links
    for link in links:
        assert link["probability"] >= 0.9
        assert "phone (" in link["why"] or "phone is missing" in link["why"]
        assert "Rarity adds" in link["why"]


def test_a_cluster_is_named_after_its_smallest_record(deduplicated: FolderContext) -> None:
    members: dict[str, list[str]] = {}
    for row in deduplicated.rows("clusters"):
        members.setdefault(row["cluster"], []).append(row["record"])
    assert all(name == f"people/{min(records)}" for name, records in members.items())


def test_a_repeated_run_gives_the_same_clusters(
    deduplicated: FolderContext, spark: SparkSession, tmp_path: Path
) -> None:
    repeated = context_of(spark, tmp_path, people=PEOPLE[::-1])
    rows = repeated.execute(parsed())
    key = lambda row: row["id"]  # noqa: E731 - the result's rows are unordered
    assert sorted(rows, key=key) == sorted(deduplicated.rows("clusters"), key=key)


def test_new_records_join_clusters_as_if_all_had_arrived_together(
    deduplicated: FolderContext, spark: SparkSession, tmp_path: Path
) -> None:
    model = deduplicated.reports["model"]
    first = context_of(spark, tmp_path / "first", people=PEOPLE[:350])
    known = [{**row, "probability": None} for row in first.execute(parsed(model=model))]
    both = context_of(spark, tmp_path / "both", people=PEOPLE, known=known)
    clusters = both.execute(parsed(model=model, known=FILE))
    assert partition(clusters) == partition(deduplicated.rows("clusters"))
    ids = {row["row"]: row["id"] for row in both.rows("records")}
    old = {person["id"] for person in PEOPLE[:350]}
    assert not [
        row for row in both.rows("compare") if ids[row["l"]] in old and ids[row["r"]] in old
    ]
    before = {row["id"]: row["cluster"] for row in known}
    current = {row["cluster"] for row in clusters}
    merged = {merge["from"] for merge in both.reports["merges"]["merged"]}
    assert merged == {*before.values()} - current
    for row in clusters:
        if row["id"] in before and before[row["id"]] not in merged:
            assert row["cluster"] == before[row["id"]]


def test_tables_are_linked_one_to_one(spark: SparkSession, tmp_path: Path) -> None:
    left = [person for person in PEOPLE if person["id"].endswith("-0")]
    right = [person for person in PEOPLE if person["id"].endswith("-1")]
    context = context_of(spark, tmp_path, left=left, right=right)
    spec = parsed(inputs={"left": FILE, "right": FILE}, clustering="one_per_source", result="pairs")
    links = context.execute(spec)
    assert {(link["left_source"], link["right_source"]) for link in links} <= {
        ("left", "right"), ("right", "left"),
    }  # fmt: skip
    groups = partition(context.rows("clusters"))
    assert all(len(group) == len({source for source, _ in group}) for group in groups)
    assert context.reports["evaluation"]["pairwise"]["f1"] > 0.9


def test_heavy_blocks_are_forecast_and_split(spark: SparkSession, tmp_path: Path) -> None:
    crowd = [{**person, "city": "smithville"} for person in PEOPLE]
    context = context_of(spark, tmp_path, people=crowd)
    rules = [[{"column": "city", "take": "prefix", "length": 5}], ["phone"]]
    spec = parsed(blocking=rules, limits={"block_pairs": 1_000})
    forecast = context.forecast(spec)
    assert forecast.heaviest[0].pairs == len(crowd) * (len(crowd) - 1) // 2
    assert "smithville" in forecast.heaviest[0].name
    assert any("will be split" in note for note in forecast.notes)
    context.execute(spec)
    (split, *_) = context.reports["splits"]["heavy"]
    assert split["blocks"] == 1
    assert split["split_by"] is not None
    assert max(rule["heaviest"] for rule in context.reports["blocking"]["rules"]) <= 1_000
    assert context.reports["evaluation"]["blocking_recall"] > 0.5


def test_blocks_that_cannot_be_split_are_skipped_and_reported(
    spark: SparkSession, tmp_path: Path
) -> None:
    same: list[Row] = [{"id": str(n), "a": "x", "b": "y", "c": "z"} for n in range(60)]
    context = context_of(spark, tmp_path, people=same)
    exact = {"levels": ["exact"]}
    spec = OpenSpec.parse(
        {
            "inputs": {"people": FILE},
            "blocking": [["a"]],
            "comparisons": [{"columns": [name], **exact} for name in "abc"],
            "limits": {"block_pairs": 100},
        }
    )
    rows = context.execute(spec)
    assert [block["split_by"] for block in context.reports["splits"]["heavy"]] == ["b", "c", None]
    assert len({row["cluster"] for row in rows}) == 60


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([], "people has no records"),
        ([{"id": "1", "surname": "a"}], "people has no column"),
    ],
)
def test_unfit_inputs_are_refused(
    spark: SparkSession, tmp_path: Path, rows: list[Row], reason: str
) -> None:
    columns = rows or [dict.fromkeys(PEOPLE[0])]
    empty = frame(spark, columns) if rows else frame(spark, columns).limit(0)
    with pytest.raises(InputUnfit, match=reason):
        FolderContext(spark, tmp_path, {"people": empty}).forecast(parsed())


def test_too_many_pairs_end_a_run(spark: SparkSession, deduplicated: FolderContext) -> None:
    spec = parsed(limits={"pairs": 10})
    compare = next(stage for stage in OpenLinkage().stages(spec) if stage.name == "compare")
    with pytest.raises(InputUnfit, match=r"limits\.pairs"):
        compare.run(deduplicated)
