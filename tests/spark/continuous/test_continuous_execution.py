"""Continuous queries over real servers: any placement gives the results of plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from mediator.continuous.model import Query, relational
from mediator.continuous.order import Engine
from mediator.continuous.parser import parse_query
from mediator.continuous.planning import (
    Plan,
    PlanOptions,
    as_given,
    everything_on,
    reference_constants,
)
from mediator.stores.port import StoreUnavailable, SystemConfig
from spark_jobs.continuous import state
from spark_jobs.continuous.calibration import Sample, fit
from spark_jobs.continuous.execution import Execution, results_in
from spark_jobs.continuous.log import LogUnfit, Tuple, TupleLog
from spark_jobs.continuous.running import DirectoryUnfit, NoDatabase, run_plan
from tests.spark.continuous.plain_evaluation import results

HOUSES = ("", "ä'B", 'a,"\\\n', "\\.")
pytestmark = pytest.mark.timeout(900)

OPTIONS = PlanOptions(reference_constants())
STREAMS = {
    "loads": {"fields": {"plug": "integer", "house": "string", "load": "number"}, "rate": 3},
    "works": {"fields": {"plug": "integer", "work": "integer"}, "rate": 2},
}


def random_tuples(draw: Random, count: int, late_share: float = 0.1) -> list[Tuple]:
    time_s, tuples = draw.uniform(-5, 5), list[Tuple]()
    for _ in range(count):
        time_s += draw.choice((0, 0.1, 0.25, 0.5, 1.0))
        at_s = round(time_s - (draw.uniform(0, 3) if draw.random() < late_share else 0), 2)
        plug = draw.randrange(3)
        if draw.random() < 0.6:
            values: dict[str, float | str] = {
                "plug": plug,
                "house": draw.choice(HOUSES),
                "load": draw.randrange(-8, 9) / 4,
            }
            tuples.append(("loads", at_s, values))
        else:
            tuples.append(("works", at_s, {"plug": plug, "work": draw.randrange(5)}))
    return tuples


def as_multiset(rows: Iterable[dict[str, Any]]) -> Counter[bytes]:
    return Counter(orjson.dumps(row, option=orjson.OPT_SORT_KEYS) for row in rows)


def executed(
    spark: SparkSession,
    config: SystemConfig,
    plan: Plan,
    tuples: list[Tuple],
    directory: Path,
    trigger: int = 1,
) -> list[dict[str, Any]]:
    trigger_s = plan.query.slide_s * trigger
    run_plan(spark, plan, tuples, trigger_s, directory, config.url)
    return [orjson.loads(line) for line in results_in(directory)]


PEAKS: dict[str, Any] = {
    "streams": STREAMS,
    "slide_s": 1,
    "distinct": {"plug": 3, "house": 4},
    "operators": {
        "recent": {"window": "loads", "range_s": 3},
        "positive": {"select": [{"gt": ["load", -1]}], "of": "recent"},
        "again": {"window": "loads", "range_s": 2.5},
        "peaks": {"aggregate": {"peak": {"maximum": "load"}}, "by": ["plug"], "of": "again"},
        "compared": {"join": ["positive", "peaks"]},
        "near": {"select": [{"ge": ["load", {"field": "peak", "times": 0.5}]}], "of": "compared"},
        "counts": {"aggregate": {"n": {"count": "*"}}, "by": ["plug"], "of": "near"},
    },
    "root": "counts",
}


def random_query(draw: Random) -> Query:
    """Return a join of two branches over windows, under random operators."""
    operators: dict[str, Any] = {}

    def window(name: str, stream: str) -> str:
        size = draw.choice(({"range_s": draw.choice((0.7, 2, 3.5))}, {"rows": draw.choice((2, 5))}))
        operators[name] = {"window": stream, **size}
        return name

    def add(kind: str, of: str, **members: Any) -> str:
        name = f"{kind}_{len(operators)}"
        operators[name] = {kind: members.pop("what"), "of": of, **members}
        return name

    left = window("first", "loads")
    if draw.random() < 0.7:
        comparison = {draw.choice(("gt", "le", "ne")): ["load", draw.randrange(-4, 5) / 4]}
        left = add("select", left, what=[comparison])
    right = window("second", draw.choice(("loads", "works")))
    field = "load" if operators[right]["window"] == "loads" else "work"
    if draw.random() < 0.6:
        functions = draw.sample(("sum", "average", "minimum", "maximum"), 2)
        columns = {f"{function}_of": {function: field} for function in functions}
        right = add("aggregate", right, what={**columns, "n": {"count": "*"}}, by=["plug"])
        value = f"{functions[0]}_of"
    else:
        right, value = add("project", right, what={"plug": "plug", "value": field}), "value"
    operators["both"] = {"join": draw.sample([left, right], 2)}
    root = "both"
    if draw.random() < 0.5:
        third = window("third", "works")
        sums = add("aggregate", third, what={"works": {"sum": "work"}}, by=["plug"])
        operators["all"] = {"join": draw.sample([root, sums], 2)}
        root = "all"
    if draw.random() < 0.6:
        comparison_with_value = {"ge": ["load", {"field": value, "times": draw.choice((0.5, -2))}]}
        root = add("select", root, what=[comparison_with_value])
    if draw.random() < 0.7:
        by = draw.choice(([], ["house"], ["plug", "house"]))
        totals = {"total": {"sum": value}, "most": {"maximum": "load"}, "count": {"count": "*"}}
        root = add("aggregate", root, what=totals, by=by)
    document = {**PEAKS, "slide_s": draw.choice((0.5, 1)), "operators": operators, "root": root}
    return parse_query(document)


PAIRS: dict[str, Any] = {
    **PEAKS,
    "operators": {
        "loads": {"window": "loads", "range_s": 3},
        "works": {"window": "works", "range_s": 2.5},
        "both": {"join": ["loads", "works"]},
        "counts": {"aggregate": {"n": {"count": "*"}}, "by": ["house"], "of": "both"},
    },
}
"""A join in which the rows of either side can be the older ones."""


def plan_placed(placement: str, query: Query, draw: Random) -> Plan:
    if placement != "mixed":
        return everything_on(Engine(placement), query, OPTIONS)
    names = [operator.name for operator in relational(query.root)]
    engines = draw.choices([*Engine], k=len(names))
    return as_given(query, dict(zip(names, engines, strict=True)), OPTIONS)


@pytest.mark.parametrize("placement", ["spark", "database", "mixed"])
@pytest.mark.parametrize("seed", [4, 11, 13])
def test_results_are_the_same_wherever_operators_are(
    spark: SparkSession,
    postgresql_config: SystemConfig,
    tmp_path: Path,
    seed: int,
    placement: str,
) -> None:
    """Three or four batches of several slides each: planning a batch costs more than its rows."""
    draw = Random(seed)
    tuples = random_tuples(draw, 30)
    query = parse_query(PAIRS) if seed == 4 else random_query(draw)
    expected = as_multiset(results(query, tuples, trigger=6))
    assert expected, "an empty result proves little"
    plan = plan_placed(placement, query, draw)
    computed = executed(spark, postgresql_config, plan, tuples, tmp_path, trigger=6)
    assert as_multiset(computed) == expected, plan.physical.engines


def test_every_slide_can_be_a_separate_batch(
    spark: SparkSession,
    postgresql_config: SystemConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There are enough batches that their kept rows are merged and expire."""
    monkeypatch.setattr(state, "_FANOUT", 2)
    query, tuples = parse_query(PEAKS), random_tuples(Random(1), 18)
    engines = {"positive": Engine.DATABASE, "peaks": Engine.SPARK, "compared": Engine.SPARK}
    plan = as_given(query, {**engines, "near": Engine.DATABASE}, OPTIONS)
    assert len(plan.physical.fragments) == 2
    merged, merge = set[str](), state.KeptRows._merge  # noqa: SLF001 - to record the folders that it leaves

    def record(kept: state.KeptRows, *arguments: Any) -> Any:
        folders = merge(kept, *arguments)
        merged.update(folder.path.name for folder in folders if folder.first < folder.last)
        return folders

    monkeypatch.setattr(state.KeptRows, "_merge", record)
    computed = executed(spark, postgresql_config, plan, tuples, tmp_path)
    assert as_multiset(computed) == as_multiset(results(query, tuples))
    remaining = {path.name for path in (tmp_path / "kept").glob("*/*")}
    assert merged
    assert merged - remaining, "nothing has expired"


def test_a_batch_that_was_shipped_but_not_completed_is_repeated(
    spark: SparkSession,
    postgresql_config: SystemConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A crash between a batch's shipping and its end changes no result."""
    query, tuples = parse_query(PEAKS), random_tuples(Random(2), 24)
    engines = {"near": Engine.DATABASE, "compared": Engine.DATABASE}
    plan = as_given(query, engines, OPTIONS)
    write = Execution._write  # noqa: SLF001 - to crash before the result is written

    def crash(self: Execution, result: pa.Table, number: int) -> None:
        if number == 1:
            raise StoreUnavailable("crashed")
        write(self, result, number)

    monkeypatch.setattr(Execution, "_write", crash)
    with pytest.raises(StoreUnavailable, match="crashed"):
        executed(spark, postgresql_config, plan, tuples, tmp_path, trigger=5)
    assert not (tmp_path / "results" / "000000001.ndjson").exists()
    monkeypatch.undo()
    computed = executed(spark, postgresql_config, plan, tuples, tmp_path, trigger=5)
    assert as_multiset(computed) == as_multiset(results(query, tuples, trigger=5))
    repeated = executed(spark, postgresql_config, plan, [], tmp_path, trigger=5)
    assert repeated == computed
    with pytest.raises(DirectoryUnfit):
        executed(spark, postgresql_config, plan, tuples, tmp_path, trigger=4)


def test_a_directory_is_not_a_glob_pattern(
    spark: SparkSession, postgresql_config: SystemConfig, tmp_path: Path
) -> None:
    """A pattern would match no tuples, or those of another directory."""
    query, tuples = parse_query(PEAKS), random_tuples(Random(3), 12)
    plan = everything_on(Engine.SPARK, query, OPTIONS)
    executed(spark, postgresql_config, plan, tuples[:6], tmp_path / "run1", trigger=8)
    computed = executed(spark, postgresql_config, plan, tuples, tmp_path / "run[1]", trigger=8)
    assert as_multiset(computed) == as_multiset(results(query, tuples, trigger=8)) != Counter()


def test_a_plan_with_statements_needs_a_database(spark: SparkSession, tmp_path: Path) -> None:
    plan = everything_on(Engine.DATABASE, parse_query(PEAKS), OPTIONS)
    with pytest.raises(NoDatabase):
        run_plan(spark, plan, [], 1.0, tmp_path, None)


def test_a_gap_is_limited(tmp_path: Path) -> None:
    log = TupleLog(tmp_path, parse_query(PEAKS), 1.0)
    work = {"plug": 1, "work": 1}
    log.write([("works", 0.5, work), ("works", 950.5, work)])
    assert [(batch.first, batch.last) for batch in log.completed()][:3] == [
        (1, 1),
        (2, 101),
        (102, 201),
    ]
    assert log.completed()[-1].last == 950
    # Spark takes the files in this order, however fast they were written.
    times = [path.stat().st_mtime_ns for path in sorted(log.files.iterdir())]
    assert times == [10_000_000 * number for number in range(1, len(times) + 1)]
    with pytest.raises(LogUnfit, match="tuple 2 is 10,999 slides behind"):
        log.write([("works", 0.5, work), ("works", 11_000, work)])


def test_constants_are_recovered() -> None:
    """The samples cost twice the reference, and their counts distinguish the constants."""
    draw, names = Random(1), reference_constants().to_json()
    samples = []
    for _ in range(200):
        # Each constant contributes about equally to the time.
        counts = {name: draw.random() / value for name, value in names.items()}
        seconds = sum(2 * names[name] * count for name, count in counts.items())
        samples.append(Sample(counts, seconds))
    constants, error = fit(samples)
    assert error < 0.05
    for name, value in constants.to_json().items():
        assert 1.5 < value / names[name] < 2.5
