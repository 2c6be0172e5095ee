"""The pure parts of primary materialisation: condensing, freshness, watermarks, comparing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mediator.changes.model import Change
from mediator.changes.partitions import PARTITIONS, partition_of
from mediator.materialise.audit import Finding, Wrong, compare
from mediator.materialise.condense import condense
from mediator.materialise.copier import join_parts
from mediator.materialise.freshness import ANY, STRONG, Wish, bound_of, has_seen, is_for_primary
from mediator.materialise.lateness import Lateness
from mediator.materialise.materialiser import period_s
from mediator.materialise.watermarks import Marks, Watermarks, place_of
from mediator.observation import Observation, ViolationDetected
from mediator.operations.model import Outcome
from mediator.placement.decide import GroupPlacement, build_routes
from mediator.placement.routing import ClassRoute, DatabaseRoute, RoutingModel
from mediator.schema.parse import parse_schema
from mediator.stores.port import Record

SCHEMA = {
    "mode": "microbatched",
    "primary": {"system": "postgres", "staleness_s": 5},
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


def test_an_object_is_copied_once_however_often_it_changed() -> None:
    work = condense([[change("a"), change("b")], [change("a", version=2, group="hits")]], ROUTES)
    assert list(work["articles"].dirty) == ["a", "b"]
    assert work["articles"].dead == {}


def test_an_object_whose_anchor_is_deleted_is_dead() -> None:
    pages = [[change("a", "delete", 7), change("b", "delete", 8, "hits")]]
    work = condense(pages, ROUTES)["articles"]
    assert work.dead == {"a": 7}
    assert list(work.dirty) == ["b"]


def test_an_object_that_was_created_again_is_dead_and_dirty() -> None:
    deaths = [change("a", "delete", 3), change("a", "create", 4), change("a", "delete", 9)]
    work = condense([[*deaths, change("a", "create", 11)]], ROUTES)["articles"]
    assert work.dead == {"a": 9}
    assert list(work.dirty) == ["a"]


def test_changes_of_classes_without_a_copy_are_left_out() -> None:
    assert condense([[change("a")]], {}) == {}


def test_a_round_begins_four_times_within_the_bound_or_each_second() -> None:
    assert period_s(2.0) == 0.5
    assert period_s(60.0) == 1.0


def test_whole_objects_are_for_the_primary() -> None:
    assert is_for_primary(ARTICLES, None, ANY)
    assert not is_for_primary(ARTICLES, ("title",), ANY)
    assert is_for_primary(ARTICLES, ("title",), Wish("primary"))
    assert not is_for_primary(ARTICLES, None, STRONG)
    assert not is_for_primary(ROUTES["notes"], None, ANY)


def test_the_tighter_bound_counts() -> None:
    assert bound_of(5.0, ANY) == 5.0
    assert bound_of(5.0, Wish(max_staleness_s=1.5)) == 1.5
    assert bound_of(5.0, Wish(max_staleness_s=60.0)) == 5.0


@pytest.mark.parametrize(("seen", "held"), [(4, True), (5, True), (6, False)])
def test_a_copy_has_what_was_seen(seen: int, held: bool) -> None:
    outcome = Outcome("a", {}, {"main": 5})
    wish = Wish(at_least={("articles", "a"): {"main": seen, "hits": 99}})
    assert has_seen(outcome, wish, "articles") is held
    assert has_seen(outcome, wish, "notes")


@dataclass
class Time:
    """A clock that is set by hand."""

    at: float = 100.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


def learnt(until: list[int | None], now_us: int = 9_000_000) -> tuple[Watermarks, Time]:
    time = Time()
    watermarks = Watermarks(time)
    assert ARTICLES.copy is not None
    watermarks.learn(Marks(now_us, time.at, {place_of(ARTICLES.copy): until}))
    return watermarks, time


def test_the_age_of_a_class_is_that_of_its_oldest_partition() -> None:
    watermarks, time = learnt([8_000_000, 7_000_000, 8_500_000, 9_000_000])
    assert watermarks.measured_s(ARTICLES) == 2.0
    time.at += 3
    assert watermarks.measured_s(ARTICLES) == 5.0


def test_the_age_of_an_object_is_that_of_its_partition() -> None:
    until: list[int | None] = [8_000_000] * PARTITIONS
    until[partition_of("articles", "a")] = 5_000_000
    watermarks, _ = learnt(until)
    assert watermarks.measured_s(ARTICLES, "a") == 4.0


def test_the_age_of_an_incomplete_copy_is_not_known() -> None:
    watermarks, _ = learnt([8_000_000, None, 8_000_000, 8_000_000])
    assert watermarks.measured_s(ARTICLES) is None
    assert watermarks.measured_s(ROUTES["notes"]) is None


def record(main: int = 10, hits: int = 10, birth: int = 10, title: Any = "t") -> Record:
    return Record("a", birth, {"main": main, "hits": hits}, {"title": title, "hits": 1})


@pytest.mark.parametrize(
    ("original", "copy", "wrong"),
    [
        (record(), record(), None),
        (None, None, None),
        (record(), None, Wrong.ABSENT),
        (record(birth=90), None, None),
        (record(birth=60, main=60, hits=60), record(), None),
        (record(birth=20, main=20, hits=20), record(), Wrong.ABSENT),
        (None, record(), Wrong.LEFT_OVER),
        (record(), record(birth=11), Wrong.AHEAD),
        (record(), record(main=11), Wrong.AHEAD),
        (record(main=40), record(), Wrong.OVERDUE),
        (record(main=60), record(), None),
        (record(), record(title="other"), Wrong.DIFFERENT),
        (record(title=1), record(title=True), Wrong.DIFFERENT),
        (record(main=60, title="new"), record(), None),
    ],
)
def test_comparing(original: Record | None, copy: Record | None, wrong: Wrong | None) -> None:
    found = compare(ARTICLES, original, copy, due_us=50)
    assert (found.wrong if isinstance(found, Finding) else None) is wrong


versions = st.integers(1, 100)


@given(versions, versions, versions)
def test_a_copy_that_is_its_original_is_never_wrong(main: int, hits: int, due_us: int) -> None:
    one = record(main, hits)
    assert compare(ARTICLES, one, record(main, hits), due_us) is None


def test_parts_of_another_incarnation_are_left_out() -> None:
    anchor = Record("a", 5, {"main": 6}, {"title": "t"})
    former = Record("a", 2, {"hits": 9}, {"hits": 3})
    assert join_parts([anchor, former]) == anchor
    assert join_parts([None, former]) is None


class _Log:
    """Keeps violations."""

    def __init__(self) -> None:
        self.told: list[tuple[str, float]] = []

    async def record(self, phase: str, event: ViolationDetected) -> None:
        self.told.append((phase, event.measured))


class _Leases:
    async def acquire(self, name: str, token: str, ttl_s: float) -> bool:
        return True

    async def release(self, name: str, token: str) -> None:
        """Give it back."""


async def test_a_primary_that_gets_late_is_told_of_before_its_bound_breaks() -> None:
    watermarks, time = learnt([9_000_000] * PARTITIONS)
    model = RoutingModel(1, {"news": database()})
    _rebase(watermarks, model, time)
    log, seen = _Log(), list[Observation]()
    lateness = Lateness(watermarks, lambda: model, log, _Leases(), "one", seen.append, time)
    for age in (1.0, 4.5, 4.8, 3.0, 1.0):
        _rebase(watermarks, model, time, 9_000_000 - int(age * 1e6))
        await lateness.watch()
    assert log.told == [("began", 4.5), ("ended", 1.0)]
    [event] = seen
    assert isinstance(event, ViolationDetected)
    assert (event.node, event.metric, event.system) == ("articles", "staleness", "postgres")
    assert event.score < event.below


def _rebase(
    watermarks: Watermarks, model: RoutingModel, time: Time, until_us: int = 9_000_000
) -> None:
    copy = _articles(model).copy
    assert copy is not None
    marks = Marks(9_000_000, time.at, {place_of(copy): [until_us] * PARTITIONS})
    watermarks.learn(marks)


def _articles(model: RoutingModel) -> ClassRoute:
    return model.databases["news"].classes["articles"]
