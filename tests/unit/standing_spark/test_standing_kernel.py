"""The join's matches, the order of its tuples, and invalid tuples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest

from mediator.standing.state import StreamTuple
from spark_jobs.runner.port import InputUnfit
from spark_jobs.standing import probing
from spark_jobs.standing.tuples import check_tuples, stream_rows
from tests.unit.standing.papers_queries import document
from tests.unit.standing_spark.in_process import InProcess, PositionedTuple, plan_of, results_in

PAIR = document({"R": "a", "S": "a"}, parallelism=3)


def tuple_of(stream: str, time_s: float, **values: Any) -> StreamTuple:
    return StreamTuple(stream, time_s, values)


def results(
    path: Path, *batches: list[PositionedTuple], lateness_s: float = 10.0
) -> list[dict[str, Any]]:
    running = InProcess(path, plan_of(PAIR), lateness_s=lateness_s)
    for number, tuples in enumerate(batches):
        running.feed(number, tuples)
    return results_in(path)


@pytest.mark.parametrize(
    ("left", "right"),
    [(1, 1.0), (2**53, 2.0**53), ("é", "é"), (True, True), (-0.0, 0), (2**63, 2.0**63), ("", "")],
)
def test_values_that_are_equal_in_json_join(tmp_path: Path, left: Any, right: Any) -> None:
    assert results(tmp_path, [(1, tuple_of("R", 1, a=left)), (2, tuple_of("S", 1, a=right))])


@pytest.mark.parametrize(
    ("left", "right"),
    [(None, None), (1, True), (0, False), ("1", 1), ("n1", 1), (2**53 + 1, 2.0**53), ("b1", True)],
)
def test_values_that_differ_in_json_do_not_join(tmp_path: Path, left: Any, right: Any) -> None:
    assert not results(tmp_path, [(1, tuple_of("R", 1, a=left)), (2, tuple_of("S", 1, a=right))])


def test_keys_of_one_hash_join_only_if_they_are_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def zeros(keys: np.ndarray[Any, Any], **_: bool) -> np.ndarray[Any, Any]:
        return np.zeros(len(keys), np.uint64)

    monkeypatch.setattr("pandas.util.hash_array", zeros)
    tuples = [(n, tuple_of("RS"[n % 2], 1, a=n // 4)) for n in range(12)]
    assert len(results(tmp_path, tuples)) == 3 * 2 * 2


def test_candidates_are_compared_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "_BLOCK", 7)
    stored = [(n, tuple_of("R", n % 3, a=n % 2)) for n in range(20)]
    rows = results(tmp_path, stored, [(n, tuple_of("S", 1, a=n % 2)) for n in range(20, 26)])
    assert len(rows) == 20 * 6 // 2


@pytest.mark.parametrize("distance_s", [0, 0.25, 1, 1.25])
def test_the_window_includes_its_end(tmp_path: Path, distance_s: float) -> None:
    rows = results(
        tmp_path, [(1, tuple_of("R", 10, a=1)), (2, tuple_of("S", 10 + distance_s, a=1))]
    )
    assert len(rows) == (distance_s <= 1)


def test_each_result_is_made_once_in_any_order_of_a_batch(tmp_path: Path) -> None:
    # Tuples with one position are joined in the order of their streams.
    tuples = [
        (3, tuple_of("R", 1, a=1)),
        (3, tuple_of("S", 1, a=1)),
        (1, tuple_of("S", 1, a=1)),
        (2, tuple_of("R", 1, a=1)),
    ]
    rows = results(tmp_path, tuples, [(1, tuple_of("R", 1, a=1))])
    assert sorted(row["numbers"] for row in rows) == [
        [1, 1],
        [1, 3],
        [2, 1],
        [2, 3],
        [3, 1],
        [3, 3],
    ]


def test_a_result_has_the_values_and_the_latest_time(tmp_path: Path) -> None:
    tuples = [(1, tuple_of("S", 1.5, a=1, é='"')), (2, tuple_of("R", 1, a=1))]
    (row,) = results(tmp_path, tuples)
    assert (row["query"], row["time_s"], row["numbers"]) == ("q1", 1.5, [2, 1])
    assert orjson.loads(row["tuples"]) == {"R": {"a": 1}, "S": {"a": 1, "é": '"'}}


def test_a_very_late_tuple_is_dropped_and_counted(tmp_path: Path) -> None:
    running = InProcess(tmp_path, plan_of(PAIR), lateness_s=5)
    running.feed(0, [(1, tuple_of("R", 1_000_000, a=1)), (2, tuple_of("R", 0, a=1))])
    commit = running.feed(1, [(3, tuple_of("S", 0, a=1)), (4, tuple_of("S", 1_000_000, a=1))])
    assert (commit.late, commit.results) == (1, 1)


INVALID: dict[str, tuple[dict[str, Any], str]] = {
    "stream": ({"stream": "Z"}, "there is no stream Z"),
    "no stream": ({"stream": None}, "no stream"),
    "no number": ({"number": None}, "no number"),
    "no time": ({"time_s": None}, "no time_s"),
    "endless": ({"time_s": float("inf")}, "a time that is no number"),
    "not a number": ({"time_s": float("nan")}, "a time that is no number"),
    "no values": ({"values": None}, "no values"),
    "no JSON": ({"values": "{"}, "tuple 1 of R has values that are no JSON object"),
    "a list": ({"values": "[]"}, "tuple 1 of R has values that are no JSON object"),
    "two objects": ({"values": '{"a":1},{"a":1}'}, "tuple 1 of R has values"),
    "no scalar": ({"values": '{"a":[1]}'}, "attribute a of R has a value that is no scalar"),
}


@pytest.mark.parametrize("case", INVALID)
def test_an_invalid_tuple_is_refused(case: str) -> None:
    members, detail = INVALID[case]
    row = {"stream": "R", "number": 1, "time_s": 1.0, "values": "{}", **members}
    types = [pa.string(), pa.int64(), pa.float64(), pa.string()]
    columns = {name: pa.array([row[name]], type_) for name, type_ in zip(row, types, strict=True)}
    (join,) = (join for join in plan_of(PAIR).workload.joins)
    attributes = [
        attribute
        for predicate in join.predicates
        for attribute in predicate
        if attribute.relation == "R"
    ]
    with pytest.raises(InputUnfit, match=detail):
        stream_rows("R", 0, check_tuples(pa.table(columns), {"R", "S"}), attributes)
