"""The control plane over the real stores: schemas, systems, restarts and replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mediator.base.clock import SystemClock
from mediator.base.errors import (
    AdvisoryOnly,
    DataWouldMove,
    NotFound,
    PreconditionFailed,
    SchemaInvalid,
    Unplaceable,
)
from mediator.base.observation import ViolationDetected
from mediator.catalogue.evaluations import CatalogueProposals
from mediator.model.query import OrderBy, Query
from mediator.placement.candidates import Candidate
from mediator.stores.port import SystemConfig
from tests.process.control.classes import class_on
from tests.process.service import Service, field_on, service, unique


async def test_a_schema_is_set_read_changed_and_dropped(mediator: Service) -> None:
    control, name = mediator.mediator.control, unique("db")
    document = {"classes": {"notes": class_on("postgres")}}
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
    report = await control.delete_schema(name, dry_run=True)
    assert (report["objects"], report["dropped"]) == ({"notes": 1}, False)
    await control.delete_schema(name)
    for request in (mediator.get(name, "notes", "x"), control.schema(name)):
        with pytest.raises(NotFound):
            await request
    await control.set_schema(name, document)
    with pytest.raises(NotFound):
        await mediator.get(name, "notes", "x")


async def test_every_mistake_is_named(mediator: Service) -> None:
    mistaken = {"a": {"type": "strin"}, "b": {"type": "list", "items": "nothing"}}
    document = {"mode": "sideways", "classes": {"notes": {"fields": mistaken}}}
    with pytest.raises(SchemaInvalid) as caught:
        await mediator.mediator.control.set_schema(unique("db"), document)
    assert {location.pointer for location in caught.value.locations} == {
        "/mode",
        "/classes/notes/fields/a/type",
        "/classes/notes/fields/b/items",
    }


async def test_a_view_that_is_not_registered_is_refused(mediator: Service) -> None:
    schema = {"mode": "microbatched", "materialised_view": {"system": "nowhere"}, "classes": {}}
    with pytest.raises(SchemaInvalid) as refused:
        await mediator.mediator.control.set_schema("views", schema)
    assert [location.pointer for location in refused.value.locations] == [
        "/materialised_view/system"
    ]
    assert "views" not in mediator.mediator.data.model.databases


async def test_an_unplaceable_schema_changes_nothing(mediator: Service) -> None:
    name = await mediator.put_schema({"notes": class_on("postgres")})
    before = mediator.mediator.data.model.databases[name]
    impossible = class_on("postgres")
    impossible["fields"]["title"]["annotations"].append({"require": "full_text_search"})
    with pytest.raises(Unplaceable) as caught:
        await mediator.mediator.control.set_schema(name, {"classes": {"notes": impossible}})
    [node] = caught.value.extra["nodes"]
    assert node["node"] == "notes.title"
    assert set(node["systems"]) >= {"redis", "postgres", "mongo"}
    assert mediator.mediator.data.model.databases[name] is before


async def test_stated_metrics_move_the_next_schema_and_no_data(mediator: Service) -> None:
    control = mediator.mediator.control
    filled = await mediator.put_schema({"notes": class_on("redis")})
    await mediator.create(filled, "notes", "x", title="t")
    try:
        await control.amend("redis", metrics={"write_throughput": 1.0})
        await control.amend("mongo", metrics={"write_throughput": 1e6})
        assert mediator.systems_of(filled, "notes") == ("redis",)
        [proposal] = [p for p in await control.proposals(filled) if p["node"] == "notes.title"]
        assert (proposal["current"], proposal["proposed"]) == ("redis", "mongo")
        assert proposal["why"].startswith("notes.title decides for itself: mongo writes ")
        advice = await control.advise({"schema": {"classes": {"notes": class_on("redis")}}})
        assert advice["placements"]["notes.title"]["system"] == "mongo"
        later = await mediator.put_schema({"notes": class_on("redis")})
        assert mediator.systems_of(later, "notes") == ("mongo",)
        # Drift neither refuses a harmless change nor moves existing data.
        harmless = class_on("redis")
        harmless["fields"]["more"] = {"type": "integer", "index": True}
        classes = {"notes": harmless, "others": class_on("postgres")}
        change = await control.set_schema(filled, {"classes": classes})
        assert change.placements["notes.title"]["system"] == "redis"
        assert (await mediator.get(filled, "notes", "x")).values == {"title": "t"}
        assert (await mediator.get(filled, "notes", "x")).partial == ()
    finally:
        await mediator.favour()


async def test_proposals_are_shared_outlive_replicas_and_go_with_their_database(
    mediator: Service, replica: Service, system_configs: Sequence[SystemConfig]
) -> None:
    control = mediator.mediator.control
    name = await mediator.put_schema({"notes": class_on("redis")})

    async def proposals_of(plane: Service) -> list[dict[str, Any]]:
        await plane.mediator.schemas.refresh()
        proposals = await plane.mediator.control.proposals(name)
        return [proposal for proposal in proposals if proposal["node"] == "notes.title"]

    try:
        await control.amend("redis", metrics={"write_throughput": 1.0})
        await control.amend("mongo", metrics={"write_throughput": 1e6})
        [first] = await proposals_of(mediator)
        since = datetime.fromisoformat(first["since"])
        assert abs(datetime.now(UTC) - since) < timedelta(hours=1), "a wall-clock time"
        [other] = await proposals_of(replica)
        async with service(system_configs, mediator.catalogue_url) as later:
            [restarted] = await proposals_of(later)
            await later.mediator.registry.reconnect()
            await later.mediator.control.calibrate("redis")  # which evaluates the scores again
            [reevaluated] = await proposals_of(later)
        assert [p["since"] for p in (other, restarted, reevaluated)] == [first["since"]] * 3
        assert [p["why"] for p in (other, restarted)] == [first["why"]] * 2
        await control.delete_schema(name)
        await control.set_schema(name, {"classes": {"notes": class_on("redis")}})
        assert await proposals_of(mediator) == []
    finally:
        await mediator.favour()


async def test_an_evaluation_that_began_before_another_changes_none_of_its_proposals(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = mediator.mediator.control
    name = await mediator.put_schema({"notes": class_on("redis")})
    stored = CatalogueProposals(mediator.mediator.catalogue)
    loaded = await stored.load()

    async def load(_: CatalogueProposals) -> Any:
        return loaded

    try:
        await control.amend("redis", metrics={"write_throughput": 1.0})
        await control.amend("mongo", metrics={"write_throughput": 1e6})
        first = await control.proposals(name)
        assert first
        with monkeypatch.context() as patched:
            patched.setattr(CatalogueProposals, "load", load)
            await control.calibrate("redis")  # which evaluates the scores again
        assert [p["since"] for p in await control.proposals(name)] == [p["since"] for p in first]
    finally:
        await mediator.favour()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"classes": {"notes": class_on("mongo")}}, id="another system"),
        pytest.param({"classes": {"notes": {"fields": {"title": {"type": "integer"}}}}}, id="type"),
        pytest.param({"classes": {"notes": {"fields": {"other": field_on("redis")}}}}, id="field"),
        pytest.param({"classes": {"rest": class_on("redis")}}, id="class"),
        pytest.param({"classes": {"notes": class_on("redis")}, "mode": "advisory"}, id="advisory"),
    ],
)
async def test_a_change_that_would_move_data_is_refused(
    mediator: Service, change: dict[str, Any]
) -> None:
    control = mediator.mediator.control
    name = await mediator.put_schema({"notes": class_on("redis")})
    await mediator.create(name, "notes", "x", title="t")
    plan = (await control.set_schema(name, change, dry_run=True)).moves
    assert plan
    with pytest.raises(DataWouldMove) as caught:
        await control.set_schema(name, change)
    assert caught.value.extra["plan"] == list(plan)
    assert all(move["node"].startswith("notes") for move in plan)
    assert await mediator.values(name, "notes", "x") == {"title": "t"}
    empty = await mediator.put_schema({"notes": class_on("redis")})
    await control.set_schema(empty, change)
    if change.get("mode") == "advisory":
        with pytest.raises(AdvisoryOnly):
            await mediator.get(empty, "notes", "x")


@pytest.mark.parametrize("system", ["redis", "postgres", "mongo"])
async def test_fields_and_indexes_are_added_to_classes_that_hold_data(
    mediator: Service, system: str
) -> None:
    control, data = mediator.mediator.control, mediator.mediator.data
    name = await mediator.put_schema({"notes": class_on(system)})
    await mediator.create(name, "notes", "old", title="t")
    fields = {
        "title": field_on(system),
        "size": field_on(system, "float"),
        "list": field_on(system, "list", items="string"),
    }
    await control.set_schema(
        name, {"classes": {"notes": {"fields": fields}, "more": class_on(system)}}
    )
    assert await mediator.values(name, "notes", "old") == {"title": "t"}
    await mediator.create(name, "notes", "new", title="u", size=3.0, list=["a"])
    assert await mediator.values(name, "notes", "new") == {"title": "u", "size": 3.0, "list": ["a"]}
    if system == "mongo":
        return
    fields["size"]["index"] = True
    await control.set_schema(
        name, {"classes": {"notes": {"fields": fields}, "more": class_on(system)}}
    )
    result = await data.query(Query(name, "notes", order=(OrderBy(("size",)),)))
    assert [item.outcome.id for item in result.items] == ["old", "new"]


async def test_placements_are_explained_at_each_level(mediator: Service) -> None:
    control = mediator.mediator.control
    name = await mediator.put_schema({"notes": class_on("redis")})
    for node in ((), ("notes",), ("notes", "title")):
        explanation = await control.explain(name, *node)
        assert explanation["why"]
        assert set(explanation["candidates"]) >= {"redis", "postgres", "mongo"}
        assert explanation["epoch"] == mediator.mediator.data.model.epoch
    assert explanation["system"] == "redis"
    assert explanation["margin"]["runner_up"] in {"postgres", "mongo"}
    for node in (("nothing",), ("notes", "nothing")):
        with pytest.raises(NotFound):
            await control.explain(name, *node)


class AdjustableClock(SystemClock):
    """A clock that a test can advance."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


async def test_the_evaluation_yields_after_each_database(mediator: Service) -> None:
    for _ in range(5):
        await mediator.put_schema({"things": {"fields": {"title": {"type": "string"}}}})
    evaluating = asyncio.create_task(mediator.mediator.evaluation.evaluate())
    turns = 0
    while not evaluating.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns > 5


async def test_metrics_are_computed_once_for_all_databases(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        await mediator.put_schema({"things": {"fields": {"title": {"type": "string"}}}})
    registry, count, this_task = mediator.mediator.registry, 0, asyncio.current_task()
    original = registry.candidates

    def count_candidates() -> list[Candidate]:
        nonlocal count
        count += asyncio.current_task() is this_task  # the periodic evaluation can run meanwhile
        return original()

    monkeypatch.setattr(registry, "candidates", count_candidates)
    await mediator.mediator.evaluation.evaluate()
    assert count == 1


async def test_a_violation_is_recorded_after_its_duration(
    mediator: Service, system_configs: Sequence[SystemConfig]
) -> None:
    clock = AdjustableClock()
    rule = {
        "metric": "write_latency",
        "utility": {"shape": "linear", "points": [[0.020, 1], [0.050, 0]]},
        "violation": {"below": 0.5, "for_s": 60},
    }
    classes = {"notes": {"fields": {"title": {"type": "string", "annotations": [rule]}}}}
    async with service(system_configs, mediator.catalogue_url, clock=clock) as instance:
        control = instance.mediator.control
        name = await instance.put_schema(classes)
        [system] = instance.systems_of(name, "notes")
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
            detected = [o for o in instance.observed if isinstance(o, ViolationDetected)]
            assert [o.database for o in detected] == [name]
            await control.amend(system, metrics={"write_latency": 0.001})
            assert [e["phase"] for e in await control.violations(name)] == ["ended", "began"]
        finally:
            await control.amend(system, metrics={"write_latency": None})
            await control.delete_schema(name)
