"""What joins, in which order tuples meet, and what is no tuple."""

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
from tests.unit.standing_spark.in_process import Fed, InProcess, plan_of, results_in

PAIR = document({"R": "a", "S": "a"}, parallelism=3)


def of(stream: str, time_s: float, **values: Any) -> StreamTuple:
    return StreamTuple(stream, time_s, values)


def results(path: Path, *batches: list[Fed], lateness_s: float = 10.0) -> list[dict[str, Any]]:
    running = InProcess(path, plan_of(PAIR), lateness_s=lateness_s)
    for number, fed in enumerate(batches):
        running.feed(number, fed)
    return results_in(path)


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, 1.0), (2**53, 2.0**53), ("é", "é"), (True, True), (-0.0, 0), (2**63, 2.0**63), ("", "")],
)
def test_what_is_equal_in_json_joins(tmp_path: Path, one: Any, other: Any) -> None:
    assert results(tmp_path, [(1, of("R", 1, a=one)), (2, of("S", 1, a=other))])


@pytest.mark.parametrize(
    ("one", "other"),
    [(None, None), (1, True), (0, False), ("1", 1), ("n1", 1), (2**53 + 1, 2.0**53), ("b1", True)],
)
def test_what_is_not_equal_in_json_does_not_join(tmp_path: Path, one: Any, other: Any) -> None:
    assert not results(tmp_path, [(1, of("R", 1, a=one)), (2, of("S", 1, a=other))])


def test_keys_of_one_hash_join_only_if_they_are_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def zeros(keys: np.ndarray[Any, Any], **_: bool) -> np.ndarray[Any, Any]:
        return np.zeros(len(keys), np.uint64)

    monkeypatch.setattr("pandas.util.hash_array", zeros)
    fed = [(n, of("RS"[n % 2], 1, a=n // 4)) for n in range(12)]
    assert len(results(tmp_path, fed)) == 3 * 2 * 2


def test_candidates_are_compared_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "_BLOCK", 7)
    stored = [(n, of("R", n % 3, a=n % 2)) for n in range(20)]
    found = results(tmp_path, stored, [(n, of("S", 1, a=n % 2)) for n in range(20, 26)])
    assert len(found) == 20 * 6 // 2


@pytest.mark.parametrize("apart_s", [0, 0.25, 1, 1.25])
def test_the_window_includes_its_end(tmp_path: Path, apart_s: float) -> None:
    found = results(tmp_path, [(1, of("R", 10, a=1)), (2, of("S", 10 + apart_s, a=1))])
    assert len(found) == (apart_s <= 1)


def test_each_result_is_made_once_whatever_the_order_of_a_batch_is(tmp_path: Path) -> None:
    # Those of one position meet in the order of their streams.
    fed = [(3, of("R", 1, a=1)), (3, of("S", 1, a=1)), (1, of("S", 1, a=1)), (2, of("R", 1, a=1))]
    found = results(tmp_path, fed, [(1, of("R", 1, a=1))])
    assert sorted(row["numbers"] for row in found) == [
        [1, 1],
        [1, 3],
        [2, 1],
        [2, 3],
        [3, 1],
        [3, 3],
    ]


def test_a_result_has_the_values_and_the_latest_time(tmp_path: Path) -> None:
    fed = [(1, of("S", 1.5, a=1, é='"')), (2, of("R", 1, a=1))]
    (found,) = results(tmp_path, fed)
    assert (found["query"], found["time_s"], found["numbers"]) == ("q1", 1.5, [2, 1])
    assert orjson.loads(found["tuples"]) == {"R": {"a": 1}, "S": {"a": 1, "é": '"'}}


def test_a_tuple_that_is_late_by_days_is_dropped_and_counted(tmp_path: Path) -> None:
    running = InProcess(tmp_path, plan_of(PAIR), lateness_s=5)
    running.feed(0, [(1, of("R", 1_000_000, a=1)), (2, of("R", 0, a=1))])
    late = running.feed(1, [(3, of("S", 0, a=1)), (4, of("S", 1_000_000, a=1))])
    assert (late.late, late.results) == (1, 1)


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


@pytest.mark.parametrize("name", INVALID)
def test_what_is_no_tuple_is_refused(name: str) -> None:
    members, detail = INVALID[name]
    row = {"stream": "R", "number": 1, "time_s": 1.0, "values": "{}", **members}
    types = [pa.string(), pa.int64(), pa.float64(), pa.string()]
    columns = {at: pa.array([row[at]], of) for at, of in zip(row, types, strict=True)}
    (hop,) = (each for each in plan_of(PAIR).workload.joins)
    attributes = [at for each in hop.predicates for at in each if at.relation == "R"]
    with pytest.raises(InputUnfit, match=detail):
        stream_rows("R", 0, check_tuples(pa.table(columns), {"R", "S"}), attributes)
