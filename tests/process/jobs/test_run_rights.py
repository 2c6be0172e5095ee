"""Runs and the change feed are shown by the caller's rights to the classes at that time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import httpx
import pytest

from mediator.changes import former_owners
from mediator.stores.port import SystemConfig
from tests.faults.conditions import eventually
from tests.process.caching.guarded import CLASSES, COUNTS, FIELDS, Guarded, bearer, guarded
from tests.process.service import unique

VALUE: Final = "what-only-readers-may-know"
EVENTS: Final = {"accept": "text/event-stream"}
OWNED: Final[dict[str, Any]] = {
    "owner_field": "author",
    "fields": {**FIELDS, "author": {"type": "string", "required": True, "index": True}},
}


LONG: Final = timedelta(hours=1)
"""Longer than a busy machine takes for a test."""

Replica: TypeAlias = Callable[[], AbstractAsyncContextManager[Guarded]]


@pytest.fixture
def shared_service(
    redis_config: SystemConfig,
    own_systems: Sequence[SystemConfig],
    own_catalogue: str,
    tmp_path: Path,
) -> Replica:
    """Starts another replica."""
    return partial(guarded, own_systems[:2], own_catalogue, redis_config.url, tmp_path)


def job(class_name: str, **members: Any) -> dict[str, Any]:
    records = {"class": class_name, "filter": {"eq": ["title", VALUE]}}
    return {"kind": "example.count", "spec": {"records": records, "field": "title"}, **members}


async def operate(running: Guarded) -> dict[str, str]:
    return await running.headers("operator", "admin")


async def submit_job(running: Guarded, database: str, document: dict[str, Any]) -> str:
    """Submit a job as the operator; returns the path of its run."""
    path = f"/v1/{database}/jobs"
    answer = await running.data.post(path, json=document, headers=await operate(running))
    assert answer.status_code == 202, answer.text
    return f"{path}/{answer.json()['id']}"


async def set_classes(running: Guarded, database: str, classes: dict[str, Any]) -> None:
    path = f"/admin/v1/schemas/{database}"
    headers = await operate(running)
    answer = await running.admin.put(path, json={"classes": classes}, headers=headers)
    assert answer.status_code == 200, answer.text


async def new_database(running: Guarded, classes: dict[str, Any]) -> str:
    database = unique("db")
    await running.container.mediator.tenancy.own(running.owner, database)
    await set_classes(running, database, classes)
    return database


ROUTES: Final[list[tuple[str, str, dict[str, str]]]] = [
    ("GET", "", {}),
    ("GET", "", EVENTS),
    ("GET", "/results", {}),
    ("DELETE", "", {}),
    ("POST", "/resume", {}),
]


async def assert_refused_everywhere(
    running: Guarded, run: str, headers: dict[str, str], scope: str
) -> None:
    for method, path, route_headers in ROUTES:
        answer = await running.data.request(
            method, run + path, headers={**headers, **route_headers}
        )
        assert (answer.status_code, answer.json()["scope"]) == (403, scope), (method, path)
        assert VALUE not in answer.text


async def test_a_run_requires_read_access_to_its_classes(running: Guarded) -> None:
    run = await submit_job(running, running.database, job("secrets"))
    without_access = bearer(await running.key("jobs", f"write:{running.database}/notes"))
    await assert_refused_everywhere(running, run, without_access, "read")
    runs = await running.data.get(run.rpartition("/")[0], headers=without_access)
    assert runs.status_code == 200
    assert VALUE not in runs.text
    with_access = bearer(await running.key("jobs", f"read:{running.database}/secrets"))
    assert VALUE in (await running.data.get(run, headers=with_access)).text
    assert (await running.data.delete(run, headers=with_access)).status_code == 200
    assert (await running.data.post(f"{run}/resume", headers=with_access)).status_code == 202
    await running.data.delete(run, headers=with_access)


async def test_cancelling_and_resuming_require_write_access_to_the_class(
    running: Guarded,
) -> None:
    database = await new_database(running, {**CLASSES, "counts": COUNTS})
    document = job("secrets", into={"class": "counts", "id": ["value"]})
    run = await submit_job(running, database, document)
    reader = bearer(await running.key("jobs", "read"))
    assert (await running.data.get(run, headers=reader)).status_code == 200
    for method, path in (("DELETE", ""), ("POST", "/resume")):
        answer = await running.data.request(method, run + path, headers=reader)
        assert (answer.status_code, answer.json()["scope"]) == (403, "write")
    writer = bearer(
        await running.key("jobs", f"read:{database}/secrets", f"write:{database}/counts")
    )
    assert (await running.data.delete(run, headers=writer)).status_code == 200
    assert (await running.data.post(f"{run}/resume", headers=writer)).status_code == 202
    await running.data.delete(run, headers=writer)


@pytest.mark.parametrize("change", ["owned", "gone"])
async def test_a_run_over_a_class_with_owners_or_of_no_class_is_for_administrators(
    running: Guarded, change: str
) -> None:
    database = await new_database(running, {**CLASSES, "drafts": {"fields": FIELDS}})
    run = await submit_job(running, database, job("drafts"))
    reader = bearer(await running.key("jobs", "read", "write"))
    assert VALUE in (await running.data.get(run, headers=reader)).text
    await set_classes(running, database, CLASSES | ({"drafts": OWNED} if change == "owned" else {}))
    await assert_refused_everywhere(running, run, reader, "admin")
    administrator = bearer(await running.key(f"admin:{database}"))
    assert VALUE in (await running.data.get(run, headers=administrator)).text
    assert (await running.data.delete(run, headers=administrator)).status_code == 200


async def take_owner_field(running: Guarded, database: str) -> None:
    """Take the owner field from the class of drafts."""
    await set_classes(running, database, {**CLASSES, "drafts": {"fields": OWNED["fields"]}})


async def recreate(running: Guarded, database: str) -> None:
    """Drop the class of drafts, and create another one of its name, without owners."""
    await set_classes(running, database, CLASSES)
    await take_owner_field(running, database)


OwnerRemoval: TypeAlias = Callable[[Guarded, str], Awaitable[None]]


@pytest.fixture(params=[take_owner_field, recreate])
def remove_owners(request: pytest.FixtureRequest) -> OwnerRemoval:
    """Return a way to leave a class without owners."""
    removal: OwnerRemoval = request.param
    return removal


async def test_a_run_from_when_a_class_had_owners_stays_for_its_administrators(
    running: Guarded, remove_owners: OwnerRemoval
) -> None:
    database = await new_database(running, {**CLASSES, "drafts": OWNED})
    before = await submit_job(running, database, job("drafts"))
    await remove_owners(running, database)
    reader = bearer(await running.key("jobs", "read", "write"))
    await assert_refused_everywhere(running, before, reader, "admin")
    administrator = bearer(await running.key(f"admin:{database}"))
    assert VALUE in (await running.data.get(before, headers=administrator)).text
    after = await submit_job(running, database, job("drafts"))
    assert VALUE in (await running.data.get(after, headers=reader)).text
    for run in (before, after):
        assert (await running.data.delete(run, headers=administrator)).status_code == 200


async def test_the_key_of_a_job_does_not_show_a_run_from_when_its_class_had_owners(
    running: Guarded,
) -> None:
    database = await new_database(running, {**CLASSES, "drafts": OWNED})
    tenancy, key = running.container.mediator.tenancy, {"idempotency-key": unique("key")}

    async def submit(*grants: str) -> int:
        created = await tenancy.create_key(running.owner, "ada", grants)
        headers = {**bearer(created["key"]), **key}
        path = f"/v1/{database}/jobs"
        return (await running.data.post(path, json=job("drafts"), headers=headers)).status_code

    assert await submit("jobs", "admin") == 202
    await take_owner_field(running, database)
    assert await submit("jobs", "read") == 403


async def test_a_run_that_is_not_understood_is_for_administrators(running: Guarded) -> None:
    run = "f" * 32
    document = {"version": 0, "job": {"kind": "of.yesterday", "spec": {"x": VALUE}}}
    runs = running.container.mediator.runs
    id_ = running.container.mediator.data.model.databases[running.database].id
    database = (running.database, id_)
    await runs.submit(run, database, document, dry_run=False, key=None, fingerprint=None)
    path = f"/v1/{running.database}/jobs/{run}"
    await assert_refused_everywhere(
        running, path, bearer(await running.key("jobs", "write")), "admin"
    )
    operator = await operate(running)
    assert VALUE in (await running.data.get(path, headers=operator)).text
    await running.data.delete(path, headers=operator)


async def follow(
    running: Guarded, path: str, headers: dict[str, str], at_first: Callable[[], Awaitable[None]]
) -> bytes:
    """Follow an event stream to its end; `at_first` is awaited after its first events."""
    bodies: list[bytes] = []
    fields = [(name.encode(), value.encode()) for name, value in {**headers, **EVENTS}.items()]
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": fields,
    }

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Any) -> None:
        bodies.append(message.get("body", b""))
        if len(bodies) == 2:
            await at_first()

    await running.container.data(scope, receive, send)
    return b"".join(bodies)


async def test_following_a_run_ends_when_read_access_is_lost(running: Guarded) -> None:
    database = await new_database(running, {**CLASSES, "drafts": {"fields": FIELDS}})
    run = await submit_job(running, database, job("drafts"))
    reader = bearer(await running.key("jobs", "read"))

    async def give_owners() -> None:
        await set_classes(running, database, {**CLASSES, "drafts": OWNED})
        response = await running.data.delete(run, headers=await operate(running))
        assert response.status_code == 200

    body = await follow(running, run, reader, give_owners)
    assert b'"queued"' in body
    assert b'"cancelled"' not in body


async def test_idempotency_keys_of_jobs_are_separate_for_each_sender(running: Guarded) -> None:
    tenancy = running.container.mediator.tenancy
    path, key = f"/v1/{running.database}/jobs", {"idempotency-key": unique("key")}
    runs: dict[str, set[str]] = {}
    for subject in ("ada", "bob"):
        created = await tenancy.create_key(running.owner, subject, ["jobs", "read"])
        headers = {**bearer(created["key"]), **key}
        for _ in range(2):
            answer = await running.data.post(path, json=job("notes"), headers=headers)
            assert answer.status_code == 202, answer.text
            runs.setdefault(subject, set()).add(answer.json()["id"])
        assert answer.headers["idempotency-replayed"] == "true"
        other = await running.data.post(path, json=job("secrets"), headers=headers)
        assert other.status_code == 422
    assert len(runs["ada"]) == len(runs["bob"]) == 1
    assert runs["ada"] != runs["bob"]
    for (run,) in runs.values():
        await running.data.delete(f"{path}/{run}", headers=await operate(running))


async def changes(running: Guarded, database: str, headers: dict[str, str]) -> httpx.Response:
    return await running.data.get(f"/v1/{database}/changes?after=beginning", headers=headers)


async def until_relayed(running: Guarded, database: str, text: str, headers: dict[str, str]) -> str:
    async def is_relayed() -> bool:
        return text in (await changes(running, database, headers)).text

    await eventually(is_relayed)
    return (await changes(running, database, headers)).text


async def test_changes_of_a_class_that_is_gone_are_for_its_administrators(
    running: Guarded,
) -> None:
    database = await new_database(running, {**CLASSES, "drafts": OWNED})
    operator = await operate(running)
    reader = bearer(await running.key(f"read:{database}"))
    body = {"title": VALUE, "author": "bob"}
    draft = f"/v1/{database}/drafts/one"
    assert (await running.data.put(draft, json=body, headers=operator)).status_code == 201
    assert (await running.data.delete(draft, headers=operator)).status_code == 204
    assert (await changes(running, database, reader)).status_code == 403
    await until_relayed(running, database, VALUE, operator)
    await set_classes(running, database, CLASSES)
    note = f"/v1/{database}/notes/after"
    await running.data.put(note, json={"title": "known-to-readers"}, headers=operator)
    assert VALUE in await until_relayed(running, database, "known-to-readers", operator)
    text = await until_relayed(running, database, "known-to-readers", reader)
    assert VALUE not in text
    assert '"drafts"' not in text
    administrator = bearer(await running.key(f"read:{database}", f"admin:{database}/drafts"))
    assert VALUE in (await changes(running, database, administrator)).text


async def test_changes_from_when_a_class_had_owners_stay_for_its_administrators(
    running: Guarded, monkeypatch: pytest.MonkeyPatch, remove_owners: OwnerRemoval
) -> None:
    database = await new_database(running, {**CLASSES, "drafts": OWNED})
    operator = await operate(running)
    reader = bearer(await running.key(f"read:{database}"))
    draft = f"/v1/{database}/drafts/one"
    body = {"title": VALUE, "author": "bob"}
    assert (await running.data.put(draft, json=body, headers=operator)).status_code == 201
    assert (await running.data.delete(draft, headers=operator)).status_code == 204
    monkeypatch.setattr(former_owners, "MAX_CLOCK_SKEW", LONG)
    await remove_owners(running, database)
    await until_relayed(running, database, VALUE, operator)
    refused = await changes(running, database, reader)
    assert (refused.status_code, refused.json()["scope"]) == (403, "admin")
    # From here on one clock counts: the test and the servers run on the same machine.
    monkeypatch.setattr(former_owners, "MAX_CLOCK_SKEW", timedelta(0))
    body["title"] = "known-to-readers"
    assert (await running.data.put(draft, json=body, headers=operator)).status_code == 201
    text = await until_relayed(running, database, "known-to-readers", reader)
    assert VALUE not in text
    assert VALUE in await until_relayed(running, database, "known-to-readers", operator)


async def test_another_replica_knows_until_when_a_class_had_owners(
    running: Guarded, shared_service: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(former_owners, "MAX_CLOCK_SKEW", LONG)
    database = await new_database(running, {**CLASSES, "drafts": OWNED})
    reader = bearer(await running.key(f"read:{database}", "jobs"))
    run = await submit_job(running, database, job("drafts"))
    await take_owner_field(running, database)
    async with shared_service() as other:
        await assert_refused_everywhere(other, run, reader, "admin")
        assert (await changes(other, database, reader)).status_code == 403


async def test_changes_of_a_class_just_created_by_another_replica_are_shown(
    running: Guarded, shared_service: Replica
) -> None:
    database = await new_database(running, CLASSES)
    reader = bearer(await running.key(f"read:{database}"))
    async with shared_service() as other:
        relays = other.container.mediator.changes.logs
        assert relays is not None
        await other.container.mediator.scheduler.stop()  # no schema reaches it by a refresh,
        await relays.close()  # nor by a change that it relays
        await set_classes(running, database, {**CLASSES, "fresh": {"fields": FIELDS}})
        path = f"/v1/{database}/fresh/one"
        await running.data.put(path, json={"title": VALUE}, headers=await operate(running))
        await until_relayed(running, database, VALUE, reader)
        assert "fresh" not in other.container.mediator.data.model.databases[database].classes
        assert VALUE in (await changes(other, database, reader)).text
