"""Inclusion dependencies from files to the result: the paper's example, and random tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from spark_jobs.profiling.inclusion import inclusions, overlaps
from spark_jobs.runner.attempt import RunAttempt
from spark_jobs.runner.conformance import (
    SampleJob,
    check_hostile_specs,
    check_interrupted,
    check_spec,
    run_sample,
)
from spark_jobs.runner.control import Control
from spark_jobs.runner.job import parse_job
from spark_jobs.runner.run_directory import RunDirectory
from spark_jobs.session import LazySession
from spark_jobs.sources.reading import read_input

TRACKS = """album,position,title
Thriller,4,Thriller
Thriller,5,Beat it
Back in Black,1,Hells Bells
Back in Black,6,Back in Black
"""
ARTISTS = """track_alb,track_pos,name
Thriller,4,Michael Jackson
Thriller,4,Vincent Price
Thriller,5,Michael Jackson
Thriller,5,Eddie van Halen
Back in Black,1,AC/DC
Back in Black,6,AC/DC
"""
UNARY: set[tuple[str, ...]] = {
    ("album", "track_alb"),
    ("track_alb", "album"),
    ("album", "title"),
    ("track_alb", "title"),
    ("position", "track_pos"),
    ("track_pos", "position"),
}
KIND = "profile.ind"


def write_inputs(folder: Path, **tables: str | Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Write tables as CSV or JSON lines; return them as inputs."""
    inputs = {}
    for name, rows in tables.items():
        path = folder / f"{name}.{'csv' if isinstance(rows, str) else 'json'}"
        text = rows if isinstance(rows, str) else "".join(f"{json.dumps(row)}\n" for row in rows)
        path.write_text(text)
        inputs[name] = {"file": str(path)}
    return inputs


class Profile:
    """A run: its rows, and its reports."""

    def __init__(self, spark: SparkSession, folder: Path, spec: Mapping[str, Any]) -> None:
        directory = RunDirectory(folder / "run")
        sample = SampleJob(KIND, spec, ordered=True)
        self.rows = [json.loads(line) for line in run_sample(sample, spark, directory)]
        self.reports: dict[str, Any] = {}
        for stage in directory.stages.values():
            self.reports |= stage.reports

    @property
    def pairs(self) -> set[tuple[str, ...]]:
        return {(*row["dependent"], *row["referenced"]) for row in self.rows}

    def between(self, *tables: str) -> set[tuple[str, ...]]:
        """Return the pairs within the given tables."""
        sides = ("dependent_table", "referenced_table")
        rows = (row for row in self.rows if all(row[side] in tables for side in sides))
        return {(*row["dependent"], *row["referenced"]) for row in rows}

    def column(self, name: str) -> dict[str, Any]:
        (column,) = (c for c in self.reports["columns"]["columns"] if c["column"] == name)
        return dict(column)


@pytest.fixture
def sample(tmp_path: Path) -> SampleJob:
    inputs = write_inputs(tmp_path, tracks=TRACKS, artists=ARTISTS)
    return SampleJob(KIND, {"inputs": inputs, "arity": 2, "candidates": 50}, ordered=True)


def test_its_specification(sample: SampleJob) -> None:
    check_spec(sample)
    check_hostile_specs(sample)


@pytest.mark.large
@pytest.mark.timeout(900)
def test_it_is_interrupted_and_resumed(
    sample: SampleJob, spark: SparkSession, tmp_path: Path
) -> None:
    check_interrupted(sample, spark, tmp_path / "runs")


@pytest.mark.connect
def test_the_papers_example_has_six_unary_inclusions(spark: SparkSession, tmp_path: Path) -> None:
    inputs = write_inputs(tmp_path, tracks=TRACKS, artists=ARTISTS)
    profile = Profile(spark, tmp_path, {"inputs": inputs, "arity": 2})
    unary: set[tuple[str, ...]] = {pair for pair in profile.pairs if len(pair) == 2}
    assert unary == UNARY
    # Binary: the tracks of both tables are the same.
    assert profile.pairs - unary == {
        ("album", "position", "track_alb", "track_pos"),
        ("track_alb", "track_pos", "album", "position"),
    }
    assert profile.column("title")["distinct"] == 4


def cells_of(columns: Sequence[Sequence[str | None]]) -> list[tuple[int, int, int]]:
    """Return cells as keys: any injective mapping does."""
    return [
        (number, hash(value), 0)
        for number, column in enumerate(columns)
        for value in column
        if value is not None
    ]


def brute_force(columns: Sequence[Sequence[str | None]], error: float) -> set[tuple[int, int]]:
    sets = [{value for value in column if value is not None} for column in columns]
    return {
        (a, b)
        for a, b in permutations(range(len(sets)), 2)
        if sets[a] and len(sets[a] - sets[b]) <= error * len(sets[a])
        if sets[a] & sets[b]
    }


def found_in(
    spark: SparkSession, columns: Sequence[Sequence[str | None]], error: float, partitions: int = 1
) -> set[tuple[int, int]]:
    cells = spark.createDataFrame(cells_of(columns), "column int, high long, low long")
    common = overlaps(cells.repartition(partitions), len(columns))
    return {(row["a"], row["b"]) for row in inclusions(common, error).collect()}


VALUES = st.one_of(st.none(), st.sampled_from(["a", "b", "c", "1", "", "ä"]))
COLUMNS = st.lists(st.lists(VALUES, max_size=6), min_size=1, max_size=10)


@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(columns=COLUMNS, error=st.sampled_from([0.0, 0.25, 0.5]))
def test_random_tables_against_sets(
    spark: SparkSession, columns: list[list[str | None]], error: float
) -> None:
    assert found_in(spark, columns, error) == brute_force(columns, error)


@pytest.fixture(params=[1, 8])
def partitions(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[int]:
    key = "spark.sql.shuffle.partitions"
    before = spark.conf.get(key)
    spark.conf.set(key, str(request.param))
    yield request.param
    spark.conf.set(key, before or "1")


def test_partitions_and_masks_of_several_words_change_nothing(
    spark: SparkSession, partitions: int
) -> None:
    # The 150 columns need three words: column n has the multiples of n + 1.
    columns = [[str(n) for n in range(0, 200, step)] for step in range(1, 151)]
    expected = brute_force(columns, 0.0)
    assert (63, 0) in expected
    assert (129, 64) in expected
    assert found_in(spark, columns, 0.0, partitions) == expected


FORMS: dict[str, str | list[dict[str, Any]]] = {
    "texts": "as_text,price_text,at_text,code\n4,1.50,2026-01-02T04:04:05+01:00,007\n"
    "12345678.5,1,,1e3\n",
    "typed": [
        {"number": 4.0, "price": 1.5, "at": "2026-01-02T03:04:05Z", "seven": 7},
        {"number": 12345678.5, "price": 1, "at": None, "seven": 1000},
    ],
    "flags": [{"flag": n % 2 == 0, "count": n % 2} for n in range(4)],
    "some": "a,empty\n1,\n2,\n",
    "none": "b\n",
    "orders": [
        {
            "lines": [{"product": 1, "tags": ["a"]}, {"product": 2, "tags": []}],
            "extra": {"by": "x"},
        },
        {"lines": [{"product": 2, "tags": ["b", "a"]}], "extra": {"by": "y"}},
    ],
    "products": 'sku,notes\n1,"{""deep"": [1, {""z"": null}]}"\n2,"[]"\n',
    "opened": [{"json": r'{"a\u0000": "b\u0000"}'}, {"json": r'{"a\u0000": "b\ud800"}'}],
    "plain": [{"text": "b\0"}],
    "calls": "phone,n\n030-12,9\n030-12,10\n040-3,\n",
}
"""Tables that tests use alone or in pairs; one run profiles all of them."""


@pytest.fixture(scope="module")
def forms(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Profile:
    folder = tmp_path_factory.mktemp("forms")
    return Profile(spark, folder, {"inputs": write_inputs(folder, **FORMS)})


def test_values_of_one_meaning_are_equal_across_forms(forms: Profile) -> None:
    pairs = forms.between("texts", "typed")
    assert {("as_text", "number"), ("price_text", "price"), ("at_text", "at")} <= pairs
    assert not {pair for pair in pairs if {"code", "seven"} & {*pair}}


def test_a_boolean_is_not_a_number(forms: Profile) -> None:
    assert forms.between("flags") == set()
    assert forms.column("flag")["types"] == {"boolean": 4}


def test_columns_without_values_are_included_in_nothing(forms: Profile) -> None:
    assert forms.between("some", "none") == set()
    assert not {pair for pair in forms.pairs if {"empty", "b"} & {*pair}}
    empty = forms.column("empty")
    assert (empty["values"], empty["distinct"], empty["nulls"]) == (0, 0, 2)


def test_nested_values_have_paths(forms: Profile) -> None:
    assert ("lines[].product", "sku") in forms.pairs
    assert forms.column("lines[].tags[]")["values"] == 3
    assert forms.column("notes.deep[]")["types"] == {"number": 1}
    assert forms.column("notes.deep[].z")["values"] == 0


def test_characters_that_reports_cannot_hold_are_replaced(forms: Profile) -> None:
    assert forms.column("json.a\ufffd")["top"] == [{"value": "b\ufffd", "share": 1.0}]
    assert forms.column("text")["max"] == "b\ufffd"
    replaced = {("json.a\ufffd", "text"), ("text", "json.a\ufffd")}
    assert forms.between("opened", "plain") == replaced


def test_the_content_of_columns_is_reported(forms: Profile) -> None:
    phone, number = forms.column("phone"), forms.column("n")
    assert phone["patterns"] == [{"value": "9-9", "share": 1.0}]
    assert phone["top"][0] == {"value": "030-12", "share": pytest.approx(2 / 3)}
    assert (number["min"], number["max"], number["numbers"], number["nulls"]) == ("9", "10", 2, 1)


def test_some_values_may_be_missing(spark: SparkSession, tmp_path: Path) -> None:
    inputs = write_inputs(tmp_path, a="x\n1\n2\n3\n9\n", b="y\n1\n2\n3\n4\n5\n")
    assert Profile(spark, tmp_path, {"inputs": inputs}).rows == []
    (tmp_path / "more").mkdir()
    (row,) = Profile(spark, tmp_path / "more", {"inputs": inputs, "error": 0.25}).rows
    assert (row["dependent"], row["missing"], row["error"]) == (["x"], 1, 0.25)
    assert row["coverage"] == pytest.approx(0.6)


def test_a_reference_ranks_before_a_chance_inclusion(spark: SparkSession, tmp_path: Path) -> None:
    customers = "id,name\n" + "".join(f"{n},c{n}\n" for n in range(1, 41))
    orders = "number,customer_id,stars\n" + "".join(
        f"{n + 1000},{n % 30 + 1},{n % 5 + 1}\n" for n in range(60)
    )
    inputs = write_inputs(tmp_path, customers=customers, orders=orders)
    profile = Profile(spark, tmp_path, {"inputs": inputs})
    assert profile.rows[0]["dependent_table"] == "orders"
    assert profile.rows[0]["dependent"] == ["customer_id"]
    (proposal,) = profile.reports["references"]["proposals"]
    assert proposal["referenced"] == "customers.id"
    assert "patch" not in proposal


def test_columns_with_one_name_propose_a_blocking_rule(spark: SparkSession, tmp_path: Path) -> None:
    inputs = write_inputs(tmp_path, a="email\nx@y\n", b="email\nx@y\nz@y\n")
    profile = Profile(spark, tmp_path, {"inputs": inputs})
    (job,) = profile.reports["blocking"]["jobs"]
    assert parse_job(job).spec.blocking[0].name == "email"


def test_too_many_columns_are_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_jobs.profiling.columns.MAX_COLUMNS", 2)
    job = SampleJob(KIND, {"inputs": write_inputs(tmp_path, t="a,b,c\n1,2,3\n")}).job
    run = RunAttempt(
        job, RunDirectory(tmp_path / "run"), LazySession.of(spark), read_input, Control()
    )
    ending = run.execute()
    assert ending.state == "failed"
    assert ending.reasons == ("There are more than 2 columns: profile fewer tables.",)


@pytest.mark.large
def test_a_million_distinct_values(spark: SparkSession) -> None:
    numbers = spark.range(1_000_000)
    key = f.xxhash64("id"), f.xxhash64(f.lit(1), "id")
    high, low = key[0].alias("high"), key[1].alias("low")
    all_cells = numbers.select(f.lit(0).alias("column"), high, low)
    third = numbers.where("id % 3 = 0").select(f.lit(1).alias("column"), high, low)
    common = overlaps(all_cells.union(third), 2)
    (row,) = inclusions(common, 0.0).collect()
    assert (row["a"], row["b"], row["distinct_dependent"]) == (1, 0, 333_334)
