"""Copies of complete objects: of versions that existed, and never older than they look."""

from __future__ import annotations

import random
import time
from collections import Counter

import pytest

from mediator.coordination.scripts import script_of
from mediator.model.operations import Get
from mediator.routing.freshness import ReadPreference
from mediator.stores.port import SystemConfig
from redis_connection.scripts import Script
from tests.faults.caching.redis_server import Server
from tests.process.service import Service, inc, scratch_catalogue, scratch_systems, service, unique
from tests.process.views.views import (
    BOUND_S,
    SHIFTED_TIME,
    History,
    ViewClient,
    client_of,
    eventual_copy,
    execute,
    fields,
    set_mode,
)


async def test_existing_objects_are_copied(mirrored: Service) -> None:
    classes = {"articles": {"fields": fields()}}
    database = await mirrored.put_schema(classes)
    async with client_of(mirrored, database) as client:
        view = ViewClient(mirrored, database, client)
        for number in range(30):
            await view.send("PUT", f"a{number}", {"title": f"t{number}", "hits": number})
        await set_mode(mirrored, database, "microbatched")
        await view.wait_until_complete()
        for number in range(30):
            copy = await view.read_copy(f"a{number}")
            assert copy is not None
            assert copy.values == {"title": f"t{number}", "hits": number}


async def test_copies_that_were_not_maintained_for_a_while_are_rebuilt(mirrored: Service) -> None:
    database = await mirrored.put_schema(
        {"articles": {"fields": fields()}},
        mode="microbatched",
        materialised_view={"system": "postgres"},
    )
    async with client_of(mirrored, database) as client:
        view = ViewClient(mirrored, database, client)
        await view.send("PUT", "a", {"title": "before"})
        await view.wait_until_caught_up()
        await set_mode(mirrored, database, "mixed")
        await view.send("PUT", "b", {"title": "meanwhile"})
        await set_mode(mirrored, database, "microbatched")
        await view.wait_until_complete()
        assert await view.read_copy("a") is not None
        assert await view.read_copy("b") is not None


async def test_copies_are_of_versions_that_existed_and_within_the_bound(view: ViewClient) -> None:
    """Oracle R3 of docs/papers/ppm.md: 1,000 increments over 100 articles in random order."""
    rng, history = random.Random(3), History()
    data, database = view.service.mediator.data, view.database
    ids = [f"r{number}" for number in range(100)]
    for id_ in ids:
        created = await view.service.create(database, "articles", id_, hits=0, title=id_)
        history.note(id_, created.versions["hits"] or 0, 0)
    counts = Counter(dict.fromkeys(ids, 0))
    sampled = 0
    await view.wait_until_answered(ids[-1])
    for _ in range(1000):
        id_ = rng.choice(ids)
        outcome = await data.write(inc(database, "articles", id_))
        counts[id_] += 1
        history.note(id_, outcome.versions["hits"] or 0, counts[id_])
        requested_at = time.monotonic()
        read = await data.read(
            Get(database, "articles", rng.choice(ids)), ReadPreference("bounded")
        )
        if read.freshness is not None:
            history.check(read, requested_at)
            sampled += 1
    assert sampled
    await view.wait_until_caught_up()
    for id_ in ids:
        copy = await view.read_copy(id_)
        assert copy is not None
        assert copy.values["hits"] == counts[id_]


async def test_a_deletion_that_is_repeated_is_not_acknowledged_before_the_copy_is_gone(
    view: ViewClient, id_: str
) -> None:
    await view.send("PUT", id_, {"title": "Goal"})
    await view.wait_until_caught_up()
    await view.send("DELETE", id_, idempotency_key=id_)
    await view.wait_until_caught_up()  # otherwise the feed deletes the copy that is put back here
    # As if the view had not answered then.
    await execute(view, "UPDATE {} SET _deleted = NULL WHERE id = $1", id_)
    assert await view.read_copy(id_) is not None
    answer = await view.send("DELETE", id_, idempotency_key=id_)
    assert answer.headers["idempotency-replayed"] == "true"
    assert await view.read_copy(id_) is None


async def test_copies_do_not_look_new_when_the_shared_clock_is_set_back(
    redis_config: SystemConfig,
    postgresql_config: SystemConfig,
    mongodb_config: SystemConfig,
    shared: Server,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ages were differences of that clock: nothing was relayed, and every copy looked new."""
    offset = f"test:{unique()}"
    monkeypatch.setattr(
        "mediator.coordination.view_state.script_of",
        lambda name: Script(
            SHIFTED_TIME.format(offset)
            + script_of(name).text.replace("redis.call('TIME')", "time()")
        ),
    )
    configs = (redis_config, postgresql_config, mongodb_config)
    async with (
        scratch_systems(*configs) as systems,
        scratch_catalogue(postgresql_config) as url,
        service(systems, url, coordination_url=shared.url) as instance,
    ):
        await instance.favour()
        database = await instance.put_schema(
            {"articles": {"fields": fields()}},
            mode="microbatched",
            materialised_view={"system": "postgres", "staleness_s": BOUND_S},
        )
        await instance.create(database, "articles", "a", title="t", hits=0)
        outcome = await eventual_copy(instance, database, hits=0)
        assert outcome.freshness is not None
        coordination = instance.mediator.coordination
        assert coordination is not None
        logs = instance.mediator.changes.logs
        assert logs is not None
        await (
            instance.mediator.scheduler.stop()
        )  # only the test runs the relays and updates the placement
        await logs.close()
        await coordination.redis.set(offset, -60, ex=600)
        await instance.mediator.data.write(inc(database, "articles", "a"))
        acknowledged_at = time.monotonic()
        for _ in range(20):
            await instance.mediator.views.read_watermarks()
            requested_at = time.monotonic()
            read = Get(database, "articles", "a")
            outcome = await instance.mediator.data.read(read, ReadPreference("bounded"))
            if outcome.freshness is not None and (outcome.values or {})["hits"] == 0:
                assert outcome.freshness.measured_s >= requested_at - acknowledged_at
