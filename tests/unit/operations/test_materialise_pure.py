"""The pure functions of materialised views: compaction, freshness, watermarks, comparison."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mediator.base.errors import Unavailable
from mediator.base.observation import Observation, ViolationDetected
from mediator.changes.feed import PARTITIONS, partition_of
from mediator.changes.ticks import TickTimes
from mediator.materialisation.audit import (
    Audit,
    AuditFinding,
    AuditReport,
    Discrepancy,
    compare,
)
from mediator.materialisation.context import ViewContext
from mediator.materialisation.copier import join_fragments
from mediator.materialisation.materialisers import period_s
from mediator.materialisation.refresh import CompactedChanges, PendingCopies
from mediator.materialisation.staleness import StalenessMonitor
from mediator.materialisation.state import Watermarks, WatermarkSnapshot, copy_key
from mediator.model.change import Change
from mediator.model.operations import Outcome
from mediator.placement.decide import GroupPlacement, build_routes
from mediator.routing.freshness import (
    ANY,
    STRONG,
    ReadPreference,
    bound_of,
    has_reached,
    is_for_view,
)
from mediator.routing.model import ClassRoute, DatabaseRoute, RoutingModel
from mediator.schema.parse import parse_schema
from mediator.stores.port import Record

SCHEMA = {
    "mode": "microbatched",
    "materialised_view": {"system": "postgres", "staleness_s": 5},
    "classes": {
        "articles": {
            "fields": {
                "title": {"type": "string"},
                "hits": {"type": "integer", "group": "hits"},
            }
        },
        "notes": {"fields": {"text": {"type": "string"}}},
    },
}


def database() -> DatabaseRoute:
    """Articles are anchored on PostgreSQL and have their hits on Redis."""
    groups = {
        "articles": {
            "main": GroupPlacement("postgres", ("title",)),
            "hits": GroupPlacement("redis", ("hits",)),
        },
        "notes": {"main": GroupPlacement("mongo", ("text",))},
    }
    schema = parse_schema("news", SCHEMA)
    return build_routes(schema, groups, {"articles": 1, "notes": 1}, "postgres")


ROUTES = database().classes
ARTICLES = ROUTES["articles"]


def change(id_: str, kind: str = "update", version: int = 1, group: str = "main") -> Change:
    name = f"{id_}{kind}{version}{group}"
    return Change(name, "news", "articles", id_, group, version, kind, None, None, version, "news")


def compacted(
    pages: Sequence[Sequence[Change]], routes: Mapping[str, ClassRoute]
) -> Mapping[str, PendingCopies]:
    changes = CompactedChanges(routes)
    for page in pages:
        changes.add(page)
    assert changes.count == sum(map(len, pages))
    return changes.pending


def test_an_object_is_copied_once_however_often_it_changed() -> None:
    pending = compacted(
        [[change("a"), change("b")], [change("a", version=2, group="hits")]], ROUTES
    )
    assert list(pending["articles"].dirty) == ["a", "b"]
    assert pending["articles"].deleted == {}


def test_an_object_whose_anchor_is_deleted_is_deleted() -> None:
    pages = [[change("a", "delete", 7), change("b", "delete", 8, "hits")]]
    pending = compacted(pages, ROUTES)["articles"]
    assert pending.deleted == {"a": 7}
    assert list(pending.dirty) == ["b"]


def test_a_recreated_object_is_deleted_and_dirty() -> None:
    deletions = [change("a", "delete", 3), change("a", "create", 4), change("a", "delete", 9)]
    pending = compacted([[*deletions, change("a", "create", 11)]], ROUTES)["articles"]
    assert pending.deleted == {"a": 9}
    assert list(pending.dirty) == ["a"]


def test_changes_of_classes_without_a_copy_are_left_out() -> None:
    assert compacted([[change("a")]], {}) == {}


def test_a_round_starts_four_times_within_the_bound_or_each_second() -> None:
    assert period_s(2.0) == 0.5
    assert period_s(60.0) == 1.0


def test_reads_of_whole_objects_go_to_the_view() -> None:
    assert is_for_view(ARTICLES, None, ANY)
    assert not is_for_view(ARTICLES, ("title",), ANY)
    assert is_for_view(ARTICLES, ("title",), ReadPreference("bounded"))
    assert not is_for_view(ARTICLES, None, STRONG)
    assert not is_for_view(ROUTES["notes"], None, ANY)


def test_the_tighter_bound_counts() -> None:
    assert bound_of(5.0, ANY) == 5.0
    assert bound_of(5.0, ReadPreference(max_staleness_s=1.5)) == 1.5
    assert bound_of(5.0, ReadPreference(max_staleness_s=60.0)) == 5.0


@pytest.mark.parametrize(("minimum", "reached"), [(4, True), (5, True), (6, False)])
def test_a_copy_has_reached_the_minimum_versions(minimum: int, reached: bool) -> None:
    outcome = Outcome("a", {}, {"main": 5})
    preference = ReadPreference(at_least={("articles", "a"): {"main": minimum, "hits": 99}})
    assert has_reached(outcome, preference, "articles") is reached
    assert has_reached(outcome, preference, "notes")


@dataclass
class Time:
    """A clock that the test sets, and a count of ticks."""

    at: float = 100.0
    ticks: int = 1_000

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


def watermarks_of(until_ticks: list[int | None]) -> tuple[Watermarks, Time]:
    """Return the watermarks at 109 s: tick 10 was read at 101 s, and so on up to 90 at 109 s."""
    time = Time()
    watermarks = Watermarks(time)
    assert ARTICLES.copy is not None
    for tick in range(10, 100, 10):
        time.at += 1
        watermarks.update(WatermarkSnapshot(tick, {copy_key(ARTICLES.copy): until_ticks}), time.at)
    return watermarks, time


def test_the_age_of_a_class_is_that_of_its_oldest_partition() -> None:
    watermarks, time = watermarks_of([81, 75, 85, 95])
    assert watermarks.measured_s(ARTICLES) == 2.0
    time.at += 3
    assert watermarks.measured_s(ARTICLES) == 5.0


def test_the_age_of_an_object_is_that_of_its_partition() -> None:
    until_ticks: list[int | None] = [81] * PARTITIONS
    until_ticks[partition_of("articles", "a")] = 50
    watermarks, _ = watermarks_of(until_ticks)
    assert watermarks.measured_s(ARTICLES, "a") == 5.0, "tick 50 was issued before 105 s"


def test_the_age_of_an_incomplete_copy_is_unknown() -> None:
    watermarks, _ = watermarks_of([80, None, 80, 80])
    assert watermarks.measured_s(ARTICLES) is None
    assert watermarks.measured_s(ROUTES["notes"]) is None


def test_a_tick_before_the_first_reading_has_no_age() -> None:
    watermarks, _ = watermarks_of([10] * PARTITIONS)
    assert watermarks.measured_s(ARTICLES) is None


def test_copies_age_while_the_watermark_does_not_advance() -> None:
    """Nothing is relayed, whatever the clock of the tick server shows."""
    time = Time()
    watermarks, copy = Watermarks(time), ARTICLES.copy
    assert copy is not None
    for tick in (10, 20, *[30] * 60):
        watermarks.update(WatermarkSnapshot(tick, {copy_key(copy): [30] * PARTITIONS}), time.at)
        time.at += 1
    assert watermarks.measured_s(ARTICLES) == 61.0


def test_a_watermark_that_restarts_is_discarded() -> None:
    watermarks, copy = Watermarks(Time()), ARTICLES.copy
    assert copy is not None
    for tick in (1_000, 1_010, 5):
        watermarks.update(WatermarkSnapshot(tick, {copy_key(copy): [4] * PARTITIONS}), 100.0)
    assert watermarks.measured_s(ARTICLES) is None


@given(
    st.lists(st.tuples(st.integers(0, 3), st.floats(0.001, 5.0)), min_size=1, max_size=300),
    st.integers(0, 300),
)
def test_an_age_is_never_less_than_the_time_since_the_tick(
    steps: list[tuple[int, float]], index: int
) -> None:
    """However the count grew, and however many readings were evicted."""
    time, count = Time(), 0
    times = TickTimes(time)
    tick_times_s: list[float] = []
    for ticks, elapsed_s in steps * 10:
        for _ in range(ticks):
            count += 1
            tick_times_s.append(time.at)
        times.note(count, time.at)
        time.at += elapsed_s
    if index < len(tick_times_s):
        age_s = times.age_s(index + 1)
        assert age_s is None or age_s >= time.at - tick_times_s[index]


def record(main: int = 10, hits: int = 10, creation_version: int = 10, title: Any = "t") -> Record:
    return Record("a", creation_version, {"main": main, "hits": hits}, {"title": title, "hits": 1})


@pytest.mark.parametrize(
    ("original", "copy", "discrepancy"),
    [
        (record(), record(), None),
        (None, None, None),
        (record(), None, "absent"),
        (record(creation_version=90), None, None),
        (record(creation_version=60, main=60, hits=60), record(), None),
        (record(creation_version=20, main=20, hits=20), record(), "absent"),
        (None, record(), "left over"),
        (record(), record(creation_version=11), "ahead"),
        (record(), record(main=11), "ahead"),
        (record(), replace(record(hits=11), values={"title": "o", "hits": 1}), "ahead"),
        (record(main=40), record(), "overdue"),
        (record(main=60), record(), None),
        (record(), record(title="other"), "different"),
        (record(title=1), record(title=True), "different"),
        (record(main=60, title="new"), record(), None),
    ],
)
def test_comparing(
    original: Record | None, copy: Record | None, discrepancy: Discrepancy | None
) -> None:
    finding = compare(ARTICLES, original, copy, due_us=50)
    assert (finding.wrong if isinstance(finding, AuditFinding) else None) == discrepancy


versions = st.integers(1, 100)


@given(versions, versions, versions)
def test_a_copy_equal_to_its_original_is_correct(main: int, hits: int, due_us: int) -> None:
    original = record(main, hits)
    assert compare(ARTICLES, original, record(main, hits), due_us) is None


def test_fragments_of_another_creation_are_left_out() -> None:
    anchor = Record("a", 5, {"main": 6}, {"title": "t"})
    outdated = Record("a", 2, {"hits": 9}, {"hits": 3})
    assert join_fragments([anchor, outdated]) == anchor
    assert join_fragments([None, outdated]) is None


class _RecreatedObjects:
    """Copies of an object that is absent while it is compared, and then re-created."""

    def __init__(self) -> None:
        self.forgotten: dict[str, int] = {}
        self._reads = 0

    async def id_pages(self, _: ClassRoute) -> AsyncIterator[list[str]]:
        yield ["a"]

    async def read(self, *_: object) -> list[Record | None]:
        return [None]

    async def read_copies(self, *_: object) -> list[Record | None]:
        self._reads += 1
        return [record(creation_version=10 if self._reads <= 2 else 99)]

    async def copy(self, _: ClassRoute, ids: Sequence[str]) -> int:
        assert not ids
        return 0

    async def replace(self, _: ClassRoute, ahead: Sequence[Record]) -> int:
        assert not ahead
        return 0

    async def forget(self, _: ClassRoute, deleted: Mapping[str, int]) -> None:
        self.forgotten |= deleted


async def test_a_repair_spares_the_copy_of_a_recreated_object() -> None:
    copier = _RecreatedObjects()
    audit = Audit(cast("Any", copier), Time())
    reports: list[AuditReport] = []
    await audit.run(ARTICLES, 1.0, reports.append, repair=True)
    assert copier.forgotten == {"a": 10}, "a copy with a later creation version stays"
    assert reports[-1].repaired == 1


class _Log:
    """Records violations, unless it is down."""

    def __init__(self) -> None:
        self.reports: list[tuple[str, float]] = []
        self.is_down = False

    async def record(self, phase: str, event: ViolationDetected) -> None:
        if self.is_down:
            raise Unavailable("The catalogue does not answer.", system="catalogue")
        self.reports.append((phase, event.measured))


class _Leases:
    async def acquire(self, name: str, token: str, ttl_s: float) -> bool:
        return True

    async def release(self, name: str, token: str) -> None:
        """Do nothing."""


async def test_a_late_view_is_reported_before_its_bound_breaks() -> None:
    time = Time()
    watermarks = Watermarks(time)
    model = RoutingModel(1, {"news": database()})
    log, observations = _Log(), list[Observation]()
    unused = cast("Any", None)
    context = ViewContext(unused, unused, _Leases(), unused, watermarks, lambda: model, "one", time)
    monitor = StalenessMonitor(context, log, observations.append)
    for age in (1.0, 4.5, 4.8, 3.0, 1.0):
        _set_age(watermarks, model, time, age)
        await monitor.check()
    assert log.reports == [("began", 4.5), ("ended", 1.0)]
    [event] = observations
    log.reports.clear()
    for is_down, age in ((True, 4.5), (False, 4.5), (True, 1.0), (False, 1.0)):
        log.is_down = is_down
        _set_age(watermarks, model, time, age)
        with suppress(Unavailable):
            await monitor.check()
    assert log.reports == [("began", 4.5), ("ended", 1.0)], "failed reports are retried"
    assert isinstance(event, ViolationDetected)
    assert (event.node, event.metric, event.system) == ("articles", "staleness", "postgres")
    assert event.score < event.below


def _set_age(watermarks: Watermarks, model: RoutingModel, time: Time, age_s: float) -> None:
    """Make the copies `age_s` old."""
    copy = _articles(model).copy
    assert copy is not None
    time.ticks += 2
    snapshot = WatermarkSnapshot(time.ticks, {copy_key(copy): [time.ticks + 1] * PARTITIONS})
    watermarks.update(snapshot, time.at - age_s)


def _articles(model: RoutingModel) -> ClassRoute:
    return model.databases["news"].classes["articles"]
