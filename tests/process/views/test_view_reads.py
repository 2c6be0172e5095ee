"""Reads from the view of a microbatched database, within the bound."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest

from mediator.stores.port import Fragment, Read, Record, Store, StoreUnavailable
from tests.process.views.views import BOUND_S, ViewClient, last_view_read, make_stale


async def test_complete_objects_are_read_from_the_view(view: ViewClient, id_: str) -> None:
    body = {"title": "Goal", "hits": 3, "text": "long"}
    await view.send("PUT", id_, body)
    await view.wait_until_caught_up()
    answer = await view.send("GET", id_)
    assert answer.json() == {"id": id_, **body}
    bound, measured = answer.headers["portolan-staleness"].split(", ")
    assert bound == f"bound={BOUND_S:g}"
    assert 0 <= float(measured.removeprefix("measured=")) <= BOUND_S
    assert answer.headers["cache-control"] == "no-store"
    reports = last_view_read(view)
    assert (reports.class_name, reports.decision) == ("articles", "answered")
    assert measured == f"measured={reports.measured_s:.3f}"
    assert view.service.mediator.views.ages().keys() >= {(view.database, "articles")}


async def test_strong_reads_bypass_the_view(view: ViewClient, id_: str) -> None:
    await view.send("PUT", id_, {"title": "Goal"})
    await view.wait_until_caught_up()
    answer = await view.send("GET", id_, prefer="consistency=strong")
    assert "portolan-staleness" not in answer.headers
    assert answer.headers["preference-applied"] == "consistency=strong"


async def test_conditions_of_writes_go_by_the_systems(view: ViewClient, id_: str) -> None:
    """The view can be stale: conditions apply to the systems' versions, not to its own."""
    await make_stale(view, id_)
    stale = await view.send("GET", id_)
    assert (stale.json()["hits"], "portolan-staleness" in stale.headers) == (1, True)
    for etag in (stale.headers["etag"], '"other"'):
        await view.send("PUT", id_, {"title": "allowed"}, if_none_match=etag)
    newest = await view.send("GET", id_, prefer="consistency=strong")
    headers = {"if-none-match": newest.headers["etag"]}
    answer = await view.http.put(f"articles/{id_}", json={"title": "x"}, headers=headers)
    assert answer.status_code == 412


async def test_a_projection_is_read_from_the_view_on_request(view: ViewClient, id_: str) -> None:
    await view.send("PUT", id_, {"title": "Goal"})
    await view.wait_until_caught_up()
    assert "portolan-staleness" not in (await view.send("GET", f"{id_}?fields=title")).headers
    answer = await view.send("GET", f"{id_}?fields=title", prefer="consistency=bounded")
    assert "portolan-staleness" in answer.headers
    assert answer.json() == {"id": id_, "title": "Goal"}


async def test_a_tighter_bound_than_the_age_is_kept_by_the_systems(
    view: ViewClient, id_: str
) -> None:
    await view.send("PUT", id_, {"title": "old"})
    await view.wait_until_caught_up()
    await view.send("PUT", id_, {"title": "new"})
    answer = await view.send("GET", id_, prefer="max-staleness=0")
    assert answer.json()["title"] == "new"
    assert "portolan-staleness" not in answer.headers
    assert last_view_read(view).decision == "stale"


async def test_a_read_at_a_position_includes_the_write(view: ViewClient, id_: str) -> None:
    await view.send("PUT", id_, {"title": id_})
    await view.wait_until_caught_up()
    for number in range(1, 21):
        position = (await view.inc(id_)).headers["portolan-position"]
        answer = await view.send("GET", id_, prefer=f"at-least={position}")
        assert answer.json()["hits"] == number
        query = {"filter": {"eq": ["title", id_]}}
        result = await view.http.post(
            "articles/query", json=query, headers={"prefer": f"at-least={position}"}
        )
        assert result.json()["items"][0]["hits"] == number


async def _read_no_copy(store: Store, copy: Fragment, reads: Sequence[Read]) -> list[Record | None]:
    if any(read.fragment == copy for read in reads):
        raise StoreUnavailable("connection refused")
    return list(await type(store).read(store, reads))


async def test_a_query_at_a_position_needs_no_view(
    view: ViewClient, id_: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    position = (await view.send("PUT", id_, {"title": id_})).headers["portolan-position"]
    await view.wait_until_caught_up()
    copy = view.route.copy
    assert copy is not None
    guarded = view.service.mediator.systems.get(copy.system)
    with monkeypatch.context() as patched:
        patched.setattr(guarded.store, "read", partial(_read_no_copy, guarded.store, copy))
        answer = await view.http.post(
            "articles/query",
            json={"filter": {"eq": ["title", id_]}, "allow_scan": True},
            headers={"prefer": f"at-least={position}"},
        )
    guarded.breaker.succeeded()
    assert answer.status_code == 200, answer.text
    assert [item["id"] for item in answer.json()["items"]] == [id_]
    assert "portolan-staleness" not in answer.headers
    assert last_view_read(view).decision == "unavailable"


async def test_deleted_objects_are_gone_everywhere_at_once(view: ViewClient, id_: str) -> None:
    await view.send("PUT", id_, {"title": "Goal", "text": "long"})
    await view.wait_until_caught_up()
    copy = await view.read_copy(id_)
    assert copy is not None
    await view.send("DELETE", id_)
    assert await view.read_copy(id_) is None
    assert (await view.http.get("articles/a")).status_code == 404
    await view.mirror(lambda mirror, fragment: mirror.absorb(fragment, [copy]))
    assert await view.read_copy(id_) is None
    await view.send("PUT", id_, {"title": "Another"})
    await view.wait_until_caught_up()
    recreated = await view.read_copy(id_)
    assert recreated is not None
    assert recreated.values["title"] == "Another"


async def test_objects_deleted_in_a_batch_are_gone_at_once(view: ViewClient, id_: str) -> None:
    await view.send("PUT", id_, {"title": "Goal"})
    await view.wait_until_caught_up()
    batch = {"operations": [{"op": "delete", "class": "articles", "id": id_}]}
    answer = await view.http.post("batch", json=batch)
    assert answer.is_success, answer.text
    assert await view.read_copy(id_) is None


async def test_queries_run_on_the_view(view: ViewClient, id_: str) -> None:
    for number in range(5):
        body = {"title": id_, "hits": number, "text": "even" if number % 2 == 0 else "odd"}
        await view.send("PUT", f"{id_}{number}", body)
    await view.wait_until_caught_up()
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
    page = await view.http.post("articles/query", json={**query, "limit": 1, "count": "exact"})
    assert "portolan-staleness" in page.headers
    assert page.json()["total"] == 2
    assert page.json()["explain"]["count"]["pushed"]["aggregate"]
