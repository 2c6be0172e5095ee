"""The protocol of docs/protocol.md, searched exhaustively; also without each of its steps.

The correspondence of model and code; a change on the right needs one on the left:

============================  ======================================================================
in the model                  in the code
============================  ======================================================================
``begin``                     `SketchGuard.begin`: `steps.begin`, `MemoryPartition.begin`
``begin fails``               `SketchGuard.begin` raises `Unavailable`: the write is not done
``the store writes``          `mediator.operations.calls.StoreCalls`: the store's own write
``end``                       `SketchGuard.end`: `steps.close` (writes.lua), `MemoryPartition.end`
  its version entry           `record_version` (writes.lua), `Versions.record_write`
  its purges                  `steps.owe` (purges.lua), `OwedPurges.owe`
``purge``                     `sketch.purging`: `steps.take_purges`, `steps.acknowledge_purges`
``acknowledge``               the answer 2xx; before ``end`` where `CachedLeases` has the lease
``write again``               `CachedLeases.acquire`: under a cached lease, with its token
  its ``end``, at any time    `CachedLeases.release_due`; `release`, for a read
``recover``                   `app.coherence.orphans.Recovery`: `steps.orphans`, then `end`
``report: TTL n``             `CachedReads.grant_object`: `steps.report_read` (reads.lua)
``the report fails``          `CachedReads.grant_object`: no TTL
``a grant is used again``     `app.coherence.grants.GrantCache`
``the store reads n``         the data plane's read of the systems
``the sketch knows n``        `CachedReads.current_tag`: 304 without the store
``the sketch gets n``         `CachedReads.record_versions`: `steps.fill`, `Versions.fill`
``an answer: n``              `CachedReads.cache_headers`: unless it is later than M
``a filter is made``          `steps.snapshot` (snapshots.lua), `ServerSketch.snapshot`
``the filter arrives``        `sketch.client.filters`: its age counts from the sending
``a read of its young copy``  `sketch.client.reading`: `Need.fresh`, `Copy.since`
``a revalidation``            `sketch.client.reading`: ``Cache-Control: no-cache``
``a dated request``           `CachedReads.grant_dated`, `sketch.client.reading`: ``max_age``
  ``answer of a cache``       `sketch.client.clock`: how old it is by its date
``the sketch is lost``        another run id: `steps.lost` (layout.lua)
``tick``                      time passes: `expire` (filter.lua), `MemoryPartition.expire`
============================  ======================================================================

Each writer and each request belongs to a separate replica: replicas share only the sketch and the
store. Creates and deletes are writes; version 0 is the initial state, whether absent or not.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from sketch.instruments.trace.check import check
from sketch.instruments.trace.reading import read_trace
from sketch.instruments.trace.report import TraceReport
from tests.properties.coherence.coherence_model import search
from tests.properties.coherence.coherence_states import PendingBits, Step, World
from tests.properties.coherence.coherence_traces import TICK_US, lines_of, walk

WORLDS = {
    "one of each": World(),
    "a sketch that does not answer": World(silent=True),
    "copies of different TTLs": World(ttls=(1, 3)),
    "answers that take time": World(margin=2),
    "caches that send no age": World(layers=2, ttls=(2,)),
    "two readers who join": World(readers=2, ttls=(1,)),
    "two writers": World(writers=2, ttls=(2,), delta=0),
    "a writer that dies": World(lease=1, crashes=1),
    "a sketch that is lost": World(lease=2, losses=1),
    "both": World(ttls=(1,), lease=1, crashes=1, losses=1),
    "filters that take time": World(slow_filters=True),
    "filters from caches": World(slow_filters=True, cached_filters=True, ttls=(2,), delta=0),
    "reads before the report": World(read_first=True),
    "reads before the report, a writer that dies": World(read_first=True, lease=1, crashes=1),
    "version entries": World(entries=True),
    "version entries of two writers": World(entries=True, writers=2, ttls=(2,), delta=0),
    "version entries, a writer that dies": World(entries=True, ttls=(2,), lease=1, crashes=1),
    "a key that is to leave the filter": World(quiet=True),
    "copies that are young": World(own_copies=True),
    "young copies, answers that take time": World(own_copies=True, margin=2, ttls=(2,), delta=2),
    "young copies, filters that take time": World(own_copies=True, slow_filters=True, ttls=(2,)),
    "young copies, a sketch that is lost": World(own_copies=True, lease=2, losses=1),
    "young copies, a writer that dies": World(own_copies=True, lease=1, crashes=1),
    "young copies, version entries": World(own_copies=True, entries=True, ttls=(2,)),
    "young copies, a sketch that does not answer": World(own_copies=True, silent=True),
    "young copies, proxies that answer revalidations": World(own_copies=True, fill=0, ttls=(4,)),
    "dated answers": World(dated=True),
    "dated answers of two readers": World(dated=True, readers=2, ttls=(1,), delta=0),
    "dated answers, two writers": World(dated=True, writers=2, ttls=(2,), delta=0),
    "dated answers, and copies that are young": World(dated=True, own_copies=True, ttls=(2,)),
    "dated answers, filters that take time": World(dated=True, slow_filters=True, ttls=(2,)),
    "dated answers, a sketch that is lost": World(dated=True, lease=2, losses=1),
    "dated answers, a writer that dies": World(dated=True, lease=1, crashes=1),
    "grants": World(grants=True),
    "grants, answers that take time": World(grants=True, margin=2, ttls=(2,)),
    "grants, caches that send no age": World(grants=True, layers=2, ttls=(2,)),
    "grants of different TTLs": World(grants=True, ttls=(1, 3)),
    "grants, a sketch that is lost": World(grants=True, lease=2, losses=1),
    "grants, a writer that dies": World(grants=True, lease=1, crashes=1, ttls=(2,)),
    "grants, version entries": World(grants=True, entries=True, ttls=(2,)),
    "grants, proxies that answer revalidations": World(grants=True, fill=1, margin=1, ttls=(4,)),
    "cached leases": World(rewrites=1, usable=1, lease=2, ttls=(2,), delta=0),
    "cached leases, a writer that dies": World(
        rewrites=1, usable=1, lease=2, ttls=(2,), delta=0, crashes=1
    ),
    "cached leases, a sketch that is lost": World(
        rewrites=1, usable=1, lease=2, ttls=(2,), delta=0, losses=1
    ),
    "cached leases before version entries": World(
        rewrites=1, usable=1, lease=2, ttls=(2,), delta=0, entries=True
    ),
    "cached leases, and proxies": World(rewrites=1, usable=1, lease=2, fill=0, ttls=(4,)),
    "cached leases, grants, a sketch that is lost": World(
        rewrites=1, usable=1, lease=2, ttls=(2,), delta=0, losses=1, grants=True
    ),
    "cached leases, grants, a writer that dies": World(
        rewrites=1, usable=1, lease=2, ttls=(2,), delta=0, crashes=1, grants=True
    ),
    "proxies that answer revalidations": World(fill=1, margin=1, ttls=(6,)),
    "proxies, and a writer that dies": World(fill=0, ttls=(4,), lease=1, crashes=1),
    "proxies, and a sketch that is lost": World(fill=0, ttls=(3,), lease=1, losses=1),
}

LARGE = {
    "three readers": World(readers=3, ttls=(1,)),
    "two writers": World(writers=2),
    "two of each": World(writers=2, readers=2, ttls=(2,)),
    "two of each, one dies": World(writers=2, readers=2, ttls=(1,), lease=1, crashes=1),
    "two readers, everything fails": World(readers=2, ttls=(1,), lease=1, crashes=1, losses=1),
    "different TTLs": World(readers=2, ttls=(1, 3), margin=1),
    "version entries of two writers": World(entries=True, writers=2, ttls=(2,)),
    "version entries, everything fails": World(
        entries=True, writers=2, ttls=(1,), lease=1, crashes=1, losses=1
    ),
    "version entries of two readers": World(entries=True, readers=2, ttls=(2,)),
    "proxies": World(fill=1, margin=1, ttls=(6,), readers=2),
    "proxies, everything fails": World(fill=1, margin=1, ttls=(6,), lease=1, crashes=1, losses=1),
    "grants of two readers": World(grants=True, readers=2, ttls=(2,)),
    "grants, two writers": World(grants=True, writers=2, ttls=(2,)),
    "grants, everything fails": World(grants=True, ttls=(2,), lease=1, crashes=1, losses=1),
    "dated answers of two readers": World(dated=True, readers=2, ttls=(1,)),
    "dated and young copies of two readers": World(
        dated=True, own_copies=True, readers=2, ttls=(2,)
    ),
    "dated answers, everything fails": World(
        dated=True, own_copies=True, ttls=(1,), lease=1, crashes=1, losses=1
    ),
    "young copies of two readers": World(own_copies=True, readers=2, ttls=(2,)),
    "young copies, two writers": World(own_copies=True, writers=2, ttls=(2,)),
    "cached leases, everything fails": World(
        rewrites=2, usable=2, lease=3, ttls=(2,), delta=0, crashes=1, losses=1
    ),
    "cached leases, proxies, everything fails": World(
        rewrites=1, usable=1, lease=2, fill=0, ttls=(4,), crashes=1, losses=1
    ),
    "cached leases of two writers": World(
        rewrites=1, usable=1, lease=2, ttls=(2,), delta=0, writers=2, crashes=1
    ),
    "slow filters": World(readers=2, ttls=(1,), slow_filters=True),
    "filters from caches": World(slow_filters=True, cached_filters=True),
}

BROKEN: dict[Step, str | World] = {
    Step.STALE_AT_WRITE: "one of each",
    Step.LAST_EXPIRY: "two writers",
    Step.STALE_FROM_WRITES_ONLY: "a key that is to leave the filter",
    Step.BEGIN_FIRST: World(readers=2, delta=0),
    Step.REFUSE_UNBEGUN: "one of each",
    Step.ENTRY_DELETED: "version entries",
    Step.FENCING: "a writer that dies",
    Step.ENTRY_BY_MAXIMUM: "version entries of two writers",
    Step.REPEATED_PURGE: "proxies that answer revalidations",
    Step.END_BEFORE_ACK: "proxies that answer revalidations",
    Step.REPORT_FIRST: "one of each",
    Step.GRANT_ENDS: "grants",
    Step.VERSION_CHECK: "reads before the report",
    Step.PENDING_CHECK: "one of each",
    Step.MAXIMUM_IN_REPORT: World(readers=2, ttls=(1, 2), delta=0),
    Step.MARGIN: "answers that take time",
    Step.SUM_OF_LAYERS: "caches that send no age",
    Step.LINEARIZABLE_SOURCE: "one of each",
    Step.ANSWER_IN_TIME: "one of each",
    Step.NO_STORE_UNREPORTED: "one of each",
    Step.FILTER_WITHIN_DELTA: "one of each",
    Step.AGE_FROM_SENDING: "filters that take time",
    Step.AGE_IN_CACHES: "filters from caches",
    Step.TIME_BEFORE_BITS: "filters that take time",
    Step.REVALIDATION: "one of each",
    Step.OWN_REQUEST: "two readers who join",
    Step.OWN_COPY_ONLY: "one of each",
    Step.YOUNG_WITHIN_DELTA: "copies that are young",
    Step.YOUNG_FROM_SENDING: "young copies, answers that take time",
    Step.YOUNG_AS_FILTER: "copies that are young",
    Step.DATED_WITHIN_DELTA: "dated answers",
    Step.DATED_BEFORE_READ: "dated answers",
    Step.DATED_APART: "dated answers",
    Step.SATURATION: "a sketch that is lost",
    Step.UNCACHEABLE_AFTER_LOSS: "a sketch that is lost",
    Step.PURGE_AFTER_LOSS: World(fill=0, ttls=(4,), lease=1, losses=1),
    Step.ENTRY_HIDDEN: "version entries of two writers",
    Step.ENTRY_LEASE: "version entries",
    Step.LEASE_UNHELD: "cached leases, and proxies",
    Step.LEASE_USABLE: "cached leases, a sketch that is lost",
    Step.LEASE_TOKEN: "cached leases",
    Step.LEASE_LANDED: "cached leases",
    Step.LEASE_RELEASED: "cached leases",
}
"""For each step, a world in which leaving it out breaks a guarantee."""


def world_without(step: Step) -> World:
    world_or_name = BROKEN[step]
    world = WORLDS[world_or_name] if isinstance(world_or_name, str) else world_or_name
    return replace(world, dropped=frozenset({step}))


def check_lines(world: World, lines: list[bytes], bound: int) -> TraceReport:
    """Check a trace; with purges the bound covers only acknowledged writes."""
    bound_us = bound * TICK_US
    return check(read_trace(lines), bound_us, "vis" if world.fill is None else "ack")


@pytest.mark.parametrize("name", WORLDS)
def test_the_bound_holds_in_every_state(name: str) -> None:
    result = search(WORLDS[name])
    assert result.path == ()
    assert result.states > 1_000


@pytest.mark.large
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", LARGE)
def test_the_bound_holds_in_every_state_of_larger_worlds(name: str) -> None:
    assert search(LARGE[name]).path == ()


@pytest.mark.parametrize("step", Step, ids=lambda step: step.name.lower())
def test_no_step_can_be_left_out(step: Step) -> None:
    """The model finds a violation, and `check-trace` finds it in the clients' trace."""
    world = world_without(step)
    result = search(world)
    assert result.broken, "the bound holds without the step"
    report = check_lines(world, lines_of(result.broken), world.bound)
    if step is Step.STALE_FROM_WRITES_ONLY:
        assert report.holds, "a key that never leaves the filter costs hits, not freshness"
    else:
        assert not report.holds
        assert not report.contradictions
        assert report.deciding.worst[0].line == report.reads + report.writes, (
            "the last read is the violation"
        )


@pytest.mark.parametrize("name", WORLDS)
def test_traces_of_the_protocol_hold(name: str) -> None:
    """Traces distinguish times within a tick, the model does not: hence one tick more."""
    world, random = WORLDS[name], Random(name)
    traces = [lines_of(walk(world, random, 250)) for _ in range(5)]
    assert all(check_lines(world, trace, world.bound + 1).holds for trace in traces)
    assert sum(len(trace) for trace in traces) > 20


def test_a_shortest_path_to_a_read_that_reports_too_late_is_found() -> None:
    assert search(world_without(Step.REPORT_FIRST)).path == (
        "begin",
        "a filter: 0",
        "a plain request",
        "the store reads 0",
        "the store writes",
        "end",
        "acknowledge",
        "report: TTL 3",
        "an answer: 0",
        "tick",
        "a filter: 0",
        "tick",
        "a read of the browser's copy: 0",
    )


@pytest.mark.parametrize("bits", [PendingBits.ALL, PendingBits.NONE])
@pytest.mark.parametrize("name", ["one of each", "two writers", "both"])
def test_pending_writes_need_not_be_in_the_filter(name: str, bits: PendingBits) -> None:
    """Every copy that is fresh at `begin` expires by `stale_until`; until `end` no other is stored.

    Thus a key that no cache can hold at `begin` needs no bit, and a key with a bit does not need it
    beyond `stale_until`. Proxies join requests to one in flight only if its answer can be stored;
    then it was reported, and `handed_out` covers it.
    """
    assert search(replace(WORLDS[name], bits=bits)).path == ()


@pytest.mark.large
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", LARGE)
def test_pending_writes_need_not_be_in_the_filter_of_larger_worlds(name: str) -> None:
    assert search(replace(LARGE[name], bits=PendingBits.NONE)).path == ()


@pytest.mark.parametrize("name", ["one of each", "two writers"])
def test_pending_writes_must_be_in_the_filter_if_they_do_not_stop_caches(name: str) -> None:
    """The check in `report_read` replaces their bits; bits alone do not suffice."""
    dropped = frozenset({Step.PENDING_CHECK})
    assert search(replace(WORLDS[name], bits=PendingBits.ALL, dropped=dropped)).broken


def test_where_the_sketch_is_not_lost_fences_suffice_for_cached_leases() -> None:
    """A stalled replica that considers an old lease usable cannot write under it."""
    dropped = frozenset({Step.LEASE_USABLE})
    world = replace(WORLDS["cached leases, a writer that dies"], dropped=dropped)
    assert search(world).path == ()


def test_without_purges_the_end_can_follow_the_acknowledgement() -> None:
    """A write is pending until its end, so nothing becomes cacheable; only purges are delayed."""
    world = replace(WORLDS["a writer that dies"], dropped=frozenset({Step.END_BEFORE_ACK}))
    assert search(world).path == ()
