"""Continuous queries over real servers: whatever runs where, results are those of plain Python."""

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


def drawn_tuples(draw: Random, count: int, late: float = 0.1) -> list[Tuple]:
    time_s, found = draw.uniform(-5, 5), list[Tuple]()
    for _ in range(count):
        time_s += draw.choice((0, 0.1, 0.25, 0.5, 1.0))
        at_s = round(time_s - (draw.uniform(0, 3) if draw.random() < late else 0), 2)
        plug = draw.randrange(3)
        if draw.random() < 0.6:
            values: dict[str, float | str] = {
                "plug": plug,
                "house": draw.choice(HOUSES),
                "load": draw.randrange(-8, 9) / 4,
            }
            found.append(("loads", at_s, values))
        else:
            found.append(("works", at_s, {"plug": plug, "work": draw.randrange(5)}))
    return found


def as_set(rows: Iterable[dict[str, Any]]) -> Counter[bytes]:
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


def drawn_query(draw: Random) -> Query:
    """Two branches over windows, joined, with operators above that are drawn."""
    operators: dict[str, Any] = {}

    def window(name: str, stream: str) -> str:
        size = draw.choice(({"range_s": draw.choice((0.7, 2, 3.5))}, {"rows": draw.choice((2, 5))}))
        operators[name] = {"window": stream, **size}
        return name

    def above(kind: str, of: str, **more: Any) -> str:
        name = f"{kind}_{len(operators)}"
        operators[name] = {kind: more.pop("what"), "of": of, **more}
        return name

    left = window("first", "loads")
    if draw.random() < 0.7:
        less = {draw.choice(("gt", "le", "ne")): ["load", draw.randrange(-4, 5) / 4]}
        left = above("select", left, what=[less])
    right = window("second", draw.choice(("loads", "works")))
    field = "load" if operators[right]["window"] == "loads" else "work"
    if draw.random() < 0.6:
        functions = draw.sample(("sum", "average", "minimum", "maximum"), 2)
        columns = {f"{each}_of": {each: field} for each in functions}
        right = above("aggregate", right, what={**columns, "n": {"count": "*"}}, by=["plug"])
        value = f"{functions[0]}_of"
    else:
        right, value = above("project", right, what={"plug": "plug", "value": field}), "value"
    operators["both"] = {"join": draw.sample([left, right], 2)}
    root = "both"
    if draw.random() < 0.5:
        third = window("third", "works")
        sums = above("aggregate", third, what={"works": {"sum": "work"}}, by=["plug"])
        operators["all"] = {"join": draw.sample([root, sums], 2)}
        root = "all"
    if draw.random() < 0.6:
        above_it = {"ge": ["load", {"field": value, "times": draw.choice((0.5, -2))}]}
        root = above("select", root, what=[above_it])
    if draw.random() < 0.7:
        by = draw.choice(([], ["house"], ["plug", "house"]))
        totals = {"total": {"sum": value}, "most": {"maximum": "load"}, "count": {"count": "*"}}
        root = above("aggregate", root, what=totals, by=by)
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
"""A join of rows of which both sides may be older."""


def as_placed(placed: str, query: Query, draw: Random) -> Plan:
    if placed != "mixed":
        return everything_on(Engine(placed), query, OPTIONS)
    names = [each.name for each in relational(query.root)]
    engines = draw.choices([*Engine], k=len(names))
    return as_given(query, dict(zip(names, engines, strict=True)), OPTIONS)


@pytest.mark.parametrize("placed", ["spark", "database", "mixed"])
@pytest.mark.parametrize("seed", [4, 11, 13])
def test_results_are_the_same_wherever_operators_are(
    spark: SparkSession,
    postgresql_config: SystemConfig,
    tmp_path: Path,
    seed: int,
    placed: str,
) -> None:
    """Three or four batches of several slides each: planning a batch costs more than its rows."""
    draw = Random(seed)
    tuples = drawn_tuples(draw, 30)
    query = parse_query(PAIRS) if seed == 4 else drawn_query(draw)
    expected = as_set(results(query, tuples, trigger=6))
    assert expected, "a result that is always empty proves little"
    plan = as_placed(placed, query, draw)
    found = executed(spark, postgresql_config, plan, tuples, tmp_path, trigger=6)
    assert as_set(found) == expected, plan.physical.engines


def test_every_slide_may_be_a_batch_of_its_own(
    spark: SparkSession,
    postgresql_config: SystemConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Enough batches that what is kept of them is merged, and expires."""
    monkeypatch.setattr(state, "_FANOUT", 2)
    query, tuples = parse_query(PEAKS), drawn_tuples(Random(1), 18)
    engines = {"positive": Engine.DATABASE, "peaks": Engine.SPARK, "compared": Engine.SPARK}
    plan = as_given(query, {**engines, "near": Engine.DATABASE}, OPTIONS)
    assert len(plan.physical.fragments) == 2
    merged, merge = set[str](), state.KeptRows._merge  # noqa: SLF001 - which folders it leaves

    def noted(kept: state.KeptRows, *given: Any) -> Any:
        folders = merge(kept, *given)
        merged.update(each.path.name for each in folders if each.first < each.last)
        return folders

    monkeypatch.setattr(state.KeptRows, "_merge", noted)
    found = executed(spark, postgresql_config, plan, tuples, tmp_path)
    assert as_set(found) == as_set(results(query, tuples))
    left = {path.name for path in (tmp_path / "kept").glob("*/*")}
    assert merged
    assert merged - left, "nothing has expired"


def test_a_batch_that_was_shipped_and_not_ended_is_executed_again(
    spark: SparkSession,
    postgresql_config: SystemConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a crash between the shipping and the end of a batch leaves changes no result."""
    query, tuples = parse_query(PEAKS), drawn_tuples(Random(2), 24)
    engines = {"near": Engine.DATABASE, "compared": Engine.DATABASE}
    plan = as_given(query, engines, OPTIONS)
    write = Execution._write  # noqa: SLF001 - the crash is before the result is there

    def crash(self: Execution, result: pa.Table, number: int) -> None:
        if number == 1:
            raise StoreUnavailable("crashed")
        write(self, result, number)

    monkeypatch.setattr(Execution, "_write", crash)
    with pytest.raises(StoreUnavailable, match="crashed"):
        executed(spark, postgresql_config, plan, tuples, tmp_path, trigger=5)
    assert not (tmp_path / "results" / "000000001.ndjson").exists()
    monkeypatch.undo()
    found = executed(spark, postgresql_config, plan, tuples, tmp_path, trigger=5)
    assert as_set(found) == as_set(results(query, tuples, trigger=5))
    again = executed(spark, postgresql_config, plan, [], tmp_path, trigger=5)
    assert again == found
    with pytest.raises(DirectoryUnfit):
        executed(spark, postgresql_config, plan, tuples, tmp_path, trigger=4)


def test_a_directory_is_no_pattern(
    spark: SparkSession, postgresql_config: SystemConfig, tmp_path: Path
) -> None:
    """It was executed as a query without tuples, or with those of another directory."""
    query, tuples = parse_query(PEAKS), drawn_tuples(Random(3), 12)
    plan = everything_on(Engine.SPARK, query, OPTIONS)
    executed(spark, postgresql_config, plan, tuples[:6], tmp_path / "run1", trigger=8)
    found = executed(spark, postgresql_config, plan, tuples, tmp_path / "run[1]", trigger=8)
    assert as_set(found) == as_set(results(query, tuples, trigger=8)) != Counter()


def test_a_plan_with_statements_needs_a_database(spark: SparkSession, tmp_path: Path) -> None:
    plan = everything_on(Engine.DATABASE, parse_query(PEAKS), OPTIONS)
    with pytest.raises(NoDatabase):
        run_plan(spark, plan, [], 1.0, tmp_path, None)


def test_a_gap_is_limited(tmp_path: Path) -> None:
    log = TupleLog(tmp_path, parse_query(PEAKS), 1.0)
    work = {"plug": 1, "work": 1}
    log.write([("works", 0.5, work), ("works", 950.5, work)])
    assert [(each.first, each.last) for each in log.completed()][:3] == [
        (1, 1),
        (2, 101),
        (102, 201),
    ]
    assert log.completed()[-1].last == 950
    # The order in which Spark takes them, however fast they were written.
    times = [path.stat().st_mtime_ns for path in sorted(log.files.iterdir())]
    assert times == [10_000_000 * number for number in range(1, len(times) + 1)]
    with pytest.raises(LogUnfit, match="tuple 2 is 10,999 slides behind"):
        log.write([("works", 0.5, work), ("works", 11_000, work)])


def test_constants_are_found_again() -> None:
    """Twice what the reference says, where counts tell constants apart."""
    draw, names = Random(1), reference_constants().to_json()
    samples = []
    for _ in range(200):
        # Each constant has about the same share in the time.
        counts = {name: draw.random() / value for name, value in names.items()}
        seconds = sum(2 * names[name] * count for name, count in counts.items())
        samples.append(Sample(counts, seconds))
    constants, error = fit(samples)
    assert error < 0.05
    for name, value in constants.to_json().items():
        assert 1.5 < value / names[name] < 2.5
