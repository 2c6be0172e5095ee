"""The store that is stale on purpose: its worked examples, and its conformance."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mediator.base.clock import SystemClock
from mediator.schema.annotations import Capability
from mediator.stores.conformance import CheckStatus, Report, run
from mediator.stores.probe import probe
from tests.conformance.stale_store import (
    Constant,
    PerServer,
    Replicas,
    StaleStore,
    Uniform,
    Windows,
)
from tests.conformance.virtual_time import HandClock


def replicas(windows: Windows, clock: HandClock, servers: str = "ABC") -> Replicas[str, str]:
    return Replicas(tuple(servers), windows, clock)


def store(windows: Windows, clock: HandClock) -> StaleStore:
    return StaleStore(Replicas(("A", "B"), windows, clock), clock)


# The worked examples of docs/papers/sickstore.md, section 4.


@pytest.mark.parametrize(("server", "from_"), [("A", 5), ("C", 6), ("B", 7)])
def test_a_write_is_seen_once_its_window_has_passed(server: str, from_: int) -> None:
    clock = HandClock()
    origin = replicas(PerServer({"A": 1, "B": 3, "C": 2}), clock)
    origin.write("x", "Alice")
    reads = {}
    for clock.elapsed_s in range(1, 11):
        if clock.elapsed_s == 4:
            origin.write("x", "Bob")
        reads[clock.elapsed_s] = origin.read("x", server)
    first = min(time for time, value in reads.items() if value == "Bob")
    assert first == from_
    assert all(reads[time] == "Bob" for time in range(from_, 11))
    assert reads[from_ - 1] == "Alice"


@pytest.mark.parametrize(
    ("writer_ahead", "second_ahead", "window"), [(0, 0, 5), (0, 10, 14), (0, 9, 13), (6, 0, -1)]
)
def test_skewed_clocks_distort_bermbachs_method(
    writer_ahead: int, second_ahead: int, window: int
) -> None:
    """The window is the last stale read by the reader's clock, less the write by the writer's."""
    clock = HandClock()
    origin = replicas(PerServer({"1": 5.5, "2": 4.5}), clock, "12")
    origin.write("x", "old")
    ahead = {"1": 0, "2": second_ahead}
    clock.elapsed_s = 103  # the paper's 3, when the old value is seen everywhere
    origin.write("x", "new")
    written, stale = 3 + writer_ahead, []
    for time in range(3, 20):
        clock.elapsed_s = 100 + time
        stale += [
            time + ahead[server] for server in origin.servers if origin.read("x", server) == "old"
        ]
    assert max(stale) - written == window


@dataclass
class Requeueing:
    """YCSB++: take a key and read it; if it is absent, put it back and take the next.

    As in the paper's first setting, a key is inserted every 0.2 s, with 320 reads per second.
    """

    take: Callable[[deque[int]], int]
    windows: list[float] = field(default_factory=list)

    def run(self, count: int, window_s: float) -> list[float]:
        clock = HandClock()
        origin = replicas(Constant(window_s), clock, "A")
        queue, received, inserted = deque[int](), dict[int, float](), 0
        while len(self.windows) < count:
            if inserted < count and clock.elapsed_s >= inserted / 5:
                origin.write(str(inserted), "here")
                queue.append(inserted)
                inserted += 1
            clock.elapsed_s += 1 / 320
            if queue:
                key = self.take(queue)
                queue.remove(key)
                since = received.setdefault(key, clock.elapsed_s)
                if origin.read(str(key), "A") is None:
                    queue.append(key)
                else:
                    self.windows.append(clock.elapsed_s - since)
        return self.windows

    def accurate_share(self, window_s: float) -> float:
        return mean(abs(window - window_s) <= 0.1 * window_s for window in self.run(200, window_s))


def hash_of(key: int) -> int:
    return key * 2_654_435_761 % 2**32


def test_an_unordered_queue_misleads_ycsb_plus_plus_and_an_ordered_one_does_not() -> None:
    """ZooKeeper lists names in the order of a hash: the same few are read repeatedly."""
    assert Requeueing(lambda queue: min(queue, key=hash_of)).accurate_share(1.0) < 0.4
    assert Requeueing(lambda queue: queue[0]).accurate_share(1.0) > 0.9


# Laws of its components.


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1), st.integers(0, 99))
def test_a_read_returns_the_last_write_whose_window_has_passed(
    writes: Sequence[tuple[int, int]], now: int
) -> None:
    """Each write has its window: a later write with a shorter window overtakes."""
    clock = HandClock()
    windows = iter([window for _, window in writes])

    class ListedWindows:
        def draw(self, servers: Sequence[str]) -> dict[str, float]:
            return dict.fromkeys(servers, next(windows))

    origin = replicas(ListedWindows(), clock)
    visible_from_s = []
    for number, (pause, window) in enumerate(writes):
        clock.elapsed_s += pause
        origin.write("x", str(number))
        visible_from_s.append(clock.elapsed_s + window)
    clock.elapsed_s += now
    visible = [str(n) for n, since in enumerate(visible_from_s) if since <= clock.elapsed_s]
    assert origin.read("x", "A") == (visible[-1] if visible else None)
    assert origin.newest("x") == str(len(writes) - 1)


def test_windows_differ_for_each_write_and_are_reproducible() -> None:
    draws = [Uniform(1, 2, seed).draw("ABC") for seed in (7, 7, 8)]
    assert draws[0] == draws[1] != draws[2]
    generator = Uniform(1, 2, 7)
    assert generator.draw("ABC") == draws[0] != generator.draw("ABC")
    assert all(1 <= window <= 2 for window in draws[2].values())


@pytest.mark.parametrize(
    "make", [Constant, lambda s: Uniform(s, 1, 1), lambda s: PerServer({"A": s})]
)
@pytest.mark.parametrize("seconds", [-1.0, float("nan")])
def test_windows_are_not_negative(make: Callable[[float], object], seconds: float) -> None:
    with pytest.raises(ValueError, match="window"):
        make(seconds)


@pytest.mark.parametrize("servers", [(), ("A", "A")])
def test_servers_have_unique_names(servers: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="server"):
        Replicas(servers, Constant(0), HandClock())
    with pytest.raises(ValueError, match="none of the servers"):
        store(Constant(0), HandClock()).at("Z")


# Findings of the conformance suite and of the capability probe.

DECIDED_BY_WRITES = (
    "deletes.deleted_records_cannot_be_changed",
    "idempotency.replays_return_the_original_result",
    "versions.deletion_returns_its_tombstone",
    "writes.absent_records_are_missing",
)
SEEN_BY_READS = (
    "concurrency.what_was_acknowledged_is_read",
    "deletes.deleted_records_are_gone",
    "lifecycle.added_fields_keep_data",
    "scanning.pages_give_every_id_once",
    "values.records_are_found_by_id",
)
LONG_S = 1e6


def statuses(report: Report, names: Sequence[str]) -> set[CheckStatus]:
    by_check = {finding.check.name: finding.status for finding in report.findings}
    return {by_check[name] for name in names}


async def test_a_stale_store_without_windows_conforms() -> None:
    clock = SystemClock()
    report = await run(StaleStore(Replicas(("A",), Constant(0), clock), clock))
    assert report.conforms, report.having(CheckStatus.FAILED)


async def test_with_windows_only_checks_of_reads_fail() -> None:
    report = await run(store(Constant(LONG_S), HandClock()))
    assert statuses(report, DECIDED_BY_WRITES) == {CheckStatus.PASSED}
    assert statuses(report, SEEN_BY_READS) == {CheckStatus.FAILED}


async def test_a_server_without_a_window_conforms_next_to_one_that_has_one() -> None:
    origin = store(PerServer({"B": LONG_S}), HandClock())
    assert statuses(await run(origin), SEEN_BY_READS) == {CheckStatus.PASSED}
    assert statuses(await run(origin.at("B")), SEEN_BY_READS) == {CheckStatus.FAILED}


@pytest.mark.parametrize(("window_s", "state"), [(0.0, "proven"), (0.0025, "refuted")])
async def test_the_probe_examines_linearizability_of_a_stale_store(
    window_s: float, state: str
) -> None:
    """Each reading of the clock takes 1 ms: the next few reads miss the last write."""
    report = await probe(store(Constant(window_s), HandClock(0.001)), budget_s=60.0)
    assert report.capabilities[Capability.LINEARIZABLE].state == state
