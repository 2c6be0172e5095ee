"""Private linkage on Spark: brute force's links with any options, and the inputs it refuses."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.linkage.private import comparing
from spark_jobs.linkage.private.kind import PrivateLinkage
from spark_jobs.linkage.private.spec import PrivateSpec
from spark_jobs.linkage.private.stages import comparison_of, order_in
from spark_jobs.runner.port import Forecast, InputUnfit, RunCancelled
from spark_jobs.runner.specification import SpecInvalid
from tests.spark.stage_context import FolderContext

KIND = PrivateLinkage()
BITS = 256
T8 = Fraction(4, 5)

Link = tuple[str, str, str, str, float]


class SampleContext(FolderContext):
    """Records the progress of its stages, and can cancel them."""

    def __init__(self, spark: SparkSession, folder: Path, inputs: Mapping[str, DataFrame]) -> None:
        super().__init__(spark, folder, inputs)
        self.steps: list[tuple[int, int]] = []
        self.cancelled = False

    def progress(self, done: int, total: int) -> None:
        self.steps.append((done, total))
        if self.cancelled:
            raise RunCancelled


def records(count: int, seed: int, families: int = 15) -> dict[str, int]:
    """Return encodings by id; encodings of one family differ in a few bits."""
    heads = [Random(n).getrandbits(BITS) & Random(-n).getrandbits(BITS) for n in range(families)]
    random = Random(seed)
    return {
        f"r{seed}-{n}": random.choice(heads) ^ sum(1 << random.randrange(BITS) for _ in range(5))
        for n in range(count)
    }


LEFT, RIGHT, THIRD = records(60, 1), records(90, 2), records(40, 3)


def frame(spark: SparkSession, encodings: Mapping[str, int], *, text: bool = False) -> DataFrame:
    rows = [(id_, bits.to_bytes(BITS // 8)) for id_, bits in encodings.items()]
    if text:
        encoded = [(id_, base64.b64encode(bits).decode()) for id_, bits in rows]
        return spark.createDataFrame(encoded, "id string, clk string")
    return spark.createDataFrame(rows, "id string, clk binary")


def brute(threshold: Fraction, **parties: Mapping[str, int]) -> list[Link]:
    links = [
        (left_party, left, right_party, right, share)
        for (left_party, lefts), (right_party, rights) in combinations(parties.items(), 2)
        for left, x in lefts.items()
        for right, y in rights.items()
        if (share := Fraction((x & y).bit_count(), (x | y).bit_count())) >= threshold
    ]
    return [
        (left_party, left, right_party, right, float(share))
        for left_party, left, right_party, right, share in sorted(
            links, key=lambda link: (-link[4], *link[:4])
        )
    ]


def best_of(links: list[Link], limit: int) -> list[Link]:
    counts: dict[tuple[str, str, str], int] = {}
    best = []
    for link in links:
        if counts.setdefault(link[:3], 0) < limit:
            counts[link[:3]] += 1
            best.append(link)
    return best


def one_to_one(links: list[Link]) -> list[Link]:
    linked: set[tuple[str, str, str]] = set()
    chosen = []
    for link in links:
        ends = {link[:3], (link[2], link[3], link[0])}
        if not linked & ends:
            linked |= ends
            chosen.append(link)
    return chosen


def spec(**members: Any) -> PrivateSpec:
    sources = {"left": {"file": "a.csv"}, "right": {"file": "b.csv"}}
    return KIND.specification.parse({**sources, "threshold": 0.8, **members})


def run(context: SampleContext, specification: PrivateSpec) -> list[Link]:
    scored = None
    for stage in KIND.stages(specification):
        scored = stage.run(context)
        assert scored is not None
        scored.write.mode("overwrite").parquet(str(context.folder / stage.name))
    assert scored is not None
    return [tuple(row) for row in scored.collect()]


@pytest.fixture
def context(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SampleContext:
    """Use small blocks, so that there are several of them and several waves of tasks."""
    monkeypatch.setattr(comparing, "BLOCK", 16)
    monkeypatch.setattr(comparing, "TASK_PAIRS", 600)
    inputs = {"left": frame(spark, LEFT), "right": frame(spark, RIGHT, text=True)}
    return SampleContext(spark, tmp_path, inputs)


@pytest.mark.connect
@pytest.mark.parametrize(
    "filters",
    [
        [],
        ["length", "prefix", "position"],
        *(pytest.param([name], marks=pytest.mark.large) for name in ("length", "position")),
    ],
)
def test_private_linkage_finds_the_pairs_of_brute_force(
    context: SampleContext, filters: list[str]
) -> None:
    expected = brute(T8, left=LEFT, right=RIGHT)
    assert expected
    assert run(context, spec(filters=filters)) == expected
    assert context.counters["pairs"] == len(LEFT) * len(RIGHT)
    assert context.counters["matches"] == len(expected)
    assert context.steps[-1][0] == context.steps[-1][1] > 2
    assert set(context.reports["audit"]) == {"left", "right"}
    assert context.reports["audit"]["left"]["records"] == len(LEFT)


@pytest.mark.connect
def test_top_k_and_one_to_one_linkage(context: SampleContext) -> None:
    expected = best_of(brute(Fraction(2, 3), left=LEFT, right=RIGHT), 2)
    assert run(context, spec(threshold="2/3", top_k=2)) == expected
    expected = one_to_one(brute(T8, left=LEFT, right=RIGHT))
    assert run(context, spec(one_to_one=True)) == expected


def test_three_parties_are_linked_but_not_with_themselves(context: SampleContext) -> None:
    context.inputs = {
        "a": frame(context.spark, LEFT),
        "b": frame(context.spark, RIGHT),
        "c": frame(context.spark, THIRD),
    }
    parties = {name: {"file": f"{name}.csv"} for name in "abc"}
    specification = KIND.specification.parse({"parties": parties, "threshold": "0.8"})
    assert run(context, specification) == brute(T8, a=LEFT, b=RIGHT, c=THIRD)


def test_the_forecast_counts_pairs_after_the_length_filter(context: SampleContext) -> None:
    forecast: Forecast = KIND.forecast(spec(), context)
    assert forecast.rows == {"left": len(LEFT), "right": len(RIGHT)}
    sizes = [[bits.bit_count() for bits in encodings.values()] for encodings in (LEFT, RIGHT)]
    expected = sum(min(x, y) >= T8 * max(x, y) for x in sizes[0] for y in sizes[1])
    assert forecast.pairs == expected
    assert forecast.heaviest[0].pairs == max(block.pairs for block in forecast.heaviest)
    run(context, spec())
    assert context.counters["after_length"] == expected


def test_the_forecast_uses_the_cores_of_the_cluster(
    context: SampleContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = KIND.forecast(spec(), context).time_s
    run(context, spec())
    waves = context.steps
    context.steps = []
    monkeypatch.setattr(os, "cpu_count", lambda: 1_000)
    assert KIND.forecast(spec(), context).time_s == expected
    run(context, spec())
    assert context.steps == waves


def test_a_linkage_ends_when_it_is_cancelled(context: SampleContext) -> None:
    context.cancelled = True
    with pytest.raises(RunCancelled):
        run(context, spec())
    context.cancelled = False
    scored = KIND.stages(spec())[2].run(context)
    assert scored is not None


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([], "right has no records"),
        ([("a", b"\1" * 32), ("b", b"\1" * 16)], "different lengths.*128 bits: right, id 'b'"),
        ([("a", b"\1" * 16)], "different lengths"),
        ([("a", bytes(32))], "no bit set.*'a'"),
        ([("a", None)], "missing.*'a'"),
        ([(None, b"\1" * 32)], "no id"),
        ([("a", bytes(9000))], "no bit set"),
    ],
)
def test_inputs_that_cannot_be_compared_are_refused(
    context: SampleContext, rows: Any, reason: str
) -> None:
    right = context.spark.createDataFrame(rows, "id string, clk binary")
    context.inputs = {**context.inputs, "right": right}
    with pytest.raises(InputUnfit, match=reason):
        KIND.forecast(spec(), context)


def test_missing_columns_and_columns_of_another_type_are_refused(
    context: SampleContext,
) -> None:
    with pytest.raises(InputUnfit, match="left has no column bits"):
        KIND.forecast(spec(bits="bits"), context)
    numbers = context.spark.createDataFrame([("a", 1)], "id string, clk int")
    context.inputs = {**context.inputs, "right": numbers}
    with pytest.raises(InputUnfit, match="neither binary nor text"):
        KIND.forecast(spec(), context)
    text = context.spark.createDataFrame([("a", "not base64!")], "id string, clk string")
    context.inputs = {**context.inputs, "right": text}
    with pytest.raises(InputUnfit, match="base64"):
        KIND.forecast(spec(), context)


@pytest.mark.parametrize(
    ("members", "pointer"),
    [
        ({"threshold": 0}, "/threshold"),
        ({"threshold": 1.1}, "/threshold"),
        ({"threshold": "1e-9"}, "/threshold"),
        ({"threshold": True}, "/threshold"),
        ({"threshold": "1/0"}, "/threshold"),
        ({"filters": "length"}, "/filters"),
        ({"filters": ["bound"]}, "/filters"),
        ({"top_k": 0}, "/top_k"),
        ({"one_to_one": 1}, "/one_to_one"),
        ({"left": {"file": "a.exe"}}, "/left/format"),
        ({"parties": {"a": {"file": "a.csv"}}}, "/parties"),
        ({"key": "secret"}, "/key"),
    ],
)
def test_specifications_are_read_strictly(members: dict[str, Any], pointer: str) -> None:
    with pytest.raises(SpecInvalid) as error:
        spec(**members)
    assert error.value.pointer == pointer
    assert spec(threshold="0.8").threshold == spec().threshold == T8


def test_more_matches_than_the_limit_are_refused(context: SampleContext) -> None:
    specification = spec()
    for stage in KIND.stages(specification)[:2]:
        scored = stage.run(context)
        assert scored is not None
        scored.write.parquet(str(context.folder / stage.name))
    spans = comparing.spans_of(blocks := context.output("blocks"))
    order = order_in(context.output("order"), sum(span.records for span in spans))
    count = len(brute(T8, left=LEFT, right=RIGHT))

    def compare(max_matches: int) -> pa.Table:
        comparison = replace(comparison_of(specification, order), max_matches=max_matches)
        tasks = comparing.tasks_between(spans, comparison)
        return comparing.compare_blocks(blocks, tasks, comparison, lambda *_: None)[0]

    assert len(compare(count)) == count
    with pytest.raises(InputUnfit, match=f"more than {count - 1} matches: raise the threshold"):
        compare(count - 1)
