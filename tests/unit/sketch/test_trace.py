"""`portolan check-trace`: examples, hostile input, and output."""

from __future__ import annotations

from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from typer.testing import CliRunner

from app.cli import command_line
from sketch.instruments.trace import reading
from sketch.instruments.trace.check import check, check_file, check_trace
from sketch.instruments.trace.reading import (
    MAX_LINE_BYTES,
    NEVER,
    Trace,
    TraceMistake,
    lines_of,
    read_trace,
)


def line(op: str, version: int | None, start: int, end: int | None, **members: Any) -> bytes:
    operation = {"op": op, "key": "k", "version": version, "start_us": start, "end_us": end}
    return orjson.dumps({**operation, **members})


STALE = [
    line("read", 1, 30, 31),
    line("write", 1, 0, 5),
    line("read", 2, 12, 14),
    line("write", 2, 10, 20),
]
"""The second write is seen by a read at 14, acknowledged at 20, and missed by a read at 30."""


def test_a_read_is_measured_against_visible_and_acknowledged_writes() -> None:
    report = check(read_trace(STALE), bound_us=15)
    assert (report.vis.delta_us, report.ack.delta_us) == (16, 10)
    assert (report.vis.beyond, report.ack.beyond) == (1, 0)
    [read] = report.vis.worst
    assert (read.line, read.seen_line, read.missed_line) == (1, 3, 4)
    assert not report.holds
    assert check(read_trace(STALE), bound_us=16).holds


def test_a_write_whose_outcome_is_unknown_counts_from_the_first_read_of_it() -> None:
    lost = [line("write", 1, 0, 1), line("write", 2, 2, None), line("read", 1, 90, 91)]
    assert check(read_trace(lost)).vis.delta_us == 0
    with_read = [*lost, line("read", 2, 40, 50)]
    report = check(read_trace(with_read))
    assert (report.vis.delta_us, report.ack.delta_us) == (40, 0)


def test_a_lost_write_may_have_no_version() -> None:
    assert check(read_trace([line("write", None, 0, None)] * 2)).holds


def test_values_are_put_in_order() -> None:
    ops = [
        ("write", "a", 0, 10),
        ("write", "b", 5, 12),
        ("read", "b", 13, 14),
        ("read", "a", 20, 21),
    ]
    lines = [
        orjson.dumps({"op": op, "key": "k", "value": value, "start_us": start, "end_us": end})
        for op, value, start, end in ops
    ]
    # b precedes a, so only the read of b is stale: a was acknowledged at 10, it started at 13.
    assert check(read_trace(lines)).vis.delta_us == 3


def test_a_value_without_a_write_counts_as_initial() -> None:
    ops = [("write", "a", 0, 10), ("read", None, 30, 31), ("read", None, 5, 6)]
    lines = [
        orjson.dumps({"op": op, "key": "k", "value": value, "start_us": start, "end_us": end})
        for op, value, start, end in ops
    ]
    report = check(read_trace(lines))
    assert (report.vis.delta_us, report.ack.delta_us) == (20, 20)


@pytest.mark.parametrize(
    ("lines", "contradictions"),
    [
        ([line("write", 1, 10, 12), line("read", 1, 0, 5)], [2]),
        ([line("write", 2, 0, 1), line("write", 1, 10, 12)], [2]),
    ],
)
def test_a_trace_that_no_delta_explains_is_a_contradiction(
    lines: list[bytes], contradictions: list[int]
) -> None:
    report = check(read_trace(lines), bound_us=10**6)
    assert [example.line for example in report.examples] == contradictions
    assert not report.holds


HOSTILE = [
    b"",
    b"\n",
    b"[1]",
    b"null",
    b"\xff",
    b"{" * 60_000,
    b"[" * 60_000,
    b"1" * (MAX_LINE_BYTES + 1),
    line("drop", 1, 0, 1),
    line("read", 1, 5, 4),
    line("read", 1, 5, None),
    line("read", None, 0, 1),
    line("write", None, 0, 1),
    line("read", -1, 0, 1),
    line("read", 2**62, 0, 1),
    line("read", 1, -1, 1),
    line("read", 1, 0, 2**53 + 1),
    line("read", 1, 0, 1, key=7),
    line("read", 1, 0, 1, key="k" * 4097),
    line("read", True, 0, 1),
    line("read", 1, 0, 1, value=1),
    line("read", 1, 0, 1, end_ms=1),
    line("read", 1, 0, 1, **{"x" * 60_000: 1}),
    b'{"op":"read","key":"k","version":99999999999999999999,"start_us":0,"end_us":1}',
    b'{"op":"read","key":"k","version":1,"start_us":0,"end_us":1' + b"0" * 60_000 + b"}",
    b'{"op":"read","key":"k","version":1,"start_us":0,"end_us":1}{}',
    b'{"op":"read","key":"k","start_us":0,"end_us":1}',
    b'{"op":"read","key":"k","value":1,"start_us":0,"end_us":1}',
    b'{"op":"read","key":"k","version":1e400,"start_us":0,"end_us":1}',
    b'{"op":"read","key":"\\ud800","version":1,"start_us":0,"end_us":1}',
]


@pytest.mark.parametrize("bad", HOSTILE, ids=range(len(HOSTILE)))
def test_a_mistake_is_reported_with_its_line(bad: bytes) -> None:
    with pytest.raises(TraceMistake, match=r"^some\.ndjson:2: [`a-z]") as refused:
        read_trace([line("read", 1, 0, 1), bad], "some.ndjson")
    assert len(str(refused.value)) < 300


def test_a_version_is_written_once() -> None:
    twice = [line("write", 1, 0, 1), line("write", 2, 2, 3), line("write", 1, 4, 5)]
    with pytest.raises(TraceMistake, match=r"^trace:3: .*line 1"):
        check(read_trace(twice))


def test_names_may_not_take_all_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_NAME_CHARACTERS", 3)
    lines = [line("read", 1, 0, 1, key=key) for key in ("ab", "ab", "c", "d")]
    with pytest.raises(TraceMistake, match=r"^trace:4: the names"):
        read_trace(lines)


def test_a_line_without_end_is_not_read_to_its_end() -> None:
    stream = BytesIO(b"x" * 10_000_000)
    with pytest.raises(TraceMistake):
        read_trace(lines_of(stream))
    assert stream.tell() == MAX_LINE_BYTES + 1


def test_keys_that_are_used_for_very_long_are_refused() -> None:
    ends = [{"start_us": 0, "end_us": 1}, {"start_us": 2**53, "end_us": 2**53}]
    lines = [
        orjson.dumps({"op": "read", "key": str(key), "value": 1, **end})
        for key in range(600)
        for end in ends
    ]
    with pytest.raises(ValueError, match="too long"):
        check(read_trace(lines))


def test_an_empty_trace_holds() -> None:
    assert check(read_trace([])).holds


@pytest.mark.parametrize("as_json", [False, True])
def test_the_command_prints_the_report_and_its_status_is_the_outcome(
    tmp_path: Path, as_json: bool
) -> None:
    file = tmp_path / "trace.ndjson"
    file.write_bytes(b"\n".join(STALE) + b"\n")
    text, status = check_trace(file, 0.000016, as_json=as_json)
    assert status == 0
    assert not as_json or orjson.loads(text)["vis"]["delta_us"] == 16
    text, status = check_trace(file, 0.000015, as_json=as_json)
    assert status == 1
    assert as_json or f"{file}:1: k: stale by 0.000016 s: missed the write of line 4" in text
    assert check_trace(file)[1] == 0
    text, status = check_trace(file, 0.000010, "ack", as_json=as_json)
    assert status == 0
    assert as_json or f"{file}:1: k: stale by 0.000010 s: missed the write of line 4" in text
    assert check_trace(file, 0.000009, "ack")[1] == 1


@pytest.mark.parametrize("as_json", [False, True])
def test_control_characters_of_a_trace_do_not_reach_the_terminal(
    tmp_path: Path, as_json: bool
) -> None:
    file = tmp_path / "\udcff.ndjson"
    file.write_bytes(b"\n".join(row.replace(b'"k"', b'"\\u001b[2J"') for row in STALE))
    text, _ = check_trace(file, as_json=as_json)
    assert "\x1b" not in text
    assert "stale" in text
    text.encode()


def test_the_command_line_distinguishes_mistakes_from_staleness(tmp_path: Path) -> None:
    file = tmp_path / "trace.ndjson"
    file.write_bytes(b"\n".join(STALE))
    run = partial(CliRunner().invoke, command_line())
    result = run(["check-trace", str(file), "--delta", "0.00001", "--ack", "--json"])
    assert (result.exit_code, orjson.loads(result.stdout)["promise"]) == (0, "ack")
    assert run(["check-trace", str(file), "--delta", "0.00001"]).exit_code == 1
    file.write_bytes(b"{}\n")
    invalid = run(["check-trace", str(file)])
    assert (invalid.exit_code, invalid.stdout) == (2, "")
    assert f"{file}:1: `op` is read or write" in invalid.stderr
    assert run(["check-trace", str(tmp_path / "nothing")]).exit_code == 2


@pytest.mark.parametrize("bound", [-1.0, float("nan"), float("inf")])
def test_a_bound_is_a_number(tmp_path: Path, bound: float) -> None:
    file = tmp_path / "trace.ndjson"
    file.write_bytes(STALE[0])
    with pytest.raises(ValueError, match="bound"):
        check_trace(file, bound)
    assert check_file(file).reads == 1


def synthetic(operations: int) -> Trace:
    """Writes round robin over 1,000 keys, one in ten operations; reads are up to a version late."""
    random = np.random.default_rng(1)
    key = random.integers(0, 1_000, operations).astype(np.int32)
    write = random.random(operations) < 0.1
    start = np.arange(operations, dtype=np.int64) * 10
    order = np.lexsort((start, key))
    writes = np.cumsum(write[order])
    first = np.searchsorted(key[order], np.arange(1_000))
    version = np.empty(operations, np.int64)
    version[order] = writes - writes[first][key[order]] + 1
    end = np.where(random.random(operations) < 0.001, NEVER, start + 5)
    end[~write] = start[~write] + 5
    names = [str(number) for number in range(1_000)]
    return Trace("synthetic", names, key, version, start, end, write, np.zeros(1_000, np.bool_))


def test_a_hundred_thousand_operations_in_order_are_atomic() -> None:
    assert check(synthetic(100_000)).vis.delta_us == 0


@pytest.mark.large
def test_ten_million_operations() -> None:
    report = check(synthetic(10_000_000))
    assert report.vis.delta_us == 0
    assert not report.contradictions
