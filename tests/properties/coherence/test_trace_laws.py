"""`check-trace` against its definitions, on traces small enough to try all orders."""

from __future__ import annotations

from itertools import permutations
from typing import Any, NamedTuple

import orjson
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sketch.instruments.trace.check import check
from sketch.instruments.trace.reading import read_trace
from sketch.instruments.trace.report import TraceReport

INFINITY = 10**9


class Op(NamedTuple):
    write: bool
    version: int
    start: int
    end: int | None


def check_ops(ops: list[Op], version_field: str, key: str = "k") -> TraceReport:
    return check(read_trace(lines(ops, version_field, key)))


def lines(ops: list[Op], version_field: str, key: str) -> list[bytes]:
    names = {True: "write", False: "read"}
    return [
        orjson.dumps(
            {
                "op": names[op.write],
                "key": key,
                version_field: op.version,
                "start_us": op.start,
                "end_us": op.end,
            }
        )
        for op in ops
    ]


def delta_by_definition(ops: list[Op], *, reads_count: bool) -> int:
    """The paper's definition, pair by pair."""
    return max(
        (
            read.start - other.end
            for read in ops
            for other in ops
            if not read.write and other.end is not None
            if (other.write or reads_count) and other.version > read.version
        ),
        default=0,
    )


@st.composite
def histories(draw: Any, max_size: int = 12) -> list[Op]:
    """Writes of distinct versions, some of unknown outcome, and reads of them or of no version."""
    count = draw(st.integers(0, 4))
    ops = [_draw_op(draw, write=True, version=v + 1) for v in range(count)]
    reads = draw(st.lists(st.integers(0, count), max_size=max_size - count))
    ops += [_draw_op(draw, write=False, version=version) for version in reads]
    return list(draw(st.permutations(ops)))


def _draw_op(draw: Any, *, write: bool, version: int) -> Op:
    start = draw(st.integers(0, 20))
    lost = write and draw(st.integers(0, 4)) == 0
    return Op(write, version, start, None if lost else start + draw(st.integers(0, 8)))


@given(histories(), histories())
def test_versions_are_checked_by_the_definition(one: list[Op], two: list[Op]) -> None:
    both = check(read_trace([*lines(one, "version", "1"), *lines(two, "version", "2")]))
    for evaluation, reads_count in ((both.vis, True), (both.ack, False)):
        expected = [max(0, delta_by_definition(ops, reads_count=reads_count)) for ops in (one, two)]
        assert evaluation.delta_us == max(expected)
    assert check_ops(one, "version").reads == sum(not op.write for op in one)


@given(histories())
def test_every_stale_read_is_reported_with_the_write_it_missed(ops: list[Op]) -> None:
    for read in check_ops(ops, "version").vis.worst:
        stale, seen = ops[read.line - 1], ops[read.seen_line - 1]
        assert not stale.write
        assert seen.end is not None
        assert seen.version > stale.version
        assert stale.start - seen.end == read.late_us
        assert read.missed_line is None or ops[read.missed_line - 1].version == seen.version


@settings(max_examples=150)
@given(histories(max_size=7))
@example(
    [
        Op(True, 1, 0, 0),
        Op(True, 2, 0, None),
        Op(True, 3, 0, None),
        Op(False, 2, 2, 2),
        Op(False, 1, 3, 3),
    ]
)
def test_values_are_ordered_by_the_least_stale_order(ops: list[Op]) -> None:
    report = check_ops(ops, "value")
    if report.contradictions:
        return
    expected = min_delta([*ops, Op(True, 0, -1, -1)])
    assert report.vis.delta_us == expected


@given(histories())
def test_a_known_order_never_makes_a_trace_fresher(ops: list[Op]) -> None:
    versions, values = check_ops(ops, "version"), check_ops(ops, "value")
    if not (versions.contradictions or values.contradictions):
        assert values.vis.delta_us <= versions.vis.delta_us
        assert values.ack.delta_us <= versions.ack.delta_us
        assert values.ack.delta_us <= values.vis.delta_us


def min_delta(ops: list[Op]) -> int:
    """Golab's definition: the least delta by which reads must start earlier to be atomic."""
    return next(delta for delta in range(40) if is_atomic(ops, delta))


def is_atomic(ops: list[Op], delta: int) -> bool:
    """Whether some order of the writes agrees with reads and times."""
    shifted = [op if op.write else op._replace(start=op.start - delta) for op in ops]
    writes = [op.version for op in shifted if op.write]
    return any(_agrees(shifted, order) for order in permutations(writes))


def _agrees(ops: list[Op], order: tuple[int, ...]) -> bool:
    """Whether every operation has a point in time, none before those of older writes."""
    now: int | None = None
    for version in order:
        version_ops = [op for op in ops if op.version == version]
        [write] = [op for op in version_ops if op.write]
        first = write.start if now is None else max(now, write.start)
        if len(version_ops) == 1 and write.end is None:
            continue  # it need not take effect
        # Reads of a version have their points before the next write; none may end before `first`.
        if any(op.end is not None and op.end < first for op in version_ops):
            return False
        now = max([first, *(op.start for op in version_ops if not op.write)])
    return True
