"""The control plane over the real stores: schemas, systems, restarts and replicas."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mediator.base.clock import SystemClock
from mediator.base.errors import (
    AdvisoryOnly,
    Conflict,
    DataWouldMove,
    NotFound,
    PreconditionFailed,
    SchemaInvalid,
    Unavailable,
    Unplaceable,
)
from mediator.base.observation import ViolationDetected
from mediator.catalogue.stored_databases import Moment, StoredDatabase
from mediator.control.port import SystemRegistration
from mediator.model.operations import Create, Outcome
from mediator.model.query import OrderBy, Query
from mediator.schema.parse import parse_schema
from mediator.schema.tree import Schema
from mediator.stores.kinds import make_store
from mediator.stores.port import Store, StoreUnavailable, SystemConfig
from tests.conformance.racy import RacyStore
from tests.process.service import NOWHERE, Service, field_on, service, unique


def on(system: str, **members: Any) -> dict[str, Any]:
    """Return a class with one field that is placed on a system."""
    return {"fields": {"title": field_on(system)}, **members}


@pytest.fixture
async def replica(
    mediator: Service, system_configs: Sequence[SystemConfig], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Service]:
    """A second mediator on the same catalogue; it finds every system examined already."""

    async def unexpected(store: object) -> Any:
        raise AssertionError("the findings of the same server version are kept")

    stack = AsyncExitStack()
    with monkeypatch.context() as patched:
        patched.setattr("mediator.control.opening.probe", unexpected)
        started = await stack.enter_async_context(service(system_configs, mediator.catalogue_url))
    async with stack:
        yield started


async def test_a_schema_is_set_read_changed_and_dropped(mediator: Service) -> None:
    control, name = mediator.mediator.control, unique("db")
    document = {"classes": {"notes": on("postgres")}}
    dry = await control.set_schema(name, document, dry_run=True)
    assert dry.placements["notes.title"]["system"] == "postgres"
    with pytest.raises(NotFound):
        await control.schema(name)
    first = await control.set_schema(name, document, version=0)
    assert (first.version, first.epoch) == (1, mediator.mediator.data.model.epoch)
    with pytest.raises(PreconditionFailed):
        await control.set_schema(name, document, version=0)
    second = await control.set_schema(name, first.document, version=1)
    assert (second.version, second.document) == (2, first.document)
    stored = await control.schema(name)
    assert (stored.document, stored.version) == (second.document, 2)
    assert name in [database["name"] for database in await control.databases()]
    await mediator.create(name, "notes", "x", title="t")
    counted = await control.delete_schema(name, dry_run=True)
    assert (counted["objects"], counted["dropped"]) == ({"notes": 1}, False)
    await control.delete_schema(name)
    for gone in (mediator.get(name, "notes", "x"), control.schema(name)):
        with pytest.raises(NotFound):
            await gone
    await control.set_schema(name, document)
    with pytest.raises(NotFound):
        await mediator.get(name, "notes", "x")


async def test_every_mistake_is_named(mediator: Service) -> None:
    document = {
        "mode": "sideways",
        "classes": {"notes": {"fields": {"a": {"type": "strin"}, "b": {"type": "list"}}}},
    }
    with pytest.raises(SchemaInvalid) as caught:
        await mediator.mediator.control.set_schema(unique("db"), document)
    pointers = {place.pointer for place in caught.value.locations}
    assert "/mode" in pointers
    assert "/classes/notes/fields/a/type" in pointers
    assert any(pointer.startswith("/classes/notes/fields/b") for pointer in pointers)


async def test_a_view_that_is_not_registered_is_refused(mediator: Service) -> None:
    schema = {"mode": "microbatched", "materialised_view": {"system": "nowhere"}, "classes": {}}
    with pytest.raises(SchemaInvalid) as refused:
        await mediator.mediator.control.set_schema("views", schema)
    assert [place.pointer for place in refused.value.locations] == ["/materialised_view/system"]
    assert "views" not in mediator.mediator.data.model.databases


async def test_what_nobody_can_serve_changes_nothing(mediator: Service) -> None:
    name = await mediator.put_schema({"notes": on("postgres")})
    before = mediator.mediator.data.model
    impossible = on("postgres")
    impossible["fields"]["title"]["annotations"].append({"require": "full_text_search"})
    with pytest.raises(Unplaceable) as caught:
        await mediator.mediator.control.set_schema(name, {"classes": {"notes": impossible}})
    [node] = caught.value.extra["nodes"]
    assert node["node"] == "notes.title"
    assert set(node["systems"]) >= {"redis", "postgres", "mongo"}
    assert mediator.mediator.data.model is before


async def test_stated_metrics_move_the_next_schema_and_no_data(mediator: Service) -> None:
    control = mediator.mediator.control
    full = await mediator.put_schema({"notes": on("redis")})
    await mediator.create(full, "notes", "x", title="t")
    try:
        await control.amend("redis", metrics={"write_throughput": 1.0})
        await control.amend("mongo", metrics={"write_throughput": 1e6})
        assert mediator.systems_of(full, "notes") == ("redis",)
        [proposal] = [p for p in await control.proposals(full) if p["node"] == "notes.title"]
        assert (proposal["current"], proposal["proposed"]) == ("redis", "mongo")
        assert proposal["why"].startswith("notes.title decides for itself: mongo writes ")
        advice = await control.advise({"schema": {"classes": {"notes": on("redis")}}})
        assert advice["placements"]["notes.title"]["system"] == "mongo"
        later = await mediator.put_schema({"notes": on("redis")})
        assert mediator.systems_of(later, "notes") == ("mongo",)
        # Drift is no reason to refuse a harmless change, nor to move what is there.
        harmless = on("redis")
        harmless["fields"]["more"] = {"type": "integer", "index": True}
        classes = {"notes": harmless, "others": on("postgres")}
        change = await control.set_schema(full, {"classes": classes})
        assert change.placements["notes.title"]["system"] == "redis"
        assert (await mediator.get(full, "notes", "x")).values == {"title": "t"}
        assert (await mediator.get(full, "notes", "x")).partial == ()
    finally:
        await mediator.favour()


async def test_proposals_are_shared_outlive_replicas_and_go_with_their_database(
    mediator: Service, replica: Service, system_configs: Sequence[SystemConfig]
) -> None:
    control = mediator.mediator.control
    name = await mediator.put_schema({"notes": on("redis")})

    async def proposed(of: Service) -> list[dict[str, Any]]:
        await of.mediator.schemas.refresh()
        found = await of.mediator.control.proposals(name)
        return [proposal for proposal in found if proposal["node"] == "notes.title"]

    try:
        await control.amend("redis", metrics={"write_throughput": 1.0})
        await control.amend("mongo", metrics={"write_throughput": 1e6})
        [first] = await proposed(mediator)
        took_the_lead = datetime.fromisoformat(first["since"])
        assert abs(datetime.now(UTC) - took_the_lead) < timedelta(hours=1), (
            "a time that people read"
        )
        [other] = await proposed(replica)
        async with service(system_configs, mediator.catalogue_url) as later:
            [outliving] = await proposed(later)
            await later.mediator.registry.reconnect()
            await later.mediator.control.calibrate("redis")  # which judges anew
            [again] = await proposed(later)
        assert [p["since"] for p in (other, outliving, again)] == [first["since"]] * 3
        assert [p["why"] for p in (other, outliving)] == [first["why"]] * 2
        await control.delete_schema(name)
        await control.set_schema(name, {"classes": {"notes": on("redis")}})
        assert await proposed(mediator) == []
    finally:
        await mediator.favour()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"classes": {"notes": on("mongo")}}, id="another system"),
        pytest.param({"classes": {"notes": {"fields": {"title": {"type": "integer"}}}}}, id="type"),
        pytest.param({"classes": {"notes": {"fields": {"other": field_on("redis")}}}}, id="field"),
        pytest.param({"classes": {"rest": on("redis")}}, id="class"),
        pytest.param({"classes": {"notes": on("redis")}, "mode": "advisory"}, id="advisory"),
    ],
)
async def test_data_stays_where_it_is(mediator: Service, change: dict[str, Any]) -> None:
    control = mediator.mediator.control
    name = await mediator.put_schema({"notes": on("redis")})
    await mediator.create(name, "notes", "x", title="t")
    plan = (await control.set_schema(name, change, dry_run=True)).moves
    assert plan
    with pytest.raises(DataWouldMove) as caught:
        await control.set_schema(name, change)
    assert caught.value.extra["plan"] == list(plan)
    assert all(move["node"].startswith("notes") for move in plan)
    assert await mediator.values(name, "notes", "x") == {"title": "t"}
    empty = await mediator.put_schema({"notes": on("redis")})
    await control.set_schema(empty, change)
    if change.get("mode") == "advisory":
        with pytest.raises(AdvisoryOnly):
            await mediator.get(empty, "notes", "x")


@pytest.mark.parametrize("system", ["redis", "postgres", "mongo"])
async def test_fields_and_indexes_are_added_to_classes_that_hold_data(
    mediator: Service, system: str
) -> None:
    control, data = mediator.mediator.control, mediator.mediator.data
    name = await mediator.put_schema({"notes": on(system)})
    await mediator.create(name, "notes", "old", title="t")
    fields = {
        "title": field_on(system),
        "size": field_on(system, "float"),
        "list": field_on(system, "list", items="string"),
    }
    await control.set_schema(name, {"classes": {"notes": {"fields": fields}, "more": on(system)}})
    assert await mediator.values(name, "notes", "old") == {"title": "t"}
    await mediator.create(name, "notes", "new", title="u", size=3.0, list=["a"])
    assert await mediator.values(name, "notes", "new") == {"title": "u", "size": 3.0, "list": ["a"]}
    if system == "mongo":
        return
    fields["size"]["index"] = True
    await control.set_schema(name, {"classes": {"notes": {"fields": fields}, "more": on(system)}})
    answer = await data.query(Query(name, "notes", order=(OrderBy(("size",)),)))
    assert [item.outcome.id for item in answer.items] == ["old", "new"]


async def test_placements_are_explained_at_each_level(mediator: Service) -> None:
    control = mediator.mediator.control
    name = await mediator.put_schema({"notes": on("redis")})
    for node in ((), ("notes",), ("notes", "title")):
        why = await control.explain(name, *node)
        assert why["why"]
        assert set(why["candidates"]) >= {"redis", "postgres", "mongo"}
        assert why["epoch"] == mediator.mediator.data.model.epoch
    assert why["system"] == "redis"
    assert why["margin"]["runner_up"] in {"postgres", "mongo"}
    for node in (("nothing",), ("notes", "nothing")):
        with pytest.raises(NotFound):
            await control.explain(name, *node)


class Leap(SystemClock):
    """A clock that can be put forward."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


async def test_judging_many_databases_lets_others_in_after_each(mediator: Service) -> None:
    for _ in range(5):
        await mediator.put_schema({"things": {"fields": {"title": {"type": "string"}}}})
    evaluating = asyncio.create_task(mediator.mediator.evaluation.evaluate())
    turns = 0
    while not evaluating.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns > 5


async def test_a_violation_is_recorded_when_it_has_lasted(
    mediator: Service, system_configs: Sequence[SystemConfig]
) -> None:
    clock = Leap()
    rule = {
        "metric": "write_latency",
        "utility": {"shape": "linear", "points": [[0.020, 1], [0.050, 0]]},
        "violation": {"below": 0.5, "for_s": 60},
    }
    classes = {"notes": {"fields": {"title": {"type": "string", "annotations": [rule]}}}}
    async with service(system_configs, mediator.catalogue_url, clock=clock) as watching:
        control = watching.mediator.control
        name = await watching.put_schema(classes)
        [system] = watching.systems_of(name, "notes")
        try:
            await control.amend(system, metrics={"write_latency": 0.045})
            clock.ahead = 30
            await control.amend(system, metrics={})
            assert await control.violations(name) == []
            clock.ahead = 61
            await control.amend(system, metrics={})
            [event] = await control.violations(name)
            assert (event["phase"], event["node"], event["system"]) == (
                "began",
                "notes.title",
                system,
            )
            assert event["measured"] == pytest.approx(0.045)
            assert event["duration_s"] >= 60
            told = [o for o in watching.observed if isinstance(o, ViolationDetected)]
            assert [o.database for o in told] == [name]
            await control.amend(system, metrics={"write_latency": 0.001})
            assert [e["phase"] for e in await control.violations(name)] == ["ended", "began"]
        finally:
            await control.amend(system, metrics={"write_latency": None})
            await control.delete_schema(name)


async def test_a_write_is_never_lost_to_a_class_that_moves(mediator: Service) -> None:
    control, data = mediator.mediator.control, mediator.mediator.data
    name = await mediator.put_schema({"notes": on("redis")})
    kept: list[str] = []
    ended = asyncio.Event()

    async def write() -> None:
        while not ended.is_set():
            id_ = unique()
            try:
                operation = Create(name, "notes", id_, unique(), values={"title": id_})
                await data.write(operation)
                kept.append(id_)
            except Unavailable:
                await asyncio.sleep(0)

    async def move() -> None:
        for target in ("mongo", "postgres", "redis") * 2:
            try:
                await control.set_schema(name, {"classes": {"notes": on(target)}})
            except (DataWouldMove, Conflict):
                break
        ended.set()

    await asyncio.gather(move(), *(write() for _ in range(4)))
    for id_ in kept:
        assert await mediator.values(name, "notes", id_) == {"title": id_}


async def test_writes_to_a_class_that_moves_are_held_until_it_has_moved(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await mediator.put_schema({"notes": on("redis"), "rest": on("redis")})
    catalogue = mediator.mediator.stored_schemas
    put = catalogue.put

    async def meanwhile(database: Any) -> tuple[Moment, StoredDatabase]:
        with pytest.raises(Unavailable):
            await mediator.create(name, "notes", "early", title="t")
        answers = await mediator.mediator.data.batch(
            [Create(name, c, "x", unique(), values={"title": "t"}) for c in ("notes", "rest")]
        )
        assert [type(answer) for answer in answers] == [Unavailable, Outcome]
        return await put(database)

    with monkeypatch.context() as patched:
        patched.setattr(catalogue, "put", meanwhile)
        classes = {"notes": on("mongo"), "rest": on("redis")}
        await mediator.mediator.control.set_schema(name, {"classes": classes})
    await mediator.create(name, "notes", "late", title="t")
    assert mediator.systems_of(name, "notes") == ("mongo",)


async def test_a_failed_change_lets_writes_go_on(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = mediator.mediator.control
    name = await mediator.put_schema({"notes": on("redis")})
    catalogue = mediator.mediator.stored_schemas

    async def lost(database: object) -> int:
        raise Unavailable("The catalogue does not answer.", system="catalogue")

    with monkeypatch.context() as patched:
        patched.setattr(catalogue, "put", lost)
        with pytest.raises(Unavailable):
            await control.set_schema(name, {"classes": {"notes": on("mongo")}})
    await mediator.create(name, "notes", "x", title="t")
    assert mediator.systems_of(name, "notes") == ("redis",)


async def test_a_change_whose_answer_was_lost_is_in_force(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = mediator.mediator.control
    name = await mediator.put_schema({"notes": on("redis")})
    catalogue = mediator.mediator.stored_schemas
    put = catalogue.put

    async def answer_lost(database: Any) -> int:
        await put(database)
        raise Unavailable("The catalogue does not answer.", system="catalogue")

    with monkeypatch.context() as patched:
        patched.setattr(catalogue, "put", answer_lost)
        with pytest.raises(Unavailable):
            await control.set_schema(name, {"classes": {"notes": on("mongo")}})
    assert mediator.systems_of(name, "notes") == ("mongo",)
    await mediator.create(name, "notes", "x", title="t")


async def test_a_removal_that_was_cut_short_can_be_repeated(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = mediator.mediator.control
    classes = {"a": on("redis"), "b": on("mongo"), "c": on("postgres")}
    name = await mediator.put_schema(classes)
    catalogue = mediator.mediator.stored_schemas

    async def lost(database: object) -> int:
        raise Unavailable("The catalogue does not answer.", system="catalogue")

    with monkeypatch.context() as patched:
        patched.setattr(catalogue, "remove", lost)
        with pytest.raises(Unavailable):
            await control.delete_schema(name)
    await control.delete_schema(name)
    with pytest.raises(NotFound):
        await control.schema(name)


async def test_a_restart_serves_the_same_model_without_probing(
    mediator: Service, replica: Service
) -> None:
    model = mediator.mediator.data.model
    await mediator.mediator.registry.reconnect()
    await replica.mediator.schemas.refresh()
    again = replica.mediator.data.model
    assert again.epoch == model.epoch
    for name, database in model.databases.items():
        for class_name in database.classes:
            assert replica.systems_of(name, class_name) == mediator.systems_of(name, class_name)
    for system in await replica.mediator.control.systems():
        own = await mediator.mediator.control.system(system["name"])
        assert system["findings"] == own["findings"]
        assert system["stated_metrics"] == own["stated_metrics"]


async def test_a_replica_finds_what_another_one_set(mediator: Service, replica: Service) -> None:
    name = await mediator.put_schema({"notes": on("postgres")})
    await mediator.create(name, "notes", "x", title="t")
    assert await replica.values(name, "notes", "x") == {"title": "t"}
    more = {"classes": {"notes": on("postgres"), "more": on("redis")}}
    await mediator.mediator.control.set_schema(name, more)
    await replica.create(name, "more", "y", title="u")
    assert await mediator.values(name, "more", "y") == {"title": "u"}
    await mediator.mediator.control.amend("redis", declared=["elasticity"])
    await replica.mediator.registry.reconnect()
    assert "elasticity" in (await replica.mediator.control.system("redis"))["capabilities"]
    await mediator.mediator.control.amend("redis", declared=[])


async def test_no_schema_is_parsed_but_the_one_that_changes(
    mediator: Service, replica: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, parsed = await mediator.put_schema({"notes": on("postgres")}), []
    await replica.mediator.schemas.refresh()

    def counted(database: str, document: Any) -> Schema:
        parsed.append(database)
        return parse_schema(database, document)

    for module in ("layout", "schemas"):
        monkeypatch.setattr(f"mediator.control.{module}.parse_schema", counted)
    more = {"classes": {"notes": on("postgres"), "more": on("redis")}}
    await mediator.mediator.control.set_schema(name, more)
    assert parsed == [name, name]  # as it came, and as it is kept
    await replica.create(name, "more", "y", title="u")
    assert parsed == [name] * 3
    for plane in (mediator, replica):
        assert (await plane.mediator.control.schema(name)).version == 2
        assert name in [told["name"] for told in await plane.mediator.control.databases()]
        with pytest.raises(NotFound):
            await plane.mediator.control.schema("nobody")
    assert parsed == [name] * 3


async def test_of_two_changes_on_one_version_one_wins(mediator: Service, replica: Service) -> None:
    name = await mediator.put_schema({"notes": on("postgres")})
    one = {"classes": {"notes": on("postgres"), "one": on("redis")}}
    two = {"classes": {"notes": on("postgres"), "two": on("redis")}}
    results = await asyncio.gather(
        mediator.mediator.control.set_schema(name, one, version=1),
        replica.mediator.control.set_schema(name, two, version=1),
        return_exceptions=True,
    )
    assert sorted(type(result).__name__ for result in results) == [
        "PreconditionFailed",
        "SchemaChange",
    ]
    stored = await mediator.mediator.control.schema(name)
    assert stored.version == 2
    assert ("one" in stored.document["classes"]) == (not isinstance(results[0], Exception))


async def test_changes_of_two_replicas_to_two_databases_are_both_seen(
    mediator: Service, replica: Service
) -> None:
    names = await asyncio.gather(
        *(plane.put_schema({"notes": on("redis")}) for plane in (mediator, replica) * 4)
    )
    for plane in (mediator, replica):
        for name in names:
            with pytest.raises(NotFound, match="notes/nobody"):
                await plane.get(name, "notes", "nobody")
        await plane.mediator.schemas.refresh()
        assert set(names) <= set(plane.mediator.data.model.databases)


async def test_a_system_is_registered_used_and_forgotten(
    mediator: Service, replica: Service, redis_config: SystemConfig
) -> None:
    control = mediator.mediator.control
    name = unique("redis2")[:30]
    config = replace(redis_config, name=name, namespace=mediator.configs["redis"].namespace + "b")
    both = await asyncio.gather(
        control.register(SystemRegistration(config, metrics={"write_throughput": 1e9})),
        control.register(SystemRegistration(config)),
        return_exceptions=True,
    )
    assert [type(answer).__name__ for answer in both] == ["dict", "Conflict"]
    described = await control.system(name)
    assert {"conditional_updates", "atomic_updates"} <= set(described["capabilities"])
    database = await mediator.put_schema({"notes": on("redis")})
    assert mediator.systems_of(database, "notes") == (name,)
    await replica.mediator.registry.reconnect()
    await replica.create(database, "notes", "x", title="t")
    with pytest.raises(Conflict) as caught:
        await control.unregister(name)
    assert caught.value.extra["classes"] == [f"{database}.notes"]
    await control.delete_schema(database)
    await control.unregister(name)
    await replica.mediator.registry.reconnect()
    for plane in (mediator, replica):
        with pytest.raises(NotFound):
            await plane.mediator.control.system(name)


async def test_systems_keep_the_order_of_the_settings(mediator: Service) -> None:
    stored = await mediator.mediator.registrations.load()
    assert [system.name for system in stored][: len(mediator.configs)] == list(mediator.configs)


async def test_what_another_replica_said_of_a_system_is_not_forgotten(
    mediator: Service, replica: Service
) -> None:
    """Neither has heard of the other when it speaks."""
    before = (await mediator.mediator.control.system("redis"))["stated_metrics"]
    await replica.mediator.registry.reconnect()
    await mediator.mediator.control.amend("redis", metrics={"write_latency": 0.125})
    await replica.mediator.control.amend("redis", metrics={"read_availability": 0.5})
    told = []
    for plane in (mediator, replica):
        await plane.mediator.registry.reconnect()
        told.append((await plane.mediator.control.system("redis"))["stated_metrics"])
    changed = {name: before.get(name) for name in ("write_latency", "read_availability")}
    await mediator.mediator.control.amend("redis", metrics=changed)
    assert told == [{**before, "write_latency": 0.125, "read_availability": 0.5}] * 2


async def test_a_system_that_cannot_be_reached_is_refused_without_its_password(
    mediator: Service, caplog: pytest.LogCaptureFixture
) -> None:
    urls = {
        "redis": NOWHERE,
        "postgresql": "postgresql://me:hush-hush@127.0.0.1:1/x",
        "mongodb": "mongodb://me:hush-hush@127.0.0.1:1/?serverSelectionTimeoutMS=100",
    }
    for kind, url in urls.items():
        config = SystemConfig(unique("far"), kind, url, deadline_s=1.0)
        with pytest.raises(Unavailable) as caught:
            await mediator.mediator.control.register(SystemRegistration(config))
        told = f"{caught.value} {caught.value.extra} {config!r} {caplog.text}"
        assert "hush-hush" not in told
        with pytest.raises(NotFound):
            await mediator.mediator.control.system(config.name)


@pytest.mark.parametrize("url", ["what:hush-hush@", "redis://u:hush-hush@[::1", "", "::hush-hush"])
@pytest.mark.parametrize("kind", ["redis", "postgresql", "mongodb", "oracle"])
async def test_a_url_that_is_none_is_refused_without_being_shown(
    mediator: Service, kind: str, url: str
) -> None:
    registration = SystemRegistration(SystemConfig(unique("odd"), kind, url, deadline_s=1.0))
    with pytest.raises((Unavailable, Conflict, SchemaInvalid.__bases__[0])) as caught:
        await mediator.mediator.control.register(registration)
    assert "hush-hush" not in f"{caught.value} {caught.value.extra} {caught.value.locations}"


class Closed:
    """A store whose server is not there yet."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.opens = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def open(self) -> None:
        if not self.opens:
            raise StoreUnavailable("connection refused")
        await self._store.open()


async def test_a_system_that_is_down_at_the_start_is_opened_later(
    mediator: Service, system_configs: Sequence[SystemConfig]
) -> None:
    name = await mediator.put_schema({"near": on("postgres"), "far": on("redis")})
    stores: list[Any] = []

    def factory(config: SystemConfig) -> Store:
        if config.kind != "redis":
            return make_store(config)
        store: Any = Closed(make_store(config))
        store.opens = bool(stores) and stores[0].opens
        stores.append(store)
        opened: Store = store
        return opened

    async with service(system_configs, mediator.catalogue_url, factory=factory) as late:
        await late.create(name, "near", "x", title="t")
        with pytest.raises(Unavailable):
            await late.create(name, "far", "x", title="t")
        verdict = await late.mediator.control.readiness()
        assert (verdict["ready"], verdict["degraded"]) == (True, ["redis"])
        assert f"{name}.far" in verdict["systems"]["redis"]["serves"]
        assert await late.mediator.control.schema(name)
        stores[0].opens = True
        await late.mediator.registry.reconnect()
        await late.create(name, "far", "x", title="t")
        assert (await late.mediator.control.readiness())["degraded"] == []


class Slow:
    """A store that is opened when it is let, and that tells whether it is open."""

    def __init__(self, store: Store, let: asyncio.Event) -> None:
        self._store = store
        self._let = let
        self.open_ = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def open(self) -> None:
        await self._let.wait()
        await self._store.open()
        self.open_ = True

    async def close(self) -> None:
        await self._store.close()
        self.open_ = False


@dataclass
class Opens:
    """Makes stores, and lets those of one system be opened only when it is told so."""

    name: str
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    let: asyncio.Event = field(default_factory=asyncio.Event)
    made: list[Slow] = field(default_factory=list)

    def __call__(self, config: SystemConfig) -> Store:
        store: Any = make_store(config)
        if config.name == self.name:
            store = Slow(store, self.let)
            self.made.append(store)
            self.asked.set()
        opened: Store = store
        return opened


@pytest.fixture
async def other(mediator: Service, redis_config: SystemConfig) -> AsyncIterator[SystemConfig]:
    """A system that the other replica registers, forgotten at the end."""
    namespace = mediator.configs["redis"].namespace + "c"
    config = replace(redis_config, name=unique("other")[:30], namespace=namespace)
    yield config
    for known in await mediator.mediator.control.systems():
        if known["name"] == config.name:
            await mediator.mediator.control.unregister(config.name)


async def test_two_who_look_for_closed_systems_open_one_store(
    mediator: Service, system_configs: Sequence[SystemConfig], other: SystemConfig
) -> None:
    """The duty that looks for systems may be at it when settings are taken over."""
    opens = Opens(other.name)
    async with service(system_configs, mediator.catalogue_url, factory=opens) as late:
        await mediator.mediator.control.register(SystemRegistration(other))
        registry = late.mediator.registry
        both = [asyncio.create_task(registry.reconnect()) for _ in range(2)]
        await opens.asked.wait()
        opens.let.set()
        await asyncio.gather(*both)
        assert [store.open_ for store in opens.made] == [True]
    assert not opens.made[0].open_


async def test_a_system_that_is_forgotten_while_it_is_opened_stays_forgotten(
    mediator: Service, system_configs: Sequence[SystemConfig], other: SystemConfig
) -> None:
    opens = Opens(other.name)
    control = mediator.mediator.control
    async with service(system_configs, mediator.catalogue_url, factory=opens) as late:
        await control.register(SystemRegistration(other))
        opening = asyncio.create_task(late.mediator.registry.reconnect())
        await opens.asked.wait()
        await control.unregister(other.name)
        opens.let.set()
        await opening
        assert [store.open_ for store in opens.made] == [False]
        with pytest.raises(Unavailable):
            late.mediator.systems.get(other.name)
        await late.mediator.registry.reconnect()
        for plane in (mediator, late):
            assert other.name not in {s["name"] for s in await plane.mediator.control.systems()}


async def test_of_two_replicas_that_register_a_name_one_is_refused(
    mediator: Service, system_configs: Sequence[SystemConfig], other: SystemConfig
) -> None:
    opens = Opens(other.name)
    async with service(system_configs, mediator.catalogue_url, factory=opens) as late:
        both = [
            asyncio.create_task(late.mediator.control.register(SystemRegistration(other))),
            asyncio.create_task(mediator.mediator.control.register(SystemRegistration(other))),
        ]
        await both[1]
        opens.let.set()
        with pytest.raises(Conflict, match="There is a system"):
            await both[0]
        # The duty may have heard of the other's meanwhile, and have opened that.
        assert not opens.made[0].open_


async def test_a_store_whose_conditional_writes_race_is_refused(
    mediator: Service, system_configs: Sequence[SystemConfig]
) -> None:
    def factory(config: SystemConfig) -> Store:
        store = make_store(config)
        racy: Any = RacyStore(store)
        return racy if config.name == "racy" else store

    async with service(system_configs, mediator.catalogue_url, factory=factory) as started:
        config = replace(started.configs["redis"], name="racy")
        with pytest.raises(Conflict, match="cannot hold data"):
            await started.mediator.control.register(SystemRegistration(config))
        with pytest.raises(NotFound):
            await started.mediator.control.system("racy")


async def test_replicas_share_what_they_measured(
    mediator: Service, system_configs: Sequence[SystemConfig], redis_config: SystemConfig
) -> None:
    url = redis_config.url
    options = {"coordination_url": url}
    catalogue = mediator.catalogue_url
    async with (
        service(system_configs, catalogue, **options) as one,  # type: ignore[arg-type]  # the url
        service(system_configs, catalogue, **options) as two,  # type: ignore[arg-type]  # the url
    ):
        name = await one.put_schema({"notes": on("redis")})
        outcome = await one.create(name, "notes", "x", title="t")
        assert isinstance(outcome, Outcome)
        await one.mediator.share_metrics()
        await two.mediator.share_metrics()
        rows = (await two.mediator.control.system("redis"))["traffic"]
        assert any(row["database"] == name for row in rows)
        await one.mediator.control.delete_schema(name)
