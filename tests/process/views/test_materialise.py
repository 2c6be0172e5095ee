"""The view of a microbatched database: copies of complete objects, within the bound."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import asyncpg
import httpx
import pytest
from prometheus_client import CollectorRegistry

from app.admin.application import create_admin_app
from app.admin.context import AdminContext
from app.api.options import DataOptions
from app.api.router import DataApi
from mediator.base.errors import Conflict, SchemaInvalid
from mediator.base.lease import Lease
from mediator.base.observation import ViewReadFinished
from mediator.changes.feed import LeaseLost
from mediator.coordination.connecting import Coordination
from mediator.coordination.scripts import script_of
from mediator.materialisation.maintenance import Kind
from mediator.materialisation.state import CopyState, CopyStep, PartitionState
from mediator.model.operations import Get, Outcome
from mediator.routing.freshness import ReadPreference
from mediator.routing.model import ClassRoute
from mediator.service import Mediator
from mediator.stores.port import Fragment, Mirror, Read, Record, SystemConfig
from redis_connection.scripts import Script
from tests.faults.caching.redis_server import Server, running
from tests.faults.conditions import eventually
from tests.process.service import (
    Service,
    field_on,
    inc,
    scratch_catalogue,
    scratch_systems,
    service,
    unique,
)

BOUND_S = 30.0
UPDATE = {"content-type": "application/vnd.portolan.update+json"}


def fields(**more: Any) -> dict[str, Any]:
    """Fields on three systems; the anchor is on PostgreSQL."""
    return {
        "title": field_on("postgres"),
        "hits": field_on("redis", "integer", default=0, group="hits"),
        "text": field_on("mongo", group="text"),
        **more,
    }


@pytest.fixture(scope="module")
async def mirrored(
    redis_config: SystemConfig, postgresql_config: SystemConfig, mongodb_config: SystemConfig
) -> AsyncIterator[Service]:
    """A mediator that keeps views up."""
    configs = (redis_config, postgresql_config, mongodb_config)
    async with (
        scratch_systems(*configs) as own,
        scratch_catalogue(postgresql_config) as url,
        service(own, url, coordination_url=redis_config.url) as started,
    ):
        await started.favour()
        yield started


@dataclass
class ViewClient:
    """A database with a view, and a client of its data API."""

    service: Service
    database: str
    http: httpx.AsyncClient

    @property
    def database_id(self) -> str:
        return self.service.mediator.data.model.databases[self.database].id

    @property
    def route(self) -> ClassRoute:
        return self.service.mediator.data.model.databases[self.database].classes["articles"]

    async def send(self, method: str, id_: str, body: Any = None, **headers: str) -> httpx.Response:
        """Send a request about an article; it must be answered well."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = await self.http.request(method, f"articles/{id_}", json=body, headers=given)
        assert answer.is_success, answer.text
        return answer

    async def inc(self, id_: str) -> httpx.Response:
        return await self.http.patch(
            f"articles/{id_}", content=b'{"hits": {"inc": 1}}', headers=UPDATE
        )

    async def held(self, id_: str) -> Record | None:
        """Read an object's copy."""
        assert self.route.copy is not None
        store = self.service.mediator.systems.get(self.route.copy.system).store
        [record] = await store.read([Read(self.route.copy, id_)])
        return record

    async def mirror(self, call: Callable[[Mirror, Any], Awaitable[Any]]) -> None:
        """Meddle with copies."""
        assert self.route.copy is not None
        store = self.service.mediator.systems.get(self.route.copy.system).store
        assert isinstance(store, Mirror)
        await call(store, self.route.copy)

    async def complete(self) -> None:
        """Wait until the copies are complete."""
        await eventually(self._is_complete)

    async def caught_up(self) -> None:
        """Wait until everything written so far is in the view."""
        feed = self.service.mediator.coordination
        assert feed is not None
        tick = await feed.feed.tick()

        async def reached() -> bool:
            marks = await feed.view_state.watermarks(self.database_id)
            known = [m for marks_ in marks.until_tick.values() for m in marks_]
            return bool(known) and all(mark is not None and mark > tick for mark in known)

        await eventually(reached)
        await self.service.mediator.views.read_watermarks()

    async def report(self, kind: Kind, *, repair: bool = False) -> dict[str, Any]:
        """Let a run go over the view; return what it has found of the articles."""
        views = self.service.mediator.views
        await views.start_run(self.database, kind, repair=repair)

        async def over() -> bool:
            return bool((await views.describe(self.database))["run"]["state"] != "running")

        await eventually(over)
        run = (await views.describe(self.database))["run"]
        assert run["state"] == "done", run
        found: dict[str, Any] = run["classes"]["articles"]
        return found

    async def _is_complete(self) -> bool:
        reports = await self.service.mediator.views.describe(self.database)
        return all(each["age_s"] is not None for each in reports["classes"].values())


@pytest.fixture(scope="module")
async def view(mirrored: Service) -> AsyncIterator[ViewClient]:
    """A database with a view that is complete; tests have objects of their own in it."""
    database = await mirrored.put_schema(
        {"articles": {"fields": fields()}},
        mode="microbatched",
        materialised_view={"system": "postgres", "staleness_s": BOUND_S},
    )
    async with _client(mirrored, database) as client:
        view = ViewClient(mirrored, database, client)
        await view.complete()
        yield view


@pytest.fixture(scope="module")
async def audited(mirrored: Service) -> AsyncIterator[ViewClient]:
    """One with a bound so tight that what is missing is soon overdue."""
    database = await mirrored.put_schema(
        {"articles": {"fields": fields()}},
        mode="microbatched",
        materialised_view={"system": "postgres", "staleness_s": 0.5},
    )
    async with _client(mirrored, database) as client:
        yield ViewClient(mirrored, database, client)


@pytest.fixture
def id_() -> str:
    """An object's id."""
    return unique("a")


def tried(view: ViewClient) -> ViewReadFinished:
    """What was reports last of a read that the view could have answered."""
    return next(o for o in reversed(view.service.observed) if isinstance(o, ViewReadFinished))


def _client(mirrored: Service, database: str) -> httpx.AsyncClient:
    app = DataApi(mirrored.mediator.data, DataOptions(cursor_key=b"secret"), lambda _: None)
    transport = httpx.ASGITransport(app)
    return httpx.AsyncClient(transport=transport, base_url=f"http://test/v1/{database}/")


async def test_whole_objects_are_read_from_the_view(view: ViewClient, id_: str) -> None:
    body = {"title": "Goal", "hits": 3, "text": "long"}
    await view.send("PUT", id_, body)
    await view.caught_up()
    answer = await view.send("GET", id_)
    assert answer.json() == {"id": id_, **body}
    bound, measured = answer.headers["portolan-staleness"].split(", ")
    assert bound == f"bound={BOUND_S:g}"
    assert 0 <= float(measured.removeprefix("measured=")) <= BOUND_S
    assert answer.headers["cache-control"] == "no-store"
    reports = tried(view)
    assert (reports.class_name, reports.decision) == ("articles", "answered")
    assert measured == f"measured={reports.measured_s:.3f}"
    assert view.service.mediator.views.ages().keys() >= {(view.database, "articles")}


async def test_strong_reads_ask_the_systems(view: ViewClient, id_: str) -> None:
    await view.send("PUT", id_, {"title": "Goal"})
    await view.caught_up()
    answer = await view.send("GET", id_, prefer="consistency=strong")
    assert "portolan-staleness" not in answer.headers
    assert answer.headers["preference-applied"] == "consistency=strong"


async def test_a_part_is_read_from_the_view_on_request(view: ViewClient, id_: str) -> None:
    await view.send("PUT", id_, {"title": "Goal"})
    await view.caught_up()
    assert "portolan-staleness" not in (await view.send("GET", f"{id_}?fields=title")).headers
    answer = await view.send("GET", f"{id_}?fields=title", prefer="consistency=bounded")
    assert "portolan-staleness" in answer.headers
    assert answer.json() == {"id": id_, "title": "Goal"}


async def test_a_tighter_bound_than_the_age_is_kept_by_the_systems(
    view: ViewClient, id_: str
) -> None:
    await view.send("PUT", id_, {"title": "old"})
    await view.caught_up()
    await view.send("PUT", id_, {"title": "new"})
    answer = await view.send("GET", id_, prefer="max-staleness=0")
    assert answer.json()["title"] == "new"
    assert "portolan-staleness" not in answer.headers
    assert tried(view).decision == "stale"


async def test_what_was_written_is_read_at_once(view: ViewClient, id_: str) -> None:
    await view.send("PUT", id_, {"title": id_})
    await view.caught_up()
    for number in range(1, 21):
        position = (await view.inc(id_)).headers["portolan-position"]
        answer = await view.send("GET", id_, prefer=f"at-least={position}")
        assert answer.json()["hits"] == number
        query = {"filter": {"eq": ["title", id_]}}
        found = await view.http.post(
            "articles/query", json=query, headers={"prefer": f"at-least={position}"}
        )
        assert found.json()["items"][0]["hits"] == number


async def test_deleted_objects_are_gone_everywhere_at_once(view: ViewClient, id_: str) -> None:
    await view.send("PUT", id_, {"title": "Goal", "text": "long"})
    await view.caught_up()
    copy = await view.held(id_)
    assert copy is not None
    await view.send("DELETE", id_)
    assert await view.held(id_) is None
    assert (await view.http.get("articles/a")).status_code == 404
    await view.mirror(lambda mirror, where: mirror.absorb(where, [copy]))
    assert await view.held(id_) is None
    await view.send("PUT", id_, {"title": "Another"})
    await view.caught_up()
    again = await view.held(id_)
    assert again is not None
    assert again.values["title"] == "Another"


async def test_objects_deleted_in_a_batch_are_gone_at_once(view: ViewClient, id_: str) -> None:
    await view.send("PUT", id_, {"title": "Goal"})
    await view.caught_up()
    batch = {"operations": [{"op": "delete", "class": "articles", "id": id_}]}
    answer = await view.http.post("batch", json=batch)
    assert answer.is_success, answer.text
    assert await view.held(id_) is None


async def test_queries_run_on_the_view(view: ViewClient, id_: str) -> None:
    for number in range(5):
        body = {"title": id_, "hits": number, "text": "even" if number % 2 == 0 else "odd"}
        await view.send("PUT", f"{id_}{number}", body)
    await view.caught_up()
    query = {
        "filter": {"and": [{"eq": ["title", id_]}, {"eq": ["text", "even"]}, {"gt": ["hits", 0]}]},
        "order": [["hits", "desc"]],
        "explain": True,
    }
    answer = await view.http.post("articles/query", json=query)
    assert [item["id"] for item in answer.json()["items"]] == [f"{id_}4", f"{id_}2"]
    assert "portolan-staleness" in answer.headers
    assert answer.json()["explain"]["system"] == "postgres"
    assert answer.json()["explain"]["others"] == []
    strong = await view.http.post(
        "articles/query", json=query, headers={"prefer": "consistency=strong"}
    )
    assert strong.json()["items"] == answer.json()["items"]
    assert "portolan-staleness" not in strong.headers
    assert strong.json()["explain"]["others"]


async def test_what_is_there_already_is_copied(mirrored: Service) -> None:
    classes = {"articles": {"fields": fields()}}
    database = await mirrored.put_schema(classes)
    async with _client(mirrored, database) as client:
        view = ViewClient(mirrored, database, client)
        for number in range(30):
            await view.send("PUT", f"a{number}", {"title": f"t{number}", "hits": number})
        await _set_mode(mirrored, database, "microbatched")
        await view.complete()
        for number in range(30):
            copy = await view.held(f"a{number}")
            assert copy is not None
            assert copy.values == {"title": f"t{number}", "hits": number}


async def test_copies_that_were_not_kept_up_for_a_while_are_built_anew(mirrored: Service) -> None:
    database = await mirrored.put_schema(
        {"articles": {"fields": fields()}},
        mode="microbatched",
        materialised_view={"system": "postgres"},
    )
    async with _client(mirrored, database) as client:
        view = ViewClient(mirrored, database, client)
        await view.send("PUT", "a", {"title": "before"})
        await view.caught_up()
        await _set_mode(mirrored, database, "mixed")
        await view.send("PUT", "b", {"title": "meanwhile"})
        await _set_mode(mirrored, database, "microbatched")
        await view.complete()
        assert await view.held("a") is not None
        assert await view.held("b") is not None


async def _set_mode(mirrored: Service, database: str, mode: str) -> None:
    control = mirrored.mediator.control
    document = (await control.schema(database)).document
    view = {"system": "postgres", "staleness_s": BOUND_S}
    await control.set_schema(database, {**document, "mode": mode, "materialised_view": view})


async def test_a_system_that_cannot_hold_copies_is_no_view(mirrored: Service) -> None:
    with pytest.raises(SchemaInvalid) as refused:
        await mirrored.put_schema(
            {"articles": {"fields": fields()}},
            mode="microbatched",
            materialised_view={"system": "redis"},
        )
    assert [place.pointer for place in refused.value.locations] == ["/materialised_view/system"]


async def _execute(view: ViewClient, statement: str, *arguments: Any) -> None:
    """Meddle with the view's rows behind its back."""
    copy = view.route.copy
    assert copy is not None
    store = view.service.mediator.systems.get(copy.system).store
    table = store.statements.records(copy).table  # type: ignore[attr-defined]
    connection = await asyncpg.connect(view.service.configs["postgres"].url)
    try:
        name = f'"{table.schema}"."{table.name}"'
        assert not (await connection.execute(statement.format(name), *arguments)).endswith(" 0")
    finally:
        await connection.close()


async def _spoil(view: ViewClient) -> None:
    """Make one copy of each kind of wrong."""
    for id_ in ("v-absent", "v-different", "v-ahead", "v-right"):
        await view.send("PUT", id_, {"title": "right", "hits": 1, "text": "right"})
    await view.caught_up()
    await _execute(view, "DELETE FROM {} WHERE id = $1", "v-absent")
    for id_, ahead in (("v-different", 0), ("v-ahead", 10**9)):
        copy = await view.held(id_)
        assert copy is not None
        versions = {group: version + ahead for group, version in copy.versions.items()}
        wrong = Record(id_, copy.creation_version, versions, {**copy.values, "title": "wrong"})
        await view.mirror(partial(_absorb, wrong))
    stray = Record("v-stray", 1, {"main": 1, "hits": 1, "text": 1}, {"title": "stray"})
    await view.mirror(lambda m, where: m.absorb(where, [stray]))


async def _absorb(record: Record, mirror: Mirror, where: Fragment) -> None:
    await mirror.absorb(where, [record], force=True)


WRONG = {"absent": 1, "different": 1, "ahead": 1, "left over": 1}


async def _is_right(view: ViewClient) -> None:
    assert await view.held("v-stray") is None
    for id_ in ("v-absent", "v-different", "v-ahead", "v-right"):
        copy = await view.held(id_)
        assert copy is not None
        assert copy.values == {"title": "right", "hits": 1, "text": "right"}


async def test_verifying_finds_what_is_wrong_and_repairs_it(audited: ViewClient) -> None:
    await _spoil(audited)

    async def all_is_found() -> bool:
        found = await audited.report("verify")
        return found == {**found, "wrong": WRONG, "repaired": 0}

    await eventually(all_is_found)
    found = await audited.report("verify", repair=True)
    assert found["wrong"] == WRONG
    assert found["repaired"] == len(WRONG)
    await _is_right(audited)
    assert (await audited.report("verify"))["wrong"] == {}


async def test_rebuilding_makes_everything_good(audited: ViewClient) -> None:
    await _spoil(audited)
    found = await audited.report("rebuild")
    assert found["wrong"] == {}
    await _is_right(audited)


async def test_one_run_goes_on_at_a_time(view: ViewClient) -> None:
    views = view.service.mediator.views
    await views.start_run(view.database, "rebuild")
    with pytest.raises(Conflict):
        await views.start_run(view.database, "verify")

    async def over() -> bool:
        return bool((await views.describe(view.database))["run"]["state"] == "done")

    await eventually(over)


async def test_a_view_is_described(view: ViewClient, id_: str) -> None:
    await view.send("PUT", id_, {"title": "Goal"})
    await view.caught_up()

    async def is_told() -> bool:
        reports = await view.service.mediator.views.describe(view.database)
        parts = reports["classes"]["articles"]["partitions"]
        return any(part["written"] for part in parts)

    await eventually(is_told)
    [reports] = [
        each
        for each in await view.service.mediator.views.overview()
        if each["database"] == view.database
    ]
    articles = reports["classes"]["articles"]
    assert articles["system"] == "postgres"
    assert {part["state"] for part in articles["partitions"]} == {"complete"}
    assert 0 <= articles["age_s"] < BOUND_S
    assert all(part["refreshes"] > 0 and part["error"] == "" for part in reports["partitions"])


class _History:
    """Increments as they were acknowledged, to hold copies against them."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, int], int] = {}
        self.acknowledged: dict[str, list[tuple[float, int]]] = {}

    def note(self, id_: str, version: int, value: int) -> None:
        self.values[id_, version] = value
        self.acknowledged.setdefault(id_, []).append((time.monotonic(), version))

    def check(self, outcome: Outcome, requested_at: float) -> None:
        """Hold a view's answer against what was acknowledged."""
        assert outcome.freshness is not None
        version = outcome.versions["hits"]
        assert version is not None
        assert outcome.values is not None
        assert self.values[outcome.id, version] == outcome.values["hits"]
        due = requested_at - outcome.freshness.measured_s
        acknowledged = [v for at, v in self.acknowledged[outcome.id] if at < due]
        assert version >= max(acknowledged, default=0)


async def test_copies_are_of_versions_that_existed_and_within_the_bound(view: ViewClient) -> None:
    """Oracle R3 of docs/papers/ppm.md: 1,000 increments over 100 articles in random order."""
    chance, history = random.Random(3), _History()
    data, database = view.service.mediator.data, view.database
    ids = [f"r{number}" for number in range(100)]
    for id_ in ids:
        made = await view.service.create(database, "articles", id_, hits=0, title=id_)
        history.note(id_, made.versions["hits"] or 0, 0)
    counts = Counter(dict.fromkeys(ids, 0))
    sampled = 0
    for _ in range(1000):
        id_ = chance.choice(ids)
        outcome = await data.write(inc(database, "articles", id_))
        counts[id_] += 1
        history.note(id_, outcome.versions["hits"] or 0, counts[id_])
        requested_at = time.monotonic()
        read = await data.read(
            Get(database, "articles", chance.choice(ids)), ReadPreference("bounded")
        )
        if read.freshness is not None:
            history.check(read, requested_at)
            sampled += 1
    assert sampled
    await view.caught_up()
    for id_ in ids:
        copy = await view.held(id_)
        assert copy is not None
        assert copy.values["hits"] == counts[id_]


async def test_the_view_is_a_system_that_can_hold_copies(mirrored: Service) -> None:
    only_redis = {"articles": {"fields": {"hits": field_on("redis", "integer")}}}
    database = await mirrored.put_schema(only_redis, mode="microbatched")
    copy = mirrored.mediator.data.model.databases[database].classes["articles"].copy
    assert copy is not None
    assert isinstance(mirrored.mediator.systems.get(copy.system).store, Mirror)


async def test_a_microbatched_database_needs_a_view(
    redis_config: SystemConfig, postgresql_config: SystemConfig
) -> None:
    async with _alone(redis_config, postgresql_config) as started:
        with pytest.raises(SchemaInvalid) as refused:
            await started.put_schema({"articles": {"fields": {}}}, mode="microbatched")
    assert [place.pointer for place in refused.value.locations] == ["/materialised_view"]


async def test_without_coordination_no_view_is_kept_up(postgresql_config: SystemConfig) -> None:
    classes = {"articles": {"fields": {"title": {"type": "string"}}}}
    async with _alone(postgresql_config, postgresql_config) as started:
        control, data = started.mediator.control, started.mediator.data
        document = {"mode": "microbatched", "classes": classes}
        change = await control.set_schema("alone", document)
        assert any("coordination" in note for note in change.notes)
        await started.create("alone", "articles", "a", title="t")
        read = await data.read(Get("alone", "articles", "a"), ReadPreference("bounded"))
        assert read.freshness is None
        with pytest.raises(Conflict):
            await started.mediator.views.describe("alone")


@asynccontextmanager
async def _alone(config: SystemConfig, catalogue: SystemConfig) -> AsyncIterator[Service]:
    """MaintenanceRun a mediator on one system, without coordination."""
    async with (
        scratch_systems(config) as own,
        scratch_catalogue(catalogue) as url,
        service(own, url) as started,
    ):
        yield started


async def test_states_move_only_for_the_holder_and_from_where_they_are(
    redis_config: SystemConfig,
) -> None:
    coordination = Coordination(redis_config.url)
    state, database = coordination.view_state, unique("db")
    lease, other = Lease(f"materialise:{database}:0", "me"), Lease(f"x:{database}", "you")
    complete, later = CopyState(5), CopyState(7, "", ("a",))
    try:
        assert await coordination.leases.acquire(lease.name, lease.token, 60)
        await state.advance(database, 0, (None, "l/1"), [CopyStep("c", None, complete)], lease)
        assert await state.load(database, 0) == PartitionState("l/1", {"c": complete})
        assert await state.load(database, 1) == PartitionState()
        for cursor, holder in ((("l/0", "l/2"), lease), (("l/1", "l/2"), other)):
            with pytest.raises(LeaseLost):
                await state.advance(database, 0, cursor, [CopyStep("c", complete, later)], holder)
        await state.advance(database, 0, ("l/1", "l/2"), [CopyStep("c", None, later)], lease)
        assert await state.load(database, 0) == PartitionState("l/2", {"c": complete})
        await state.advance(database, 0, ("l/2", "l/2"), [CopyStep("c", complete, later)], lease)
        marks = await state.watermarks(database)
        assert marks.until_tick == {(database, "c"): [7, None, None, None]}
        await state.retract(database, ["c"])
        await state.advance(database, 0, ("l/2", "l/3"), [CopyStep("c", later, complete)], lease)
        assert await state.load(database, 0) == PartitionState("l/3", {})
    finally:
        await state.retract(database)
        await coordination.leases.release(lease.name, lease.token)
        await coordination.close()


async def test_operators_see_views_and_look_after_them(view: ViewClient) -> None:
    mediator = view.service.mediator
    app = create_admin_app(
        mediator.control, CollectorRegistry(), AdminContext(views=mediator.views)
    )
    where = f"/admin/v1/views/{view.database}"
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as admin:
        listed = await admin.get("/admin/v1/views")
        assert view.database in {each["database"] for each in listed.json()["items"]}
        async with _run_elsewhere(mediator, view.database_id):
            assert (await admin.post(f"{where}/verify")).status_code == 409
        for work in ("verify?repair=true", "rebuild"):
            begun = await admin.post(f"{where}/{work}")
            assert begun.status_code == 202
            assert begun.json()["run"]["state"] in ("running", "done")
            await eventually(partial(_has_ended, admin, where))
            run = (await admin.get(where)).json()["run"]
            assert (run["state"], run["wrong"]) == ("done", 0)
        assert (await admin.get("/admin/v1/views/nothing")).status_code == 404
        assert (await admin.post("/admin/v1/views/nothing/verify")).status_code == 404


@asynccontextmanager
async def _run_elsewhere(mediator: Mediator, database_id: str) -> AsyncIterator[None]:
    """Hold the lease of runs, as another replica does while a run of its own goes on."""
    assert mediator.coordination is not None
    leases, name = mediator.coordination.leases, f"view-maintenance:{database_id}"
    assert await leases.acquire(name, "another replica", 30)
    try:
        yield
    finally:
        await leases.release(name, "another replica")


async def _has_ended(admin: httpx.AsyncClient, where: str) -> bool:
    return bool((await admin.get(where)).json()["run"]["state"] != "running")


async def test_a_deletion_that_is_repeated_is_not_acknowledged_before_the_copy_is_gone(
    view: ViewClient, id_: str
) -> None:
    await view.send("PUT", id_, {"title": "Goal"})
    await view.caught_up()
    copy = await view.held(id_)
    assert copy is not None
    await view.send("DELETE", id_, idempotency_key=id_)
    # As if the view had not answered then.
    await view.mirror(partial(_absorb, copy))
    assert await view.held(id_) is not None
    answer = await view.send("DELETE", id_, idempotency_key=id_)
    assert answer.headers["idempotency-replayed"] == "true"
    assert await view.held(id_) is None


@pytest.fixture
def shared() -> Iterator[Server]:
    """A coordination Redis of the test's own: the module's replica holds the relays' leases."""
    with running("shared-clock") as server:
        yield server


async def test_copies_do_not_look_new_when_the_shared_clock_is_set_back(
    redis_config: SystemConfig,
    postgresql_config: SystemConfig,
    mongodb_config: SystemConfig,
    shared: Server,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ages were differences of that clock: nothing was relayed, and all of it looked new."""
    shift = f"test:{unique()}"
    monkeypatch.setattr(
        "mediator.coordination.view_state.script_of",
        lambda name: Script(
            _SHIFTED.format(shift) + script_of(name).text.replace("redis.call('TIME')", "time()")
        ),
    )
    configs = (redis_config, postgresql_config, mongodb_config)
    async with (
        scratch_systems(*configs) as own,
        scratch_catalogue(postgresql_config) as url,
        service(own, url, coordination_url=shared.url) as started,
    ):
        await started.favour()
        database = await started.put_schema(
            {"articles": {"fields": fields()}},
            mode="microbatched",
            materialised_view={"system": "postgres", "staleness_s": BOUND_S},
        )
        await started.create(database, "articles", "a", title="t", hits=0)
        found = await eventual_copy(started, database, hits=0)
        assert found.freshness is not None
        coordination = started.mediator.coordination
        assert coordination is not None
        logs = started.mediator.changes._logs
        assert logs is not None
        await started.mediator.scheduler.stop()  # nobody tends the relays, or learns, but the test
        await logs.close()
        await coordination._redis.set(shift, -60, ex=600)
        await started.mediator.data.write(inc(database, "articles", "a"))
        acknowledged_at = time.monotonic()
        for _ in range(20):
            await started.mediator.views.read_watermarks()
            requested_at = time.monotonic()
            read = Get(database, "articles", "a")
            found = await started.mediator.data.read(read, ReadPreference("bounded"))
            if found.freshness is not None and (found.values or {})["hits"] == 0:
                assert found.freshness.measured_s >= requested_at - acknowledged_at


async def eventual_copy(started: Service, database: str, **values: Any) -> Outcome:
    """Wait until the view answers with these values."""
    outcome: Outcome | None = None

    async def answers() -> bool:
        nonlocal outcome
        outcome = await started.mediator.data.read(
            Get(database, "articles", "a"), ReadPreference("bounded")
        )
        held = outcome.values or {}
        return outcome.freshness is not None and values.items() <= held.items()

    await eventually(answers)
    assert outcome is not None
    return outcome


_SHIFTED = """
local function time()
  local now = redis.call('TIME')
  return {{ now[1] + (redis.call('GET', '{}') or 0), now[2] }}
end
"""
