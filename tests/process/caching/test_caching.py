"""Cacheable answers: their headers, and when they have none (docs/protocol.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from app.coherence import clock_watch
from app.settings.main import CacheSettings
from mediator.model.guard import CacheKey
from mediator.stores.port import SystemConfig
from sketch.protocol.port import Partition, SketchUnavailable
from sketch.protocol.wire import decode
from tests.faults.conditions import eventually
from tests.process.caching.cached_paper import NOWHERE, Paper, paper_on
from tests.process.service import unique


@pytest.fixture
def id_() -> str:
    return unique("a")


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are dated even if the replica read the sketch's clock seconds ago."""
    monkeypatch.setattr(clock_watch, "LATE_S", 600.0)


async def test_a_cacheable_response_has_its_cache_headers(paper: Paper, id_: str) -> None:
    await paper.put(id_)
    answer = await paper.get(id_)
    headers = answer.headers
    assert headers["cache-control"] == (
        "public, max-age=0, s-maxage=60, must-revalidate, stale-while-revalidate=0"
    )
    assert headers["cdn-cache-control"] == "max-age=60"
    end_us = int(headers["portolan-expires"])
    assert headers["x-accel-expires"] == f"@{end_us // 1_000_000}"
    now_us = (await paper.filter()).snapshot.time_us
    assert now_us < end_us <= now_us + 60_000_000
    tags = headers["xkey"].split(" ")
    assert [len(tag) for tag in tags] == [32, 32]
    assert headers["surrogate-key"] == headers["xkey"]
    assert headers["cache-tag"] == ",".join(tags)
    assert headers["cache-groups"] == ", ".join(f'"{tag}"' for tag in tags)
    assert headers["cache-status"] == "Portolan; fwd=miss; ttl=60"
    assert "prefer" in headers["vary"].lower()


async def test_private_answers_are_for_the_client_alone(paper: Paper, id_: str) -> None:
    await paper.http.put(f"notes/{id_}", json={"text": "mine"})
    headers = (await paper.http.get(f"notes/{id_}")).headers
    assert headers["cache-control"] == "private, max-age=0, must-revalidate"
    assert int(headers["portolan-expires"]) > 0
    assert not headers.keys() & {"xkey", "x-accel-expires", "cdn-cache-control", "cache-groups"}


@pytest.mark.parametrize("class_name", ["secrets", "mortals"])
async def test_other_classes_are_always_revalidated(
    paper: Paper, id_: str, class_name: str
) -> None:
    await paper.http.put(f"{class_name}/{id_}", json={})
    headers = (await paper.http.get(f"{class_name}/{id_}")).headers
    assert headers["cache-control"] == "no-cache"
    assert "portolan-expires" not in headers


async def test_the_estimator_learns_only_from_writes_to_cached_classes(
    paper: Paper, id_: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Learning takes memory for each key ever written."""
    class_names: set[str] = set()

    def wrote(partition: Partition, *_: object) -> None:
        class_names.add(partition.class_name)

    monkeypatch.setattr(paper.caches.estimator, "wrote", wrote)
    for class_name in ("articles", "notes", "secrets"):
        answer = await paper.http.put(f"{class_name}/{id_}", json={})
        assert answer.status_code == 201, answer.text
    assert class_names == {"articles", "notes"}


async def test_other_parameters_and_preferences_are_not_cacheable(paper: Paper, id_: str) -> None:
    put = await paper.put(id_)
    assert (await paper.get(id_, "?fields=title,hits")).headers["cache-control"] == "no-store"
    preference = f"at-least={put.headers['portolan-position']}"
    assert "portolan-expires" not in (await paper.get(id_, prefer=preference)).headers
    strong = await paper.get(id_, prefer="consistency=strong")
    assert "portolan-expires" in strong.headers


async def test_a_write_adds_the_keys_of_cached_copies_to_the_filter(paper: Paper, id_: str) -> None:
    await paper.put(id_)
    assert not (await paper.filter()).contains(f"articles/{id_}#main")
    await paper.get(id_)
    assert not (await paper.filter()).contains(f"articles/{id_}#hits")
    await paper.inc(id_)
    snapshot = await paper.filter()
    assert snapshot.contains(f"articles/{id_}#hits")
    assert not snapshot.contains(f"articles/{id_}#main")
    assert snapshot.map["articles"] == {"hits": ("hits",), "main": ("title",)}


async def test_a_projection_stays_cacheable_while_a_counter_is_hot(paper: Paper, id_: str) -> None:
    await paper.put(id_)
    article = await paper.get(id_, "?fields=title")
    await paper.get(id_)
    await paper.inc(id_)
    snapshot = await paper.filter()
    assert not any(map(snapshot.contains, [f"articles/{id_}#main"]))
    confirmed = await paper.get(id_, "?fields=title", if_none_match=article.headers["etag"])
    assert confirmed.status_code == 304


async def test_deletion_and_recreation_are_writes(paper: Paper, id_: str) -> None:
    await paper.put(id_)
    await paper.get(id_)
    await paper.http.delete(f"articles/{id_}")
    snapshot = await paper.filter()
    assert snapshot.contains(f"articles/{id_}#main")
    assert snapshot.contains(f"articles/{id_}#hits")


async def test_a_current_copy_is_confirmed_without_a_store(paper: Paper, id_: str) -> None:
    await paper.put(id_)
    await paper.get(id_)
    await paper.inc(id_)
    tag = (await paper.get(id_)).headers["etag"]

    async def is_confirmed() -> bool:
        answer = await paper.get(id_, if_none_match=tag)
        assert answer.status_code == 304
        assert answer.headers["etag"] == tag
        assert "portolan-expires" in answer.headers
        return answer.headers["cache-status"].startswith("Portolan; hit")

    await eventually(is_confirmed)
    paper.running.observed.clear()
    assert await is_confirmed()
    names = [type(observation).__name__ for observation in paper.running.observed]
    assert "StoreCallFinished" not in names
    await paper.inc(id_)
    assert (await paper.get(id_, if_none_match=tag)).status_code == 200


async def test_nothing_is_cacheable_while_a_write_is_pending(paper: Paper, id_: str) -> None:
    await paper.put(id_)
    token = await paper.caches.guard.begin(paper.database, [CacheKey("articles", id_, "hits")])
    answer = await paper.get(id_)
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    projection = await paper.get(id_, "?fields=title")
    assert "portolan-expires" in projection.headers
    await paper.caches.guard.end(paper.database, token, {})
    assert "portolan-expires" in (await paper.get(id_)).headers


async def test_a_refused_write_leaves_no_pending_write(paper: Paper, id_: str) -> None:
    await paper.put(id_)
    refused = await paper.http.put(
        f"articles/{id_}", json={"title": "Two"}, headers={"if-none-match": "*"}
    )
    assert refused.status_code == 412
    assert "portolan-expires" in (await paper.get(id_)).headers


async def test_the_filter_is_served_whole_or_by_class_in_two_forms(paper: Paper, id_: str) -> None:
    every_class = await paper.http.get("sketch")
    assert set(decode(every_class.content).map) == {"articles", "notes", "secrets", "mortals"}
    single = await paper.http.get("sketch?class=articles")
    assert set(decode(single.content).map) == {"articles"}
    json = await paper.http.get("sketch?class=articles", headers={"accept": "application/json"})
    assert json.json()["m"] == 116_800
    plain = await paper.http.get("sketch?class=articles", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    tags = {answer.headers["etag"] for answer in (single, json, plain)}
    assert len(tags) == 3
    tag = single.headers["etag"]
    same = await paper.http.get("sketch?class=articles", headers={"if-none-match": tag})
    assert same.status_code == 304
    assert int(same.headers["portolan-sketch-time"]) > decode(single.content).snapshot.time_us
    await paper.put(id_)
    await paper.get(id_)
    await paper.inc(id_)
    changed = await paper.http.get("sketch?class=articles", headers={"if-none-match": tag})
    assert changed.status_code == 200
    assert (await paper.http.get("sketch?class=nothing")).status_code == 404
    assert (await paper.http.get("sketch?what=1")).status_code == 400


async def test_an_orphaned_write_is_fenced_and_recovered(paper: Paper, id_: str) -> None:
    await paper.put(id_)
    await paper.get(id_)
    key = CacheKey("articles", id_, "hits")
    token = await paper.caches.guard.begin(paper.database, [key])

    async def recovered() -> bool:
        return "portolan-expires" in (await paper.get(id_, "?fields=hits")).headers

    assert not await recovered()
    assert (await paper.filter()).contains(str(key))
    await paper.end_lease(token)
    await eventually(recovered)


async def test_without_the_sketch_writes_are_refused_and_reads_are_not_cacheable(
    own_systems: Sequence[SystemConfig], own_catalogue: str, id_: str
) -> None:
    async with paper_on(own_systems, own_catalogue, NOWHERE, CacheSettings()) as paper:
        refused = await paper.http.put(f"articles/{id_}", json={"title": "One"})
        assert refused.status_code == 503
        assert refused.headers["content-type"] == "application/problem+json"
        assert refused.json()["system"] == "the cache sketch"
        assert (await paper.get(id_)).status_code == 404
        assert (await paper.http.get("sketch")).status_code == 503
        with pytest.raises(SketchUnavailable):
            await paper.caches.sketch.report_read(paper.partition, [f"articles/{id_}#main"], 1.0)


async def test_concurrent_writes_are_all_in_the_filter(paper: Paper) -> None:
    ids = [unique("m") for _ in range(40)]
    await asyncio.gather(*map(paper.put, ids))
    await asyncio.gather(*(paper.get(object_id) for object_id in ids))
    await asyncio.gather(*(paper.inc(object_id) for object_id in ids))
    snapshot = await paper.filter()
    assert all(snapshot.contains(f"articles/{object_id}#hits") for object_id in ids)
    answers = await asyncio.gather(*(paper.get(object_id) for object_id in ids))
    assert {answer.json()["hits"] for answer in answers} == {1}


async def get_date_us(paper: Paper, id_: str, query: str = "?max_age=2") -> int:
    """Let the replica read the sketch's clock; return the date of an answer (microseconds)."""
    await paper.caches.clock_watch.check()
    return int((await paper.get(id_, query)).headers["portolan-as-of"])


@pytest.mark.usefixtures("unhurried")
async def test_a_dated_response_is_cacheable_for_the_requested_max_age(
    paper: Paper, id_: str
) -> None:
    await paper.put(id_)
    before_us = (await paper.filter()).snapshot.time_us
    await get_date_us(paper, id_)
    answer = await paper.get(id_, "?fields=title&max_age=2")
    headers, date_us = answer.headers, int(answer.headers["portolan-as-of"])
    assert headers["cache-control"].startswith("public, max-age=0, s-maxage=2, must-revalidate")
    assert int(headers["portolan-expires"]) == date_us + 2_000_000
    assert before_us - 1_000_000 < date_us <= (await paper.filter()).snapshot.time_us
    confirmed = await paper.get(id_, "?fields=title&max_age=2", if_none_match=headers["etag"])
    assert confirmed.status_code == 304
    assert int(confirmed.headers["portolan-as-of"]) >= date_us


@pytest.mark.usefixtures("unhurried")
async def test_dated_responses_add_no_keys_to_the_filter(paper: Paper, id_: str) -> None:
    await paper.put(id_)
    await get_date_us(paper, id_)
    await paper.inc(id_)
    assert not (await paper.filter()).contains(f"articles/{id_}#hits")


@pytest.mark.usefixtures("unhurried")
async def test_an_answer_is_dated_before_the_systems_are_read(
    paper: Paper, id_: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await paper.put(id_)
    await get_date_us(paper, id_)
    read, times_us = paper.running.mediator.data.read, []

    async def read_later(*arguments: Any) -> Any:
        times_us.append((await paper.filter()).snapshot.time_us)
        return await read(*arguments)

    monkeypatch.setattr(paper.running.mediator.data, "read", read_later)
    assert await get_date_us(paper, id_) <= times_us[-1]


@pytest.mark.usefixtures("unhurried")
async def test_absence_is_dated(paper: Paper, id_: str) -> None:
    await get_date_us(paper, id_)
    assert (await paper.get(id_, "?max_age=2")).status_code == 404


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("class_name", ["notes", "secrets", "mortals"])
async def test_a_response_that_is_not_shared_cacheable_has_no_date(
    paper: Paper, id_: str, class_name: str
) -> None:
    await paper.http.put(f"{class_name}/{id_}", json={})
    await get_date_us(paper, id_)
    headers = (await paper.http.get(f"{class_name}/{id_}?max_age=2")).headers
    assert headers["cache-control"] == "no-cache"
    assert "portolan-as-of" not in headers


@pytest.mark.parametrize("max_age", ["0", "3601", "-1", "1.5", "x", ""])
async def test_max_age_is_bounded(paper: Paper, id_: str, max_age: str) -> None:
    answer = await paper.get(id_, f"?max_age={max_age}")
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["pointer"] == "max_age"


async def test_writes_have_no_age(paper: Paper, id_: str) -> None:
    answer = await paper.http.put(f"articles/{id_}?max_age=1", json={"title": "One"})
    assert answer.status_code == 400
